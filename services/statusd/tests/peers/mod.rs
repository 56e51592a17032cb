//! Fakes of syncd, pleg and prober, and pods for them.

use bulkhead_api::common::v1::WatchRequest;
use bulkhead_api::convert::StatusItem;
use bulkhead_api::{pleg, prober, syncd};
use bulkhead_ipc::Publisher;
use bulkhead_ipc::publisher::BoxStream;
use bulkhead_model::decision::Decision;
use bulkhead_model::runtime::{Container, ContainerState, RuntimePod, Sandbox};
use bulkhead_model::spec::RestartPolicy;
use bulkhead_model::status_view::{ContainerView, ProbePresence, StatusView};
use bulkhead_testkit::TestNode;
use futures::stream;
use jiff::Timestamp;
use prober::v1::ContainerResult;
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;
use tonic::{Request, Response, Status};

/// One life of a peer. It can be any of the three; only what its name says is used.
#[derive(Clone)]
pub struct Fake {
    pub views: Publisher<String, StatusItem>,
    pub pods: Publisher<String, RuntimePod>,
    pub results: Publisher<String, ContainerResult>,
    stop: CancellationToken,
    name: &'static str,
    socket: std::path::PathBuf,
}

impl Fake {
    /// A new life, with a new epoch. pleg's stream is silent until [`Fake::open`].
    pub async fn start(node: &TestNode, name: &'static str) -> Self {
        let new = CancellationToken::new();
        let mut fake = Self {
            views: Publisher::new(new.clone()),
            pods: Publisher::new(new.clone()),
            results: Publisher::new(new),
            stop: CancellationToken::new(),
            name,
            socket: node.run_dir().join(format!("{name}.sock")),
        };
        fake.views.open();
        fake.results.open();
        let routes = match name {
            "syncd" => Routes::new(syncd::v1::syncd_server::SyncdServer::new(fake.clone())),
            "pleg" => Routes::new(pleg::v1::pleg_server::PlegServer::new(fake.clone())),
            _ => Routes::new(prober::v1::prober_server::ProberServer::new(fake.clone())),
        };
        fake.stop = node.fake_peer(name, routes).await;
        fake
    }

    /// syncd, pleg and prober, all of them open.
    pub async fn all(node: &TestNode) -> (Self, Self, Self) {
        let pleg = Self::start(node, "pleg").await;
        pleg.open();
        (Self::start(node, "syncd").await, pleg, Self::start(node, "prober").await)
    }

    /// pleg has listed the runtime.
    pub fn open(&self) {
        self.pods.open();
    }

    /// As kill -9.
    pub async fn die(self) {
        self.stop.cancel();
        let refused = async {
            while tokio::net::UnixStream::connect(&self.socket).await.is_ok() {
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
        };
        let waited = tokio::time::timeout(super::BOUND, refused).await;
        assert!(waited.is_ok(), "{} is still there", self.name);
    }
}

#[tonic::async_trait]
impl syncd::v1::syncd_server::Syncd for Fake {
    type WatchStatusViewsStream = BoxStream<syncd::v1::StatusViewsUpdate>;
    type WatchProbeViewsStream = BoxStream<syncd::v1::ProbeViewsUpdate>;
    type WatchStatsViewsStream = BoxStream<syncd::v1::StatsViewsUpdate>;
    type ListPodsStream = BoxStream<syncd::v1::ListPodsItem>;

    async fn watch_status_views(
        &self,
        _: Request<WatchRequest>,
    ) -> Result<Response<Self::WatchStatusViewsStream>, Status> {
        Ok(Response::new(self.views.subscribe()))
    }

    async fn watch_probe_views(
        &self,
        _: Request<WatchRequest>,
    ) -> Result<Response<Self::WatchProbeViewsStream>, Status> {
        Ok(Response::new(Box::pin(stream::empty())))
    }

    async fn watch_stats_views(
        &self,
        _: Request<WatchRequest>,
    ) -> Result<Response<Self::WatchStatsViewsStream>, Status> {
        Ok(Response::new(Box::pin(stream::empty())))
    }

