//! Clients of the secured port, and what TLS itself does.

use std::sync::Arc;
use std::time::Duration;

use bulkhead_base::{Clock, SystemClock};
use bulkhead_testkit::certificates::{Authority, Pem};
use http_body_util::{BodyExt, Empty};
use hyper::body::Bytes;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::node::{Answer, BOUND, Node};

/// How a client comes.
#[derive(Clone, Default)]
pub struct Client {
    pub certificate: Option<Pem>,
    pub token: Option<String>,
    pub only_12: bool,
    pub http2: bool,
}

impl Client {
    /// With a good certificate of this user.
    pub fn known(node: &Node, user: &str) -> Self {
        let now = SystemClock.now();
        let day = Duration::from_secs(86_400);
        let certificate = node.authority.client(user, "g", now - day, now + day);
        Self { certificate: Some(certificate), ..Self::default() }
    }

    pub fn with_token(token: &str) -> Self {
        Self { token: Some(token.to_owned()), ..Self::default() }
    }

    pub async fn connect(&self, node: &Node) -> std::io::Result<TlsStream<TcpStream>> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(node.authority.pem().as_bytes()).unwrap()).unwrap();
        let versions: &[_] = if self.only_12 { &[&rustls::version::TLS12] } else { rustls::ALL_VERSIONS };
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(versions)
            .unwrap()
            .with_root_certificates(roots);
        let mut config = match &self.certificate {
            None => builder.with_no_client_auth(),
            Some(pem) => {
                let chain = vec![CertificateDer::from_pem_slice(pem.certificate.as_bytes()).unwrap()];
                let key = PrivateKeyDer::from_pem_slice(pem.key.as_bytes()).unwrap();
                builder.with_client_auth_cert(chain, key).unwrap()
            }
        };
        config.alpn_protocols = vec![if self.http2 { b"h2".to_vec() } else { b"http/1.1".to_vec() }];
        let stream = TcpStream::connect(node.secured).await?;
        TlsConnector::from(Arc::new(config)).connect(ServerName::try_from("127.0.0.1").unwrap(), stream).await
    }

    /// One request on a connection of its own.
    pub async fn ask(&self, node: &Node, method: &str, path: &str) -> Answer {
        let exchange = async {
            let mut sender = self.sender(node).await;
            sender.ask(self, method, path).await.unwrap()
        };
        tokio::time::timeout(BOUND, exchange).await.expect("an answer")
    }

    pub async fn code(&self, node: &Node, method: &str, path: &str) -> u16 {
        self.ask(node, method, path).await.code
    }

    pub async fn sender(&self, node: &Node) -> Sender {
        let stream = TokioIo::new(self.connect(node).await.unwrap());
        if self.http2 {
            let (sender, connection) =
                hyper::client::conn::http2::handshake(TokioExecutor::new(), stream).await.unwrap();
            tokio::spawn(connection);
            Sender::Two(sender)
        } else {
            let (sender, connection) = hyper::client::conn::http1::handshake(stream).await.unwrap();
            tokio::spawn(connection);
            Sender::One(sender)
        }
    }
}

/// A connection.
pub enum Sender {
    One(hyper::client::conn::http1::SendRequest<Empty<Bytes>>),
    Two(hyper::client::conn::http2::SendRequest<Empty<Bytes>>),
}

impl Sender {
    pub async fn ask(&mut self, client: &Client, method: &str, path: &str) -> Result<Answer, hyper::Error> {
        let uri = if client.http2 { format!("https://node{path}") } else { path.to_owned() };
        let mut request = hyper::Request::builder().method(method).uri(uri).header("host", "node");
        if let Some(token) = &client.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let request = request.body(Empty::new()).unwrap();
        let response = match self {
            Self::One(sender) => sender.send_request(request).await?,
            Self::Two(sender) => sender.send_request(request).await?,
        };
        let (head, body) = response.into_parts();
        let body = body.collect().await?.to_bytes();
        let content = head.headers.get("content-type").map(|value| value.to_str().unwrap().to_owned());
        Ok(Answer {
            code: head.status.as_u16(),
            content: content.unwrap_or_default(),
            headers: head.headers,
            body: String::from_utf8_lossy(&body).into_owned(),
        })
    }
}

#[tokio::test]
async fn who_shows_a_certificate_that_counts_for_nothing_gets_401_and_not_less() {
    let node = Node::set_up(&["syncd", "statusd"], |settings| settings.access.anonymous = true).await;
    node.api.allow("*", "*", "*");
    let now = SystemClock.now();
    let day = Duration::from_secs(86_400);
    let stranger = Authority::new().client("alice", "g", now - day, now + day);
    let over = node.authority.client("alice", "g", now - 2 * day, now - day);
    let unborn = node.authority.client("alice", "g", now + day, now + 2 * day);
    let server = node.authority.server(&["alice"]);
    let nameless = node.authority.client("", "g", now - day, now + day);
    for (what, pem) in [
        ("unknown", stranger),
        ("over", over),
        ("not good yet", unborn),
        ("a server's", server),
        ("nobody's", nameless),
    ] {
        let client = Client { certificate: Some(pem), ..Client::default() };
        let answer = client.ask(&node, "GET", "/pods").await;
        assert_eq!((answer.code, answer.body.as_str()), (401, "Unauthorized\n"), "{what}");
    }
    assert_eq!(Client::default().code(&node, "GET", "/pods").await, 200, "anonymous is let in here");
    assert_eq!(Client::with_token("wrong").code(&node, "GET", "/pods").await, 401);
    assert_eq!(Client::known(&node, "alice").code(&node, "GET", "/pods").await, 200);
}

