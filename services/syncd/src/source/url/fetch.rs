//! One request for manifests: bounded in time, in size, and in where it may be led.

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, HOST, HeaderMap, HeaderValue, LOCATION, USER_AGENT};
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Empty, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::rt::{Read, Write};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio_rustls::TlsConnector;
use tokio_util::task::AbortOnDropHandle;

use super::address::{ManifestUrl, Redirect, Target};
use super::tls;
use bulkhead_model::manifest::MAX_LIST_BYTES;

/// For everything: names, connections, redirects and the whole answer (the kubelet's).
const TIME: Duration = Duration::from_secs(10);
/// Redirects followed.
const REDIRECTS: usize = 10;
/// Bound on an answer's head.
const HEAD_BYTES: usize = 64 * 1024;
/// Addresses of one name that are tried.
const ADDRESSES: usize = 4;

/// Why there is no answer. The URL is not part of the text: whoever shows it knows it.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// Too slow.
    #[error("no answer within {} s", TIME.as_secs())]
    Late,
    /// The name has no address.
    #[error("cannot find the address of {host}")]
    Lookup {
        /// The name.
        host: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// Nobody there.
    #[error("cannot connect to {address}")]
    Connect {
        /// The last address that was tried.
        address: SocketAddr,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// This machine names no certificates that it trusts.
    #[error("this machine has no bundle of trusted certificates: install its package of CA certificates")]
    NoRoots,
    /// The bundle cannot be used.
    #[error("cannot read trusted certificates from {path}")]
    Roots {
        /// The bundle.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// No TLS here.
    #[error("cannot set up TLS")]
    Cryptography {
        /// Why.
        #[source]
        source: rustls::Error,
    },
    /// No TLS there, or not with a certificate that is trusted.
    #[error("TLS with {host}")]
    Tls {
        /// The name.
        host: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// Broken off, or no HTTP.
    #[error("HTTP with {authority}")]
    Http {
        /// Host and port.
        authority: String,
        /// Why.
        #[source]
        source: hyper::Error,
    },
    /// An answer that is none.
    #[error("it answers with status {0}")]
    Status(StatusCode),
    /// Larger than any list of pods.
    #[error("the answer is larger than {MAX_LIST_BYTES} bytes")]
    TooLarge,
    /// A redirect that is not followed.
    #[error("it redirects {0}, which is not followed: set staticPodURL to where the pods are")]
    Redirect(String),
    /// A ring of redirects.
    #[error("it redirects more than {REDIRECTS} times")]
    Redirects,
}

/// Asks for manifests.
pub struct Fetcher {
    bundles: Vec<PathBuf>,
    /// Made when it is first needed, and anew after a failure: the bundle may have changed.
    tls: Option<TlsConnector>,
    /// One lookup at a time: each holds one of the process' few blocking threads for as long as the resolver likes.
    lookup: Arc<Semaphore>,
}

impl Default for Fetcher {
    fn default() -> Self {
        Self::trusting(tls::bundles())
    }
}

impl Fetcher {
    /// One that trusts what the first of these bundles that is there names.
    pub fn trusting(bundles: Vec<PathBuf>) -> Self {
        Self { bundles, tls: None, lookup: Arc::new(Semaphore::new(1)) }
    }

    /// The answer's body.
    ///
    /// # Errors
    /// When there is none to be had.
    pub async fn get(&mut self, url: &ManifestUrl) -> Result<Vec<u8>, FetchError> {
        let answer = tokio::time::timeout(TIME, self.follow(url)).await.unwrap_or(Err(FetchError::Late));
        if matches!(answer, Err(FetchError::Tls { .. })) {
            self.tls = None;
        }
        answer
    }

    async fn follow(&mut self, url: &ManifestUrl) -> Result<Vec<u8>, FetchError> {
        let mut at = url.target().clone();
        for _ in 0..=REDIRECTS {
            // The headers may be credentials: they are for the server that was named, and for no other.
            let headers = if at.same_server(url.target()) { url.headers().clone() } else { HeaderMap::new() };
            let Answer { response, connection: _connection } = self.ask(&at, headers).await?;
            let status = response.status();
            let location = response.headers().get(LOCATION).filter(|_| status.is_redirection());
            if let Some(location) = location {
                match at.redirect(&String::from_utf8_lossy(location.as_bytes())) {
                    Redirect::To(next) => at = next,
                    Redirect::Refused(why) => return Err(FetchError::Redirect(why)),
                }
                continue;
            }
            if status != StatusCode::OK {
                return Err(FetchError::Status(status));
            }
            return body(&at, response).await;
        }
        Err(FetchError::Redirects)
    }

    async fn ask(&mut self, at: &Target, mut headers: HeaderMap) -> Result<Answer, FetchError> {
        headers.entry(USER_AGENT).or_insert(HeaderValue::from_static("bulkhead"));
        headers.entry(ACCEPT).or_insert(HeaderValue::from_static("application/json, application/yaml, */*"));
        if let (http::header::Entry::Vacant(host), Ok(value)) = (headers.entry(HOST), at.authority.parse()) {
            host.insert(value);
        }
        let mut request = Request::new(Empty::<Bytes>::new());
        // It was part of a URL.
        *request.uri_mut() = at.path.parse().unwrap_or_default();
        *request.headers_mut() = headers;
        let stream = self.connect(at).await?;
        if !at.tls {
            return send(at, stream, request).await;
        }
        let failed = |source| FetchError::Tls { host: at.host.clone(), source };
        let name =
            ServerName::try_from(at.host.clone()).map_err(|error| failed(std::io::Error::other(error)))?;
        let connector = match &self.tls {
            Some(connector) => connector.clone(),
            None => self.tls.insert(self.connector().await?).clone(),
        };
        send(at, connector.connect(name, stream).await.map_err(failed)?, request).await
    }

    async fn connector(&self) -> Result<TlsConnector, FetchError> {
        let bundles = self.bundles.clone();
        let made = tokio::task::spawn_blocking(move || tls::connector(&bundles)).await;
        made.unwrap_or(Err(FetchError::NoRoots))
    }

    async fn connect(&self, at: &Target) -> Result<TcpStream, FetchError> {
        let nothing = std::io::Error::other("it has none");
        let mut last = FetchError::Lookup { host: at.host.clone(), source: nothing };
        for address in self.addresses(at).await? {
            match TcpStream::connect(address).await {
                Ok(stream) => return Ok(stream),
                Err(source) => last = FetchError::Connect { address, source },
            }
        }
        Err(last)
    }

    async fn addresses(&self, at: &Target) -> Result<Vec<SocketAddr>, FetchError> {
        if let Ok(address) = at.host.parse() {
            return Ok(vec![SocketAddr::new(address, at.port)]);
        }
        let failed = |source| FetchError::Lookup { host: at.host.clone(), source };
        let permit = self.lookup.clone().acquire_owned().await;
        let (host, port) = (at.host.clone(), at.port);
        let lookup = tokio::task::spawn_blocking(move || {
            // Held by the thread, not by who waits: one that gave up has not freed it yet.
            let _permit = permit;
            (host.as_str(), port).to_socket_addrs().map(|found| found.take(ADDRESSES).collect())
        });
        lookup.await.map_err(|error| failed(std::io::Error::other(error)))?.map_err(failed)
    }
}

struct Answer {
    response: Response<Incoming>,
    connection: AbortOnDropHandle<()>,
}

async fn send<S>(at: &Target, stream: S, request: Request<Empty<Bytes>>) -> Result<Answer, FetchError>
where
    TokioIo<S>: Read + Write + Unpin + Send + 'static,
    S: Send + 'static,
{
    let failed = |source| FetchError::Http { authority: at.authority.clone(), source };
    let mut builder = http1::Builder::new();
    builder.max_buf_size(HEAD_BYTES);
    let (mut sender, connection) = builder.handshake(TokioIo::new(stream)).await.map_err(failed)?;
    // Its error, if any, reaches the sender as well.
    let connection = AbortOnDropHandle::new(tokio::spawn(async move { drop(connection.await) }));
    let response = sender.send_request(request).await.map_err(failed)?;
    Ok(Answer { response, connection })
}

async fn body(at: &Target, response: Response<Incoming>) -> Result<Vec<u8>, FetchError> {
    match Limited::new(response.into_body(), MAX_LIST_BYTES).collect().await {
        Ok(body) => Ok(body.to_bytes().to_vec()),
        Err(error) if error.is::<LengthLimitError>() => Err(FetchError::TooLarge),
        Err(error) => match error.downcast() {
            Ok(source) => Err(FetchError::Http { authority: at.authority.clone(), source: *source }),
            Err(_) => Err(FetchError::TooLarge),
        },
    }
}

#[cfg(test)]
mod tests;
