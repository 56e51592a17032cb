//! exec, attach and port-forward from the client through gateway to a streaming server.

use std::time::Duration;

use bulkhead_model::runtime::ContainerState;
use bulkhead_testkit::cri::{Detail, FakeRuntime, Method};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::client::TlsStream;

use crate::node::{BOUND, Node};
use crate::tls::Client;

struct Bench {
    node: Node,
    runtime: FakeRuntime,
    /// The runtime's streaming server.
    server: TcpListener,
    alice: Client,
    _dir: tempfile::TempDir,
}

async fn bench() -> Bench {
    let node = Node::whole().await;
    node.pod("a", &["c"]);
    node.runs("a", "c", ContainerState::Running);
    node.api.allow("alice", "create", "proxy");
    let alice = Client::known(&node, "alice");
    let dir = tempfile::tempdir().unwrap();
    let runtime = FakeRuntime::start(dir.path()).await.unwrap();
    std::os::unix::fs::symlink(runtime.socket(), node.node.cri_socket("gateway")).unwrap();
    let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
    runtime.stream_at(&format!("http://{}", server.local_addr().unwrap()));
    Bench { node, runtime, server, alice, _dir: dir }
}

const SPDY: &str =
    "Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: v4.channel.k8s.io\r\n";

impl Bench {
    async fn knock(&self, method: &str, path: &str, headers: &str) -> TlsStream<TcpStream> {
        let mut stream = self.alice.connect(&self.node).await.unwrap();
        let request = format!("{method} {path} HTTP/1.1\r\nHost: node\r\n{headers}\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        stream
    }

    /// A session: the client's end, and the streaming server's with the head that it got.
    async fn session(&self, path: &str) -> (TlsStream<TcpStream>, TcpStream, String) {
        let mut client = self.knock("POST", path, SPDY).await;
        let (mut server, _) = within(self.server.accept()).await.unwrap();
        let head = head(&mut server).await;
        let answer = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\
                      X-Stream-Protocol-Version: v4.channel.k8s.io\r\nX-Secret: no\r\n\r\n";
        server.write_all(answer.as_bytes()).await.unwrap();
        let got = self::head(&mut client).await.to_lowercase();
        assert!(got.starts_with("http/1.1 101 "), "{got}");
        assert!(
            got.contains("\r\nupgrade: spdy/3.1\r\n")
                && got.contains("\r\nx-stream-protocol-version: v4.channel.k8s.io\r\n"),
            "{got}"
        );
        assert!(!got.contains("x-secret"), "{got}");
        (client, server, head)
    }

    async fn refused(&self, method: &str, path: &str, headers: &str) -> (u16, String) {
        let mut client = self.knock(method, path, headers).await;
        let head = head(&mut client).await.to_lowercase();
        let (_, length) = head.split_once("\r\ncontent-length: ").unwrap();
        let mut body = vec![0; length.split("\r\n").next().unwrap().parse().unwrap()];
        within(client.read_exact(&mut body)).await.unwrap();
        let body = String::from_utf8(body).unwrap();
        (head[9..12].parse().unwrap(), body)
    }
}

async fn within<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(BOUND, what).await.expect("in time")
}

async fn head(stream: &mut (impl AsyncRead + Unpin)) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(within(stream.read_u8()).await.unwrap());
    }
    String::from_utf8(head).unwrap()
}

