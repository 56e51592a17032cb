//! hostPath: a path of the node itself, checked by type as the kubelet does. Links are followed: the pod's author was
//! allowed to name any path. The path is answered as it was given; the runtime resolves it again.

use std::fs::Metadata;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileTypeExt;
use std::path::{Component, Path};

use rustix::fs::{CWD, Mode, OFlags, fchmod, fstat, mkdirat, openat};
use rustix::io::Errno;

use crate::error::Error;
use crate::spec::{HostPath, HostPathType};

/// Modes of what is made, whatever the umask (API: `hostPath.type`).
const DIRECTORY: u32 = 0o755;
const FILE: u32 = 0o644;

/// Checks the path, and makes it where its type says so. Returns whether anything was made. May block for long on a
/// path of a network file system.
pub(crate) fn set_up(host: &HostPath) -> Result<bool, Error> {
    let path = host.as_path();
    if host.kind == HostPathType::Any {
        // Nothing is looked at: the runtime makes a directory if nothing is there.
        return Ok(false);
    }
    match look(path)? {
        Some(found) => check(path, host.kind, &found).map(|()| false),
        None => match host.kind {
            HostPathType::DirectoryOrCreate => make_directories(path).map(|()| true),
            HostPathType::FileOrCreate => make_file(path).map(|()| true),
            _ => Err(wrong(path, "does not exist")),
        },
    }
}

/// Opens what the path leads to, through links: a part of it is looked for beneath.
pub(crate) fn open(path: &Path) -> Result<OwnedFd, Error> {
    match openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()) {
        Ok(fd) => Ok(fd),
        Err(Errno::NOENT | Errno::NOTDIR) => Err(wrong(path, "does not exist")),
        Err(source) => Err(Error::io("open", path, source)),
    }
}

/// What the path leads to, through links. `None` when nothing is there.
fn look(path: &Path) -> Result<Option<Metadata>, Error> {
    match std::fs::metadata(path) {
        Ok(found) => Ok(Some(found)),
        Err(error) => match Errno::from_io_error(&error).unwrap_or(Errno::IO) {
            // A parent that is a file: there is nothing of this name either.
            Errno::NOENT | Errno::NOTDIR => Ok(None),
            errno => Err(Error::io("look at", path, errno)),
        },
    }
}

fn check(path: &Path, kind: HostPathType, found: &Metadata) -> Result<(), Error> {
    let is = found.file_type();
    let (good, why) = match kind {
        HostPathType::Any => (true, ""),
        HostPathType::Directory | HostPathType::DirectoryOrCreate => (is.is_dir(), "is not a directory"),
        HostPathType::File | HostPathType::FileOrCreate => (is.is_file(), "is not a file"),
        HostPathType::Socket => (is.is_socket(), "is not a socket file"),
        HostPathType::CharDevice => (is.is_char_device(), "is not a character device"),
        HostPathType::BlockDevice => (is.is_block_device(), "is not a block device"),
    };
    if good { Ok(()) } else { Err(wrong(path, why)) }
}

/// Makes the directory and its parents. What exists keeps its mode.
fn make_directories(path: &Path) -> Result<(), Error> {
    let failed = |source| match source {
        // A name that exists for mkdir and not for open is a link that leads nowhere.
        Errno::LOOP => wrong(path, "leads over a symbolic link to something that does not exist"),
        Errno::NOTDIR => wrong(path, "cannot be made: one of its parents is not a directory"),
        source => Error::io("make the directory", path, source),
    };
    let mut at = openat(CWD, "/", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        .map_err(failed)?;
    for component in path.components() {
        if let Component::Normal(name) = component {
            at = enter_or_make(&at, Path::new(name)).map_err(failed)?;
        }
    }
    Ok(())
}

fn enter_or_make(at: &OwnedFd, name: &Path) -> Result<OwnedFd, Errno> {
    match openat(at, name, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()) {
        Err(Errno::NOENT) => {}
        result => return result,
    }
    let made = match mkdirat(at, name, Mode::from_raw_mode(DIRECTORY)) {
        Ok(()) => true,
        Err(Errno::EXIST) => false,
        Err(error) => return Err(error),
    };
    // Without O_DIRECTORY a link is told as what it is.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let fd = openat(at, name, flags, Mode::empty())?;
    if made {
        set_mode(&fd, DIRECTORY)?;
    }
    Ok(fd)
}

/// Makes an empty file in a directory that exists.
fn make_file(path: &Path) -> Result<(), Error> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match openat(CWD, path, flags, Mode::from_raw_mode(FILE)) {
        Ok(fd) => set_mode(&fd, FILE).map_err(|source| Error::io("set the mode of", path, source)),
        Err(Errno::NOENT | Errno::NOTDIR) => {
            Err(wrong(path, "cannot be made: its parent directory does not exist"))
        }
        Err(Errno::EXIST) => match look(path)? {
            Some(found) => check(path, HostPathType::File, &found),
            None => Err(wrong(path, "is a symbolic link to something that does not exist")),
        },
        Err(source) => Err(Error::io("make the file", path, source)),
    }
}

/// Keeps what a directory inherited (set-group-ID): only what a umask takes away is put right.
fn set_mode(fd: &OwnedFd, mode: u32) -> Result<(), Errno> {
    let now = fstat(fd)?.st_mode & 0o7777;
    let wanted = (now & 0o7000) | mode;
    if now == wanted { Ok(()) } else { fchmod(fd, Mode::from_raw_mode(wanted)) }
}

fn wrong(path: &Path, why: &'static str) -> Error {
    Error::HostPathType { path: path.to_owned(), why }
}

#[cfg(test)]
mod tests;
