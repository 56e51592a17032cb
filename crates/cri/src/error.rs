//! The one error of CRI calls.

use tonic::{Code, Status};

/// A CRI call that failed.
#[derive(Clone, Debug, thiserror::Error)]
#[error("CRI {method} of {subject}: {}", text(.status))]
pub struct CriError {
    /// The method.
    pub method: &'static str,
    /// What it was about: a pod UID, a container or sandbox id, an image.
    pub subject: String,
    /// The runtime's answer. Not a `source`: its text is in the message.
    pub status: Status,
}

impl CriError {
    pub(crate) fn new(method: &'static str, subject: impl Into<String>, status: Status) -> Self {
        Self { method, subject: subject.into(), status }
    }

    /// The gRPC code.
    pub fn code(&self) -> Code {
        self.status.code()
    }

    /// The runtime does not know the thing.
    pub fn is_not_found(&self) -> bool {
        self.code() == Code::NotFound
    }

    /// The runtime, or the gate to it, did not answer.
    pub fn is_unavailable(&self) -> bool {
        matches!(self.code(), Code::Unavailable | Code::DeadlineExceeded)
    }

    /// What the runtime said, without the method.
    pub fn runtime_message(&self) -> String {
        text(&self.status)
    }
}

/// A runtime may answer pages: 1,024 bytes of it are kept.
fn text(status: &Status) -> String {
    let mut message = status.message().to_owned();
    message.truncate(message.floor_char_boundary(1024));
    if message.is_empty() { status.code().to_string() } else { message }
}
