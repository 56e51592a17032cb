//! Files that change all at once: the scheme by which the kubelet writes configMaps, secrets and downwardAPI volumes.
//!
//! The files are in a directory of their own, `..DATE`. The link `..data` leads to it, and each name that users see is a link
//! into `..data`. New files get a new directory, and one rename of `..data` shows them. A reader that has the directory open
//! sees the old files or the new ones, never a mix.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::os::fd::OwnedFd;

use jiff::Timestamp;
use rustix::fs::{
    FileType, Mode, OFlags, ResolveFlags, fstat, openat, openat2, readlinkat, renameat, symlinkat,
};
use rustix::io::Errno;

use crate::beneath::Dir;
use crate::error::Error;
use crate::own::{SET_GROUP, give, settle};
use crate::remove::{Stop, empty};
use crate::spec::VolumeFile;

/// The link to the present files.
const DATA: &str = "..data";
/// The link before it takes the other's name.
const NEW_DATA: &str = "..data_tmp";
/// The mode of directories in the volume.
const DIRECTORY: u32 = 0o755;
/// What the pod's group may do with files and directories: read.
const GROUP_READS: (u32, u32) = (0o440, 0o550);
/// Directories with the date of one second.
const PER_SECOND: usize = 1000;

/// Makes the volume that is open as `top` hold exactly these files. Returns whether anything changed. Done again after it
/// was broken off at any point, it ends what it began.
pub(crate) fn write(
    top: &Dir,
    files: &[VolumeFile],
    fs_group: Option<u32>,
    now: Timestamp,
    stop: Stop<'_>,
) -> Result<bool, Error> {
    let files: BTreeMap<&str, Wanted<'_>> =
        files.iter().map(|file| (file.path.as_str(), Wanted::new(file, fs_group))).collect();
    let before = present(top)?;
    let same = match &before {
        Some(name) => holds(top, name, &files)?,
        None => false,
    };
    let (data, mut changed) = match before {
        Some(name) if same => (name, false),
        _ => (swap(top, &files, fs_group, now)?, true),
    };
    let names: BTreeSet<&str> = files.keys().map(|path| first(path)).collect();
    for name in &names {
        changed |= link(top, name)?;
    }
    changed |= remove_others(top, &names, &data, stop)?;
    Ok(changed)
}

/// A file as it must be.
struct Wanted<'a> {
    content: &'a [u8],
    mode: u32,
    owner: Option<u32>,
    fs_group: Option<u32>,
}

impl<'a> Wanted<'a> {
    fn new(file: &'a VolumeFile, fs_group: Option<u32>) -> Self {
        let group = if fs_group.is_some() { GROUP_READS.0 } else { 0 };
        Self { content: &file.content, mode: file.mode | group, owner: file.owner, fs_group }
    }
}

/// The directory that `..data` leads to. `None` when nothing was written yet, or somebody else made the link.
fn present(top: &Dir) -> Result<Option<String>, Error> {
    match readlinkat(top, DATA, Vec::new()) {
        Ok(to) => {
            Ok(to.into_string().ok().filter(|to| to.starts_with("..") && !to.contains('/') && to.len() > 2))
        }
        Err(Errno::NOENT | Errno::INVAL) => Ok(None),
        Err(source) => Err(Error::io("read", top.path().join(DATA), source)),
    }
}

/// Whether the directory holds these files and no others.
fn holds(top: &Dir, name: &str, files: &BTreeMap<&str, Wanted<'_>>) -> Result<bool, Error> {
    let Ok(Some(dir)) = top.open(name) else { return Ok(false) };
    for (path, wanted) in files {
        if !is_as_wanted(&dir, path, wanted)
            .map_err(|source| Error::io("read", dir.path().join(path), source))?
        {
            return Ok(false);
        }
    }
    let mut names = Vec::new();
    collect(&dir, "", files.len(), &mut names)?;
    Ok(names.len() == files.len())
}

fn is_as_wanted(dir: &Dir, path: &str, wanted: &Wanted<'_>) -> Result<bool, Errno> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let fd = match openat2(dir, path, flags, Mode::empty(), resolve) {
        Ok(fd) => fd,
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(false),
        Err(error) => return Err(error),
    };
    let found = fstat(&fd)?;
    let kind = FileType::from_raw_mode(found.st_mode);
    let size = u64::try_from(wanted.content.len()).ok();
    let good = kind == FileType::RegularFile
        && found.st_mode & 0o7777 == wanted.mode
        && wanted.fs_group.is_none_or(|group| group == found.st_gid)
        && wanted.owner.is_none_or(|owner| owner == found.st_uid)
        && u64::try_from(found.st_size).ok() == size;
    if !good {
        return Ok(false);
    }
    let mut content = Vec::new();
    let read = std::fs::File::from(fd).read_to_end(&mut content);
    read.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    Ok(content == wanted.content)
}

