//! The whole process over real sockets: a fake runtime on one side, a mirror as the other processes have it on the other.

#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests may fail a test")]

use std::future::Future;
use std::time::Duration;

use bulkhead_api::common::v1::WatchRequest;
use bulkhead_api::convert::runtime_pod_from_wire;
use bulkhead_api::cri::v1::runtime_service_client::RuntimeServiceClient;
use bulkhead_api::cri::v1::{self as cri};
use bulkhead_api::pleg::v1 as wire;
use bulkhead_api::pleg::v1::pleg_client::PlegClient;
use bulkhead_api::process::v1::process_client::ProcessClient;
use bulkhead_api::process::v1::{Check, GetStatusRequest};
use bulkhead_ipc::status::with_deadline;
use bulkhead_ipc::{Mirror, PeerChannel};
use bulkhead_model::names;
use bulkhead_model::runtime::{Container, ContainerState, RuntimePod};
use bulkhead_service::{NoFlags, Service, ServiceError};
use bulkhead_testkit::TestNode;
use bulkhead_testkit::cri::{FakeRuntime, Method};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tonic::Code;

const BOUND: Duration = Duration::from_secs(20);

async fn within<T>(what: &str, wait: impl Future<Output = T>) -> T {
    tokio::time::timeout(BOUND, wait).await.unwrap_or_else(|_| panic!("not within {BOUND:?}: {what}"))
}

struct Node {
    node: TestNode,
    runtime: FakeRuntime,
    mirror: Mirror<String, RuntimePod>,
    client: PlegClient<PeerChannel>,
    process: ProcessClient<PeerChannel>,
    pleg: Pleg,
}

struct Pleg {
    stop: CancellationToken,
    task: JoinHandle<Result<(), ServiceError>>,
}

impl Pleg {
    fn start(node: &TestNode) -> Self {
        let context = node.context("pleg");
        let stop = context.shutdown.clone();
        Self { stop, task: tokio::spawn(pleg::Pleg::run(context, NoFlags {})) }
    }

    async fn stop(self) {
        self.stop.cancel();
        within("an orderly end", self.task).await.unwrap().unwrap();
    }
}

impl Node {
    async fn start() -> Self {
        let (node, runtime) = Self::machine().await;
        Self::with(node, runtime)
    }

    /// A machine with a runtime, before pleg runs.
    async fn machine() -> (TestNode, FakeRuntime) {
        let node = TestNode::new().await;
        let runtime = FakeRuntime::start(node.dir()).await.unwrap();
        runtime.add_image("bb:1");
        std::os::unix::fs::symlink(runtime.socket(), node.cri_socket("pleg")).unwrap();
        (node, runtime)
    }

    fn with(node: TestNode, runtime: FakeRuntime) -> Self {
        let consumer = node.context("syncd");
        let client = PlegClient::new(consumer.peer("pleg"));
        let watcher = client.clone();
        let mirror = Mirror::follow(consumer.channels.handle("pleg"), node.shutdown.clone(), move || {
            let mut client = watcher.clone();
            async move { client.watch_pods(WatchRequest {}).await }
        });
        let process = ProcessClient::new(node.channel("pleg"));
        let pleg = Pleg::start(&node);
        Self { node, runtime, mirror, client, process, pleg }
    }

    async fn cri(&self) -> RuntimeServiceClient<tonic::transport::Channel> {
        RuntimeServiceClient::new(self.runtime.connect().await.unwrap())
    }

