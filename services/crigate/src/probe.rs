//! Asks the runtime whether it is there when nobody else got an answer from it: the one call that is the gate's own.

use std::time::Duration;

use bulkhead_reconcile::{LoopStatus, Next, Reconciler, Trigger, drive, wake};
use bytes::Bytes;
use http::{HeaderValue, Request, Uri, header};
use http_body_util::Either;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tonic::Code;

use crate::body;
use crate::error::{Cause, Unavailable};
use crate::health::RuntimeHealth;
use crate::limits;
use crate::upstream::{Held, RequestBody, Upstream};

/// An empty VersionRequest: no compression, length 0.
const EMPTY_MESSAGE: &[u8] = &[0; 5];

struct Probe {
    upstream: Upstream,
    health: RuntimeHealth,
}

/// Watches one socket of the runtime until `shutdown`.
pub fn spawn(upstream: Upstream, health: RuntimeHealth, shutdown: CancellationToken) {
    let (_, wake) = wake();
    let (status, _) = watch::channel(LoopStatus::default());
    tokio::spawn(drive(Probe { upstream, health }, wake, status, shutdown.cancelled_owned()));
}

impl Reconciler for Probe {
    const NAME: &'static str = "runtime-probe";

    fn interval(&self) -> Duration {
        limits::QUIET
    }

    async fn reconcile(&mut self, _: Trigger) -> Next {
        if !self.health.is_quiet() {
            return Next::Wait;
        }
        match self.ask().await {
            Ok(()) => {
                self.health.answered();
                Next::Wait
            }
            // Not `Failed`: health tells about it once, and a runtime that is away is no fault of this loop.
            Err(error) => {
                self.health.failed(&error);
                Next::After(limits::PROBE)
            }
        }
    }
}

impl Probe {
    async fn ask(&self) -> Result<(), Unavailable> {
        let answer = timeout(limits::PROBE, self.upstream.send(version())).await;
        let head = answer.map_err(|_| self.upstream.unavailable(Cause::Silent))??;
        match body::status(head.headers()) {
            Some(status) if body::is(status, Code::Unimplemented) => {
                let status = String::from_utf8_lossy(status.as_bytes()).into_owned();
                Err(self.upstream.unavailable(Cause::NoCri(status)))
            }
            _ => Ok(()),
        }
    }
}

fn version() -> Request<RequestBody> {
    let mut request = Request::new(Either::Right(Held::free(Bytes::from_static(EMPTY_MESSAGE))));
    *request.method_mut() = http::Method::POST;
    *request.uri_mut() = Uri::from_static("http://localhost/runtime.v1.RuntimeService/Version");
    let headers = request.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    headers.insert(header::TE, HeaderValue::from_static("trailers"));
    request
}
