//! apigate: the only process that holds the node's credential for the API server. Every other process gets an API socket of
//! its own here, which passes the verbs and resources that proto/access.toml lists for it and nothing else.
//!
//! Owns the credential, the node's certificates, the connections to the API server, the API sockets, and what was refused. Must
//! never keep a message, look into one, or ask the API server anything on its own behalf but whether it is there, for a
//! certificate, and for the node's own addresses, which belong into one.

mod answer;
mod base64;
mod body;
mod choose;
mod counts;
mod credential;
mod csr;
mod dial;
mod error;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzz;
mod gate;
mod headers;
mod health;
mod held;
mod keeper;
mod kubeconfig;
mod limits;
mod listener;
mod own;
mod pem;
mod probe;
mod query;
mod renew;
mod request;
mod secret;
mod serving;
mod store;
#[cfg(test)]
mod testing;
mod upstream;

use std::path::Path;
use std::sync::Arc;

use bulkhead_api::access::ACCESS;
use bulkhead_reconcile::{LoopStatus, Reconciler, Trigger, drive, wake};
use bulkhead_service::{Context, Desc, NoFlags, Service, ServiceError};
use tokio::sync::watch;
use tonic::service::Routes;

use crate::counts::Counts;
use crate::gate::{Gate, Shared};
use crate::health::ServerHealth;
use crate::held::{Held, Holder};
use crate::keeper::{Keeper, Places, Wanted};
use crate::kubeconfig::Kubeconfig;
use crate::listener::Listeners;
use crate::renew::Renewal;
use crate::store::Store;
use crate::upstream::Upstream;

pub use crate::error::CredentialError;

/// The process.
pub struct Apigate;

/// The text of a kubeconfig file with all files that it names in it: for a launcher that hands it over. Blocks for files.
///
/// # Errors
/// When something of it cannot be read or used.
pub fn flatten(path: &Path) -> Result<String, CredentialError> {
    let folder = path.parent().unwrap_or(Path::new("/"));
    let parsed = Kubeconfig::parse(&credential::read(path)?, folder);
    let kubeconfig =
        parsed.map_err(|source| CredentialError::Kubeconfig { path: path.to_owned(), source })?;
    // So that what cannot be used is said before anything is started with it.
    credential::Credential::new(&kubeconfig, None)?;
    kubeconfig.flatten(credential::read)
}

impl Service for Apigate {
    const NAME: &'static str = "apigate";
    type Flags = NoFlags;

    async fn run(context: Context, _: NoFlags) -> Result<(), ServiceError> {
        let places = places(&context);
        let holder = keep(&context, places.as_ref()).await;
        let health = ServerHealth::new(places.as_ref().map(|_| context.check("apiserver")));
        let upstream = Arc::new(Upstream::new(holder.clone()));
        let shared = Shared {
            node: context.flags.node_name().into(),
            upstream: upstream.clone(),
            health: health.clone(),
            counts: Counts::new(&context.metrics, &ACCESS),
            shutdown: context.shutdown.clone(),
        };
        let gates: Vec<Arc<Gate>> = ACCESS
            .process
            .iter()
            .filter(|(_, row)| !row.api.is_empty())
            .map(|(name, row)| Arc::new(Gate::new(name, row.api.clone(), shared.clone())))
            .collect();
        let listeners = Listeners::bind(&context, &gates).await?;
        if places.is_some() {
            probe::spawn(upstream, holder.clone(), health, context.shutdown.clone());
            let (clock, holder) = (context.clock.clone(), holder.clone());
            context.metrics.read_with(move || vec![renew::time_left(&holder, &*clock)]);
        }
        context.metrics.read_with(move || vec![in_flight(&gates)]);
        serving::start(&context, &holder);
        // Without an API server too: who waits for it is told so.
        context.ready();
        let sockets = listeners.serve(context.shutdown.clone());
        tokio::try_join!(context.serve(Routes::default()), sockets).map(|_| ())
    }
}

/// `None`: the node runs without a cluster.
fn places(context: &Context) -> Option<Places> {
    let flags = &context.flags;
    Some(Places {
        kubeconfig: flags.kubeconfig()?.to_owned(),
        bootstrap: flags.bootstrap_kubeconfig().map(ToOwned::to_owned),
        store: Store::new(flags.cert_dir()),
        rotates: context.config.rotate_certificates,
    })
}

/// Starts keeping the credential. Returns when it was looked for once, so that the first requests find what there is.
async fn keep(context: &Context, places: Option<&Places>) -> Holder {
    let Some(places) = places else {
        // A check without a fault: a node that shall have no cluster is well.
        context.check("no kubeconfig, no API server").good();
        return watch::channel(Held::Standalone).1;
    };
    let (held, holder) = watch::channel(Held::Missing("it was not read yet".into()));
    let (wanted, wants) = watch::channel(Wanted::Nothing);
    let (waker, wake) = wake();
    let renewal = Renewal {
        places: places.clone(),
        node: context.flags.node_name().into(),
        clock: context.clock.clone(),
        holder: holder.clone(),
        wanted: wants,
        keeper: waker,
        failures: renew::failures(&context.metrics),
    };
    let mut keeper = Keeper {
        places: places.clone(),
        clock: context.clock.clone(),
        held,
        wanted,
        check: context.check("credential"),
        seen: None,
    };
    keeper.reconcile(Trigger::Start).await;
    let (status, _) = watch::channel(LoopStatus::default());
    tokio::spawn(drive(keeper, wake, status, context.shutdown.clone().cancelled_owned()));
    if places.manages() {
        tokio::spawn(context.shutdown.clone().run_until_cancelled_owned(renewal.run()));
    }
    holder
}

fn in_flight(gates: &[Arc<Gate>]) -> bulkhead_api::process::v1::MetricFamily {
    let desc = Desc {
        name: "bulkhead_apigate_requests_in_flight",
        help: "Requests and watches that are not answered to their end, by process.",
        labels: &["process"],
    };
    #[expect(clippy::cast_precision_loss, reason = "at most a thousand")]
    desc.gauge(gates.iter().map(|gate| (vec![gate.process().to_owned()], gate.in_flight() as f64)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_room_for_all_that_processes_may_have_in_flight() {
        let processes = ACCESS.process.values().filter(|row| !row.api.is_empty()).count();
        let most = processes * (limits::CALLS + limits::WATCHES);
        assert!(limits::CONNECTIONS * limits::STREAMS >= most, "{most}");
    }
}
