//! Why there is no node object.

use std::path::PathBuf;
use std::time::Duration;

use bulkhead_ipc::status::Coded;
use tonic::Code;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NodeError {
    /// The machine's files did not answer.
    #[error("facts of this machine were not read within {bound:?}; does the file system of {disk} answer?")]
    Slow {
        /// The folder whose file system is measured.
        disk: PathBuf,
        /// How long was waited.
        bound: Duration,
    },
    /// The reading thread ended early.
    #[error("facts of this machine could not be read")]
    Task(#[source] tokio::task::JoinError),
    /// The node has no JSON.
    #[error("cannot encode the node")]
    Encode(#[source] serde_json::Error),
}

impl Coded for NodeError {
    fn code(&self) -> Code {
        match self {
            Self::Slow { .. } => Code::Unavailable,
            Self::Task(_) | Self::Encode(_) => Code::Internal,
        }
    }
}
