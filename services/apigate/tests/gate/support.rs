//! A node with a running gate, and a client that sends what it is told.

use std::path::PathBuf;
use std::time::Duration;

use apigate::Apigate;
use bulkhead_api::access::ACCESS;
use bulkhead_api::process::v1::process_client::ProcessClient;
use bulkhead_api::process::v1::{Check, GetMetricsRequest, GetStatusRequest, MetricSeries};
use bulkhead_ipc::Identities;
use bulkhead_service::{CommonFlags, Context, NoFlags, Parts, Service, ServiceError};
use bulkhead_testkit::TestNode;
use bulkhead_testkit::apiserver::FakeApiServer;
use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::Value;
use tokio::net::UnixStream;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Longest wait for anything. A test that passes never gets near it.
pub const BOUND: Duration = Duration::from_secs(30);

/// A running gate.
pub struct Gate {
    pub node: TestNode,
    stop: CancellationToken,
    task: JoinHandle<Result<(), ServiceError>>,
}

/// A whole answer.
#[derive(Debug)]
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

/// An HTTP/2 connection to one API socket.
#[derive(Clone)]
pub struct Raw(http2::SendRequest<Full<Bytes>>);

impl Gate {
    /// In front of `server`, as system:node:node-a.
    pub async fn start(server: &FakeApiServer) -> Self {
        let node = TestNode::new().await;
        let kubeconfig = server.write_kubeconfig(node.dir());
        Self::start_on(node, |flags| flags.kubeconfig = Some(kubeconfig)).await
    }

    /// With flags of its own.
    pub async fn start_on(node: TestNode, set: impl FnOnce(&mut CommonFlags)) -> Self {
        let identities = node.identities();
        Self::start_with(node, identities, set).await
    }

    /// With other ideas of who is who.
    pub async fn start_with(
        node: TestNode,
        identities: Identities,
        set: impl FnOnce(&mut CommonFlags),
    ) -> Self {
        let stop = node.shutdown.child_token();
        let mut flags = node.flags();
        set(&mut flags);
        let context = Context::new(Parts {
            name: Apigate::NAME,
            flags,
            config: node.config.clone(),
            identities,
            access: &ACCESS,
            clock: node.clock.clone(),
            shutdown: stop.clone(),
        });
        let task = tokio::spawn(Apigate::run(context, NoFlags {}));
        let gate = Self { node, stop, task };
        // Bound last.
        let socket = gate.node.run_dir().join("apigate.sock");
        eventually("the gate's socket", async || UnixStream::connect(&socket).await.ok()).await;
        gate
    }

    /// Stops it in order; gives back the node for another life, and how the process ended.
    pub async fn stop(self) -> (TestNode, Result<(), ServiceError>) {
        self.stop.cancel();
        let result = tokio::time::timeout(BOUND, self.task).await.expect("the gate ends").unwrap();
        (self.node, result)
    }

    pub fn socket(&self, process: &str) -> PathBuf {
        self.node.api_socket(process)
    }

    /// A connection to the API socket of `process`.
    pub async fn raw(&self, process: &str) -> Raw {
        let stream = UnixStream::connect(self.socket(process)).await.unwrap();
        let (sender, connection) =
            http2::Builder::new(TokioExecutor::new()).handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        Raw(sender)
    }

    /// One request on a connection of its own.
    pub async fn ask(&self, process: &str, line: &str) -> Answer {
        self.raw(process).await.ask(line, &Value::Null).await
    }

    /// The same over HTTP/1.1.
    pub async fn ask_http1(&self, process: &str, line: &str) -> Answer {
        let stream = UnixStream::connect(self.socket(process)).await.unwrap();
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        let (method, target) = line.split_once(' ').unwrap();
        let request = Request::builder().method(method).uri(target).header("host", "apigate");
        let response = sender.send_request(request.body(Full::<Bytes>::default()).unwrap()).await.unwrap();
        Answer::of(response).await
    }

    /// One check of the process.
    pub async fn check(&self, name: &str) -> Check {
        let mut client = ProcessClient::new(self.node.channel("apigate"));
        let status = client.get_status(GetStatusRequest {}).await.unwrap().into_inner();
        assert!(status.ready);
        status.checks.into_iter().find(|check| check.name == name).expect("the check")
    }

    /// Waits until a check is good or bad.
    pub async fn until_check(&self, name: &str, ok: bool) -> Check {
        eventually("the check", async || Some(self.check(name).await).filter(|check| check.ok == ok)).await
    }

    /// The value of a counter or gauge.
    pub async fn metric(&self, name: &str, labels: &[&str]) -> f64 {
        let mut client = ProcessClient::new(self.node.channel("apigate"));
        let families = client.get_metrics(GetMetricsRequest {}).await.unwrap().into_inner().families;
        let is =
            |series: &MetricSeries| labels.iter().all(|label| series.label_values.iter().any(|l| l == label));
        let family = families.into_iter().find(|family| family.name == name);
        family.into_iter().flat_map(|family| family.series).filter(is).map(|series| series.value).sum()
    }
}

impl Raw {
    /// Sends `METHOD TARGET` with a body, if it is not null; returns when the head is there.
    pub async fn send(&mut self, line: &str, body: &Value) -> Result<Response<Incoming>, hyper::Error> {
        let (method, target) = line.split_once(' ').unwrap();
        let request = Request::builder().method(method).uri(format!("http://apigate{target}"));
        let body = if body.is_null() { Bytes::new() } else { Bytes::from(body.to_string()) };
        let request = request.header("content-type", "application/merge-patch+json");
        self.0.send_request(request.body(Full::new(body)).unwrap()).await
    }

    /// Sends whatever.
    pub async fn request(&mut self, request: Request<Full<Bytes>>) -> Answer {
        Answer::of(self.0.send_request(request).await.unwrap()).await
    }

    /// The same to the end of the answer.
    pub async fn ask(&mut self, line: &str, body: &Value) -> Answer {
        let response = tokio::time::timeout(BOUND, self.send(line, body)).await.expect("an answer in time");
        Answer::of(response.unwrap()).await
    }
}

impl Answer {
    async fn of(response: Response<Incoming>) -> Self {
        let (head, body) = response.into_parts();
        let body = tokio::time::timeout(BOUND, body.collect()).await.expect("the body in time");
        Self { status: head.status, headers: head.headers, body: body.unwrap().to_bytes() }
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).expect("JSON")
    }

    /// The message of a `Status`.
    pub fn message(&self) -> String {
        let status = self.json();
        assert_eq!(status["kind"], "Status");
        assert_eq!(status["code"], self.status.as_u16());
        status["message"].as_str().unwrap().to_owned()
    }
}

/// Waits until there is something.
pub async fn eventually<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let wait = async {
        loop {
            if let Some(found) = look().await {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    match tokio::time::timeout(BOUND, wait).await {
        Ok(found) => found,
        Err(_) => panic!("{what}: not within {BOUND:?}"),
    }
}
