//! What syncd must know after its own death and cannot read elsewhere: when each pod was first seen and started, and which
//! ones are over. One small file, written whole; a file that cannot be understood is set aside and named.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use bulkhead_base::chain;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

const VERSION: u32 = 1;

/// What is kept of one pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodRecord {
    /// `kubernetes.io/config.seen`.
    pub seen: Timestamp,
    /// `status.startTime`.
    pub started_at: Timestamp,
    /// No container of it runs again, whatever the runtime remembers.
    #[serde(default)]
    pub finished: bool,
}

#[derive(Debug, Serialize, Deserialize)]
struct File {
    version: u32,
    pods: BTreeMap<String, PodRecord>,
}

/// The records, in memory and on disk. Clones share them.
#[derive(Clone, Debug)]
pub struct Records {
    path: Arc<PathBuf>,
    pods: Arc<Mutex<BTreeMap<String, PodRecord>>>,
}

/// Why the records could not be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {path}")]
pub struct RecordError {
    path: PathBuf,
    #[source]
    source: std::io::Error,
}

impl Records {
    /// Reads the records in `dir`. A missing file is a first start; one that is corrupt is renamed to `pods.json.corrupt`,
    /// and what it held is taken from the runtime as far as it can.
    pub fn open(dir: &Path) -> Self {
        let path = dir.join("pods.json");
        let pods = match std::fs::read(&path).map(|bytes| serde_json::from_slice::<File>(&bytes)) {
            Ok(Ok(file)) if file.version == VERSION => file.pods,
            Ok(other) => {
                let reason =
                    other.err().map_or_else(|| "it has another version".to_owned(), |e| e.to_string());
                let aside = dir.join("pods.json.corrupt");
                let moved = std::fs::rename(&path, &aside).is_ok();
                tracing::error!(file = %path.display(), aside = %aside.display(), moved, reason, "pod records set aside");
                BTreeMap::new()
            }
            Err(error) => {
                if error.kind() != std::io::ErrorKind::NotFound {
                    tracing::error!(file = %path.display(), %error, "pod records cannot be read");
                }
                BTreeMap::new()
            }
        };
        Self { path: Arc::new(path), pods: Arc::new(Mutex::new(pods)) }
    }

    /// First dates by pod UID.
    pub fn seen(&self) -> BTreeMap<String, Timestamp> {
        self.lock().iter().map(|(uid, record)| (uid.clone(), record.seen)).collect()
    }

    /// One pod's record.
    pub fn get(&self, uid: &str) -> Option<PodRecord> {
        self.lock().get(uid).cloned()
    }

    /// Sets or, with `None`, forgets a pod's record, and writes the file if that changed anything. What cannot be written
    /// is logged and kept in memory: a full disk must not stop pods.
    pub fn set(&self, uid: &str, record: Option<PodRecord>) {
        let mut pods = self.lock();
        let changed = match record {
            Some(record) => pods.insert(uid.to_owned(), record.clone()) != Some(record),
            None => pods.remove(uid).is_some(),
        };
        if !changed {
            return;
        }
        if let Err(error) = write(&self.path, &File { version: VERSION, pods: pods.clone() }) {
            tracing::error!(error = %chain(&error), "pod records were not saved; they are lost if syncd restarts now");
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, PodRecord>> {
        self.pods.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Write, fsync, rename: the file is whole at any time.
fn write(path: &Path, file: &File) -> Result<(), RecordError> {
    let error = |source| RecordError { path: path.to_owned(), source };
    let bytes = serde_json::to_vec(file).map_err(|e| error(e.into()))?;
    let new = path.with_extension("json.new");
    let mut out = std::fs::File::create(&new).map_err(error)?;
    out.write_all(&bytes).and_then(|()| out.sync_all()).map_err(error)?;
    std::fs::rename(&new, path).map_err(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> PodRecord {
        let at = Timestamp::from_second(7).unwrap();
        PodRecord { seen: at, started_at: at, finished: false }
    }

    #[test]
    fn records_survive_and_corrupt_files_are_set_aside() {
        let dir = tempfile::tempdir().unwrap();
        let records = Records::open(dir.path());
        records.set("a", Some(record()));
        records.set("b", Some(record()));
        records.set("b", None);
        let again = Records::open(dir.path());
        assert_eq!((again.get("a"), again.get("b")), (Some(record()), None));
        for broken in ["", "{\"version\":1,\"pods\":{\"a\":", "{\"version\":9,\"pods\":{}}", "\0\0"] {
            std::fs::write(dir.path().join("pods.json"), broken).unwrap();
            assert_eq!(Records::open(dir.path()).get("a"), None);
            let aside = std::fs::read(dir.path().join("pods.json.corrupt")).unwrap();
            assert_eq!(aside, broken.as_bytes(), "kept for whoever wants to look");
            assert!(!dir.path().join("pods.json").exists());
        }
    }

    #[test]
    fn a_disk_that_cannot_be_written_loses_nothing_in_memory() {
        let records = Records::open(Path::new("/proc/no/such/dir"));
        records.set("a", Some(record()));
        assert_eq!(records.get("a"), Some(record()));
    }
}
