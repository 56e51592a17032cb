//! Where pods come from beside files: a URL and people at the node; what a restart must not forget of them, and the links by
//! which log collectors find their logs.
#![cfg(test)]

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex as StdMutex};
use std::time::Duration;

use bulkhead_api::process::v1::GetMetricsRequest;
use bulkhead_api::process::v1::process_client::ProcessClient;
use bulkhead_api::syncd::v1::submissions_client::SubmissionsClient;
use bulkhead_api::syncd::v1::{DeletePodRequest, SubmitPodsRequest, SubmittedChange};
use bulkhead_e2e::fake_node::FakeNode;
use bulkhead_e2e::real_node::{RealNode, signal};
use bulkhead_e2e::{pods, wait};
use bulkhead_testkit::cri::{Method, OnStart, Who};
use k8s_openapi::api::core::v1::{ContainerStateWaiting, PodStatus};
use nix::sched::{CloneFlags, setns};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tokio::sync::{Mutex, MutexGuard};
use tonic::Code;

static ONE_NODE: Mutex<()> = Mutex::const_new(());

async fn turn() -> MutexGuard<'static, ()> {
    ONE_NODE.lock().await
}

fn waiting(status: &PodStatus) -> Option<ContainerStateWaiting> {
    status.container_statuses.as_ref()?.first()?.state.as_ref()?.waiting.clone()
}

fn waits_for(status: &PodStatus, reason: &str) -> bool {
    waiting(status).is_some_and(|waiting| waiting.reason.as_deref() == Some(reason))
}

/// Known fault L3.
#[tokio::test]
async fn a_crash_back_off_goes_on_where_it_was_when_syncd_restarts() {
    let mut node = FakeNode::up().await;
    node.runtime.on_start(Who::name("c"), OnStart::Exit(3));
    node.put("a.yaml", &pods::simple("a"));
    node.status_where("a", "in back-off", |s| waits_for(s, "CrashLoopBackOff")).await;
    let made = |node: &FakeNode| node.runtime.log().of(Method::CreateContainer);
    assert_eq!(made(&node).len(), 2, "the first restart is at once");
    let ended = made(&node)[1].at;
    node.kill("syncd");
    node.start("syncd");
    let log = node.runtime.log().clone();
    log.wait_for(|calls| calls.iter().filter(|call| call.method == Method::CreateContainer).count() == 3)
        .await
        .unwrap();
    let waited = made(&node)[2].at - ended;
    assert!(waited >= 9_000_000_000, "restarted {waited} ns after it ended");
    let longer = node
        .status_where("a", "in a longer back-off", |s| {
            waiting(s).is_some_and(|w| w.message.unwrap_or_default().contains("back-off 20s"))
        })
        .await;
    assert_eq!(longer.container_statuses.unwrap()[0].restart_count, 2);
}

/// The last case of known fault V1.
#[tokio::test]
async fn a_memory_limit_in_which_nothing_runs_is_named() {
    let node = FakeNode::up().await;
    let mut pod = pods::simple("a");
    pod["spec"]["containers"][0]["resources"] = json!({"limits": {"memory": "128m"}});
    node.put("a.yaml", &pod);
    let status = node.status_where("a", "refused", |s| waits_for(s, "CreateContainerConfigError")).await;
    let message = waiting(&status).unwrap().message.unwrap();
    assert!(message.contains("memory limit 128m of container c"), "{message}");
    assert_eq!(status.phase.as_deref(), Some("Pending"));
    assert_eq!(node.runtime.log().count(Method::RunPodSandbox), 0);
}

