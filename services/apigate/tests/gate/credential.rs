//! Credentials that come, change and go under a running gate.

use std::time::Duration;

use bulkhead_base::{Clock, SystemClock};
use bulkhead_testkit::TestNode;
use bulkhead_testkit::apiserver::FakeApiServer;
use http::StatusCode;
use serde_json::Value;

use crate::support::{Gate, eventually};

const NODE: &str = "GET /api/v1/nodes/node-a";
const DAY: Duration = Duration::from_secs(86_400);

/// The user of the newest request that is no question of the gate itself.
fn last_user(server: &FakeApiServer) -> String {
    let arrived = server.arrived().into_iter().rfind(|arrived| arrived.line.starts_with(NODE));
    arrived.map(|arrived| arrived.user).unwrap_or_default()
}

async fn until_user(gate: &Gate, server: &FakeApiServer, user: &str) {
    eventually(user, async || {
        gate.ask("statusd", NODE).await;
        (last_user(server) == user).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_kubeconfig_that_comes_later_is_taken_and_one_that_changes_too() {
    let server = FakeApiServer::start().await;
    let node = TestNode::new().await;
    let path = node.dir().join("kubeconfig");
    let gate = Gate::start_on(node, |flags| flags.kubeconfig = Some(path.clone())).await;
    let answer = gate.ask("statusd", NODE).await;
    assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(
        answer.message().starts_with("this node has no credential for the API server: "),
        "{}",
        answer.message()
    );
    let check = gate.until_check("credential", false).await;
    assert!(check.reason.contains("kubeconfig"), "{}", check.reason);
    let now = SystemClock.now();
    std::fs::write(&path, server.kubeconfig("first", now - DAY, now + DAY)).unwrap();
    until_user(&gate, &server, "first").await;
    gate.until_check("credential", true).await;
    // A broken one changes nothing ...
    std::fs::write(&path, "{").unwrap();
    gate.until_check("credential", false).await;
    gate.ask("statusd", NODE).await;
    assert_eq!(last_user(&server), "first");
    // ... and a watch on the old connection goes on when there is a new one.
    let mut client = gate.raw("syncd").await;
    let line = "GET /api/v1/pods?fieldSelector=spec.nodeName%3Dnode-a&watch=true";
    let watch = client.send(line, &Value::Null).await.unwrap().into_body();
    std::fs::write(&path, server.kubeconfig("second", now - DAY, now + DAY)).unwrap();
    until_user(&gate, &server, "second").await;
    let pod = serde_json::json!({"kind": "Pod", "spec": {"nodeName": "node-a"}});
    server.put("/api/v1/namespaces/d/pods/p", pod);
    let mut watch = watch;
    let frame = http_body_util::BodyExt::frame(&mut watch).await.unwrap().unwrap();
    assert!(String::from_utf8_lossy(frame.data_ref().unwrap()).contains("ADDED"));
}

#[tokio::test]
async fn a_certificate_that_others_renew_is_read_again() {
    let server = FakeApiServer::start().await;
    let node = TestNode::new().await;
    let now = SystemClock.now();
    let folder = node.dir().to_owned();
    let renew = |user: &str| {
        let pem = server.authority().client(user, "system:nodes", now - DAY, now + DAY);
        std::fs::write(folder.join("new.pem"), format!("{}{}", pem.certificate, pem.key)).unwrap();
        std::fs::rename(folder.join("new.pem"), folder.join("client.pem")).unwrap();
    };
    renew("one");
    let path = folder.join("kubeconfig");
    std::fs::write(&path, server.kubeconfig_with("client-certificate: client.pem, client-key: client.pem"))
        .unwrap();
    let gate = Gate::start_on(node, |flags| flags.kubeconfig = Some(path)).await;
    until_user(&gate, &server, "one").await;
    renew("two");
    until_user(&gate, &server, "two").await;
}

#[tokio::test]
async fn tokens_are_sent_and_their_files_read_again() {
    let server = FakeApiServer::start().await;
    server.add_token("t1", "one");
    server.add_token("t2", "two");
    let node = TestNode::new().await;
    let token = node.dir().join("token");
    std::fs::write(&token, "t1\n").unwrap();
    let path = node.dir().join("kubeconfig");
    std::fs::write(&path, server.kubeconfig_with("tokenFile: token")).unwrap();
    let gate = Gate::start_on(node, |flags| flags.kubeconfig = Some(path)).await;
    until_user(&gate, &server, "one").await;
    std::fs::write(&token, "t2-").unwrap();
    std::fs::write(&token, "t2").unwrap();
    until_user(&gate, &server, "two").await;
    std::fs::write(&token, "nobody").unwrap();
    let check = eventually("the refusal", async || {
        gate.ask("statusd", NODE).await;
        Some(gate.check("apiserver").await).filter(|check| !check.ok)
    })
    .await;
    assert!(check.reason.contains("401"), "{}", check.reason);
}

#[tokio::test]
async fn an_api_server_that_is_somebody_else_gets_nothing() {
    let (server, other) = (FakeApiServer::start().await, FakeApiServer::start().await);
    let node = TestNode::new().await;
    let now = SystemClock.now();
    // The address of one, the authority of the other.
    let text = server.kubeconfig("n", now - DAY, now + DAY).replace(&server.url(), &other.url());
    let path = node.dir().join("kubeconfig");
    std::fs::write(&path, text).unwrap();
    let gate = Gate::start_on(node, |flags| flags.kubeconfig = Some(path)).await;
    let check = eventually("the reason", async || {
        Some(gate.check("apiserver").await).filter(|check| check.reason.contains("no TLS connection"))
    })
    .await;
    assert!(!check.ok);
    let answer = gate.ask("statusd", NODE).await;
    assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(other.arrived().is_empty() && server.arrived().is_empty());
}