    /// A pod with one container `app`, started; returns the ids of sandbox and container.
    async fn run_pod(&self, uid: &str) -> (String, String) {
        let mut cri = self.cri().await;
        let labels = [(names::POD_UID, uid), (names::POD_NAME, "web"), (names::POD_NAMESPACE, "default")];
        let labels: std::collections::HashMap<_, _> =
            labels.map(|(k, v)| (k.to_owned(), v.to_owned())).into();
        let metadata =
            cri::PodSandboxMetadata { uid: uid.to_owned(), name: "web".to_owned(), ..Default::default() };
        let sandbox_config = cri::PodSandboxConfig {
            metadata: Some(metadata),
            labels: labels.clone(),
            log_directory: format!("/var/log/pods/{uid}"),
            ..Default::default()
        };
        let request =
            cri::RunPodSandboxRequest { config: Some(sandbox_config.clone()), ..Default::default() };
        let pod_sandbox_id = cri.run_pod_sandbox(request).await.unwrap().into_inner().pod_sandbox_id;
        let annotations = [(names::RESTART_COUNT, "2"), (names::CONTAINER_HASH, "1f")];
        let config = cri::ContainerConfig {
            metadata: Some(cri::ContainerMetadata { name: "app".to_owned(), attempt: 2 }),
            image: Some(cri::ImageSpec { image: "bb:1".to_owned(), ..Default::default() }),
            labels: labels
                .into_iter()
                .chain([(names::CONTAINER_NAME.to_owned(), "app".to_owned())])
                .collect(),
            annotations: annotations.map(|(k, v)| (k.to_owned(), v.to_owned())).into(),
            log_path: "app/2.log".to_owned(),
            ..Default::default()
        };
        let request = cri::CreateContainerRequest {
            pod_sandbox_id: pod_sandbox_id.clone(),
            config: Some(config),
            sandbox_config: Some(sandbox_config),
        };
        let container_id = cri.create_container(request).await.unwrap().into_inner().container_id;
        cri.start_container(cri::StartContainerRequest { container_id: container_id.clone() }).await.unwrap();
        (pod_sandbox_id, container_id)
    }

    /// Waits until the mirror's copy of the pod is as wanted.
    async fn sees(&self, what: &str, uid: &str, wanted: impl Fn(Option<&RuntimePod>) -> bool) {
        let uid = uid.to_owned();
        within(
            what,
            self.mirror.wait_until(|status, table| status.live && wanted(table.get(&uid).as_deref())),
        )
        .await;
    }

    async fn sees_exit(&self, uid: &str, code: i32) {
        let exited = |c: &Container| c.state == ContainerState::Exited && c.exit_code == code;
        self.sees("the exit", uid, |pod| pod.is_some_and(|pod| pod.containers.iter().any(exited))).await;
    }

    async fn sees_running(&self, uid: &str) {
        let runs = |c: &Container| c.state == ContainerState::Running;
        self.sees("running", uid, |pod| pod.is_some_and(|pod| pod.containers.iter().any(runs))).await;
    }

    async fn observe(&mut self, uid: &str) -> Result<Option<RuntimePod>, tonic::Status> {
        let request = wire::ObservePodRequest { pod_uid: uid.to_owned() };
        let answer = self.client.observe_pod(with_deadline(request, Duration::from_secs(10))).await?;
        Ok(answer.into_inner().pod.map(|pod| runtime_pod_from_wire(pod).unwrap()))
    }

