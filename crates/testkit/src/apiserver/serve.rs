//! The fake API server's wire: TLS, HTTP, and one request's way.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bulkhead_base::{Clock, SystemClock};
use bytes::Bytes;
use futures::StreamExt;
use http::{Method, Request, Response, StatusCode};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;

use super::world::{Place, merge};
use super::{Arrived, Shared, Signer};

type Body = BoxBody<Bytes, Infallible>;

/// Serves until `stop`.
pub(super) async fn serve(
    at: SocketAddr,
    shared: Arc<Shared>,
    stop: CancellationToken,
) -> std::io::Result<SocketAddr> {
    let listener = TcpListener::bind(at).await?;
    let address = listener.local_addr()?;
    tokio::spawn(stop.clone().run_until_cancelled_owned(async move {
        while let Ok((stream, _)) = listener.accept().await {
            shared.state().connections += 1;
            let connection = connection(stream, shared.clone());
            tokio::spawn(stop.clone().run_until_cancelled_owned(connection));
        }
    }));
    Ok(address)
}

/// Serves without TLS until `stop`.
pub(super) fn serve_at(socket: &Path, shared: Arc<Shared>, stop: CancellationToken) {
    let _ = std::fs::remove_file(socket);
    let listener = UnixListener::bind(socket).expect("a socket");
    tokio::spawn(stop.clone().run_until_cancelled_owned(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let connection = exchange(stream, "gate".to_owned(), shared.clone());
            tokio::spawn(stop.clone().run_until_cancelled_owned(connection));
        }
    }));
}

async fn connection(stream: TcpStream, shared: Arc<Shared>) {
    let acceptor = TlsAcceptor::from(Arc::new(config(&shared)));
    let Ok(tls) = acceptor.accept(stream).await else { return };
    let user =
        tls.get_ref().1.peer_certificates().and_then(<[_]>::first).map(common_name).unwrap_or_default();
    exchange(tls, user, shared).await;
}

async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    user: String,
    shared: Arc<Shared>,
) {
    let service = service_fn(move |request| {
        let (shared, user) = (shared.clone(), user.clone());
        async move { Ok::<_, Infallible>(answer(shared, user, request).await) }
    });
    let _ = Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service).await;
}

fn config(shared: &Shared) -> ServerConfig {
    let provider = Arc::new(ring::default_provider());
    let pem = shared.state().certificate.clone();
    let mut roots = RootCertStore::empty();
    let authority = CertificateDer::from_pem_slice(shared.authority.pem().as_bytes()).expect("a certificate");
    roots.add(authority).expect("an authority");
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone())
        .allow_unauthenticated()
        .build()
        .expect("a verifier");
    let chain = vec![CertificateDer::from_pem_slice(pem.certificate.as_bytes()).expect("a certificate")];
    let key = PrivateKeyDer::from_pem_slice(pem.key.as_bytes()).expect("a key");
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("TLS")
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain, key)
        .expect("a certificate with its key");
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    config
}

fn common_name(certificate: &CertificateDer<'_>) -> String {
    use x509_parser::prelude::{FromDer, X509Certificate};
    let Ok((_, certificate)) = X509Certificate::from_der(certificate) else { return String::new() };
    let name = certificate.subject().iter_common_name().next().and_then(|name| name.as_str().ok());
    name.unwrap_or_default().to_owned()
}

