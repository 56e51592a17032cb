//! ListPods, and gateway's own end.

use bulkhead_api::gateway::v1::pod_item::Item;
use bulkhead_api::gateway::v1::{ListPodsRequest, RefusedPod};
use bulkhead_api::syncd::v1::{RefusedManifest, list_pods_item};
use serde_json::Value;
use tonic::{Code, Status};

use crate::node::{Node, request};

async fn list(node: &Node) -> Result<Vec<Item>, Status> {
    let mut stream = node.client().list_pods(ListPodsRequest {}).await?.into_inner();
    let mut items = Vec::new();
    while let Some(item) = stream.message().await? {
        items.extend(item.item);
    }
    Ok(items)
}

#[tokio::test]
async fn pods_and_refused_manifests_are_listed_without_values() {
    let mut node = Node::whole().await;
    node.pod("p", &["a", "b"]);
    let refused = RefusedManifest { source: "/m/x.yaml".to_owned(), reason: "line 3: no".to_owned() };
    node.syncd.items.lock().unwrap().push(list_pods_item::Item::Refused(refused));
    let items = list(&node).await.unwrap();
    let [Item::PodJson(pod), Item::Refused(refused)] = &items[..] else { panic!("{items:?}") };
    let text = std::str::from_utf8(pod).unwrap();
    assert!(!text.contains("hidden"), "{text}");
    let pod: Value = serde_json::from_str(text).unwrap();
    assert_eq!(pod["kind"], "Pod");
    assert_eq!(pod["spec"]["containers"][1]["env"][0]["name"], "KEY");
    assert_eq!(pod["status"]["phase"], "Pending");
    assert_eq!(refused, &RefusedPod { source: "/m/x.yaml".to_owned(), reason: "line 3: no".to_owned() });

    node.kill("syncd").await;
    let status = list(&node).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    assert!(status.message().contains("syncd"), "{status}");
}

#[tokio::test]
async fn without_statusd_it_is_named() {
    let node = Node::with(&["syncd"]).await;
    let status = list(&node).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    assert!(status.message().contains("statusd"), "{status}");
}

#[tokio::test]
async fn it_stops_when_asked_and_lets_its_ports_go() {
    let node = Node::whole().await;
    let at = node.healthz;
    assert_eq!(request(at, "GET", "/healthz/ping", &[]).await.unwrap().code, 200);
    node.stopped().await;
    tokio::net::TcpListener::bind(at).await.expect("the port is free");
}
