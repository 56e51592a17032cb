//! Handlers against small servers on this machine, and against a runtime that answers what it is told.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bulkhead_cri::{CriError, ExecOutput};
use bulkhead_model::probe::{GrpcMode, HttpHeader, HttpScheme, ProbeKind, ProbeOutcome};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::service::TowerToHyperService;
use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;
use tonic::{Code, Status};

use super::*;
use crate::report::MESSAGE_BYTES;
use crate::testing::exec_spec;
use ProbeOutcome::{Failure, Success, Unknown};

/// Longest wait for something that will happen.
const BOUND: Duration = Duration::from_secs(10);

#[derive(Clone)]
struct Runtime {
    answer: Result<ExecOutput, Code>,
    hangs: bool,
    alive: bool,
}

impl Exec for Runtime {
    async fn exec_sync(&self, id: &str, _: &[String], _: Duration) -> Result<ExecOutput, CriError> {
        if self.hangs {
            std::future::pending::<()>().await;
        }
        let status = |code| Status::new(code, "s");
        self.answer.clone().map_err(|code| CriError {
            method: "ExecSync",
            subject: id.into(),
            status: status(code),
        })
    }
}

impl Ping for Runtime {
    async fn answers(&self) -> bool {
        self.alive
    }
}

fn runtime(answer: Result<ExecOutput, Code>) -> Runtime {
    Runtime { answer, hangs: false, alive: true }
}

async fn run_on(runtime: Runtime, handler: Handler, address: Address) -> Report {
    let handlers = ProbeHandlers::new(runtime.clone(), runtime, || [127, 0, 0, 1].into()).unwrap();
    let spec = ProbeSpec { handler, timeout: Duration::from_secs(5), ..exec_spec(ProbeKind::Readiness) };
    handlers.run(&Job { container_id: "id".into(), spec, address }).await
}

async fn run(handler: Handler) -> Report {
    run_on(runtime(Err(Code::Unimplemented)), handler, Address::Pod("127.0.0.1".into())).await
}

fn get(port: u16, path: &str) -> Handler {
    Handler::Http { scheme: HttpScheme::Http, host: None, port, path: path.into(), headers: Vec::new() }
}

/// Answers each request's head with what `answer` makes of its path, and passes the head on.
struct Web {
    port: u16,
    heads: mpsc::UnboundedReceiver<String>,
    open: Arc<AtomicUsize>,
}

async fn web(answer: impl Fn(&str) -> Vec<u8> + Send + Sync + 'static) -> Web {
    let (listener, port) = listen().await;
    let (sender, heads) = mpsc::unbounded_channel();
    let open = Arc::new(AtomicUsize::new(0));
    let (answer, count) = (Arc::new(answer), open.clone());
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (answer, sender, count) = (answer.clone(), sender.clone(), count.clone());
            count.fetch_add(1, Ordering::SeqCst);
            tokio::spawn(async move {
                serve(stream, &*answer, &sender).await;
                count.fetch_sub(1, Ordering::SeqCst);
            });
        }
    });
    Web { port, heads, open }
}

/// Serves one request, then holds the connection until the client closes it.
async fn serve<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: S,
    answer: &(impl Fn(&str) -> Vec<u8> + ?Sized),
    heads: &mpsc::UnboundedSender<String>,
) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => return,
        }
    }
    let head = String::from_utf8(head).unwrap();
    let path = head.split(' ').nth(1).unwrap().to_owned();
    let _ = heads.send(head);
    let _ = stream.write_all(&answer(&path)).await;
    let _ = stream.read_to_end(&mut Vec::new()).await;
}

async fn listen() -> (TcpListener, u16) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, port)
}

/// A port that nobody listens on.
async fn closed_port() -> u16 {
    listen().await.1
}

fn status(code: u16) -> Vec<u8> {
    format!("HTTP/1.1 {code} X\r\nContent-Length: 2\r\n\r\nok").into_bytes()
}

fn redirect(to: &str) -> Vec<u8> {
    format!("HTTP/1.1 302 Found\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n").into_bytes()
}

#[tokio::test]
async fn the_status_decides() {
    let server = web(|path| status(path.trim_start_matches('/').parse().unwrap())).await;
    // 301 and 304 without a Location are answers like others.
    for (code, outcome) in [
        (200, Success),
        (204, Success),
        (301, Success),
        (304, Success),
        (399, Success),
        (400, Failure),
        (500, Failure),
    ] {
        let report = run(get(server.port, &format!("/{code}"))).await;
        assert_eq!(report.outcome, outcome, "{code}: {report:?}");
        if outcome == Failure {
            assert_eq!(report.message, format!("HTTP probe failed with statuscode: {code}"));
        }
    }
}

