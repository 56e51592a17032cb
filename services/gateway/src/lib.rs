//! gateway: the node's face. Health, the read-only port, the secured port with exec, attach and port-forward, pods and
//! container logs for the command line.
//!
//! Owns the ports that the node listens on and what is told there. Must never change anything itself: it asks others, reads log
//! files, and joins whoever may to the runtime's streams.

mod auth;
mod config;
mod error;
mod grpc;
mod health;
mod http;
mod logs;
mod metrics;
mod pods;
mod secured;
mod stats;
mod stream;
mod tls;

use std::sync::Arc;

use bulkhead_api::common::v1::WatchRequest;
use bulkhead_api::evictd::v1::evictd_client::EvictdClient;
use bulkhead_api::gateway::v1::gateway_server::GatewayServer;
use bulkhead_api::pleg::v1::pleg_client::PlegClient;
use bulkhead_api::statusd::v1::statusd_client::StatusdClient;
use bulkhead_api::syncd::v1::syncd_client::SyncdClient;
use bulkhead_cri::StreamClient;
use bulkhead_ipc::Mirror;
use bulkhead_service::{CommonFlags, Context, NoFlags, Service, ServiceError};
use tonic::service::Routes;

pub use config::{AccessSettings, Offers, Settings, TlsSettings};
pub use http::Doors;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub use logs::fuzz_log;

use auth::{Guard, Reviews};
use health::board::{Board, Peers};
use http::answer::Front;
use http::requests::Requests;
use http::server::{Bounds, Port};
use logs::Logs;
use metrics::gather::Gatherer;
use pods::source::Pods;
use secured::answer::Site;
use stream::Streams;
use tls::Tls;

/// Logs that may be read at a time on the secured port.
const REMOTE_READERS: usize = 64;
/// Largest summary taken: some 5 KiB a pod.
const SUMMARY_BYTES: usize = 16 * 1024 * 1024;

/// The process.
pub struct Gateway;

impl Service for Gateway {
    const NAME: &'static str = "gateway";
    type Flags = NoFlags;

    async fn run(context: Context, _: NoFlags) -> Result<(), ServiceError> {
        let flags = &context.flags;
        let settings = Settings::new(&context.config, &flags.node_name(), &flags.cert_dir());
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
    let Doors { healthz, read_only, secured } = doors;
    for (port, listener) in [(Port::Healthz, healthz), (Port::ReadOnly, read_only)] {
        if let Some(listener) = listener {
            let serving =
                http::server::serve(listener, port, front.clone(), check.clone(), Bounds::default());
            let shutdown = shutdown.clone();
            tokio::spawn(async move { shutdown.run_until_cancelled(serving).await });
        }
    }
    check.good();

    let folder = settings.pod_logs_dir.clone();
    let logs = Logs::new(folder, pods.clone(), runtime.clone(), context.clock.clone(), shutdown.clone());
    if let Some(listener) = secured {
        let tls = Tls::new(&settings.tls).map_err(|error| {
            ServiceError::configuration("the secured port cannot be opened as the configuration says", error)
        })?;
        tls.keep(settings.tls.clone(), context.check("certificates"), shutdown.clone()).await;
        let client =
            bulkhead_kubeapi::over_socket(&context.api_socket(), context.identities.uid_of("apigate"));
        let site = Site {
            guard: Guard::new(
                settings.access,
                settings.tls.client_ca.is_some(),
                tls.authorities.clone(),
                Reviews::new(client),
                context.clock.clone(),
            ),
            front: front.clone(),
            logs: logs.with_places(REMOTE_READERS),
            streams: Streams::new(
                pods.clone(),
                runtime.clone(),
                StreamClient::new(context.cri_channel()),
                settings.idle,
                shutdown.clone(),
            ),
            runtime,
            offers: settings.offers,
            config: context.config.clone(),
            flags: shown(&context.flags),
            started: context.clock.now(),
            clock: context.clock.clone(),
            patience: settings.idle,
        };
        let check = context.check("secured port");
        check.good();
        let bounds = secured::server::Bounds::default();
        tokio::spawn(secured::server::serve(listener, tls.config, Arc::new(site), check, bounds, shutdown));
    }
    let routes = Routes::new(GatewayServer::new(grpc::Handlers { pods, logs, health }));
    context.ready();
    context.serve(routes).await
}

/// What `/flagz` shows: names of files, never what is in them.
fn shown(flags: &CommonFlags) -> Vec<(&'static str, String)> {
    let path = |path: &std::path::Path| path.display().to_string();
    let some = |file: Option<&std::path::Path>| file.map(path).unwrap_or_default();
    let ips: Vec<String> = flags.node_ip.iter().map(ToString::to_string).collect();
    vec![
        ("bootstrap-kubeconfig", some(flags.bootstrap_kubeconfig())),
        ("cert-dir", path(&flags.cert_dir())),
        ("config", some(flags.config.as_deref())),
        ("config-dir", some(flags.config_dir.as_deref())),
        ("hostname-override", flags.hostname_override.clone().unwrap_or_default()),
        ("kubeconfig", some(flags.kubeconfig())),
        ("node-ip", ips.join(",")),
        ("root-dir", path(&flags.root_dir)),
        ("run-dir", path(&flags.run_dir)),
        ("state-dir", path(&flags.state_dir)),
    ]
}
