//! evictd: what the node, its pods and their containers use: processor time, memory, disk, network.
//!
//! Owns the figures: reads /proc and cgroups now and then, and at a call, and serves the newest summary. Owns the node's
//! pressure: sees what runs short, and asks syncd to evict pods for it. Must never change a cgroup, read one that is neither a
//! pod's nor one of the node's parts, or ask the runtime often while nobody asks here and no pod has a limit of disk.

mod cgroups;
mod collect;
mod config;
mod error;
mod evict;
mod extra;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzz;
mod grpc;
mod hardware;
mod health;
mod logs;
mod machine;
mod net;
mod node;
mod plan;
mod problems;
mod proc;
mod rate;
mod summary;
mod system;
#[cfg(test)]
mod testing;
mod whole;

use std::sync::Arc;

use bulkhead_api::common::v1::WatchRequest;
use bulkhead_api::evictd::v1::NodePressure;
use bulkhead_api::evictd::v1::evictd_server::EvictdServer;
use bulkhead_api::evictd::v1::pressures_server::PressuresServer;
use bulkhead_api::imaged::v1::imaged_client::ImagedClient;
use bulkhead_api::pleg::v1::pleg_client::PlegClient;
use bulkhead_api::syncd::v1::eviction_client::EvictionClient;
use bulkhead_api::syncd::v1::syncd_client::SyncdClient;
use bulkhead_api::volumed::v1::volumed_client::VolumedClient;
use bulkhead_cri::StatsClient;
use bulkhead_ipc::{Mirror, Publisher};
use bulkhead_reconcile::{LoopStatus, Waker, drive, wake};
use bulkhead_service::{Context, Desc, Service, ServiceError};
use tokio::sync::{Mutex, watch};
use tonic::service::Routes;

pub use crate::config::EvictdFlags;

use crate::collect::{Collector, Pods};
use crate::config::{EvictionSettings, Settings};
use crate::evict::Evictor;
use crate::extra::Extras;
use crate::grpc::{Handlers, Newest, PressureHandlers};
use crate::health::Watched;
use crate::machine::Machine;
use crate::node::{Node, Peers, Places};

/// Largest message taken of a stream. One holds up to 128 pods, whose containers' annotations may be long.
const MESSAGE_BYTES: usize = 16 * 1024 * 1024;

const EVICTIONS: Desc = Desc {
    name: "kubelet_evictions",
    help: "Cumulative number of pod evictions by eviction signal",
    labels: &["eviction_signal"],
};

/// The process.
pub struct Evictd;

impl Service for Evictd {
    const NAME: &'static str = "evictd";
    type Flags = EvictdFlags;

    async fn run(context: Context, flags: EvictdFlags) -> Result<(), ServiceError> {
        let eviction = EvictionSettings::new(&context.config);
        let settings = Settings::new(&context)
            .map_err(|error| ServiceError::configuration("the configured cgroups cannot be used", error))?;
        let context = Arc::new(context);
        let pods = pods(&context);
        let machine = Machine::new(flags.proc_dir, context.clock.clone())
            .with_root(&context.flags.root_dir)
            .with_system(settings.agent.clone(), settings.others.clone());
        let machine = Arc::new(machine);
        let (newest, latest) = watch::channel(None);
        let (status, passes) = watch::channel(LoopStatus::default());
        let (waker, waiting) = wake();

        let layout = settings.layout.clone();
        let collector = Collector::new(machine.clone(), pods.clone(), settings, newest);
        let asked = collector.asked();
        tokio::spawn(drive(collector, waiting, status, context.shutdown.clone().cancelled_owned()));
        wake_once_synced(&context, &pods, waker.clone());
        tokio::spawn(watch_health(
            context.clone(),
            Watched { latest: latest.clone(), status: passes.clone(), pods: pods.clone() },
        ));

        let extras = Extras::new(
            machine.clone(),
            StatsClient::new(context.cri_channel()),
            VolumedClient::new(context.peer("volumed")).max_decoding_message_size(MESSAGE_BYTES),
            context.config.pod_logs_dir.clone().into(),
        );
        let newest = Arc::new(Newest { latest, status: passes, waker, asked });
        let extras = Arc::new(extras);
        let node = Node {
            signals: eviction.rules.rules.iter().map(|rule| rule.signal).collect(),
            machine: machine.clone(),
            pods,
            layout,
            newest: newest.clone(),
            extras: extras.clone(),
            runtime: StatsClient::new(context.cri_channel()),
            peers: Peers {
                volumed: VolumedClient::new(context.peer("volumed")).max_decoding_message_size(MESSAGE_BYTES),
                imaged: ImagedClient::new(context.peer("imaged")),
                syncd: EvictionClient::new(context.peer("syncd")),
            },
            places: tokio::sync::Mutex::new(Places::default()),
            measured: tokio::sync::Mutex::default(),
        };
        let pressures = evict(&context, node, eviction);
        let handlers = Handlers { newest, extras, machine, reading: Mutex::default() };
        let routes = Routes::new(EvictdServer::new(handlers))
            .add_service(PressuresServer::new(PressureHandlers(pressures)));
        context.serve(routes).await
    }
}

/// Looks for pressure, from now on.
fn evict(context: &Context, node: Node, settings: EvictionSettings) -> Publisher<String, NodePressure> {
    let pressures = Publisher::new(context.shutdown.clone());
    let evictions = context.metrics.counter(EVICTIONS);
    let (waker, waiting) = wake();
    wake_once_synced(context, &node.pods, waker);
    let evictor =
        Evictor::new(Arc::new(node), settings, pressures.clone(), evictions).telling(context.recorder());
    let stopped = context.shutdown.clone().cancelled_owned();
    tokio::spawn(drive(evictor, waiting, watch::Sender::new(LoopStatus::default()), stopped));
    pressures
}

/// Pods that become known late need not wait for the interval.
fn wake_once_synced(context: &Context, pods: &Pods, waker: Waker) {
    let (pods, shutdown) = (pods.clone(), context.shutdown.clone());
    tokio::spawn(async move {
        if shutdown.run_until_cancelled(pods.synced()).await.is_some() {
            waker.wake();
        }
    });
}

/// Keeps the check; the process is ready from its first collection on, with or without peers.
async fn watch_health(context: Arc<Context>, watched: Watched) {
    let (check, latest) = (context.check("statistics"), watched.latest.clone());
    let shell = context.clone();
    let mut told = String::new();
    let follow = health::follow(watched, move |verdict| {
        if latest.borrow().is_some() {
            shell.ready();
        }
        let reason = verdict.err().unwrap_or_default();
        if reason.is_empty() {
            check.good();
        } else {
            if reason != told {
                tracing::warn!(reason, "statistics");
            }
            check.bad(reason.clone());
        }
        told = reason;
    });
    context.shutdown.run_until_cancelled(follow).await;
}

fn pods(context: &Context) -> Pods {
    let syncd = SyncdClient::new(context.peer("syncd")).max_decoding_message_size(MESSAGE_BYTES);
    let pleg = PlegClient::new(context.peer("pleg")).max_decoding_message_size(MESSAGE_BYTES);
    let views = Mirror::follow(context.channels.handle("syncd"), context.shutdown.clone(), move || {
        let mut client = syncd.clone();
        async move { client.watch_stats_views(WatchRequest {}).await }
    });
    let running = Mirror::follow(context.channels.handle("pleg"), context.shutdown.clone(), move || {
        let mut client = pleg.clone();
        async move { client.watch_pods(WatchRequest {}).await }
    });
    Pods { views, running }
}
