//! Who may ask what: every process tries, against the fake API server.

use bulkhead_testkit::TestNode;
use bulkhead_testkit::apiserver::FakeApiServer;
use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::Full;
use serde_json::{Value, json};

use crate::support::Gate;

const PROCESSES: [&str; 5] = ["gateway", "imaged", "statusd", "syncd", "volumed"];

/// What is asked, and who may.
const TABLE: &[(&str, &[&str])] = &[
    ("GET /api/v1/pods?fieldSelector=spec.nodeName%3Dnode-a&watch=false", &["syncd"]),
    ("GET /api/v1/pods?fieldSelector=spec.nodeName%3Dnode-b", &[]),
    ("GET /api/v1/pods", &[]),
    ("GET /api/v1/namespaces/d/pods/p", &["statusd", "syncd"]),
    ("POST /api/v1/namespaces/d/pods", &["statusd"]),
    ("DELETE /api/v1/namespaces/d/pods/p", &["statusd"]),
    ("DELETE /api/v1/namespaces/d/pods", &[]),
    ("PATCH /api/v1/namespaces/d/pods/p/status", &["statusd"]),
    ("PATCH /api/v1/namespaces/d/pods/p", &[]),
    ("POST /api/v1/namespaces/d/pods/p/eviction", &[]),
    ("POST /api/v1/namespaces/d/pods/p/exec", &[]),
    ("GET /api/v1/namespaces/d/pods/p/log", &[]),
    ("POST /api/v1/namespaces/d/pods/p/binding", &[]),
    ("GET /api/v1/nodes/node-a", &["statusd", "syncd"]),
    ("GET /api/v1/nodes/node-b", &[]),
    ("GET /api/v1/nodes", &[]),
    ("GET /api/v1/nodes?fieldSelector=metadata.name%3Dnode-a", &["syncd"]),
    ("PATCH /api/v1/nodes/node-a/status", &["statusd"]),
    ("PATCH /api/v1/nodes/node-b/status", &[]),
    ("PATCH /api/v1/nodes/node-a", &["statusd"]),
    ("DELETE /api/v1/nodes/node-a", &[]),
    ("GET /api/v1/nodes/node-a/proxy/pods", &[]),
    ("PUT /apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/node-a", &["statusd"]),
    ("PUT /apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/node-b", &[]),
    ("PUT /apis/coordination.k8s.io/v1/namespaces/kube-system/leases/node-a", &[]),
    ("GET /api/v1/namespaces/d/secrets/s", &["imaged", "syncd", "volumed"]),
    ("GET /api/v1/namespaces/d/secrets?fieldSelector=metadata.name%3Ds", &["volumed"]),
    ("GET /api/v1/namespaces/d/secrets", &[]),
    ("GET /api/v1/secrets", &[]),
    ("PUT /api/v1/namespaces/d/secrets/s", &[]),
    ("POST /api/v1/namespaces/d/serviceaccounts/a/token", &["imaged", "volumed"]),
    ("POST /api/v1/namespaces/d/events", &["statusd"]),
    ("POST /apis/authentication.k8s.io/v1/tokenreviews", &["gateway"]),
    ("POST /apis/authorization.k8s.io/v1/subjectaccessreviews", &["gateway"]),
    ("POST /apis/certificates.k8s.io/v1/certificatesigningrequests", &[]),
    ("GET /apis/certificates.k8s.io/v1/certificatesigningrequests/node-csr-x", &[]),
    ("GET /api/v1/services", &["syncd"]),
    ("GET /apis/rbac.authorization.k8s.io/v1/clusterroles", &[]),
    ("GET /api", &[]),
    ("GET /version", &[]),
    ("GET /api/v1/namespaces/d/pods/p/../../secrets/s", &[]),
    ("GET /api//v1/namespaces/d/pods/p", &[]),
    ("GET /api/v1/namespaces/d/pods/p%2flog", &[]),
];

#[tokio::test]
async fn each_process_may_ask_for_its_own_and_nothing_else() {
    let server = FakeApiServer::start().await;
    let gate = Gate::start(&server).await;
    for process in PROCESSES {
        let mut client = gate.raw(process).await;
        for (line, allowed) in TABLE {
            let before = server.arrived().len();
            let body = if line.starts_with("GET") { Value::Null } else { json!({"kind": "X"}) };
            let answer = client.ask(line, &body).await;
            // The gate itself asks whether it is there now and then.
            let arrived: Vec<_> = server.arrived()[before..].to_vec();
            let arrived: Vec<_> = arrived.iter().filter(|a| !a.line.ends_with("/readyz")).collect();
            if allowed.contains(&process) {
                assert_ne!(answer.status, StatusCode::FORBIDDEN, "{process} {line}: {}", answer.message());
                assert_eq!(arrived.len(), 1, "{process} {line}");
                assert_eq!(arrived[0].user, "system:node:node-a");
                let method = line.split(' ').next().unwrap();
                assert!(arrived[0].line.starts_with(method), "{process} {line}: {}", arrived[0].line);
            } else {
                assert_eq!(answer.status, StatusCode::FORBIDDEN, "{process} {line}");
                assert!(answer.message().contains(&format!("`{process}` may ")), "{}", answer.message());
                assert_eq!(answer.json()["reason"], "Forbidden");
                assert!(arrived.is_empty(), "{process} {line}: {arrived:?}");
            }
        }
    }
    let refused = gate.metric("bulkhead_apigate_refused_requests_total", &["gateway"]).await;
    assert!(refused > 30.0, "{refused}");
    for process in ["apigate", "pleg", "prober", "crigate", "evictd"] {
        assert!(!gate.socket(process).exists(), "{process} has no API socket");
    }
}

