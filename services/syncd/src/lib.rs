//! syncd: desired pods and their workers.
//!
//! Owns pod sources, one worker per pod, sandboxes and containers, restart back-off, termination, pod cgroups and pod
//! folders. Must never mount, probe, list the runtime or change anything in the API server: it asks those whose part that is.

mod classes;
mod config;
mod cri_config;
mod environment;
mod error;
mod evictions;
mod folders;
mod grpc;
mod housekeeping;
mod identity;
mod links;
mod machine;
mod manager;
mod measures;
mod peers;
mod plan;
mod source;
mod state;
mod unsupported;
mod views;
mod volume_troubles;
mod volumes;
mod worker;

use std::sync::{Arc, Mutex};

use bulkhead_api::common::v1::WatchRequest;
use bulkhead_api::evictd::v1::NodePressure;
use bulkhead_api::evictd::v1::pressures_client::PressuresClient;
use bulkhead_api::pleg::v1::pleg_client::PlegClient;
use bulkhead_api::prober::v1::prober_client::ProberClient;
use bulkhead_api::syncd::v1::MirrorPod;
use bulkhead_api::syncd::v1::eviction_server::EvictionServer;
use bulkhead_api::syncd::v1::submissions_server::SubmissionsServer;
use bulkhead_api::syncd::v1::syncd_server::SyncdServer;
use bulkhead_api::volumed::v1::volumed_client::VolumedClient;
use bulkhead_cgroup::{CgroupManager, CgroupName, Limits, Mounts, Version};
use bulkhead_cri::RunClient;
use bulkhead_ipc::{Mirror, Publisher};
use bulkhead_reconcile::{LoopStatus, drive, wake};
use bulkhead_service::{Context, NoFlags, Service, ServiceError};
use tokio::sync::{Notify, Semaphore, watch};
use tonic::service::Routes;

use crate::classes::RuntimeClasses;
use crate::config::{PARALLEL_STARTS, PARALLEL_STOPS, Settings};
use crate::environment::Environment;
use crate::evictions::Evictions;
use crate::grpc::SyncdService;
use crate::housekeeping::Housekeeping;
use crate::links::LogLinks;
use crate::manager::Manager;
use crate::measures::Measures;
use crate::peers::{PeerChannels, Peers};
use crate::source::{Board, FollowApi, FollowFiles, FollowUrl, Kind, Submissions};
use crate::state::Records;
use crate::views::Views;
use crate::worker::Deps;

/// The process.
pub struct Syncd;

impl Service for Syncd {
    const NAME: &'static str = "syncd";
    type Flags = NoFlags;

    async fn run(context: Context, _: NoFlags) -> Result<(), ServiceError> {
        let mut settings = Settings::new(&context)?;
        let cgroups = Arc::new(cgroup_tree(&settings)?);
        let kubepods = cgroups.layout().path(&CgroupName::Kubepods);
        settings.traits.bounds_swap = machine::bounds_swap(cgroups.mounts(), &kubepods);
        if cgroups.mounts().version() == Version::V2 {
            settings.traits.memory_qos = settings.memory_qos;
        }
        let records = Records::open(&context.own_state_dir());
        let check = context.check("pod records");
        check.good();
        let writer =
            tokio::spawn(records.clone().write(context.shutdown.clone(), move |written| match written {
                Ok(()) => check.good(),
                Err(error) => {
                    if check.newly_bad(format!("a restart would lose what became of pods: {error}")) {
                        tracing::error!(
                            error,
                            "pod records are not saved; they are lost if syncd restarts now"
                        );
                    }
                }
            }));
        let views = Views::new(cgroups.layout().clone(), context.shutdown.clone());
        let (board, submissions) = sources(&context, &settings, &records, views.mirrors.clone());
        let desired = board.subscribe();
        let deps = Arc::new(Deps {
            runtime: RunClient::new(context.cri_channel(), settings.runtime_timeout),
            peers: Peers::new(PeerChannels {
                pleg: context.peer("pleg"),
                volumed: context.peer("volumed"),
                imaged: context.peer("imaged"),
                prober: context.peer("prober"),
                statusd: context.peer("statusd"),
            }),
            classes: RuntimeClasses::new(api_client(&context)),
            environment: Environment::new(
                api_client(&context).map(|client| (client, context.check("services of the API server"))),
                &context.shutdown,
            ),
            runtime_pods: follow_runtime(&context),
            probes: follow_probes(&context),
            pressures: follow_pressures(&context),
            views: views.clone(),
            records,
            measures: Measures::new(&context.metrics),
            events: context.recorder(),
            cgroups,
            clock: context.clock.clone(),
            room: Mutex::new(()),
            resized: Notify::new(),
            starts: Arc::new(Semaphore::new(PARALLEL_STARTS)),
            stops: Arc::new(Semaphore::new(PARALLEL_STOPS)),
            settings,
        });
        let (_waker, waiting) = wake();
        let (status, _) = watch::channel(LoopStatus::default());
        let shutdown = context.shutdown.clone();
        let (told, wanted) = (views.clone(), desired.clone());
        context.metrics.read_with(move || measures::now(&told, wanted.borrow().as_ref()));
        if let Some(links) = LogLinks::beside(&deps.settings.pod_logs_dir) {
            tokio::spawn(links.follow(deps.runtime_pods.clone(), shutdown.clone()));
        }
        tokio::spawn(drive(
            Housekeeping::new(deps.clone(), desired.clone()),
            waiting,
            status,
            shutdown.clone().cancelled_owned(),
        ));
        if context.flags.kubeconfig().is_some() {
            let events = deps.events.clone();
            let volumes = follow_volumes(&context);
            tokio::spawn(volume_troubles::tell(volumes, desired.clone(), events, shutdown.clone()));
        }
        let (evictions, evicted) = Evictions::new(views.clone(), deps.records.clone());
        let manager = Manager::new(deps, desired.clone(), evicted, context.check("pods"));
        let manage = manager.run(shutdown);
        context.ready();
        let service = SyncdService { views, desired };
        let routes = Routes::new(SyncdServer::new(service))
            .add_service(SubmissionsServer::new(submissions))
            .add_service(EvictionServer::new(evictions));
        let (served, ()) = tokio::join!(context.serve(routes), manage);
        // The last changes; it ends with the shutdown that has ended the server.
        if served.is_ok() {
            let _ = writer.await;
        }
        served
    }
}

