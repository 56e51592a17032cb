//! Accepting TLS connections, within bounds.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bulkhead_service::Check;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use rustix::net::sockopt;
use rustls::ServerConfig;
use rustls::pki_types::CertificateDer;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::answer::{Caller, Site};
use super::body::Held;
use super::crowd::{Crowd, Place};
use crate::http::patient::{Patience, Patient};

/// What clients may use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// Connections at a time, sessions of exec and the like not among them.
    pub(crate) connections: usize,
    /// For a TLS handshake.
    pub(crate) handshake: Duration,
    /// For a whole request head to arrive (HTTP/1.1), idle time before it included.
    pub(crate) head: Duration,
    /// For a write to get on, before it is known who reads.
    pub(crate) write: Duration,
    /// Without a request: of who never showed who he is, and of who did.
    pub(crate) idle: (Duration, Duration),
}

/// Longest request head, in bytes: a command of exec is in it, and a token.
const HEAD_BYTES: usize = 128 * 1024;
/// Most header lines (HTTP/1.1).
const HEADERS: usize = 100;
/// Requests at a time on one connection (HTTP/2).
const STREAMS: u32 = 100;
/// How often a quiet connection is asked whether anybody is there (HTTP/2), and how long the answer may take.
const PING: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(20));
/// For a connection to end when it is told to.
const LAST: Duration = Duration::from_secs(5);
/// Wait after a failed accept: it fails for want of file descriptors, and these must come back first.
const AFTER_FAILURE: Duration = Duration::from_millis(200);
/// When a silent peer is asked by TCP, how often then, and how many questions are enough.
const KEEP_ALIVE: (Duration, Duration, u32) = (Duration::from_secs(60), Duration::from_secs(15), 4);

impl Default for Bounds {
    fn default() -> Self {
        Self {
            connections: 512,
            handshake: Duration::from_secs(10),
            head: Duration::from_secs(90),
            write: Duration::from_secs(10),
            idle: (Duration::from_secs(30), Duration::from_secs(90)),
        }
    }
}

/// Serves `site` on `listener` until `shutdown`. `check` is told when nothing can be accepted.
pub(crate) async fn serve(
    listener: TcpListener,
    tls: Arc<ServerConfig>,
    site: Arc<Site>,
    check: Check,
    bounds: Bounds,
    shutdown: CancellationToken,
) {
    let acceptor = TlsAcceptor::from(tls);
    let crowd = Crowd::new(bounds.connections);
    let mut failing = false;
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = shutdown.cancelled() => return,
        };
        match accepted {
            Ok((stream, _)) => {
                if std::mem::take(&mut failing) {
                    check.good();
                }
                // Without a place it is closed at once: it would only wait.
                let Some(place) = crowd.enter() else { continue };
                let (acceptor, site, shutdown) = (acceptor.clone(), site.clone(), shutdown.clone());
                tokio::spawn(async move {
                    let leave = place.leave.clone();
                    tokio::select! {
                        () = connection(stream, acceptor, site, place, bounds) => {}
                        () = leave.cancelled() => {}
                        () = shutdown.cancelled() => {}
                    }
                });
            }
            Err(error) => {
                failing = true;
                check.bad(format!("no connection can be accepted on the secured port: {error}"));
                sleep(AFTER_FAILURE).await;
            }
        }
    }
}

async fn connection(
    stream: TcpStream,
    acceptor: TlsAcceptor,
    site: Arc<Site>,
    place: Arc<Place>,
    bounds: Bounds,
) {
    keep_alive(&stream);
    let _ = stream.set_nodelay(true);
    let patience = Patience::new(bounds.write);
    let stream = Patient::with(stream, patience.clone());
    // A client's doing in all that fails here: anybody could fill the log with it.
    let tls = match timeout(bounds.handshake, acceptor.accept(stream)).await {
        Ok(Ok(tls)) => tls,
        Ok(Err(error)) => return tracing::debug!(%error, "no TLS connection"),
        Err(_) => return tracing::debug!("no TLS connection in time"),
    };
    let chain: Arc<[CertificateDer<'static>]> =
        tls.get_ref().1.peer_certificates().unwrap_or_default().into();
    let requests = place.clone();
    let service = service_fn(move |request| {
        let (site, chain, busy) = (site.clone(), chain.clone(), requests.begin());
        let (place, patience) = (requests.clone(), patience.clone());
        async move {
            let let_in = move |longest| {
                place.known();
                patience.set(longest);
            };
            let answer = site.answer(request, Caller { chain: &chain, let_in: &let_in }).await;
            Ok::<_, Infallible>(answer.map(|body| Held::new(body, busy)))
        }
    });
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(bounds.head)
        .max_buf_size(HEAD_BYTES)
        .max_headers(HEADERS);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS)
        .max_header_list_size(u32::try_from(HEAD_BYTES).unwrap_or(u32::MAX))
        .keep_alive_interval(PING.0)
        .keep_alive_timeout(PING.1);
    let mut serving = pin!(builder.serve_connection_with_upgrades(TokioIo::new(tls), service));
    let served = tokio::select! {
        served = serving.as_mut() => served,
        () = idle(&place, bounds.idle) => {
            serving.as_mut().graceful_shutdown();
            timeout(LAST, serving).await.unwrap_or(Ok(()))
        }
    };
    if let Err(error) = served {
        tracing::debug!(%error, "connection to the secured port ended");
    }
}

/// Ends when nothing went on for too long.
async fn idle(place: &Place, (stranger, known): (Duration, Duration)) {
    loop {
        let now = Instant::now();
        let until = match place.idle() {
            Some((since, is_known)) => since + if is_known { known } else { stranger },
            None => now + known,
        };
        if until <= now {
            return;
        }
        sleep_until(until).await;
    }
}

/// A peer that vanished without a word must not hold a session for hours.
fn keep_alive(stream: &TcpStream) {
    let (after, every, times) = KEEP_ALIVE;
    let set = sockopt::set_socket_keepalive(stream, true)
        .and_then(|()| sockopt::set_tcp_keepidle(stream, after))
        .and_then(|()| sockopt::set_tcp_keepintvl(stream, every))
        .and_then(|()| sockopt::set_tcp_keepcnt(stream, times));
    if let Err(error) = set {
        tracing::debug!(%error, "a connection cannot be kept alive");
    }
}
