//! A node with a running gate, and a client that shows every header, byte and trailer.

use std::path::Path;
use std::time::Duration;

use bulkhead_api::access::ACCESS;
use bulkhead_api::cri::v1::image_service_client::ImageServiceClient;
use bulkhead_api::cri::v1::runtime_service_client::RuntimeServiceClient;
use bulkhead_api::crigate::v1::crigate_client::CrigateClient;
use bulkhead_api::crigate::v1::{CallCount, ListCallsRequest};
use bulkhead_api::process::v1::process_client::ProcessClient;
use bulkhead_api::process::v1::{Check, GetStatusRequest};
use bulkhead_ipc::{Identities, PeerChannel};
use bulkhead_service::{Context, Parts, Service, ServiceError};
use bulkhead_testkit::TestNode;
use bytes::Bytes;
use crigate::{Crigate, Flags};
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::UnixStream;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Longest wait for anything. A test that passes never gets near it.
pub const BOUND: Duration = Duration::from_secs(20);
/// A message without a field.
pub const EMPTY: &[u8] = &[0; 5];

/// A running gate.
pub struct Gate {
    pub node: TestNode,
    stop: CancellationToken,
    task: JoinHandle<Result<(), ServiceError>>,
}

/// A gRPC answer down to its bytes.
#[derive(Debug)]
pub struct Answer {
    pub head: HeaderMap,
    pub body: Bytes,
    /// `None` when the head was all.
    pub trailers: Option<HeaderMap>,
}

/// A client of one CRI socket that sends what it is told.
#[derive(Clone)]
pub struct Raw(SendRequest<Full<Bytes>>);

impl Gate {
    /// In front of `runtime`, a socket that need not exist.
    pub async fn start(runtime: &Path) -> Self {
        let mut node = TestNode::new().await;
        node.config.container_runtime_endpoint = format!("unix://{}", runtime.display());
        Self::start_on(node).await
    }

    /// On a node that is set up already.
    pub async fn start_on(node: TestNode) -> Self {
        let identities = node.identities();
        Self::start_with(node, identities).await
    }

    /// With other ideas of who is who.
    pub async fn start_with(node: TestNode, identities: Identities) -> Self {
        Self::start_flagged(node, identities, Flags::default()).await
    }

    /// With flags of its own.
    pub async fn start_flagged(node: TestNode, identities: Identities, flags: Flags) -> Self {
        let stop = node.shutdown.child_token();
        let context = Context::new(Parts {
            name: Crigate::NAME,
            flags: node.flags(),
            config: node.config.clone(),
            identities,
            access: &ACCESS,
            clock: node.clock.clone(),
            shutdown: stop.clone(),
        });
        let task = tokio::spawn(Crigate::run(context, flags));
        let gate = Self { node, stop, task };
        // Bound last.
        gate.connect_raw(Path::new("crigate.sock")).await;
        gate
    }

    /// Stops it in order; gives back the node for another life, and how the process ended.
    pub async fn stop(self) -> (TestNode, Result<(), ServiceError>) {
        self.stop.cancel();
        let result = tokio::time::timeout(BOUND, self.task).await.expect("the gate ends").unwrap();
        (self.node, result)
    }

    /// A client of the CRI socket of `process`.
    pub async fn raw(&self, process: &str) -> Raw {
        self.connect_raw(&self.node.cri_socket(process)).await
    }

    async fn connect_raw(&self, socket: &Path) -> Raw {
        let socket = self.node.run_dir().join(socket);
        let stream = eventually("the gate's socket", async || UnixStream::connect(&socket).await.ok()).await;
        Raw::over(stream).await
    }

    /// What the gate counted.
    pub async fn calls(&self) -> Vec<CallCount> {
        let mut client = CrigateClient::new(self.node.channel("crigate"));
        client.list_calls(ListCallsRequest {}).await.unwrap().into_inner().calls
    }

    /// Passed, refused and unavailable calls of one method.
    pub async fn count(&self, process: &str, method: &str) -> (u64, u64, u64) {
        let calls = self.calls().await;
        let found = calls.iter().find(|count| count.process == process && count.method == method);
        found.map(|count| (count.passed, count.refused, count.unavailable)).unwrap_or_default()
    }

    /// One check of the process.
    pub async fn check(&self, name: &str) -> Check {
        let mut client = ProcessClient::new(self.node.channel("crigate"));
        let status = client.get_status(GetStatusRequest {}).await.unwrap().into_inner();
        assert!(status.ready);
        status.checks.into_iter().find(|check| check.name == name).expect("the check")
    }

    /// Waits until a check is good or bad.
    pub async fn until_check(&self, name: &str, ok: bool) -> Check {
        eventually("the check", async || Some(self.check(name).await).filter(|check| check.ok == ok)).await
    }
}

impl Raw {
    /// Over a connection, with room for answers that nobody reads.
    pub async fn over(stream: UnixStream) -> Self {
        let (sender, connection) = Builder::new(TokioExecutor::new())
            .initial_stream_window_size(64 * 1024)
            .initial_connection_window_size(64 * 1024 * 1024)
            .handshake(TokioIo::new(stream))
            .await
            .unwrap();
        tokio::spawn(connection);
        Self(sender)
    }

    /// A gRPC request with an empty message.
    pub fn request(method: &str) -> Request<Full<Bytes>> {
        Request::post(format!("http://localhost/runtime.v1.{method}"))
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(Full::new(Bytes::from_static(EMPTY)))
            .unwrap()
    }

    /// Sends; the answer's head, its body unread.
    pub async fn send(&mut self, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, hyper::Error> {
        tokio::time::timeout(BOUND, self.0.send_request(request)).await.expect("an answer")
    }

    /// Sends and reads everything.
    pub async fn call(&mut self, request: Request<Full<Bytes>>) -> Answer {
        let response = self.send(request).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        let (head, body) = response.into_parts();
        let body = tokio::time::timeout(BOUND, body.collect()).await.expect("a whole answer").unwrap();
        let trailers = body.trailers().cloned();
        Answer { head: head.headers, body: body.to_bytes(), trailers }
    }
}

impl Answer {
    /// Its gRPC status.
    pub fn status(&self) -> tonic::Status {
        let headers = self.trailers.as_ref().unwrap_or(&self.head);
        tonic::Status::from_header_map(headers).expect("a status")
    }
}

/// A client as processes use it, of the CRI socket of `process`.
pub fn runtime_client(gate: &Gate, process: &'static str) -> RuntimeServiceClient<PeerChannel> {
    RuntimeServiceClient::new(gate.node.context(process).cri_channel())
        .max_decoding_message_size(16 * 1024 * 1024)
}

/// The same for images.
pub fn image_client(gate: &Gate, process: &'static str) -> ImageServiceClient<PeerChannel> {
    ImageServiceClient::new(gate.node.context(process).cri_channel())
}

/// Tries until there is something, at most [`BOUND`].
pub async fn eventually<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let found = tokio::time::timeout(BOUND, async {
        loop {
            if let Some(found) = look().await {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    found.await.unwrap_or_else(|_| panic!("{what} did not come"))
}
