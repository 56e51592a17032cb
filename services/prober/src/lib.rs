//! prober: runs startup, liveness and readiness probes and publishes what they add up to, per container id.
//!
//! Owns when a probe runs and what its answers mean. Must never start, stop or kill anything, and must never take a peer or
//! a runtime that is away for a container that is ill.

mod container;
mod counts;
mod error;
mod grpc;
mod handlers;
mod health;
mod keeper;
mod lanes;
mod plan;
mod report;
mod results;
mod saver;
mod schedule;
mod store;
#[cfg(test)]
mod testing;
mod worker;

use std::net::{IpAddr, Ipv4Addr};

use bulkhead_api::common::v1::WatchRequest;
use bulkhead_api::pleg::v1::pleg_client::PlegClient;
use bulkhead_api::prober::v1::hooks_server::HooksServer;
use bulkhead_api::prober::v1::prober_server::ProberServer;
use bulkhead_api::syncd::v1::syncd_client::SyncdClient;
use bulkhead_cri::{ExecClient, ObserveClient};
use bulkhead_ipc::{Mirror, Publisher};
use bulkhead_reconcile::{LoopStatus, drive, wake};
use bulkhead_service::{CommonFlags, Context, NoFlags, Service, ServiceError};
use tokio::sync::watch;
use tonic::service::Routes;

use counts::Counts;
use handlers::ProbeHandlers;
use keeper::{Inputs, Keeper, Tools};
use lanes::Lanes;
use results::Results;
use saver::Saver;
use schedule::Spread;
use store::Store;

#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub use handlers::fuzz;

/// Largest message taken of a stream. One holds up to 128 pods, whose commands and headers may be long.
const MESSAGE_BYTES: usize = 16 * 1024 * 1024;

/// The process.
pub struct Prober;

impl Service for Prober {
    const NAME: &'static str = "prober";
    type Flags = NoFlags;

    async fn run(context: Context, _: NoFlags) -> Result<(), ServiceError> {
        let inputs = inputs(&context);
        let store = Store::new(&context.own_state_dir());
        let known = store.load_or_start_afresh().await;
        let publisher = Publisher::new(context.shutdown.clone());
        let (waker, wake) = wake();
        let results = Results::new(publisher.clone(), known, waker);
        let saver = Saver::new(store.clone(), results.known(), context.check("kept results"));
        let last_words = results.known();

        let cri = context.cri_channel();
        let handlers = ProbeHandlers::new(
            ExecClient::new(cri.clone()),
            ObserveClient::new(cri),
            node_address(context.flags.clone()),
        )
        .map_err(|error| ServiceError::failed("cannot set up TLS for probes", error))?;
        let hooks = HooksServer::new(grpc::HookRunner::new(handlers.clone()));
        let tools = Tools {
            handlers,
            clock: context.clock.clone(),
            spread: Spread::random(),
            lanes: Lanes::default(),
        };

        let stopped = || context.shutdown.clone().cancelled_owned();
        tokio::spawn(health::watch(inputs.clone(), context.check("probes"), context.shutdown.clone()));
        tokio::spawn(drive(saver, wake, watch::Sender::new(LoopStatus::default()), stopped()));
        let keeper = Keeper::new(inputs, tools, results)
            .counting(Counts::new(&context.metrics))
            .telling(context.recorder());
        tokio::spawn(keeper.run(context.shutdown.clone()));

        // Without peers it waits for them; that is what the check says, and no reason to hold others back.
        context.ready();
        let routes = Routes::new(ProberServer::new(grpc::Handlers::new(publisher))).add_service(hooks);
        let served = context.serve(routes).await;
        let known = last_words.borrow().clone();
        if let Err(error) = store.save(known).await {
            tracing::warn!(error = %bulkhead_base::chain(&error), "the last results could not be kept");
        }
        served
    }
}

/// Where pods in the host's network are probed. Asked anew each time: a node's address may change while it runs.
fn node_address(flags: CommonFlags) -> impl Fn() -> IpAddr + Send + Sync + 'static {
    move || flags.node_ips().first().copied().unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST))
}

fn inputs(context: &Context) -> Inputs {
    let syncd = SyncdClient::new(context.peer("syncd")).max_decoding_message_size(MESSAGE_BYTES);
    let pleg = PlegClient::new(context.peer("pleg")).max_decoding_message_size(MESSAGE_BYTES);
    let views = Mirror::follow(context.channels.handle("syncd"), context.shutdown.clone(), move || {
        let mut client = syncd.clone();
        async move { client.watch_probe_views(WatchRequest {}).await }
    });
    let pods = Mirror::follow(context.channels.handle("pleg"), context.shutdown.clone(), move || {
        let mut client = pleg.clone();
        async move { client.watch_pods(WatchRequest {}).await }
    });
    Inputs { views, pods }
}