#[tokio::test]
async fn redirects_are_followed_on_the_same_host_only() {
    let other = web(|_| status(200)).await;
    let other_port = other.port;
    let server = web(move |path| match path {
        "/a" => redirect("/ok"),
        "/b" => redirect("bad"),
        "/c" => redirect("http://user:s3cret@example.invalid/?s3cret"),
        "/d" => redirect("/d"),
        "/f" => redirect(&format!("http://127.0.0.1:{other_port}/")),
        "/g" => redirect("ftp://127.0.0.1/"),
        "/h" => redirect("https://127.0.0.2/"),
        "/ok" => status(200),
        "/9" => redirect("/ok"),
        "/bad" => status(500),
        path => redirect(&format!("/{}", path.trim_start_matches('/').parse::<u32>().unwrap() + 1)),
    })
    .await;
    let table = [
        ("/a", Success, ""),
        ("/b", Failure, "HTTP probe failed with statuscode: 500"),
        (
            "/c",
            Success,
            "Probe terminated redirects, Response body: <a href=\"http://example.invalid/\">Found</a>.",
        ),
        ("/d", Failure, "stopped after 10 redirects"),
        ("/f", Success, ""),
        ("/g", Failure, "scheme \"ftp\" is not HTTP"),
        (
            "/h",
            Success,
            "Probe terminated redirects, Response body: <a href=\"https://127.0.0.2/\">Found</a>.",
        ),
        ("/0", Success, ""),
    ];
    for (path, outcome, message) in table {
        let report = run(get(server.port, path)).await;
        assert_eq!(report.outcome, outcome, "{path}: {report:?}");
        assert!(
            report.message.ends_with(message) && report.message.is_empty() == message.is_empty(),
            "{report:?}"
        );
    }
    let gone = tokio::time::timeout(BOUND, async {
        while server.open.load(Ordering::SeqCst) + other.open.load(Ordering::SeqCst) > 0 {
            tokio::task::yield_now().await;
        }
    });
    assert!(gone.await.is_ok(), "no connection stays open");
}

#[tokio::test]
async fn requests_look_like_a_kubelets() {
    let mut server = web(|path| if path == "/from" { redirect("/to") } else { status(200) }).await;
    let header = |name: &str, value: &str| HttpHeader { name: name.into(), value: value.into() };
    let handler = |headers| Handler::Http {
        scheme: HttpScheme::Http,
        host: None,
        port: server.port,
        path: "/from?a=b c#d".into(),
        headers,
    };
    assert_eq!(run(handler(Vec::new())).await, Report::success());
    let port = server.port;
    let expected = format!(
        "GET /from?a=b%20c HTTP/1.1\r\nUser-Agent: kube-probe/1.37\r\nAccept: */*\r\nConnection: close\r\n\
         Host: 127.0.0.1:{port}\r\n\r\n"
    );
    assert_eq!(server.heads.recv().await.unwrap(), expected);

    let headers = vec![header("Host", "web.test"), header("X-Token", "s3cret"), header("Accept", "")];
    let Handler::Http { scheme, host, port, .. } = handler(Vec::new()) else { panic!() };
    let handler = Handler::Http { scheme, host, port, path: "/from".into(), headers };
    assert_eq!(run(handler).await, Report::success());
    for path in ["/from", "/to"] {
        let expected = format!(
            "GET {path} HTTP/1.1\r\nX-Token: s3cret\r\nUser-Agent: kube-probe/1.37\r\nConnection: close\r\n\
             Host: web.test\r\n\r\n"
        );
        assert_eq!(
            server.heads.recv().await.unwrap(),
            expected,
            "a relative redirect stays with the named host"
        );
    }
    let bad = Handler::Http {
        scheme,
        host: None,
        port,
        path: "/".into(),
        headers: vec![header("X-Token", "s3cret\n1")],
    };
    let report = run(bad).await;
    assert_eq!(report.outcome, Failure);
    assert!(report.message.contains("X-Token") && !report.message.contains("s3cret"), "{report:?}");
}

#[tokio::test]
async fn bodies_are_read_in_part_and_within_the_time_out() {
    let server = web(|path| {
        let (length, body) = match path {
            "/huge" => (1 << 20, vec![b'x'; 1 << 20]),
            "/endless" => (1_u64 << 40, vec![b'x'; 1 << 20]),
            _ => (100, vec![b'x'; 10]),
        };
        let mut answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n").into_bytes();
        answer.extend(body);
        answer
    })
    .await;
    assert_eq!(run(get(server.port, "/huge")).await, Report::success());
    assert_eq!(run(get(server.port, "/endless")).await, Report::success());
    // The server keeps the connection open and sends no more: the time-out covers the body.
    let report = run_with_timeout(get(server.port, "/short"), Duration::from_millis(200)).await;
    assert_eq!(report.outcome, Failure);
    assert!(report.message.contains("no answer within 200ms"), "{report:?}");
}

