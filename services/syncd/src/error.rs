//! Why a pod's worker could not go on.

use std::path::PathBuf;

use bulkhead_cgroup::CgroupError;
use bulkhead_cri::CriError;
use tonic::Status;

/// One failure of one pod. None of them harms another pod.
#[derive(Debug, thiserror::Error)]
pub enum PodError {
    /// Another process did not do what it was asked.
    #[error("{peer} could not serve pod {uid}: {}", .status.message())]
    Peer {
        /// The process.
        peer: &'static str,
        /// The pod.
        uid: String,
        /// Its answer. Not a `source`: its text is in the message.
        status: Status,
    },
    /// The runtime did not do what it was asked.
    #[error("{doing} of pod {uid}")]
    Runtime {
        /// What was done, such as `making the sandbox`.
        doing: &'static str,
        /// The pod.
        uid: String,
        /// Why.
        #[source]
        source: CriError,
    },
    /// A container that nothing could run in.
    #[error("pod {uid}")]
    Config {
        /// The pod.
        uid: String,
        /// Which one, and why.
        #[source]
        source: Box<crate::cri_config::ConfigError>,
    },
    /// The pod's volumes cannot be asked for.
    #[error("volumes of pod {uid}")]
    Volumes {
        /// The pod.
        uid: String,
        /// Which one, and why.
        #[source]
        source: crate::volumes::VolumeError,
    },
    /// A cgroup could not be made, set or removed.
    #[error("cgroup of pod {uid}")]
    Cgroup {
        /// The pod.
        uid: String,
        /// Why.
        #[source]
        source: CgroupError,
    },
    /// Something still runs in a cgroup that should go.
    #[error("cgroup {path} of pod {uid} still holds processes")]
    CgroupBusy {
        /// The pod.
        uid: String,
        /// The directory.
        path: PathBuf,
    },
    /// A folder could not be made or removed.
    #[error("cannot {action} {path} of pod {uid}")]
    Folder {
        /// Make or remove.
        action: &'static str,
        /// The folder.
        path: PathBuf,
        /// The pod.
        uid: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The pod's names or name servers cannot be had.
    #[error("names of pod {uid}")]
    Identity {
        /// The pod.
        uid: String,
        /// Why.
        #[source]
        source: crate::identity::IdentityError,
    },
    /// No handler of the runtime for the pod.
    #[error("runtime class of pod {uid}")]
    RuntimeClass {
        /// The pod.
        uid: String,
        /// Why.
        #[source]
        source: crate::classes::ClassError,
    },
    /// Stopped, but the runtime still shows something that runs.
    #[error("pod {uid} still runs after it was stopped")]
    StillRuns {
        /// The pod.
        uid: String,
    },
}
