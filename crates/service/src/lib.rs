//! The process shell that every process runs in: flags, configuration, logs, trace ring, socket, readiness, watchdog,
//! drain, exit code.
//!
//! Owns the life of a process from its first line to its exit code. Must never know what the process is for.

mod context;
mod events;
mod exit;
mod flags;
mod health;
mod logs;
mod metrics;
mod process;
mod run;
mod state_file;
mod supervise;

pub use context::{Check, Context, Parts};
pub use events::{Recorder, Subject};
pub use exit::{Exit, ServiceError};
pub use flags::{CommonFlags, LogFormat, NodeLabels, given, kubelet_args};
pub use metrics::{Counter, Desc, Gauge, Histogram, Metrics, SECONDS};
pub use run::{NoFlags, Service, main, run_to_exit};
pub use state_file::{StateFile, StateFileError};