async fn run_with_timeout(handler: Handler, timeout: Duration) -> Report {
    let runtime = runtime(Err(Code::Unimplemented));
    let handlers = ProbeHandlers::new(runtime.clone(), runtime, || [127, 0, 0, 1].into()).unwrap();
    let spec = ProbeSpec { handler, timeout, ..exec_spec(ProbeKind::Readiness) };
    handlers.run(&Job { container_id: "id".into(), spec, address: Address::Pod("127.0.0.1".into()) }).await
}

#[tokio::test]
async fn a_server_that_is_slow_closed_or_no_web_server_fails() {
    let mute = web(|_| Vec::new()).await;
    let report = run_with_timeout(get(mute.port, "/x?s3cret"), Duration::from_millis(200)).await;
    let port = mute.port;
    assert_eq!(report, Report::failure(format!("GET http://127.0.0.1:{port}/x: no answer within 200ms")));

    let port = closed_port().await;
    let report = run(get(port, "/")).await;
    assert_eq!(report.outcome, Failure);
    assert!(report.message.contains(&format!("cannot connect to 127.0.0.1:{port}: ")), "{report:?}");

    let garbage = web(|_| b"\0\x1b[31mnonsense\r\n\r\n".to_vec()).await;
    assert_eq!(run(get(garbage.port, "/")).await.outcome, Failure);
    let endless_head =
        web(|_| b"HTTP/1.1 200 OK\r\n".iter().chain([b'x'; 1 << 20].iter()).copied().collect()).await;
    assert_eq!(run(get(endless_head.port, "/")).await.outcome, Failure);
}

#[tokio::test]
async fn hosts_are_the_pods_the_nodes_or_the_named_one() {
    let server = web(|_| status(200)).await;
    let port = server.port;
    let outcome = async |named: Option<&str>, address| {
        let handler = Handler::Http {
            scheme: HttpScheme::Http,
            host: named.map(Into::into),
            port,
            path: "/".into(),
            headers: Vec::new(),
        };
        run_on(runtime(Err(Code::Unimplemented)), handler, address).await.outcome
    };
    let nobody = || Address::Pod("not an address".into());
    assert_eq!(outcome(None, Address::Node).await, Success);
    assert_eq!(outcome(Some("127.0.0.1"), nobody()).await, Success);
    assert_eq!(outcome(Some("localhost"), nobody()).await, Success);
    assert_eq!(outcome(Some("does-not-exist.invalid"), Address::Node).await, Failure);
    assert_eq!(outcome(None, nobody()).await, Failure);
    assert_eq!(outcome(None, Address::Missing).await, Unknown);
}

#[tokio::test]
async fn tcp_needs_a_connection_and_no_more() {
    let server = web(|_| Vec::new()).await;
    assert_eq!(run(Handler::Tcp { host: None, port: server.port }).await, Report::success());
    let report = run(Handler::Tcp { host: None, port: closed_port().await }).await;
    assert_eq!(report.outcome, Failure);
    assert!(report.message.starts_with("cannot connect to 127.0.0.1:"), "{report:?}");
}

/// A TLS server whose certificate names another host and has expired.
fn acceptor(protocols: &[&[u8]]) -> TlsAcceptor {
    let certificate = CertificateDer::from_slice(include_bytes!("testdata/wrong-cert.der"));
    let key =
        PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(include_bytes!("testdata/test-key.der").to_vec()));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    TlsAcceptor::from(Arc::new(config))
}

#[tokio::test]
async fn https_takes_any_certificate() {
    let (listener, port) = listen().await;
    let acceptor = acceptor(&[b"h2", b"http/1.1"]);
    let (sender, _heads) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            // A client that speaks plain text fails here.
            let Ok(stream) = acceptor.accept(stream).await else { continue };
            serve(stream, &|_: &str| status(200), &sender).await;
        }
    });
    let https = |port| Handler::Http {
        scheme: HttpScheme::Https,
        host: None,
        port,
        path: "/".into(),
        headers: Vec::new(),
    };
    assert_eq!(run(https(port)).await, Report::success());
    assert_eq!(run(get(port, "/")).await.outcome, Failure, "plain text to a TLS port");
    let plain = web(|_| status(200)).await;
    let report = run_with_timeout(https(plain.port), Duration::from_millis(300)).await;
    assert_eq!(report.outcome, Failure, "TLS to a plain-text port");
    let web = web(move |_| redirect(&format!("https://127.0.0.1:{port}/"))).await;
    assert_eq!(run(get(web.port, "/")).await, Report::success(), "from HTTP to HTTPS on the same host");
}

