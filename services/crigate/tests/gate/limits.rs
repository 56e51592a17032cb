//! Nothing that one process does takes the gate from another, or grows without bound.

use bulkhead_testkit::TestNode;
use bytes::Bytes;
use http::Response;
use hyper::body::Frame;
use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;
use tonic::Code;

use crate::runtime::{ByteRuntime, Frames, good};
use crate::support::{BOUND, EMPTY, Gate, Raw, eventually};

const MIB: usize = 1024 * 1024;

/// A runtime whose lists are long.
fn long_lists() -> ByteRuntime {
    let long = Bytes::from(vec![0; MIB]);
    ByteRuntime::start(move |path| {
        let body = if path.contains("/List") { long.clone() } else { Bytes::from_static(EMPTY) };
        Some(good(vec![Frame::data(body)]))
    })
}

#[tokio::test]
async fn answers_that_are_not_read_hold_up_no_other_call() {
    let runtime = long_lists();
    let gate = Gate::start(&runtime.socket()).await;
    let mut pleg = gate.raw("pleg").await;
    let mut unread = Vec::new();
    for _ in 0..200 {
        unread.push(pleg.send(Raw::request("RuntimeService/ListContainers")).await.unwrap());
    }
    // The same process, on the same connection ...
    assert_eq!(pleg.call(Raw::request("RuntimeService/Version")).await.status().code(), Code::Ok);
    // ... and others.
    let answer = gate.raw("evictd").await.call(Raw::request("RuntimeService/ListContainerStats")).await;
    assert_eq!(answer.body.len(), MIB);
    drop(unread);
    let answer = pleg.call(Raw::request("RuntimeService/ListContainers")).await;
    assert_eq!(answer.body.len(), MIB, "and when they are dropped all is as before");
}

#[tokio::test]
async fn calls_in_flight_are_bounded_over_all_connections_of_a_process() {
    let runtime = ByteRuntime::start(|path| match path.rsplit('/').next() {
        Some("ListContainers") => None,
        Some("ListPodSandbox") => Some(Response::new(Frames::then_silence(Vec::new()))),
        _ => Some(good(vec![Frame::data(Bytes::from_static(EMPTY))])),
    });
    let gate = Gate::start(&runtime.socket()).await;
    let (mut first, second) = (gate.raw("pleg").await, gate.raw("pleg").await);
    // Half of them have an answer that has begun, half have none.
    let mut begun = Vec::new();
    for _ in 0..128 {
        begun.push(first.send(Raw::request("RuntimeService/ListPodSandbox")).await.unwrap());
    }
    let mut waiting = tokio::task::JoinSet::new();
    for _ in 0..128 {
        let mut client = second.clone();
        waiting
            .spawn(async move { client.send(Raw::request("RuntimeService/ListContainers")).await.is_ok() });
    }
    eventually("the calls", async || (runtime.hanging() == 128).then_some(())).await;
    let version = async |process| {
        let answer = gate.raw(process).await.call(Raw::request("RuntimeService/Version")).await;
        answer.status()
    };
    let status = version("pleg").await;
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert_eq!(status.message(), "`pleg` has 256 calls in flight already: wait for some to end");
    assert_eq!(version("syncd").await.code(), Code::Ok, "others are not touched");
    waiting.shutdown().await;
    eventually("a place", async || (version("pleg").await.code() == Code::Ok).then_some(())).await;
    // Both kinds give their places back.
    drop(begun);
    let free = async || {
        let mut again = tokio::task::JoinSet::new();
        for _ in 0..250 {
            let mut client = second.clone();
            again.spawn(
                async move { client.call(Raw::request("RuntimeService/Version")).await.status().code() },
            );
        }
        again.join_all().await.iter().all(|code| *code == Code::Ok).then_some(())
    };
    eventually("all places", free).await;
}

/// Opens connections until one is closed; returns those that stay.
async fn fill(gate: &Gate, process: &str, limit: usize) -> Vec<Raw> {
    let mut open = Vec::new();
    for _ in 0..limit {
        let mut client = gate.raw(process).await;
        client.call(Raw::request("RuntimeService/Version")).await;
        open.push(client);
    }
    let mut one_more = UnixStream::connect(gate.node.cri_socket(process)).await.unwrap();
    let read = tokio::time::timeout(BOUND, one_more.read(&mut [0])).await.expect("an end");
    assert!(matches!(read, Ok(0) | Err(_)), "closed without a byte");
    open
}

#[tokio::test]
async fn connections_are_bounded_and_strangers_have_few_of_their_own() {
    let runtime = long_lists();
    let mut node = TestNode::new().await;
    node.config.container_runtime_endpoint = format!("unix://{}", runtime.socket().display());
    let mut identities = node.identities();
    let own = identities.uid_of("pleg").unwrap();
    identities.process.get_mut("prober").unwrap().uid = own + 1000;
    let gate = Gate::start_with(node, identities).await;
    let strangers = fill(&gate, "prober", 4).await;
    let mut owners = fill(&gate, "pleg", 64).await;
    assert_eq!(owners[0].call(Raw::request("RuntimeService/Version")).await.status().code(), Code::Ok);
    drop((strangers, owners));
    eventually("a free place", async || {
        let stream = UnixStream::connect(gate.node.cri_socket("pleg")).await.ok()?;
        let mut client = Raw::over(stream).await;
        client.send(Raw::request("RuntimeService/Version")).await.ok().map(drop)
    })
    .await;
}

#[tokio::test]
async fn headers_are_bounded() {
    let runtime = long_lists();
    let gate = Gate::start(&runtime.socket()).await;
    let mut client = gate.raw("pleg").await;
    let mut request = Raw::request("RuntimeService/Version");
    request.headers_mut().insert("x-large", "x".repeat(64 * 1024).parse().unwrap());
    let refused = match client.send(request).await {
        Ok(response) => response.status() == http::StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
        Err(_) => true,
    };
    assert!(refused);
    assert_eq!(
        gate.raw("pleg").await.call(Raw::request("RuntimeService/Version")).await.status().code(),
        Code::Ok
    );
}
