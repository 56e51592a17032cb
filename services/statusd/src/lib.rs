//! statusd: status of pods and of the node, as the API server sees them.
//!
//! Owns the status of every pod, put together from what syncd, pleg and prober know, and the facts about the node. Must
//! never change a status because a peer is away: what is not known just now stays as it was.

mod capacity;
mod cluster;
mod conditions;
mod config;
mod error;
mod events;
mod grpc;
mod health;
mod host;
mod images;
mod keeper;
mod marks;
mod milestones;
mod node;
mod pods;
mod readiness;
mod record;
mod records;
mod runtime;

#[cfg(test)]
mod fake;

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

use bulkhead_api::common::v1::WatchRequest;
use bulkhead_api::evictd::v1::NodePressure;
use bulkhead_api::evictd::v1::pressures_client::PressuresClient;
use bulkhead_api::pleg::v1::pleg_client::PlegClient;
use bulkhead_api::prober::v1::prober_client::ProberClient;
use bulkhead_api::statusd::v1::PodStatus;
use bulkhead_api::statusd::v1::events_server::EventsServer;
use bulkhead_api::statusd::v1::statusd_server::StatusdServer;
use bulkhead_api::syncd::v1::syncd_client::SyncdClient;
use bulkhead_base::chain;
use bulkhead_cri::ObserveClient;
use bulkhead_ipc::{Mirror, Publisher};
use bulkhead_model::status::NodeFacts;
use bulkhead_reconcile::{LoopStatus, drive, wake};
use bulkhead_service::{Check, Context, NoFlags, Service, ServiceError, StateFile};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tonic::service::Routes;

use crate::conditions::Conditions;
use crate::config::Settings;
use crate::events::EventHandlers;
use crate::grpc::{Handlers, NodeReader};
use crate::health::Health;
use crate::host::Roots;
use crate::marks::Marks;
use crate::pods::{Inputs, Parts, Pods};
use crate::records::{Memory, Records};
use crate::runtime::{RuntimeState, RuntimeWatch};

/// Largest message taken of a peer. Its 128 pods come with annotations, each of which may have 16 KiB.
const MESSAGE_BYTES: usize = 16 * 1024 * 1024;

/// What carries the memory over statusd's own restart, in its state folder.
const FILE: &str = "statuses.json";
const FILE_VERSION: u32 = 1;

/// The process.
pub struct Statusd;

impl Service for Statusd {
    const NAME: &'static str = "statusd";
    type Flags = NoFlags;

    async fn run(context: Context, _: NoFlags) -> Result<(), ServiceError> {
        run(context, PathBuf::from("/")).await
    }
}

/// Runs statusd until `context.shutdown`, with the facts of the machine whose root folder is `root`.
///
/// # Errors
/// When its socket cannot be had or the drain took too long.
pub async fn run(context: Context, root: PathBuf) -> Result<(), ServiceError> {
    let context = Arc::new(context);
    let (records, keeper) = remember(&context).await?;
    let (runtime, facts) = watch_runtime(&context, records.clone());
    let inputs = follow(&context);
    let views = inputs.views.clone();
    let publisher = compute(&context, inputs.clone(), facts.clone(), records);
    let health = Health {
        inputs,
        pressures: follow_pressures(&context),
        runtime: runtime.clone(),
        board: context.peers().clone(),
        conditions: Arc::new(Conditions::default()),
        clock: context.clock.clone(),
    };
    background(&context, health.clone().follow(context.check("statuses")));
    let (listed, images) = watch::channel(Vec::new());
    if context.flags.kubeconfig().is_some() {
        let most = context.config.node_status_max_images;
        background(&context, images::follow(context.peer("imaged"), most, listed));
    }
    let node = NodeReader {
        settings: Settings::new(&context),
        roots: Roots { root, disk: context.flags.root_dir.clone() },
        runtime,
        facts,
        health,
        images,
        reading: Arc::default(),
    };
    let node = Arc::new(node);
    let events = cluster::start(&context, node.clone(), views, publisher.clone());
    let handlers = Handlers { publisher, node };
    let events = EventsServer::new(EventHandlers(events));
    let result = context.serve(Routes::new(StatusdServer::new(handlers)).add_service(events)).await;
    if result.is_ok() {
        // The last changes; it ends with the shutdown that has ended the server.
        let _ = keeper.await;
    }
    result
}

/// What an earlier life left, and the task that saves it for the next one.
async fn remember(context: &Context) -> Result<(Records, JoinHandle<()>), ServiceError> {
    let file = StateFile::new(&context.own_state_dir(), FILE, FILE_VERSION);
    let check = context.check("state file");
    let memory = load(&file, &check).await?;
    let (changed, waiting) = wake();
    let records = Records::new(memory, changed);
    let save = move |memory| save(file.clone(), memory, check.clone());
    let keeper = keeper::keep(records.clone(), waiting, context.shutdown.clone(), save);
    Ok((records, tokio::spawn(keeper)))
}

