//! The objects that a node has in its cluster, field by field beside those of a real kubelet 1.37.2: the node, a pod of the API
//! server, a static pod's mirror, the lease. Events are compared in `cluster_events.rs`.
#![cfg(test)]

use std::time::Duration;

use bulkhead_e2e::cluster::Cluster;
use bulkhead_e2e::compare::{Known, check, differences};
use bulkhead_e2e::real_node::RealNode;
use bulkhead_e2e::wait;
use serde_json::{Value, json};

const BOUND: Duration = Duration::from_secs(90);
const IMAGE: &str = "local/busybox:1";

const POD: Known = Known {
    differs: &[(
        "metadata.annotations",
        "kubectl's own annotation: the pod was applied there, and is posted here",
    )],
    own: &[
        "metadata.resourceVersion",
        "metadata.uid",
        "spec.containers.[c].image",
        "spec.containers.[c].volumeMounts",
        "spec.volumes",
        "status.containerStatuses.[c].containerID",
        "status.containerStatuses.[c].image",
        "status.containerStatuses.[c].imageID",
        "status.containerStatuses.[c].volumeMounts.[kube-api-access]",
        "status.hostIP",
        "status.hostIPs",
        "status.podIP",
        "status.podIPs",
    ],
};

const MIRROR: Known = Known {
    differs: &[],
    own: &[
        "metadata.annotations.kubernetes.io/config.hash",
        "metadata.annotations.kubernetes.io/config.mirror",
        "metadata.ownerReferences.[node-a].uid",
        "metadata.resourceVersion",
        "metadata.uid",
        "spec.containers.[c].image",
        "status.containerStatuses.[c].containerID",
        "status.containerStatuses.[c].image",
        "status.containerStatuses.[c].imageID",
        "status.hostIP",
        "status.hostIPs",
        "status.podIP",
        "status.podIPs",
    ],
};

const NODE: Known = Known {
    differs: &[("status.declaredFeatures", "not all that the kubelet declares is built")],
    own: &[
        "metadata.resourceVersion",
        "metadata.uid",
        "status.addresses",
        "status.allocatable",
        "status.capacity",
        "status.images",
        "status.nodeInfo.bootID",
        "status.nodeInfo.containerRuntimeVersion",
        "status.nodeInfo.kernelVersion",
        "status.nodeInfo.kubeletVersion",
        "status.nodeInfo.machineID",
        "status.nodeInfo.osImage",
        "status.nodeInfo.systemUUID",
    ],
};

const LEASE: Known = Known {
    differs: &[],
    own: &["metadata.resourceVersion", "metadata.uid", "metadata.ownerReferences.[node-a].uid"],
};

fn kubelets(text: &str) -> Value {
    serde_json::from_str(text).expect("JSON")
}

/// Without who wrote which field when, which the facts do not have; volumes of tokens have names of their own each time.
fn plain(mut object: Value) -> Value {
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("managedFields");
    }
    fn rename(value: &mut Value) {
        match value {
            Value::String(text) if text.starts_with("kube-api-access-") => "kube-api-access".clone_into(text),
            Value::Array(items) => items.iter_mut().for_each(rename),
            Value::Object(fields) => fields.values_mut().for_each(rename),
            _ => {}
        }
    }
    rename(&mut object);
    object
}

#[tokio::test]
async fn the_nodes_objects_in_the_cluster_are_the_kubelets() {
    let cluster = Cluster::whole();
    let mut node = RealNode::up_within(&cluster, &[]).await;
    let container = json!({"name": "c", "image": IMAGE, "command": ["sleep", "99999"]});
    let mut with_resources = container.clone();
    with_resources["resources"] =
        json!({"requests": {"cpu": "10m", "memory": "16Mi"}, "limits": {"memory": "32Mi"}});
    node.put(
        "s.yaml",
        &json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "s"}, "spec": {"containers": [with_resources]}}),
    );
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"},
        "spec": {"terminationGracePeriodSeconds": 1, "containers": [container]}
    });
    cluster.ask("POST", "/api/v1/namespaces/default/pods", &pod);
    let ready = async |name: &str| {
        let path = format!("/api/v1/namespaces/default/pods/{name}");
        wait::within(BOUND, &format!("{name} is ready"), async || {
            let all = cluster.ask("GET", "/api/v1/namespaces/default/pods", &Value::Null);
            all["items"].as_array()?.iter().find(|pod| pod["metadata"]["name"] == name)?;
            let pod = cluster.ask("GET", &path, &Value::Null);
            let conditions = pod["status"]["conditions"].as_array()?.clone();
            conditions.iter().any(|c| c["type"] == "Ready" && c["status"] == "True").then_some(pod)
        })
        .await
    };
    let ours = plain(ready("a").await);
    check(&differences(&plain(kubelets(include_str!("../fixtures/kubelet-pod-api.json"))), &ours), &POD);
    let ours = plain(ready("s-node-a").await);
    check(&differences(&plain(kubelets(include_str!("../fixtures/kubelet-pod.json"))), &ours), &MIRROR);
    let of_node = wait::within(BOUND, "the node is told whole", async || {
        let node = cluster.ask("GET", "/api/v1/nodes/node-a", &Value::Null);
        let ready = node["status"]["conditions"].as_array()?.iter().any(|c| c["reason"] == "KubeletReady");
        (ready && node["status"]["images"].is_array() && node["spec"]["taints"].is_null()).then_some(node)
    })
    .await;
    check(&differences(&kubelets(include_str!("../fixtures/kubelet-node.json")), &plain(of_node)), &NODE);
    let lease = cluster.ask(
        "GET",
        "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/node-a",
        &Value::Null,
    );
    check(&differences(&kubelets(include_str!("../fixtures/kubelet-lease.json")), &plain(lease)), &LEASE);
    assert!(node.down().await, "{}", node.said());
}
