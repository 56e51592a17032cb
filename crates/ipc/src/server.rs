//! The answering side: every call is checked against the access file before any handler sees it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bulkhead_api::access::Access;
use futures::future::{BoxFuture, Either, Ready, ready};
use http::{Request, Response};
use tokio::net::UnixListener;
use tokio_stream::wrappers::UnixListenerStream;
use tokio_util::sync::CancellationToken;
use tonic::Status;
use tonic::body::Body;
use tonic::service::Routes;
use tonic::transport::server::UdsConnectInfo;
use tower::{Layer, Service};
use tracing::Instrument;

use crate::identity::Identities;
use crate::trace;

/// How long calls in flight may take to finish once a process was asked to stop.
pub const DRAIN: Duration = Duration::from_secs(5);
/// Streams and calls that one connection may have open.
const STREAMS_PER_CONNECTION: u32 = 256;

/// Checks callers. Clones share the count.
#[derive(Clone, Debug)]
pub struct Guard {
    process: Arc<str>,
    identities: Arc<Identities>,
    access: &'static Access,
    refused: Arc<AtomicU64>,
}

/// Why a call was refused.
#[derive(Debug, thiserror::Error)]
enum Refusal {
    #[error("uid {uid} is no process of this node; proto/access.toml lists who may call")]
    Stranger { uid: u32 },
    #[error("`{caller}` may not call {service} of `{process}`; proto/access.toml lists who may")]
    NotListed { caller: String, service: String, process: String },
    #[error("the caller's credentials are not known")]
    NoCredentials,
}

impl Guard {
    /// The guard of `process`' socket.
    pub fn new(process: &str, identities: Arc<Identities>, access: &'static Access) -> Self {
        Self { process: process.into(), identities, access, refused: Arc::default() }
    }

    /// Calls refused so far.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Serves `routes` on `listener` until `shutdown`, then lets calls in flight finish for at most [`DRAIN`]. Returns false
    /// when that was not enough.
    ///
    /// # Errors
    /// When the listener fails.
    pub async fn serve(
        self,
        listener: UnixListener,
        routes: Routes,
        shutdown: CancellationToken,
    ) -> Result<bool, tonic::transport::Error> {
        let server = tonic::transport::Server::builder()
            .max_concurrent_streams(STREAMS_PER_CONNECTION)
            .layer(GuardLayer(self))
            .add_routes(routes)
            .serve_with_incoming_shutdown(
                UnixListenerStream::new(listener),
                shutdown.clone().cancelled_owned(),
            );
        let bound = async {
            shutdown.cancelled().await;
            tokio::time::sleep(DRAIN).await;
        };
        tokio::select! {
            result = server => result.map(|()| true),
            () = bound => Ok(false),
        }
    }

    fn check<B>(&self, request: &Request<B>) -> Result<(), Refusal> {
        let credentials = request.extensions().get::<UdsConnectInfo>().and_then(|info| info.peer_cred);
        let uid = credentials.ok_or(Refusal::NoCredentials)?.uid();
        let caller = self.identities.name_of(uid).ok_or(Refusal::Stranger { uid })?;
        let service = request.uri().path().split('/').nth(1).unwrap_or_default();
        if self.access.may_call(&self.process, service, caller) {
            return Ok(());
        }
        let mut service = service.to_owned();
        service.truncate(service.floor_char_boundary(128));
        Err(Refusal::NotListed { caller: caller.to_owned(), service, process: self.process.to_string() })
    }
}

#[derive(Clone, Debug)]
struct GuardLayer(Guard);

#[derive(Clone, Debug)]
struct Guarded<S> {
    guard: Guard,
    inner: S,
}

impl<S> Layer<S> for GuardLayer {
    type Service = Guarded<S>;
    fn layer(&self, inner: S) -> Guarded<S> {
        Guarded { guard: self.0.clone(), inner }
    }
}

impl<S, B> Service<Request<B>> for Guarded<S>
where
    S: Service<Request<B>, Response = Response<Body>>,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future =
        Either<Ready<Result<Self::Response, S::Error>>, BoxFuture<'static, Result<Self::Response, S::Error>>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        if let Err(refusal) = self.guard.check(&request) {
            self.guard.refused.fetch_add(1, Ordering::Relaxed);
            tracing::warn!(process = &*self.guard.process, %refusal, "call refused");
            return Either::Left(ready(Ok(Status::permission_denied(refusal.to_string()).into_http())));
        }
        // Calls outside a trace leave no span: polls and streams would push the pods' starts out of the ring.
        let span = match request.headers().get(trace::TRACEPARENT).and_then(|value| value.to_str().ok()) {
            Some(parent) => {
                let method = request.uri().path().trim_start_matches('/').to_owned();
                let span = crate::traced!("rpc", otel.name = method, otel.kind = "server");
                trace::set_parent(&span, parent);
                span
            }
            None => tracing::Span::none(),
        };
        Either::Right(Box::pin(self.inner.call(request).instrument(span)))
    }
}
