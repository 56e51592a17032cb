//! The way to the runtime's streaming server: the client's upgrade is asked for there, and its answer is passed back.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use bytes::Bytes;
use http::header::{
    CONNECTION, HOST, HeaderName, HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_EXTENSIONS,
    SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION, UPGRADE,
};
use http::{HeaderMap, Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::client::conn::http1;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::secured::answer::text;
use crate::secured::body::Answer;

/// Longest wait for the streaming server.
const ANSWER: Duration = Duration::from_secs(10);
/// Bytes of a refusal that are passed on.
const REFUSAL: usize = 16 * 1024;

const STREAM_VERSION: HeaderName = HeaderName::from_static("x-stream-protocol-version");
const ACCEPTED_VERSIONS: HeaderName = HeaderName::from_static("x-accepted-stream-protocol-versions");
/// What goes to the streaming server. Never who the client is: `Authorization` and the like stay here.
const TOWARDS: [HeaderName; 4] =
    [STREAM_VERSION, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_VERSION, SEC_WEBSOCKET_EXTENSIONS];
/// What comes back.
const BACK: [HeaderName; 5] = [
    STREAM_VERSION,
    ACCEPTED_VERSIONS,
    SEC_WEBSOCKET_ACCEPT,
    SEC_WEBSOCKET_PROTOCOL,
    SEC_WEBSOCKET_EXTENSIONS,
];
/// A subprotocol that is a token.
const TOKEN_PROTOCOL: &str = "base64url.bearer.authorization.k8s.io.";

/// Which protocol a client wants to go on with, and what belongs to that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Upgrade {
    protocol: HeaderValue,
    headers: HeaderMap,
}

/// What the streaming server said.
pub(super) enum Tunnel {
    /// It goes on.
    Open {
        /// What the client gets.
        answer: Response<Answer>,
        /// The connection to the streaming server.
        stream: Upgraded,
    },
    /// It does not; what the client gets.
    Refused(Response<Answer>),
}

