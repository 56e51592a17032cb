//! What can go wrong with a volume, and how a caller reacts to it.

use std::path::PathBuf;

use bulkhead_ipc::status::Coded;
use rustix::io::Errno;
use tonic::Code;

/// Why a volume is not as it was asked for.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The request itself is wrong.
    #[error("{0}")]
    Invalid(String),
    /// Something of the API that is not built yet.
    #[error("{0}")]
    Unsupported(String),
    /// One volume of several.
    #[error("volume `{volume}`")]
    Volume {
        volume: String,
        #[source]
        source: Box<Error>,
    },
    /// The folder of all pods cannot be opened: nothing can be said about any pod.
    #[error("the folder of all pods, {path}, cannot be opened")]
    Root {
        path: PathBuf,
        #[source]
        source: Errno,
    },
    /// The pod's directory is made by its owner first.
    #[error("the pod's directory {path} does not exist: it must be made before volumes are set up in it")]
    NoPodDirectory { path: PathBuf },
    /// A link, or a file, where a directory belongs.
    #[error("{path} is a symbolic link or not a directory: nothing is done below it")]
    NotADirectory { path: PathBuf },
    /// Somebody else made a directory that must be closed to all others.
    #[error("{path} belongs to user {uid}, who could change what is in it: remove it")]
    NotOurs { path: PathBuf, uid: u32 },
    /// A mount point on the way to a volume.
    #[error("{path} is a mount point where none belongs: unmount it")]
    MountInTheWay { path: PathBuf },
    /// What a hostPath names is not what its type asks for.
    #[error("hostPath type check failed: {path} {why}")]
    HostPathType { path: PathBuf, why: &'static str },
    /// A link in a volume that leads out of it: an attack, or a mistake.
    #[error(
        "subPath {path:?} leads out of the volume over a symbolic link, or over a link that cannot be followed"
    )]
    LeavesVolume { path: String },
    /// A part of a volume below something that is no directory.
    #[error("subPath {path:?} leads over something that is not a directory")]
    PartNotADirectory { path: String },
    /// A container asks for a volume that nobody set up.
    #[error("it is not set up")]
    NotSetUp,
    /// An object of the API, or a key of it, that is not there.
    #[error("{0}")]
    Missing(String),
    /// An object of the API, or a token, that cannot be had now.
    #[error("{0}")]
    Away(String),
    /// Unmounting found open files.
    #[error("{path} is mounted and still in use: it is unmounted once nothing has it open")]
    StillInUse { path: PathBuf },
    /// A mount appeared, or stayed, where something was to be removed.
    #[error("something is still mounted at {path}: nothing is removed through a mount")]
    StillMounted { path: PathBuf },
    /// A directory cannot be removed since it gets new entries.
    #[error("something still writes into {path} while it is removed")]
    StillWritten { path: PathBuf },
    /// The call's time is over, its caller went away, or the process stops.
    #[error("not finished in time: the next call goes on where this one stopped")]
    Interrupted,
    /// A caller asks faster than the disk can answer.
    #[error("too many calls wait for pod {uid}")]
    TooManyCalls { uid: String },
    /// The system refused something.
    #[error("cannot {what} {path}")]
    Io {
        what: &'static str,
        path: PathBuf,
        #[source]
        source: Errno,
    },
    /// A bug of ours; the process goes on.
    #[error("the work on the volume broke off")]
    Broken(#[source] tokio::task::JoinError),
}

impl Error {
    /// The system's refusal to do `what` to `path`.
    pub(crate) fn io(what: &'static str, path: impl Into<PathBuf>, source: Errno) -> Self {
        Self::Io { what, path: path.into(), source }
    }
}

impl Coded for Error {
    fn code(&self) -> Code {
        match self {
            Self::Invalid(_) => Code::InvalidArgument,
            Self::Volume { source, .. } => source.code(),
            Self::Unsupported(_)
            | Self::NoPodDirectory { .. }
            | Self::NotADirectory { .. }
            | Self::NotOurs { .. }
            | Self::MountInTheWay { .. }
            | Self::LeavesVolume { .. }
            | Self::PartNotADirectory { .. }
            | Self::NotSetUp
            | Self::Missing(_)
            | Self::HostPathType { .. } => Code::FailedPrecondition,
            Self::Root { .. }
            | Self::Away(_)
            | Self::StillInUse { .. }
            | Self::StillMounted { .. }
            | Self::StillWritten { .. }
            | Self::Interrupted
            | Self::TooManyCalls { .. } => Code::Unavailable,
            Self::Io { source, .. } if is_lasting(*source) => Code::FailedPrecondition,
            Self::Io { .. } => Code::Unavailable,
            Self::Broken(_) => Code::Internal,
        }
    }
}

/// Refusals that trying again soon does not change: somebody must change the node or the pod.
fn is_lasting(errno: Errno) -> bool {
    const LASTING: &[Errno] = &[
        Errno::ACCESS,
        Errno::PERM,
        Errno::ROFS,
        Errno::LOOP,
        Errno::NOTDIR,
        Errno::ISDIR,
        Errno::EXIST,
        Errno::NAMETOOLONG,
        Errno::INVAL,
        Errno::NODEV,
        Errno::NOSYS,
        Errno::OPNOTSUPP,
    ];
    LASTING.contains(&errno)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volumes_error_has_the_code_of_its_cause_and_names_the_volume() {
        let cause = Error::HostPathType { path: "/data".into(), why: "does not exist" };
        let error = Error::Volume { volume: "logs".to_owned(), source: Box::new(cause) };
        let status = bulkhead_ipc::status::to_status(&error);
        assert_eq!(status.code(), Code::FailedPrecondition);
        assert_eq!(status.message(), "volume `logs`: hostPath type check failed: /data does not exist");
    }

    #[test]
    fn a_full_disk_is_worth_another_try_and_a_closed_door_is_not() {
        for (errno, code) in [
            (Errno::NOSPC, Code::Unavailable),
            (Errno::MFILE, Code::Unavailable),
            (Errno::STALE, Code::Unavailable),
            (Errno::ACCESS, Code::FailedPrecondition),
            (Errno::ROFS, Code::FailedPrecondition),
        ] {
            assert_eq!(Error::io("make", "/a", errno).code(), code, "{errno}");
        }
    }
}
