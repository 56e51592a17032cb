//! A node with a fake syncd, a fake pleg and a fake runtime around a real prober.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "test code")]

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use bulkhead_api::common::v1::WatchRequest;
use bulkhead_api::convert::ProbeItem;
use bulkhead_api::cri::v1 as cri;
use bulkhead_api::prober::v1::ContainerResult;
use bulkhead_api::prober::v1::prober_client::ProberClient;
use bulkhead_api::process::v1::GetStatusRequest;
use bulkhead_api::process::v1::process_client::ProcessClient;
use bulkhead_base::SystemClock;
use bulkhead_ipc::{Mirror, PeerBoard, Publisher};
use bulkhead_model::probe::{Handler, ProbeKind, ProbeSpec};
use bulkhead_model::probe_view::{ProbeView, ProbedContainer};
use bulkhead_model::runtime::{ContainerState, RuntimePod};
use bulkhead_service::{NoFlags, Service as _};
use bulkhead_testkit::TestNode;
use bulkhead_testkit::cri::{FakeRuntime, Method};
use bulkhead_testkit::peers::{self, FakePleg, FakeSyncd};
use prober::Prober;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

/// Longest wait for something that will happen.
const BOUND: Duration = Duration::from_secs(20);

/// Results by container id.
pub type All = BTreeMap<String, Arc<ContainerResult>>;

/// Everything around the process, and the process.
pub struct Scene {
    pub runtime: FakeRuntime,
    pub views: Publisher<String, ProbeItem>,
    pub pods: Publisher<String, RuntimePod>,
    /// Cancel to make the peer go away.
    pub syncd: CancellationToken,
    /// Cancel to make the peer go away.
    pub pleg: CancellationToken,
    process: Option<(oneshot::Sender<()>, JoinHandle<()>)>,
    node: TestNode,
}

/// Every second; one failure decides a readiness, three anything else.
pub fn exec_spec(kind: ProbeKind) -> ProbeSpec {
    ProbeSpec {
        kind,
        handler: Handler::Exec { command: vec!["check".to_owned()] },
        initial_delay: Duration::ZERO,
        period: Duration::from_secs(1),
        timeout: Duration::from_secs(1),
        success_threshold: 1,
        failure_threshold: if kind == ProbeKind::Readiness { 1 } else { 3 },
        termination_grace: None,
    }
}

/// Waits until the results are so.
pub async fn holds(results: &Mirror<String, ContainerResult>, wanted: impl Fn(&All) -> bool) {
    let so = results.wait_until(|status, table| {
        let all: All = table.iter().map(|(id, result)| (id.clone(), result.clone())).collect();
        status.synced && wanted(&all)
    });
    let seen = tokio::time::timeout(BOUND, so).await;
    assert!(seen.is_ok(), "not seen; it is {:?}", results.snapshot());
}

impl Scene {
    pub async fn new() -> Self {
        let node = TestNode::new().await;
        let runtime = FakeRuntime::start(node.dir()).await.unwrap();
        let (views, pods) = (Publisher::new(node.shutdown.clone()), Publisher::new(node.shutdown.clone()));
        views.open();
        pods.open();
        let (syncd, pleg) = (CancellationToken::new(), CancellationToken::new());
        Self { runtime, views, pods, syncd, pleg, process: None, node }
    }

    pub async fn start_peers(&mut self) {
        self.start_syncd().await;
        self.start_pleg().await;
    }

    pub async fn start_syncd(&mut self) {
        let fake = FakeSyncd { probe: Some(self.views.clone()), ..FakeSyncd::default() };
        self.syncd = fake.serve(&self.node).await;
    }

    pub async fn start_pleg(&mut self) {
        self.pleg = FakePleg(self.pods.clone()).serve(&self.node).await;
    }

    /// A pod with one running container "a".
    pub async fn add_pod(&mut self, uid: &str, probes: Vec<ProbeSpec>) -> String {
        self.add_container(uid, "a", probes).await
    }

