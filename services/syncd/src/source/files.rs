//! Reading the static pod directory: one level, no dot-files, regular files only, each with a bound.

use std::io::Read;
use std::path::{Path, PathBuf};

use bulkhead_model::manifest;
use rustix::fs::{Mode, OFlags};

/// Files read of one directory. A node has 110 pods by default; past this the rest is refused as a whole.
const MAX_FILES: usize = 1024;

/// One file as found.
#[derive(Debug)]
pub struct FileRead {
    /// Absolute path.
    pub path: PathBuf,
    /// Its content, or why it could not be had.
    pub content: Result<Vec<u8>, String>,
}

/// Why the directory as a whole could not be read.
#[derive(Debug, thiserror::Error)]
pub enum DirError {
    /// It cannot be opened or listed.
    #[error("cannot read the static pod directory {path}")]
    Read {
        /// The directory.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// It holds more files than any node has pods.
    #[error("the static pod directory {path} holds more than {MAX_FILES} files: is it the right one?")]
    TooMany {
        /// The directory.
        path: PathBuf,
    },
}

/// Reads every manifest file in byte order of names. Names that begin with a dot and directories are left out; a file that
/// vanished since the listing is left out too.
///
/// # Errors
/// When the directory cannot be read: nothing may then be concluded about any pod.
pub fn read_dir(dir: &Path) -> Result<Vec<FileRead>, DirError> {
    let error = |source| DirError::Read { path: dir.to_owned(), source };
    let mut names = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(error)? {
        let entry = entry.map_err(error)?;
        let hidden = entry.file_name().as_encoded_bytes().starts_with(b".");
        if hidden || entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        if names.len() == MAX_FILES {
            return Err(DirError::TooMany { path: dir.to_owned() });
        }
        names.push(entry.file_name());
    }
    names.sort();
    Ok(names.iter().filter_map(|name| read_file(&dir.join(name))).collect())
}

/// `None` when the file is gone, or turned out to be a directory behind a link.
fn read_file(path: &Path) -> Option<FileRead> {
    let content = match read_regular(path) {
        Ok(content) => Ok(content?),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return None,
        Err(error) => Err(error.to_string()),
    };
    Some(FileRead { path: path.to_owned(), content })
}

fn read_regular(path: &Path) -> std::io::Result<Option<Vec<u8>>> {
    // Without NONBLOCK a FIFO would hold the scan for ever.
    let fd = rustix::fs::open(path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty())?;
    let file = std::fs::File::from(fd);
    let metadata = file.metadata()?;
    if metadata.is_dir() {
        return Ok(None);
    }
    if !metadata.is_file() {
        return Err(std::io::Error::other("not a regular file"));
    }
    let too_big = || std::io::Error::other(format!("larger than {} bytes", manifest::MAX_BYTES));
    if metadata.len() > manifest::MAX_BYTES as u64 {
        return Err(too_big());
    }
    let mut content = Vec::new();
    // It may have grown since.
    file.take(manifest::MAX_BYTES as u64 + 1).read_to_end(&mut content)?;
    if content.len() > manifest::MAX_BYTES { Err(too_big()) } else { Ok(Some(content)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_visible_regular_files_are_read_in_byte_order() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        for name in ["b.yaml", "a.yaml.bak", "a.yaml", ".a.yaml.swp", "B"] {
            std::fs::write(at(name), name).unwrap();
        }
        std::fs::create_dir(at("d")).unwrap();
        std::fs::write(at("d/c.yaml"), "x").unwrap();
        std::os::unix::fs::symlink(at("d"), at("e")).unwrap();
        std::os::unix::fs::symlink(at("nowhere"), at("f")).unwrap();
        std::fs::write(at("g"), vec![b' '; 20 << 20]).unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, at("h"), rustix::fs::FileType::Fifo, Mode::RUSR, 0).unwrap();
        let seen = read_dir(dir.path()).unwrap();
        let names: Vec<_> = seen.iter().map(|f| f.path.file_name().unwrap().to_str().unwrap()).collect();
        assert_eq!(names, ["B", "a.yaml", "a.yaml.bak", "b.yaml", "g", "h"]);
        assert_eq!(seen[1].content.as_deref().unwrap(), b"a.yaml");
        assert!(seen[4].content.as_ref().unwrap_err().contains("larger"));
        assert!(seen[5].content.as_ref().unwrap_err().contains("regular"));
        assert!(matches!(read_dir(&at("nowhere")), Err(DirError::Read { .. })));
    }
}
