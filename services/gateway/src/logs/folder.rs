//! A container's log folder, opened so that no link on the way is followed and nothing outside is ever reached.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Dir, FileType, Mode, OFlags, ResolveFlags, fstat, openat2};
use rustix::io::Errno;

use super::names::{self, LogName};
use crate::error::LogError;

/// Most directory entries looked at: rotation keeps a handful a container.
const ENTRIES: usize = 4096;

/// An open folder.
#[derive(Debug)]
pub(super) struct Folder {
    fd: OwnedFd,
    /// For messages.
    path: PathBuf,
}

/// An open log file.
#[derive(Debug)]
pub(super) struct LogFile {
    file: File,
    id: FileId,
    path: PathBuf,
}

/// Tells files apart while they are open, whatever their names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileId {
    device: u64,
    inode: u64,
}

impl Folder {
    /// Opens `pod/container` beneath `root`. The root itself is the configuration's, and may be reached by links. `None`
    /// when there is no such folder.
    pub(super) fn open(root: &Path, pod: &str, container: &str) -> Result<Option<Self>, LogError> {
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
        let path = root.join(pod).join(container);
        // Only a place to start from: no right to list the pods is needed.
        let beneath = match rustix::fs::open(root, OFlags::PATH | flags, Mode::empty()) {
            Ok(root) => root,
            Err(source) => return Err(LogError::io("open the pods' log folder", root, source)),
        };
        match openat2(
            beneath,
            Path::new(pod).join(container),
            OFlags::RDONLY | flags,
            Mode::empty(),
            resolve(),
        ) {
            Ok(fd) => Ok(Some(Self { fd, path })),
            Err(Errno::NOENT) => Ok(None),
            Err(source) => Err(LogError::io("open", path, source)),
        }
    }

    /// Every log file's name, in no order.
    pub(super) fn logs(&self) -> Result<Vec<LogName>, LogError> {
        let fault = |source| LogError::io("list", &self.path, source);
        let mut logs = Vec::new();
        for entry in Dir::read_from(&self.fd).map_err(fault)?.take(ENTRIES) {
            let entry = entry.map_err(fault)?;
            logs.extend(entry.file_name().to_str().ok().and_then(names::parse));
        }
        Ok(logs)
    }

    /// Opens a log file. `None` when it is not there.
    pub(super) fn file(&self, name: &str) -> Result<Option<LogFile>, LogError> {
        let path = self.path.join(name);
        // NONBLOCK: opening a pipe must not wait for a writer.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let fd = match openat2(&self.fd, name, flags, Mode::empty(), resolve()) {
            Ok(fd) => fd,
            Err(Errno::NOENT) => return Ok(None),
            Err(source) => return Err(LogError::io("open", path, source)),
        };
        let stat = fstat(&fd).map_err(|source| LogError::io("look at", &path, source))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(LogError::NotPlain { path });
        }
        let id = FileId { device: stat.st_dev, inode: stat.st_ino };
        Ok(Some(LogFile { file: File::from(fd), id, path }))
    }
}

impl LogFile {
    /// Which file it is.
    pub(super) fn id(&self) -> FileId {
        self.id
    }

    /// Its present size in bytes.
    pub(super) fn size(&self) -> Result<u64, LogError> {
        self.file.metadata().map(|metadata| metadata.len()).map_err(|error| self.fault(&error))
    }

    /// Fills `buffer` from `offset` on; returns how much there was, 0 at the end.
    pub(super) fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<usize, LogError> {
        let mut done = 0;
        while let Some(rest) = buffer.get_mut(done..)
            && !rest.is_empty()
        {
            match self.file.read_at(rest, offset.saturating_add(u64::try_from(done).unwrap_or(u64::MAX))) {
                Ok(0) => break,
                Ok(more) => done += more,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.fault(&error)),
            }
        }
        Ok(done)
    }

    fn fault(&self, error: &std::io::Error) -> LogError {
        LogError::io("read", &self.path, Errno::from_io_error(error).unwrap_or(Errno::IO))
    }
}

fn resolve() -> ResolveFlags {
    ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    const POD: &str = "ns_p_u";

    fn tree() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("logs").join(POD).join("c")).unwrap();
        std::fs::create_dir_all(dir.path().join("outside/c")).unwrap();
        std::fs::write(dir.path().join("outside/c/0.log"), "secret").unwrap();
        dir
    }

    fn refused<T: std::fmt::Debug>(result: Result<T, LogError>) {
        assert!(matches!(result, Err(LogError::NotPlain { .. })), "{result:?}");
    }

    #[test]
    fn no_link_leads_out() {
        let dir = tree();
        let root = dir.path().join("logs");
        let container = root.join(POD).join("c");
        symlink(dir.path().join("outside/c/0.log"), container.join("0.log")).unwrap();
        symlink("../../../outside/c/0.log", container.join("1.log")).unwrap();
        std::fs::write(container.join("2.log"), "good").unwrap();
        // Not even one to a file beside it.
        symlink("2.log", container.join("3.log")).unwrap();
        symlink("/proc/self/environ", container.join("4.log")).unwrap();
        let folder = Folder::open(&root, POD, "c").unwrap().unwrap();
        for name in ["0.log", "1.log", "3.log", "4.log"] {
            refused(folder.file(name));
        }
        let mut buffer = [0; 16];
        assert_eq!(folder.file("2.log").unwrap().unwrap().read(1, &mut buffer).unwrap(), 3);
        assert!(folder.file("5.log").unwrap().is_none());
        // Folders are no better.
        symlink(dir.path().join("outside"), root.join("ns_q_u")).unwrap();
        symlink(&container, root.join(POD).join("d")).unwrap();
        refused(Folder::open(&root, "ns_q_u", "c"));
        refused(Folder::open(&root, POD, "d"));
        refused(Folder::open(&root, "../outside", "c"));
        refused(Folder::open(&root, "..", "outside"));
        assert!(Folder::open(&root, POD, "e").unwrap().is_none());
    }

    #[test]
    fn only_plain_files_are_read_and_pipes_do_not_hang() {
        let dir = tree();
        let root = dir.path().join("logs");
        let container = root.join(POD).join("c");
        std::fs::create_dir(container.join("0.log")).unwrap();
        let pipe = container.join("1.log");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let folder = Folder::open(&root, POD, "c").unwrap().unwrap();
        refused(folder.file("0.log"));
        refused(folder.file("1.log"));
        let mut names: Vec<_> = folder.logs().unwrap().iter().map(LogName::file_name).collect();
        names.sort();
        assert_eq!(names, ["0.log", "1.log"]);
    }

    #[test]
    fn a_log_folder_that_is_not_there_is_named() {
        let dir = tree();
        let error = Folder::open(&dir.path().join("none"), POD, "c").unwrap_err();
        assert!(error.to_string().contains("none"), "{error}");
    }
}
