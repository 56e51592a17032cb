//! Asks processes for their metrics, all at once. A process that does not answer in time is told as missing.

use std::collections::BTreeMap;
use std::time::Duration;

use bulkhead_api::access::ACCESS;
use bulkhead_api::process::v1::process_client::ProcessClient;
use bulkhead_api::process::v1::{GetMetricsRequest, MetricFamily};
use bulkhead_ipc::status::with_deadline;
use bulkhead_ipc::{Channels, PeerBoard, PeerChannel};
use bulkhead_service::Context;
use tonic::Status;

use super::Told;

/// How long a process may take.
const PATIENCE: Duration = Duration::from_secs(2);

/// The processes of this node.
#[derive(Clone)]
pub(crate) struct Gatherer {
    clients: BTreeMap<String, ProcessClient<PeerChannel>>,
}

impl Gatherer {
    /// Every process of the access file, this one included.
    pub(crate) fn new(context: &Context) -> Self {
        // As in the health board: the channel to itself stays off the board of peers.
        let board = PeerBoard::new(context.clock.clone());
        let own = Channels::new(&context.flags.run_dir, context.identities.clone(), board);
        let client = |name: &str| {
            ProcessClient::new(if name == context.name { own.peer(name) } else { context.peer(name) })
        };
        Self { clients: ACCESS.process.keys().map(|name| (name.clone(), client(name))).collect() }
    }

    /// What all processes tell, by name.
    pub(crate) async fn all(&self) -> Vec<Told> {
        let asked = self.clients.iter().map(|(name, client)| async move {
            let told = ask(client.clone()).await;
            (name.clone(), told.ok())
        });
        futures::future::join_all(asked).await
    }

    /// What one process tells.
    ///
    /// # Errors
    /// When it does not answer in time.
    pub(crate) async fn one(&self, process: &str) -> Result<Vec<MetricFamily>, Status> {
        match self.clients.get(process) {
            Some(client) => ask(client.clone()).await,
            None => Err(Status::not_found("it is not known")),
        }
    }
}

async fn ask(mut client: ProcessClient<PeerChannel>) -> Result<Vec<MetricFamily>, Status> {
    let asked = client.get_metrics(with_deadline(GetMetricsRequest {}, PATIENCE));
    match tokio::time::timeout(PATIENCE, asked).await {
        Ok(answer) => Ok(answer?.into_inner().families),
        Err(_) => Err(Status::deadline_exceeded(format!("it took longer than {} s", PATIENCE.as_secs()))),
    }
}
