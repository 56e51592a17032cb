//! The runtime is missing, killed, back again, or hangs; the gate itself is restarted.

use std::time::Duration;

use bulkhead_api::cri::v1;
use bulkhead_api::cri::v1::runtime_service_client::RuntimeServiceClient;
use bulkhead_ipc::PeerChannel;
use bulkhead_service::Exit;
use bulkhead_testkit::TestNode;
use bulkhead_testkit::cri::{FakeRuntime, Method};
use bytes::Bytes;
use http::Response;
use hyper::body::Frame;
use tonic::{Code, Status};

use crate::runtime::{ByteRuntime, Frames, good};
use crate::support::{BOUND, EMPTY, Gate, Raw, eventually, runtime_client};

async fn version(client: &RuntimeServiceClient<PeerChannel>) -> Result<(), Status> {
    let mut client = client.clone();
    let call = client.version(v1::VersionRequest::default());
    tokio::time::timeout(BOUND, call).await.expect("an answer").map(drop)
}

#[tokio::test]
async fn without_a_runtime_calls_fail_at_once_and_say_where_it_should_be() {
    let mut node = TestNode::new().await;
    let directory = node.dir().join("containerd");
    std::fs::create_dir(&directory).unwrap();
    let socket = directory.join("cri.sock");
    node.config.container_runtime_endpoint = format!("unix://{}", socket.display());
    let gate = Gate::start_on(node).await;
    let pleg = runtime_client(&gate, "pleg");
    for _ in 0..3 {
        let status = version(&pleg).await.unwrap_err();
        assert_eq!(status.code(), Code::Unavailable);
        let text = format!("the container runtime at {} does not answer: ", socket.display());
        assert!(status.message().starts_with(&text), "{}", status.message());
        assert!(status.message().contains("No such file"), "{}", status.message());
    }
    assert_eq!(gate.count("pleg", "RuntimeService/Version").await, (3, 0, 3));
    let check = gate.until_check("runtime", false).await;
    assert!(check.reason.contains("does not answer"), "{}", check.reason);
    // Refusals need no runtime.
    let refused = gate.raw("pleg").await.call(Raw::request("RuntimeService/StopContainer")).await;
    assert_eq!(refused.status().code(), Code::PermissionDenied);

    let _fake = FakeRuntime::start(&directory).await.unwrap();
    eventually("the runtime", async || version(&pleg).await.ok()).await;
    gate.until_check("runtime", true).await;
}

#[tokio::test]
async fn a_restart_of_the_runtime_ends_streams_with_an_error_and_loses_nothing_else() {
    let directory = tempfile::tempdir().unwrap();
    let mut fake = FakeRuntime::start(directory.path()).await.unwrap();
    let gate = Gate::start(fake.socket()).await;
    let processes = ["pleg", "syncd", "prober", "imaged", "statusd", "evictd", "gateway"];
    let clients = processes.map(|process| runtime_client(&gate, process));
    for client in &clients {
        version(client).await.unwrap();
    }
    let mut pleg = clients[0].clone();
    let _held = fake.hold(Method::Status);
    let mut waiting = pleg.clone();
    let waiting = tokio::spawn(async move { waiting.status(v1::StatusRequest::default()).await });
    fake.log().wait_for(|calls| calls.iter().any(|call| call.method == Method::Status)).await.unwrap();

    for round in 0..3 {
        fake.go_away().await;
        assert_eq!(version(&clients[0]).await.unwrap_err().code(), Code::Unavailable, "round {round}");
        fake.come_back().await.unwrap();
        for client in &clients {
            eventually("the runtime", async || version(client).await.ok()).await;
        }
    }
    let status = waiting.await.unwrap().unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status:?}");
    pleg.get_container_events(v1::GetEventsRequest {}).await.unwrap();
}

#[tokio::test]
async fn a_killed_runtime_breaks_calls_and_streams_with_unavailable() {
    let runtime = ByteRuntime::start(|path| {
        if path.ends_with("GetContainerEvents") {
            let body = Frames::then_silence(vec![Frame::data(Bytes::from_static(EMPTY))]);
            return Some(Response::builder().header("content-type", "application/grpc").body(body).unwrap());
        }
        path.ends_with("Version").then(|| good(vec![Frame::data(Bytes::from_static(EMPTY))]))
    });
    let gate = Gate::start(&runtime.socket()).await;
    let mut pleg = runtime_client(&gate, "pleg");
    let mut events = pleg.get_container_events(v1::GetEventsRequest {}).await.unwrap().into_inner();
    events.message().await.unwrap().expect("the first event");
    let mut waiting = pleg.clone();
    let waiting =
        tokio::spawn(async move { waiting.list_containers(v1::ListContainersRequest::default()).await });
    eventually("a call that hangs", async || (runtime.hanging() == 1).then_some(())).await;
    runtime.kill();
    let ended = tokio::time::timeout(BOUND, events.message()).await.expect("the stream's end").unwrap_err();
    assert_eq!(ended.code(), Code::Unavailable, "{ended:?}");
    assert!(ended.message().contains("does not answer: the call broke off"), "{}", ended.message());
    let status = waiting.await.unwrap().unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status:?}");
    assert_eq!(gate.count("pleg", "RuntimeService/ListContainers").await, (1, 0, 1));
}