/// The API server, over apigate, if there is one.
fn api_client(context: &Context) -> Option<kube::Client> {
    context.flags.kubeconfig()?;
    let owner = context.identities.uid_of("apigate");
    Some(bulkhead_kubeapi::over_socket(&context.api_socket(), owner))
}

/// Follows the pod sources that the configuration names.
fn sources(
    context: &Context,
    settings: &Settings,
    records: &Records,
    mirrors: Publisher<String, MirrorPod>,
) -> (Board, Submissions) {
    let kinds = [
        settings.static_pod_dir.as_ref().map(|_| Kind::File),
        settings.manifest_url.as_ref().map(|_| Kind::Url),
        Some(Kind::Submission),
        context.flags.kubeconfig().map(|_| Kind::Api),
    ];
    let board = Board::new(kinds.into_iter().flatten(), records.seen());
    let (state, shutdown) = (context.own_state_dir(), &context.shutdown);
    let submissions =
        Submissions::open(&state, board.clone(), settings.node_name.clone(), context.clock.clone());
    if let Some(url) = settings.manifest_url.clone() {
        let source = FollowUrl {
            url,
            period: settings.http_check,
            node_name: settings.node_name.clone(),
            board: board.clone(),
            clock: context.clock.clone(),
            check: context.check("manifest URL"),
        };
        source.spawn(&state, shutdown.clone());
    }
    if let Some(dir) = settings.static_pod_dir.clone() {
        let source = FollowFiles {
            dir,
            period: settings.file_check,
            node_name: settings.node_name.clone(),
            board: board.clone(),
            clock: context.clock.clone(),
            check: context.check("static pods"),
        };
        source.spawn(shutdown.clone());
    }
    if let Some(client) = api_client(context) {
        let source = FollowApi {
            client,
            node_name: settings.node_name.clone(),
            board: board.clone(),
            mirrors,
            clock: context.clock.clone(),
            check: context.check("pods of the API server"),
        };
        let records = records.clone();
        source.spawn(&state, move |uid| records.get(uid).is_some(), shutdown.clone());
    }
    (board, submissions)
}

/// The cgroups above the pods'. They stand already when a launcher or unit made them for this user.
fn cgroup_tree(settings: &Settings) -> Result<CgroupManager, ServiceError> {
    let cannot = |error| ServiceError::failed("cannot use the node's cgroups", error);
    let cgroups = CgroupManager::new(Mounts::detect().map_err(cannot)?, settings.cgroup_root.clone());
    for name in [CgroupName::Kubepods, CgroupName::Burstable, CgroupName::BestEffort] {
        cgroups.create(&name).map_err(cannot)?;
    }
    // Best-effort pods get what others leave; the burstable class' share is what its pods ask for, set with them.
    let least = Limits { cpu_shares: Some(bulkhead_model::resources::MIN_SHARES), ..Default::default() };
    cgroups.apply(&CgroupName::BestEffort, &least).map_err(cannot)?;
    Ok(cgroups)
}

fn follow_runtime(context: &Context) -> Mirror<String, bulkhead_model::runtime::RuntimePod> {
    let client = PlegClient::new(context.peer("pleg"));
    Mirror::follow(context.channels.handle("pleg"), context.shutdown.clone(), move || {
        let mut client = client.clone();
        async move { client.watch_pods(WatchRequest {}).await }
    })
}

fn follow_volumes(context: &Context) -> Mirror<String, bulkhead_api::volumed::v1::PodVolumes> {
    let client = VolumedClient::new(context.peer("volumed"));
    Mirror::follow(context.channels.handle("volumed"), context.shutdown.clone(), move || {
        let mut client = client.clone();
        async move { client.watch_volumes(WatchRequest {}).await }
    })
}

fn follow_pressures(context: &Context) -> Mirror<String, NodePressure> {
    let client = PressuresClient::new(context.peer("evictd"));
    Mirror::follow(context.channels.handle("evictd"), context.shutdown.clone(), move || {
        let mut client = client.clone();
        async move { client.watch_pressure(WatchRequest {}).await }
    })
}

fn follow_probes(context: &Context) -> Mirror<String, bulkhead_api::prober::v1::ContainerResult> {
    let client = ProberClient::new(context.peer("prober"));
    Mirror::follow(context.channels.handle("prober"), context.shutdown.clone(), move || {
        let mut client = client.clone();
        async move { client.watch_results(WatchRequest {}).await }
    })
}