async fn answer(shared: Arc<Shared>, certificate: String, request: Request<Incoming>) -> Response<Body> {
    let target = request.uri().path_and_query().map_or("", |target| target.as_str()).to_owned();
    let line = format!("{} {target}", request.method());
    let bearer =
        request.headers().get("authorization").and_then(|value| value.to_str().ok()).unwrap_or_default();
    let (user, unknown) = {
        let mut state = shared.state();
        let token = bearer.strip_prefix("Bearer ").unwrap_or_default();
        let by_token = state.tokens.iter().find(|(known, _)| known == token).map(|(_, user)| user.clone());
        let unknown = by_token.is_none() && !token.is_empty();
        let user = by_token.unwrap_or(certificate);
        let (headers, user_) = (request.headers().clone(), user.clone());
        state.arrived.push(Arrived { line: line.clone(), user: user_, headers });
        (user, unknown)
    };
    let fault = shared.state().faults.iter().find(|(prefix, _)| line.starts_with(prefix)).cloned();
    match fault {
        Some((_, Some((code, body)))) => {
            return raw(StatusCode::from_u16(code).expect("a status code"), body);
        }
        Some((_, None)) => std::future::pending().await,
        None => {}
    }
    let path = request.uri().path().to_owned();
    if path == "/readyz" && !unknown {
        return raw(StatusCode::OK, "ok".to_owned());
    }
    if user.is_empty() || unknown {
        return failure(StatusCode::UNAUTHORIZED, "Unauthorized");
    }
    let Some(place) = Place::parse(&path) else { return failure(StatusCode::NOT_FOUND, "NotFound") };
    let query = Query::of(request.uri().query().unwrap_or_default());
    let method = request.method().clone();
    let body =
        request.into_body().collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    object(&shared, &method, &place, &query, &body)
}

struct Query(Vec<(String, String)>);

impl Query {
    fn of(text: &str) -> Self {
        let pairs = text.split('&').filter_map(|pair| pair.split_once('='));
        Self(
            pairs
                .map(|(key, value)| (key.to_owned(), value.replace("%3D", "=").replace("%2C", ",")))
                .collect(),
        )
    }

    fn get(&self, key: &str) -> &str {
        self.0.iter().find(|(known, _)| known == key).map_or("", |(_, value)| value.as_str())
    }
}

