//! Bodies of answers on the secured port.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::{Body, Frame, SizeHint};

/// Why a body broke off.
pub(crate) type Failure = Box<dyn std::error::Error + Send + Sync>;
/// A body: whole, or made while it is sent.
pub(crate) type Answer = UnsyncBoxBody<Bytes, Failure>;

/// A body that holds something until it is sent.
pub(super) struct Held<T> {
    body: Answer,
    _held: T,
}

impl<T> Held<T> {
    pub(super) fn new(body: Answer, held: T) -> Self {
        Self { body, _held: held }
    }
}

impl<T: Unpin> Body for Held<T> {
    type Data = Bytes;
    type Error = Failure;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Failure>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
