//! The calling side: a channel to a peer's socket that carries the trace context, tells the peer board how it goes, and
//! checks that the socket belongs to the peer.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{HeaderValue, Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tonic::body::Body;
use tonic::transport::{Channel, Endpoint, Error as TransportError, Uri};
use tower::Service;

use crate::identity::Identities;
use crate::peers::{PeerBoard, PeerHandle};
use crate::trace;

/// Makes channels to peers.
#[derive(Clone, Debug)]
pub struct Channels {
    run_dir: PathBuf,
    identities: Arc<Identities>,
    board: PeerBoard,
}

/// A channel to one peer. It connects at the first call and again after every loss. Clones share the connection.
#[derive(Clone, Debug)]
pub struct PeerChannel {
    channel: Channel,
    peer: PeerHandle,
}

/// The socket belongs to somebody else.
#[derive(Debug, thiserror::Error)]
#[error("socket {path} belongs to uid {found}, not to uid {wanted} of {peer}")]
struct WrongOwner {
    path: PathBuf,
    peer: String,
    found: u32,
    wanted: u32,
}

impl Channels {
    /// Channels to sockets in `run_dir` whose owners are told by `identities`.
    pub fn new(run_dir: &Path, identities: Arc<Identities>, board: PeerBoard) -> Self {
        Self { run_dir: run_dir.to_owned(), identities, board }
    }

    /// A channel to a process of access.toml.
    pub fn peer(&self, name: &str) -> PeerChannel {
        let socket = self.run_dir.join(format!("{name}.sock"));
        self.socket(name, &socket, self.identities.uid_of(name))
    }

    /// A channel to any Unix socket; `owner` is the uid that must own it, if that is known.
    pub fn socket(&self, name: &str, socket: &Path, owner: Option<u32>) -> PeerChannel {
        let (path, peer) = (socket.to_owned(), name.to_owned());
        let connect = tower::service_fn(move |_: Uri| {
            let (path, peer) = (path.clone(), peer.clone());
            async move {
                let stream = UnixStream::connect(&path).await?;
                let found = stream.peer_cred()?.uid();
                // A stranger may have bound the name while the peer was down.
                match owner {
                    Some(wanted) if wanted != found => {
                        Err(std::io::Error::other(WrongOwner { path, peer, found, wanted }))
                    }
                    _ => Ok(TokioIo::new(stream)),
                }
            }
        });
        // The URI is only a name; the connector ignores it.
        let channel = Endpoint::from_static("http://peer.local").connect_with_connector_lazy(connect);
        PeerChannel { channel, peer: self.board.handle(name) }
    }

    /// The handle under which the board knows `name`, for [`crate::Mirror::follow`].
    pub fn handle(&self, name: &str) -> PeerHandle {
        self.board.handle(name)
    }

    /// The board of all peers.
    pub fn board(&self) -> &PeerBoard {
        &self.board
    }
}

impl Service<Request<Body>> for PeerChannel {
    type Response = Response<Body>;
    type Error = TransportError;
    type Future = std::pin::Pin<Box<dyn Future<Output = Result<Response<Body>, TransportError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.channel.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        if !request.headers().contains_key(trace::TRACEPARENT)
            && let Some(value) = trace::traceparent(&tracing::Span::current())
            && let Ok(value) = HeaderValue::try_from(value)
        {
            request.headers_mut().insert(trace::TRACEPARENT, value);
        }
        let peer = self.peer.clone();
        let call = self.channel.call(request);
        Box::pin(async move {
            let result = call.await;
            match &result {
                Ok(_) => peer.call_answered(),
                Err(error) => peer.call_failed(error),
            }
            result
        })
    }
}
