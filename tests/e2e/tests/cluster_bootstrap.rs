//! A node that begins with nothing but a bootstrap token: from there to pods that run, and on with certificates that are good
//! for minutes.
#![cfg(test)]

use std::collections::BTreeSet;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use bulkhead_e2e::cluster::Cluster;
use bulkhead_e2e::real_node::RealNode;
use bulkhead_e2e::{pods, wait};
use serde_json::{Value, json};

const PODS: &str = "/api/v1/namespaces/default/pods";
const BOUND: Duration = Duration::from_secs(90);

fn certificates(node: &RealNode) -> (PathBuf, Option<PathBuf>) {
    let current = node.state().join("root/pki/kubelet-client-current.pem");
    let target = std::fs::read_link(&current).ok();
    (current, target)
}

fn ready(cluster: &Cluster, path: &str) -> bool {
    let object = cluster.ask("GET", path, &Value::Null);
    let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    conditions.iter().any(|c| c["type"] == "Ready" && c["status"] == "True")
}

#[tokio::test]
async fn a_bootstrap_token_leads_to_running_pods_and_certificates_follow_each_other() {
    let cluster = Cluster::signing_for("3m");
    let bootstrap = cluster.bootstrap_kubeconfig();
    // Static pods wait for nobody.
    cluster.stop("kube-apiserver");
    let bootstrap = bootstrap.to_string_lossy();
    let flags = ["--bootstrap-kubeconfig", &bootstrap, "--rotate-certificates"];
    let mut node = RealNode::joined(&cluster, &flags).await;
    node.put("static.yaml", &pods::simple("static"));
    node.ready("static").await;
    assert_eq!(certificates(&node).1, None, "nobody was there to sign one");

    cluster.start("kube-apiserver");
    wait::within(BOUND, "the node is ready", async || {
        let nodes = cluster.ask("GET", "/api/v1/nodes", &Value::Null);
        let named = nodes["items"].as_array()?.iter().any(|node| node["metadata"]["name"] == "node-a");
        (named && ready(&cluster, "/api/v1/nodes/node-a")).then_some(())
    })
    .await;
    // The scheduler finds the node.
    let mut pod = pods::simple("a");
    pod["metadata"]["namespace"] = json!("default");
    cluster.ask("POST", PODS, &pod);
    wait::within(BOUND, "its pod is ready", async || ready(&cluster, &format!("{PODS}/a")).then_some(()))
        .await;
    let before = node.running();

    let mut seen = BTreeSet::new();
    // One that has expired is no rotation.
    let is_good = |pem: &str| {
        let mut openssl = Command::new("openssl");
        let mut child = openssl
            .args(["x509", "-noout", "-checkend", "0"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(pem.as_bytes()).unwrap();
        child.wait().unwrap().success()
    };
    wait::within(Duration::from_secs(400), "a third certificate", async || {
        let (current, target) = certificates(&node);
        seen.extend(target);
        let pem = std::fs::read_to_string(current).ok()?;
        assert!(
            pem.contains("END CERTIFICATE") && is_good(&pem),
            "always a whole one, and never one that is over"
        );
        (seen.len() >= 3).then_some(())
    })
    .await;
    // With the newest one the node goes on as before.
    let since = cluster.ask(
        "GET",
        "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/node-a",
        &Value::Null,
    )["spec"]["renewTime"]
        .clone();
    wait::within(BOUND, "the lease is renewed", async || {
        let lease = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/node-a";
        (cluster.ask("GET", lease, &Value::Null)["spec"]["renewTime"] != since).then_some(())
    })
    .await;
    assert_eq!(node.running(), before, "nothing was restarted");
    cluster.ask("DELETE", &format!("{PODS}/a"), &Value::Null);
    wait::within(BOUND, "the pod is gone", async || {
        let pods = cluster.ask("GET", PODS, &Value::Null);
        pods["items"].as_array()?.iter().all(|pod| pod["metadata"]["name"] != "a").then_some(())
    })
    .await;
    assert!(node.down().await, "{}", node.said());
}
