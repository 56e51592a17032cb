//! What callers are told: refusals, and the API server's absence.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use bulkhead_api::access::{ApiRequest, Verb};

use crate::kubeconfig::KubeconfigError;
use crate::limits;

/// A request that does not reach the API server.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The socket is somebody else's.
    #[error("{caller} may not use the API socket of `{process}`: only that process itself may")]
    Stranger {
        /// Who asked.
        caller: String,
        /// Whose socket it is.
        process: String,
    },
    /// The process has no right to it.
    #[error("`{process}` may not {verb} {target}: proto/access.toml does not list it")]
    NotListed {
        /// Who asked.
        process: String,
        /// What it would do.
        verb: Verb,
        /// To what.
        target: String,
    },
    /// The process has a right to it under conditions.
    #[error("`{process}` may {verb} {target} only where {conditions}: proto/access.toml says so")]
    Unless {
        /// Who asked.
        process: String,
        /// What it would do.
        verb: Verb,
        /// To what.
        target: String,
        /// What must hold.
        conditions: String,
    },
    /// It is no request that is understood.
    #[error("`{process}` may not {called:?}: {reason}")]
    Unreadable {
        /// Who asked.
        process: String,
        /// Method and path, cut to [`limits::TEXT`].
        called: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Its body is too large.
    #[error("`{process}` sends more than {} bytes", limits::REQUEST_BODY)]
    TooLarge {
        /// Who asked.
        process: String,
    },
    /// The process has too many requests in flight.
    #[error("`{process}` has {in_flight} {what} in flight already: wait for some to end")]
    TooMany {
        /// Who asked.
        process: String,
        /// How many.
        in_flight: usize,
        /// Requests or watches.
        what: &'static str,
    },
}

/// The API server cannot be asked, or was lost before it answered.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Unavailable {
    /// The node runs without a cluster.
    #[error("this node has no kubeconfig: there is no API server to ask")]
    Standalone,
    /// There is nothing to ask it with.
    #[error("this node has no credential for the API server: {0}")]
    NoCredential(Arc<str>),
    /// It does not answer.
    #[error("the API server at {server} does not answer")]
    Away {
        /// `HOST:PORT`.
        server: Arc<str>,
        /// Why. Shared: requests during the back-off get the same one.
        #[source]
        cause: Arc<Cause>,
    },
    /// This process ends.
    #[error("apigate is stopping: ask again")]
    Stopping,
    /// All places on all connections are taken.
    #[error("{} requests are in flight on {} connections already", limits::STREAMS * limits::CONNECTIONS, limits::CONNECTIONS)]
    Full,
}

/// Why the API server does not answer.
#[derive(Debug, thiserror::Error)]
pub enum Cause {
    /// Its name leads nowhere.
    #[error("its name cannot be resolved")]
    Resolve(#[source] io::Error),
    /// Nobody takes the connection.
    #[error("cannot connect")]
    Connect(#[source] io::Error),
    /// There is no secure connection: it is not who it should be, or refuses who we are.
    #[error("no TLS connection")]
    Tls(#[source] io::Error),
    /// It takes too long.
    #[error("no connection within {0:?}")]
    Slow(std::time::Duration),
    /// It speaks HTTP/1.1 alone.
    #[error("it does not speak HTTP/2: every API server does; is this a proxy?")]
    NoHttp2,
    /// The connection could not be set up, or it or the request ended before the answer.
    #[error("the request broke off")]
    Broken(#[source] hyper::Error),
    /// It was asked whether it is there and said nothing.
    #[error("no answer within {:?}", limits::PROBE)]
    Silent,
}

/// Why there is no credential.
#[derive(Debug, thiserror::Error)]
pub enum CredentialError {
    /// A file cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The kubeconfig cannot be used.
    #[error("{} cannot be used", path.display())]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: KubeconfigError,
    },
    /// What it names cannot be used.
    #[error("the {what} {place} cannot be used: {reason}")]
    Material {
        /// Such as `client certificate`.
        what: &'static str,
        /// `in FILE`, or `of the kubeconfig`.
        place: String,
        /// Why; never shows it.
        reason: String,
    },
    /// The server's address cannot be used.
    #[error("the server {server:?} cannot be used: {reason}")]
    Server {
        /// As written.
        server: String,
        /// Why.
        reason: &'static str,
    },
    /// TLS cannot be set up with it.
    #[error("TLS cannot be set up")]
    Tls(#[source] rustls::Error),
}

impl Cause {
    /// Whether it says something about the API server and not only about one request.
    pub fn is_general(&self) -> bool {
        !matches!(self, Self::Broken(_))
    }
}

impl Unavailable {
    /// Whether it says something about the API server and not only about one request.
    pub fn is_general(&self) -> bool {
        match self {
            Self::Away { cause, .. } => cause.is_general(),
            Self::NoCredential(_) => true,
            Self::Standalone | Self::Stopping | Self::Full => false,
        }
    }
}

impl Refusal {
    /// A request that no row lets pass.
    pub fn not_listed(process: &str, request: &ApiRequest, conditions: Option<String>) -> Self {
        let (process, verb, target) = (process.to_owned(), request.verb, request.target());
        match conditions {
            Some(conditions) => Self::Unless { process, verb, target, conditions },
            None => Self::NotListed { process, verb, target },
        }
    }
}
