//! The pod and the node as this agent shows them, field by field beside those of a real kubelet 1.37.2 with the same pod.
#![cfg(test)]

use bulkhead_api::statusd::v1::GetNodeRequest;
use bulkhead_api::statusd::v1::statusd_client::StatusdClient;
use bulkhead_api::syncd::v1::ListPodsRequest;
use bulkhead_api::syncd::v1::list_pods_item::Item;
use bulkhead_api::syncd::v1::syncd_client::SyncdClient;
use bulkhead_e2e::compare::{Known, check, differences};
use bulkhead_e2e::fake_node::FakeNode;
use serde_json::{Value, json};

/// What the API server showed of a static pod of the kubelet's, and of its node.
const KUBELETS_POD: &str = include_str!("../fixtures/kubelet-pod.json");
const KUBELETS_NODE: &str = include_str!("../fixtures/kubelet-node.json");

/// The image of that pod.
const IMAGE: &str = "registry.k8s.io/e2e-test-images/busybox:1.36.1-1";

const STEP_3: &str = "the API server gives it: with the cluster (step 3)";

const POD: Known = Known {
    differs: &[
        ("metadata.annotations.kubernetes.io/config.mirror", "of the copy in the API server (step 3)"),
        ("metadata.creationTimestamp", STEP_3),
        ("metadata.generation", STEP_3),
        ("metadata.ownerReferences", "of the copy in the API server (step 3)"),
        ("metadata.resourceVersion", STEP_3),
        ("spec.preemptionPolicy", "the API server's priority plug-in writes it (step 3)"),
        ("spec.priority", "the API server's priority plug-in writes it (step 3)"),
    ],
    own: &[
        "metadata.annotations.kubernetes.io/config.hash",
        "metadata.uid",
        "status.containerStatuses.[c].containerID",
        "status.containerStatuses.[c].imageID",
        "status.podIP",
        "status.podIPs",
    ],
};

const NODE: Known = Known {
    differs: &[
        ("metadata.annotations.node.alpha.kubernetes.io/ttl", "the controller manager writes it (step 3)"),
        ("metadata.creationTimestamp", STEP_3),
        ("metadata.resourceVersion", STEP_3),
        ("metadata.uid", STEP_3),
        ("status.declaredFeatures", "not all that the kubelet declares is built"),
        ("status.images", "for the scheduler: with the cluster (step 3)"),
        (
            "status.runtimeHandlers.[].features",
            "the fake runtime's are others; statusd tells what a runtime tells",
        ),
        (
            "status.runtimeHandlers.[runc].features",
            "the fake runtime's are others; statusd tells what a runtime tells",
        ),
    ],
    own: &[
        "status.allocatable",
        "status.capacity",
        "status.nodeInfo.bootID",
        "status.nodeInfo.containerRuntimeVersion",
        "status.nodeInfo.kernelVersion",
        "status.nodeInfo.kubeletVersion",
        "status.nodeInfo.machineID",
        "status.nodeInfo.osImage",
        "status.nodeInfo.systemUUID",
    ],
};

/// As gateway joins it for `/pods`.
async fn shown(node: &FakeNode, name: &str) -> Value {
    let mut syncd = SyncdClient::new(node.node.channel("syncd"));
    let mut list = syncd.list_pods(ListPodsRequest {}).await.unwrap().into_inner();
    while let Some(item) = list.message().await.unwrap() {
        let Some(Item::PodJson(text)) = item.item else { continue };
        let mut pod: Value = serde_json::from_slice(&text).unwrap();
        if pod["metadata"]["name"] == name {
            let uid = pod["metadata"]["uid"].as_str().unwrap().to_owned();
            let status = node.statuses.get(&uid).expect("its status");
            pod["status"] = serde_json::from_slice(&status.status_json).unwrap();
            return pod;
        }
    }
    panic!("no pod {name}");
}

#[tokio::test]
async fn a_pod_is_what_it_is_with_a_real_kubelet() {
    let node = FakeNode::up().await;
    node.runtime.add_image(IMAGE);
    // The manifest that the kubelet had.
    node.put(
        "s.yaml",
        &json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "s"},
            "spec": {"containers": [{
                "name": "c",
                "image": IMAGE,
                "command": ["sleep", "99999"],
                "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}, "limits": {"memory": "32Mi"}},
            }]},
        }),
    );
    node.ready("s").await;
    let kubelets: Value = serde_json::from_str(KUBELETS_POD).unwrap();
    check(&differences(&kubelets, &shown(&node, "s-node-a").await), &POD);
}

#[tokio::test]
async fn a_node_is_what_it_is_with_a_real_kubelet() {
    let node = FakeNode::up().await;
    node.put("a.yaml", &bulkhead_e2e::pods::simple("a"));
    node.ready("a").await;
    let mut statusd = StatusdClient::new(node.node.channel("statusd"));
    let answer = statusd.get_node(GetNodeRequest {}).await.unwrap().into_inner();
    let ours: Value = serde_json::from_slice(&answer.node_json).unwrap();
    let kubelets: Value = serde_json::from_str(KUBELETS_NODE).unwrap();
    check(&differences(&kubelets, &ours), &NODE);
}
