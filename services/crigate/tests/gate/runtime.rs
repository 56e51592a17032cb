//! A runtime that answers bytes: whatever a test wants, and a record of what arrived.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::BodyExt;
use hyper::body::{Body, Frame, Incoming};
use hyper::server::conn::http2::Builder;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tempfile::TempDir;
use tokio::net::UnixListener;
use tokio_util::sync::CancellationToken;

/// A request as it arrived.
#[derive(Debug)]
pub struct Arrived {
    pub path: String,
    pub headers: HeaderMap,
    pub body: Bytes,
}

/// Frames at hand, sent one by one; then the stream ends, or stays open for ever.
pub struct Frames {
    frames: std::vec::IntoIter<Frame<Bytes>>,
    endless: bool,
}

impl Frames {
    /// These and no more.
    pub fn of(frames: Vec<Frame<Bytes>>) -> Self {
        Self { frames: frames.into_iter(), endless: false }
    }

    /// These, and then silence.
    pub fn then_silence(frames: Vec<Frame<Bytes>>) -> Self {
        Self { frames: frames.into_iter(), endless: true }
    }
}

impl Body for Frames {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let this = self.get_mut();
        match this.frames.next() {
            Some(frame) => Poll::Ready(Some(Ok(frame))),
            None if this.endless => Poll::Pending,
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        !self.endless && self.frames.len() == 0
    }
}

/// A server of bytes. Its answers are made by `answer`; while that is `None` calls hang.
pub struct ByteRuntime {
    directory: TempDir,
    arrived: Arc<Mutex<Vec<Arrived>>>,
    open: Arc<Mutex<usize>>,
    stop: CancellationToken,
}

type Make = dyn Fn(&str) -> Option<Response<Frames>> + Send + Sync;

/// Counts a request until it is answered or given up.
struct Open(Arc<Mutex<usize>>);

impl Open {
    fn new(count: Arc<Mutex<usize>>) -> Self {
        *count.lock().unwrap() += 1;
        Self(count)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        *self.0.lock().unwrap() -= 1;
    }
}

impl ByteRuntime {
    /// Starts it; `make` gets a path.
    pub fn start(make: impl Fn(&str) -> Option<Response<Frames>> + Send + Sync + 'static) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(directory.path().join("cri.sock")).unwrap();
        let runtime =
            Self { directory, arrived: Arc::default(), open: Arc::default(), stop: CancellationToken::new() };
        let (arrived, open, stop) = (runtime.arrived.clone(), runtime.open.clone(), runtime.stop.clone());
        let make: Arc<Make> = Arc::new(make);
        tokio::spawn(runtime.stop.clone().run_until_cancelled_owned(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (arrived, open, make) = (arrived.clone(), open.clone(), make.clone());
                let service =
                    service_fn(move |request| one(request, arrived.clone(), open.clone(), make.clone()));
                let connection = Builder::new(TokioExecutor::new())
                    .auto_date_header(false)
                    .max_concurrent_streams(4096)
                    .serve_connection(TokioIo::new(stream), service);
                tokio::spawn(stop.clone().run_until_cancelled_owned(connection));
            }
        }));
        runtime
    }

    pub fn socket(&self) -> std::path::PathBuf {
        self.directory.path().join("cri.sock")
    }

    /// What came since the last time.
    pub fn arrived(&self) -> Vec<Arrived> {
        std::mem::take(&mut *self.arrived.lock().unwrap())
    }

    /// Calls that hang.
    pub fn hanging(&self) -> usize {
        *self.open.lock().unwrap()
    }

    /// Drops every connection and closes the socket, as a killed process.
    pub fn kill(&self) {
        self.stop.cancel();
    }
}

impl Drop for ByteRuntime {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

async fn one(
    request: Request<Incoming>,
    arrived: Arc<Mutex<Vec<Arrived>>>,
    open: Arc<Mutex<usize>>,
    make: Arc<Make>,
) -> Result<Response<Frames>, hyper::Error> {
    let _open = Open::new(open);
    let (head, body) = request.into_parts();
    let path = head.uri.path().to_owned();
    let body = body.collect().await?.to_bytes();
    arrived.lock().unwrap().push(Arrived { path: path.clone(), headers: head.headers, body });
    match make(&path) {
        Some(response) => Ok(response),
        None => std::future::pending().await,
    }
}

/// An answer with gRPC's content type, these frames and an OK status.
pub fn good(mut frames: Vec<Frame<Bytes>>) -> Response<Frames> {
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", "0".parse().unwrap());
    frames.push(Frame::trailers(trailers));
    Response::builder().header("content-type", "application/grpc").body(Frames::of(frames)).unwrap()
}
