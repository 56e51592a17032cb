//! Accepting connections, within bounds.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bulkhead_service::Check;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use super::answer::{Front, answer};
use super::patient::Patient;

/// Which of the two servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Port {
    /// 10248.
    Healthz,
    /// 10255.
    ReadOnly,
}

/// What a client may use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// Connections at a time; further ones wait to be accepted.
    pub(crate) connections: usize,
    /// For a whole request head to arrive, idle time before it included.
    pub(crate) head: Duration,
    /// For a write to get on.
    pub(crate) write: Duration,
}

/// Longest request head, in bytes.
const HEAD_BYTES: usize = 16 * 1024;
/// Most header lines.
const HEADERS: usize = 64;
/// Wait after a failed accept: it fails for want of file descriptors, and these must come back first.
const AFTER_FAILURE: Duration = Duration::from_millis(200);

impl Default for Bounds {
    fn default() -> Self {
        Self { connections: 256, head: Duration::from_secs(30), write: Duration::from_secs(10) }
    }
}

/// Serves `front` on `listener` for ever; dropping it closes the port. `check` is told when nothing can be accepted.
pub(crate) async fn serve(
    listener: TcpListener,
    port: Port,
    front: Arc<Front>,
    check: Check,
    bounds: Bounds,
) {
    let places = Arc::new(Semaphore::new(bounds.connections));
    let mut connections = tokio::task::JoinSet::new();
    let mut failing = false;
    loop {
        // The semaphore is never closed.
        let Ok(place) = places.clone().acquire_owned().await else { return };
        while connections.try_join_next().is_some() {}
        match listener.accept().await {
            Ok((stream, _)) => {
                if std::mem::take(&mut failing) {
                    check.good();
                }
                let front = front.clone();
                connections.spawn(async move {
                    connection(stream, port, front, bounds).await;
                    drop(place);
                });
            }
            Err(error) => {
                failing = true;
                check.bad(format!("no connection can be accepted on the {port:?} port: {error}"));
                tokio::time::sleep(AFTER_FAILURE).await;
            }
        }
    }
}

async fn connection(stream: TcpStream, port: Port, front: Arc<Front>, bounds: Bounds) {
    let service = service_fn(move |request| {
        let front = front.clone();
        async move { Ok::<_, Infallible>(answer(&front, port, &request).await) }
    });
    let io = TokioIo::new(Patient::new(stream, bounds.write));
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(bounds.head)
        .max_buf_size(HEAD_BYTES)
        .max_headers(HEADERS)
        .serve_connection(io, service)
        .await;
    if let Err(error) = served {
        // A client's doing: anybody could fill the log with it.
        tracing::debug!(%error, ?port, "connection ended");
    }
}
