//! End to end, on a real containerd: a node policy. What it forbids is refused with the reason where people look, everything
//! else runs, and another policy takes a restart of crigate alone.
#![cfg(test)]

use std::sync::Arc;

use bulkhead_api::crigate::v1::ListCallsRequest;
use bulkhead_api::crigate::v1::crigate_client::CrigateClient;
use bulkhead_base::SystemClock;
use bulkhead_e2e::real_node::RealNode;
use bulkhead_e2e::{pods, wait};
use bulkhead_ipc::{Channels, Identities, PeerBoard};
use serde_json::{Value, json};

const STRICT: &str = r#"
[rules]
privileged = false
hostNetwork = false
hostPID = false
capabilities = []
[rules.hostPaths]
allow = ["/usr/share"]
[[exception]]
namespace = "default"
namePrefix = "trusted-"
rules = { privileged = true }
"#;

fn with_context(name: &str, context: Value) -> Value {
    let mut pod = pods::simple(name);
    pod["spec"]["containers"][0]["securityContext"] = context;
    pod
}

fn with_path(name: &str, path: &str) -> Value {
    let mut pod = pods::simple(name);
    pod["spec"]["volumes"] = json!([{"name": "v", "hostPath": {"path": path}}]);
    pod["spec"]["containers"][0]["volumeMounts"] =
        json!([{"name": "v", "mountPath": "/v", "readOnly": true}]);
    pod
}

/// What a pod's container waits for: reason and message.
fn waits(node: &RealNode, pod: &str) -> Option<(String, String)> {
    let waiting = node.containers(pod).into_iter().next()?.state?.waiting?;
    Some((waiting.reason?, waiting.message?))
}

/// How many calls crigate refused syncd so far, by method.
async fn refused(node: &RealNode, method: &str) -> u64 {
    let identities = Arc::new(Identities::read(&node.state().join("identities.json")).unwrap());
    let channels =
        Channels::new(&node.state().join("run"), identities, PeerBoard::new(Arc::new(SystemClock)));
    let mut crigate = CrigateClient::new(channels.peer("crigate"));
    let calls = crigate.list_calls(ListCallsRequest {}).await.unwrap().into_inner().calls;
    let of = calls.into_iter().filter(|call| call.process == "syncd" && call.method.ends_with(method));
    of.map(|call| call.refused).sum()
}

#[tokio::test]
async fn what_the_policy_forbids_is_refused_and_everything_else_runs() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), STRICT).unwrap();
    // The kubelet's flags reach every process.
    let mut node = RealNode::up(&["--policy", &file.path().to_string_lossy(), "--max-pods=20", "-v=3"]).await;

    let forbidden = [
        ("privileged", with_context("privileged", json!({"privileged": true})), "rules.privileged"),
        (
            "capable",
            with_context("capable", json!({"capabilities": {"add": ["SYS_ADMIN"]}})),
            "rules.capabilities",
        ),
        (
            "network",
            pods::with_spec(pods::simple("network"), "hostNetwork", json!(true)),
            "rules.hostNetwork",
        ),
        ("pid", pods::with_spec(pods::simple("pid"), "hostPID", json!(true)), "rules.hostPID"),
        ("path", with_path("path", "/etc"), "rules.hostPaths"),
        ("dots", with_path("dots", "/usr/share/../../etc"), "rules.hostPaths"),
    ];
    let allowed = [
        ("simple", pods::simple("simple")),
        ("shared", with_path("shared", "/usr/share")),
        ("trusted-one", with_context("trusted-one", json!({"privileged": true}))),
    ];
    for (name, pod) in
        forbidden.iter().map(|(name, pod, _)| (name, pod)).chain(allowed.iter().map(|(n, p)| (n, p)))
    {
        node.put(&format!("{name}.yaml"), pod);
    }
    for (name, _) in &allowed {
        node.ready(name).await;
    }
    for (name, _, rule) in &forbidden {
        let why = wait::until(&format!("{name} is refused: {}", node.said()), async || {
            let waits = waits(&node, name);
            let refused = node.refused().get(&format!("{name}.yaml")).cloned();
            waits.map(|(_, message)| message).filter(|text| text.contains("policy")).or(refused)
        })
        .await;
        // `..` in a path is refused by the manifest's own rules, before any policy.
        assert!(why.contains(rule) || *name == "dots", "{name}: {why}");
        assert!(!node.running().contains_key(&format!("{name}/c")), "{name} never ran");
    }
    let shown = node.text(&["get", "pods", "-o", "json"]).unwrap();
    assert!(shown.contains("rules.privileged"), "the reason is where people look: {shown}");
    assert!(refused(&node, "CreateContainer").await >= 3);
    assert!(refused(&node, "RunPodSandbox").await >= 2);

    // Another policy: crigate alone is restarted, and what runs is not touched.
    let (running, before) = (node.running(), node.processes());
    std::fs::write(node.state().join("policy.toml"), "[rules]\nprivileged = true\n").unwrap();
    let pid = node.kill("crigate");
    node.back("crigate", pid, wait::BOUND).await;
    for name in ["privileged", "capable", "path"] {
        wait::within(wait::BOUND * 3, &format!("{name} runs now: {}", node.said()), async || {
            node.running().contains_key(&format!("{name}/c")).then_some(())
        })
        .await;
    }
    let after = node.running();
    for (container, id) in &running {
        assert_eq!(after.get(container), Some(id), "{container} was touched");
    }
    for (name, (pid, _)) in node.processes() {
        assert_eq!(pid == before[&name].0, name != "crigate", "{name}");
    }
    assert!(node.down().await, "{}", node.said());
}

/// A file that is no policy starts nothing.
#[test]
fn a_broken_policy_refuses_the_start() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("policy.toml");
    std::fs::write(&file, "[rules]\nprivilegedd = false\n").unwrap();
    let output = std::process::Command::new(bulkhead_e2e::real_node::binary())
        .args(["up", "--state"])
        .arg(dir.path().join("state"))
        .arg("--peers")
        .arg(bulkhead_e2e::real_node::peers())
        .arg("--policy")
        .arg(&file)
        .output()
        .unwrap();
    assert!(!output.status.success());
    let said =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("line 2") && said.contains("privilegedd"), "{said}");
}
