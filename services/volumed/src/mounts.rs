//! The mount table, unmounting below a pod's directory, and the tmpfs of memory-backed volumes.
//!
//! Must never unmount lazily: what is detached while in use stays in memory, and nobody can see it any more.

use std::ffi::{OsStr, OsString};
use std::num::NonZeroU64;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FsWord, StatxAttributes, StatxFlags, fstatfs, statx};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags, fsconfig_create,
    fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen, move_mount, open_tree, unmount,
};

use crate::beneath::{Crossing, Dir, descriptor_path, open_directory};
use crate::error::Error;
use crate::own::directory_mode;
use crate::remove::Stop;

/// `TMPFS_MAGIC` of statfs(2).
const TMPFS_MAGIC: FsWord = 0x0102_1994;
/// `HUGETLBFS_MAGIC`.
const HUGETLBFS_MAGIC: FsWord = 0x9584_58f6;

/// What covers a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cover {
    /// Nothing: it is no mount point.
    None,
    /// A tmpfs.
    Tmpfs,
    /// A hugetlbfs.
    HugePages,
    /// Another file system.
    Other,
}

/// Mount points of this process' namespace, in the order of mounting.
pub(crate) fn table() -> Result<Vec<PathBuf>, Error> {
    let path = "/proc/self/mountinfo";
    let failed =
        |error: std::io::Error| Error::io("read", path, Errno::from_io_error(&error).unwrap_or(Errno::IO));
    std::fs::read(path).map(|text| parse(&text)).map_err(failed)
}

/// The mount points strictly below `directory`, as paths relative to it: the deepest first, of equals the newest first.
pub(crate) fn below(table: &[PathBuf], directory: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = table
        .iter()
        .rev()
        .filter_map(|point| point.strip_prefix(directory).ok())
        .filter(|relative| !relative.as_os_str().is_empty())
        .map(Path::to_owned)
        .collect();
    found.sort_by_key(|relative| std::cmp::Reverse(relative.components().count()));
    found
}

/// Unmounts everything below `directory`, whoever mounted it. Returns whether there was anything.
pub(crate) fn unmount_below(directory: &Dir, stop: Stop<'_>) -> Result<bool, Error> {
    let mut changed = false;
    loop {
        let Some(real) = directory.real_path()? else { return Ok(changed) };
        let points = below(&table()?, &real);
        let Some(first) = points.first() else { return Ok(changed) };
        let mut gone = 0_usize;
        let mut refused = None;
        for point in &points {
            crate::remove::check(stop)?;
            match unmount_one(directory, point) {
                Ok(()) => gone += 1,
                // Below another mount that covers it: its turn comes when that one is gone.
                Err(Errno::NOENT | Errno::INVAL | Errno::NOTDIR | Errno::LOOP) => {}
                Err(error) => refused = refused.or(Some((point, error))),
            }
        }
        changed |= gone > 0;
        if gone == 0 {
            let path = |point: &PathBuf| directory.path().join(point);
            return Err(match refused {
                Some((point, Errno::BUSY)) => Error::StillInUse { path: path(point) },
                Some((point, source)) => Error::io("unmount", path(point), source),
                None => Error::StillMounted { path: path(first) },
            });
        }
    }
}

/// Whether the directory `name` is a mount point, and of what.
pub(crate) fn cover(parent: &Dir, name: &str) -> Result<Cover, Error> {
    let path = || parent.path().join(name);
    let fd = match open_directory(parent, name, Crossing::Allowed) {
        Ok(fd) => fd,
        Err(Errno::NOENT) => return Ok(Cover::None),
        Err(Errno::LOOP | Errno::NOTDIR) => return Err(Error::NotADirectory { path: path() }),
        Err(source) => return Err(Error::io("open", path(), source)),
    };
    let found = statx(&fd, "", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS);
    let attributes = found.map_err(|source| Error::io("look at", path(), source))?.stx_attributes;
    if !attributes.contains(StatxAttributes::MOUNT_ROOT) {
        return Ok(Cover::None);
    }
    let kind = fstatfs(&fd).map_err(|source| Error::io("look at", path(), source))?.f_type;
    Ok(match kind {
        TMPFS_MAGIC => Cover::Tmpfs,
        HUGETLBFS_MAGIC => Cover::HugePages,
        _ => Cover::Other,
    })
}

/// Mounts a fresh tmpfs, open to all users, on the open directory.
pub(crate) fn mount_tmpfs(
    directory: &Dir,
    size: Option<NonZeroU64>,
    fs_group: Option<u32>,
) -> Result<(), Error> {
    let make = || {
        let context = open("tmpfs", fs_group)?;
        if let Some(size) = size {
            fsconfig_set_string(&context, "size", size.to_string())?;
        }
        // What a pod puts into memory stays out of swap (KEP-2400). Kernels before 6.4 don't know it.
        match fsconfig_set_flag(&context, "noswap") {
            Ok(()) | Err(Errno::INVAL) => {}
            Err(error) => return Err(error),
        }
        attach(&context, directory)
    };
    make().map_err(|source| Error::io("mount a tmpfs on", directory.path(), source))
}

