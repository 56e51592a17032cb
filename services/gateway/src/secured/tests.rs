//! What clients may take of the server's time and places.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bulkhead_api::evictd::v1::evictd_client::EvictdClient;
use bulkhead_api::syncd::v1::syncd_client::SyncdClient;
use bulkhead_cri::StreamClient;
use bulkhead_ipc::Mirror;
use bulkhead_testkit::TestNode;
use bulkhead_testkit::certificates::Authority;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::answer::Site;
use super::server::{Bounds, serve};
use crate::auth::{Guard, Reviews};
use crate::config::Settings;
use crate::health::board::{Board, Peers};
use crate::http::answer::Front;
use crate::http::requests::Requests;
use crate::logs::Logs;
use crate::metrics::gather::Gatherer;
use crate::pods::source::Pods;
use crate::stream::Streams;
use crate::tls::Tls;

const BOUND: Duration = Duration::from_secs(10);
const SHORT: Duration = Duration::from_millis(200);

struct Bench {
    _node: TestNode,
    authority: Authority,
    at: SocketAddr,
}

/// A secured port within `bounds`, open to everybody.
async fn bench(bounds: Bounds) -> Bench {
    let node = TestNode::new().await;
    let context = node.context("gateway");
    let mut settings = Settings::new(&node.config, "node-a", node.dir());
    settings.access.rights = None;
    settings.access.anonymous = true;
    let authority = Authority::new();
    let own = authority.server(&["127.0.0.1"]);
    std::fs::write(&settings.tls.certificate, own.certificate).unwrap();
    std::fs::write(&settings.tls.key, own.key).unwrap();
    let tls = Tls::new(&settings.tls).unwrap();
    tls.keep(settings.tls.clone(), context.check("certificates"), node.shutdown.clone()).await;
    let pods = Pods::new(SyncdClient::new(context.peer("syncd")), Mirror::detached());
    let front = Front {
        health: Arc::new(Board::new(Peers::new(&context))),
        pods: pods.clone(),
        evictd: EvictdClient::new(context.peer("evictd")),
        gatherer: Gatherer::new(&context),
        requests: Requests::new(&context.metrics),
    };
    let (clock, stop) = (context.clock.clone(), node.shutdown.clone());
    let reviews = Reviews::new(bulkhead_kubeapi::over_socket(&context.api_socket(), None));
    let cri = StreamClient::new(context.cri_channel());
    let site = Site {
        guard: Guard::new(settings.access, false, tls.authorities.clone(), reviews, clock.clone()),
        front: Arc::new(front),
        logs: Logs::new(settings.pod_logs_dir, pods.clone(), Mirror::detached(), clock.clone(), stop.clone()),
        streams: Streams::new(pods, Mirror::detached(), cri, settings.idle, stop.clone()),
        runtime: Mirror::detached(),
        offers: settings.offers,
        config: context.config.clone(),
        flags: Vec::new(),
        started: clock.now(),
        clock,
        patience: settings.idle,
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    tokio::spawn(serve(listener, tls.config, Arc::new(site), context.check("port"), bounds, stop));
    Bench { _node: node, authority, at }
}

impl Bench {
    async fn connect(&self) -> TlsStream<TcpStream> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.authority.pem().as_bytes()).unwrap()).unwrap();
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let stream = TcpStream::connect(self.at).await.unwrap();
        let name = ServerName::try_from("127.0.0.1").unwrap();
        TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap()
    }
}

/// Reads until the other side ends it, however.
async fn ended(stream: &mut (impl AsyncReadExt + Unpin)) -> Vec<u8> {
    let mut got = Vec::new();
    let end = tokio::time::timeout(BOUND, stream.read_to_end(&mut got)).await;
    // Reset, or without a last word: it ended.
    let _ = end.expect("it is ended");
    got
}

const PING: &[u8] = b"GET /healthz/ping HTTP/1.1\r\nhost: n\r\n\r\n";

#[tokio::test]
async fn whoever_never_finishes_a_handshake_or_a_head_is_sent_away() {
    let bench = bench(Bounds { handshake: SHORT, head: SHORT, ..Bounds::default() }).await;
    let mut silent = TcpStream::connect(bench.at).await.unwrap();
    ended(&mut silent).await;
    let mut half = TcpStream::connect(bench.at).await.unwrap();
    half.write_all(&[0x16, 3, 1, 2, 0, 1]).await.unwrap();
    ended(&mut half).await;
    let mut nonsense = TcpStream::connect(bench.at).await.unwrap();
    nonsense.write_all(PING).await.unwrap();
    assert!(!ended(&mut nonsense).await.starts_with(b"HTTP"), "no plain text here");
    let mut slow = bench.connect().await;
    slow.write_all(b"GET /healthz/ping HTT").await.unwrap();
    assert!(!ended(&mut slow).await.starts_with(b"HTTP/1.1 200"));
}

#[tokio::test]
async fn idle_connections_end_and_drops_do_not_keep_them() {
    let bench = bench(Bounds { idle: (SHORT, SHORT), ..Bounds::default() }).await;
    let mut known = bench.connect().await;
    known.write_all(PING).await.unwrap();
    assert!(
        ended(&mut known).await.starts_with(b"HTTP/1.1 200"),
        "it is answered, and ended when it is idle"
    );
    // A byte now and then is no request.
    let mut slow = bench.connect().await;
    let drip = async {
        for byte in PING.iter().chain(b"x".repeat(1000).iter()) {
            if slow.write_all(&[*byte]).await.is_err() {
                return;
            }
            tokio::time::sleep(SHORT / 2).await;
        }
        panic!("it was let go on");
    };
    tokio::time::timeout(2 * BOUND, drip).await.expect("it is ended");
}

#[tokio::test]
async fn heads_are_bounded() {
    let bench = bench(Bounds::default()).await;
    let mut stream = bench.connect().await;
    let long = format!("GET /healthz/ping HTTP/1.1\r\nhost: n\r\nx: {}\r\n\r\n", "x".repeat(300 * 1024));
    // It may be refused before all of it is taken.
    let _ = stream.write_all(long.as_bytes()).await;
    let got = ended(&mut stream).await;
    assert!(got.is_empty() || got.starts_with(b"HTTP/1.1 431"), "{}", String::from_utf8_lossy(&got));
    let mut other = bench.connect().await;
    other
        .write_all(b"POST /healthz/ping HTTP/1.1\r\nhost: n\r\ncontent-length: 1000000000\r\n\r\n")
        .await
        .unwrap();
    let mut code = [0; 12];
    tokio::time::timeout(BOUND, other.read_exact(&mut code)).await.expect("an answer").unwrap();
    assert_eq!(&code, b"HTTP/1.1 200", "bodies are not waited for");
}
