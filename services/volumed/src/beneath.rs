//! Safe paths: everything in the pods' folder is opened by descriptor, one component at a time, without following links.
//!
//! Owns how a name becomes an open directory. Must never resolve a path twice: whoever owns a directory on the way can
//! put a link there between two looks, at any moment.

use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, RawDir, ResolveFlags, SeekFrom, fstat, mkdirat, openat2, renameat, seek,
    unlinkat,
};
use rustix::io::Errno;
use rustix::path::Arg;

use crate::error::Error;
use crate::own::settle;

/// For directories that only this process, and root, may enter. Not even a group: emptyDirs inside are open to all.
const CLOSED: Mode = Mode::RWXU;
/// Bytes of directory entries read at once.
const BATCH: usize = 16 * 1024;
/// Tries of a system call that says "again".
const TRIES: usize = 16;

/// Whether an opening may enter another mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Crossing {
    /// A mount point on the way is an error.
    Refused,
    /// The top of whatever is mounted there is opened.
    Allowed,
}

/// An open directory. What is done by name in it is done in this very directory, whatever its path leads to by then.
#[derive(Debug)]
pub(crate) struct Dir {
    fd: OwnedFd,
    /// For messages only.
    path: PathBuf,
}

impl Dir {
    /// Opens a folder that root and the configuration vouch for: links on the way are followed.
    pub(crate) fn trusted(path: &Path) -> Result<Self, Error> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        match rustix::fs::open(path, flags, Mode::empty()) {
            Ok(fd) => Ok(Self { fd, path: path.to_owned() }),
            Err(source) => Err(Error::Root { path: path.to_owned(), source }),
        }
    }

    /// Opens a directory in this one, on the same mount. `None` when there is nothing of that name.
    pub(crate) fn open(&self, name: &str) -> Result<Option<Self>, Error> {
        let path = self.path.join(name);
        match open_directory(&self.fd, name, Crossing::Refused) {
            Ok(fd) => Ok(Some(Self { fd, path })),
            Err(Errno::NOENT) => Ok(None),
            Err(Errno::LOOP | Errno::NOTDIR) => Err(Error::NotADirectory { path }),
            Err(Errno::XDEV) => Err(Error::MountInTheWay { path }),
            Err(source) => Err(Error::io("open", path, source)),
        }
    }

    /// Opens the top of whatever is mounted on a directory in this one; the directory itself when nothing is.
    pub(crate) fn open_mounted(&self, name: &str) -> Result<Option<Self>, Error> {
        let path = self.path.join(name);
        match open_directory(&self.fd, name, Crossing::Allowed) {
            Ok(fd) => Ok(Some(Self { fd, path })),
            Err(Errno::NOENT) => Ok(None),
            Err(Errno::LOOP | Errno::NOTDIR) => Err(Error::NotADirectory { path }),
            Err(source) => Err(Error::io("open", path, source)),
        }
    }

    /// Opens a directory in this one that only this process and root can change, making it if need be.
    pub(crate) fn open_or_make_closed(&self, name: &str) -> Result<Self, Error> {
        let dir = match self.open(name)? {
            Some(dir) => dir,
            None => {
                self.mkdir(name, CLOSED)?;
                self.open(name)?.ok_or_else(|| Error::NotADirectory { path: self.path.join(name) })?
            }
        };
        let owner = fstat(&dir.fd).map_err(|source| Error::io("look at", &dir.path, source))?.st_uid;
        // Root's are those of an earlier kubelet.
        if owner == 0 || owner == rustix::process::geteuid().as_raw() {
            Ok(dir)
        } else {
            Err(Error::NotOurs { path: dir.path, uid: owner })
        }
    }

    /// Makes a directory of exactly this mode, whatever the umask. It appears under its name only when it is whole.
    /// The directory that it is made in must be one that nobody else can change.
    pub(crate) fn make_whole(&self, name: &str, mode: u32, fs_group: Option<u32>) -> Result<Self, Error> {
        let fresh = format!(".new-{name}");
        self.mkdir(&fresh, CLOSED)?;
        let dir = self.open(&fresh)?.ok_or_else(|| Error::NotADirectory { path: self.path.join(&fresh) })?;
        settle(&dir.fd, mode, fs_group)
            .map_err(|source| Error::io("set mode and owner of", &dir.path, source))?;
        let path = self.path.join(name);
        match renameat(&self.fd, &fresh, &self.fd, name) {
            Ok(()) => Ok(Self { fd: dir.fd, path }),
            Err(source) => Err(Error::io("make", path, source)),
        }
    }

    /// Removes a name that is not a directory; a link itself, never what it leads to. Nothing there is fine.
    pub(crate) fn unlink(&self, name: &str) -> Result<(), Error> {
        match unlinkat(&self.fd, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(source) => Err(Error::io("remove", self.path.join(name), source)),
        }
    }

    /// Removes an empty directory. Nothing there is fine.
    pub(crate) fn rmdir(&self, name: &str) -> Result<(), Error> {
        let path = || self.path.join(name);
        match unlinkat(&self.fd, name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(Errno::NOTEMPTY | Errno::EXIST) => Err(Error::StillWritten { path: path() }),
            Err(Errno::BUSY) => Err(Error::StillMounted { path: path() }),
            Err(source) => Err(Error::io("remove", path(), source)),
        }
    }

    /// Calls `each` with the name and kind of every entry.
    pub(crate) fn each(
        &self,
        mut each: impl FnMut(&CStr, FileType) -> Result<(), Error>,
    ) -> Result<(), Error> {
        rewind(&self.fd).map_err(|source| Error::io("read", &self.path, source))?;
        let mut buffer = [const { MaybeUninit::uninit() }; BATCH];
        let mut entries = RawDir::new(&self.fd, &mut buffer);
        while let Some(entry) = entries.next() {
            let entry = entry.map_err(|source| Error::io("read", &self.path, source))?;
            if !is_dots(entry.file_name()) {
                each(entry.file_name(), entry.file_type())?;
            }
        }
        Ok(())
    }

    /// Where this directory is now, by the kernel's account. `None` when it has no path any more.
    pub(crate) fn real_path(&self) -> Result<Option<PathBuf>, Error> {
        let link = descriptor_path(&self.fd);
        let found = rustix::fs::readlink(&link, Vec::new())
            .map_err(|source| Error::io("find the real path of", &self.path, source))?;
        let path = PathBuf::from(std::ffi::OsStr::from_bytes(found.as_bytes()));
        let is_here = path.is_absolute() && !found.as_bytes().ends_with(b" (deleted)");
        Ok(is_here.then_some(path))
    }

    /// For messages.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Makes a directory that must not be there yet; `None` when something of that name is.
    pub(crate) fn make_new(&self, name: &str) -> Result<Option<Self>, Error> {
        match mkdirat(&self.fd, name, CLOSED) {
            Ok(()) => self.open(name),
            Err(Errno::EXIST) => Ok(None),
            Err(source) => Err(Error::io("make", self.path.join(name), source)),
        }
    }

    fn mkdir(&self, name: &str, mode: Mode) -> Result<(), Error> {
        match mkdirat(&self.fd, name, mode) {
            Ok(()) | Err(Errno::EXIST) => Ok(()),
            Err(source) => Err(Error::io("make", self.path.join(name), source)),
        }
    }
}