/// Mounts a hugetlbfs with pages of `page` bytes on the open directory.
pub(crate) fn mount_hugetlbfs(directory: &Dir, page: NonZeroU64, fs_group: Option<u32>) -> Result<(), Error> {
    let make = || {
        let context = open("hugetlbfs", fs_group)?;
        fsconfig_set_string(&context, "pagesize", page.to_string())?;
        attach(&context, directory)
    };
    make().map_err(|source| Error::io("mount a hugetlbfs on", directory.path(), source))
}

/// A new file system, owned by root and the pod's group, open to all.
fn open(kind: &str, fs_group: Option<u32>) -> Result<OwnedFd, Errno> {
    let context = fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_set_string(&context, "source", kind)?;
    fsconfig_set_string(&context, "mode", format!("{:o}", directory_mode(0o777, fs_group)))?;
    fsconfig_set_string(&context, "uid", "0")?;
    fsconfig_set_string(&context, "gid", fs_group.unwrap_or(0).to_string())?;
    Ok(context)
}

fn attach(context: &OwnedFd, directory: &Dir) -> Result<(), Errno> {
    fsconfig_create(context)?;
    let mount = fsmount(context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())?;
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    move_mount(&mount, "", directory, "", flags)
}

/// Binds what one open descriptor is to the place that another one is. No path is resolved.
pub(crate) fn bind(what: impl AsFd, place: impl AsFd) -> Result<(), Errno> {
    let flags =
        OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_EMPTY_PATH;
    let tree = open_tree(what, "", flags)?;
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    move_mount(&tree, "", place, "", flags)
}

/// Unmounts one name in an open directory that nobody else can change.
pub(crate) fn unmount_name(directory: &Dir, name: &str) -> Result<(), Error> {
    match unmount_one(directory, Path::new(name)) {
        Ok(()) => Ok(()),
        Err(Errno::BUSY) => Err(Error::StillInUse { path: directory.path().join(name) }),
        Err(source) => Err(Error::io("unmount", directory.path().join(name), source)),
    }
}

/// The parent is opened without following links; then one name in that very directory is unmounted. A descriptor of the
/// mount itself would keep it busy.
fn unmount_one(directory: &Dir, relative: &Path) -> Result<(), Errno> {
    let (Some(parent), Some(name)) = (relative.parent(), relative.file_name()) else {
        return Err(Errno::INVAL);
    };
    let mut opened: Option<OwnedFd> = None;
    for component in parent {
        let from = opened.as_ref().map_or_else(|| directory.as_fd(), AsFd::as_fd);
        opened = Some(open_directory(from, component, Crossing::Allowed)?);
    }
    let from = opened.as_ref().map_or_else(|| directory.as_fd(), AsFd::as_fd);
    unmount(descriptor_path(from).join(name), UnmountFlags::NOFOLLOW)
}

/// The fifth field of every line is a mount point. As bytes: pods can choose names that are not text.
fn parse(mountinfo: &[u8]) -> Vec<PathBuf> {
    mountinfo
        .split(|byte| *byte == b'\n')
        .filter_map(|line| line.split(|byte| *byte == b' ').nth(4))
        .map(|field| PathBuf::from(unescape(field)))
        .collect()
}

/// Blanks and some others are written as a backslash and three octal digits.
fn unescape(field: &[u8]) -> OsString {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, after)) = rest.split_first() {
        let escaped = after.first_chunk::<3>().filter(|_| *first == b'\\').and_then(|digits| octal(*digits));
        match escaped {
            Some(byte) => {
                bytes.push(byte);
                rest = after.get(3..).unwrap_or_default();
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    OsString::from_vec(bytes)
}

fn octal(digits: [u8; 3]) -> Option<u8> {
    let text = OsStr::from_bytes(&digits).to_str()?;
    text.bytes().all(|digit| digit.is_ascii_digit()).then(|| u8::from_str_radix(text, 8).ok())?
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn mount_points_are_read_and_unescaped() {
        let text = b"21 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n\
            40 21 0:33 / /kt/a\\040b\\134c rw - tmpfs tmpfs rw\n\
            41 21 0:34 /x /kt/\xff\\9 rw master:2 - tmpfs tmpfs rw\n\
            broken line\n";
        let paths =
            [&b"/"[..], b"/kt/a b\\c", b"/kt/\xff\\9"].map(|path| PathBuf::from(OsStr::from_bytes(path)));
        assert_eq!(parse(text), paths);
    }

    #[test]
    fn what_is_below_comes_deepest_and_newest_first() {
        let table = ["/", "/k", "/k/u", "/k/u/a", "/k/u/a/b", "/k/u2/a", "/k/u/a/b/c", "/k/u/a", "/k/u/z"]
            .map(PathBuf::from);
        let paths = ["a/b/c", "a/b", "z", "a", "a"];
        let found = below(&table, Path::new("/k/u"));
        // The two depths of one are in the order of mounting, newest first; "a" was mounted over again.
        assert_eq!(found, paths.map(PathBuf::from));
    }

    proptest! {
        #[test]
        fn any_table_is_survived(text in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&text);
        }

        #[test]
        fn a_path_survives_the_kernels_escaping(path in proptest::collection::vec(1_u8.., 1..40)) {
            let escaped: Vec<u8> = path.iter().flat_map(|byte| match byte {
                b' ' | b'\t' | b'\n' | b'\\' | b'#' => format!("\\{byte:03o}").into_bytes(),
                _ => vec![*byte],
            }).collect();
            let got = unescape(&escaped);
            prop_assert_eq!(got.as_bytes(), &path[..]);
        }
    }
}
