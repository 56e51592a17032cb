//! Evictions: on a real containerd pods that take more of the disk than they may, and a node that runs short; on the fake
//! runtime what is kept, and what a node under pressure takes.
#![cfg(test)]

use std::time::Duration;

use bulkhead_api::common::v1::WatchRequest;
use bulkhead_api::evictd::v1::pressures_server::{Pressures, PressuresServer};
use bulkhead_api::evictd::v1::{NodePressure, PressureUpdate};
use bulkhead_api::syncd::v1::eviction_client::EvictionClient;
use bulkhead_api::syncd::v1::submissions_client::SubmissionsClient;
use bulkhead_api::syncd::v1::{EvictPodRequest, SubmitPodsRequest};
use bulkhead_e2e::fake_node::{FakeNode, is_ready};
use bulkhead_e2e::real_node::RealNode;
use bulkhead_e2e::{pods, wait};
use bulkhead_ipc::Publisher;
use bulkhead_ipc::publisher::BoxStream;
use bulkhead_testkit::cri::{Detail, Method};
use k8s_openapi::api::core::v1::{ContainerState, Pod, PodStatus};
use serde_json::{Value, json};
use tokio::sync::{Mutex, MutexGuard};
use tonic::service::Routes;
use tonic::{Code, Request, Response, Status};

static ONE_NODE: Mutex<()> = Mutex::const_new(());

/// The runtime measures layers every 10 s, and evictd looks every 10 s.
const SOON: Duration = Duration::from_secs(90);

async fn turn() -> MutexGuard<'static, ()> {
    ONE_NODE.lock().await
}

/// A node with these hard thresholds.
async fn node(dir: &tempfile::TempDir, hard: Value) -> RealNode {
    let config = dir.path().join("config.yaml");
    let text = json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration", "evictionHard": hard
    });
    std::fs::write(&config, text.to_string()).unwrap();
    RealNode::up(&["--config", &config.to_string_lossy()]).await
}

/// A pod whose process cares for no signal, as the first one of its namespace.
fn pod(name: &str, script: &str) -> Value {
    let mut pod = pods::simple(name);
    pod["spec"]["containers"] = json!([{
        "name": "c",
        "image": "local/busybox:1",
        "imagePullPolicy": "IfNotPresent",
        "command": ["/bin/sh", "-c", script]
    }]);
    pod
}

