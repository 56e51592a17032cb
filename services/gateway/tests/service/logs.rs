//! ReadLogs from the request to the last chunk.

use std::fs::OpenOptions;
use std::io::Write;
use std::time::Duration;

use bulkhead_api::gateway::v1::{LogChunk, ReadLogsRequest};
use bulkhead_model::runtime::ContainerState;
use serde_json::json;
use tonic::{Code, Status, Streaming};

use crate::node::{BOUND, Node};

const TIME: &str = "2020-11-30T14:03:12.000000001Z";

fn of(pod: &str, container: &str) -> ReadLogsRequest {
    ReadLogsRequest {
        namespace: "default".to_owned(),
        pod: pod.to_owned(),
        container: container.to_owned(),
        ..Default::default()
    }
}

async fn open(node: &Node, request: ReadLogsRequest) -> Result<Streaming<LogChunk>, Status> {
    Ok(node.client().read_logs(request).await?.into_inner())
}

async fn rest(mut stream: Streaming<LogChunk>) -> Result<String, Status> {
    let all = async {
        let mut text = Vec::new();
        while let Some(chunk) = stream.message().await? {
            assert!(chunk.data.len() <= 64 * 1024);
            text.extend_from_slice(&chunk.data);
        }
        Ok(String::from_utf8(text).unwrap())
    };
    tokio::time::timeout(BOUND, all).await.expect("it ends")
}

async fn read(node: &Node, request: ReadLogsRequest) -> Result<String, Status> {
    rest(open(node, request).await?).await
}

fn record(text: &str) -> String {
    format!("{TIME} stdout F {text}\n")
}

fn append(path: &std::path::Path, text: &str) {
    let mut file = OpenOptions::new().create(true).append(true).open(path).unwrap();
    file.write_all(text.as_bytes()).unwrap();
}

#[tokio::test]
async fn logs_are_read_as_asked() {
    let node = Node::whole().await;
    node.pod("p", &["a"]);
    append(&node.log("p", "a", "0.log"), &record("before"));
    let text: String = (0..3).map(|n| record(&format!("line {n}"))).collect();
    append(&node.log("p", "a", "1.log"), &text);

    assert_eq!(read(&node, of("p", "a")).await.unwrap(), "line 0\nline 1\nline 2\n");
    assert_eq!(read(&node, of("p", "")).await.unwrap(), "line 0\nline 1\nline 2\n", "the only container");
    let previous = ReadLogsRequest { previous: true, ..of("p", "a") };
    assert_eq!(read(&node, previous).await.unwrap(), "before\n");
    let tail = ReadLogsRequest { tail_lines: Some(1), timestamps: true, ..of("p", "a") };
    assert_eq!(read(&node, tail).await.unwrap(), format!("{TIME} line 2\n"));
    let none = ReadLogsRequest { tail_lines: Some(0), ..of("p", "a") };
    assert_eq!(read(&node, none).await.unwrap(), "");
    let now = bulkhead_base::Clock::now(&bulkhead_base::SystemClock);
    append(&node.log("p", "a", "1.log"), &format!("{now} stdout F now\n"));
    let since = ReadLogsRequest { since_seconds: 3600, ..of("p", "a") };
    assert_eq!(read(&node, since).await.unwrap(), "now\n");
    // So long ago that there is no such date: everything.
    let since = ReadLogsRequest { since_seconds: u64::MAX, ..of("p", "a") };
    assert_eq!(read(&node, since).await.unwrap().lines().count(), 4);
}