#[tokio::test]
async fn refusals_say_what_would_be_allowed() {
    let server = FakeApiServer::start().await;
    let gate = Gate::start(&server).await;
    let answer = gate.ask("syncd", "GET /api/v1/pods?watch=1").await;
    let expected = "`syncd` may watch core/pods only where spec.nodeName=node-a: proto/access.toml says so";
    assert_eq!(answer.message(), expected);
    assert_eq!(answer.json()["details"], json!({"kind": "pods"}));
    let answer = gate.ask("gateway", "PATCH /api/v1/nodes/node-a/status").await;
    let expected = "`gateway` may not patch core/nodes/status: proto/access.toml does not list it";
    assert_eq!(answer.message(), expected);
    assert_eq!(answer.json()["details"], json!({"kind": "nodes", "name": "node-a"}));
    // Another way to write it, and HTTP/1.1.
    let answer = gate.ask_http1("gateway", "HEAD /api/v1/nodes/node-a").await;
    assert_eq!(answer.status, StatusCode::FORBIDDEN);
    let answer = gate.ask_http1("syncd", "GET /api/v1/nodes/node-a").await;
    assert_eq!(answer.status, StatusCode::NOT_FOUND, "it arrived");
}

#[tokio::test]
async fn only_the_process_itself_may_use_its_socket() {
    let server = FakeApiServer::start().await;
    let node = TestNode::new().await;
    let kubeconfig = server.write_kubeconfig(node.dir());
    let mut identities = node.identities();
    let own = identities.uid_of("apigate").unwrap();
    for (at, (name, identity)) in (own + 1..).zip(&mut identities.process) {
        if name != "syncd" && name != "apigate" {
            identity.uid = at;
        }
    }
    let gate = Gate::start_with(node, identities, |flags| flags.kubeconfig = Some(kubeconfig)).await;
    let answer = gate.ask("statusd", "GET /api/v1/nodes/node-a").await;
    assert_eq!(answer.status, StatusCode::FORBIDDEN);
    let message = answer.message();
    assert!(
        message.contains("may not use the API socket of `statusd`: only that process itself may"),
        "{message}"
    );
    assert_eq!(gate.ask("syncd", "GET /api/v1/nodes/node-a").await.status, StatusCode::NOT_FOUND);
    assert_eq!(server.count("GET /api"), 1);
}

#[tokio::test]
async fn nobody_can_say_who_else_he_is() {
    let server = FakeApiServer::start().await;
    let gate = Gate::start(&server).await;
    let mut client = gate.raw("syncd").await;
    let mut request = Request::builder().uri("http://apigate/api/v1/nodes/node-a");
    for (name, value) in [
        ("authorization", "Bearer x"),
        ("impersonate-user", "admin"),
        ("impersonate-group", "system:masters"),
        ("x-remote-user", "admin"),
        ("cookie", "a=b"),
        ("accept", "application/json"),
        ("user-agent", "test/1"),
        ("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
    ] {
        request = request.header(name, value);
    }
    client.request(request.body(Full::<Bytes>::default()).unwrap()).await;
    let arrived = server.arrived().into_iter().find(|a| a.line.contains("nodes")).unwrap();
    let mut names: Vec<_> = arrived.headers.keys().map(|name| name.as_str().to_owned()).collect();
    names.sort_unstable();
    assert_eq!(names, ["accept", "traceparent", "user-agent"]);
    assert!(arrived.headers["user-agent"].to_str().unwrap().ends_with(" syncd test/1"));
}

#[tokio::test]
async fn bodies_that_are_too_large_stop_at_the_gate() {
    let server = FakeApiServer::start().await;
    let gate = Gate::start(&server).await;
    let mut client = gate.raw("statusd").await;
    let large = json!({"a": "x".repeat(5 * 1024 * 1024)});
    let answer = client.ask("POST /api/v1/nodes", &large).await;
    assert_eq!(answer.status, StatusCode::PAYLOAD_TOO_LARGE);
    assert_eq!(answer.json()["reason"], "RequestEntityTooLarge");
    let fits = json!({"metadata": {"name": "node-a"}, "a": "x".repeat(3 * 1024 * 1024)});
    assert_eq!(client.ask("POST /api/v1/nodes", &fits).await.status, StatusCode::CREATED);
    assert_eq!(server.count("POST /api/v1/nodes"), 1);
}
