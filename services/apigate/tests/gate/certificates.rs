//! The first certificate by the bootstrap kubeconfig, and each next one in time.

use std::fs;
use std::time::Duration;

use bulkhead_base::{Clock, SystemClock};
use bulkhead_testkit::TestNode;
use bulkhead_testkit::apiserver::{FakeApiServer, Signer};
use http::StatusCode;

use crate::support::{Gate, eventually};

const NODE: &str = "GET /api/v1/nodes/node-a";
const CSRS: &str = "POST /apis/certificates.k8s.io/v1/certificatesigningrequests";
const DAY: Duration = Duration::from_secs(86_400);

/// A node that has a bootstrap kubeconfig alone.
async fn new_node(server: &FakeApiServer) -> TestNode {
    server.add_token("bootstrap", "system:bootstrap:abcdef");
    let mut node = TestNode::new().await;
    node.config.rotate_certificates = true;
    fs::write(node.dir().join("bootstrap"), server.kubeconfig_with("token: bootstrap")).unwrap();
    node
}

async fn start(node: TestNode) -> Gate {
    let (kubeconfig, bootstrap) = (node.dir().join("kubeconfig"), node.dir().join("bootstrap"));
    Gate::start_on(node, |flags| {
        flags.kubeconfig = Some(kubeconfig);
        flags.bootstrap_kubeconfig = Some(bootstrap);
    })
    .await
}

async fn until_node(gate: &Gate) {
    eventually("the node's own certificate", async || {
        (gate.ask("statusd", NODE).await.status == StatusCode::NOT_FOUND).then_some(())
    })
    .await;
}

fn users(server: &FakeApiServer, prefix: &str) -> Vec<String> {
    let arrived = server.arrived().into_iter().filter(|arrived| arrived.line.starts_with(prefix));
    arrived.map(|arrived| arrived.user).collect()
}

#[tokio::test]
async fn a_new_node_asks_for_its_certificate_and_waits_for_approval() {
    let server = FakeApiServer::start().await;
    let gate = start(new_node(&server).await).await;
    eventually("the request", async || (server.count(CSRS) == 1).then_some(())).await;
    assert_eq!(gate.ask("statusd", NODE).await.status, StatusCode::SERVICE_UNAVAILABLE);
    let check = gate.check("credential").await;
    assert!(check.reason.ends_with("yet: a certificate is asked for"), "{}", check.reason);
    // A restart asks for no second one.
    let (node, ended) = gate.stop().await;
    ended.unwrap();
    let gate = start(node).await;
    let before = server.count("GET /apis/certificates.k8s.io");
    eventually("a look", async || (server.count("GET /apis/certificates.k8s.io") > before).then_some(()))
        .await;
    server.set_signer(Signer::Signs(DAY));
    until_node(&gate).await;
    assert_eq!(users(&server, CSRS), ["system:bootstrap:abcdef"]);
    assert_eq!(users(&server, NODE).last().unwrap(), "system:node:node-a");
    gate.until_check("credential", true).await;
    let left = gate.metric("kubelet_certificate_manager_client_ttl_seconds", &[]).await;
    assert!((1000.0..=90_000.0).contains(&left), "{left}");
    // As the kubelet leaves it: the pair behind a link, and a kubeconfig that names it, without the bootstrap token.
    let folder = gate.node.root_dir().join("pki");
    let link = fs::read_link(folder.join("kubelet-client-current.pem")).unwrap();
    assert!(link.to_str().unwrap().starts_with("kubelet-client-2"), "{link:?}");
    assert!(!folder.join("kubelet-client.key.tmp").exists());
    let text = fs::read_to_string(gate.node.dir().join("kubeconfig")).unwrap();
    assert!(text.contains("kubelet-client-current.pem") && !text.contains("token"), "{text}");
    // The next life needs no bootstrap.
    let (node, _) = gate.stop().await;
    fs::remove_file(node.dir().join("bootstrap")).unwrap();
    let gate = start(node).await;
    until_node(&gate).await;
    assert_eq!(server.count(CSRS), 1);
}