/// Asks the runtime about itself, from now on.
fn watch_runtime(
    context: &Context,
    records: Records,
) -> (watch::Receiver<RuntimeState>, watch::Receiver<NodeFacts>) {
    let flags = context.flags.clone();
    let runtime_name = records.runtime_name();
    let state = RuntimeState { name: runtime_name.clone(), ..RuntimeState::default() };
    let (state, runtime) = watch::channel(state);
    let host_ips = flags.node_ips().iter().map(IpAddr::to_string).collect();
    let (node, facts) = watch::channel(NodeFacts { host_ips, runtime_name, recursive_read_only: None });
    let reconciler = RuntimeWatch {
        client: ObserveClient::new(context.cri_channel()),
        addresses: move || flags.node_ips(),
        state,
        node,
        records,
        version_asked: None,
    };
    // Nobody wakes it: what it asks is asked now and then.
    let (_, never) = wake();
    let stopped = context.shutdown.clone().cancelled_owned();
    tokio::spawn(drive(reconciler, never, watch::Sender::new(LoopStatus::default()), stopped));
    (runtime, facts)
}

/// Computes and publishes statuses, from now on. The process is ready once all are published.
fn compute(
    context: &Arc<Context>,
    inputs: Inputs,
    facts: watch::Receiver<NodeFacts>,
    records: Records,
) -> Publisher<String, PodStatus> {
    let (waker, waiting) = wake();
    let marks = Marks::new(waker);
    background(context, marks.clone().follow_pods(inputs.views.clone()));
    background(context, marks.clone().follow_pods(inputs.pods.clone()));
    background(context, marks.clone().follow_results(inputs.results.clone()));
    background(context, marks.clone().follow_node(facts.clone()));

    let publisher = Publisher::new(context.shutdown.clone());
    let (opened, mut is_open) = watch::channel(false);
    let pods = Pods::new(Parts {
        inputs,
        marks,
        node: facts,
        records,
        publisher: publisher.clone(),
        clock: context.clock.clone(),
        opened,
    });
    let stopped = context.shutdown.clone().cancelled_owned();
    tokio::spawn(drive(pods, waiting, watch::Sender::new(LoopStatus::default()), stopped));
    let shell = context.clone();
    background(context, async move {
        if is_open.wait_for(|open| *open).await.is_ok() {
            shell.ready();
        }
    });
    publisher
}

/// Runs a task that the shutdown ends.
fn background(context: &Context, task: impl Future<Output = ()> + Send + 'static) {
    let shutdown = context.shutdown.clone();
    tokio::spawn(async move { shutdown.run_until_cancelled(task).await });
}

fn follow_pressures(context: &Context) -> Mirror<String, NodePressure> {
    let evictd = PressuresClient::new(context.peer("evictd"));
    Mirror::follow(context.channels.handle("evictd"), context.shutdown.clone(), move || {
        let mut client = evictd.clone();
        async move { client.watch_pressure(WatchRequest {}).await }
    })
}

fn follow(context: &Context) -> Inputs {
    let (shutdown, handle) = (&context.shutdown, |name| context.channels.handle(name));
    let syncd = SyncdClient::new(context.peer("syncd")).max_decoding_message_size(MESSAGE_BYTES);
    let pleg = PlegClient::new(context.peer("pleg")).max_decoding_message_size(MESSAGE_BYTES);
    let prober = ProberClient::new(context.peer("prober")).max_decoding_message_size(MESSAGE_BYTES);
    Inputs {
        views: Mirror::follow(handle("syncd"), shutdown.clone(), move || {
            let mut client = syncd.clone();
            async move { client.watch_status_views(WatchRequest {}).await }
        }),
        pods: Mirror::follow(handle("pleg"), shutdown.clone(), move || {
            let mut client = pleg.clone();
            async move { client.watch_pods(WatchRequest {}).await }
        }),
        results: Mirror::follow(handle("prober"), shutdown.clone(), move || {
            let mut client = prober.clone();
            async move { client.watch_results(WatchRequest {}).await }
        }),
    }
}

/// Reads what an earlier life left. A file that cannot be used costs transition times, never the process.
async fn load(file: &StateFile<Memory>, check: &Check) -> Result<Memory, ServiceError> {
    let file = file.clone();
    let loaded = tokio::task::spawn_blocking(move || file.load()).await;
    match loaded.map_err(|error| ServiceError::failed("the state file was not read", error))? {
        Ok(memory) => {
            check.good();
            Ok(memory.unwrap_or_default())
        }
        Err(error) => {
            let error = chain(&error).to_string();
            tracing::error!(error, "earlier statuses are lost");
            check.bad(error);
            Ok(Memory::default())
        }
    }
}

/// Writes the memory; says whether that succeeded.
async fn save(file: StateFile<Memory>, memory: Memory, check: Check) -> bool {
    let error = match tokio::task::spawn_blocking(move || file.save(&memory)).await {
        Ok(Ok(())) => {
            check.good();
            return true;
        }
        Ok(Err(error)) => chain(&error).to_string(),
        Err(error) => error.to_string(),
    };
    if check.newly_bad(format!("a restart would lose transition times: {error}")) {
        tracing::error!(
            error,
            "statuses are not saved; a restart of statusd would lose their transition times"
        );
    }
    false
}