#[tokio::test]
async fn a_submitted_pod_runs_until_it_is_deleted() {
    let mut node = FakeNode::up().await;
    let submit = async |node: &FakeNode, pod: &Value| {
        let request = SubmitPodsRequest { manifest: pod.to_string().into_bytes() };
        let answer = SubmissionsClient::new(node.node.channel("syncd")).submit_pods(request).await;
        answer.map(|answer| answer.into_inner().pods[0].change())
    };
    node.put("f.yaml", &pods::simple("f"));
    node.ready("f").await;
    assert_eq!(submit(&node, &pods::simple("a")).await.unwrap(), SubmittedChange::Created);
    node.ready("a").await;
    let clash = submit(&node, &pods::simple("f")).await.unwrap_err();
    assert_eq!(clash.code(), Code::FailedPrecondition);
    assert!(clash.message().contains("f.yaml"), "{clash}");
    let before = node.running();
    node.kill("syncd");
    node.start("syncd");
    wait::until("the restarted syncd takes submissions", async || {
        let again = submit(&node, &pods::simple("a")).await.ok()?;
        assert_eq!(again, SubmittedChange::Nothing);
        Some(())
    })
    .await;
    let changed = pods::with_spec(pods::simple("a"), "terminationGracePeriodSeconds", json!(1));
    assert_eq!(submit(&node, &changed).await.unwrap(), SubmittedChange::Replaced);
    wait::until("its successor runs", async || {
        node.running().get("a/c").filter(|id| **id != before["a/c"]).cloned()
    })
    .await;
    assert_eq!(node.running()["f/c"], before["f/c"], "the neighbour was not touched");
    let metrics = wait::until("the start was measured", async || {
        let mut syncd = ProcessClient::new(node.node.channel("syncd"));
        let families = syncd.get_metrics(GetMetricsRequest {}).await.ok()?.into_inner().families;
        // It is the last thing that a start comes to.
        let start = families.iter().find(|family| family.name == "kubelet_pod_start_duration_seconds")?;
        start.series.iter().any(|series| series.value > 0.0).then_some(families)
    })
    .await;
    let value = |name: &str, labels: &[&str]| {
        let family = metrics.iter().find(|family| family.name == name).unwrap_or_else(|| panic!("{name}"));
        let series = family.series.iter().find(|series| series.label_values == labels);
        series.map(|series| series.value)
    };
    assert_eq!(value("kubelet_desired_pods", &["true"]), Some(2.0));
    assert_eq!(value("kubelet_active_pods", &["true"]), Some(2.0));
    assert_eq!(value("kubelet_working_pods", &["desired", "sync", "true"]), Some(2.0));
    assert_eq!(value("kubelet_started_pods_total", &[]), Some(1.0), "in this life");
    assert_eq!(value("kubelet_started_containers_total", &["container"]), Some(1.0));
    assert!(value("kubelet_pod_worker_duration_seconds", &["kill"]).is_some_and(|seconds| seconds > 0.0));
    let delete = async |name: &str| {
        let request = DeletePodRequest { namespace: "default".into(), name: name.into() };
        SubmissionsClient::new(node.node.channel("syncd")).delete_pod(request).await
    };
    assert!(delete("a-node-a").await.unwrap().into_inner().deleted);
    assert!(!delete("a").await.unwrap().into_inner().deleted);
    assert_eq!(delete("f").await.unwrap_err().code(), Code::FailedPrecondition);
    wait::until("the pod is gone", async || (node.running().len() == 1).then_some(())).await;
}

/// A web server in a node's network. It goes with the test's process.
struct Web {
    /// What it answers by now; `None`: nobody who has the key gets anything.
    says: Arc<StdMutex<Option<String>>>,
}

const PORT: u16 = 8181;
const KEY: &str = "s3cret";

impl Web {
    fn begin(node: &RealNode) -> Self {
        let says = Arc::<StdMutex<Option<String>>>::default();
        let (answer, netns) = (says.clone(), PathBuf::from("/run/netns").join(node.id()));
        let (ready, listens) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            setns(File::open(netns).unwrap(), CloneFlags::CLONE_NEWNET).unwrap();
            let listener = TcpListener::bind(("127.0.0.1", PORT)).unwrap();
            ready.send(()).unwrap();
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut head = Vec::new();
                let mut byte = [0];
                while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|read| read == 1) {
                    head.push(byte[0]);
                }
                let has_key =
                    String::from_utf8_lossy(&head).to_lowercase().contains(&format!("x-key: {KEY}"));
                let body = answer.lock().unwrap().clone().filter(|_| has_key);
                let (status, body) = body.map_or((503, String::new()), |body| (200, body));
                let length = body.len();
                let _ = write!(stream, "HTTP/1.1 {status} x\r\nContent-Length: {length}\r\n\r\n{body}");
            }
        });
        listens.recv().unwrap();
        Self { says }
    }

    fn say(&self, pods: &[Value]) {
        *self.says.lock().unwrap() =
            Some(json!({"apiVersion": "v1", "kind": "PodList", "items": pods}).to_string());
    }

    fn break_down(&self) {
        *self.says.lock().unwrap() = None;
    }
}