#[tokio::test]
async fn a_runtime_that_hangs_holds_up_nobody_but_its_callers() {
    let runtime = ByteRuntime::start(|path| {
        (!path.ends_with("ListContainers")).then(|| good(vec![Frame::data(Bytes::from_static(EMPTY))]))
    });
    let gate = Gate::start(&runtime.socket()).await;
    let mut pleg = runtime_client(&gate, "pleg");
    let request =
        bulkhead_ipc::status::with_deadline(v1::ListContainersRequest::default(), Duration::from_millis(100));
    let status = pleg.list_containers(request).await.unwrap_err();
    assert!(matches!(status.code(), Code::DeadlineExceeded | Code::Cancelled), "{status:?}");
    version(&pleg).await.unwrap();
    version(&runtime_client(&gate, "syncd")).await.unwrap();
}

#[tokio::test]
async fn a_server_without_cri_is_not_taken_for_a_runtime() {
    let runtime = ByteRuntime::start(|_| {
        let response =
            Response::builder().header("content-type", "application/grpc").header("grpc-status", "12");
        Some(response.body(Frames::of(Vec::new())).unwrap())
    });
    let gate = Gate::start(&runtime.socket()).await;
    let told = async || gate.check("runtime").await.reason.contains("CRI plug-in").then_some(());
    eventually("the reason", told).await;
    // Such answers to others prove nothing either.
    gate.raw("pleg").await.call(Raw::request("RuntimeService/Status")).await;
    assert!(!gate.check("runtime").await.ok);
}

#[tokio::test]
async fn stopping_ends_streams_lets_calls_finish_and_makes_room_for_the_next_life() {
    let directory = tempfile::tempdir().unwrap();
    let fake = FakeRuntime::start(directory.path()).await.unwrap();
    let gate = Gate::start(fake.socket()).await;
    let mut pleg = runtime_client(&gate, "pleg");
    let mut events = pleg.get_container_events(v1::GetEventsRequest {}).await.unwrap().into_inner();
    let hold = fake.hold(Method::StopContainer);
    let mut syncd = runtime_client(&gate, "syncd");
    let stop = v1::StopContainerRequest { container_id: "unknown".to_owned(), timeout: 0 };
    let stopping = tokio::spawn(async move { syncd.stop_container(stop).await });
    fake.log().wait_for(|calls| calls.iter().any(|call| call.method == Method::StopContainer)).await.unwrap();

    let stop = tokio::spawn(gate.stop());
    let ended = tokio::time::timeout(BOUND, events.message()).await.expect("the stream's end").unwrap_err();
    assert_eq!(
        (ended.code(), ended.message()),
        (Code::Unavailable, "crigate is stopping: open the stream again")
    );
    assert!(!stop.is_finished(), "a call is in flight");
    hold.open();
    stopping.await.unwrap().unwrap();
    let (node, result) = stop.await.unwrap();
    result.unwrap();
    // The sockets of the last life are replaced; clients go on.
    let _next = Gate::start_on(node).await;
    eventually("the next life", async || version(&pleg).await.ok()).await;
}

#[tokio::test]
async fn a_stream_whose_runtime_is_silent_does_not_hold_up_the_stop() {
    // As containerd: no head before the first event.
    let runtime = ByteRuntime::start(|path| {
        (!path.ends_with("GetContainerEvents")).then(|| good(vec![Frame::data(Bytes::from_static(EMPTY))]))
    });
    let gate = Gate::start(&runtime.socket()).await;
    let mut pleg = runtime_client(&gate, "pleg");
    let waiting =
        tokio::spawn(async move { pleg.get_container_events(v1::GetEventsRequest {}).await.map(drop) });
    eventually("the stream", async || (runtime.hanging() == 1).then_some(())).await;
    let (_, result) = gate.stop().await;
    result.unwrap();
    assert_eq!(waiting.await.unwrap().unwrap_err().code(), Code::Unavailable);
}

#[tokio::test]
async fn a_call_that_outlives_the_drain_is_reported() {
    let runtime = ByteRuntime::start(|_| None);
    let gate = Gate::start(&runtime.socket()).await;
    let mut syncd = runtime_client(&gate, "syncd");
    let call = tokio::spawn(async move { syncd.start_container(v1::StartContainerRequest::default()).await });
    eventually("the call", async || {
        (runtime.arrived().iter().any(|r| r.path.ends_with("StartContainer"))).then_some(())
    })
    .await;
    let (_, result) = gate.stop().await;
    let error = result.unwrap_err();
    assert_eq!(error.exit, Exit::DrainExceeded);
    assert!(error.what.ends_with("those of syncd"), "{}", error.what);
    assert!(call.await.unwrap().is_err());
}

#[tokio::test]
async fn a_second_gate_does_not_take_the_sockets_of_the_first() {
    let gate = Gate::start(std::path::Path::new("/nowhere.sock")).await;
    let second = gate.node.context("crigate");
    let run = <crigate::Crigate as bulkhead_service::Service>::run(second, crigate::Flags::default());
    let error = tokio::time::timeout(BOUND, run).await.expect("an end").unwrap_err();
    assert_eq!(error.exit, Exit::Socket);
    assert_eq!(
        version(&runtime_client(&gate, "pleg")).await.unwrap_err().code(),
        Code::Unavailable,
        "the first serves on"
    );
}
