//! Exit codes, and the error that carries one. Units, launchers and people rely on them: docs/operations.md lists them.

use std::error::Error;
use std::process::ExitCode;

/// How a process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Stopped because it was asked to.
    Stopped = 0,
    /// Something failed while it ran: worth a restart.
    Failed = 1,
    /// The command line is wrong: a restart changes nothing.
    Usage = 2,
    /// The configuration is wrong: a restart changes nothing.
    Configuration = 3,
    /// Its socket or port is in use or cannot be bound.
    Socket = 4,
    /// It stopped as asked, but calls in flight outlived the drain.
    DrainExceeded = 5,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        // A fieldless enum with u8 representation.
        ExitCode::from(exit as u8)
    }
}

/// Why a process cannot go on.
#[derive(Debug, thiserror::Error)]
#[error("{what}")]
pub struct ServiceError {
    /// How to exit.
    pub exit: Exit,
    /// What could not be done, for people.
    pub what: String,
    /// Why.
    #[source]
    pub source: Option<Box<dyn Error + Send + Sync>>,
}

impl ServiceError {
    /// A failure while running.
    pub fn failed(what: impl Into<String>, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { exit: Exit::Failed, what: what.into(), source: Some(source.into()) }
    }

    /// A wrong configuration or a flag whose value cannot be used.
    pub fn configuration(what: impl Into<String>, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { exit: Exit::Configuration, what: what.into(), source: Some(source.into()) }
    }

    /// A socket or port that cannot be had.
    pub fn socket(what: impl Into<String>, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { exit: Exit::Socket, what: what.into(), source: Some(source.into()) }
    }
}
