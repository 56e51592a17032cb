//! subPath: a part of a volume that a container mounts alone.
//!
//! Containers write in volumes, and may put a link in place of any name at any moment. So the part is looked for beneath the
//! volume by one descriptor, without leaving it, and what was found is bound by that descriptor to a place that only this
//! process can change. The runtime resolves that place's path, never one in the volume.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, ResolveFlags, StatxAttributes, StatxFlags, fstat, mkdirat,
};
use rustix::fs::{openat, openat2, statx};
use rustix::io::Errno;

use crate::beneath::{Crossing, Dir, open_directory};
use crate::error::Error;
use crate::mounts::{bind, unmount_name};
use crate::names::{PodUid, SUB_PATHS, VolumeName};
use crate::own::{SET_GROUP, settle};

/// Tries while somebody renames things in the volume: the system then says "again".
const TRIES: usize = 64;

/// Opens the part of the volume that is open as `volume`; makes it, as directories with the volume's mode, where nothing is.
/// Links that stay in the volume are followed.
pub(crate) fn find(volume: impl AsFd, parts: &[String]) -> Result<OwnedFd, Error> {
    let whole = parts.join("/");
    let failed = |error| refused(&whole, error);
    let found = within(&volume, if parts.is_empty() { "." } else { &whole });
    match found {
        Err(Errno::NOENT) => {}
        result => return result.map_err(failed),
    }
    // The longest part that is there, then one new directory after another. A link that leads nowhere is refused.
    let mut at = within(&volume, ".").map_err(failed)?;
    let mut made = false;
    for (depth, name) in parts.iter().enumerate() {
        let so_far = parts.get(..=depth).unwrap_or_default().join("/");
        at = match if made { Err(Errno::NOENT) } else { within(&volume, &so_far) } {
            Err(Errno::NOENT) => {
                made = true;
                make(&volume, &at, name).map_err(failed)?
            }
            result => result.map_err(failed)?,
        };
    }
    Ok(at)
}

/// Binds `what` to the place of a container's mount. Returns whether anything changed.
pub(crate) fn set_up(pod: &Dir, place: &Place<'_>, what: &OwnedFd) -> Result<bool, Error> {
    let dir = pod.open_or_make_closed(SUB_PATHS)?;
    let dir = dir.open_or_make_closed(place.volume.as_str())?;
    let dir = dir.open_or_make_closed(place.container.as_str())?;
    let name = place.index.to_string();
    let path = dir.path().join(&name);
    let io = |what, source| Error::io(what, &path, source);
    if let Some(there) = open_any(&dir, &name).map_err(|error| io("open", error))? {
        let is_mount = is_mount_root(&there).map_err(|error| io("look at", error))?;
        if is_mount && same(&there, what).map_err(|error| io("compare", error))? {
            return Ok(false);
        }
        drop(there);
        if is_mount {
            // Of an earlier container; that has its own.
            unmount_name(&dir, &name)?;
        }
    }
    let target = target(&dir, &name, what).map_err(|error| io("make", error))?;
    bind(what, target).map_err(|error| io("bind a part of a volume to", error))?;
    Ok(true)
}

/// Whose mount it is.
pub(crate) struct Place<'a> {
    pub(crate) volume: &'a VolumeName,
    pub(crate) container: &'a VolumeName,
    /// In the container's list of mounts.
    pub(crate) index: u32,
}

/// The pod's directory; it must be there.
pub(crate) fn pod_directory(pods: &std::path::Path, uid: &PodUid) -> Result<Dir, Error> {
    let missing = || Error::NoPodDirectory { path: pods.join(uid.as_str()) };
    Dir::trusted(pods)?.open(uid.as_str())?.ok_or_else(missing)
}

/// Opens a path without leaving the volume, whatever is renamed meanwhile.
fn within(volume: impl AsFd, path: &str) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    let mut result = Err(Errno::AGAIN);
    for _ in 0..TRIES {
        result = openat2(&volume, path, flags, Mode::empty(), resolve);
        if !matches!(result, Err(Errno::AGAIN | Errno::INTR)) {
            break;
        }
    }
    result
}

/// Makes a directory in an open one. What somebody else made at the same time is taken, unless it is a link.
fn make(volume: impl AsFd, at: &OwnedFd, name: &str) -> Result<OwnedFd, Errno> {
    let new = match mkdirat(at, name, Mode::RWXU) {
        Ok(()) => true,
        Err(Errno::EXIST) => false,
        Err(error) => return Err(error),
    };
    let fd = open_directory(at, name, Crossing::Refused)?;
    if new {
        let top = fstat(volume)?;
        let group = (top.st_mode & SET_GROUP != 0).then_some(top.st_gid);
        settle(&fd, top.st_mode & 0o3777, group)?;
    }
    Ok(fd)
}

/// The empty directory, or file, that something is bound to.
fn target(dir: &Dir, name: &str, what: &OwnedFd) -> Result<OwnedFd, Errno> {
    let wanted = FileType::from_raw_mode(fstat(what)?.st_mode) == FileType::Directory;
    if let Some(there) = open_any(dir, name)? {
        let is = FileType::from_raw_mode(fstat(&there)?.st_mode) == FileType::Directory;
        if is == wanted {
            return Ok(there);
        }
        drop(there);
        let flags = if is { AtFlags::REMOVEDIR } else { AtFlags::empty() };
        rustix::fs::unlinkat(dir, name, flags)?;
    }
    if wanted {
        mkdirat(dir, name, Mode::RWXU)?;
    } else {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        openat(dir, name, flags, Mode::RUSR | Mode::WUSR)?;
    }
    open_any(dir, name)?.ok_or(Errno::NOENT)
}

/// Opens a name of a directory that only this process can change, with what is mounted there.
fn open_any(dir: &Dir, name: &str) -> Result<Option<OwnedFd>, Errno> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    match openat2(dir, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty(), resolve) {
        Ok(fd) => Ok(Some(fd)),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error),
    }
}

fn is_mount_root(fd: &OwnedFd) -> Result<bool, Errno> {
    let found = statx(fd, "", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS)?;
    Ok(found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT))
}

fn same(a: &OwnedFd, b: &OwnedFd) -> Result<bool, Errno> {
    let (a, b) = (fstat(a)?, fstat(b)?);
    Ok((a.st_dev, a.st_ino) == (b.st_dev, b.st_ino))
}

fn refused(path: &str, error: Errno) -> Error {
    let path: String = path.chars().take(256).collect();
    match error {
        Errno::XDEV | Errno::LOOP => Error::LeavesVolume { path },
        Errno::NOTDIR => Error::PartNotADirectory { path },
        source => Error::io("open subPath", path, source),
    }
}

#[cfg(test)]
mod tests;
