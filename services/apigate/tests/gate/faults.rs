//! An API server that is away, dies, hangs or talks nonsense; and a gate that stops.

use std::time::Duration;

use bulkhead_testkit::TestNode;
use bulkhead_testkit::apiserver::FakeApiServer;
use http::StatusCode;
use http_body_util::BodyExt;
use serde_json::{Value, json};

use crate::support::{BOUND, Gate, eventually};

const NODE: &str = "/api/v1/nodes/node-a";
const WATCH: &str = "GET /api/v1/pods?fieldSelector=spec.nodeName%3Dnode-a&watch=true&resourceVersion=0";

fn pod(node: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "spec": {"nodeName": node, "containers": []}})
}

#[tokio::test]
async fn a_node_without_a_cluster_is_well_and_says_so() {
    let gate = Gate::start_on(TestNode::new().await, |_| {}).await;
    assert!(gate.check("no kubeconfig, no API server").await.ok);
    let answer = gate.ask("statusd", &format!("GET {NODE}")).await;
    assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(answer.message(), "this node has no kubeconfig: there is no API server to ask");
    assert_eq!(answer.headers["retry-after"], "1");
    let (_, ended) = gate.stop().await;
    ended.unwrap();
}

#[tokio::test]
async fn an_api_server_that_is_away_is_said_at_once_and_found_again() {
    let server = FakeApiServer::start().await;
    server.put(NODE, json!({"kind": "Node"}));
    let gate = Gate::start(&server).await;
    let mut client = gate.raw("statusd").await;
    let get = format!("GET {NODE}");
    assert_eq!(client.ask(&get, &Value::Null).await.status, StatusCode::OK);
    gate.until_check("apiserver", true).await;
    server.stop();
    // The connection broke or was refused: both are the same to who asks.
    let answer = eventually("the end of it", async || {
        Some(client.ask(&get, &Value::Null).await).filter(|answer| answer.status != StatusCode::OK)
    })
    .await;
    assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(answer.json()["reason"], "ServiceUnavailable");
    assert!(answer.message().starts_with("the API server at 127.0.0.1:"), "{}", answer.message());
    let check = gate.until_check("apiserver", false).await;
    assert!(check.reason.contains("cannot connect"), "{}", check.reason);
    server.start_again().await;
    eventually("the API server again", async || {
        Some(client.ask(&get, &Value::Null).await).filter(|answer| answer.status == StatusCode::OK)
    })
    .await;
    gate.until_check("apiserver", true).await;
    assert!(gate.metric("rest_client_requests_total", &["200", "GET"]).await >= 2.0);
    assert!(gate.metric("rest_client_requests_total", &["<error>", "GET"]).await >= 1.0);
}