fn object(
    shared: &Arc<Shared>,
    method: &Method,
    place: &Place,
    query: &Query,
    body: &[u8],
) -> Response<Body> {
    let path = place.path();
    let selector = query.get("fieldSelector");
    let sent: Value = serde_json::from_slice(body).unwrap_or(Value::Null);
    let missing = || failure(StatusCode::NOT_FOUND, "NotFound");
    let answer = match (method.as_str(), place.name.is_empty()) {
        ("GET", true) if query.get("watch") == "true" => return watch(shared.clone(), place.clone(), query),
        ("GET", true) => json_of(&shared.world().list(place, selector)),
        ("GET", false) => shared.world().get(&path).as_ref().map_or_else(missing, json_of),
        ("POST", true) => create(shared, place, sent),
        ("POST", false) if place.subresource == "token" => return token(shared, place, sent),
        ("POST", false) => json_of(&sent),
        ("PUT", _) => {
            if shared.world().get(&path).is_none() {
                return missing();
            }
            json_of(&shared.world().put(&path, sent))
        }
        ("PATCH", _) => {
            let Some(mut object) = shared.world().get(&path) else { return missing() };
            merge(&mut object, &sent);
            json_of(&shared.world().put(&path, object))
        }
        ("DELETE", false) => shared.world().remove(&path).as_ref().map_or_else(missing, json_of),
        _ => failure(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed"),
    };
    shared.tell();
    answer
}

/// A token of a service account: its text says whose it is, and which one.
fn token(shared: &Arc<Shared>, place: &Place, mut sent: Value) -> Response<Body> {
    if shared.world().get(&place.path()).is_none() {
        let kind = place.resource.as_str();
        return failure(StatusCode::NOT_FOUND, &format!("{kind} {:?} not found", place.name));
    }
    let number = {
        let mut state = shared.state();
        state.tokens_given += 1;
        state.tokens_given
    };
    let seconds = sent["spec"]["expirationSeconds"].as_u64().unwrap_or(3600);
    sent["spec"]["expirationSeconds"] = json!(seconds);
    let until = SystemClock.now() + Duration::from_secs(seconds);
    let pod = sent["spec"]["boundObjectRef"]["name"].as_str().unwrap_or_default().to_owned();
    let text = format!("{}/{}/{pod}/{number}", place.namespace, place.name);
    sent["status"] = json!({"token": text, "expirationTimestamp": until.to_string()});
    let mut response = json_of(&sent);
    *response.status_mut() = StatusCode::CREATED;
    response
}

fn create(shared: &Arc<Shared>, place: &Place, sent: Value) -> Response<Body> {
    let name = sent["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let place = Place { name, ..place.clone() };
    // Reviews have no name and are not kept.
    if place.name.is_empty() {
        let mut response = json_of(&reviewed(shared, sent));
        *response.status_mut() = StatusCode::CREATED;
        return response;
    }
    if shared.world().get(&place.path()).is_some() {
        return failure(StatusCode::CONFLICT, "AlreadyExists");
    }
    shared.world().put(&place.path(), sent);
    sign_all(shared);
    let made = shared.world().get(&place.path()).unwrap_or_default();
    let mut response = json_of(&made);
    *response.status_mut() = StatusCode::CREATED;
    response
}

/// A review with its answer.
fn reviewed(shared: &Shared, mut review: Value) -> Value {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let state = shared.state();
    match text(&review["kind"]).as_str() {
        "TokenReview" => {
            let token = text(&review["spec"]["token"]);
            let user = state.tokens.iter().find(|(known, _)| *known == token).map(|(_, user)| user);
            review["status"] = match user {
                Some(user) => {
                    let groups = ["system:authenticated"];
                    json!({"authenticated": true, "user": {"username": user, "groups": groups}})
                }
                None => json!({"authenticated": false, "error": "unknown token"}),
            };
        }
        "SubjectAccessReview" => {
            let of = &review["spec"];
            let resource = &of["resourceAttributes"];
            let asked = [&of["user"], &resource["verb"], &resource["subresource"]].map(text);
            let node = resource["resource"] == "nodes" && resource["name"] == "node-a";
            let fits = |right: &(String, String, String)| {
                let right = [&right.0, &right.1, &right.2];
                right.iter().zip(&asked).all(|(right, asked)| *right == "*" || *right == asked)
            };
            review["status"] = json!({"allowed": node && state.rights.iter().any(fits)});
        }
        _ => {}
    }
    review
}

/// Does what the signer does about requests that wait.
pub(super) fn sign_all(shared: &Shared) {
    let signer = shared.state().signer;
    let place = Place::parse("/apis/certificates.k8s.io/v1/certificatesigningrequests").expect("a place");
    let paths = shared.world().paths(&place);
    for path in paths {
        let Some(mut object) = shared.world().get(&path).filter(|object| object["status"].is_null()) else {
            continue;
        };
        match signer {
            Signer::Away => continue,
            Signer::Denies => {
                let denied =
                    json!([{"type": "Denied", "status": "True", "reason": "No", "message": "not you"}]);
                object["status"]["conditions"] = denied;
            }
            Signer::Signs(life) => {
                let request = unbase64(object["spec"]["request"].as_str().unwrap_or_default());
                let now = SystemClock.now();
                // No two are good for equally long.
                let until = now + life + Duration::from_secs(shared.world().version());
                let certificate = shared.authority.sign(&request, now - Duration::from_secs(3600), until);
                object["status"]["certificate"] = json!(super::base64(certificate.as_bytes()));
                object["status"]["conditions"] = json!([{"type": "Approved", "status": "True"}]);
            }
        }
        shared.world().put(&path, object);
    }
}

fn unbase64(text: &str) -> String {
    let value = |letter: u8| match letter {
        b'A'..=b'Z' => letter - b'A',
        b'a'..=b'z' => letter - b'a' + 26,
        b'0'..=b'9' => letter - b'0' + 52,
        b'+' => 62,
        _ => 63,
    };
    let mut bytes = Vec::new();
    for group in text.trim_end_matches('=').as_bytes().chunks(4) {
        let bits = group.iter().fold(0_u32, |bits, letter| (bits << 6) | u32::from(value(*letter)));
        let bits = bits << (6 * (4 - group.len()));
        bytes.extend(bits.to_be_bytes().iter().skip(1).take(group.len() - 1));
    }
    String::from_utf8(bytes).expect("text")
}

fn watch(shared: Arc<Shared>, place: Place, query: &Query) -> Response<Body> {
    let selector = query.get("fieldSelector").to_owned();
    let bookmarks = query.get("allowWatchBookmarks") == "true";
    let mut version = query.get("resourceVersion").parse().unwrap_or_default();
    // A list as a stream: what there is, then a bookmark that says so.
    let mut initial = query.get("sendInitialEvents") == "true";
    let (sender, receiver) = mpsc::channel(16);
    let open = shared.watches.clone();
    tokio::spawn(async move {
        let _open = open;
        let mut changed = shared.changed.subscribe();
        loop {
            let (now, events) = {
                let world = shared.world();
                let events = match initial {
                    true => Some(world.present(&place, &selector)),
                    false => world.since(&place, &selector, version),
                };
                (world.version(), events)
            };
            let mut lines = Vec::new();
            match events {
                Some(events) => {
                    lines.extend(
                        events.iter().map(|event| json!({"type": event.kind, "object": event.object})),
                    );
                }
                None => {
                    let gone = status(StatusCode::GONE, "Expired");
                    lines.push(json!({"type": "ERROR", "object": gone}));
                    version = u64::MAX;
                }
            }
            if version != u64::MAX {
                version = now;
                if bookmarks {
                    let mut bookmark = bookmark(&place, now);
                    if std::mem::take(&mut initial) {
                        bookmark["object"]["metadata"]["annotations"] =
                            json!({"k8s.io/initial-events-end": "true"});
                    }
                    lines.push(bookmark);
                }
            }
            for line in lines {
                if sender.send(format!("{line}\n")).await.is_err() {
                    return;
                }
            }
            if version == u64::MAX {
                return;
            }
            tokio::select! {
                () = sender.closed() => return,
                changed = changed.changed() => if changed.is_err() { return },
            }
        }
    });
    let frames = ReceiverStream::new(receiver).map(|line| Ok(Frame::data(Bytes::from(line))));
    let mut response = Response::new(BodyExt::boxed(StreamBody::new(frames)));
    response.headers_mut().insert("content-type", http::HeaderValue::from_static("application/json"));
    response
}

fn bookmark(place: &Place, version: u64) -> Value {
    let api_version = place.prefix.trim_start_matches("/apis/").trim_start_matches("/api/");
    // Clients want the kind alone to be right.
    let kind = match place.resource.as_str() {
        "pods" => "Pod",
        "nodes" => "Node",
        "configmaps" => "ConfigMap",
        "secrets" => "Secret",
        "services" => "Service",
        "clustertrustbundles" => "ClusterTrustBundle",
        other => other,
    };
    let object = json!({
        "kind": kind, "apiVersion": api_version,
        "metadata": {"resourceVersion": version.to_string(), "creationTimestamp": null},
        "spec": {"containers": []},
    });
    json!({"type": "BOOKMARK", "object": object})
}

fn status(code: StatusCode, reason: &str) -> Value {
    json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": reason, "reason": reason, "code": code.as_u16(),
    })
}

fn failure(code: StatusCode, reason: &str) -> Response<Body> {
    let mut response = json_of(&status(code, reason));
    *response.status_mut() = code;
    response
}

fn json_of(object: &Value) -> Response<Body> {
    let mut response = raw(StatusCode::OK, object.to_string());
    response.headers_mut().insert("content-type", http::HeaderValue::from_static("application/json"));
    response
}

fn raw(code: StatusCode, body: String) -> Response<Body> {
    let mut response = Response::new(Full::new(Bytes::from(body)).boxed());
    *response.status_mut() = code;
    response
}
