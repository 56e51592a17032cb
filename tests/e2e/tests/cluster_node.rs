//! A node in a real cluster: it registers, shows itself alive, and comes back whole.
#![cfg(test)]

use std::time::Duration;

use bulkhead_e2e::cluster::Cluster;
use bulkhead_e2e::real_node::RealNode;
use bulkhead_e2e::{pods, wait};
use serde_json::Value;
use tokio::sync::Mutex;

const NODE: &str = "/api/v1/nodes/node-a";
const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/node-a";
const BOUND: Duration = Duration::from_secs(60);

struct Bench {
    cluster: Cluster,
    node: RealNode,
}

async fn bench() -> Bench {
    let cluster = Cluster::up();
    let node = RealNode::up_in(&cluster, &[]).await;
    Bench { cluster, node }
}

impl Bench {
    /// What the cluster has of this path; `None` while it has nothing.
    fn there(&self, path: &str) -> Option<Value> {
        let (folder, _) = path.rsplit_once('/')?;
        let all = self.cluster.ask("GET", folder, &Value::Null);
        let name = path.rsplit('/').next()?;
        all["items"].as_array()?.iter().find(|item| item["metadata"]["name"] == name).cloned()
    }

    async fn ready(&self) -> Value {
        wait::within(BOUND, "the node is ready in the cluster", async || {
            let node = self.there(NODE)?;
            (condition(&node, "Ready")["status"] == "True").then_some(node)
        })
        .await
    }

    /// The lease of the node with this UID, once it was renewed after `before`.
    async fn lease(&self, uid: &Value, before: &Value) -> Value {
        wait::within(BOUND, "the lease is renewed", async || {
            let lease = self.there(LEASE)?;
            let renewed = lease["spec"]["renewTime"] != *before;
            (renewed && lease["metadata"]["ownerReferences"][0]["uid"] == *uid).then_some(lease)
        })
        .await
    }
}

fn condition<'a>(node: &'a Value, type_: &str) -> &'a Value {
    let conditions = node["status"]["conditions"].as_array().expect("conditions");
    conditions.iter().find(|condition| condition["type"] == type_).expect("the condition")
}

/// Two nodes at once would be one too many for the machine.
static ONE: Mutex<()> = Mutex::const_new(());

const POD: &str = "/api/v1/namespaces/default/pods/a-node-a";

#[tokio::test]
async fn a_static_pod_is_shown_in_the_cluster_as_it_is() {
    let _one = ONE.lock().await;
    let mut bench = bench().await;
    bench.node.put("a.yaml", &pods::simple("a"));
    let running = async |bench: &Bench, but: &Value| {
        wait::within(BOUND, "the copy runs", async || {
            let pod = bench.there(POD).filter(|pod| pod["metadata"]["uid"] != *but)?;
            let ready = pod["status"]["containerStatuses"][0]["ready"] == true;
            (ready && pod["status"]["phase"] == "Running").then_some(pod)
        })
        .await
    };
    let copy = running(&bench, &Value::Null).await;
    let annotations = &copy["metadata"]["annotations"];
    assert_eq!(annotations["kubernetes.io/config.mirror"], annotations["kubernetes.io/config.hash"]);
    assert_eq!(copy["metadata"]["ownerReferences"][0]["kind"], "Node");
    assert_eq!(copy["spec"]["nodeName"], "node-a");
    let containers = bench.node.ready("a").await;
    let id = copy["status"]["containerStatuses"][0]["containerID"].as_str().expect("an id");
    assert_eq!(id, containers["c"]);

    // Somebody deletes the copy: the pod goes on, and another copy comes.
    bench.cluster.ask("DELETE", &format!("{POD}?gracePeriodSeconds=0"), &Value::Null);
    let again = wait::within(Duration::from_secs(120), "another copy", async || {
        bench.there(POD).filter(|pod| pod["metadata"]["uid"] != copy["metadata"]["uid"])
    });
    again.await;
    assert_eq!(bench.node.ready("a").await, containers, "nothing was restarted");
    running(&bench, &copy["metadata"]["uid"]).await;

    bench.node.take("a.yaml");
    wait::within(BOUND, "the copy goes with the pod", async || bench.there(POD).is_none().then_some(()))
        .await;
    assert!(bench.node.down().await, "{}", bench.node.said());
}

#[tokio::test]
async fn a_node_registers_lives_and_comes_back_whole() {
    let _one = ONE.lock().await;
    let mut bench = bench().await;
    let node = bench.ready().await;
    assert_eq!(node["metadata"]["labels"]["kubernetes.io/hostname"], "node-a");
    assert!(node["status"]["allocatable"]["cpu"].is_string(), "{node:#}");
    let lease = bench.lease(&node["metadata"]["uid"], &Value::Null).await;
    assert_eq!(lease["spec"]["holderIdentity"], "node-a");
    assert_eq!(lease["spec"]["leaseDurationSeconds"], 40);

    // Whoever dies: the node is as ready as before, and goes on showing it.
    for process in ["apigate", "statusd"] {
        let pid = bench.node.kill(process);
        bench.node.back(process, pid, BOUND).await;
    }
    let renewed = bench.there(LEASE).expect("the lease")["spec"]["renewTime"].clone();
    bench.lease(&node["metadata"]["uid"], &renewed).await;
    let since = |node: &Value| condition(node, "Ready")["lastTransitionTime"].clone();
    assert_eq!(since(&bench.ready().await), since(&node));

    // A node that somebody deletes registers again, and its lease is the new one's.
    bench.cluster.ask("DELETE", NODE, &Value::Null);
    let again = wait::within(BOUND, "the node is there again", async || {
        bench.there(NODE).filter(|again| again["metadata"]["uid"] != node["metadata"]["uid"])
    })
    .await;
    bench.lease(&again["metadata"]["uid"], &Value::Null).await;
    assert_eq!(bench.ready().await["metadata"]["labels"], node["metadata"]["labels"]);
    assert!(bench.node.down().await, "{}", bench.node.said());
}
