//! The plain ports: codes, health, pods, statistics, bounds.

use std::time::Duration;

use serde_json::{Value, json};

use crate::fakes::End;
use crate::node::{BOUND, Node, request};

/// What a kubelet 1.37.2 answered: port, method, path, code, and content type.
const ENDPOINTS: &str = include_str!("../endpoints.tsv");

#[tokio::test]
async fn every_path_answers_as_the_kubelets() {
    let node = Node::whole().await;
    let mut rows = 0;
    for row in ENDPOINTS.lines() {
        let fields: Vec<&str> = row.split('\t').collect();
        let [port, method, path, code, _, content] = fields[..] else { panic!("a row of six: {row}") };
        let at = if port == "10248" { node.healthz } else { node.read_only };
        let answer = request(at, method, path, &[]).await.unwrap();
        assert_eq!(answer.code.to_string(), code, "{row}: {}", answer.body);
        assert_eq!(answer.content, content, "{row}");
        rows += 1;
    }
    assert!(rows > 40, "{rows}");
    let moved = node.get(node.read_only, "/stats").await;
    assert_eq!(moved.headers["location"], "/stats/");
    assert_eq!(request(node.read_only, "POST", "/pods", &[]).await.unwrap().code, 405);
    assert_eq!(node.get(node.healthz, "/healthz").await.body, "ok");
    assert_eq!(node.get(node.healthz, "/pods").await.code, 404, "not on the health port");
}

#[tokio::test]
async fn health_names_what_is_missing_and_why() {
    let mut node = Node::whole().await;
    node.kill("prober").await;
    node.until_health("prober", |checks| checks.iter().any(|check| !check.ok)).await;
    let answer = node.get(node.healthz, "/healthz").await;
    assert_eq!(answer.code, 500);
    assert!(
        answer.body.contains("[+]syncd ok\n") && answer.body.contains("[+]gateway ok\n"),
        "{}",
        answer.body
    );
    let line = answer.body.lines().find(|line| line.starts_with("[-]")).unwrap();
    assert!(line.starts_with("[-]prober failed: no answer on "), "{line}");
    assert!(line.contains("/prober.sock: Connection refused"), "{line}");
    assert_eq!(node.get(node.healthz, "/healthz/prober").await.code, 500);
    assert_eq!(node.get(node.healthz, "/healthz/syncd").await.body, "ok");
    assert_eq!(node.get(node.healthz, "/healthz/ping").await.body, "ok");
    assert_eq!(node.get(node.read_only, "/healthz").await.code, 500, "the same on the other port");

    node.start("prober").await;
    node.until_health("prober", |checks| checks.iter().all(|check| check.ok)).await;
    assert_eq!(node.get(node.healthz, "/healthz").await.code, 200, "it is back");
    let verbose = node.get(node.healthz, "/healthz?verbose").await;
    assert_eq!(verbose.body.lines().filter(|line| line.starts_with("[+]")).count(), node.processes.len());

    node.processes["syncd"].check("sources", "the manifest folder cannot be read");
    node.until_health("syncd", |checks| checks.iter().any(|check| check.name == "sources" && !check.ok))
        .await;
    let answer = node.get(node.healthz, "/healthz/syncloop").await;
    assert_eq!(answer.code, 500);
    assert!(
        answer.body.contains("[-]syncd failed: sources: the manifest folder cannot be read\n"),
        "{}",
        answer.body
    );
}

#[tokio::test]
async fn nobody_is_there_and_every_one_is_named() {
    let node = Node::with(&[]).await;
    let answer = node.get(node.healthz, "/healthz").await;
    assert_eq!(answer.code, 500);
    let missing = answer.body.lines().filter(|line| line.starts_with("[-]")).count();
    assert_eq!(missing, node.processes.len() - 1, "all but gateway: {}", answer.body);
    for (path, name) in [("/pods", "statusd"), ("/stats/summary", "evictd")] {
        let answer = node.get(node.read_only, path).await;
        assert_eq!((answer.code, answer.content.as_str()), (503, "text/plain; charset=utf-8"));
        assert!(answer.body.contains(name), "{path}: {}", answer.body);
    }
}

#[tokio::test]
async fn pods_are_told_whole_with_their_statuses() {
    let mut node = Node::whole().await;
    for n in 0..20 {
        node.pod(&format!("p{n}"), &["a"]);
    }
    node.status("p1", &json!({"phase": "Running"}));
    let list = until_phase(&node, 1, "Running").await;
    assert_eq!((&list["kind"], &list["apiVersion"]), (&json!("PodList"), &json!("v1")));
    let items = list["items"].as_array().unwrap();
    assert_eq!(items.len(), 20);
    assert_eq!(items[0]["status"]["phase"], "Pending", "no status yet");
    assert_eq!(items[1]["spec"]["containers"][0]["env"][0]["value"], "hidden", "as the kubelet shows it");
    assert!(items[1].get("kind").is_none());

    // The last statuses are told while statusd is away.
    node.kill("statusd").await;
    let list = node.get(node.read_only, "/pods").await;
    assert_eq!(list.code, 200);
    let list: Value = serde_json::from_str(&list.body).unwrap();
    assert_eq!(list["items"][1]["status"]["phase"], "Running");

    // A list that cannot be told whole is no list.
    *node.syncd.end.lock().unwrap() = End::Broken;
    assert!(request(node.read_only, "GET", "/pods", &[]).await.is_err(), "cut off");
    *node.syncd.end.lock().unwrap() = End::NotRead;
    let answer = node.get(node.read_only, "/pods").await;
    assert_eq!(answer.code, 503);
    assert!(answer.body.contains("syncd") && answer.body.contains("not read yet"), "{}", answer.body);
    *node.syncd.end.lock().unwrap() = End::Whole;
    node.kill("syncd").await;
    let answer = node.get(node.read_only, "/pods").await;
    assert_eq!(answer.code, 503);
    assert!(answer.body.contains("syncd"), "{}", answer.body);
    node.start("syncd").await;
    assert_eq!(node.get(node.read_only, "/pods").await.code, 200, "it is back");
}