fn write_config(path: &Path, mut fields: Value) {
    fields["apiVersion"] = json!("kubelet.config.k8s.io/v1beta1");
    fields["kind"] = json!("KubeletConfiguration");
    std::fs::write(path, fields.to_string()).unwrap();
}

/// Everything that the node wrote for people: the launcher's log and those of the processes.
fn told(node: &RealNode) -> String {
    let files = std::fs::read_dir(node.state().join("logs")).unwrap().flatten();
    let texts = files.filter_map(|file| std::fs::read_to_string(file.path()).ok());
    texts.chain([node.said()]).collect()
}

/// Ends the launcher, and everything that depends on it, as `kill -9` of all would; and starts it again.
async fn kill_node(node: &mut RealNode) {
    signal(node.launcher_pid(), Signal::SIGKILL);
    wait::until("its processes are gone", async || {
        let text = std::fs::read_to_string(format!("/proc/{}/stat", node.launcher_pid())).unwrap_or_default();
        (text.is_empty() || text.contains(") Z ")).then_some(())
    })
    .await;
    node.launch();
}

#[tokio::test]
async fn pods_by_url_outlive_their_server_syncd_and_the_node() {
    let _turn = turn().await;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("config.yaml");
    write_config(&file, json!({}));
    let mut node = RealNode::up(&["--keep-pods", "--config", &file.to_string_lossy()]).await;
    assert!(node.down().await, "{}", node.said());
    write_config(
        &file,
        json!({
            "staticPodURL": format!("http://127.0.0.1:{PORT}/pods?token={KEY}"),
            "staticPodURLHeader": {"X-Key": [KEY]},
            "httpCheckFrequency": "1s",
        }),
    );
    node.launch();
    // Nobody listens yet: that is told, and files' pods do not wait for it.
    node.put("f.yaml", &pods::simple("f"));
    node.ready("f").await;
    wait::until("the URL is refused", async || node.refused().remove("pods")).await;
    let web = Web::begin(&node);
    web.say(&[pods::simple("a"), pods::simple("f")]);
    node.ready("a").await;
    node.healthy().await;
    let a = node.pods().remove("a").unwrap();
    assert_eq!(a.metadata.annotations.unwrap()["kubernetes.io/config.source"], "http");
    let reason =
        wait::until("the file's pod is refused to the URL", async || node.refused().remove("f")).await;
    assert!(reason.contains("f.yaml"), "{reason}");
    let before = node.running();
    assert_eq!(before.len(), 2, "{before:?}");

    web.break_down();
    wait::until("the broken server is told", async || {
        node.refused().remove("pods").filter(|reason| reason.contains("503") && reason.contains("go on"))
    })
    .await;
    node.kill("syncd");
    node.put("g.yaml", &pods::simple("g"));
    node.ready("g").await;
    let kept = |node: &RealNode| {
        let mut running = node.running();
        running.remove("g/c");
        running
    };
    assert_eq!(kept(&node), before, "without its server, over a restart of syncd");
    kill_node(&mut node).await;
    wait::within(Duration::from_secs(120), "the node is back with all pods", async || {
        (kept(&node) == before).then_some(())
    })
    .await;

    web.say(&[pods::simple("f")]);
    wait::until("a is gone", async || (!node.running().contains_key("a/c")).then_some(())).await;
    assert_eq!(node.running()["f/c"], before["f/c"]);
    assert!(!told(&node).contains(KEY), "a header or the URL's query was told");
    for file in ["f.yaml", "g.yaml"] {
        node.take(file);
    }
    // Without the file, the URL's pod of that name takes over.
    wait::until("the URL's f runs", async || {
        node.running().get("f/c").filter(|id| **id != before["f/c"]).cloned()
    })
    .await;
    web.say(&[]);
    wait::until("all are gone", async || node.pods().is_empty().then_some(())).await;
    assert!(node.down().await, "{}", node.said());
}

