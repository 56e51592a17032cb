//! One request through the gate of one process: judged, counted, sent on, and its answer handed back as it comes.

use std::sync::Arc;

use bulkhead_api::access::{ApiRule, Verdict, judge};
use bulkhead_base::chain;
use bulkhead_ipc::caller::Caller;
use bulkhead_ipc::said::Said;
use bulkhead_ipc::trace::{self, TRACEPARENT};
use bulkhead_ipc::traced;
use http::{HeaderMap, HeaderValue, Request, Response};
use hyper::body::{Body, Incoming};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, Span};

use crate::answer;
use crate::body::{Passing, RequestBody, ResponseBody, Stop};
use crate::counts::{Counts, NO_ANSWER};
use crate::error::{Refusal, Unavailable};
use crate::headers::{towards_process, towards_server};
use crate::health::ServerHealth;
use crate::limits;
use crate::own;
use crate::request::{self, Asked};
use crate::upstream::Upstream;

/// What the gates of all processes share.
#[derive(Clone)]
pub struct Shared {
    /// The node's name.
    pub node: Arc<str>,
    /// The connections.
    pub upstream: Arc<Upstream>,
    /// What requests tell about the API server.
    pub health: ServerHealth,
    /// What is counted.
    pub counts: Counts,
    /// At its end, watches end; other requests go on.
    pub shutdown: CancellationToken,
}

/// The gate of one process.
pub struct Gate {
    process: String,
    rules: Vec<ApiRule>,
    shared: Shared,
    calls: Arc<Semaphore>,
    watches: Arc<Semaphore>,
    said: Said,
}

/// A request that may go on.
struct Admitted {
    asked: Asked,
    request: Request<Incoming>,
    permit: OwnedSemaphorePermit,
}

impl Gate {
    /// The gate of `process` by its rows.
    pub fn new(process: &str, rules: Vec<ApiRule>, shared: Shared) -> Self {
        Self {
            process: process.to_owned(),
            rules,
            shared,
            calls: Arc::new(Semaphore::new(limits::CALLS)),
            watches: Arc::new(Semaphore::new(limits::WATCHES)),
            said: Said::default(),
        }
    }

    /// The process.
    pub fn process(&self) -> &str {
        &self.process
    }

    /// Requests in flight, watches among them.
    pub fn in_flight(&self) -> usize {
        let taken = |places: &Semaphore, all: usize| all.saturating_sub(places.available_permits());
        taken(&self.calls, limits::CALLS) + taken(&self.watches, limits::WATCHES)
    }

    /// Waits until no request is in flight but watches. Cancel-safe.
    pub async fn idle(&self) {
        let all = u32::try_from(limits::CALLS).unwrap_or(u32::MAX);
        // Never closed; the places are free again at once.
        let _ = self.calls.acquire_many(all).await;
    }

    /// Answers one request. Always an answer: what goes wrong is a `Status`.
    pub async fn answer(&self, caller: &Caller, request: Request<Incoming>) -> Response<ResponseBody> {
        if let Caller::Stranger(caller) = caller {
            let refusal = Refusal::Stranger { caller: caller.clone(), process: self.process.clone() };
            return self.refuse(&refusal, None);
        }
        let query = request.uri().query();
        let asked = match request::parse(request.method().as_str(), request.uri().path(), query) {
            Ok(asked) => asked,
            Err(reason) => {
                let called = format!("{} {}", request.method(), request.uri().path());
                let called = called.get(..called.floor_char_boundary(limits::TEXT)).unwrap_or_default();
                let (process, called) = (self.process.clone(), called.to_owned());
                return self.refuse(&Refusal::Unreadable { process, called, reason }, None);
            }
        };
        match self.admit(&asked, request.body()) {
            Ok(permit) => self.forward(Admitted { asked, request, permit }).await,
            Err(refusal) => self.refuse(&refusal, Some(&asked)),
        }
    }

