//! What a process must know after its own death: one small JSON file, written whole, with a version.
//!
//! Owns atomic replacement and the fate of files that cannot be used. Must never trust one: it is set aside and named, and
//! the process goes on as after a first start. Blocking: call it from a blocking thread where the disk may be slow.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::marker::PhantomData;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use bulkhead_base::chain;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Larger is none of ours: the statuses of a thousand pods take some MB, and tens of MB with the longest messages.
const LARGEST: u64 = 64 * 1024 * 1024;

/// A file that holds a `T`. Clones share it, and one of them writes at a time.
#[derive(Debug)]
pub struct StateFile<T> {
    path: PathBuf,
    version: u32,
    writing: Arc<Mutex<()>>,
    content: PhantomData<fn() -> T>,
}

/// Why a state file could not be read or written. What it held is lost if the process ends now.
#[derive(Debug, thiserror::Error)]
pub enum StateFileError {
    /// The disk did not do it.
    #[error("cannot {action} {path}")]
    Io {
        /// What was tried.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// It is not what this release writes; it was set aside.
    #[error("{path} cannot be used ({reason}); it was moved to {aside}")]
    Foreign {
        /// The file.
        path: PathBuf,
        /// Where it is now.
        aside: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
}

#[derive(Serialize)]
struct Outgoing<'a, T> {
    version: u32,
    content: &'a T,
}

#[derive(Deserialize)]
struct Incoming<T> {
    version: u32,
    content: T,
}

impl<T> Clone for StateFile<T> {
    fn clone(&self) -> Self {
        let (path, writing) = (self.path.clone(), self.writing.clone());
        Self { path, version: self.version, writing, content: PhantomData }
    }
}

impl<T: Serialize + DeserializeOwned> StateFile<T> {
    /// `name` in the folder `dir`. Raise `version` when an older content must not be read any more.
    pub fn new(dir: &Path, name: &str, version: u32) -> Self {
        Self { path: dir.join(name), version, writing: Arc::default(), content: PhantomData }
    }

    /// What was saved last; `None` without a file. What is damaged, too large, of another version or no file at all is
    /// renamed to `NAME.corrupt`, in place of an earlier one.
    ///
    /// # Errors
    /// When there is a file that cannot be read or used.
    pub fn load(&self) -> Result<Option<T>, StateFileError> {
        // NONBLOCK: a pipe in its place must not hold us.
        let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
        let file = match File::options().read(true).custom_flags(flags).open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            // Such as a socket in its place.
            Err(_) if self.is_no_file() => return Err(self.set_aside("it is no regular file".to_owned())),
            Err(error) => return Err(self.io("open", error)),
        };
        if self.is_no_file() {
            return Err(self.set_aside("it is no regular file".to_owned()));
        }
        let mut text = Vec::new();
        file.take(LARGEST + 1).read_to_end(&mut text).map_err(|error| self.io("read", error))?;
        if text.len() as u64 > LARGEST {
            return Err(self.set_aside(format!("it is larger than {LARGEST} bytes")));
        }
        match serde_json::from_slice::<Incoming<T>>(&text) {
            Ok(found) if found.version == self.version => Ok(Some(found.content)),
            Ok(found) => {
                Err(self.set_aside(format!("its version is {}, not {}", found.version, self.version)))
            }
            Err(error) => Err(self.set_aside(error.to_string())),
        }
    }

    fn is_no_file(&self) -> bool {
        std::fs::metadata(&self.path).is_ok_and(|meta| !meta.is_file())
    }

    /// As [`StateFile::load`]; a file that cannot be used is logged, with what that costs.
    pub fn load_or_log(&self, cost: &str) -> Option<T> {
        self.load().unwrap_or_else(|error| {
            tracing::error!(error = %chain(&error), cost, "state of an earlier life is lost");
            None
        })
    }

    /// Replaces the file: written beside it, synced, renamed. Makes the folder when it is missing.
    ///
    /// # Errors
    /// When the disk does not do it; the file then stays as it was.
    pub fn save(&self, content: &T) -> Result<(), StateFileError> {
        let _one = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let text = serde_json::to_vec(&Outgoing { version: self.version, content })
            .map_err(|error| self.io("write", error.into()))?;
        let new = self.beside("new");
        let write = || -> std::io::Result<()> {
            let dir = self.path.parent().unwrap_or(Path::new("/"));
            std::fs::create_dir_all(dir)?;
            let mut file = File::create(&new)?;
            file.write_all(&text)?;
            file.sync_all()?;
            std::fs::rename(&new, &self.path)?;
            File::open(dir)?.sync_all()
        };
        write().map_err(|error| self.io("write", error))
    }