#[tokio::test]
async fn a_new_certificate_is_shown_and_no_connection_is_dropped() {
    let node = Node::with(&["syncd", "statusd"]).await;
    node.api.allow("*", "*", "*");
    let client = Client::known(&node, "alice");
    let mut standing = client.sender(&node).await;
    assert_eq!(standing.ask(&client, "GET", "/pods").await.unwrap().code, 200);
    let shown = async || {
        let stream = client.connect(&node).await.unwrap();
        stream.get_ref().1.peer_certificates().unwrap()[0].clone()
    };
    let first = shown().await;
    let next = node.authority.server(&["127.0.0.1", "node-a"]);
    let pki = node.node.root_dir().join("pki");
    // One after the other, as they would be written: what does not go together is not shown.
    std::fs::write(pki.join("kubelet.key"), &next.key).unwrap();
    assert_eq!(shown().await, first);
    std::fs::write(pki.join("kubelet.crt"), &next.certificate).unwrap();
    let next = CertificateDer::from_pem_slice(next.certificate.as_bytes()).unwrap();
    let turned = async {
        while shown().await != next {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(BOUND, turned).await.expect("the new certificate is shown");
    assert_eq!(standing.ask(&client, "GET", "/pods").await.unwrap().code, 200, "the old connection stands");

    // Authorities that change count at once, on connections that stand, too.
    std::fs::write(node.node.dir().join("ca.crt"), Authority::new().pem()).unwrap();
    let turned = async {
        while standing.ask(&client, "GET", "/pods").await.unwrap().code != 401 {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(BOUND, turned).await.expect("the old authority counts no more");
}

#[tokio::test]
async fn without_a_certificate_there_is_no_connection() {
    // One file for both, which holds the key alone.
    let node = Node::set_up(&[], |settings| settings.tls.key = settings.tls.certificate.clone()).await;
    assert!(Client::default().connect(&node).await.is_err());
    let pair = node.authority.server(&["127.0.0.1"]);
    let both = format!("{}{}", pair.certificate, pair.key);
    std::fs::write(node.node.root_dir().join("pki/kubelet.crt"), both).unwrap();
    let comes = async {
        while Client::default().connect(&node).await.is_err() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(BOUND, comes).await.expect("it is shown once it is there");
}

#[tokio::test]
async fn versions_suites_and_http2_are_as_configured() {
    let node = Node::with(&["syncd", "statusd"]).await;
    node.api.allow("*", "*", "*");
    let alice = Client::known(&node, "alice");
    for client in [Client { only_12: true, ..alice.clone() }, Client { http2: true, ..alice.clone() }] {
        assert_eq!(client.code(&node, "GET", "/pods").await, 200);
    }
    let two = Client { http2: true, ..alice };
    let mut sender = two.sender(&node).await;
    for _ in 0..3 {
        assert_eq!(sender.ask(&two, "GET", "/healthz/ping").await.unwrap().code, 200);
    }

    let node = Node::set_up(&[], |settings| settings.tls.only_13 = true).await;
    let alice = Client::known(&node, "alice");
    assert!(Client { only_12: true, ..alice.clone() }.connect(&node).await.is_err());
    assert!(alice.connect(&node).await.is_ok());
    let suite = "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384";
    let node = Node::set_up(&[], |settings| settings.tls.cipher_suites = vec![suite.to_owned()]).await;
    let stream = Client { only_12: true, ..Client::known(&node, "alice") }.connect(&node).await.unwrap();
    let used = format!("{:?}", stream.get_ref().1.negotiated_cipher_suite().unwrap().suite());
    assert_eq!(used, suite);
}

#[tokio::test]
async fn a_thousand_idle_strangers_take_nobodys_place() {
    let node = Node::with(&["syncd", "statusd"]).await;
    node.api.allow("*", "*", "*");
    let alice = Client::known(&node, "alice");
    let mut standing = alice.sender(&node).await;
    assert_eq!(standing.ask(&alice, "GET", "/pods").await.unwrap().code, 200);
    let mut strangers = Vec::new();
    for n in 0..1000 {
        strangers.push(TcpStream::connect(node.secured).await.unwrap());
        if n % 100 == 0 {
            assert_eq!(alice.code(&node, "GET", "/healthz/ping").await, 200, "after {n}");
        }
    }
    assert_eq!(standing.ask(&alice, "GET", "/pods").await.unwrap().code, 200, "who is known keeps his place");
    assert_eq!(alice.code(&node, "GET", "/healthz/ping").await, 200);
}
