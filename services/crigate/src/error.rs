//! What callers are told: refusals, and the runtime's absence.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bulkhead_ipc::status::Coded;
use tonic::Code;

use crate::limits;

/// A call that does not reach the runtime.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The socket is somebody else's.
    #[error("{caller} may not use the CRI socket of `{process}`: only that process itself may")]
    Stranger {
        /// Who called.
        caller: String,
        /// Whose socket it is.
        process: String,
    },
    /// The process has no right to the method.
    #[error("`{process}` may not call {method}: proto/access.toml does not list it")]
    NotListed {
        /// Who called.
        process: String,
        /// `Service/Method`.
        method: String,
    },
    /// It is no method of runtime.v1.
    #[error("`{process}` may not call {called:?}: it is not a method of runtime.v1")]
    NotCri {
        /// Who called.
        process: String,
        /// The path, cut to [`limits::TEXT`].
        called: String,
    },
    /// The node policy refuses the arguments.
    #[error(
        "`{process}` may not call {method} for pod {pod}: {reason}; the node policy {} decides that", file.display()
    )]
    Policy {
        /// Who called.
        process: String,
        /// `Service/Method`.
        method: String,
        /// `NAMESPACE/NAME`.
        pod: String,
        /// The rules, and what they refuse.
        reason: String,
        /// The policy file.
        file: PathBuf,
    },
    /// There is a node policy, and the arguments could not be held against it.
    #[error(
        "`{process}` may not call {method}: the node policy cannot be held against its message: {reason}"
    )]
    Unreadable {
        /// Who called.
        process: String,
        /// `Service/Method`.
        method: String,
        /// Why.
        reason: String,
    },
    /// The process has too many calls in flight.
    #[error("`{process}` has {} calls in flight already: wait for some to end", limits::CALLS)]
    TooMany {
        /// Who called.
        process: String,
    },
}

/// The runtime cannot be reached, or was lost during the call.
#[derive(Clone, Debug, thiserror::Error)]
#[error("the container runtime at {} does not answer", socket.display())]
pub struct Unavailable {
    /// Where it should be.
    pub socket: Arc<Path>,
    /// Why. Shared: calls during the back-off get the same one.
    #[source]
    pub cause: Arc<Cause>,
}

/// Why the runtime does not answer.
#[derive(Debug, thiserror::Error)]
pub enum Cause {
    /// Nobody takes the connection.
    #[error("cannot connect to its socket")]
    Connect(#[source] io::Error),
    /// The socket exists and nothing happens.
    #[error("its socket takes no connection within {:?}", limits::CONNECT)]
    Stuck,
    /// The connection could not be set up, or the call or its connection ended before the answer.
    #[error("the call broke off")]
    Broken(#[source] hyper::Error),
    /// It was asked whether it is there and said nothing.
    #[error("no answer to Version within {:?}", limits::PROBE)]
    Silent,
    /// It is there, but it is no container runtime.
    #[error("it answered Version with gRPC status {0}: is its CRI plug-in disabled?")]
    NoCri(String),
}

impl Cause {
    /// Whether it says something about the runtime and not only about one call.
    pub fn is_general(&self) -> bool {
        !matches!(self, Self::Broken(_))
    }
}

impl Coded for Refusal {
    fn code(&self) -> Code {
        match self {
            Self::Stranger { .. }
            | Self::NotListed { .. }
            | Self::NotCri { .. }
            | Self::Policy { .. }
            | Self::Unreadable { .. } => Code::PermissionDenied,
            Self::TooMany { .. } => Code::ResourceExhausted,
        }
    }
}

impl Coded for Unavailable {
    fn code(&self) -> Code {
        Code::Unavailable
    }
}
