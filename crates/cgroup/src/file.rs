//! Bounded reads and plain writes of cgroup files. Must never create a file: a knob that is absent is an answer.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use crate::CgroupError;

/// Largest knob or statistics file that is read, in bytes. The kernel's longest, `memory.stat`, is under 8 KiB.
pub(crate) const KNOB_LIMIT: u64 = 64 * 1024;

/// Most child cgroups of one cgroup that are looked at. A node holds a few hundred pods.
const CHILDREN_LIMIT: usize = 16 * 1024;

/// Reads `path` whole; an error when it is absent or larger than `limit` bytes.
pub(crate) fn read(path: &Path, limit: u64) -> Result<String, CgroupError> {
    read_bounded(path, limit).map_err(|failure| failure.at(path, limit))
}

/// Like [`read`], but `None` when the file is absent, its cgroup was just removed, or the kernel was told not to keep
/// this figure (PSI switched off answers "not supported").
pub(crate) fn read_optional(path: &Path, limit: u64) -> Result<Option<String>, CgroupError> {
    match read_bounded(path, limit) {
        Ok(text) => Ok(Some(text)),
        Err(ReadFailure::Io(error)) if is_gone(&error) || has_errno(&error, Errno::OPNOTSUPP) => Ok(None),
        Err(failure) => Err(failure.at(path, limit)),
    }
}

/// Writes `value` to the existing file `path` with one system call, as cgroup files want it.
pub(crate) fn write(path: &Path, value: &str) -> Result<(), CgroupError> {
    let written = OpenOptions::new()
        .write(true)
        .truncate(true)
        .open(path)
        .and_then(|mut file| file.write_all(value.as_bytes()));
    written.map_err(|source| CgroupError::Write { path: path.to_owned(), value: value.to_owned(), source })
}

/// The directories directly in `dir`; `None` when `dir` is gone.
pub(crate) fn children(dir: &Path) -> Result<Option<Vec<PathBuf>>, CgroupError> {
    let failed = |source| CgroupError::Read { path: dir.to_owned(), source };
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if is_gone(&error) => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry.map_err(failed)?;
        if !entry.file_type().map_err(failed)?.is_dir() {
            continue;
        }
        if found.len() == CHILDREN_LIMIT {
            return Err(CgroupError::TooMany {
                what: "child cgroups",
                path: dir.to_owned(),
                limit: CHILDREN_LIMIT,
            });
        }
        found.push(entry.path());
    }
    Ok(Some(found))
}

/// True when the thing is not there: never was, or its cgroup was removed while the file was open.
pub(crate) fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || has_errno(error, Errno::NODEV)
}

/// True when `error` is the system's `errno`.
pub(crate) fn has_errno(error: &io::Error, errno: Errno) -> bool {
    error.raw_os_error() == Some(errno.raw_os_error())
}

enum ReadFailure {
    Io(io::Error),
    TooLarge,
    NotText,
}

impl ReadFailure {
    fn at(self, path: &Path, limit: u64) -> CgroupError {
        let path = path.to_owned();
        match self {
            Self::Io(source) => CgroupError::Read { path, source },
            Self::TooLarge => CgroupError::TooLarge { path, limit },
            Self::NotText => CgroupError::Malformed { path, line: 0, reason: "not UTF-8 text".to_owned() },
        }
    }
}

fn read_bounded(path: &Path, limit: u64) -> Result<String, ReadFailure> {
    let file = File::open(path).map_err(ReadFailure::Io)?;
    let mut bytes = Vec::new();
    let read = file.take(limit.saturating_add(1)).read_to_end(&mut bytes).map_err(ReadFailure::Io)?;
    if u64::try_from(read).map_or(true, |read| read > limit) {
        return Err(ReadFailure::TooLarge);
    }
    String::from_utf8(bytes).map_err(|_| ReadFailure::NotText)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_is_bounded_and_names_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("memory.stat");
        fs::write(&path, "0123456789").unwrap();
        assert_eq!(read(&path, 10).unwrap(), "0123456789");
        let error = read(&path, 9).unwrap_err();
        assert!(matches!(error, CgroupError::TooLarge { limit: 9, .. }), "{error}");
        assert!(error.to_string().contains("memory.stat"), "{error}");
        fs::write(&path, [0xff, 0xfe]).unwrap();
        assert!(matches!(read(&path, 9), Err(CgroupError::Malformed { line: 0, .. })));
    }

    #[test]
    fn a_write_makes_no_file_and_leaves_no_old_tail() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("cpuset.cpus");
        assert!(matches!(write(&path, "0"), Err(CgroupError::Write { .. })));
        assert!(!path.exists());
        fs::write(&path, "0-127").unwrap();
        write(&path, "0").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "0");
    }

    #[test]
    fn an_absent_file_or_directory_is_none() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(read_optional(&dir.path().join("x"), 9).unwrap(), None);
        assert_eq!(children(&dir.path().join("x")).unwrap(), None);
        fs::write(dir.path().join("file"), "").unwrap();
        fs::create_dir(dir.path().join("child")).unwrap();
        assert_eq!(children(dir.path()).unwrap().unwrap(), [dir.path().join("child")]);
    }
}
