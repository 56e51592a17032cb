//! A process' way to the Kubernetes API: a client over its own socket at apigate, or straight to an API server by a
//! kubeconfig.
//!
//! Owns how the client is connected. Must never hold a credential when there is a gate, nor know what is asked for.

pub mod quiet;
mod retry;
mod watch;

use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper_util::client::legacy::Client as Http;
use hyper_util::rt::{TokioExecutor, TokioIo};
use kube::client::{Body, ConfigExt};
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config};
use tokio::net::UnixStream;
use tower::{Service, ServiceBuilder};

pub use retry::Retry;
pub use watch::{Followed, News, watch};

/// What requests name as their host: a gate looks at their path alone.
const HOST: &str = "http://apigate.local";
/// Namespace of requests that name none. Those of a node's processes always do.
const NAMESPACE: &str = "default";
/// Bytes of one answer, and of all together, that may be under way and not yet read. Watches that are not read for a while
/// must not hold up the others.
const WINDOWS: (u32, u32) = (64 * 1024, 8 * 1024 * 1024);

/// Where the API is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// A socket of apigate.
    Gate {
        /// The socket.
        socket: PathBuf,
        /// The uid that must own it, if that is known: a stranger may have bound the name while apigate was down.
        owner: Option<u32>,
    },
    /// An API server, with the credential of this file: for development and tests.
    Kubeconfig(PathBuf),
}

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The kubeconfig cannot be used.
    #[error("the kubeconfig {} cannot be used", path.display())]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: Box<KubeconfigError>,
    },
    /// A client cannot be made of it.
    #[error("no client can be made for the kubeconfig {}", path.display())]
    Client {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: Box<kube::Error>,
    },
}

/// The socket belongs to somebody else.
#[derive(Debug, thiserror::Error)]
#[error("socket {} belongs to uid {found}, not to uid {wanted} of apigate", path.display())]
struct WrongOwner {
    path: PathBuf,
    found: u32,
    wanted: u32,
}

/// A client of the API over apigate's socket. Nothing is connected before the first request, and again after every loss.
/// Clones share the connection. Must be called on a runtime.
///
/// What is refused, and an API server that is away, comes as the `Status` of an answer: 403, or 503.
pub fn over_socket(socket: &Path, owner: Option<u32>) -> Client {
    let connector = Gate { socket: socket.to_owned(), owner };
    let http = Http::builder(TokioExecutor::new())
        .http2_only(true)
        .http2_initial_stream_window_size(WINDOWS.0)
        .http2_initial_connection_window_size(WINDOWS.1)
        .build::<_, Body>(connector);
    let base = Config::new(http::Uri::from_static(HOST)).base_uri_layer();
    Client::new(ServiceBuilder::new().layer(base).service(http), NAMESPACE)
}

/// A client for `endpoint`.
///
/// # Errors
/// When a kubeconfig cannot be used. A socket or server that is away is no error here.
pub async fn connect(endpoint: &Endpoint) -> Result<Client, ConnectError> {
    let path = match endpoint {
        Endpoint::Gate { socket, owner } => return Ok(over_socket(socket, *owner)),
        Endpoint::Kubeconfig(path) => path,
    };
    let error =
        |source: KubeconfigError| ConnectError::Kubeconfig { path: path.clone(), source: source.into() };
    let kubeconfig = Kubeconfig::read_from(path).map_err(error)?;
    let config =
        Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.map_err(error)?;
    Client::try_from(config)
        .map_err(|source| ConnectError::Client { path: path.clone(), source: source.into() })
}

/// Connects to the socket, whatever the request names.
#[derive(Clone)]
struct Gate {
    socket: PathBuf,
    owner: Option<u32>,
}

impl Service<http::Uri> for Gate {
    type Response = TokioIo<UnixStream>;
    type Error = std::io::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: http::Uri) -> Self::Future {
        let Self { socket: path, owner } = self.clone();
        Box::pin(async move {
            let stream = UnixStream::connect(&path).await?;
            let found = stream.peer_cred()?.uid();
            match owner {
                Some(wanted) if wanted != found => {
                    Err(std::io::Error::other(WrongOwner { path, found, wanted }))
                }
                _ => Ok(TokioIo::new(stream)),
            }
        })
    }
}
