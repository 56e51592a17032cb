//! What happens on a node is told to its cluster, in the words that people and tools know from the kubelet.
#![cfg(test)]

use std::collections::BTreeMap;
use std::time::Duration;

use bulkhead_e2e::cluster::Cluster;
use bulkhead_e2e::real_node::RealNode;
use bulkhead_e2e::{pods, wait};
use serde_json::{Value, json};
use tokio::sync::Mutex;

const BOUND: Duration = Duration::from_secs(60);

/// Two nodes at once would be one too many for the machine.
static ONE: Mutex<()> = Mutex::const_new(());

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

/// Texts that differ from the kubelet's, by pod and reason, and why they stand.
const TEXTS: [(&str, &str, &str); 9] = [
    ("badname", "InspectFailed", "it says how a name is written"),
    ("big", "OutOfcpu", "it says how much is asked for and how much there is in the pod's own units"),
    ("live", "Unhealthy", "a newline at the end is left out"),
    ("noenv", "Failed", "it names the variable"),
    ("nonroot", "Failed", "it says what to set"),
    ("port2", "NodePorts", "it names the port and who has it"),
    ("ready", "Unhealthy", "the error is Rust's"),
    ("startup", "Unhealthy", "it does not repeat the command, which may hold a secret"),
    ("sysctl", "SysctlForbidden", "it says how to allow one"),
];

/// Events that only one of the two tells, by pod and reason, and why.
const ONE_SIDED: [(&str, &str, &str); 4] = [
    ("aff", "NodeAffinity", AFFINITY),
    ("aff", "Pulled", AFFINITY),
    ("aff", "Created", AFFINITY),
    ("aff", "Started", AFFINITY),
];
const AFFINITY: &str =
    "labels of the node object are not read yet: a pod of the API server was placed by who knows them";

/// Pod, part, type, reason; and the text without what differs from run to run.
type Told = BTreeMap<(String, String, String, String), String>;

fn theirs() -> Told {
    let lines = include_str!("../fixtures/kubelet-events.tsv").lines().filter(|line| !line.starts_with('#'));
    let told = lines.map(|line| {
        let mut parts = line.split('\t').map(str::to_owned);
        let mut next = || parts.next().expect("five parts");
        ((next(), next(), next(), next()), next())
    });
    told.collect()
}

fn ours(cluster: &Cluster) -> Told {
    let of_pods = events(cluster).into_values().filter(|event| event["source"]["component"] == "kubelet");
    let told = of_pods.filter(|event| event["involvedObject"]["kind"] == "Pod").map(|event| {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let object = &event["involvedObject"];
        let (pod, uid) = (text(&object["name"]), text(&object["uid"]));
        let message = text(&event["message"]).replace(&uid, "UID").replace("local/busybox:1", "IMAGE");
        let part = text(&object["fieldPath"]);
        ((pod, part, text(&event["type"]), text(&event["reason"])), message.replace('\n', "\\n"))
    });
    // A node without clusterDNS says so of every pod, as the kubelet does.
    told.filter(|((.., reason), _)| reason != "MissingClusterDNS").collect()
}

#[tokio::test]
async fn events_are_the_kubelets_but_for_what_is_listed() {
    let _one = ONE.lock().await;
    let cluster = Cluster::whole();
    let mut node = RealNode::up_within(&cluster, &[]).await;
    let pods: Vec<Value> =
        serde_json::from_str(include_str!("../fixtures/kubelet-events-pods.json")).expect("pods");
    for pod in &pods {
        cluster.ask("POST", "/api/v1/namespaces/default/pods", pod);
    }
    let listed = |list: &[(&str, &str, &str)], key: &(String, String, String, String)| {
        list.iter().any(|(pod, reason, _)| (*pod, *reason) == (&*key.0, &*key.3))
    };
    let theirs = theirs();
    let mut deleted = false;
    let mut lacking = Vec::new();
    // What does not come is a difference like any other.
    let all = wait::until_or(Duration::from_secs(90), async || {
        let ours = ours(&cluster);
        let started = |pod: &str| ours.keys().any(|key| key.0 == pod && key.3 == "Started");
        if !deleted && started("plain") && started("prehook") {
            for pod in ["plain", "prehook"] {
                cluster.ask("DELETE", &format!("/api/v1/namespaces/default/pods/{pod}"), &Value::Null);
            }
            deleted = true;
        }
        lacking = theirs.keys().filter(|key| !ours.contains_key(*key) && !listed(&ONE_SIDED, key)).collect();
        lacking.is_empty().then_some(())
    });
    all.await;
    let mut different: Vec<_> =
        lacking.iter().map(|key| format!("only theirs: {key:?}: {}", theirs[*key])).collect();
    for (key, message) in ours(&cluster).into_iter().filter(|(key, _)| key.0 != "port") {
        match theirs.get(&key) {
            None if !listed(&ONE_SIDED, &key) => different.push(format!("only ours: {key:?}: {message}")),
            Some(their) if *their != message && !listed(&TEXTS, &key) => {
                different.push(format!("{key:?}:\n  theirs {their}\n  ours   {message}"));
            }
            _ => {}
        }
    }
    assert!(different.is_empty(), "{}", different.join("\n"));
    assert!(node.down().await, "{}", node.said());
}

fn crashing(name: &str) -> Value {
    let mut pod = pods::simple(name);
    pod["spec"]["containers"][0]["command"] = json!(["sh", "-c", "exit 1"]);
    pod
}

#[tokio::test]
async fn a_pods_life_and_the_nodes_are_told() {
    let _one = ONE.lock().await;
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