    fn admit(&self, asked: &Asked, body: &impl Body) -> Result<OwnedSemaphorePermit, Refusal> {
        match judge(&self.rules, &asked.request, &self.shared.node) {
            Verdict::Passes => {}
            Verdict::NotListed => return Err(Refusal::not_listed(&self.process, &asked.request, None)),
            Verdict::Unless(conditions) => {
                return Err(Refusal::not_listed(&self.process, &asked.request, Some(conditions)));
            }
        }
        if body.size_hint().lower() > limits::REQUEST_BODY {
            return Err(Refusal::TooLarge { process: self.process.clone() });
        }
        let (places, in_flight, what) = if asked.streaming {
            (&self.watches, limits::WATCHES, "watches")
        } else {
            (&self.calls, limits::CALLS, "requests")
        };
        let permit = places.clone().try_acquire_owned();
        permit.map_err(|_| Refusal::TooMany { process: self.process.clone(), in_flight, what })
    }

    fn refuse(&self, refusal: &Refusal, asked: Option<&Asked>) -> Response<ResponseBody> {
        let request = asked.map(|asked| &asked.request);
        let target = request.map(bulkhead_api::access::ApiRequest::target).unwrap_or_default();
        let verb = request.map_or("", |request| request.verb.as_str());
        self.shared.counts.refused(&self.process, verb, &target);
        if self.said.is_news(&refusal.to_string(), Instant::now()) {
            tracing::warn!(process = self.process, %refusal, "request refused");
        }
        answer::refused(refusal, request)
    }

    async fn forward(&self, admitted: Admitted) -> Response<ResponseBody> {
        let Admitted { asked, request, permit } = admitted;
        let Shared { upstream, health, counts, shutdown, .. } = &self.shared;
        let (head, body) = request.into_parts();
        let span = span(&asked, &head.headers);
        let method = head.method.clone();
        let outgoing =
            |credential: &_| self.outgoing(credential, &asked, head, RequestBody::passing(body), &span);
        let began = Instant::now();
        let sent = upstream.send(outgoing).instrument(span.clone());
        // An API server may send a watch's head only with its first event: this can wait as long as the watch itself.
        let sent = if asked.streaming {
            shutdown.run_until_cancelled(sent).await.unwrap_or(Err(Unavailable::Stopping))
        } else {
            sent.await
        };
        let (response, lease) = match sent {
            Ok(sent) => sent,
            Err(error) => {
                if let Unavailable::Away { server, .. } = &error {
                    counts.answered(NO_ANSWER, server, &method, began.elapsed());
                }
                health.failed(&error);
                trace::fail(&span, &chain(&error));
                return answer::unavailable(&error, &asked.request);
            }
        };
        let status = response.status();
        counts.answered(status.as_str(), lease.server(), &method, began.elapsed());
        health.answered(status);
        if !status.is_success() {
            trace::fail(&span, &status);
        }
        let mut response = response.map(|inner| {
            ResponseBody::Passing(Box::new(Passing {
                inner,
                left: (!asked.streaming).then_some(limits::ANSWER_BODY),
                stop: asked.streaming.then(|| Stop::when(shutdown.clone())),
                _lease: lease,
                _permit: permit,
            }))
        });
        towards_process(response.headers_mut());
        response
    }

    fn outgoing(
        &self,
        credential: &crate::credential::Credential,
        asked: &Asked,
        head: http::request::Parts,
        body: RequestBody,
        span: &Span,
    ) -> Request<RequestBody> {
        let mut request = Request::new(body);
        *request.method_mut() = head.method;
        *request.uri_mut() = own::uri(credential, &asked.target);
        let mut headers = towards_server(&head.headers, &self.process, credential.bearer.as_ref());
        if let Some(own) = trace::traceparent(span).and_then(|own| HeaderValue::try_from(own).ok()) {
            headers.insert(TRACEPARENT, own);
        }
        *request.headers_mut() = headers;
        request
    }
}

/// A span for a request that belongs to a trace; others leave none, so that watches and leases do not fill the ring.
fn span(asked: &Asked, headers: &HeaderMap) -> Span {
    let parent = headers.get(TRACEPARENT).and_then(|value| value.to_str().ok());
    let Some(parent) = parent.filter(|parent| trace::trace_id(parent).is_some()) else { return Span::none() };
    let target = asked.request.target();
    let span = traced!("apigate", otel.name = format!("apigate {} {target}", asked.request.verb));
    trace::set_parent(&span, parent);
    span
}
