//! What happens on a node is told to its cluster, in the words that people and tools know from the kubelet.
#![cfg(test)]

use std::collections::BTreeMap;
use std::time::Duration;

use bulkhead_e2e::cluster::Cluster;
use bulkhead_e2e::real_node::RealNode;
use bulkhead_e2e::{pods, wait};
use serde_json::{Value, json};

const BOUND: Duration = Duration::from_secs(60);

/// Events by `KIND/NAME FIELDPATH REASON: MESSAGE`.
fn events(cluster: &Cluster) -> BTreeMap<String, Value> {
    let all = cluster.ask("GET", "/api/v1/events?limit=500", &Value::Null);
    let events = all["items"].as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let key = |event: &Value| {
        let object = &event["involvedObject"];
        let (kind, name, path) = (text(&object["kind"]), text(&object["name"]), text(&object["fieldPath"]));
        format!("{kind}/{name} {path} {}: {}", text(&event["reason"]), text(&event["message"]))
    };
    events.into_iter().map(|event| (key(&event), event)).collect()
}

async fn told(cluster: &Cluster, wanted: &[&str]) -> BTreeMap<String, Value> {
    for wanted in wanted {
        wait::within(BOUND, &format!("the event {wanted:?}"), async || {
            events(cluster).keys().any(|key| key.starts_with(wanted)).then_some(())
        })
        .await;
    }
    events(cluster)
}

fn crashing(name: &str) -> Value {
    let mut pod = pods::simple(name);
    pod["spec"]["containers"][0]["command"] = json!(["sh", "-c", "exit 1"]);
    pod
}

#[tokio::test]
async fn a_pods_life_and_the_nodes_are_told() {
    let cluster = Cluster::up();
    let mut node = RealNode::up_in(&cluster, &[]).await;
    let events = told(
        &cluster,
        &[
            "Node/node-a  Starting: Starting kubelet.",
            "Node/node-a  NodeHasSufficientMemory: Node node-a status is now: NodeHasSufficientMemory",
            "Node/node-a  NodeHasNoDiskPressure: Node node-a status is now: NodeHasNoDiskPressure",
            "Node/node-a  NodeHasSufficientPID: Node node-a status is now: NodeHasSufficientPID",
            "Node/node-a  NodeReady: Node node-a status is now: NodeReady",
        ],
    )
    .await;
    assert!(events.values().all(|event| event["metadata"]["namespace"] == "default"));

    node.put("good.yaml", &pods::simple("good"));
    node.put("crash.yaml", &crashing("crash"));
    let mut absent = pods::simple("absent");
    absent["spec"]["containers"][0]["image"] = json!("local/nothing:1");
    absent["spec"]["containers"][0]["imagePullPolicy"] = json!("Never");
    node.put("absent.yaml", &absent);
    let mut probed = pods::simple("probed");
    let probe = json!({ "exec": { "command": ["sh", "-c", "echo no; exit 1"] }, "periodSeconds": 1 });
    probed["spec"]["containers"][0]["readinessProbe"] = probe;
    node.put("probed.yaml", &probed);
    let present = "Pulled: Container image \"local/busybox:1\" already present on machine and can be accessed by the pod";
    let never = "Container image \"local/nothing:1\" is not present with pull policy of Never";
    let wanted = [
        &format!("Pod/good-node-a spec.containers{{c}} {present}"),
        "Pod/good-node-a spec.containers{c} Created: Container created",
        "Pod/good-node-a spec.containers{c} Started: Container started",
        "Pod/crash-node-a spec.containers{c} BackOff: Back-off restarting failed container c in pod crash-node-a_default(",
        &format!("Pod/absent-node-a spec.containers{{c}} ErrImageNeverPull: {never}"),
        "Pod/absent-node-a spec.containers{c} Failed: Error: ErrImageNeverPull",
        "Pod/probed-node-a spec.containers{c} Unhealthy: Readiness probe failed: no",
    ];
    let events = told(&cluster, &wanted).await;
    let created = &events["Pod/good-node-a spec.containers{c} Created: Container created"];
    let good = node.pods().remove("good").expect("the pod");
    assert_eq!(created["involvedObject"]["uid"], good.metadata.uid.expect("its UID").as_str());
    assert_eq!((&created["type"], &created["count"]), (&json!("Normal"), &json!(1)));
    assert_eq!(created["source"], json!({ "component": "kubelet", "host": "node-a" }));
    assert_eq!(created["reportingComponent"], "kubelet");

    // The same again counts, over the deaths of whoever tells it.
    let counted = async |reason: &str, least: i64| {
        wait::within(BOUND, reason, async || {
            let events = self::events(&cluster);
            let mut of = events.iter().filter(|(key, _)| key.contains(reason)).map(|(_, event)| event);
            of.any(|event| event["count"].as_i64() >= Some(least)).then_some(())
        })
        .await;
    };
    counted("Unhealthy: Readiness probe failed: no", 3).await;
    let pid = node.kill("statusd");
    node.back("statusd", pid, BOUND).await;

    node.take("good.yaml");
    told(&cluster, &["Pod/good-node-a spec.containers{c} Killing: Stopping container c"]).await;
    assert!(node.down().await, "{}", node.said());
}
