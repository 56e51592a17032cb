//! Why gateway could not tell something, in words for whoever asked.

use std::error::Error;
use std::path::PathBuf;

use bulkhead_ipc::status::Coded;
use rustix::io::Errno;
use tonic::{Code, Status};

/// A peer that gave no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PeerError {
    /// It did not answer, or said that it cannot yet.
    #[error("{process} does not answer, so {what} cannot be told: {why}")]
    Missing {
        /// The process.
        process: &'static str,
        /// What was asked for.
        what: &'static str,
        /// From [`why`].
        why: String,
    },
    /// What it sent is not what it should be.
    #[error("{process} sent {what} that cannot be read")]
    Malformed {
        /// The process.
        process: &'static str,
        /// What it sent.
        what: String,
        /// Where it is wrong.
        #[source]
        source: serde_json::Error,
    },
}

/// Why a log could not be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LogError {
    /// A field of the request cannot be a Kubernetes name.
    #[error("{field} {value:?} is not a name that Kubernetes allows")]
    Name {
        /// The field.
        field: &'static str,
        /// What it says.
        value: String,
    },
    /// No such pod.
    #[error("there is no pod {namespace}/{pod} on this node; {others}")]
    NoPod {
        /// Its namespace.
        namespace: String,
        /// Its name.
        pod: String,
        /// What exists instead.
        others: String,
    },
    /// No such container in the pod.
    #[error("pod {pod} has no container {container}; it has {has}")]
    NoContainer {
        /// Namespace and name.
        pod: String,
        /// The container asked for.
        container: String,
        /// Those that exist.
        has: String,
    },
    /// The container must be named.
    #[error("pod {pod} has several containers: name one of {has}")]
    Several {
        /// Namespace and name.
        pod: String,
        /// Those that exist.
        has: String,
    },
    /// The container has no log that can be read.
    #[error("container {container} of pod {pod} has no log: it was not started yet, or its log was removed")]
    NoLog {
        /// Namespace and name.
        pod: String,
        /// The container.
        container: String,
    },
    /// The instance before the present one is not there.
    #[error(
        "container {container} of pod {pod} has no previous instance with a log; there is only attempt {attempt}"
    )]
    NoPrevious {
        /// Namespace and name.
        pod: String,
        /// The container.
        container: String,
        /// The only one.
        attempt: u32,
    },
    /// Too many logs are being read.
    #[error("{limit} logs are being read already: end one of them first")]
    Busy {
        /// How many may be.
        limit: usize,
    },
    /// A link, a device or a pipe where a log should be.
    #[error("{path} is no plain file or folder beneath the pods' log folder: it is not read")]
    NotPlain {
        /// The path.
        path: PathBuf,
    },
    /// The system says no.
    #[error("cannot {action} {path}")]
    Io {
        /// What failed.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// Why.
        #[source]
        source: Errno,
    },
    /// The user of this process is not in the group that may read logs.
    #[error(
        "cannot {action} {path}: gateway's user must be in group bulkhead-logs, and the file be open to that group"
    )]
    Denied {
        /// What failed.
        action: &'static str,
        /// On what.
        path: PathBuf,
    },
    /// A thread that read files died.
    #[error("reading the log was cut short")]
    Interrupted,
    /// Nobody could say which pods there are.
    #[error(transparent)]
    Peer(#[from] PeerError),
}

impl LogError {
    /// A failed system call on `path`.
    pub(crate) fn io(action: &'static str, path: impl Into<PathBuf>, source: Errno) -> Self {
        let path = path.into();
        match source {
            Errno::ACCESS | Errno::PERM => Self::Denied { action, path },
            // The kernel's answers to a link and to a way out when opening beneath a folder.
            Errno::LOOP | Errno::XDEV | Errno::NOTDIR => Self::NotPlain { path },
            source => Self::Io { action, path, source },
        }
    }
}

impl Coded for PeerError {
    fn code(&self) -> Code {
        match self {
            Self::Missing { .. } => Code::Unavailable,
            Self::Malformed { .. } => Code::DataLoss,
        }
    }
}

impl Coded for LogError {
    fn code(&self) -> Code {
        match self {
            Self::Name { .. } | Self::Several { .. } => Code::InvalidArgument,
            Self::NoPod { .. } | Self::NoContainer { .. } | Self::NoLog { .. } | Self::NoPrevious { .. } => {
                Code::NotFound
            }
            Self::Busy { .. } => Code::ResourceExhausted,
            Self::NotPlain { .. } | Self::Denied { .. } => Code::FailedPrecondition,
            Self::Io { .. } | Self::Interrupted => Code::Internal,
            Self::Peer(error) => error.code(),
        }
    }
}

/// The cause of a failed call in a few words: what the system said when the peer was not reached, else what it answered.
pub(crate) fn why(status: &Status) -> String {
    let mut cause: Option<&dyn Error> = status.source();
    // A chain that never ends must not hang a health check.
    for _ in 0..16 {
        match cause.and_then(Error::source) {
            Some(deeper) => cause = Some(deeper),
            None => break,
        }
    }
    match cause {
        Some(cause) => cause.to_string(),
        None if status.message().is_empty() => status.code().description().to_owned(),
        None => status.message().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_deepest_cause_is_told() {
        #[derive(Debug, thiserror::Error)]
        #[error("transport error")]
        struct Outer(#[source] std::io::Error);
        let refused = std::io::Error::from_raw_os_error(111);
        assert_eq!(why(&Status::from_error(Box::new(Outer(refused)))), "Connection refused (os error 111)");
        assert_eq!(why(&Status::unavailable("not read yet")), "not read yet");
        assert!(!why(&Status::new(Code::Unavailable, "")).is_empty());
    }

    #[test]
    fn links_and_denials_are_told_apart() {
        for errno in [Errno::LOOP, Errno::XDEV, Errno::NOTDIR] {
            assert!(matches!(LogError::io("open", "/x", errno), LogError::NotPlain { .. }));
        }
        let denied = LogError::io("open", "/x", Errno::ACCESS);
        assert_eq!(denied.code(), Code::FailedPrecondition);
        assert!(denied.to_string().contains("bulkhead-logs"));
        assert_eq!(LogError::io("open", "/x", Errno::IO).code(), Code::Internal);
    }
}