    async fn list_pods(
        &self,
        _: Request<syncd::v1::ListPodsRequest>,
    ) -> Result<Response<Self::ListPodsStream>, Status> {
        Ok(Response::new(Box::pin(stream::empty())))
    }
}

#[tonic::async_trait]
impl pleg::v1::pleg_server::Pleg for Fake {
    type WatchPodsStream = BoxStream<pleg::v1::RuntimePodsUpdate>;

    async fn watch_pods(&self, _: Request<WatchRequest>) -> Result<Response<Self::WatchPodsStream>, Status> {
        Ok(Response::new(self.pods.subscribe()))
    }

    async fn observe_pod(
        &self,
        _: Request<pleg::v1::ObservePodRequest>,
    ) -> Result<Response<pleg::v1::ObservePodResponse>, Status> {
        Err(Status::unimplemented("statusd does not ask"))
    }

    async fn get_runtime(
        &self,
        _: Request<pleg::v1::GetRuntimeRequest>,
    ) -> Result<Response<pleg::v1::GetRuntimeResponse>, Status> {
        Err(Status::unimplemented("statusd does not ask"))
    }
}

#[tonic::async_trait]
impl prober::v1::prober_server::Prober for Fake {
    type WatchResultsStream = BoxStream<prober::v1::ResultsUpdate>;

    async fn watch_results(
        &self,
        _: Request<WatchRequest>,
    ) -> Result<Response<Self::WatchResultsStream>, Status> {
        Ok(Response::new(self.results.subscribe()))
    }
}

/// Seconds since a fixed start.
pub fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + second).unwrap()
}

/// A pod with one container `app` that has a readiness probe and never runs again.
pub fn item(uid: &str) -> StatusItem {
    let app = ContainerView {
        name: "app".into(),
        image: "bb:1".into(),
        restart_policy: RestartPolicy::Never,
        probes: ProbePresence { readiness: true, ..ProbePresence::default() },
        ..ContainerView::default()
    };
    StatusItem {
        view: StatusView {
            uid: uid.into(),
            name: format!("pod-{uid}"),
            namespace: "default".into(),
            restart_policy: RestartPolicy::Never,
            containers: vec![app],
            ..StatusView::default()
        },
        decision: Decision { started_at: Some(at(0)), ..Decision::default() },
        traceparent: String::new(),
    }
}

/// Its container runs.
pub fn running(uid: &str) -> RuntimePod {
    with(uid, ContainerState::Running)
}

/// Its container ended well.
pub fn exited(uid: &str) -> RuntimePod {
    with(uid, ContainerState::Exited)
}

/// What prober says of that container.
pub fn ready(uid: &str, ready: bool) -> ContainerResult {
    ContainerResult {
        container_id: format!("{uid}-c"),
        pod_uid: uid.to_owned(),
        container_name: "app".to_owned(),
        started: Some(true),
        ready: Some(ready),
        ..ContainerResult::default()
    }
}

fn with(uid: &str, state: ContainerState) -> RuntimePod {
    RuntimePod {
        uid: uid.into(),
        name: format!("pod-{uid}"),
        namespace: "default".into(),
        sandboxes: vec![Sandbox {
            id: format!("{uid}-s"),
            attempt: 0,
            ready: true,
            created_at: at(1),
            ips: vec!["10.0.0.7".into()],
            traceparent: String::new(),
        }],
        containers: vec![Container {
            id: format!("{uid}-c"),
            name: "app".into(),
            sandbox_id: format!("{uid}-s"),
            attempt: 0,
            state,
            created_at: at(2),
            started_at: Some(at(3)),
            finished_at: (state == ContainerState::Exited).then(|| at(9)),
            exit_code: 0,
            reason: String::new(),
            message: String::new(),
            image: "bb:1".into(),
            image_id: "sha256:1".into(),
            log_path: String::new(),
            hash: None,
            annotations: [].into(),
        }],
    }
}