fn with_volume(mut pod: Value, size: &str) -> Value {
    pod["spec"]["volumes"] = json!([{"name": "d", "emptyDir": {"sizeLimit": size}}]);
    pod["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "d", "mountPath": "/d"}]);
    pod
}

fn with_resources(mut pod: Value, resources: Value) -> Value {
    pod["spec"]["containers"][0]["resources"] = resources;
    pod
}

/// Hands a pod in as a person does: static pods are never evicted.
fn submit(node: &RealNode, pod: &Value) {
    let file = node.state().join("submit.json");
    std::fs::write(&file, pod.to_string()).unwrap();
    let output = node.cli(&["run", "-f", &file.to_string_lossy()]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

async fn failed(node: &RealNode, name: &str) -> (Pod, PodStatus) {
    wait::within(SOON, &format!("{name} has failed: {}", node.said()), async || {
        let pod = node.pods().remove(name)?;
        let status = pod.status.clone()?;
        (status.phase.as_deref() == Some("Failed")).then_some((pod, status))
    })
    .await
}

/// What its one container was when it ended, and how.
fn end(status: &PodStatus) -> (i32, String) {
    let container = &status.container_statuses.as_ref().unwrap()[0];
    assert_eq!(container.restart_count, 0, "{container:?}");
    let ContainerState { terminated: Some(ended), .. } = container.state.clone().unwrap() else {
        panic!("it has not ended: {container:?}")
    };
    assert!(ended.started_at.unwrap() <= ended.finished_at.unwrap(), "{container:?}");
    assert!(ended.container_id.unwrap().starts_with("containerd://"), "{container:?}");
    (ended.exit_code, ended.reason.unwrap())
}

fn why(status: &PodStatus) -> (&str, &str) {
    (status.reason.as_deref().unwrap_or_default(), status.message.as_deref().unwrap_or_default())
}

/// Logs of a pod's containers.
fn logs(node: &RealNode, name: &str) -> Vec<std::path::PathBuf> {
    let pods = std::fs::read_dir(node.state().join("logs/pods")).unwrap().flatten();
    let ours =
        pods.filter(|pod| pod.file_name().to_string_lossy().starts_with(&format!("default_{name}-node-a_")));
    let files = ours.flat_map(|pod| std::fs::read_dir(pod.path().join("c")).into_iter().flatten().flatten());
    files.map(|file| file.path()).collect()
}

fn is_disrupted(status: &PodStatus) -> bool {
    status.conditions.iter().flatten().any(|c| c.type_ == "DisruptionTarget" && c.status == "True")
}

/// Known fault E2; and E1: on this node two signals are switched off by 0 % and 100 %, and evict nobody.
#[tokio::test]
async fn pods_that_take_more_of_the_disk_than_they_may_are_evicted() {
    let _turn = turn().await;
    let dir = tempfile::tempdir().unwrap();
    let mut node = node(&dir, json!({"memory.available": "0%", "nodefs.available": "100%"})).await;
    let fill = "dd if=/dev/zero of=/d/f bs=1M count=20; sleep 9999";
    let limit = json!({"limits": {"ephemeral-storage": "5Mi"}});
    node.put("static.yaml", &with_volume(pod("static", fill), "5Mi"));
    submit(&node, &with_volume(pod("under", "dd if=/dev/zero of=/d/f bs=1M count=2; sleep 9999"), "5Mi"));
    submit(&node, &with_volume(pod("volume", fill), "5Mi"));
    submit(
        &node,
        &with_resources(pod("layer", "dd if=/dev/zero of=/f bs=1M count=20; sleep 9999"), limit.clone()),
    );
    submit(
        &node,
        &with_resources(pod("log", "head -c 20000000 /dev/zero | tr '\\0' '\\n'; sleep 9999"), limit),
    );
    let before = [node.ready("static").await, node.ready("under").await];
    assert_eq!(logs(&node, "under").len(), 1);
    let pod_limit = "Pod ephemeral local storage usage exceeds the total limit of containers 5Mi. ";
    let messages = [
        ("volume", "Usage of EmptyDir volume \"d\" exceeds the limit \"5Mi\". "),
        ("layer", pod_limit),
        ("log", pod_limit),
    ];
    for (name, message) in messages {
        let (pod, status) = failed(&node, name).await;
        assert_eq!(why(&status), ("Evicted", message), "{name}");
        assert_eq!(end(&status), (137, "Error".to_owned()), "{name}");
        assert!(!is_disrupted(&status), "{name}: it broke a limit of its own");
        let volumes = node.state().join("root/pods").join(pod.metadata.uid.unwrap()).join("volumes");
        let left = || std::fs::read_dir(volumes.join("kubernetes.io~empty-dir")).map_or(0, Iterator::count);
        wait::until(&format!("{name}: the disk is released"), async || (left() == 0).then_some(())).await;
        // Its container with all that it wrote, once everybody knows how that ended.
        wait::until(&format!("{name}: its log is gone"), async || logs(&node, name).is_empty().then_some(()))
            .await;
    }

    // No life of any process runs them again, or forgets why they ended.
    for process in ["syncd", "evictd", "statusd"] {
        let pid = node.kill(process);
        node.back(process, pid, wait::BOUND).await;
    }
    for (name, message) in messages {
        let (_, status) = failed(&node, name).await;
        assert_eq!((why(&status), end(&status)), (("Evicted", message), (137, "Error".to_owned())), "{name}");
    }
    assert_eq!([node.ready("static").await, node.ready("under").await], before, "untouched");
    assert_eq!(node.running().len(), 2);

    // Another manifest is another pod.
    submit(&node, &with_volume(pod("volume", "sleep 9999"), "5Mi"));
    node.ready("volume").await;
    assert!(node.down().await, "{}", node.said());
}

#[tokio::test]
async fn a_node_that_runs_short_evicts_what_is_not_its_own_and_takes_no_best_effort_pod() {
    let _turn = turn().await;
    let dir = tempfile::tempdir().unwrap();
    let mut node = node(&dir, json!({"memory.available": "99.9%"})).await;
    node.put("static.yaml", &pod("static", "sleep 9999"));
    let ids = node.ready("static").await;
    submit(&node, &pod("effort", "sleep 9999"));
    let (_, status) = failed(&node, "effort").await;
    let message = "Pod was rejected: The node had condition: [MemoryPressure]. ";
    assert_eq!(why(&status), ("Evicted", message));

    submit(&node, &with_resources(pod("burstable", "sleep 9999"), json!({"requests": {"memory": "64Ki"}})));
    let (_, status) = failed(&node, "burstable").await;
    let (reason, message) = why(&status);
    assert_eq!(reason, "Evicted");
    assert!(message.starts_with("The node was low on resource: memory. Threshold quantity: "), "{message}");
    assert!(
        message.contains("Container c was using ") && message.contains(", request is 64Ki, has larger"),
        "{message}"
    );
    assert!(is_disrupted(&status), "{status:?}");
    assert_eq!(end(&status), (137, "Error".to_owned()));
    assert_eq!(node.ready("static").await, ids, "untouched");
    assert!(node.down().await, "{}", node.said());
}

/// Hands in a pod at a fake node.
async fn submit_to(node: &FakeNode, pod: &Value) {
    let mut submissions = SubmissionsClient::new(node.node.channel("syncd"));
    let request = SubmitPodsRequest { manifest: pod.to_string().into_bytes() };
    wait::until("syncd takes a pod", async || submissions.submit_pods(request.clone()).await.ok()).await;
}

fn uid(node: &FakeNode, name: &str) -> String {
    let statuses = node.statuses.snapshot();
    let found = statuses.values().find(|status| status.name == format!("{name}-node-a"));
    found.unwrap().pod_uid.clone()
}

#[tokio::test]
async fn an_eviction_outlives_syncd_and_is_refused_for_the_nodes_own_pods() {
    let mut node = FakeNode::up().await;
    node.put("static.yaml", &pods::simple("static"));
    submit_to(&node, &pods::with_spec(pods::simple("a"), "terminationGracePeriodSeconds", json!(30))).await;
    node.ready("static").await;
    node.ready("a").await;
    let order = |name: &str| EvictPodRequest {
        pod_uid: uid(&node, name),
        message: "The node was low on resource: memory. ".to_owned(),
        grace_seconds: 1,
        disruption: true,
    };
    let (own, order) = (order("static"), order("a"));
    let evict = async |node: &FakeNode, order: EvictPodRequest| {
        let answer = EvictionClient::new(node.node.channel("syncd")).evict_pod(order).await;
        answer.map(|answer| answer.into_inner().changed).map_err(|status| status.code())
    };
    assert_eq!(evict(&node, own).await, Err(Code::FailedPrecondition));
    let unknown = EvictPodRequest { pod_uid: "nobody".to_owned(), ..order.clone() };
    assert_eq!(evict(&node, unknown).await, Err(Code::NotFound));
    assert_eq!(evict(&node, order.clone()).await, Ok(true));
    node.kill("syncd");
    node.start("syncd");
    let over = |status: &PodStatus| status.phase.as_deref() == Some("Failed");
    let status = node.status_where("a", "Failed", over).await;
    assert_eq!(why(&status), ("Evicted", "The node was low on resource: memory. "));
    assert!(is_disrupted(&status), "{status:?}");
    let graces = node.runtime.log().of(Method::StopContainer);
    let graces: Vec<_> = graces
        .iter()
        .map(|call| match call.detail {
            Detail::StopContainer { timeout } => timeout,
            _ => -1,
        })
        .collect();
    assert!(!graces.is_empty() && graces.iter().all(|grace| *grace <= 1), "{graces:?}");
    let again = wait::until("syncd is back", async || evict(&node, order.clone()).await.ok()).await;
    assert!(!again, "it is over already");
    // Its container goes once its end was told, and is not missed.
    node.runtime
        .log()
        .wait_for(|calls| calls.iter().any(|call| call.method == Method::RemoveContainer))
        .await
        .unwrap();
    node.kill("statusd");
    node.start("statusd");
    let later = node.status_where("a", "Failed", over).await;
    assert_eq!(later.container_statuses, status.container_statuses);
    assert_eq!(node.running().keys().collect::<Vec<_>>(), ["static/c"]);
}

struct FakePressures(Publisher<String, NodePressure>);

#[tonic::async_trait]
impl Pressures for FakePressures {
    type WatchPressureStream = BoxStream<PressureUpdate>;
    async fn watch_pressure(
        &self,
        _: Request<WatchRequest>,
    ) -> Result<Response<Self::WatchPressureStream>, Status> {
        Ok(Response::new(self.0.subscribe()))
    }
}

#[tokio::test]
async fn a_node_under_pressure_takes_its_own_pods_alone_and_ends_none() {
    let node = FakeNode::up().await;
    submit_to(&node, &pods::simple("before")).await;
    node.ready("before").await;
    let pressures = Publisher::new(node.node.shutdown.clone());
    let condition = "DiskPressure".to_owned();
    pressures.upsert(condition.clone(), NodePressure { condition });
    pressures.open();
    let routes = Routes::new(PressuresServer::new(FakePressures(pressures)));
    let _evictd = node.node.fake_peer("evictd", routes).await;
    let refused = |status: &PodStatus| status.phase.as_deref() == Some("Failed");
    // Whether syncd knows of the pressure by now is seen by what it does: one pod after the other.
    let mut number = 0;
    let status = wait::until("a pod is refused", async || {
        number += 1;
        let name = format!("after{number}");
        submit_to(&node, &pods::simple(&name)).await;
        let status = node.status_where(&name, "decided", |status| refused(status) || is_ready(status)).await;
        Some(status).filter(refused)
    })
    .await;
    assert_eq!(why(&status), ("Evicted", "Pod was rejected: The node had condition: [DiskPressure]. "));
    node.put("static.yaml", &pods::simple("static"));
    node.ready("static").await;
    assert!(is_ready(&node.status("before").unwrap()));
}