    /// Waits until the process says what is wanted about the runtime.
    async fn says(&mut self, what: &str, wanted: impl Fn(&Check, bool) -> bool) {
        let said = async {
            loop {
                if let Ok(status) = self.process.get_status(GetStatusRequest {}).await {
                    let status = status.into_inner();
                    if status
                        .checks
                        .iter()
                        .any(|check| check.name == "runtime" && wanted(check, status.ready))
                    {
                        return;
                    }
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        within(what, said).await;
    }
}

#[tokio::test]
async fn a_pods_life_is_seen_and_can_be_asked_for() {
    let mut node = Node::start().await;
    within("an empty state", node.mirror.wait_until(|status, table| status.live && table.is_empty())).await;
    let (sandbox, container) = node.run_pod("u1").await;
    node.sees_running("u1").await;
    let seen = node.mirror.get(&"u1".to_owned()).unwrap();
    assert_eq!((seen.name.as_str(), seen.namespace.as_str()), ("web", "default"));
    assert_eq!(seen.sandboxes.len(), 1);
    assert_eq!(seen.sandboxes.first().unwrap().id, sandbox);
    assert_eq!(seen.sandboxes.first().unwrap().ips, ["10.88.0.1"]);
    let app = seen.newest("app").unwrap();
    assert_eq!((app.id.as_str(), app.sandbox_id.as_str()), (container.as_str(), sandbox.as_str()));
    assert_eq!((app.attempt, app.hash), (2, Some(0x1f)));
    assert_eq!((app.image.as_str(), app.log_path.as_str()), ("bb:1", "/var/log/pods/u1/app/2.log"));
    assert!(app.started_at.is_some() && app.finished_at.is_none());

    // The answer is newer than the call, whatever the relist has seen.
    node.runtime.exit_container(&container, 3);
    let observed = node.observe("u1").await.unwrap().unwrap();
    let app = observed.newest("app").unwrap();
    assert_eq!((app.state, app.exit_code, app.reason.as_str()), (ContainerState::Exited, 3, "Error"));
    node.sees_exit("u1", 3).await;

    let mut cri = node.cri().await;
    cri.remove_container(cri::RemoveContainerRequest { container_id: container }).await.unwrap();
    node.sees("no container", "u1", |pod| pod.is_some_and(|pod| pod.containers.is_empty())).await;
    cri.remove_pod_sandbox(cri::RemovePodSandboxRequest { pod_sandbox_id: sandbox }).await.unwrap();
    node.sees("no pod", "u1", |pod| pod.is_none()).await;
    assert_eq!(node.observe("u1").await.unwrap(), None);
    assert_eq!(node.observe("").await.unwrap_err().code(), Code::InvalidArgument);
    node.says("good and ready", |check, ready| check.ok && ready).await;
    let runtime = node.client.get_runtime(wire::GetRuntimeRequest {}).await.unwrap().into_inner();
    assert_eq!(
        (runtime.name.as_str(), runtime.version.as_str(), runtime.api_version.as_str()),
        ("fake", "1.0.0", "v1")
    );
    node.pleg.stop().await;
}

#[tokio::test]
async fn what_happens_behind_the_runtimes_back_is_seen_by_the_relist() {
    let (machine, runtime) = Node::machine().await;
    // With events it would be the list two minutes later.
    runtime.fail(Method::GetContainerEvents, tonic::Status::unimplemented("no events here"), 1);
    let node = Node::with(machine, runtime);
    let (sandbox, _) = node.run_pod("u1").await;
    node.sees_running("u1").await;
    node.runtime.remove_behind_back(&sandbox);
    node.sees("no pod", "u1", |pod| pod.is_none()).await;
}

#[tokio::test]
async fn events_are_seen_while_the_relist_hangs() {
    let node = Node::start().await;
    let (_, container) = node.run_pod("u1").await;
    node.sees_running("u1").await;
    let opened =
        node.runtime.log().wait_for(|calls| calls.iter().any(|c| c.method == Method::GetContainerEvents));
    opened.await.unwrap();
    node.runtime.log().clear();
    let gate = node.runtime.hold(Method::ListContainers);
    let held =
        |calls: &[bulkhead_testkit::cri::Call]| calls.iter().any(|c| c.method == Method::ListContainers);
    node.runtime.log().wait_for(held).await.unwrap();
    node.runtime.exit_container(&container, 3);
    node.sees_exit("u1", 3).await;
    let lists = node.runtime.log().of(Method::ListContainers);
    assert_eq!(lists.first().unwrap().outcome, None, "the relist still waits");
    gate.open();
}

#[tokio::test]
async fn without_events_the_relist_does_it_all() {
    let (machine, runtime) = Node::machine().await;
    runtime.fail(Method::GetContainerEvents, tonic::Status::unimplemented("no events here"), 1);
    let node = Node::with(machine, runtime);
    let (_, container) = node.run_pod("u1").await;
    node.sees_running("u1").await;
    node.runtime.exit_container(&container, 3);
    node.sees_exit("u1", 3).await;
    assert_eq!(node.runtime.log().count(Method::GetContainerEvents), 1, "not asked again");
}

#[tokio::test]
async fn the_runtime_is_down_at_the_start() {
    let (machine, mut runtime) = Node::machine().await;
    runtime.go_away().await;
    let mut node = Node::with(machine, runtime);
    node.says("not listed", |check, ready| !check.ok && !ready && check.reason.contains("not listed yet"))
        .await;
    assert_eq!(node.observe("u1").await.unwrap_err().code(), Code::Unavailable);
    let error = node.client.get_runtime(wire::GetRuntimeRequest {}).await.unwrap_err();
    assert_eq!(error.code(), Code::Unavailable);
    assert!(!node.mirror.status().synced, "nothing may be taken for gone");
    node.runtime.come_back().await.unwrap();
    node.run_pod("u1").await;
    node.sees_running("u1").await;
    node.says("good and ready", |check, ready| check.ok && ready).await;
}

#[tokio::test]
async fn the_runtime_restarts() {
    let mut node = Node::start().await;
    let (_, container) = node.run_pod("u1").await;
    node.run_pod("u2").await;
    node.sees_running("u1").await;
    node.sees_running("u2").await;
    let epoch = node.mirror.status().epoch;
    node.runtime.go_away().await;
    assert_eq!(node.observe("u1").await.unwrap_err().code(), Code::Unavailable);
    assert!(node.mirror.get(&"u2".to_owned()).is_some(), "kept while nobody can tell");
    node.runtime.exit_container(&container, 3);
    node.runtime.log().clear();
    node.runtime.come_back().await.unwrap();
    node.sees_exit("u1", 3).await;
    node.sees_running("u2").await;
    assert_eq!(node.mirror.status().epoch, epoch, "pleg itself went on");
    let opened =
        node.runtime.log().wait_for(|calls| calls.iter().any(|c| c.method == Method::GetContainerEvents));
    opened.await.expect("the new life is asked for its events");
    node.says("good", |check, _| check.ok).await;
}

#[tokio::test]
async fn its_own_restart_is_a_new_epoch_with_everything() {
    let mut node = Node::start().await;
    let (sandbox, container) = node.run_pod("u1").await;
    node.run_pod("u2").await;
    node.sees_running("u1").await;
    node.sees_running("u2").await;
    let before = node.mirror.snapshot();
    let epoch = node.mirror.status().epoch;
    node.pleg.stop().await;
    within("the loss", node.mirror.wait_until(|status, _| !status.live)).await;
    assert_eq!(node.mirror.snapshot(), before, "kept while pleg is away");
    node.runtime.log().clear();
    node.pleg = Pleg::start(&node.node);
    within("a new epoch", node.mirror.wait_until(|status, _| status.live && status.epoch != epoch)).await;
    assert_eq!(node.mirror.snapshot(), before, "the same state, read anew");
    assert!(node.runtime.log().changes().is_empty(), "pleg changes nothing");

    // And what changed meanwhile.
    node.pleg.stop().await;
    node.runtime.exit_container(&container, 3);
    node.pleg = Pleg::start(&node.node);
    node.sees_exit("u1", 3).await;
    node.runtime.remove_behind_back(&sandbox);
    node.sees("no pod", "u1", |pod| pod.is_none()).await;
    node.sees_running("u2").await;
}

#[tokio::test]
async fn a_lost_inspection_is_made_up_for() {
    let node = Node::start().await;
    let (_, container) = node.run_pod("u1").await;
    node.sees_running("u1").await;
    node.runtime.fail(Method::ContainerStatus, tonic::Status::internal("busy"), 3);
    node.runtime.fail(Method::ListPodSandbox, tonic::Status::unavailable("busy"), 1);
    node.runtime.exit_container(&container, 3);
    node.sees_exit("u1", 3).await;
}
