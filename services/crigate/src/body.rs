//! An answer on its way back: frames and trailers as they come, and a gRPC status where the runtime leaves none.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bulkhead_ipc::status::to_status;
use bulkhead_ipc::trace;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use hyper::body::{Body, Frame, Incoming};
use tokio::sync::OwnedSemaphorePermit;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tonic::{Code, Status};
use tracing::Span;

use crate::ahead::{self, Ahead, Lost};
use crate::gate::Endpoint;

/// The body of an answer: empty (the default), or the runtime's.
#[derive(Default)]
pub struct ResponseBody(Option<Passing>);

/// The runtime's body.
pub enum Inner {
    /// Read as fast as the caller takes it.
    Answer(Incoming),
    /// Read as fast as it comes.
    Endless(Ahead<hyper::Error>),
}

/// An answer of the runtime while it passes.
pub struct Passing {
    /// The runtime's body.
    pub inner: Inner,
    /// Where it comes from.
    pub endpoint: Endpoint,
    /// The call's span; it ends with the body.
    pub span: Span,
    /// The call's place among those in flight; free again when the body is gone.
    pub _permit: OwnedSemaphorePermit,
    /// The place of a stream without an end.
    pub _stream: Option<OwnedSemaphorePermit>,
    /// Set for a stream without an end: it ends when this process does. Other answers may finish.
    pub stop: Option<Stop>,
}

/// Ends a stream.
pub struct Stop(Pin<Box<WaitForCancellationFutureOwned>>);

impl Stop {
    /// When `token` is cancelled.
    pub fn when(token: CancellationToken) -> Self {
        Self(Box::pin(token.cancelled_owned()))
    }
}

/// What ends a stream when this process stops.
pub fn stopping() -> Status {
    Status::unavailable("crigate is stopping: open the stream again")
}

/// The gRPC status in a head or in trailers.
pub fn status(headers: &HeaderMap) -> Option<&HeaderValue> {
    headers.get("grpc-status")
}

/// Whether a status is `code`.
pub fn is(status: &HeaderValue, code: Code) -> bool {
    Code::from_bytes(status.as_bytes()) == code
}

/// Notes a status other than OK on a span.
pub fn note(span: &Span, headers: &HeaderMap) {
    if let Some(status) = status(headers).filter(|status| !is(status, Code::Ok)) {
        // The code alone: texts of the runtime may hold what a pod wrote.
        trace::fail(span, &format_args!("{:?}", Code::from_bytes(status.as_bytes())));
    }
}

impl From<Passing> for ResponseBody {
    fn from(passing: Passing) -> Self {
        Self(Some(passing))
    }
}

impl Passing {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if let Some(stop) = &mut self.stop
            && stop.0.as_mut().poll(cx).is_ready()
        {
            return Poll::Ready(Some(Err(stopping())));
        }
        let frame = match &mut self.inner {
            Inner::Answer(answer) => {
                ready!(Pin::new(answer).poll_frame(cx)).map(|frame| frame.map_err(Lost::Broken))
            }
            Inner::Endless(ahead) => ready!(ahead.poll(cx)),
        };
        Poll::Ready(match frame {
            Some(Ok(frame)) => {
                if let Some(trailers) = frame.trailers_ref() {
                    note(&self.span, trailers);
                }
                Some(Ok(frame))
            }
            Some(Err(Lost::Overrun)) => {
                tracing::warn!("a stream of events was closed: its reader fell behind");
                Some(Err(ahead::overrun()))
            }
            Some(Err(Lost::Broken(error))) => {
                let error = self.endpoint.upstream.broken(error);
                trace::fail(&self.span, &bulkhead_base::chain(&error));
                Some(Err(to_status(&error)))
            }
            None => None,
        })
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    /// Only when a status cannot be written as trailers.
    type Error = Status;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = self.get_mut();
        let Some(passing) = &mut this.0 else { return Poll::Ready(None) };
        let frame = ready!(passing.poll(cx));
        Poll::Ready(match frame {
            Some(Ok(frame)) => Some(Ok(frame)),
            // A gRPC client gets a status that says why, instead of a reset that says nothing.
            Some(Err(status)) => {
                this.0 = None;
                let mut trailers = HeaderMap::new();
                Some(status.add_header(&mut trailers).map(|()| Frame::trailers(trailers)))
            }
            None => {
                this.0 = None;
                None
            }
        })
    }

    fn is_end_stream(&self) -> bool {
        self.0.as_ref().is_none_or(|passing| match &passing.inner {
            Inner::Answer(answer) => answer.is_end_stream(),
            Inner::Endless(_) => false,
        })
    }
}
