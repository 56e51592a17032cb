//! Pods that the API server gives a node: they run, are told of, outlive what dies around them, and end as they are asked to.
#![cfg(test)]

use std::collections::BTreeMap;
use std::time::Duration;

use bulkhead_e2e::cluster::Cluster;
use bulkhead_e2e::real_node::RealNode;
use bulkhead_e2e::{pods, wait};
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use tokio::sync::Mutex;
use tokio::time::Instant;

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
        wait::within(BOUND, &format!("{name} is gone"), async || self.there(name).is_none().then_some(()))
            .await;
    }
}

fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array();
    conditions.into_iter().flatten().any(|c| c["type"] == "Ready" && c["status"] == "True")
}

/// What the API server shows of a pod is what the node itself does.
fn agrees(there: &Value, here: &Pod) -> bool {
    let here = serde_json::to_value(&here.status).unwrap();
    let states = |status: &Value| {
        let all = status["containerStatuses"].as_array().cloned().unwrap_or_default();
        let one = |c: &Value| (c["containerID"].clone(), c["restartCount"].clone(), c["ready"].clone());
        all.iter().map(one).collect::<Vec<_>>()
    };
    there["status"]["phase"] == here["phase"]
        && is_ready(there) == is_ready(&json!({"status": here}))
        && states(&there["status"]) == states(&here)
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
    let ending = bench
        .until("stubborn", "it is being deleted", |pod| pod["metadata"]["deletionTimestamp"].is_string());
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

/// How long the API server is away. For a show of its own it may be set to more.
fn outage() -> Duration {
    let seconds = std::env::var("BULKHEAD_OUTAGE_SECONDS").ok().and_then(|text| text.parse().ok());
    Duration::from_secs(seconds.unwrap_or(45))
}

#[tokio::test]
async fn an_api_server_that_is_away_harms_nothing_and_is_told_everything_when_it_is_back() {
    let _one = ONE.lock().await;
    let mut bench = bench().await;
    bench.node.put("static.yaml", &pods::simple("static"));
    let stays: Vec<String> = (0..8).map(|number| format!("stays-{number}")).collect();
    for name in &stays {
        bench.create(&pod(name, STAYS, json!({})));
    }
    // Ready until its file goes, which it removes itself after a while.
    let mut flips = pod(
        "flips",
        "touch /tmp/ok; sleep 30; rm /tmp/ok; trap 'exit 0' TERM; sleep 100000 & wait",
        json!({}),
    );
    flips["spec"]["containers"][0]["readinessProbe"] =
        json!({"exec": {"command": ["test", "-e", "/tmp/ok"]}, "periodSeconds": 1, "failureThreshold": 1});
    bench.create(&flips);
    bench.create(&pod("crashes", "sleep 8; exit 1", json!({})));
    for name in stays.iter().map(String::as_str).chain(["flips"]) {
        bench.ready(name).await;
    }
    bench.node.ready("static").await;
    bench.until("crashes", "it runs", |pod| pod["status"]["phase"] == "Running").await;
    let before = bench.node.running();
    let kept = |running: &BTreeMap<String, String>| -> BTreeMap<String, String> {
        let stays = |name: &String| {
            name.starts_with("stays-") || name.starts_with("static") || name.starts_with("flips")
        };
        running.iter().filter(|(name, _)| stays(name)).map(|(name, id)| (name.clone(), id.clone())).collect()
    };
    assert_eq!(kept(&before).len(), stays.len() + 2);

    bench.cluster.stop("kube-apiserver");
    let begin = Instant::now();
    let restarts =
        |node: &RealNode| node.containers("crashes").first().map_or(0, |status| status.restart_count);
    let at_first = restarts(&bench.node);
    let probed = async || bench.node.containers("flips").first().is_some_and(|c| !c.ready).then_some(());
    wait::within(BOUND, "probes go on", probed).await;
    wait::within(BOUND, "restarts go on", async || (restarts(&bench.node) > at_first).then_some(())).await;
    // A life that begins without the API server knows its pods, too.
    for process in ["syncd", "statusd", "prober", "pleg", "apigate"] {
        bench.node.kill(process);
    }
    wait::within(BOUND, "pods are known again", async || {
        (bench.node.pods().len() >= stays.len() + 3).then_some(())
    })
    .await;
    bench.node.put("another.yaml", &pods::simple("another"));
    bench.node.ready("another").await;
    tokio::time::sleep(outage().saturating_sub(begin.elapsed())).await;
    assert_eq!(kept(&bench.node.running()), kept(&before), "nothing was touched");

    bench.cluster.start("kube-apiserver");
    wait::within(Duration::from_secs(15), "every status is right", async || {
        let here = bench.node.pods();
        let mut all = stays.iter().map(String::as_str).chain(["flips", "crashes"]);
        all.all(|name| {
            let there = bench.there(name);
            there.zip(here.get(name)).is_some_and(|(there, here)| agrees(&there, here))
        })
        .then_some(())
    })
    .await;
    assert_eq!(kept(&bench.node.running()), kept(&before), "nothing was touched afterwards");
    assert!(bench.node.down().await, "{}", bench.node.said());
}

#[tokio::test]
async fn whoever_is_killed_while_pods_come_and_go_the_node_stays_ready() {
    let _one = ONE.lock().await;
    let mut bench = bench().await;
    for name in ["stays-0", "stays-1"] {
        bench.create(&pod(name, STAYS, json!({})));
    }
    let mut stay = Vec::new();
    for name in ["stays-0", "stays-1"] {
        stay.push(bench.ready(name).await["status"].clone());
    }
    let node = |bench: &Bench| -> Value {
        let node = bench.cluster.ask("GET", "/api/v1/nodes/node-a", &Value::Null);
        let conditions = node["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.into_iter().find(|condition| condition["type"] == "Ready").unwrap_or_default()
    };
    let since = wait::within(BOUND, "the node is ready", async || {
        let ready = node(&bench);
        (ready["status"] == "True").then(|| ready["lastTransitionTime"].clone())
    })
    .await;
    let processes: Vec<String> = bench.node.processes().into_keys().collect();
    assert!(processes.len() >= 10, "{processes:?}");
    for (number, process) in processes.iter().enumerate() {
        let comes = format!("comes-{number}");
        bench.create(&pod(&comes, STAYS, json!({"terminationGracePeriodSeconds": 2})));
        let pid = bench.node.kill(process);
        if let Some(before) = number.checked_sub(1) {
            bench.cluster.ask("DELETE", &format!("{PODS}/comes-{before}"), &Value::Null);
        }
        bench.node.back(process, pid, BOUND).await;
        bench.ready(&comes).await;
        if let Some(before) = number.checked_sub(1) {
            bench.gone(&format!("comes-{before}")).await;
        }
        let ready = node(&bench);
        assert_eq!(
            (&ready["status"], &ready["lastTransitionTime"]),
            (&json!("True"), &since),
            "after {process}"
        );
    }
    for (name, before) in ["stays-0", "stays-1"].into_iter().zip(&stay) {
        let now = bench.ready(name).await["status"].clone();
        assert_eq!(now["conditions"], before["conditions"], "{name}");
        assert_eq!(now["containerStatuses"], before["containerStatuses"], "{name}");
    }
    assert!(bench.node.down().await, "{}", bench.node.said());
}