    fn set_aside(&self, reason: String) -> StateFileError {
        let aside = self.beside("corrupt");
        // A folder makes no room for a file, nor a file for a folder.
        match std::fs::symlink_metadata(&aside) {
            Ok(meta) if meta.is_dir() => drop(std::fs::remove_dir_all(&aside)),
            Ok(_) => drop(std::fs::remove_file(&aside)),
            Err(_) => {}
        }
        match std::fs::rename(&self.path, &aside) {
            Ok(()) => StateFileError::Foreign { path: self.path.clone(), aside, reason },
            Err(error) => self.io("set aside", error),
        }
    }

    fn beside(&self, suffix: &str) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(".");
        name.push(suffix);
        name.into()
    }

    fn io(&self, action: &'static str, source: std::io::Error) -> StateFileError {
        StateFileError::Io { action, path: self.path.clone(), source }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Content = std::collections::BTreeMap<String, u32>;

    fn content() -> Content {
        [("a".to_owned(), 1)].into()
    }

    #[test]
    fn what_is_saved_is_loaded_and_nothing_is_left_beside_it() {
        let dir = tempfile::tempdir().unwrap();
        let file = StateFile::<Content>::new(&dir.path().join("sub"), "x.json", 1);
        assert_eq!(file.load().unwrap(), None, "no file is no error");
        file.save(&content()).unwrap();
        file.save(&content()).unwrap();
        assert_eq!(file.clone().load().unwrap(), Some(content()));
        assert_eq!(std::fs::read_dir(dir.path().join("sub")).unwrap().count(), 1);
    }

    #[test]
    fn a_file_that_cannot_be_used_is_set_aside_and_named() {
        let too_large = "x".repeat(usize::try_from(LARGEST).unwrap() + 1);
        let other = r#"{"version":2,"content":{}}"#;
        for text in ["", "{", r#"{"version":1}"#, r#"{"version":1,"content":3}"#, "\0\0", other, &too_large] {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("x.json");
            std::fs::write(&path, text).unwrap();
            let file = StateFile::<Content>::new(dir.path(), "x.json", 1);
            let error = file.load().unwrap_err();
            assert!(error.to_string().contains("x.json.corrupt"), "{error}");
            assert_eq!(
                std::fs::metadata(dir.path().join("x.json.corrupt")).unwrap().len(),
                text.len() as u64
            );
            assert!(!path.exists());
            file.save(&content()).unwrap();
            assert_eq!(file.load().unwrap(), Some(content()));
        }
    }

    #[test]
    fn what_is_no_file_is_set_aside_too_and_holds_nobody() {
        let dir = tempfile::tempdir().unwrap();
        let (path, aside) = (dir.path().join("x.json"), dir.path().join("x.json.corrupt"));
        let file = StateFile::<Content>::new(dir.path(), "x.json", 1);
        let fifo = |path: &Path| {
            let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR);
            rustix::fs::mknodat(rustix::fs::CWD, path, kind, mode, 0).unwrap();
        };
        let folder = |path: &Path| std::fs::create_dir_all(path.join("in/it")).unwrap();
        let socket = |path: &Path| drop(std::os::unix::net::UnixListener::bind(path).unwrap());
        let text = |path: &Path| std::fs::write(path, "{").unwrap();
        // Each in place of the one before.
        let makers: [&dyn Fn(&Path); 6] = [&folder, &fifo, &folder, &text, &socket, &folder];
        for make in makers {
            make(&path);
            let kind = std::fs::symlink_metadata(&path).unwrap().file_type();
            let error = file.load().unwrap_err();
            assert!(matches!(error, StateFileError::Foreign { .. }), "{error}");
            assert_eq!(std::fs::symlink_metadata(&aside).unwrap().file_type(), kind);
            assert_eq!(file.load().unwrap(), None);
            file.save(&content()).unwrap();
            assert_eq!(file.load().unwrap(), Some(content()));
            std::fs::remove_file(&path).unwrap();
        }
    }

    #[test]
    fn a_disk_that_cannot_be_written_keeps_the_old_file() {
        let dir = tempfile::tempdir().unwrap();
        let file = StateFile::<Content>::new(dir.path(), "x.json", 1);
        file.save(&content()).unwrap();
        // A folder in place of the file to be written beside it.
        std::fs::create_dir(dir.path().join("x.json.new")).unwrap();
        assert!(matches!(file.save(&Content::new()), Err(StateFileError::Io { .. })));
        assert_eq!(file.load().unwrap(), Some(content()));
    }
}
