//! Lives of fakes of syncd, pleg and prober, and pods for them.

use bulkhead_api::convert::StatusItem;
use bulkhead_api::prober::v1::ContainerResult;
use bulkhead_ipc::Publisher;
use bulkhead_model::decision::Decision;
use bulkhead_model::runtime::{ContainerState, RuntimePod};
use bulkhead_model::spec::RestartPolicy;
use bulkhead_model::status_view::{ContainerView, ProbePresence, StatusView};
use bulkhead_testkit::TestNode;
use bulkhead_testkit::peers::{self, FakePleg, FakeProber, FakeSyncd};
use jiff::Timestamp;
use tokio_util::sync::CancellationToken;

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
        let (views, pods, results) = (fake.views.clone(), fake.pods.clone(), fake.results.clone());
        fake.stop = match name {
            "syncd" => FakeSyncd { status: Some(views), ..FakeSyncd::default() }.serve(node).await,
            "pleg" => FakePleg(pods).serve(node).await,
            _ => FakeProber(results).serve(node).await,
        };
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
    let sandbox = peers::sandbox(&format!("{uid}-s"), at(1), &["10.0.0.7"]);
    let mut container = peers::container(&format!("{uid}-c"), "app", state, at(3));
    container.finished_at = (state == ContainerState::Exited).then(|| at(9));
    peers::runtime_pod(uid, &format!("pod-{uid}"), sandbox, vec![container])
}
