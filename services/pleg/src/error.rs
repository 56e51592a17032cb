//! Why a pod could not be read.

use std::time::Duration;

use bulkhead_cri::CriError;
use bulkhead_ipc::status::Coded;
use tonic::Code;

/// Why there is no answer.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum ReadError {
    /// A call failed.
    #[error(transparent)]
    Runtime(#[from] CriError),
    /// The runtime's answer has no content.
    #[error("the runtime answered {method} of {id} without a status")]
    Empty {
        /// The CRI method.
        method: &'static str,
        /// Container id.
        id: String,
    },
    /// Other reads found something new each time that this one was about to finish.
    #[error("pod {uid} changes faster than it can be read")]
    Overtaken {
        /// Of the pod.
        uid: String,
    },
    /// It took too long.
    #[error("the runtime did not answer about pod {uid} within {bound:?}")]
    Late {
        /// Of the pod.
        uid: String,
        /// How long was waited.
        bound: Duration,
    },
    /// The request names no pod.
    #[error("pod_uid must have 1 to {longest} bytes, not {found}")]
    InvalidUid {
        /// Bytes that it has.
        found: usize,
        /// Bytes that it may have.
        longest: usize,
    },
    /// The runtime never told its version.
    #[error("the container runtime did not answer yet: check that it runs and that crigate reaches it")]
    NeverAnswered,
}

impl Coded for ReadError {
    fn code(&self) -> Code {
        match self {
            Self::InvalidUid { .. } => Code::InvalidArgument,
            Self::Runtime(error) => match error.code() {
                code @ (Code::PermissionDenied | Code::Unauthenticated | Code::Unimplemented) => code,
                // NOT_FOUND above all must not pass: the caller would take the pod for gone.
                _ => Code::Unavailable,
            },
            Self::Empty { .. } | Self::Overtaken { .. } | Self::Late { .. } | Self::NeverAnswered => {
                Code::Unavailable
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tonic::Status;

    use super::*;

    #[test]
    fn no_failure_reads_as_gone() {
        for (code, seen) in [
            (Code::NotFound, Code::Unavailable),
            (Code::DeadlineExceeded, Code::Unavailable),
            (Code::Internal, Code::Unavailable),
            (Code::PermissionDenied, Code::PermissionDenied),
        ] {
            let status = Status::new(code, "x");
            let error = CriError { method: "ListContainers", subject: "u".to_owned(), status };
            assert_eq!(ReadError::from(error).code(), seen);
        }
    }
}
