//! The pod and the node as this agent shows them, field by field beside those of a real kubelet 1.37.2 with the same pod.
#![cfg(test)]

use std::collections::BTreeMap;

use bulkhead_api::statusd::v1::GetNodeRequest;
use bulkhead_api::statusd::v1::statusd_client::StatusdClient;
use bulkhead_api::syncd::v1::ListPodsRequest;
use bulkhead_api::syncd::v1::list_pods_item::Item;
use bulkhead_api::syncd::v1::syncd_client::SyncdClient;
use bulkhead_e2e::fake_node::FakeNode;
use serde_json::{Value, json};

/// What the API server showed of a static pod of the kubelet's, and of its node.
const KUBELETS_POD: &str = include_str!("../fixtures/kubelet-pod.json");
const KUBELETS_NODE: &str = include_str!("../fixtures/kubelet-node.json");

/// The image of that pod.
const IMAGE: &str = "registry.k8s.io/e2e-test-images/busybox:1.36.1-1";

/// What is known to differ. What is beneath a field differs with it.
struct Known {
    /// Fields that only one of them has, or that say something else, and why.
    differs: &'static [(&'static str, &'static str)],
    /// Fields that hold what is this pod's, this node's or this machine's own: nothing is compared there.
    own: &'static [&'static str],
}

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

/// How a field differs.
#[derive(Debug, PartialEq)]
enum Difference {
    /// The kubelet has it.
    Missing,
    /// Only we have it.
    Extra,
    /// The kubelet's and ours.
    Other(Value, Value),
}

/// Every difference, by the path of the field.
fn differences(kubelets: &Value, ours: &Value) -> BTreeMap<String, Difference> {
    let mut found = BTreeMap::new();
    compare(String::new(), kubelets, ours, &mut found);
    found
}

fn compare(path: String, kubelets: &Value, ours: &Value, found: &mut BTreeMap<String, Difference>) {
    // To whoever reads the API a field that is null is one that is not there.
    let fields = |value: &Value| -> Option<BTreeMap<String, Value>> {
        match value {
            Value::Object(fields) => {
                Some(fields.clone().into_iter().filter(|(_, value)| !value.is_null()).collect())
            }
            Value::Array(items) => {
                Some(items.iter().enumerate().map(|(n, item)| (key(n, item), item.clone())).collect())
            }
            _ => None,
        }
    };
    match (fields(kubelets), fields(ours)) {
        (Some(theirs), Some(ours)) => {
            for name in theirs.keys().chain(ours.keys()) {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                match (theirs.get(name), ours.get(name)) {
                    (Some(one), Some(other)) => compare(path, one, other, found),
                    (Some(_), None) => drop(found.insert(path, Difference::Missing)),
                    _ => drop(found.insert(path, Difference::Extra)),
                }
            }
        }
        // Two dates are of two moments.
        _ if kubelets == ours || is_date(kubelets) && is_date(ours) => {}
        _ => drop(found.insert(path, Difference::Other(kubelets.clone(), ours.clone()))),
    }
}

/// Items of lists that the API merges by a key go by it.
fn key(place: usize, item: &Value) -> String {
    let key = ["type", "name"].iter().find_map(|key| item[key].as_str());
    format!("[{}]", key.map_or_else(|| place.to_string(), str::to_owned))
}

fn is_date(value: &Value) -> bool {
    value.as_str().is_some_and(|text| text.parse::<jiff::Timestamp>().is_ok())
}

/// Every difference is known, and all that is known is a difference.
fn check(found: &BTreeMap<String, Difference>, known: &Known) {
    let within = |path: &str, row: &str| {
        path.strip_prefix(row).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    let is_known = |path: &str| {
        known.differs.iter().any(|(row, _)| within(path, row))
            || known.own.iter().any(|row| within(path, row))
    };
    let new: BTreeMap<_, _> = found.iter().filter(|(path, _)| !is_known(path)).collect();
    assert!(new.is_empty(), "neither the same nor known to differ: {new:#?}");
    let stale: Vec<_> =
        known.differs.iter().filter(|(row, _)| !found.keys().any(|path| within(path, row))).collect();
    assert!(stale.is_empty(), "no difference any more: {stale:?}");
}

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

#[test]
fn every_way_to_differ_is_seen() {
    let kubelets = json!({
        "same": 1, "gone": {"x": 1}, "at": "2026-11-30T14:26:04Z", "list": [{"name": "a", "v": 1}, {"name": "b"}], "n": null,
    });
    let ours = json!({
        "same": 1, "new": 2, "at": "2025-01-01T00:00:00.5Z", "list": [{"name": "b"}, {"name": "a", "v": 2}], "n": 0,
    });
    let found = differences(&kubelets, &ours);
    let wanted = [
        ("gone", Difference::Missing),
        ("list.[a].v", Difference::Other(json!(1), json!(2))),
        ("n", Difference::Extra),
        ("new", Difference::Extra),
    ];
    assert_eq!(found, wanted.map(|(path, how)| (path.to_owned(), how)).into());
    check(&found, &Known { differs: &[("gone", "a"), ("n", "c"), ("new", "d")], own: &["list.[a]", "same"] });
}