impl AsFd for Dir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Opens the directory `name` of `dir`. A link gives `LOOP` or `NOTDIR`, a refused mount point `XDEV`.
pub(crate) fn open_directory<P: Arg + Copy>(
    dir: impl AsFd,
    name: P,
    crossing: Crossing,
) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    if crossing == Crossing::Refused {
        resolve |= ResolveFlags::NO_XDEV;
    }
    let mut result = Err(Errno::AGAIN);
    for _ in 0..TRIES {
        result = openat2(&dir, name, flags, Mode::empty(), resolve);
        if !matches!(result, Err(Errno::AGAIN | Errno::INTR)) {
            break;
        }
    }
    result
}

/// A path that leads to an open descriptor, and to nothing else.
pub(crate) fn descriptor_path(fd: impl AsFd) -> PathBuf {
    use std::os::fd::AsRawFd;
    PathBuf::from(format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd()))
}

/// Starts reading a directory from its first entry again.
pub(crate) fn rewind(fd: impl AsFd) -> Result<(), Errno> {
    seek(fd, SeekFrom::Start(0)).map(|_| ())
}

/// `.` and `..`, which every directory has.
pub(crate) fn is_dots(name: &CStr) -> bool {
    matches!(name.to_bytes(), b"." | b"..")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    use super::*;

    fn folder() -> (tempfile::TempDir, Dir) {
        let folder = tempfile::tempdir().unwrap();
        let dir = Dir::trusted(folder.path()).unwrap();
        (folder, dir)
    }

    #[test]
    fn only_real_directories_below_are_opened() {
        let (folder, dir) = folder();
        let outside = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("real")).unwrap();
        std::fs::write(folder.path().join("file"), "").unwrap();
        symlink(outside.path(), folder.path().join("out")).unwrap();
        symlink("real", folder.path().join("in")).unwrap();
        symlink("/proc/self/root", folder.path().join("magic")).unwrap();
        assert!(dir.open("real").unwrap().is_some());
        assert!(dir.open("missing").unwrap().is_none());
        for name in ["out", "in", "magic", "file"] {
            assert!(matches!(dir.open(name), Err(Error::NotADirectory { .. })), "{name}");
        }
        // Names are checked long before; the kernel refuses these all the same.
        for name in ["..", "/", "real/../..", "/etc"] {
            assert!(dir.open(name).is_err(), "{name}");
        }
    }

    #[test]
    fn a_mode_is_exact_and_a_name_whole() {
        let (folder, dir) = folder();
        // What a life that ended too early left.
        std::fs::create_dir(folder.path().join(".new-v")).unwrap();
        dir.make_whole("v", 0o777, None).unwrap();
        assert_eq!(folder.path().join("v").metadata().unwrap().permissions().mode() & 0o7777, 0o777);
        assert!(!folder.path().join(".new-v").exists());
    }

    #[test]
    fn closed_directories_are_closed_and_a_strangers_is_refused() {
        let (folder, dir) = folder();
        let made = dir.open_or_make_closed("v").unwrap();
        assert_eq!(made.path(), folder.path().join("v"));
        assert_eq!(folder.path().join("v").metadata().unwrap().mode() & 0o077, 0);
        assert!(dir.open_or_make_closed("v").is_ok());
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(folder.path().join("v"), Some(12_345), None).unwrap();
            assert!(matches!(dir.open_or_make_closed("v"), Err(Error::NotOurs { uid: 12_345, .. })));
        }
    }

    #[test]
    fn the_real_path_follows_a_move_and_ends_with_the_directory() {
        let (folder, dir) = folder();
        let inner = dir.open_or_make_closed("a").unwrap();
        let real = folder.path().canonicalize().unwrap();
        std::fs::rename(folder.path().join("a"), folder.path().join("b")).unwrap();
        assert_eq!(inner.real_path().unwrap(), Some(real.join("b")));
        std::fs::remove_dir(folder.path().join("b")).unwrap();
        assert_eq!(inner.real_path().unwrap(), None);
    }
}
