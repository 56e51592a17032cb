//! Bodies on their way: requests that may not grow too large, and answers that end when they should.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tokio::sync::OwnedSemaphorePermit;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use crate::limits;
use crate::upstream::Lease;

/// Why a body ends before its end. The connection, or the request on it, is reset.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    /// It grew too large.
    #[error("the body is larger than {0} bytes")]
    TooLarge(u64),
    /// It broke off.
    #[error("the body broke off")]
    Broken(#[source] hyper::Error),
}

/// A request's body.
pub enum RequestBody {
    /// A process'.
    Passing {
        /// The body.
        inner: Incoming,
        /// How much of it may still come.
        left: u64,
    },
    /// Ours.
    Own(Full<Bytes>),
}

/// An answer's body.
pub enum ResponseBody {
    /// Ours.
    Own(Full<Bytes>),
    /// The API server's.
    Passing(Box<Passing>),
    /// It is over.
    Over,
}

/// An answer of the API server while it passes.
pub struct Passing {
    /// The body.
    pub inner: Incoming,
    /// How much of it may still come; `None`: it has no end.
    pub left: Option<u64>,
    /// Set for an answer without an end: it ends when this process does. Others may finish.
    pub stop: Option<Stop>,
    /// The request's place on its connection.
    pub _lease: Lease,
    /// Its place among those of the process.
    pub _permit: OwnedSemaphorePermit,
}

/// Ends a stream.
pub struct Stop(Pin<Box<WaitForCancellationFutureOwned>>);

impl Stop {
    /// When `token` is cancelled.
    pub fn when(token: CancellationToken) -> Self {
        Self(Box::pin(token.cancelled_owned()))
    }
}

impl RequestBody {
    /// A process'.
    pub fn passing(inner: Incoming) -> Self {
        Self::Passing { inner, left: limits::REQUEST_BODY }
    }

    /// Ours.
    pub fn own(bytes: impl Into<Bytes>) -> Self {
        Self::Own(Full::new(bytes.into()))
    }
}

impl ResponseBody {
    /// Ours.
    pub fn own(bytes: impl Into<Bytes>) -> Self {
        Self::Own(Full::new(bytes.into()))
    }
}

/// Takes what came off what may come.
fn take(left: &mut u64, limit: u64, frame: Frame<Bytes>) -> Result<Frame<Bytes>, BodyError> {
    let size = frame.data_ref().map_or(0, |data| data.len() as u64);
    *left = left.checked_sub(size).ok_or(BodyError::TooLarge(limit))?;
    Ok(frame)
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        Poll::Ready(match self.get_mut() {
            Self::Own(bytes) => match ready!(Pin::new(bytes).poll_frame(cx)) {
                Some(Ok(frame)) => Some(Ok(frame)),
                Some(Err(never)) => match never {},
                None => None,
            },
            Self::Passing { inner, left } => {
                ready!(Pin::new(inner).poll_frame(cx)).map(|frame| match frame {
                    Ok(frame) => take(left, limits::REQUEST_BODY, frame),
                    Err(error) => Err(BodyError::Broken(error)),
                })
            }
        })
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Own(bytes) => bytes.is_end_stream(),
            Self::Passing { inner, .. } => inner.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Own(bytes) => bytes.size_hint(),
            Self::Passing { inner, .. } => inner.size_hint(),
        }
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        let frame = match this {
            Self::Own(bytes) => match ready!(Pin::new(bytes).poll_frame(cx)) {
                Some(Ok(frame)) => Some(Ok(frame)),
                Some(Err(never)) => match never {},
                None => None,
            },
            Self::Passing(passing) => ready!(passing.poll(cx)),
            Self::Over => None,
        };
        if !matches!(frame, Some(Ok(_))) {
            // Its places are free again at once, not only when the caller is done with it.
            *this = Self::Over;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Own(bytes) => bytes.is_end_stream(),
            Self::Passing(passing) => passing.inner.is_end_stream(),
            Self::Over => true,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Own(bytes) => bytes.size_hint(),
            Self::Passing(passing) => passing.inner.size_hint(),
            Self::Over => SizeHint::with_exact(0),
        }
    }
}

impl Passing {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        // A watch ends without an error now and then, and whoever watches opens it again.
        if self.stop.as_mut().is_some_and(|stop| stop.0.as_mut().poll(cx).is_ready()) {
            return Poll::Ready(None);
        }
        let frame = ready!(Pin::new(&mut self.inner).poll_frame(cx));
        Poll::Ready(frame.map(|frame| match (frame, &mut self.left) {
            (Ok(frame), Some(left)) => take(left, limits::ANSWER_BODY, frame),
            (Ok(frame), None) => Ok(frame),
            (Err(error), _) => Err(BodyError::Broken(error)),
        }))
    }
}