#[tokio::test]
async fn an_outage_is_no_storm_of_connections() {
    let server = FakeApiServer::start().await;
    let gate = Gate::start(&server).await;
    server.stop();
    let mut client = gate.raw("statusd").await;
    let ask = format!("GET {NODE}");
    for _ in 0..300 {
        let answer = client.ask(&ask, &Value::Null).await;
        assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
    }
    server.start_again().await;
    let mut asked = tokio::task::JoinSet::new();
    for _ in 0..100 {
        let (mut client, ask) = (client.clone(), ask.clone());
        asked.spawn(async move {
            while client.ask(&ask, &Value::Null).await.status != StatusCode::NOT_FOUND {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        });
    }
    tokio::time::timeout(BOUND, asked.join_all()).await.expect("answers for all");
    assert!(server.connections() <= 4, "{} connections for one node", server.connections());
}

#[tokio::test]
async fn watches_share_one_connection_and_further_ones_come_when_it_is_full() {
    let server = FakeApiServer::start().await;
    let gate = Gate::start(&server).await;
    let mut client = gate.raw("volumed").await;
    let mut watches = Vec::new();
    for number in 0..250 {
        let line =
            format!("GET /api/v1/namespaces/d/secrets?fieldSelector=metadata.name%3Ds{number}&watch=true");
        let response = client.send(&line, &Value::Null).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        watches.push(response.into_body());
        if number == 90 {
            assert_eq!(server.connections(), 1);
        }
    }
    assert_eq!(server.connections(), 3);
    assert_eq!(gate.metric("bulkhead_apigate_requests_in_flight", &["volumed"]).await, 250.0);
    let path = "/api/v1/namespaces/d/secrets/s249";
    server.put(path, json!({"kind": "Secret"}));
    let frame = tokio::time::timeout(BOUND, watches[249].frame()).await.unwrap().unwrap().unwrap();
    assert!(frame.data_ref().unwrap().starts_with(br#"{"object""#), "{frame:?}");
    drop(watches);
    eventually("places", async || {
        let taken = gate.metric("bulkhead_apigate_requests_in_flight", &["volumed"]).await;
        (taken < 1.0).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_process_that_does_not_read_holds_up_nobody() {
    let server = FakeApiServer::start().await;
    let long = json!({"kind": "ConfigMap", "data": {"a": "x".repeat(512 * 1024)}});
    server.put("/api/v1/namespaces/d/configmaps/c", long);
    server.put(NODE, json!({"kind": "Node"}));
    let gate = Gate::start(&server).await;
    let mut client = gate.raw("syncd").await;
    let mut unread = Vec::new();
    for _ in 0..80 {
        unread.push(client.send("GET /api/v1/namespaces/d/configmaps/c", &Value::Null).await.unwrap());
    }
    assert_eq!(gate.ask("statusd", &format!("GET {NODE}")).await.status, StatusCode::OK);
    drop(unread);
    let answer = gate.ask("syncd", "GET /api/v1/namespaces/d/configmaps/c").await;
    assert!(answer.body.len() > 512 * 1024);
}

#[tokio::test]
async fn requests_in_flight_are_bounded() {
    let server = FakeApiServer::start().await;
    let gate = Gate::start(&server).await;
    server.fail("GET /api/v1/nodes", None);
    let client = gate.raw("syncd").await;
    let mut hanging = tokio::task::JoinSet::new();
    for _ in 0..128 {
        let mut client = client.clone();
        hanging.spawn(async move { client.send(&format!("GET {NODE}"), &Value::Null).await.is_ok() });
    }
    eventually("the requests", async || (server.count("GET /api/v1/nodes") == 128).then_some(())).await;
    let answer = gate.ask("syncd", "GET /api/v1/services").await;
    assert_eq!(answer.status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(answer.message(), "`syncd` has 128 requests in flight already: wait for some to end");
    assert_eq!(gate.ask("statusd", "GET /api/v1/namespaces/d/pods/p").await.status, StatusCode::NOT_FOUND);
    hanging.shutdown().await;
    eventually("a place", async || {
        let answer = gate.ask("syncd", "GET /api/v1/services").await;
        (answer.status == StatusCode::OK).then_some(())
    })
    .await;
}

#[tokio::test]
async fn what_the_api_server_says_passes_as_it_is() {
    let server = FakeApiServer::start().await;
    let gate = Gate::start(&server).await;
    for (code, body) in [(429, "slow down"), (500, "\u{1}garbage"), (401, "{}"), (409, "{}"), (504, "")] {
        server.fail("GET /api/v1/nodes", Some((code, body)));
        let answer = gate.ask("statusd", &format!("GET {NODE}")).await;
        assert_eq!((answer.status.as_u16(), &answer.body[..]), (code, body.as_bytes()));
        server.heal();
    }
    server.fail("GET /", Some((401, "{}")));
    gate.ask("statusd", &format!("GET {NODE}")).await;
    let check = gate.until_check("apiserver", false).await;
    assert!(check.reason.contains("401"), "{}", check.reason);
    server.heal();
    gate.until_check("apiserver", true).await;
}

#[tokio::test]
async fn a_watch_goes_on_and_ends_with_the_api_server() {
    let server = FakeApiServer::start().await;
    let gate = Gate::start(&server).await;
    let mut client = gate.raw("syncd").await;
    let mut watch = client.send(WATCH, &Value::Null).await.unwrap().into_body();
    for name in ["a", "b"] {
        server.put(&format!("/api/v1/namespaces/d/pods/{name}"), pod("node-a"));
        server.put(&format!("/api/v1/namespaces/d/pods/{name}-of-another"), pod("node-b"));
        let frame = tokio::time::timeout(BOUND, watch.frame()).await.unwrap().unwrap().unwrap();
        let event: Value = serde_json::from_slice(frame.data_ref().unwrap()).unwrap();
        assert_eq!((&event["type"], &event["object"]["metadata"]["name"]), (&json!("ADDED"), &json!(name)));
    }
    server.stop();
    let last = tokio::time::timeout(BOUND, watch.frame()).await.expect("it ends");
    assert!(last.is_none_or(|frame| frame.is_err()));
    let first = gate.metric("rest_client_requests_total", &["200", "GET"]).await;
    assert!(first >= 1.0);
}

#[tokio::test]
async fn a_stop_ends_watches_and_lets_requests_finish() {
    let server = FakeApiServer::start().await;
    let gate = Gate::start(&server).await;
    let mut client = gate.raw("syncd").await;
    let watch = client.send(WATCH, &Value::Null).await.unwrap().into_body();
    let (_node, ended) = gate.stop().await;
    ended.unwrap();
    let rest = tokio::time::timeout(BOUND, watch.collect()).await.expect("it ends").expect("in order");
    assert!(rest.to_bytes().is_empty());
}

#[tokio::test]
async fn a_request_that_outlives_the_drain_is_told() {
    let server = FakeApiServer::start().await;
    let gate = Gate::start(&server).await;
    server.fail("GET /api/v1/nodes", None);
    let mut client = gate.raw("syncd").await;
    let hanging =
        tokio::spawn(async move { client.send(&format!("GET {NODE}"), &Value::Null).await.is_ok() });
    eventually("the request", async || (server.count("GET /api/v1/nodes") == 1).then_some(())).await;
    let began = tokio::time::Instant::now();
    let (_node, ended) = gate.stop().await;
    assert!(ended.unwrap_err().what.contains("syncd") && began.elapsed() < Duration::from_secs(20));
    assert!(!hanging.await.unwrap());
}