#[tokio::test]
async fn what_is_refused_names_what_exists() {
    let node = Node::whole().await;
    node.pod("p", &["a", "b"]);
    node.pod("q", &["a"]);
    append(&node.log("p", "a", "0.log"), &record("x"));
    std::os::unix::fs::symlink("/etc/passwd", node.log("q", "a", "0.log")).unwrap();
    let previous = ReadLogsRequest { previous: true, ..of("p", "a") };
    let table = [
        (of("p", "y"), Code::NotFound, "pod default/p has no container y; it has a, b"),
        (of("p", ""), Code::InvalidArgument, "name one of a, b"),
        (
            of("nope", "a"),
            Code::NotFound,
            "there is no pod default/nope on this node; namespace default has p, q",
        ),
        (of("p", "b"), Code::NotFound, "container b of pod default/p has no log"),
        (previous, Code::NotFound, "there is only attempt 0"),
        (of("../p", "a"), Code::InvalidArgument, "pod \"../p\" is not a name"),
        (of("p", "a/../a"), Code::InvalidArgument, "container \"a/../a\" is not a name"),
        (of("q", "a"), Code::FailedPrecondition, "no plain file"),
    ];
    for (request, code, text) in table {
        let status = read(&node, request).await.unwrap_err();
        assert_eq!(status.code(), code, "{status}");
        assert!(status.message().contains(text), "{status}");
    }
}

#[tokio::test]
async fn following_ends_with_the_container_and_outlives_plegs_absence() {
    let mut node = Node::whole().await;
    node.pod("p", &["a"]);
    node.runs("p", "a", ContainerState::Running);
    let path = node.log("p", "a", "0.log");
    append(&path, &record("one"));
    let mut stream = open(&node, ReadLogsRequest { follow: true, ..of("p", "a") }).await.unwrap();
    assert_eq!(stream.message().await.unwrap().unwrap().data, b"one\n");

    node.kill("pleg").await;
    append(&path, &record("two"));
    assert_eq!(stream.message().await.unwrap().unwrap().data, b"two\n");
    // It is rotated and goes on.
    std::fs::rename(&path, node.log("p", "a", "0.log.20261130-140312")).unwrap();
    append(&path, &record("three"));
    assert_eq!(stream.message().await.unwrap().unwrap().data, b"three\n");

    node.runs("p", "a", ContainerState::Exited);
    append(&path, &record("last"));
    node.start("pleg").await;
    assert_eq!(rest(stream).await.unwrap(), "last\n");
}

#[tokio::test]
async fn without_syncd_statuses_tell_what_exists() {
    let mut node = Node::whole().await;
    node.status("p", &json!({"phase": "Running", "containerStatuses": [{"name": "a"}]}));
    append(&node.log("p", "a", "0.log"), &record("x"));
    node.kill("syncd").await;
    let found = async {
        loop {
            match read(&node, of("p", "a")).await {
                Ok(text) => return text,
                Err(status) => assert_eq!(status.code(), Code::NotFound, "{status}"),
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    assert_eq!(tokio::time::timeout(BOUND, found).await.expect("the status arrives"), "x\n");
}

#[tokio::test]
async fn with_neither_syncd_is_named() {
    let node = Node::with(&[]).await;
    let status = read(&node, of("p", "a")).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    assert!(status.message().contains("syncd does not answer"), "{status}");
}

#[tokio::test]
async fn only_so_many_logs_are_read_at_a_time_and_places_come_back() {
    let node = Node::whole().await;
    node.pod("p", &["a"]);
    node.runs("p", "a", ContainerState::Running);
    append(&node.log("p", "a", "0.log"), &record("x"));
    let follow = ReadLogsRequest { follow: true, ..of("p", "a") };
    let mut streams = Vec::new();
    for _ in 0..32 {
        streams.push(open(&node, follow.clone()).await.unwrap());
    }
    let status = open(&node, follow.clone()).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
    streams.clear();
    let free = async {
        while open(&node, follow.clone()).await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(BOUND, free).await.expect("clients that are gone free their places");
}

#[tokio::test]
async fn followers_are_told_when_gateway_stops() {
    let node = Node::whole().await;
    node.pod("p", &["a"]);
    node.runs("p", "a", ContainerState::Running);
    append(&node.log("p", "a", "0.log"), &record("x"));
    let stream = open(&node, ReadLogsRequest { follow: true, ..of("p", "a") }).await.unwrap();
    node.stop.cancel();
    let status = rest(stream).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    node.stopped().await;
}