async fn until_phase(node: &Node, index: usize, phase: &str) -> Value {
    let turned = async {
        loop {
            let answer = node.get(node.read_only, "/pods/").await;
            if answer.code == 200 {
                let list: Value = serde_json::from_str(&answer.body).unwrap();
                if list["items"][index]["status"]["phase"] == phase {
                    return list;
                }
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(BOUND, turned).await.expect("the status arrives")
}

#[tokio::test]
async fn statistics_are_told_in_the_kubelets_form() {
    let mut node = Node::whole().await;
    let whole = node.get(node.read_only, "/stats/summary").await;
    let whole: Value = serde_json::from_str(&whole.body).unwrap();
    assert_eq!(whole["node"]["nodeName"], "node-a");
    assert_eq!(whole["node"]["rlimit"]["curproc"], 287);
    let part = node.get(node.read_only, "/stats/summary?only_cpu_and_memory=true").await;
    let part: Value = serde_json::from_str(&part.body).unwrap();
    assert!(part["node"].get("rlimit").is_none());

    *node.evictd.0.lock().unwrap() = BOUND;
    let late = node.get(node.read_only, "/stats/summary").await;
    assert_eq!(late.code, 503, "past the deadline");
    assert!(late.body.contains("evictd"), "{}", late.body);
    node.kill("evictd").await;
    *node.evictd.0.lock().unwrap() = Duration::ZERO;
    assert_eq!(node.get(node.read_only, "/stats/summary").await.code, 503);
    node.start("evictd").await;
    assert_eq!(node.get(node.read_only, "/stats/summary").await.code, 200, "it is back");
}

#[tokio::test]
async fn metrics_of_all_processes_are_one_target() {
    let mut node = Node::whole().await;
    node.kill("prober").await;
    let all = node.get(node.read_only, "/metrics").await.body;
    assert!(all.contains("# TYPE process_cpu_seconds_total counter\n"), "{all}");
    assert_eq!(all.matches("# TYPE process_cpu_seconds_total ").count(), 1);
    assert!(all.contains("process_cpu_seconds_total{process=\"syncd\"} 1.5\n"), "{all}");
    assert!(all.contains("bulkhead_process_up{process=\"syncd\"} 1\n"), "{all}");
    assert!(all.contains("bulkhead_process_up{process=\"prober\"} 0\n"), "{all}");
    let own = "kubelet_http_requests_total{long_running=\"false\",method=\"GET\",path=\"metrics\",server_type=\"readonly\"}";
    let again = node.get(node.read_only, "/metrics").await.body;
    assert!(again.contains(own), "gateway's own are among them: {again}");
    assert_eq!(node.get(node.read_only, "/metrics/probes").await.code, 503, "prober is away");
    let resources = node.get(node.read_only, "/metrics/resource").await.body;
    assert!(resources.contains("\nscrape_error 0\n"), "{resources}");
    node.kill("evictd").await;
    let resources = node.get(node.read_only, "/metrics/resource").await;
    assert_eq!(resources.code, 200);
    assert!(resources.body.contains("\nscrape_error 1\n"), "{}", resources.body);
}

#[tokio::test]
async fn heads_are_bounded_and_bodies_are_not_waited_for() {
    let node = Node::whole().await;
    let long = "x".repeat(20 * 1024);
    let answer = request(node.healthz, "GET", "/healthz", &[("x-long", &long)]).await.unwrap();
    assert_eq!(answer.code, 431);
    let many: Vec<String> = (0..100).map(|n| format!("x-{n}")).collect();
    let many: Vec<(&str, &str)> = many.iter().map(|name| (name.as_str(), "1")).collect();
    assert_eq!(request(node.healthz, "GET", "/healthz", &many).await.unwrap().code, 431);

    // A client that announces a body and never sends it gets its answer all the same.
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut stream = tokio::net::TcpStream::connect(node.read_only).await.unwrap();
    stream.write_all(b"POST /pods HTTP/1.1\r\nhost: n\r\ncontent-length: 1000000000\r\n\r\n").await.unwrap();
    let mut answer = vec![0; 12];
    tokio::time::timeout(BOUND, stream.read_exact(&mut answer)).await.expect("an answer").unwrap();
    assert_eq!(answer, b"HTTP/1.1 405");
}
