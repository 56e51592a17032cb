//! The one mapping between errors and gRPC status, in both directions.
//!
//! | code | meaning | the caller's reaction |
//! |---|---|---|
//! | UNAVAILABLE, DEADLINE_EXCEEDED, ABORTED, RESOURCE_EXHAUSTED, UNKNOWN, INTERNAL, DATA_LOSS, CANCELLED | not now | try again with back-off |
//! | NOT_FOUND | the thing is gone | treat as gone |
//! | ALREADY_EXISTS | done before | look at what exists |
//! | INVALID_ARGUMENT, FAILED_PRECONDITION, OUT_OF_RANGE | the request or the node must change | show it to the user, try again slowly |
//! | PERMISSION_DENIED, UNAUTHENTICATED, UNIMPLEMENTED | this will never work | show it to the operator |

use bulkhead_base::chain;
use tonic::{Code, Status};

/// Longest message of a status.
pub const MESSAGE_BYTES: usize = 1024;

/// An error that knows its gRPC code.
pub trait Coded: std::error::Error + 'static {
    /// The code, by the table of this module.
    fn code(&self) -> Code;
}

/// What a caller does about an error, by the table of this module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reaction {
    /// Try again with back-off.
    Retry,
    /// Treat the thing as gone.
    Gone,
    /// It was done before.
    Done,
    /// Show it to the user; try again slowly.
    UserMustAct,
    /// Show it to the operator.
    OperatorMustAct,
}

/// Errors outward: the whole chain as text, bounded.
pub fn to_status<E: Coded>(error: &E) -> Status {
    let mut message = chain(error).to_string();
    message.truncate(message.floor_char_boundary(MESSAGE_BYTES));
    Status::new(error.code(), message)
}

/// Status inward: what to do about it.
pub fn reaction(status: &Status) -> Reaction {
    match status.code() {
        Code::NotFound => Reaction::Gone,
        Code::Ok | Code::AlreadyExists => Reaction::Done,
        Code::InvalidArgument | Code::FailedPrecondition | Code::OutOfRange => Reaction::UserMustAct,
        Code::PermissionDenied | Code::Unauthenticated | Code::Unimplemented => Reaction::OperatorMustAct,
        Code::Unavailable
        | Code::DeadlineExceeded
        | Code::Aborted
        | Code::ResourceExhausted
        | Code::Unknown
        | Code::Internal
        | Code::DataLoss
        | Code::Cancelled => Reaction::Retry,
    }
}

/// A request that fails with DEADLINE_EXCEEDED after `deadline`, here and at the callee.
pub fn with_deadline<T>(message: T, deadline: std::time::Duration) -> tonic::Request<T> {
    let mut request = tonic::Request::new(message);
    request.set_timeout(deadline);
    request
}
