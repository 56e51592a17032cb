//! crigate: the only process that may open the container runtime's socket. Every other process gets a CRI socket of its
//! own here, which passes the methods that proto/access.toml lists for it and nothing else.
//!
//! Owns the runtime's socket, the CRI sockets, and what was refused. Must never decode a message that it need not judge,
//! keep a message, or call the runtime on its own behalf for anything but asking whether it is there.

mod ahead;
mod body;
mod config;
mod error;
mod gate;
mod grpc;
mod health;
mod limits;
mod listener;
mod methods;
mod operations;
mod policy;
mod probe;
mod table;
mod upstream;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bulkhead_api::access::ACCESS;
use bulkhead_api::crigate::v1::crigate_server::CrigateServer;
use bulkhead_service::{Context, Service, ServiceError};
use tonic::service::Routes;

use crate::config::Endpoints;
use crate::gate::{Endpoint, Gate};
use crate::grpc::Calls;
use crate::health::RuntimeHealth;
use crate::listener::Listeners;
use crate::policy::Judge;
use crate::table::Table;
use crate::upstream::Upstream;

/// The process.
pub struct Crigate;

/// Its own flags.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Flags {
    /// Policy file: what pods may ask of the runtime. Without it, what the kubelet allows.
    #[arg(long, value_name = "FILE")]
    pub policy: Option<PathBuf>,
}

/// A socket of the runtime, and whether it answers.
struct Server {
    socket: Arc<Path>,
    health: RuntimeHealth,
}

impl Service for Crigate {
    const NAME: &'static str = "crigate";
    type Flags = Flags;

    async fn run(context: Context, flags: Flags) -> Result<(), ServiceError> {
        let endpoints =
            Endpoints::new(context.flags.cri_endpoint.as_deref(), &context.config).map_err(|error| {
                ServiceError::configuration("the container runtime's socket is not known", error)
            })?;
        let methods = methods::of_runtime_v1().map_err(|error| {
            ServiceError::failed("the built-in description of runtime.v1 is broken", error)
        })?;
        let logs = Path::new(&context.config.pod_logs_dir);
        let judge = Judge::load(flags.policy.as_deref(), &context.flags.root_dir, logs)
            .map_err(|error| ServiceError::configuration("the node policy cannot be used", error))?;
        let runtime = Server::new(&context, endpoints.runtime, "runtime");
        let images = endpoints.images.map(|socket| Server::new(&context, socket, "image service"));

        let gates: Vec<Arc<Gate>> = ACCESS
            .process
            .iter()
            .filter(|(_, row)| !row.cri.is_empty())
            .map(|(name, _)| {
                let table = Table::new(&ACCESS, name, &methods);
                let images = images.as_ref().map(Server::endpoint);
                Arc::new(Gate::new(
                    table,
                    judge.clone(),
                    runtime.endpoint(),
                    images,
                    context.shutdown.clone(),
                ))
            })
            .collect();
        let listeners = Listeners::bind(&context, &gates).await?;
        for server in std::iter::once(&runtime).chain(&images) {
            probe::spawn(
                Upstream::new(server.socket.clone()),
                server.health.clone(),
                context.shutdown.clone(),
            );
        }
        let measured = gates.clone();
        context.metrics.read_with(move || {
            let mut totals = BTreeMap::new();
            measured.iter().for_each(|gate| gate.add_operations(&mut totals));
            operations::families(&totals)
        });
        context.ready();
        let routes = Routes::new(CrigateServer::new(Calls::new(gates)));
        let sockets = listeners.serve(context.shutdown.clone());
        tokio::try_join!(context.serve(routes), sockets).map(|_| ())
    }
}

impl Server {
    fn new(context: &Context, socket: Arc<Path>, name: &'static str) -> Self {
        Self { health: RuntimeHealth::new(&socket, context.check(name)), socket }
    }

    /// A connection of its own for each who asks.
    fn endpoint(&self) -> Endpoint {
        Endpoint { upstream: Arc::new(Upstream::new(self.socket.clone())), health: self.health.clone() }
    }
}
