//! What passes: everything, unchanged.

use std::time::Duration;

use bulkhead_api::cri::v1;
use bulkhead_testkit::TestNode;
use bulkhead_testkit::cri::{FakeRuntime, Method};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response};
use hyper::body::Frame;
use tonic::Code;

use crate::runtime::{ByteRuntime, Frames, good};
use crate::support::{BOUND, EMPTY, Gate, Raw, eventually, image_client, runtime_client};

fn sandbox(uid: &str, annotation: String) -> v1::RunPodSandboxRequest {
    let metadata = v1::PodSandboxMetadata { name: uid.to_owned(), uid: uid.to_owned(), ..Default::default() };
    let annotations = [("text".to_owned(), annotation)].into();
    let config = v1::PodSandboxConfig { metadata: Some(metadata), annotations, ..Default::default() };
    v1::RunPodSandboxRequest { config: Some(config), runtime_handler: String::new() }
}

#[tokio::test]
async fn large_messages_pass_both_ways() {
    let directory = tempfile::tempdir().unwrap();
    let fake = FakeRuntime::start(directory.path()).await.unwrap();
    let gate = Gate::start(fake.socket()).await;
    let text = "0123456789abcdef".repeat(64 * 1024);
    let mut syncd = runtime_client(&gate, "syncd");
    // The fake takes 4 MiB, as tonic's servers do.
    syncd.run_pod_sandbox(sandbox("u0", text.clone())).await.unwrap();
    fake.set(|world| {
        let first = world.sandboxes.values().next().unwrap().clone();
        for number in 1..8 {
            let id = format!("{number:064}");
            world.sandboxes.insert(id.clone(), bulkhead_testkit::cri::Sandbox { id, ..first.clone() });
        }
    });
    let mut pleg = runtime_client(&gate, "pleg");
    let list = pleg.list_pod_sandbox(v1::ListPodSandboxRequest::default()).await.unwrap().into_inner();
    assert_eq!(list.items.len(), 8);
    assert!(list.items.iter().all(|item| item.annotations["text"] == text), "8 MiB, unchanged");
}

#[tokio::test]
async fn events_pass_when_they_happen() {
    let directory = tempfile::tempdir().unwrap();
    let fake = FakeRuntime::start(directory.path()).await.unwrap();
    let gate = Gate::start(fake.socket()).await;
    let mut pleg = runtime_client(&gate, "pleg");
    let mut events = pleg.get_container_events(v1::GetEventsRequest {}).await.unwrap().into_inner();
    let mut syncd = runtime_client(&gate, "syncd");
    for uid in ["u1", "u2"] {
        let made = syncd.run_pod_sandbox(sandbox(uid, String::new())).await.unwrap().into_inner();
        for kind in
            [v1::ContainerEventType::ContainerCreatedEvent, v1::ContainerEventType::ContainerStartedEvent]
        {
            let event =
                tokio::time::timeout(BOUND, events.message()).await.expect("an event").unwrap().unwrap();
            assert_eq!(
                (event.container_event_type(), event.container_id),
                (kind, made.pod_sandbox_id.clone())
            );
        }
    }
    // While the stream is open other calls of the process go on.
    pleg.list_pod_sandbox(v1::ListPodSandboxRequest::default()).await.unwrap();
}

#[tokio::test]
async fn image_calls_go_to_the_image_services_socket() {
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let runtime = FakeRuntime::start(one.path()).await.unwrap();
    let images = FakeRuntime::start(other.path()).await.unwrap();
    images.add_image("local/bb:1");
    let mut node = TestNode::new().await;
    node.config.container_runtime_endpoint = runtime.endpoint();
    node.config.image_service_endpoint = images.endpoint();
    let gate = Gate::start_on(node).await;
    let list = image_client(&gate, "imaged").list_images(v1::ListImagesRequest::default()).await.unwrap();
    assert_eq!(list.into_inner().images.len(), 1);
    runtime_client(&gate, "imaged").version(v1::VersionRequest::default()).await.unwrap();
    assert_eq!(runtime.log().count(Method::ListImages), 0);
    assert!(runtime.log().count(Method::Version) > 0);
    gate.until_check("runtime", true).await;
    gate.until_check("image service", true).await;
}

