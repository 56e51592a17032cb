//! Pods that the API server gives a node: they run, are told of, outlive what dies around them, and end as they are asked to.
#![cfg(test)]

use std::time::{Duration, Instant};

use bulkhead_e2e::cluster::Cluster;
use bulkhead_e2e::real_node::RealNode;
use bulkhead_e2e::wait;
use serde_json::{Value, json};
use tokio::sync::Mutex;

const PODS: &str = "/api/v1/namespaces/default/pods";
const BOUND: Duration = Duration::from_secs(60);

struct Bench {
    cluster: Cluster,
    node: RealNode,
}

async fn bench() -> Bench {
    let cluster = Cluster::up();
    let account = json!({"metadata": {"name": "default", "namespace": "default"}});
    cluster.ask("POST", "/api/v1/namespaces/default/serviceaccounts", &account);
    let node = RealNode::up_in(&cluster, &[]).await;
    let bench = Bench { cluster, node };
    wait::within(BOUND, "the node is there", async || {
        let nodes = bench.cluster.ask("GET", "/api/v1/nodes", &Value::Null);
        (!nodes["items"].as_array()?.is_empty()).then_some(())
    })
    .await;
    bench
}

/// A pod that is bound to the node, as the scheduler would have done.
fn pod(name: &str, command: &str, more: Value) -> Value {
    let mut spec = json!({
        "nodeName": "node-a", "automountServiceAccountToken": false, "enableServiceLinks": false,
        "tolerations": [{"operator": "Exists"}],
        "containers": [{
            "name": "c", "image": "local/busybox:1", "imagePullPolicy": "IfNotPresent", "command": ["/bin/sh", "-c", command]
        }]
    });
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}, "spec": spec})
}

const STAYS: &str = "trap 'exit 0' TERM; sleep 100000 & wait";
const STUBBORN: &str = "trap '' TERM; while :; do sleep 1; done";

impl Bench {
    fn create(&self, pod: &Value) -> Value {
        self.cluster.ask("POST", PODS, pod)
    }

    fn there(&self, name: &str) -> Option<Value> {
        let all = self.cluster.ask("GET", PODS, &Value::Null);
        all["items"].as_array()?.iter().find(|pod| pod["metadata"]["name"] == name).cloned()
    }

    async fn until(&self, name: &str, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
        let mut last = Value::Null;
        let found = wait::within(BOUND, what, async || {
            last = self.there(name)?;
            holds(&last).then(|| last.clone())
        });
        found.await
    }

    async fn ready(&self, name: &str) -> Value {
        self.until(name, &format!("{name} is ready"), is_ready).await
    }

    async fn gone(&self, name: &str) {
        wait::within(BOUND, &format!("{name} is gone"), async || self.there(name).is_none().then_some(())).await;
    }
}

fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array();
    conditions.into_iter().flatten().any(|c| c["type"] == "Ready" && c["status"] == "True")
}

/// Two nodes at once would be one too many for the machine.
static ONE: Mutex<()> = Mutex::const_new(());

#[tokio::test]
async fn a_pod_of_the_api_server_runs_is_told_and_ends_as_it_is_asked_to() {
    let _one = ONE.lock().await;
    let mut bench = bench().await;
    bench.create(&pod("a", STAYS, json!({})));
    bench.create(&pod("done", "exit 0", json!({"restartPolicy": "Never"})));
    bench.create(&pod("failed", "exit 3", json!({"restartPolicy": "Never"})));
    bench.create(&pod("stubborn", STUBBORN, json!({"terminationGracePeriodSeconds": 600})));
    let first = bench.ready("a").await;
    assert_eq!(first["status"]["phase"], "Running");
    assert!(first["status"]["podIP"].is_string(), "{first:#}");
    let done = bench.until("done", "it succeeded", |pod| pod["status"]["phase"] == "Succeeded").await;
    assert_eq!(done["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"], 0);
    let failed = bench.until("failed", "it failed", |pod| pod["status"]["phase"] == "Failed").await;
    assert_eq!(failed["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"], 3);

    // Whoever dies restarts nothing and flips nothing.
    let since = |pod: &Value| pod["status"]["conditions"].clone();
    for process in ["syncd", "statusd", "apigate"] {
        let pid = bench.node.kill(process);
        bench.node.back(process, pid, BOUND).await;
    }
    let second = bench.ready("a").await;
    assert_eq!(since(&second), since(&first));
    assert_eq!(second["status"]["containerStatuses"], first["status"]["containerStatuses"]);
    let again = bench.there("done").unwrap();
    assert_eq!(again["status"]["phase"], "Succeeded");
    assert_eq!(again["status"]["containerStatuses"], done["status"]["containerStatuses"]);

    // Gracefully: final status, then gone.
    let begin = Instant::now();
    bench.cluster.ask("DELETE", &format!("{PODS}/a"), &Value::Null);
    bench.gone("a").await;
    assert!(begin.elapsed() < Duration::from_secs(30), "its process ended at once: {:?}", begin.elapsed());
    // Over already: nothing to wait for.
    bench.cluster.ask("DELETE", &format!("{PODS}/done"), &Value::Null);
    bench.gone("done").await;

    // A second delete shortens the first one's ten minutes.
    bench.ready("stubborn").await;
    bench.cluster.ask("DELETE", &format!("{PODS}/stubborn"), &Value::Null);
    let ending = bench.until("stubborn", "it is being deleted", |pod| pod["metadata"]["deletionTimestamp"].is_string());
    ending.await;
    bench.cluster.ask("DELETE", &format!("{PODS}/stubborn?gracePeriodSeconds=1"), &Value::Null);
    bench.gone("stubborn").await;

    // Forced: gone from the API server at once, and here soon after.
    bench.create(&pod("forced", STAYS, json!({})));
    bench.ready("forced").await;
    bench.cluster.ask("DELETE", &format!("{PODS}/forced?gracePeriodSeconds=0"), &Value::Null);
    bench.cluster.ask("DELETE", &format!("{PODS}/failed?gracePeriodSeconds=0"), &Value::Null);
    wait::within(BOUND, "nothing is left", async || bench.node.running().is_empty().then_some(())).await;

    // The same name again at once.
    bench.create(&pod("forced", STAYS, json!({})));
    bench.ready("forced").await;
    assert!(bench.node.down().await, "{}", bench.node.said());
}