fn links(node: &RealNode) -> BTreeMap<String, PathBuf> {
    let entries = std::fs::read_dir(node.state().join("logs/containers")).unwrap().flatten();
    entries.map(|e| (e.file_name().into_string().unwrap(), std::fs::read_link(e.path()).unwrap())).collect()
}

#[tokio::test]
async fn pods_by_hand_outlive_syncd_and_the_node_and_their_logs_are_linked() {
    let _turn = turn().await;
    let mut node = RealNode::up(&["--keep-pods"]).await;
    let file = node.state().join("a.json");
    let submit = |node: &RealNode, pod: &Value| {
        std::fs::write(&file, pod.to_string()).unwrap();
        let output = node.cli(&["run", "-f", &file.to_string_lossy()]);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
    };
    let mut pod = pods::simple("a");
    pod["spec"]["containers"] = json!([pods::container("c", "echo hello; sleep 100000 & wait")]);
    assert_eq!(submit(&node, &pod).unwrap(), "pod default/a-node-a created\n");
    assert_eq!(submit(&node, &pod).unwrap(), "pod default/a-node-a unchanged\n");
    let id = node.ready("a").await.remove("c").unwrap();
    let name = |id: &str| format!("a-node-a_default_c-{}.log", id.trim_start_matches("containerd://"));
    wait::until("its log is linked", async || links(&node).contains_key(&name(&id)).then_some(())).await;
    wait::until("the log can be read there", async || {
        let text = std::fs::read_to_string(node.state().join("logs/containers").join(name(&id))).ok()?;
        text.contains("hello").then_some(())
    })
    .await;
    let mut bad = pod.clone();
    bad["spec"]["runtimeClassName"] = json!("kata");
    assert!(submit(&node, &bad).unwrap_err().contains("runtimeClassName"));
    node.put("f.yaml", &pods::simple("f"));
    node.ready("f").await;
    assert!(submit(&node, &pods::simple("f")).unwrap_err().contains("f.yaml"));

    let before = node.running();
    let pid = node.kill("syncd");
    node.back("syncd", pid, Duration::from_secs(30)).await;
    assert_eq!(node.running(), before);
    // A link that an earlier life left behind.
    let left = node.state().join("logs/containers/left_default_c-0.log");
    std::os::unix::fs::symlink(node.state().join("logs/pods/gone"), &left).unwrap();
    kill_node(&mut node).await;
    wait::within(Duration::from_secs(120), "the node is back with all pods", async || {
        (node.running() == before).then_some(())
    })
    .await;
    wait::until("the left-over link is gone", async || (!left.is_symlink()).then_some(())).await;
    assert_eq!(links(&node).len(), 2, "{:?}", links(&node));

    pod["spec"]["containers"][0]["image"] = json!("local/busybox:2");
    assert!(submit(&node, &pod).unwrap().contains("replaced"));
    let next = wait::until("its successor runs", async || {
        node.running().get("a/c").filter(|id| **id != before["a/c"]).cloned()
    })
    .await;
    wait::until("the link follows", async || {
        let links = links(&node);
        (links.contains_key(&name(&next)) && !links.contains_key(&name(&id))).then_some(())
    })
    .await;
    assert!(!node.cli(&["delete", "pod", "f"]).status.success(), "it is a file's");
    assert!(node.cli(&["delete", "pod", "a"]).status.success());
    wait::until("a is gone", async || (!node.pods().contains_key("a")).then_some(())).await;
    assert!(!node.cli(&["delete", "pod", "a"]).status.success(), "nothing to delete any more");
    node.take("f.yaml");
    wait::until("no pods and no links", async || {
        (node.pods().is_empty() && links(&node).is_empty()).then_some(())
    })
    .await;
    assert!(node.down().await, "{}", node.said());
}