    /// A pod with one running container, at the runtime and at both peers. Returns the container's id.
    pub async fn add_container(&mut self, uid: &str, name: &str, probes: Vec<ProbeSpec>) -> String {
        let (sandbox, id) = self.run_container(uid, name).await;
        let started = bulkhead_base::Clock::now(&SystemClock);
        let container = peers::container(&id, name, ContainerState::Running, started);
        let sandbox = peers::sandbox(&sandbox, started, &["127.0.0.1"]);
        let pod = peers::runtime_pod(uid, uid, sandbox, vec![container]);
        self.pods.upsert(uid.to_owned(), pod);
        let probed = ProbedContainer { name: name.to_owned(), probes, ..ProbedContainer::default() };
        let view = ProbeView { uid: uid.to_owned(), containers: vec![probed], ..ProbeView::default() };
        self.views.upsert(uid.to_owned(), ProbeItem { view, ..ProbeItem::default() });
        id
    }

    async fn run_container(&self, uid: &str, name: &str) -> (String, String) {
        self.runtime.add_image("local/bb:1");
        let mut client = self.runtime.in_process().runtime;
        let metadata =
            cri::PodSandboxMetadata { name: uid.into(), uid: uid.into(), namespace: "d".into(), attempt: 0 };
        let config = cri::PodSandboxConfig { metadata: Some(metadata), ..Default::default() };
        let request =
            cri::RunPodSandboxRequest { config: Some(config.clone()), runtime_handler: String::new() };
        let sandbox = client.run_pod_sandbox(request).await.unwrap().into_inner().pod_sandbox_id;
        let container = cri::ContainerConfig {
            metadata: Some(cri::ContainerMetadata { name: name.into(), attempt: 0 }),
            image: Some(cri::ImageSpec { image: "local/bb:1".into(), ..Default::default() }),
            ..Default::default()
        };
        let request = cri::CreateContainerRequest {
            pod_sandbox_id: sandbox.clone(),
            config: Some(container),
            sandbox_config: Some(config),
        };
        let id = client.create_container(request).await.unwrap().into_inner().container_id;
        client.start_container(cri::StartContainerRequest { container_id: id.clone() }).await.unwrap();
        (sandbox, id)
    }

    /// Starts the process, on a thread of its own so that it can be killed.
    pub fn start(&mut self) {
        let mut context = self.node.context("prober");
        context.flags.cri_endpoint = Some(self.runtime.socket().to_owned());
        let (kill, killed) = oneshot::channel();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                tokio::select! {
                    ended = Prober::run(context, NoFlags {}) => ended.expect("the process ends well"),
                    _ = killed => {}
                }
            });
        });
        self.process = Some((kill, thread));
    }

    /// Ends the process without a word, as SIGKILL does.
    pub fn kill(&mut self) {
        let (kill, thread) = self.process.take().expect("a process");
        kill.send(()).expect("it still runs");
        thread.join().expect("it does not panic");
    }

    /// A new reader of the results.
    pub fn results(&self) -> Mirror<String, ContainerResult> {
        let client = ProberClient::new(self.node.channel("prober"));
        let board = PeerBoard::new(Arc::new(SystemClock));
        Mirror::follow(board.handle("prober"), self.node.shutdown.clone(), move || {
            let mut client = client.clone();
            async move { client.watch_results(WatchRequest {}).await }
        })
    }

    /// Waits until the process says this about one of its checks; empty: that it is good.
    pub async fn check(&self, name: &str, reason: &str) {
        let mut seen = String::new();
        let so = async {
            loop {
                let mut client = ProcessClient::new(self.node.channel("prober"));
                match client.get_status(GetStatusRequest {}).await {
                    Ok(status) => {
                        let checks = status.into_inner().checks;
                        let check = checks.iter().find(|check| check.name == name);
                        if check.is_some_and(|check| check.reason == reason && check.ok == reason.is_empty())
                        {
                            return;
                        }
                        seen = format!("{checks:?}");
                    }
                    Err(status) => seen = status.to_string(),
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let found = tokio::time::timeout(BOUND, so).await;
        assert!(found.is_ok(), "{name} is not {reason:?}: {seen}");
    }

    /// The file that survives the process.
    pub fn file(&self) -> PathBuf {
        self.node.dir().join("state/prober/results.json")
    }

    /// Waits until the file holds this text.
    pub async fn file_holds(&self, text: &str) {
        let so = async {
            while !std::fs::read_to_string(self.file()).unwrap_or_default().contains(text) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        assert!(tokio::time::timeout(BOUND, so).await.is_ok(), "{:?}", std::fs::read_to_string(self.file()));
    }

    /// Commands that were run.
    pub fn execs(&self) -> usize {
        self.runtime.log().count(Method::ExecSync)
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        if let Some((kill, _)) = self.process.take() {
            let _ = kill.send(());
        }
    }
}