/// Paths of what is no directory; stops soon after there are more than `limit`. Paths of files have few parts, so depth is
/// bounded.
fn collect(dir: &Dir, prefix: &str, limit: usize, names: &mut Vec<String>) -> Result<(), Error> {
    let mut below = Vec::new();
    dir.each(|name, kind| {
        if names.len() <= limit {
            let name = name.to_string_lossy().into_owned();
            if kind == FileType::Directory { below.push(name) } else { names.push(format!("{prefix}{name}")) }
        }
        Ok(())
    })?;
    for name in below {
        if let Some(dir) = dir.open(&name)? {
            collect(&dir, &format!("{prefix}{name}/"), limit, names)?;
        }
    }
    Ok(())
}

/// Writes the files into a new directory and shows it. Returns its name.
fn swap(
    top: &Dir,
    files: &BTreeMap<&str, Wanted<'_>>,
    fs_group: Option<u32>,
    now: Timestamp,
) -> Result<String, Error> {
    let (name, dir) = new_directory(top, now)?;
    let mode = if fs_group.is_some() { DIRECTORY | GROUP_READS.1 | SET_GROUP } else { DIRECTORY };
    let failed = |path: &str, source| Error::io("write", dir.path().join(path), source);
    for (path, wanted) in files {
        write_file(&dir, path, wanted, mode).map_err(|source| failed(path, source))?;
    }
    settle(&dir, mode, fs_group).map_err(|source| failed("", source))?;
    top.unlink(NEW_DATA)?;
    let shown = |source| Error::io("show the files of", top.path(), source);
    symlinkat(name.as_str(), top, NEW_DATA).map_err(shown)?;
    renameat(top, NEW_DATA, top, DATA).map_err(shown)?;
    Ok(name)
}

fn new_directory(top: &Dir, now: Timestamp) -> Result<(String, Dir), Error> {
    let date = now.strftime("..%Y_%m_%d_%H_%M_%S");
    for number in 0..PER_SECOND {
        let name = format!("{date}.{number}");
        if let Some(dir) = top.make_new(&name)? {
            return Ok((name, dir));
        }
    }
    Err(Error::io("make a directory in", top.path(), Errno::EXIST))
}

fn write_file(dir: &Dir, path: &str, wanted: &Wanted<'_>, directory_mode: u32) -> Result<(), Errno> {
    let mut at: Option<OwnedFd> = None;
    let mut parts: Vec<&str> = path.split('/').collect();
    let name = parts.pop().ok_or(Errno::INVAL)?;
    for part in parts {
        let next = match &at {
            Some(fd) => enter(fd, part, directory_mode, wanted.fs_group)?,
            None => enter(dir, part, directory_mode, wanted.fs_group)?,
        };
        at = Some(next);
    }
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = match &at {
        Some(at) => openat(at, name, flags, Mode::RUSR | Mode::WUSR)?,
        None => openat(dir, name, flags, Mode::RUSR | Mode::WUSR)?,
    };
    let mut file = std::fs::File::from(fd);
    file.write_all(wanted.content).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    give(&file, wanted.mode, wanted.owner, wanted.fs_group)
}

fn enter(at: impl std::os::fd::AsFd, name: &str, mode: u32, fs_group: Option<u32>) -> Result<OwnedFd, Errno> {
    let new = match rustix::fs::mkdirat(&at, name, Mode::RWXU) {
        Ok(()) => true,
        Err(Errno::EXIST) => false,
        Err(error) => return Err(error),
    };
    let fd = crate::beneath::open_directory(&at, name, crate::beneath::Crossing::Refused)?;
    if new {
        settle(&fd, mode, fs_group)?;
    }
    Ok(fd)
}

/// Makes the name that users see lead to the present files. Returns whether it did not.
fn link(top: &Dir, name: &str) -> Result<bool, Error> {
    let to = format!("{DATA}/{name}");
    match readlinkat(top, name, Vec::new()) {
        Ok(found) if found.to_bytes() == to.as_bytes() => return Ok(false),
        Ok(_) => top.unlink(name)?,
        Err(Errno::NOENT) => {}
        Err(source) => return Err(Error::io("read", top.path().join(name), source)),
    }
    let failed = |source| Error::io("make", top.path().join(name), source);
    symlinkat(to.as_str(), top, name).map_err(failed)?;
    Ok(true)
}

/// Removes links to what is no longer there, and earlier directories.
fn remove_others(top: &Dir, names: &BTreeSet<&str>, data: &str, stop: Stop<'_>) -> Result<bool, Error> {
    let mut others = Vec::new();
    top.each(|name, kind| {
        let known = name.to_str().is_ok_and(|name| name == DATA || name == data || names.contains(name));
        if !known && let Ok(name) = name.to_str() {
            others.push((name.to_owned(), kind));
        }
        Ok(())
    })?;
    for (name, kind) in &others {
        match kind {
            FileType::Directory => {
                if let Some(dir) = top.open(name)? {
                    empty(&dir, stop)?;
                    top.rmdir(name)?;
                }
            }
            _ => top.unlink(name)?,
        }
    }
    Ok(!others.is_empty())
}

fn first(path: &str) -> &str {
    path.split('/').next().unwrap_or(path)
}

#[cfg(test)]
mod tests;
