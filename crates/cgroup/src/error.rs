//! What can go wrong with a cgroup: always with the file or name it went wrong at.

use std::io;
use std::path::PathBuf;

/// An operation on a cgroup that failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CgroupError {
    /// No cgroup file system is mounted where this process can see it.
    #[error("no cgroup file system is mounted (none in {path}); mount cgroup2 at /sys/fs/cgroup")]
    NoMounts {
        /// The mountinfo file that was searched.
        path: PathBuf,
    },
    /// A pod UID, container id or path that is no name for a cgroup.
    #[error("{text:?} is not a usable {what}: {reason}")]
    InvalidName {
        /// What the text should have been.
        what: &'static str,
        /// The first characters of the text.
        text: String,
        /// The rule that it breaks.
        reason: &'static str,
    },
    /// A limit that the kernel would refuse or that would mean something else than it says.
    #[error("{what} of {value} is out of bounds: {reason}")]
    InvalidLimit {
        /// The field of `Limits`.
        what: &'static str,
        /// Its value.
        value: u64,
        /// The bounds.
        reason: &'static str,
    },
    /// A uid or gid that means "leave as it is" to the kernel.
    #[error("uid {uid} and gid {gid} cannot own a cgroup")]
    InvalidOwner {
        /// The user id asked for.
        uid: u32,
        /// The group id asked for.
        gid: u32,
    },
    /// The cgroup does not exist.
    #[error("the cgroup {path} does not exist")]
    NoCgroup {
        /// Its directory.
        path: PathBuf,
    },
    /// The kernel offers no such controller here, or a parent does not pass it on.
    #[error(
        "the cgroup controller {controller} is not available in {path}; enable it on this node or drop the limit"
    )]
    NoController {
        /// The controller.
        controller: &'static str,
        /// The cgroup's directory, or the place where controllers are mounted.
        path: PathBuf,
    },
    /// A file could not be read.
    #[error("cannot read {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A file holds something that this crate does not understand.
    #[error("{path}, line {line}: {reason}")]
    Malformed {
        /// The file.
        path: PathBuf,
        /// Counted from 1; 0 when it is about the whole file.
        line: usize,
        /// What is wrong.
        reason: String,
    },
    /// A file is larger than anything the kernel writes there.
    #[error("{path} is larger than {limit} bytes")]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// The bound, in bytes.
        limit: u64,
    },
    /// A tree holds more than this crate is willing to walk.
    #[error("more than {limit} {what} beneath {path}")]
    TooMany {
        /// What there is too much of.
        what: &'static str,
        /// The directory.
        path: PathBuf,
        /// The bound.
        limit: usize,
    },
    /// A value could not be written.
    #[error("cannot write {value:?} to {path}")]
    Write {
        /// The file.
        path: PathBuf,
        /// The value.
        value: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A cgroup could not be made.
    #[error("cannot create the cgroup {path} (its parent must belong to this process's user)")]
    Create {
        /// Its directory.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A cgroup could not be removed, for another reason than being in use.
    #[error("cannot remove the cgroup {path}")]
    Remove {
        /// Its directory.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A file or directory could not be given to its owner.
    #[error("cannot give {path} to uid {uid}, gid {gid}")]
    Chown {
        /// The file or directory.
        path: PathBuf,
        /// The user id.
        uid: u32,
        /// The group id.
        gid: u32,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A process could not be signalled, for another reason than missing permission.
    #[error("cannot kill process {pid} of {path}")]
    Kill {
        /// The process.
        pid: u32,
        /// The cgroup's directory.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}