#[tokio::test]
async fn requests_arrive_as_they_were_sent() {
    let runtime = ByteRuntime::start(|_| Some(good(vec![Frame::data(Bytes::from_static(EMPTY))])));
    let gate = Gate::start(&runtime.socket()).await;
    let mut client = gate.raw("prober").await;
    runtime.arrived();
    let mut request = Raw::request("RuntimeService/ExecSync");
    let sent = [
        ("grpc-timeout", "1500m"),
        ("grpc-accept-encoding", "identity,gzip"),
        ("user-agent", "test/1"),
        ("traceparent", "not a trace"),
        ("tracestate", "a=b"),
        ("x-twice", "1"),
        ("x-twice", "2"),
        ("x-bytes-bin", "AAEC/w"),
    ];
    for (name, value) in sent {
        request.headers_mut().append(name, HeaderValue::from_static(value));
    }
    let headers = request.headers().clone();
    client.call(request).await;
    let mut arrived = runtime.arrived();
    arrived.retain(|request| request.path != "/runtime.v1.RuntimeService/Version");
    assert_eq!(arrived.len(), 1);
    assert_eq!(arrived[0].path, "/runtime.v1.RuntimeService/ExecSync");
    assert_eq!(&arrived[0].body[..], EMPTY);
    let mut seen = arrived[0].headers.clone();
    seen.remove("content-length");
    assert_eq!(seen, headers);
}

#[tokio::test]
async fn answers_come_back_byte_for_byte() {
    let head = |trailers_only: bool| {
        let mut headers = HeaderMap::new();
        headers.insert("content-type", HeaderValue::from_static("application/grpc+proto"));
        headers.insert("x-runtime", HeaderValue::from_static("1"));
        if trailers_only {
            headers.extend(trailers());
        }
        headers
    };
    fn trailers() -> HeaderMap {
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", HeaderValue::from_static("9"));
        trailers.insert("grpc-message", HeaderValue::from_static("name %22a%22 is reserved: %C3%A9%0A"));
        trailers.insert("grpc-status-details-bin", HeaderValue::from_static("CAkSBHRleHQ"));
        trailers.append("x-twice", HeaderValue::from_static("1"));
        trailers.append("x-twice", HeaderValue::from_static("2"));
        trailers
    }
    let runtime = ByteRuntime::start(move |path| {
        let trailers_only = path.ends_with("StopContainer");
        let pieces =
            [&b"\0\0\0\0\x05he"[..], b"", b"llo"].map(|piece| Frame::data(Bytes::from_static(piece)));
        let frames = match trailers_only {
            true => Vec::new(),
            false => pieces.into_iter().chain([Frame::trailers(trailers())]).collect(),
        };
        let mut response = Response::new(Frames::of(frames));
        *response.headers_mut() = head(trailers_only);
        Some(response)
    });
    let gate = Gate::start(&runtime.socket()).await;
    let mut client = gate.raw("syncd").await;

    let answer = client.call(Raw::request("RuntimeService/StartContainer")).await;
    assert_eq!(answer.head, head(false));
    assert_eq!(&answer.body[..], b"\0\0\0\0\x05hello");
    assert_eq!(answer.trailers, Some(trailers()));

    let answer = client.call(Raw::request("RuntimeService/StopContainer")).await;
    assert_eq!(answer.head, head(true));
    assert_eq!((answer.body.len(), answer.trailers), (0, None), "a head that is all stays so");
}

#[tokio::test]
async fn a_long_error_text_of_the_runtime_passes() {
    let text = "x".repeat(100 * 1024);
    let runtime = ByteRuntime::start(move |_| {
        let response =
            Response::builder().header("content-type", "application/grpc").header("grpc-status", "2");
        Some(response.header("grpc-message", &text).body(Frames::of(Vec::new())).unwrap())
    });
    let gate = Gate::start(&runtime.socket()).await;
    let stream = tokio::net::UnixStream::connect(gate.node.cri_socket("syncd")).await.unwrap();
    let (mut sender, connection) =
        hyper::client::conn::http2::Builder::new(hyper_util::rt::TokioExecutor::new())
            .max_header_list_size(1024 * 1024)
            .handshake(hyper_util::rt::TokioIo::new(stream))
            .await
            .unwrap();
    tokio::spawn(connection);
    let answer = sender.send_request(Raw::request("RuntimeService/StartContainer")).await.unwrap();
    assert_eq!(answer.headers()["grpc-message"].len(), 100 * 1024);
}

#[tokio::test]
async fn a_caller_that_gives_up_is_given_up_at_the_runtime() {
    let runtime = ByteRuntime::start(|path| {
        (!path.ends_with("ExecSync")).then(|| good(vec![Frame::data(Bytes::from_static(EMPTY))]))
    });
    let gate = Gate::start(&runtime.socket()).await;
    let mut prober = runtime_client(&gate, "prober");
    let request =
        bulkhead_ipc::status::with_deadline(v1::ExecSyncRequest::default(), Duration::from_millis(200));
    let status = prober.exec_sync(request).await.unwrap_err();
    assert!(matches!(status.code(), Code::DeadlineExceeded | Code::Cancelled), "{status:?}");
    eventually("the end of the call", async || (runtime.hanging() == 0).then_some(())).await;
    // The connection itself is fine.
    prober.version(v1::VersionRequest::default()).await.unwrap();
    assert_eq!(gate.count("prober", "RuntimeService/ExecSync").await, (1, 0, 0));
}
