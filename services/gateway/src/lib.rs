//! gateway: the node's read-only face. Health, the read-only port, pods and container logs for the command line.
//!
//! Owns the ports that the node listens on and what is told there. Must never change anything: it asks others, and reads
//! log files.

mod config;
mod error;
mod grpc;
mod health;
mod http;
mod logs;
mod metrics;
mod pods;
mod stats;

use std::sync::Arc;

use bulkhead_api::common::v1::WatchRequest;
use bulkhead_api::evictd::v1::evictd_client::EvictdClient;
use bulkhead_api::gateway::v1::gateway_server::GatewayServer;
use bulkhead_api::pleg::v1::pleg_client::PlegClient;
use bulkhead_api::statusd::v1::statusd_client::StatusdClient;
use bulkhead_api::syncd::v1::syncd_client::SyncdClient;
use bulkhead_ipc::Mirror;
use bulkhead_service::{Context, NoFlags, Service, ServiceError};
use tonic::service::Routes;

pub use config::Settings;
pub use http::Doors;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub use logs::fuzz_log;

use health::board::{Board, Peers};
use http::answer::Front;
use http::requests::Requests;
use http::server::{Bounds, Port};
use logs::Logs;
use metrics::gather::Gatherer;
use pods::source::Pods;

/// Largest summary taken: some 5 KiB a pod.
const SUMMARY_BYTES: usize = 16 * 1024 * 1024;

/// The process.
pub struct Gateway;

impl Service for Gateway {
    const NAME: &'static str = "gateway";
    type Flags = NoFlags;

    async fn run(context: Context, _: NoFlags) -> Result<(), ServiceError> {
        let settings = Settings::from_configuration(&context.config);
        let doors = Doors::open(&settings).await?;
        run(context, settings, doors).await
    }
}

/// Runs gateway until `context.shutdown`: [`Gateway`] with settings and bound ports of the caller's.
///
/// # Errors
/// When its socket cannot be had or the drain took too long.
pub async fn run(context: Context, settings: Settings, doors: Doors) -> Result<(), ServiceError> {
    let check = context.check("http");
    let shutdown = context.shutdown.clone();

    let statusd = StatusdClient::new(context.peer("statusd"));
    let statuses = Mirror::follow(context.channels.handle("statusd"), shutdown.clone(), move || {
        let mut client = statusd.clone();
        async move { client.watch_statuses(WatchRequest {}).await }
    });
    let pleg = PlegClient::new(context.peer("pleg"));
    let runtime = Mirror::follow(context.channels.handle("pleg"), shutdown.clone(), move || {
        let mut client = pleg.clone();
        async move { client.watch_pods(WatchRequest {}).await }
    });

    let health = Arc::new(Board::new(Peers::new(&context)));
    let pods = Pods::new(SyncdClient::new(context.peer("syncd")), statuses);
    let front = Front {
        health: health.clone(),
        pods: pods.clone(),
        evictd: EvictdClient::new(context.peer("evictd")).max_decoding_message_size(SUMMARY_BYTES),
        gatherer: Gatherer::new(&context),
        requests: Requests::new(&context.metrics),
    };
    let front = Arc::new(front);
    let Doors { healthz, read_only } = doors;
    for (port, listener) in [(Port::Healthz, healthz), (Port::ReadOnly, read_only)] {
        if let Some(listener) = listener {
            let serving =
                http::server::serve(listener, port, front.clone(), check.clone(), Bounds::default());
            let shutdown = shutdown.clone();
            tokio::spawn(async move { shutdown.run_until_cancelled(serving).await });
        }
    }
    check.good();

    let logs = Logs::new(settings.pod_logs_dir, pods.clone(), runtime, context.clock.clone(), shutdown);
    let routes = Routes::new(GatewayServer::new(grpc::Handlers { pods, logs, health }));
    context.ready();
    context.serve(routes).await
}
