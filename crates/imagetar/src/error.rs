//! What can be wrong with an image's parts.

use std::io;
use std::path::PathBuf;

/// Why an image could not be built. Each names the part at fault; the cause, where there is one, is its source.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The image has no name, so nothing could refer to it after import.
    #[error("the image has no reference: give it one such as local/busybox:1")]
    NoReference,
    /// A reference is not `NAME:TAG`.
    #[error(
        "image reference {reference:?} is not NAME:TAG (a lower-case name and a tag, such as local/busybox:1)"
    )]
    BadReference {
        /// The reference as given.
        reference: String,
    },
    /// A path inside the image is empty, or has a `.`, `..` or empty part, or a NUL byte.
    #[error("{path:?} is not a path inside the image: it must name an entry, without empty, . or .. parts")]
    BadPath {
        /// The path as given.
        path: String,
    },
    /// A symbolic link's target is empty or has a NUL byte.
    #[error("{target:?} cannot be the target of the link {link} in the image")]
    BadTarget {
        /// The link's path inside the image.
        link: String,
        /// The target as given.
        target: String,
    },
    /// An environment variable's name is empty or has `=` or a NUL byte, or its value has a NUL byte. The value is
    /// not shown.
    #[error("{name:?} cannot be an environment variable of the image")]
    BadEnv {
        /// The variable's name as given.
        name: String,
    },
    /// A mode has bits beyond `07777`.
    #[error("mode {mode:o} of {path} in the image has bits beyond 7777")]
    BadMode {
        /// The entry's path inside the image.
        path: String,
        /// The mode as given.
        mode: u32,
    },
    /// An entry lies below something that is not a directory.
    #[error("{path} in the image lies below {parent}, which is a file or a link")]
    ParentNotDirectory {
        /// The entry's path inside the image.
        path: String,
        /// The part of it that is not a directory.
        parent: String,
    },
    /// A local file could not be read.
    #[error("cannot read {} for the image", path.display())]
    Read {
        /// The local file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A local file that must be a program is not a 64-bit little-endian ELF file.
    #[error("{} is not a program for this kind of machine (no 64-bit ELF file)", path.display())]
    NotProgram {
        /// The local file.
        path: PathBuf,
    },
    /// A program needs a loader and libraries that the image will not have.
    #[error(
        "{} is linked dynamically and would not start in the image: give a static one (Debian: busybox-static)",
        path.display()
    )]
    NotStatic {
        /// The local file.
        path: PathBuf,
    },
    /// The archive could not be written.
    #[error("cannot write {entry} of the image archive")]
    Write {
        /// The part that was being written.
        entry: String,
        /// Why.
        source: io::Error,
    },
    /// The image's description could not be put into JSON.
    #[error("cannot encode {entry} of the image archive")]
    Encode {
        /// The part that was being encoded.
        entry: String,
        /// Why.
        source: serde_json::Error,
    },
}
