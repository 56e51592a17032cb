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

#[cfg(test)]
mod tests {
    use bulkhead_api::evictd::v1::evictd_client::EvictdClient;
    use bulkhead_api::syncd::v1::syncd_client::SyncdClient;
    use bulkhead_ipc::Mirror;
    use bulkhead_testkit::TestNode;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;
    use crate::health::board::{Board, Peers};
    use crate::http::requests::Requests;
    use crate::metrics::gather::Gatherer;
    use crate::pods::source::Pods;

    const BOUND: Duration = Duration::from_secs(10);

    /// A health port within `bounds`, and a connection to it.
    async fn connect(node: &TestNode, bounds: Bounds) -> (std::net::SocketAddr, TcpStream) {
        let context = node.context("gateway");
        let front = Front {
            health: Arc::new(Board::new(Peers::new(&context))),
            pods: Pods::new(SyncdClient::new(context.peer("syncd")), Mirror::detached()),
            evictd: EvictdClient::new(context.peer("evictd")),
            gatherer: Gatherer::new(&context),
            requests: Requests::new(&context.metrics),
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        tokio::spawn(serve(listener, Port::Healthz, Arc::new(front), context.check("http"), bounds));
        (at, TcpStream::connect(at).await.unwrap())
    }

    async fn ping(mut stream: TcpStream) -> String {
        stream
            .write_all(b"GET /healthz/ping HTTP/1.1\r\nhost: n\r\nconnection: close\r\n\r\n")
            .await
            .unwrap();
        let mut answer = String::new();
        tokio::time::timeout(BOUND, stream.read_to_string(&mut answer)).await.expect("an answer").unwrap();
        answer
    }

    #[tokio::test]
    async fn a_client_that_never_finishes_its_head_is_sent_away() {
        let node = TestNode::new().await;
        let bounds = Bounds { head: Duration::from_millis(100), ..Bounds::default() };
        let (_, mut slow) = connect(&node, bounds).await;
        slow.write_all(b"GET /healthz HTT").await.unwrap();
        let mut answer = Vec::new();
        tokio::time::timeout(BOUND, slow.read_to_end(&mut answer)).await.expect("it is closed").unwrap();
        assert!(!answer.starts_with(b"HTTP/1.1 200"), "{answer:?}");
    }

    #[tokio::test]
    async fn connections_beyond_the_bound_wait_for_their_turn() {
        let node = TestNode::new().await;
        let bounds = Bounds { connections: 1, ..Bounds::default() };
        let (at, mut first) = connect(&node, bounds).await;
        // Once it is answered it has the one place, and keeps it.
        first.write_all(b"GET /healthz/ping HTTP/1.1\r\nhost: n\r\n\r\n").await.unwrap();
        first.read_exact(&mut [0; 12]).await.unwrap();
        let second = tokio::spawn(ping(TcpStream::connect(at).await.unwrap()));
        let (mut probe, patience) = (TcpStream::connect(at).await.unwrap(), Duration::from_millis(300));
        probe.write_all(b"GET /healthz/ping HTTP/1.1\r\nhost: n\r\n\r\n").await.unwrap();
        let answered = tokio::time::timeout(patience, probe.read_exact(&mut [0; 12])).await;
        assert!(answered.is_err() && !second.is_finished(), "nobody else is served");
        drop((first, probe));
        assert!(second.await.unwrap().ends_with("ok"));
    }
}
