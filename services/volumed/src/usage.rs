//! What a volume holds: asked of the file system where it is the volume's own, counted where it is the node's.
//!
//! Counting never follows a link, never enters a mount, and is bounded in entries, depth and memory: what is beyond is told
//! by `partial`.

use std::collections::HashSet;
use std::ffi::CString;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;

use bulkhead_api::convert::timestamp_to_wire;
use bulkhead_api::volumed::v1::VolumeUsage;
use jiff::Timestamp;
use rustix::fs::{AtFlags, FileType, RawDir, StatVfs, StatxAttributes, StatxFlags, fstatvfs, statx};
use rustix::io::Errno;

use crate::beneath::{Crossing, Dir, is_dots, open_directory};
use crate::error::Error;
use crate::remove::{Stop, check};

/// Entries of one volume that are counted.
const ENTRIES: u64 = 1_000_000;
/// Directories that are open at once; what is deeper is not counted.
const DEPTH: usize = 64;
/// Files with several names that are remembered, so that each counts once.
const LINKED: usize = 65_536;
/// Bytes of directory entries read at once.
const BATCH: usize = 8 * 1024;
/// Unit of `stx_blocks`.
const BLOCK: u64 = 512;

/// A look at one volume: begun, and perhaps to be counted.
pub(crate) enum Measure {
    /// The file system said it all.
    Done(VolumeUsage),
    /// The rest has to be counted.
    Count(VolumeUsage, Dir),
}

/// Asks the file system. Short.
pub(crate) fn start(top: Dir, now: Timestamp) -> Result<Measure, Error> {
    let failed = |source| Error::io("measure", top.path(), source);
    let space = fstatvfs(&top).map_err(failed)?;
    let found = statx(&top, "", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS).map_err(failed)?;
    let figures = of_file_system(&space, now);
    if found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT) {
        return Ok(Measure::Done(VolumeUsage { own_file_system: true, ..figures }));
    }
    Ok(Measure::Count(VolumeUsage { used_bytes: 0, inodes_used: 0, ..figures }, top))
}

impl Measure {
    /// Counts what is to be counted.
    pub(crate) fn finish(self, stop: Stop<'_>) -> Result<VolumeUsage, Error> {
        match self {
            Self::Done(figures) => Ok(figures),
            Self::Count(figures, top) => {
                let counted = count(&top, ENTRIES, stop)?;
                Ok(VolumeUsage {
                    used_bytes: counted.bytes,
                    inodes_used: counted.inodes,
                    partial: counted.partial,
                    ..figures
                })
            }
        }
    }
}

