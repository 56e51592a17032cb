//! What goes wrong here.

use std::path::PathBuf;

use bulkhead_cgroup::CgroupError;
use bulkhead_ipc::status::Coded;
use tonic::Code;

/// Why there are no figures of the node at all. A single cgroup that cannot be read is no error: the rest goes on.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CollectError {
    /// It is not known where the cgroups are.
    #[error("cannot find the cgroups")]
    Mounts(#[source] CgroupError),
    /// A file of /proc cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A file of /proc is larger than what the kernel writes there.
    #[error("{} is larger than {limit} bytes", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// The bound, in bytes.
        limit: u64,
    },
    /// A file of /proc holds what the kernel does not write.
    #[error("{} cannot be understood ({reason})", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// The thread that reads files ended.
    #[error("reading was cut off")]
    CutOff(#[source] tokio::task::JoinError),
}

impl Coded for CollectError {
    fn code(&self) -> Code {
        Code::Unavailable
    }
}

/// Nothing was collected yet.
#[derive(Debug, thiserror::Error)]
#[error("there are no statistics yet{}", reason(last_error))]
pub(crate) struct NotYet {
    /// Why the last attempt failed; empty when there was none.
    pub(crate) last_error: String,
}

impl Coded for NotYet {
    fn code(&self) -> Code {
        Code::Unavailable
    }
}

fn reason(last_error: &str) -> String {
    if last_error.is_empty() { String::new() } else { format!(": {last_error}") }
}
