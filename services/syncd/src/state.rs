//! What syncd must know after its own death and cannot read elsewhere: when each pod was first seen and started, and which
//! ones are over.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use bulkhead_base::chain;
use bulkhead_service::StateFile;
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

/// The records, in memory and on disk. Clones share them.
#[derive(Clone, Debug)]
pub struct Records {
    file: StateFile<BTreeMap<String, PodRecord>>,
    pods: Arc<Mutex<BTreeMap<String, PodRecord>>>,
}

impl Records {
    /// Reads the records in `dir`. What a corrupt file held is taken from the runtime as far as that goes.
    pub fn open(dir: &Path) -> Self {
        let file = StateFile::new(dir, "pods.json", VERSION);
        let pods =
            file.load_or_log("pods that run are adopted; their start times and ended pods are not known");
        Self { file, pods: Arc::new(Mutex::new(pods.unwrap_or_default())) }
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
        if let Err(error) = self.file.save(&pods) {
            tracing::error!(error = %chain(&error), "pod records were not saved; they are lost if syncd restarts now");
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, PodRecord>> {
        self.pods.lock().unwrap_or_else(PoisonError::into_inner)
    }
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
        std::fs::write(dir.path().join("pods.json"), "{").unwrap();
        assert_eq!(Records::open(dir.path()).get("a"), None);
        assert!(dir.path().join("pods.json.corrupt").exists(), "kept for whoever wants to look");
    }

    #[test]
    fn a_disk_that_cannot_be_written_loses_nothing_in_memory() {
        let records = Records::open(Path::new("/proc/no/such/dir"));
        records.set("a", Some(record()));
        assert_eq!(records.get("a"), Some(record()));
    }
}