fn of_file_system(space: &StatVfs, now: Timestamp) -> VolumeUsage {
    VolumeUsage {
        measured_at: Some(timestamp_to_wire(now)),
        used_bytes: space.f_blocks.saturating_sub(space.f_bfree).saturating_mul(space.f_frsize),
        inodes_used: space.f_files.saturating_sub(space.f_ffree),
        capacity_bytes: space.f_blocks.saturating_mul(space.f_frsize),
        available_bytes: space.f_bavail.saturating_mul(space.f_frsize),
        inodes: space.f_files,
        inodes_free: space.f_ffree,
        partial: false,
        own_file_system: false,
    }
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Counted {
    bytes: u64,
    inodes: u64,
    partial: bool,
}

struct Level {
    fd: OwnedFd,
    /// Subdirectories that were read and have not had their turn: at most one batch.
    directories: Vec<CString>,
}

fn count(top: &Dir, entries: u64, stop: Stop<'_>) -> Result<Counted, Error> {
    let failed = |source| Error::io("measure", top.path(), source);
    let fd = open_directory(top, c".", Crossing::Refused).map_err(failed)?;
    let mut counted = Counted::default();
    let mut linked = HashSet::new();
    add(&mut counted, &mut linked, &fd, c"").map_err(failed)?;
    let mut levels = vec![Level { fd, directories: Vec::new() }];
    let mut buffer = [const { MaybeUninit::uninit() }; BATCH];
    loop {
        check(stop)?;
        let room = levels.len() < DEPTH;
        let Some(level) = levels.last_mut() else { return Ok(counted) };
        if let Some(name) = level.directories.pop() {
            match open_directory(&level.fd, &name, Crossing::Refused) {
                Ok(fd) if room => levels.push(Level { fd, directories: Vec::new() }),
                Ok(_) => counted.partial = true,
                // Gone, swapped for something else, or another file system.
                Err(Errno::NOENT | Errno::LOOP | Errno::NOTDIR | Errno::XDEV) => {}
                Err(error) => return Err(failed(error)),
            }
            continue;
        }
        let mut more = false;
        let mut names = RawDir::new(&level.fd, &mut buffer);
        while let Some(entry) = names.next() {
            let entry = match entry {
                Ok(entry) => entry,
                Err(Errno::NOENT) => break,
                Err(error) => return Err(failed(error)),
            };
            if !is_dots(entry.file_name()) {
                if counted.inodes >= entries {
                    counted.partial = true;
                    return Ok(counted);
                }
                match add(&mut counted, &mut linked, &level.fd, entry.file_name()) {
                    Ok(FileType::Directory) => level.directories.push(entry.file_name().to_owned()),
                    Ok(_) | Err(Errno::NOENT) => {}
                    Err(error) => return Err(failed(error)),
                }
            }
            if names.is_buffer_empty() {
                more = true;
                break;
            }
        }
        if !more && level.directories.is_empty() {
            levels.pop();
        }
    }
}

/// Adds one entry; the directory itself when the name is empty. A file with several names counts once.
fn add(
    counted: &mut Counted,
    linked: &mut HashSet<u64>,
    dir: &OwnedFd,
    name: &std::ffi::CStr,
) -> Result<FileType, Errno> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::EMPTY_PATH | AtFlags::NO_AUTOMOUNT;
    let found = statx(dir, name, flags, StatxFlags::BASIC_STATS)?;
    let kind = FileType::from_raw_mode(found.stx_mode.into());
    if kind != FileType::Directory && found.stx_nlink > 1 {
        if linked.len() >= LINKED {
            counted.partial = true;
        } else if !linked.insert(found.stx_ino) {
            return Ok(kind);
        }
    }
    counted.inodes = counted.inodes.saturating_add(1);
    counted.bytes = counted.bytes.saturating_add(found.stx_blocks.saturating_mul(BLOCK));
    Ok(kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(path: &std::path::Path, entries: u64) -> Counted {
        count(&Dir::trusted(path).unwrap(), entries, &|| false).unwrap()
    }

    #[test]
    fn files_count_once_and_links_are_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        std::fs::write(outside.path().join("big"), vec![1_u8; 1 << 20]).unwrap();
        let empty = counted(folder.path(), ENTRIES);
        assert_eq!((empty.inodes, empty.partial), (1, false));
        std::fs::create_dir_all(folder.path().join("a/b")).unwrap();
        std::fs::write(folder.path().join("a/b/file"), vec![1_u8; 100_000]).unwrap();
        std::fs::hard_link(folder.path().join("a/b/file"), folder.path().join("again")).unwrap();
        std::os::unix::fs::symlink(outside.path(), folder.path().join("out")).unwrap();
        let all = counted(folder.path(), ENTRIES);
        assert_eq!((all.inodes, all.partial), (5, false));
        assert!((100_000..300_000).contains(&all.bytes), "{all:?}");
    }

    #[test]
    fn wide_and_deep_trees_are_bounded_and_said_to_be_partial() {
        let folder = tempfile::tempdir().unwrap();
        for number in 0..2000 {
            std::fs::write(folder.path().join(format!("{number:0100}")), "").unwrap();
        }
        assert_eq!(counted(folder.path(), ENTRIES).inodes, 2001);
        let some = counted(folder.path(), 100);
        assert_eq!((some.inodes, some.partial), (100, true));
        let deep = tempfile::tempdir().unwrap();
        let path = (0..200).fold(deep.path().to_owned(), |path, _| path.join("d"));
        std::fs::create_dir_all(path).unwrap();
        let some = counted(deep.path(), ENTRIES);
        assert!(some.partial && some.inodes <= 65, "{some:?}");
    }

    #[test]
    fn it_stops_when_told() {
        let folder = tempfile::tempdir().unwrap();
        let dir = Dir::trusted(folder.path()).unwrap();
        assert!(matches!(count(&dir, ENTRIES, &|| true), Err(Error::Interrupted)));
    }
}
