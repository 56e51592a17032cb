//! One connection to the runtime: made at the first call, made again after a loss, shared by the calls of one process.
//!
//! Each process has a connection of its own, so that answers which one does not read hold up nobody else's.

use std::convert::Infallible;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bulkhead_base::Backoff;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{Either, Full};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::net::UnixStream;
use tokio::sync::{Mutex, OwnedSemaphorePermit};
use tokio::time::{Instant, timeout};

use crate::error::{Cause, Unavailable};
use crate::limits;

/// A request's body: streamed through as it comes, or bytes at hand.
pub type RequestBody = Either<Incoming, Held>;

/// Bytes at hand, with their place among those that may be held.
pub struct Held {
    bytes: Full<Bytes>,
    _place: Option<OwnedSemaphorePermit>,
}

impl Held {
    /// Bytes that take no place.
    pub fn free(bytes: Bytes) -> Self {
        Self { bytes: Full::new(bytes), _place: None }
    }

    /// Bytes that keep their place until they are sent.
    pub fn with(bytes: Bytes, place: OwnedSemaphorePermit) -> Self {
        Self { bytes: Full::new(bytes), _place: Some(place) }
    }
}

impl Body for Held {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Pin::new(&mut self.get_mut().bytes).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.bytes.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.bytes.size_hint()
    }
}

/// The connection.
pub struct Upstream {
    socket: Arc<Path>,
    link: Mutex<Link>,
}

struct Link {
    sender: Option<SendRequest<RequestBody>>,
    backoff: Backoff,
    /// The last failure, and until when it is the answer to further calls.
    failed: Option<(Instant, Unavailable)>,
}

impl Upstream {
    /// To `socket`, not connected yet.
    pub fn new(socket: Arc<Path>) -> Self {
        let backoff = Backoff::new(limits::RECONNECT.0, limits::RECONNECT.1);
        Self { socket, link: Mutex::new(Link { sender: None, backoff, failed: None }) }
    }

    /// Sends a request; returns when the head of the answer is there. A runtime that is away is an error at once; one that
    /// takes the request and says nothing is waited for, since only the caller knows for how long: dropping the future
    /// resets the call.
    ///
    /// # Errors
    /// When the runtime cannot be reached, or the call broke off before there was an answer.
    pub async fn send(&self, request: Request<RequestBody>) -> Result<Response<Incoming>, Unavailable> {
        let mut error = match self.sender().await?.try_send_request(request).await {
            Ok(response) => return Ok(response),
            Err(error) => error,
        };
        // The connection ended before the request was on it, as after a restart of the runtime: a new one may be had.
        let Some(unsent) = error.take_message() else { return Err(self.broken(error.into_error())) };
        let again = self.sender().await?.try_send_request(unsent).await;
        again.map_err(|error| self.broken(error.into_error()))
    }

    /// The error of an answer that broke off.
    pub fn broken(&self, error: hyper::Error) -> Unavailable {
        self.unavailable(Cause::Broken(error))
    }

    /// An error about this runtime.
    pub fn unavailable(&self, cause: Cause) -> Unavailable {
        Unavailable { socket: self.socket.clone(), cause: Arc::new(cause) }
    }

    async fn sender(&self) -> Result<SendRequest<RequestBody>, Unavailable> {
        // Held while connecting, at most `limits::CONNECT`: the others want the same connection.
        let mut link = self.link.lock().await;
        if let Some(sender) = &link.sender
            && !sender.is_closed()
        {
            return Ok(sender.clone());
        }
        link.sender = None;
        if let Some((until, error)) = &link.failed
            && Instant::now() < *until
        {
            return Err(error.clone());
        }
        match connect(&self.socket).await {
            Ok(sender) => {
                link.backoff.reset();
                link.failed = None;
                link.sender = Some(sender.clone());
                Ok(sender)
            }
            Err(cause) => {
                let error = self.unavailable(cause);
                let until = Instant::now() + link.backoff.next_delay();
                link.failed = Some((until, error.clone()));
                Err(error)
            }
        }
    }
}

async fn connect(socket: &Path) -> Result<SendRequest<RequestBody>, Cause> {
    let stream = timeout(limits::CONNECT, UnixStream::connect(socket)).await.map_err(|_| Cause::Stuck)?;
    let stream = stream.map_err(Cause::Connect)?;
    let (sender, connection) = Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .initial_stream_window_size(limits::STREAM_WINDOW)
        .initial_connection_window_size(limits::ANSWER_WINDOW)
        .max_header_list_size(limits::ANSWER_HEADERS)
        .max_send_buf_size(limits::SEND_BUFFER)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(Cause::Broken)?;
    // Ends when the runtime closes it, or when the last sender is gone.
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(error = %bulkhead_base::chain(&error), "connection to the runtime ended");
        }
    });
    Ok(sender)
}
