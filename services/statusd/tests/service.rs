//! The whole process on its socket, with fakes of syncd, pleg, prober and the runtime on others.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests may panic as tests do")]

mod peers;

use std::time::Duration;

use bulkhead_api::common::v1::WatchRequest;
use bulkhead_api::evictd::v1::pressures_server::{Pressures, PressuresServer};
use bulkhead_api::evictd::v1::{NodePressure, PressureUpdate};
use bulkhead_api::process::v1 as process;
use bulkhead_api::statusd::v1 as wire;
use bulkhead_ipc::publisher::BoxStream;
use bulkhead_ipc::{Mirror, PeerBoard, PeerChannel, Publisher};
use bulkhead_model::decision::Stage;
use bulkhead_testkit::TestNode;
use bulkhead_testkit::cri::{FakeRuntime, Method};
use k8s_openapi::api::core::v1::PodStatus;
use process::process_client::ProcessClient;
use serde_json::Value;
use tokio_util::sync::CancellationToken;
use tonic::Status;
use tonic::service::Routes;
use wire::statusd_client::StatusdClient;

use peers::{Fake, item, ready, running};

const BOUND: Duration = Duration::from_secs(20);

struct Bench {
    node: TestNode,
    runtime: FakeRuntime,
    _directory: tempfile::TempDir,
}

struct Process {
    stop: CancellationToken,
    ended: tokio::task::JoinHandle<()>,
    statuses: Mirror<String, wire::PodStatus>,
    _following: tokio_util::sync::DropGuard,
}

async fn bench() -> Bench {
    let node = TestNode::new().await;
    let directory = tempfile::tempdir().unwrap();
    let runtime = FakeRuntime::start(directory.path()).await.unwrap();
    std::os::unix::fs::symlink(runtime.socket(), node.cri_socket("statusd")).unwrap();
    Bench { node, runtime, _directory: directory }
}

impl Bench {
    async fn start(&self) -> Process {
        let context = self.node.context("statusd");
        let stop = context.shutdown.clone();
        let ended = tokio::spawn(async move { statusd::run(context, "/".into()).await.unwrap() });
        let mut client = StatusdClient::new(self.node.channel("statusd"));
        within("statusd serves", async || client.get_node(wire::GetNodeRequest {}).await.is_ok()).await;
        let following = CancellationToken::new();
        let handle = PeerBoard::new(self.node.clock.clone()).handle("statusd");
        let client = StatusdClient::new(self.node.channel("statusd"));
        let statuses = Mirror::follow(handle, following.clone(), move || {
            let mut client = client.clone();
            async move { client.watch_statuses(WatchRequest {}).await }
        });
        Process { stop, ended, statuses, _following: following.drop_guard() }
    }

    async fn process_status(&self) -> Result<process::ProcessStatus, Status> {
        let mut client = ProcessClient::<PeerChannel>::new(self.node.channel("statusd"));
        client.get_status(process::GetStatusRequest {}).await.map(tonic::Response::into_inner)
    }

    /// Waits until the check's reason contains all of `texts`; empty for good.
    async fn until_check_says(&self, name: &str, texts: &[&str]) {
        within(&format!("check {name} says {texts:?}"), async || {
            let status = self.process_status().await.unwrap();
            let check = status.checks.into_iter().find(|check| check.name == name).unwrap();
            if texts.is_empty() { check.ok } else { texts.iter().all(|text| check.reason.contains(text)) }
        })
        .await;
    }

    async fn node_object(&self) -> Value {
        let mut client = StatusdClient::new(self.node.channel("statusd"));
        let answer = client.get_node(wire::GetNodeRequest {}).await.unwrap().into_inner();
        serde_json::from_slice(&answer.node_json).unwrap()
    }

    fn state_file(&self) -> std::path::PathBuf {
        self.node.dir().join("state/statusd/statuses.json")
    }
}

impl Process {
    async fn stop(self) {
        self.stop.cancel();
        tokio::time::timeout(BOUND, self.ended).await.expect("statusd stops").unwrap();
    }

    fn get(&self, uid: &str) -> Option<PodStatus> {
        let status = self.statuses.get(&uid.to_owned())?;
        Some(serde_json::from_slice(&status.status_json).unwrap())
    }