async fn send(mut to: impl AsyncWrite + Unpin + Send + 'static, bytes: Vec<u8>) {
    to.write_all(&bytes).await.unwrap();
    to.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_session_is_joined_and_every_byte_arrives_both_ways() {
    let bench = bench().await;
    let path = "/exec/default/a/c?command=sh&command=-c&command=echo%20a&input=1&output=1&error=1";
    let (client, server, head) = bench.session(path).await;
    assert!(head.starts_with("POST /exec/token HTTP/1.1\r\n"), "{head}");
    let head = head.to_lowercase();
    assert!(
        head.contains("\r\nupgrade: spdy/3.1\r\n")
            && head.contains("x-stream-protocol-version: v4.channel.k8s.io"),
        "{head}"
    );
    let metrics = bench.node.get(bench.node.read_only, "/metrics").await.body;
    let open = "kubelet_http_inflight_requests{long_running=\"true\",method=\"POST\",path=\"exec\",server_type=\"readwrite\"} 1\n";
    assert!(metrics.contains(open), "{metrics}");
    let calls = bench.runtime.log().calls();
    let Some(Detail::Exec(asked)) =
        calls.iter().find(|call| call.method == Method::Exec).map(|call| &call.detail)
    else {
        panic!("{calls:?}")
    };
    assert_eq!(
        (asked.container_id.as_str(), asked.cmd.as_slice()),
        ("id", &["sh", "-c", "echo a"].map(String::from)[..])
    );
    assert!(asked.stdin && asked.stdout && asked.stderr && !asked.tty);

    let sent: Vec<u8> = (0..10_000_000_u32).map(|n| u8::try_from(n % 253).unwrap()).collect();
    let ((mut client_in, client_out), (mut server_in, server_out)) =
        (tokio::io::split(client), server.into_split());
    let writers = [
        tokio::spawn(send(client_out, sent.clone())),
        tokio::spawn(send(server_out, sent.iter().rev().copied().collect())),
    ];
    let mut to_server = Vec::new();
    let mut to_client = Vec::new();
    let both =
        async { tokio::join!(server_in.read_to_end(&mut to_server), client_in.read_to_end(&mut to_client)) };
    let (server, client) = within(both).await;
    server.unwrap();
    client.unwrap();
    assert!(to_server == sent);
    assert!(to_client.iter().rev().eq(sent.iter()));
    for writer in writers {
        writer.await.unwrap();
    }
}

#[tokio::test]
async fn attach_and_port_forward_ask_for_what_is_meant() {
    let bench = bench().await;
    bench.session("/attach/default/a/c?input=1&output=1&tty=1&error=1").await;
    bench.session("/portForward/default/a").await;
    bench.session("/exec/default/a/uid-of-a/c?command=x&output=1").await;
    let calls = bench.runtime.log().calls();
    let details: Vec<_> = calls.iter().map(|call| call.detail.clone()).collect();
    let Some(Detail::Attach(attach)) = details.first() else { panic!("{details:?}") };
    assert!(!attach.tty, "the container has no terminal, whatever the client says");
    let Some(Detail::PortForward(forward)) = details.get(1) else { panic!("{details:?}") };
    assert_eq!((forward.pod_sandbox_id.as_str(), forward.port.len()), ("box", 0));
}

#[tokio::test]
async fn what_is_wrong_is_said_before_the_upgrade() {
    let bench = bench().await;
    bench.node.pod("b", &["c"]);
    bench.node.runs("b", "c", ContainerState::Exited);
    bench.node.pod("new", &["c"]);
    let exec = |rest: &str| format!("/exec/default/{rest}?command=x&output=1");
    let table = [
        (exec("a/c"), "", 500, "Upgrade request required"),
        ("/exec/default/a/c".to_owned(), SPDY, 400, "at least 1 of stdin, stdout, stderr"),
        (exec("a/nope"), SPDY, 404, "pod default/a has no container nope; it has c"),
        (exec("nope/c"), SPDY, 404, "no pod default/nope"),
        (exec("a/other-uid/c"), SPDY, 404, "does not have the UID"),
        (exec("b/c"), SPDY, 400, "container not running (c)"),
        (exec("new/c"), SPDY, 404, "container not found (\"c\")"),
        (exec("A_/c"), SPDY, 404, "not a name"),
        ("/portForward/default/new".to_owned(), SPDY, 404, "no sandbox that runs"),
        ("/portForward/default/a?port=99999".to_owned(), SPDY, 400, "1 to 65535"),
        (
            "/portForward/default/a".to_owned(),
            "Connection: upgrade\r\nUpgrade: websocket\r\n",
            400,
            "query parameter \"port\" is required",
        ),
    ];
    for (path, headers, code, text) in table {
        let (got, body) = bench.refused("POST", &path, headers).await;
        assert_eq!(got, code, "{path}: {body}");
        assert!(body.contains(text), "{path}: {body}");
    }
    assert!(bench.runtime.log().calls().is_empty(), "the runtime is not asked for nothing");

    bench.runtime.fail(Method::Exec, tonic::Status::not_found("gone"), 1);
    assert_eq!(bench.refused("GET", &exec("a/c"), SPDY).await.0, 404);
    bench.runtime.fail(Method::Exec, tonic::Status::internal("no"), 1);
    assert_eq!(bench.refused("GET", &exec("a/c"), SPDY).await.0, 500);
    bench.runtime.stream_at("https://127.0.0.1:1");
    let (code, body) = bench.refused("GET", &exec("a/c"), SPDY).await;
    assert_eq!(code, 502);
    assert!(!body.contains("token"), "{body}");
    bench.runtime.stream_at("http://127.0.0.1:1");
    let (code, body) = bench.refused("GET", &exec("a/c"), SPDY).await;
    assert_eq!(code, 502);
    assert!(body.contains("does not take a connection") && !body.contains("token"), "{body}");
}

#[tokio::test]
async fn a_refusal_of_the_streaming_server_is_passed_back() {
    let bench = bench().await;
    let path = "/exec/default/a/c?command=x&output=1";
    let (mut client, server) = tokio::join!(bench.knock("POST", path, SPDY), within(bench.server.accept()));
    let (mut server, _) = server.unwrap();
    head(&mut server).await;
    let answer = "HTTP/1.1 403 Forbidden\r\nX-Accepted-Stream-Protocol-Versions: v4.channel.k8s.io\r\nContent-Length: 3\r\n\r\nno\n";
    server.write_all(answer.as_bytes()).await.unwrap();
    let got = head(&mut client).await.to_lowercase();
    assert!(
        got.starts_with("http/1.1 403 ") && got.contains("x-accepted-stream-protocol-versions: v4"),
        "{got}"
    );
}

#[tokio::test]
async fn a_lost_end_is_noticed_at_the_other_and_sessions_end_with_gateway() {
    let bench = bench().await;
    let path = "/exec/default/a/c?command=x&output=1";
    let (client, mut server, _) = bench.session(path).await;
    drop(client);
    assert_eq!(within(server.read(&mut [0; 8])).await.unwrap_or(0), 0, "the server sees it");
    let (mut client, server, _) = bench.session(path).await;
    drop(server);
    assert_eq!(within(client.read(&mut [0; 8])).await.unwrap_or(0), 0, "the client sees it");
    let (mut client, _server, _) = bench.session(path).await;
    bench.node.stop.cancel();
    assert_eq!(within(client.read(&mut [0; 8])).await.unwrap_or(0), 0, "it ends with gateway");
    tokio::time::timeout(Duration::from_secs(10), bench.node.stopped()).await.unwrap();
}