#[tokio::test]
async fn certificates_are_renewed_again_and_again_before_they_are_over() {
    let server = FakeApiServer::start().await;
    // From an hour ago: nine tenths of their life are over at once, so that each one is renewed as soon as it is there.
    server.set_signer(Signer::Signs(Duration::from_secs(300)));
    let gate = start(new_node(&server).await).await;
    until_node(&gate).await;
    eventually("three more", async || (server.count(CSRS) >= 4).then_some(())).await;
    let users = users(&server, CSRS);
    assert_eq!(users[0], "system:bootstrap:abcdef");
    assert!(users[1..].iter().all(|user| user == "system:node:node-a"), "{users:?}");
    server.set_signer(Signer::Signs(30 * DAY));
    let before = eventually("one that is good for long", async || {
        let before = server.count(CSRS);
        tokio::time::sleep(Duration::from_secs(2)).await;
        (server.count(CSRS) == before).then_some(before)
    })
    .await;
    until_node(&gate).await;
    assert_eq!(server.count(CSRS), before);
    let names = fs::read_dir(gate.node.root_dir().join("pki")).unwrap().count();
    assert!(names <= 5, "{names} files are kept");
}

#[tokio::test]
async fn a_certificate_that_is_over_at_the_start_is_replaced_and_never_used() {
    let server = FakeApiServer::start().await;
    let node = new_node(&server).await;
    let now = SystemClock.now();
    let text = server.kubeconfig("system:node:node-a", now - 2 * DAY, now - DAY);
    fs::write(node.dir().join("kubeconfig"), &text).unwrap();
    let gate = start(node).await;
    eventually("the request", async || (server.count(CSRS) == 1).then_some(())).await;
    let check = gate.check("credential").await;
    assert!(check.reason.contains("over since"), "{}", check.reason);
    server.set_signer(Signer::Signs(DAY));
    until_node(&gate).await;
    assert_eq!(fs::read_to_string(gate.node.dir().join("kubeconfig")).unwrap(), text, "it is the operator's");
}

#[tokio::test]
async fn a_certificate_that_ends_while_nobody_signs_is_replaced_without_a_restart() {
    let server = FakeApiServer::start().await;
    server.set_signer(Signer::Signs(Duration::from_secs(12)));
    let gate = start(new_node(&server).await).await;
    until_node(&gate).await;
    server.set_signer(Signer::Away);
    let check = gate.until_check("credential", false).await;
    assert!(check.reason.contains("over since"), "{}", check.reason);
    server.set_signer(Signer::Signs(DAY));
    gate.until_check("credential", true).await;
    until_node(&gate).await;
}

#[tokio::test]
async fn a_refused_request_is_told_and_made_anew_with_another_key() {
    let server = FakeApiServer::start().await;
    server.set_signer(Signer::Denies);
    let gate = start(new_node(&server).await).await;
    eventually("two refusals", async || (server.count(CSRS) >= 2).then_some(())).await;
    assert!(gate.metric("kubelet_certificate_manager_client_expiration_renew_errors", &[]).await >= 1.0);
    server.set_signer(Signer::Signs(DAY));
    until_node(&gate).await;
}

#[tokio::test]
async fn a_half_written_pair_is_asked_for_anew() {
    let server = FakeApiServer::start().await;
    server.set_signer(Signer::Signs(DAY));
    let gate = start(new_node(&server).await).await;
    until_node(&gate).await;
    let (node, _) = gate.stop().await;
    let current = node.root_dir().join("pki/kubelet-client-current.pem");
    let text = fs::read(&current).unwrap();
    fs::write(&current, &text[..text.len() / 3]).unwrap();
    let gate = start(node).await;
    until_node(&gate).await;
    assert_eq!(server.count(CSRS), 2);
}