    /// Waits until the pod's status satisfies `wanted`.
    async fn until(&self, uid: &str, wanted: impl Fn(&PodStatus) -> bool) -> PodStatus {
        let wait = self.statuses.wait_until(|_, table| {
            let status = table.get(&uid.to_owned());
            status.is_some_and(|status| wanted(&serde_json::from_slice(&status.status_json).unwrap()))
        });
        let waited = tokio::time::timeout(BOUND, wait).await;
        assert!(waited.is_ok(), "status is {:#?}", self.get(uid));
        self.get(uid).unwrap()
    }

    async fn until_gone(&self, uid: &str) {
        let wait =
            self.statuses.wait_until(|status, table| status.synced && table.get(&uid.to_owned()).is_none());
        tokio::time::timeout(BOUND, wait).await.expect("the status is gone");
    }
}

/// Asks until the answer is yes.
async fn within(what: &str, mut ask: impl AsyncFnMut() -> bool) {
    let asked = async {
        while !ask().await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    assert!(tokio::time::timeout(BOUND, asked).await.is_ok(), "{what}");
}

fn is(phase: &str) -> impl Fn(&PodStatus) -> bool {
    move |status| status.phase.as_deref() == Some(phase)
}

fn is_ready(status: &PodStatus) -> bool {
    status
        .conditions
        .iter()
        .flatten()
        .any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

#[tokio::test]
async fn a_pod_comes_up_and_goes() {
    let bench = bench().await;
    let (syncd, pleg, prober) = Fake::all(&bench.node).await;
    let process = bench.start().await;
    syncd.views.upsert("u".to_owned(), item("u"));
    let pending = process.until("u", is("Pending")).await;
    assert_eq!(pending.host_ip.as_deref(), Some("192.0.2.10"));
    pleg.pods.upsert("u".to_owned(), running("u"));
    let up = process.until("u", is("Running")).await;
    assert!(!is_ready(&up), "it has a readiness probe");
    assert_eq!(up.pod_ip.as_deref(), Some("10.0.0.7"));
    let id = up.container_statuses.unwrap()[0].container_id.clone().unwrap();
    assert!(id.ends_with("://u-c") && !id.starts_with(':'), "{id}");
    prober.results.upsert("u-c".to_owned(), ready("u", true));
    process.until("u", is_ready).await;
    bench.until_check_says("statuses", &[]).await;
    assert!(bench.process_status().await.unwrap().ready);
    syncd.views.remove(&"u".to_owned());
    process.until_gone("u").await;
    process.stop().await;
}

#[tokio::test]
async fn no_peers_absence_changes_a_status() {
    let bench = bench().await;
    let (syncd, pleg, prober) = Fake::all(&bench.node).await;
    for uid in ["u", "v"] {
        syncd.views.upsert(uid.to_owned(), item(uid));
        pleg.pods.upsert(uid.to_owned(), running(uid));
        prober.results.upsert(format!("{uid}-c"), ready(uid, true));
    }
    let process = bench.start().await;
    let before = process.until("u", is_ready).await;
    process.until("v", is_ready).await;
    bench.until_check_says("statuses", &[]).await;

    prober.die().await;
    bench.until_check_says("statuses", &["degraded", "prober is lost"]).await;
    let prober = Fake::start(&bench.node, "prober").await;
    bench.until_check_says("statuses", &[]).await;
    // Its new life knows only v so far: when that is seen, what is missing of u has been seen too.
    prober.results.upsert("v-c".to_owned(), ready("v", false));
    process.until("v", |status| !is_ready(status)).await;
    assert_eq!(process.get("u").as_ref(), Some(&before));

    pleg.die().await;
    bench.until_check_says("statuses", &["pleg is lost"]).await;
    assert_eq!(process.get("u").as_ref(), Some(&before));
    let pleg = Fake::start(&bench.node, "pleg").await;
    pleg.pods.upsert("u".to_owned(), running("u"));
    pleg.pods.upsert("v".to_owned(), running("v"));
    pleg.open();
    bench.until_check_says("statuses", &[]).await;

    syncd.die().await;
    bench.until_check_says("statuses", &["syncd is lost"]).await;
    prober.results.upsert("v-c".to_owned(), ready("v", true));
    process.until("v", is_ready).await;
    assert_eq!(process.get("u").as_ref(), Some(&before));
    process.stop().await;
}

#[tokio::test]
async fn its_own_restart_changes_no_status() {
    let bench = bench().await;
    let (syncd, pleg, prober) = Fake::all(&bench.node).await;
    syncd.views.upsert("u".to_owned(), item("u"));
    pleg.pods.upsert("u".to_owned(), running("u"));
    prober.results.upsert("u-c".to_owned(), ready("u", true));
    let first = bench.start().await;
    let before = first.until("u", is_ready).await;
    // As after kill -9: what counts is the file, which is written within a second.
    within("the state file has the pod", async || {
        std::fs::read_to_string(bench.state_file()).is_ok_and(|text| text.contains(r#""ready":true}"#))
    })
    .await;
    let saved = std::fs::read(bench.state_file()).unwrap();
    first.stop().await;
    std::fs::write(bench.state_file(), saved).unwrap();
    // Transition times have whole seconds: in the same one nothing could be seen.
    tokio::time::sleep(Duration::from_millis(1100)).await;

    // Neither prober nor the runtime answers when it is back.
    prober.die().await;
    bench.runtime.fail(Method::Version, Status::unavailable("away"), 1000);
    bench.runtime.fail(Method::Status, Status::unavailable("away"), 1000);
    let second = bench.start().await;
    assert_eq!(second.until("u", |_| true).await, before);
    bench.until_check_says("statuses", &["degraded"]).await;
    let prober = Fake::start(&bench.node, "prober").await;
    prober.results.upsert("u-c".to_owned(), ready("u", false));
    let unready = second.until("u", |status| !is_ready(status)).await;
    assert_eq!(unready.start_time, before.start_time);
    second.stop().await;
}

#[tokio::test]
async fn a_pod_that_is_put_back_has_a_fresh_status() {
    let bench = bench().await;
    let (syncd, pleg, _prober) = Fake::all(&bench.node).await;
    let mut pod = item("u");
    pod.decision.stage = Stage::Terminated;
    syncd.views.upsert("u".to_owned(), pod.clone());
    pleg.pods.upsert("u".to_owned(), peers::exited("u"));
    let process = bench.start().await;
    let over = process.until("u", is("Succeeded")).await;
    pod.decision.stage = Stage::Syncing;
    pod.decision.started_at = Some(peers::at(100));
    syncd.views.upsert("u".to_owned(), pod);
    let fresh = process.until("u", is("Pending")).await;
    assert_ne!(fresh.start_time, over.start_time);
    process.stop().await;
}

#[tokio::test]
async fn a_corrupt_state_file_is_set_aside() {
    let bench = bench().await;
    let (syncd, pleg, _prober) = Fake::all(&bench.node).await;
    syncd.views.upsert("u".to_owned(), item("u"));
    pleg.pods.upsert("u".to_owned(), running("u"));
    std::fs::create_dir_all(bench.state_file().parent().unwrap()).unwrap();
    std::fs::write(bench.state_file(), "{\"version\":1,\"pods\":{").unwrap();
    let process = bench.start().await;
    process.until("u", is("Running")).await;
    let aside = bench.state_file().with_extension("json.corrupt");
    assert_eq!(std::fs::read_to_string(aside).unwrap(), "{\"version\":1,\"pods\":{");
    bench.until_check_says("state file", &[]).await;
    process.stop().await;
}

#[tokio::test]
async fn without_peers_it_serves_the_node_and_says_who_is_missing() {
    let mut bench = bench().await;
    bench.runtime.go_away().await;
    let process = bench.start().await;
    bench.until_check_says("statuses", &["syncd has told nothing", "pleg has told nothing", "prober"]).await;
    assert!(!bench.process_status().await.unwrap().ready);
    let ready = |node: &Value| node["status"]["conditions"][3].clone();
    let node = bench.node_object().await;
    let message = ready(&node)["message"].as_str().unwrap().to_owned();
    assert_eq!(
        (&ready(&node)["status"], &ready(&node)["reason"]),
        (&"False".into(), &"KubeletNotReady".into())
    );
    for text in ["syncd has told nothing", "pleg has told nothing", "container runtime status check"] {
        assert!(message.contains(text), "{message}");
    }
    assert_eq!(node["metadata"]["name"], "node-a");
    assert_eq!(node["status"]["addresses"][0]["address"], "192.0.2.10");
    for resource in ["cpu", "memory", "ephemeral-storage", "pods"] {
        assert!(node["status"]["allocatable"][resource].is_string(), "{resource}: {node:#}");
    }

    bench.runtime.come_back().await.unwrap();
    let _peers = Fake::all(&bench.node).await;
    bench.until_check_says("statuses", &[]).await;
    within("the node is ready", async || ready(&bench.node_object().await)["status"] == "True").await;
    let node = bench.node_object().await;
    let version = node["status"]["nodeInfo"]["containerRuntimeVersion"].as_str().unwrap();
    assert!(version.contains("://"), "{version}");
    process.stop().await;
}

#[tokio::test]
async fn a_machine_that_does_not_answer_costs_the_call_and_nothing_else() {
    let bench = bench().await;
    let _peers = Fake::all(&bench.node).await;
    let root = tempfile::tempdir().unwrap();
    std::fs::create_dir(root.path().join("etc")).unwrap();
    let stuck = root.path().join("etc/machine-id");
    let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR);
    rustix::fs::mknodat(rustix::fs::CWD, &stuck, kind, mode, 0).unwrap();
    let context = bench.node.context("statusd");
    let (stop, root) = (context.shutdown.clone(), root.path().to_owned());
    let ended = tokio::spawn(async move { statusd::run(context, root).await.unwrap() });
    let mut client = StatusdClient::new(bench.node.channel("statusd"));
    let asked = async {
        loop {
            let error = client.get_node(wire::GetNodeRequest {}).await.unwrap_err();
            if error.message().contains("facts of this machine") {
                return error;
            }
        }
    };
    let error = tokio::time::timeout(BOUND, asked).await.expect("an answer while the file hangs");
    assert_eq!(error.code(), tonic::Code::Unavailable);
    bench.until_check_says("statuses", &[]).await;
    // The file answers again.
    tokio::task::spawn_blocking(move || std::fs::write(&stuck, "m").map(|()| std::fs::remove_file(stuck)))
        .await
        .unwrap()
        .unwrap()
        .unwrap();
    within("the node is there", async || client.get_node(wire::GetNodeRequest {}).await.is_ok()).await;
    stop.cancel();
    tokio::time::timeout(BOUND, ended).await.expect("statusd stops").unwrap();
}

struct FakePressures(Publisher<String, NodePressure>);

#[tonic::async_trait]
impl Pressures for FakePressures {
    type WatchPressureStream = BoxStream<PressureUpdate>;
    async fn watch_pressure(
        &self,
        _: tonic::Request<WatchRequest>,
    ) -> Result<tonic::Response<Self::WatchPressureStream>, Status> {
        Ok(tonic::Response::new(self.0.subscribe()))
    }
}

impl Bench {
    async fn until_peer_is_lost(&self, name: &str) {
        within(&format!("{name} is lost"), async || {
            let peers = self.process_status().await.unwrap().peers;
            peers.iter().any(|peer| peer.name == name && !peer.connected)
        })
        .await;
    }

    /// Status and reason of the node's condition.
    async fn condition(&self, name: &str) -> (String, String) {
        let node = self.node_object().await;
        let all = node.pointer("/status/conditions").and_then(Value::as_array).unwrap();
        let is = |condition: &&Value| condition.get("type").and_then(Value::as_str) == Some(name);
        let found = all.iter().find(is).unwrap();
        let text = |field: &str| found.get(field).and_then(Value::as_str).unwrap().to_owned();
        (text("status"), text("reason"))
    }
}

#[tokio::test]
async fn pressures_are_the_nodes_conditions_and_stay_while_evictd_is_away() {
    let bench = bench().await;
    let (none, full) = (("False", "KubeletHasNoDiskPressure"), ("True", "KubeletHasDiskPressure"));
    let is = async |wanted: (&str, &str)| {
        within(&format!("DiskPressure is {wanted:?}"), async || {
            let found = bench.condition("DiskPressure").await;
            (found.0.as_str(), found.1.as_str()) == wanted
        })
        .await;
    };
    let process = bench.start().await;
    is(none).await;
    let pressures = Publisher::new(bench.node.shutdown.clone());
    let condition = "DiskPressure".to_owned();
    pressures.upsert(condition.clone(), NodePressure { condition: condition.clone() });
    pressures.open();
    let serve = || Routes::new(PressuresServer::new(FakePressures(pressures.clone())));
    let evictd = bench.node.fake_peer("evictd", serve()).await;
    is(full).await;
    evictd.cancel();
    bench.until_peer_is_lost("evictd").await;
    is(full).await;
    assert_eq!(bench.condition("MemoryPressure").await.0, "False");
    pressures.remove(&condition);
    let _evictd = bench.node.fake_peer("evictd", serve()).await;
    is(none).await;
    process.stop().await;
}
