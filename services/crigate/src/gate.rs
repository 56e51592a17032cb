//! One call through the gate of one process: judged, counted, sent on, and its answer handed back as it comes.

use std::collections::BTreeMap;
use std::sync::Arc;

use bulkhead_api::crigate::v1::CallCount;
use bulkhead_base::chain;
use bulkhead_ipc::caller::Caller;
use bulkhead_ipc::said::Said;
use bulkhead_ipc::status::to_status;
use bulkhead_ipc::trace::{self, TRACEPARENT};
use bulkhead_ipc::traced;
use http::{HeaderMap, HeaderValue, Request, Response, header};
use hyper::body::Incoming;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tonic::Code;
use tracing::{Instrument, Span};

use crate::ahead::Ahead;
use crate::body::{self, Inner, Passing, ResponseBody, Stop};
use crate::error::Refusal;
use crate::health::RuntimeHealth;
use crate::limits;
use crate::methods::{CriService, Method};
use crate::operations::Totals;
use crate::policy::Judge;
use crate::table::{Row, Table};
use crate::upstream::{RequestBody, Upstream};

/// A socket of the runtime, as one process reaches it. Clones share the connection.
#[derive(Clone)]
pub struct Endpoint {
    /// The connection.
    pub upstream: Arc<Upstream>,
    /// What the call tells about the runtime.
    pub health: RuntimeHealth,
}

/// The gate of one process.
pub struct Gate {
    table: Table,
    judge: Judge,
    runtime: Endpoint,
    /// When images have a socket of their own.
    images: Option<Endpoint>,
    in_flight: Arc<Semaphore>,
    streams: Arc<Semaphore>,
    said: Said,
    shutdown: CancellationToken,
}

/// A call that may go on.
struct Admitted<'a> {
    row: &'a Row,
    request: Request<RequestBody>,
    permit: OwnedSemaphorePermit,
    stream: Option<OwnedSemaphorePermit>,
}

impl Gate {
    /// A gate by `table` and `judge`. At `shutdown` streams end; other calls go on.
    pub fn new(
        table: Table,
        judge: Judge,
        runtime: Endpoint,
        images: Option<Endpoint>,
        shutdown: CancellationToken,
    ) -> Self {
        let in_flight = usize::try_from(limits::CALLS).unwrap_or(Semaphore::MAX_PERMITS);
        Self {
            table,
            judge,
            runtime,
            images,
            in_flight: Arc::new(Semaphore::new(in_flight)),
            streams: Arc::new(Semaphore::new(limits::STREAMS)),
            said: Said::default(),
            shutdown,
        }
    }

    /// The process.
    pub fn process(&self) -> &str {
        self.table.process()
    }

    /// What was called so far.
    pub fn calls(&self) -> impl Iterator<Item = CallCount> {
        self.table.snapshot()
    }

    /// Adds how calls went at the runtime to the sums by the kubelet's names.
    pub fn add_operations(&self, totals: &mut BTreeMap<String, Totals>) {
        self.table.add_operations(totals);
    }

    /// Waits until no call is in flight. Cancel-safe.
    pub async fn idle(&self) {
        // Never closed; the places are free again at once.
        let _ = self.in_flight.acquire_many(limits::CALLS).await;
    }

    /// Answers one call. Always an answer: what goes wrong is a gRPC status.
    pub async fn answer(&self, caller: &Caller, request: Request<Incoming>) -> Response<ResponseBody> {
        let called = called(&request);
        let counts = self.table.counts(&called);
        match self.admit(caller, &called, request).await {
            Ok(admitted) => {
                counts.pass();
                self.forward(admitted).await
            }
            Err(refusal) => {
                counts.refuse();
                if self.said.is_news(&refusal.to_string(), Instant::now()) {
                    tracing::warn!(process = self.process(), %refusal, "call refused");
                }
                to_status(&refusal).into_http()
            }
        }
    }

    async fn admit(
        &self,
        caller: &Caller,
        called: &str,
        request: Request<Incoming>,
    ) -> Result<Admitted<'_>, Refusal> {
        let row = self.table.judge(caller, called)?;
        let place = |of: &Arc<Semaphore>| {
            let place = of.clone().try_acquire_owned();
            place.map_err(|_| Refusal::TooMany { process: self.process().to_owned() })
        };
        let permit = place(&self.in_flight)?;
        let stream = row.method.streaming.then(|| place(&self.streams)).transpose()?;
        let request = self.judge.screen(self.process(), &row.method, request).await?;
        Ok(Admitted { row, request, permit, stream })
    }

    async fn forward(&self, admitted: Admitted<'_>) -> Response<ResponseBody> {
        let Admitted { row, mut request, permit, stream } = admitted;
        let endpoint = self.endpoint(row.method.service);
        let span = span(&row.method, request.headers());
        *request.uri_mut() = row.method.uri.clone();
        let headers = request.headers_mut();
        headers.remove(header::HOST);
        if let Some(own) = trace::traceparent(&span).and_then(|own| HeaderValue::try_from(own).ok()) {
            headers.insert(TRACEPARENT, own);
        }
        let began = Instant::now();
        let sent = endpoint.upstream.send(request).instrument(span.clone());
        let streaming = row.method.streaming;
        // A runtime may send a stream's head only with its first message: this can wait as long as the stream itself.
        let sent = if streaming { self.shutdown.run_until_cancelled(sent).await } else { Some(sent.await) };
        let response = match sent {
            Some(Ok(response)) => response,
            None => return body::stopping().into_http(),
            Some(Err(error)) => {
                row.counts.miss();
                row.operations.note(began.elapsed(), true);
                endpoint.health.failed(&error);
                trace::fail(&span, &chain(&error));
                return to_status(&error).into_http();
            }
        };
        // "There is no such method" may come from a server that has no CRI: it proves nothing.
        if !body::status(response.headers()).is_some_and(|status| body::is(status, Code::Unimplemented)) {
            endpoint.health.answered();
        }
        body::note(&span, response.headers());
        // A failed call has its status in the head: there is no message that a head would have to come before.
        let failed = body::status(response.headers()).is_some_and(|status| !body::is(status, Code::Ok));
        row.operations.note(began.elapsed(), failed);
        let stop = streaming.then(|| Stop::when(self.shutdown.clone()));
        let endpoint = endpoint.clone();
        response.map(|answer| {
            let inner = if streaming { Inner::Endless(Ahead::of(answer)) } else { Inner::Answer(answer) };
            Passing { inner, endpoint, span, _permit: permit, _stream: stream, stop }.into()
        })
    }

    fn endpoint(&self, service: CriService) -> &Endpoint {
        match (service, &self.images) {
            (CriService::Image, Some(images)) => images,
            _ => &self.runtime,
        }
    }
}

/// What the table is asked about. gRPC calls are POST and nothing else, and their paths have no query.
fn called(request: &Request<Incoming>) -> String {
    let path = request.uri().path_and_query().map_or("", |path| path.as_str());
    if request.method() == http::Method::POST {
        path.to_owned()
    } else {
        format!("{} {path}", request.method())
    }
}

/// A span for a call that belongs to a trace; others leave none, so that polls do not fill the ring.
fn span(method: &Method, headers: &HeaderMap) -> Span {
    let parent = headers.get(TRACEPARENT).and_then(|value| value.to_str().ok());
    let Some(parent) = parent.filter(|parent| trace::trace_id(parent).is_some()) else { return Span::none() };
    let name = method.label.split_once('/').map_or(method.label.as_str(), |(_, name)| name);
    let span = traced!("crigate", otel.name = format!("crigate {name}"), rpc.method = method.label);
    trace::set_parent(&span, parent);
    span
}
