//! The real client (crates/kubeapi) through the gate: what processes use.

use std::time::Duration;

use bulkhead_kubeapi::{Endpoint, connect, over_socket};
use bulkhead_testkit::apiserver::FakeApiServer;
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, ListParams, Patch, PatchParams, WatchEvent, WatchParams};
use kube::runtime::watcher;
use serde_json::json;

use crate::support::{BOUND, Gate, eventually};

fn pod(node: &str) -> serde_json::Value {
    json!({"apiVersion": "v1", "kind": "Pod", "spec": {"nodeName": node, "containers": []}})
}

fn put(server: &FakeApiServer, name: &str) {
    server.put(&format!("/api/v1/namespaces/d/pods/{name}"), pod("node-a"));
}

const OWN: &str = "spec.nodeName=node-a";

#[tokio::test]
async fn list_watch_patch_and_refusals() {
    let server = FakeApiServer::start().await;
    put(&server, "a");
    server.put(
        "/api/v1/nodes/node-a",
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"labels": {"x": "1"}}}),
    );
    let gate = Gate::start(&server).await;
    let owner = Some(gate.node.identities().uid_of("apigate").unwrap());
    let syncd = over_socket(&gate.socket("syncd"), owner);
    let pods: Api<Pod> = Api::all(syncd.clone());
    let listed = pods.list(&ListParams::default().fields(OWN)).await.unwrap();
    assert_eq!(listed.items.len(), 1);
    let refused = pods.list(&ListParams::default()).await.unwrap_err();
    let kube::Error::Api(status) = refused else { panic!("{refused}") };
    assert_eq!((status.code, status.reason.as_str()), (403, "Forbidden"));
    assert!(status.message.contains("only where spec.nodeName=node-a"), "{}", status.message);

    let version = listed.metadata.resource_version.unwrap();
    let params = WatchParams::default().fields(OWN).timeout(60);
    let mut watch = pods.watch(&params, &version).await.unwrap().boxed();
    let mut next = async || tokio::time::timeout(BOUND, watch.try_next()).await.unwrap().unwrap().unwrap();
    assert!(matches!(next().await, WatchEvent::Bookmark(_)));
    put(&server, "b");
    assert!(matches!(next().await, WatchEvent::Added(pod) if pod.metadata.name.as_deref() == Some("b")));
    assert!(matches!(next().await, WatchEvent::Bookmark(_)));
    server.remove("/api/v1/namespaces/d/pods/a");
    assert!(matches!(next().await, WatchEvent::Deleted(_)));

    let statusd = over_socket(&gate.socket("statusd"), owner);
    let nodes: Api<Node> = Api::all(statusd);
    let patch = Patch::Merge(json!({"metadata": {"labels": {"y": "2"}}}));
    let node = nodes.patch("node-a", &PatchParams::default(), &patch).await.unwrap();
    assert_eq!(node.metadata.labels.unwrap().len(), 2);
    let gateway: Api<Node> = Api::all(over_socket(&gate.socket("gateway"), owner));
    let refused = gateway.patch("node-a", &PatchParams::default(), &patch).await.unwrap_err();
    assert!(matches!(refused, kube::Error::Api(status) if status.code == 403));
    let missing = nodes.get_opt("node-a").await.unwrap();
    assert!(missing.is_some());
}

#[tokio::test]
async fn a_version_that_is_forgotten_is_gone() {
    let server = FakeApiServer::start().await;
    put(&server, "a");
    let gate = Gate::start(&server).await;
    let pods: Api<Pod> = Api::all(over_socket(&gate.socket("syncd"), None));
    let listed = pods.list(&ListParams::default().fields(OWN)).await.unwrap();
    server.compact();
    let params = WatchParams::default().fields(OWN).timeout(60);
    let mut watch = pods.watch(&params, &listed.metadata.resource_version.unwrap()).await.unwrap().boxed();
    let event = watch.try_next().await.unwrap().unwrap();
    assert!(matches!(event, WatchEvent::Error(status) if status.code == 410));
}

#[tokio::test]
async fn a_watcher_loses_nothing_when_the_api_server_restarts() {
    let server = FakeApiServer::start().await;
    put(&server, "a");
    let gate = Gate::start(&server).await;
    let pods: Api<Pod> = Api::all(over_socket(&gate.socket("syncd"), None));
    let config = watcher::Config::default().fields(OWN).timeout(60);
    let (seen, mut names) = tokio::sync::watch::channel(std::collections::BTreeSet::<String>::new());
    let follow = watcher::watcher(pods, config).for_each(move |event| {
        let pod = match event {
            Ok(watcher::Event::Apply(pod) | watcher::Event::InitApply(pod)) => pod.metadata.name,
            Ok(_) => None,
            // It begins again by itself.
            Err(_) => None,
        };
        seen.send_if_modified(|names| pod.is_some_and(|name| names.insert(name)));
        std::future::ready(())
    });
    let follow = tokio::spawn(follow);
    let mut until = async |count: usize| {
        tokio::time::timeout(2 * BOUND, names.wait_for(|names| names.len() == count))
            .await
            .unwrap()
            .unwrap()
            .clone()
    };
    until(1).await;
    put(&server, "b");
    until(2).await;
    server.stop();
    put(&server, "c");
    tokio::time::sleep(Duration::from_millis(200)).await;
    server.start_again().await;
    until(3).await;
    put(&server, "d");
    until(4).await;
    follow.abort();
}

#[tokio::test]
async fn without_a_gate_a_kubeconfig_does() {
    let server = FakeApiServer::start().await;
    put(&server, "a");
    let dir = tempfile::tempdir().unwrap();
    let path = server.write_kubeconfig(dir.path());
    let client = connect(&Endpoint::Kubeconfig(path)).await.unwrap();
    let pods: Api<Pod> = Api::all(client);
    assert_eq!(pods.list(&ListParams::default()).await.unwrap().items.len(), 1);
    let error = connect(&Endpoint::Kubeconfig("/nowhere".into())).await.err().unwrap();
    assert!(error.to_string().contains("/nowhere"), "{error}");
}

#[tokio::test]
async fn a_socket_of_a_stranger_is_not_spoken_to() {
    let server = FakeApiServer::start().await;
    let gate = Gate::start(&server).await;
    let owner = gate.node.identities().uid_of("apigate").unwrap();
    let pods: Api<Pod> = Api::all(over_socket(&gate.socket("syncd"), Some(owner + 1)));
    let error = pods.list(&ListParams::default().fields(OWN)).await.unwrap_err();
    let mut text = error.to_string();
    let mut source = std::error::Error::source(&error);
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    assert!(text.contains("belongs to uid"), "{text}");
    eventually("nothing", async || (server.count("GET /api") == 0).then_some(())).await;
}