/// Why there is no way. Its text never shows the address.
#[derive(Debug, thiserror::Error)]
pub(super) enum TunnelError {
    #[error(
        "the runtime's streaming server is not at an http address with an IP and a port: serve streams without TLS, on a loopback address"
    )]
    Address,
    #[error("the runtime's streaming server does not take a connection")]
    Connect(#[source] std::io::Error),
    #[error("the runtime's streaming server broke off")]
    Broken(#[source] hyper::Error),
    #[error("the runtime's streaming server does not answer within {ANSWER:?}")]
    Silent,
}

impl Upgrade {
    /// What these headers ask for; `None`: no upgrade.
    pub(super) fn of(headers: &HeaderMap) -> Option<Self> {
        let words = |value: &HeaderValue, word: &str| {
            value
                .to_str()
                .is_ok_and(|text| text.split(',').any(|part| part.trim().eq_ignore_ascii_case(word)))
        };
        if !headers.get_all(CONNECTION).iter().any(|value| words(value, "upgrade")) {
            return None;
        }
        let protocol = headers.get(UPGRADE)?.clone();
        let mut kept = HeaderMap::new();
        for name in TOWARDS {
            for value in headers.get_all(&name) {
                kept.append(&name, value.clone());
            }
        }
        for value in headers.get_all(SEC_WEBSOCKET_PROTOCOL) {
            let protocols = value.to_str().unwrap_or_default().split(',').map(str::trim);
            let protocols: Vec<_> =
                protocols.filter(|name| !name.is_empty() && !name.starts_with(TOKEN_PROTOCOL)).collect();
            if let (false, Ok(value)) = (protocols.is_empty(), HeaderValue::try_from(protocols.join(", "))) {
                kept.append(SEC_WEBSOCKET_PROTOCOL, value);
            }
        }
        Some(Self { protocol, headers: kept })
    }

    /// Whether it is a WebSocket.
    pub(super) fn is_websocket(&self) -> bool {
        self.protocol.as_bytes().eq_ignore_ascii_case(b"websocket")
    }

    /// Whether it is SPDY.
    pub(super) fn is_spdy(&self) -> bool {
        self.protocol.as_bytes().eq_ignore_ascii_case(b"spdy/3.1")
    }
}

/// Asks the streaming server at `url` for the upgrade.
pub(super) async fn open(url: &str, method: &Method, upgrade: &Upgrade) -> Result<Tunnel, TunnelError> {
    let (at, target) = address(url).ok_or(TunnelError::Address)?;
    let asking = async {
        let stream = TcpStream::connect(at).await.map_err(TunnelError::Connect)?;
        let _ = stream.set_nodelay(true);
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(TunnelError::Broken)?;
        tokio::spawn(connection.with_upgrades());
        let request = request(at, target, method, upgrade);
        let response = sender.send_request(request).await.map_err(TunnelError::Broken)?;
        answered(response).await
    };
    timeout(ANSWER, asking).await.unwrap_or(Err(TunnelError::Silent))
}

/// Where a URL leads. Names are not looked up: the runtime is on this machine.
fn address(url: &str) -> Option<(SocketAddr, Uri)> {
    let uri: Uri = url.parse().ok()?;
    if uri.scheme_str() != Some("http") {
        return None;
    }
    let host = uri.host()?.trim_start_matches('[').trim_end_matches(']');
    let address: IpAddr = host.parse().ok()?;
    let address = if address.is_unspecified() { Ipv4Addr::LOCALHOST.into() } else { address };
    let target = Uri::from(uri.path_and_query()?.clone());
    Some((SocketAddr::new(address, uri.port_u16()?), target))
}

fn request(at: SocketAddr, target: Uri, method: &Method, upgrade: &Upgrade) -> Request<Empty<Bytes>> {
    let mut request = Request::new(Empty::new());
    *request.method_mut() = method.clone();
    *request.uri_mut() = target;
    let headers = request.headers_mut();
    headers.clone_from(&upgrade.headers);
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(UPGRADE, upgrade.protocol.clone());
    if let Ok(host) = HeaderValue::try_from(at.to_string()) {
        headers.insert(HOST, host);
    }
    request
}

async fn answered(response: Response<hyper::body::Incoming>) -> Result<Tunnel, TunnelError> {
    let status = response.status();
    let mut back = HeaderMap::new();
    for name in BACK {
        for value in response.headers().get_all(&name) {
            back.append(&name, value.clone());
        }
    }
    if status != StatusCode::SWITCHING_PROTOCOLS {
        let body = Limited::new(response.into_body(), REFUSAL).collect().await;
        let words = body.map(http_body_util::Collected::to_bytes).unwrap_or_default();
        // What is no error has not opened anything either.
        let status = if status.is_client_error() || status.is_server_error() {
            status
        } else {
            StatusCode::BAD_GATEWAY
        };
        let mut answer = text(status, words);
        answer.headers_mut().extend(back);
        return Ok(Tunnel::Refused(answer));
    }
    if let Some(protocol) = response.headers().get(UPGRADE) {
        back.insert(UPGRADE, protocol.clone());
    }
    back.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    let stream = hyper::upgrade::on(response).await.map_err(TunnelError::Broken)?;
    let mut answer =
        Response::new(Empty::new().map_err(|never: std::convert::Infallible| match never {}).boxed_unsync());
    *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    *answer.headers_mut() = back;
    Ok(Tunnel::Open { answer, stream })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap()))
            .collect()
    }

    #[test]
    fn an_upgrade_takes_what_belongs_to_it_and_nothing_of_who_asks() {
        let asked = headers(&[
            ("connection", "keep-alive, Upgrade"),
            ("upgrade", "websocket"),
            ("authorization", "Bearer secret"),
            ("cookie", "secret"),
            ("x-forwarded-for", "1.2.3.4"),
            ("sec-websocket-key", "k"),
            ("sec-websocket-version", "13"),
            (
                "sec-websocket-protocol",
                "v5.channel.k8s.io, base64url.bearer.authorization.k8s.io.c2VjcmV0, v4.channel.k8s.io",
            ),
        ]);
        let upgrade = Upgrade::of(&asked).unwrap();
        assert!(upgrade.is_websocket() && !upgrade.is_spdy());
        let (at, target) = address("http://127.0.0.1:4711/exec/token?a=b").unwrap();
        let request = request(at, target, &Method::GET, &upgrade);
        assert_eq!(request.uri(), "/exec/token?a=b");
        let mut sent: Vec<_> = request
            .headers()
            .iter()
            .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()))
            .collect();
        sent.sort();
        let wanted = [
            "connection: Upgrade",
            "host: 127.0.0.1:4711",
            "sec-websocket-key: k",
            "sec-websocket-protocol: v5.channel.k8s.io, v4.channel.k8s.io",
            "sec-websocket-version: 13",
            "upgrade: websocket",
        ];
        assert_eq!(sent, wanted);
    }

    #[test]
    fn every_version_that_a_client_offers_is_passed_on() {
        let mut asked = headers(&[("connection", "upgrade"), ("upgrade", "SPDY/3.1")]);
        for version in ["v4.channel.k8s.io", "v3.channel.k8s.io"] {
            asked.append(STREAM_VERSION, HeaderValue::from_static(version));
        }
        let upgrade = Upgrade::of(&asked).unwrap();
        assert!(!upgrade.is_websocket() && upgrade.is_spdy());
        assert_eq!(upgrade.headers.get_all(STREAM_VERSION).iter().count(), 2);
        assert_eq!(Upgrade::of(&headers(&[("upgrade", "SPDY/3.1")])), None);
        assert_eq!(Upgrade::of(&headers(&[("connection", "upgrade")])), None);
        assert_eq!(Upgrade::of(&headers(&[("connection", "close"), ("upgrade", "SPDY/3.1")])), None);
    }

    #[test]
    fn streams_are_on_this_machine() {
        let at = |url: &str| address(url).map(|(at, _)| at.to_string());
        assert_eq!(at("http://127.0.0.1:1/x").as_deref(), Some("127.0.0.1:1"));
        assert_eq!(at("http://[::1]:1/x").as_deref(), Some("[::1]:1"));
        assert_eq!(at("http://0.0.0.0:1/x").as_deref(), Some("127.0.0.1:1"));
        for url in [
            "https://127.0.0.1:1/x",
            "http://localhost:1/x",
            "http://127.0.0.1/x",
            "//127.0.0.1:1/x",
            "/x",
            "",
        ] {
            assert_eq!(at(url), None, "{url}");
        }
    }
}
