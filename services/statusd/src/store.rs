//! The file that carries the memory over statusd's own restart.
//!
//! Owns `statuses.json` in the process' state folder: written whole (write, fsync, rename), with a version. A file that
//! cannot be understood is set aside and never trusted.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::record::Record;
use crate::records::Memory;

const VERSION: u32 = 1;
/// Largest file taken. A status is a few KB, and a node has at most some hundred pods.
const MAX_BYTES: u64 = 64 * 1024 * 1024;

/// Where the file is.
#[derive(Clone, Debug)]
pub(crate) struct Store {
    dir: PathBuf,
}

/// What can go wrong.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StoreError {
    /// The folder or the file cannot be used.
    #[error("cannot {action} {path}")]
    Io {
        /// What failed.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The file is not what statusd writes.
    #[error("{path} cannot be understood ({reason}); {fate}")]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
        /// What became of it.
        fate: String,
    },
    /// A status has no JSON.
    #[error("cannot encode the statuses")]
    Encode(#[source] serde_json::Error),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Saved {
    version: u32,
    runtime_name: String,
    pods: BTreeMap<String, Record>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Saving<'a> {
    version: u32,
    runtime_name: &'a str,
    pods: BTreeMap<&'a str, &'a Record>,
}

impl Store {
    /// In this folder, which is made when it is first needed.
    pub(crate) fn new(dir: PathBuf) -> Self {
        Self { dir }
    }

    /// Reads the memory. Without a file it is empty, which is a first start. Blocks.
    ///
    /// # Errors
    /// When the file cannot be read or understood; the latter is set aside as `statuses.json.corrupt`.
    pub(crate) fn load(&self) -> Result<Memory, StoreError> {
        let path = self.path();
        let bytes = match read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Memory::default()),
            Err(source) => return Err(StoreError::Io { action: "read", path, source }),
        };
        match understand(&bytes) {
            Ok(memory) => Ok(memory),
            Err(reason) => Err(self.set_aside(path, reason)),
        }
    }

    /// Writes the memory. Blocks.
    ///
    /// # Errors
    /// When the folder cannot be made or the file not be written; the file is then as it was.
    pub(crate) fn save(&self, memory: &Memory) -> Result<(), StoreError> {
        let pods = memory.pods.iter().map(|(uid, record)| (uid.as_str(), &**record)).collect();
        let saving = Saving { version: VERSION, runtime_name: &memory.runtime_name, pods };
        let bytes = serde_json::to_vec(&saving).map_err(StoreError::Encode)?;
        let (path, new) = (self.path(), self.dir.join("statuses.json.new"));
        let failed = |action, path: &Path| {
            let path = path.to_owned();
            move |source| StoreError::Io { action, path, source }
        };
        std::fs::create_dir_all(&self.dir).map_err(failed("make folder", &self.dir))?;
        let mut file = File::create(&new).map_err(failed("create", &new))?;
        file.write_all(&bytes).and_then(|()| file.sync_all()).map_err(failed("write", &new))?;
        std::fs::rename(&new, &path).map_err(failed("replace", &path))?;
        let dir = File::open(&self.dir).and_then(|dir| dir.sync_all());
        dir.map_err(failed("write folder", &self.dir))
    }

    fn path(&self) -> PathBuf {
        self.dir.join("statuses.json")
    }

    fn set_aside(&self, path: PathBuf, reason: String) -> StoreError {
        // One name, so that what was set aside cannot fill the disk.
        let aside = self.dir.join("statuses.json.corrupt");
        let fate = match std::fs::rename(&path, &aside) {
            Ok(()) => format!("it was set aside as {}", aside.display()),
            Err(error) => format!("it could not be set aside: {error}"),
        };
        StoreError::Corrupt { path, reason, fate }
    }
}

fn read(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn understand(bytes: &[u8]) -> Result<Memory, String> {
    if u64::try_from(bytes.len()).is_ok_and(|len| len > MAX_BYTES) {
        return Err(format!("it is longer than {MAX_BYTES} bytes"));
    }
    let saved: Saved = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    if saved.version != VERSION {
        return Err(format!("its version is {}, not {VERSION}", saved.version));
    }
    let pods = saved.pods.into_iter().map(|(uid, record)| (uid, Arc::new(record))).collect();
    Ok(Memory { runtime_name: saved.runtime_name, pods })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn memory() -> Memory {
        let record = Record { terminated: true, ..Record::default() };
        Memory { runtime_name: "containerd".to_owned(), pods: [("u".to_owned(), Arc::new(record))].into() }
    }

    #[test]
    fn what_is_saved_is_loaded() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::new(dir.path().join("statusd"));
        assert_eq!(store.load().unwrap(), Memory::default(), "a first start");
        store.save(&memory()).unwrap();
        assert_eq!(store.load().unwrap(), memory());
        store.save(&Memory::default()).unwrap();
        assert_eq!(store.load().unwrap(), Memory::default());
    }

    #[test]
    fn a_corrupt_file_is_set_aside() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::new(dir.path().to_owned());
        let aside = dir.path().join("statuses.json.corrupt");
        store.save(&memory()).unwrap();
        let good = std::fs::read(store.path()).unwrap();
        let newer = br#"{"version":2,"runtimeName":"x","pods":{}}"#;
        for bad in [&good[..good.len() / 2], b"", b"\0\0\0\0", b"[]", newer] {
            std::fs::write(store.path(), bad).unwrap();
            let error = store.load().unwrap_err().to_string();
            assert!(error.contains("statuses.json.corrupt"), "{error}");
            assert_eq!(std::fs::read(&aside).unwrap(), bad);
            assert_eq!(store.load().unwrap(), Memory::default(), "begins anew");
        }
    }

    #[test]
    fn a_folder_that_cannot_be_used_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let blocked = dir.path().join("file");
        std::fs::write(&blocked, "").unwrap();
        let store = Store::new(blocked.join("statusd"));
        assert!(store.save(&memory()).unwrap_err().to_string().contains("file/statusd"));
        assert!(store.load().is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = understand(&bytes);
        }
    }
}