async fn health_server(tls: Option<TlsAcceptor>) -> u16 {
    let (listener, port) = listen().await;
    let (reporter, service) = tonic_health::server::health_reporter();
    reporter.set_service_status("good", tonic_health::ServingStatus::Serving).await;
    reporter.set_service_status("bad", tonic_health::ServingStatus::NotServing).await;
    let routes = tonic::service::Routes::new(service);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (routes, tls) = (routes.clone(), tls.clone());
            tokio::spawn(async move {
                let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                let service = TowerToHyperService::new(routes);
                let _ = match tls {
                    None => server.serve_connection(TokioIo::new(stream), service).await,
                    Some(tls) => match tls.accept(stream).await {
                        Ok(stream) => server.serve_connection(TokioIo::new(stream), service).await,
                        Err(_) => return,
                    },
                };
            });
        }
    });
    port
}

fn grpc(port: u16, service: &str, mode: GrpcMode) -> Handler {
    Handler::Grpc { port, service: service.into(), mode }
}

#[tokio::test]
async fn grpc_asks_the_health_service() {
    use GrpcMode::{Plaintext, Tls};
    let plain = health_server(None).await;
    let tls = health_server(Some(acceptor(&[b"h2"]))).await;
    let table = [
        (grpc(plain, "", Plaintext), Success, ""),
        (grpc(plain, "good", Plaintext), Success, ""),
        (grpc(plain, "bad", Plaintext), Failure, "NOT_SERVING"),
        (grpc(plain, "other", Plaintext), Failure, "does not know service \"other\""),
        (grpc(tls, "good", Tls), Success, ""),
        (grpc(tls, "bad", Tls), Failure, "NOT_SERVING"),
        (grpc(tls, "good", Plaintext), Failure, ""),
        (grpc(plain, "good", Tls), Failure, "TLS handshake with 127.0.0.1 failed"),
        (grpc(closed_port().await, "", Plaintext), Failure, "cannot connect to 127.0.0.1:"),
    ];
    for (handler, outcome, message) in table {
        let report = run(handler.clone()).await;
        assert_eq!(report.outcome, outcome, "{handler:?}: {report:?}");
        assert!(report.message.contains(message), "{handler:?}: {report:?}");
    }
    let mute = web(|_| Vec::new()).await;
    let report = run_with_timeout(grpc(mute.port, "", Plaintext), Duration::from_millis(200)).await;
    assert_eq!(report.outcome, Failure);
    assert!(report.message.contains("no answer within 200ms"), "{report:?}");
}

fn command() -> Handler {
    Handler::Exec { command: vec!["check".into()] }
}

#[tokio::test(start_paused = true)]
async fn exec_counts_exit_codes_and_time_outs_and_nothing_else() {
    let exits = |exit_code, output: &str| Ok(ExecOutput { exit_code, output: output.into() });
    let table = [
        (exits(0, "fine"), Success, ""),
        (exits(1, "no such file\n"), Failure, "no such file"),
        (exits(3, " \n"), Failure, "command exited with code 3"),
        (Err(Code::DeadlineExceeded), Failure, "command timed out after 5s"),
        (Err(Code::Cancelled), Failure, "command timed out after 5s"),
        (Err(Code::Unavailable), Unknown, "the command could not be run: s"),
        (Err(Code::NotFound), Unknown, "the command could not be run: s"),
    ];
    for (answer, outcome, message) in table {
        let report = run_on(runtime(answer.clone()), command(), Address::Missing).await;
        assert_eq!(report, Report { outcome, message: message.into() }, "{answer:?}");
    }
    let long = run_on(runtime(exits(1, &"é".repeat(10_000))), command(), Address::Missing).await;
    assert!(long.message.len() <= MESSAGE_BYTES);
}

#[tokio::test(start_paused = true)]
async fn a_runtime_that_hangs_says_nothing_about_a_container() {
    let dead = Runtime { answer: Err(Code::Cancelled), hangs: false, alive: false };
    assert_eq!(run_on(dead, command(), Address::Missing).await.outcome, Unknown);
    let hanging = Runtime { answer: Err(Code::Cancelled), hangs: true, alive: true };
    let start = tokio::time::Instant::now();
    assert_eq!(run_on(hanging, command(), Address::Missing).await.outcome, Unknown);
    assert_eq!(start.elapsed().as_secs(), 10, "the wait has an end");
}
