//! Why imaged could not answer at all, and how an absent runtime is told from one that says no.

use std::error::Error;

use bulkhead_cri::CriError;
use bulkhead_ipc::status::Coded;
use tonic::Code;

/// A request without an answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EnsureError {
    /// A field of the request is missing or means nothing.
    #[error("EnsureImage needs {field}: {problem}")]
    Request {
        /// The field.
        field: &'static str,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// The same, for all images.
    #[error("the images on the node are not known: the container runtime's image service does not answer")]
    List(#[source] CriError),
    /// The runtime, or the gate to it, does not answer.
    #[error(
        "whether image {image} is on the node is not known: the container runtime's image service does not answer"
    )]
    Runtime {
        /// The image, as the runtime was asked for it.
        image: String,
        /// The call.
        #[source]
        source: CriError,
    },
}

/// Why unused images were not removed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GcError {
    /// The runtime does not say what there is.
    #[error("the images on the node are not known")]
    Runtime(#[source] CriError),
    /// pleg does not say what is used: then everything may be.
    #[error("no image is removed while it is not known which ones containers use")]
    Pods(#[source] tonic::Status),
    /// The runtime does not say where images are.
    #[error(
        "the container runtime does not tell where it keeps images (ImageFsInfo), so how full it is there is not known"
    )]
    NoStore,
    /// That disk cannot be asked.
    #[error("how full the file system of {folder} is, where images are, cannot be asked")]
    Unmeasured {
        /// As the runtime names it.
        folder: String,
    },
    /// All that could go went.
    #[error(
        "{freed} bytes of unused images were removed where {wanted} were wanted ({failed} could not be removed): \
         the disk is filled by images in use, or by something else"
    )]
    NotEnough {
        /// Bytes.
        wanted: u64,
        /// Bytes.
        freed: u64,
        /// Images that the runtime refused to remove.
        failed: usize,
    },
}

impl GcError {
    /// The same for every failure of one kind, whatever its figures.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Runtime(_) => "runtime",
            Self::Pods(_) => "pods",
            Self::NoStore => "no store",
            Self::Unmeasured { .. } => "unmeasured",
            Self::NotEnough { .. } => "not enough",
        }
    }
}

impl Coded for GcError {
    fn code(&self) -> Code {
        Code::Unavailable
    }
}

impl Coded for EnsureError {
    fn code(&self) -> Code {
        match self {
            Self::Request { .. } => Code::InvalidArgument,
            Self::Runtime { .. } | Self::List(_) => Code::Unavailable,
        }
    }
}

/// Whether the failure of a call that only reads means that there is no image service to answer. Never ask this of a
/// pull: there the code may be a registry's.
pub(crate) fn is_away(error: &CriError) -> bool {
    let code = matches!(
        error.code(),
        // Unimplemented: the runtime runs without its CRI part. PermissionDenied: the gate refuses.
        Code::Unavailable
            | Code::DeadlineExceeded
            | Code::Cancelled
            | Code::Unimplemented
            | Code::PermissionDenied
    );
    // A status with a source was made on this side: the connection broke before an answer came.
    code || error.status.source().is_some()
}

#[cfg(test)]
mod tests {
    use tonic::Status;

    use super::*;

    #[test]
    fn only_an_answer_about_the_image_counts_as_one() {
        let error = |status| CriError { method: "ImageStatus", subject: "a:1".to_owned(), status };
        for code in [Code::Unavailable, Code::DeadlineExceeded, Code::Cancelled, Code::Unimplemented] {
            assert!(is_away(&error(Status::new(code, "x"))), "{code:?}");
        }
        for code in [Code::Unknown, Code::Internal, Code::NotFound, Code::InvalidArgument] {
            assert!(!is_away(&error(Status::new(code, "x"))), "{code:?}");
        }
        assert!(is_away(&error(Status::from_error("connection reset".into()))));
    }
}
