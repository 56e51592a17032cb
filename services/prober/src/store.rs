//! `results.json`: what probes decided, for the next life of this process.
//!
//! Written whole (write, fsync, rename), with a version. A file that cannot be used is set aside, never trusted.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use bulkhead_base::chain;
use serde::{Deserialize, Serialize};

use crate::error::StoreError;
use crate::results::Known;

const FILE: &str = "results.json";
const ASIDE: &str = "results.json.damaged";
const NEW: &str = "results.json.new";
const VERSION: u32 = 1;
/// Larger is none of ours: a thousand containers take 150 KB.
const LARGEST: u64 = 16 * 1024 * 1024;

/// The folder with the file. Clones share it.
#[derive(Clone, Debug)]
pub struct Store {
    dir: PathBuf,
    /// One writer at a time, and in order.
    writing: Arc<Mutex<()>>,
}

#[derive(Serialize, Deserialize)]
struct Content {
    version: u32,
    containers: Known,
}

impl Store {
    /// In `dir`, which is made when it is missing.
    pub fn new(dir: PathBuf) -> Self {
        Self { dir, writing: Arc::default() }
    }

    /// What was saved last; nothing when there is no file that can be used. The reason is logged.
    pub async fn load_or_start_afresh(&self) -> Known {
        let store = self.clone();
        let loaded = tokio::task::spawn_blocking(move || store.load()).await.map_err(StoreError::CutOff);
        loaded.and_then(|loaded| loaded).unwrap_or_else(|error| {
            tracing::error!(error = %chain(&error), "earlier probe results are lost; containers are probed afresh");
            Known::new()
        })
    }

    /// Replaces the file.
    ///
    /// # Errors
    /// [`StoreError::Io`] when it cannot be written; the old one then stays.
    pub async fn save(&self, known: Known) -> Result<(), StoreError> {
        let store = self.clone();
        tokio::task::spawn_blocking(move || store.write(known)).await.map_err(StoreError::CutOff)?
    }

    fn load(&self) -> Result<Known, StoreError> {
        let path = self.dir.join(FILE);
        let mut text = Vec::new();
        match File::open(&path) {
            Ok(file) => file.take(LARGEST + 1).read_to_end(&mut text).map_err(|e| io("read", &path, e))?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Known::new()),
            Err(error) => return Err(io("open", &path, error)),
        };
        let foreign = |reason: String| {
            let aside = self.set_aside(&path)?;
            Err(StoreError::Foreign { path: path.clone(), aside, reason })
        };
        if text.len() as u64 > LARGEST {
            return foreign(format!("it is larger than {LARGEST} bytes"));
        }
        match serde_json::from_slice::<Content>(&text) {
            Ok(content) if content.version == VERSION => Ok(content.containers),
            Ok(content) => foreign(format!("its version is {}, not {VERSION}", content.version)),
            Err(source) => {
                let aside = self.set_aside(&path)?;
                Err(StoreError::Damaged { path, aside, source })
            }
        }
    }

    fn set_aside(&self, path: &Path) -> Result<PathBuf, StoreError> {
        let aside = self.dir.join(ASIDE);
        std::fs::rename(path, &aside).map_err(|error| io("set aside", path, error))?;
        Ok(aside)
    }

    fn write(&self, containers: Known) -> Result<(), StoreError> {
        let _one = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let (path, new) = (self.dir.join(FILE), self.dir.join(NEW));
        std::fs::create_dir_all(&self.dir).map_err(|error| io("make", &self.dir, error))?;
        let text = serde_json::to_vec(&Content { version: VERSION, containers })
            .map_err(|error| io("write", &new, error.into()))?;
        let write = || -> std::io::Result<()> {
            let mut file = File::create(&new)?;
            file.write_all(&text)?;
            file.sync_all()
        };
        write().map_err(|error| io("write", &new, error))?;
        std::fs::rename(&new, &path).map_err(|error| io("replace", &path, error))?;
        let sync = || File::open(&self.dir)?.sync_all();
        sync().map_err(|error| io("sync", &self.dir, error))
    }
}

fn io(action: &'static str, path: &Path, source: std::io::Error) -> StoreError {
    StoreError::Io { action, path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::container::Decided;

    fn known() -> Known {
        let decided = Decided { startup: Some(true), liveness: None, readiness: Some(false) };
        [("id-1".to_owned(), decided)].into()
    }

    #[tokio::test]
    async fn what_is_saved_is_loaded() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::new(dir.path().join("prober"));
        assert_eq!(store.load_or_start_afresh().await, Known::new(), "no file is no error");
        store.save(known()).await.unwrap();
        assert_eq!(Store::new(dir.path().join("prober")).load_or_start_afresh().await, known());
        let names: Vec<_> = std::fs::read_dir(dir.path().join("prober")).unwrap().flatten().collect();
        assert_eq!(names.len(), 1, "nothing is left beside the file");
        store.save(Known::new()).await.unwrap();
        assert_eq!(store.load_or_start_afresh().await, Known::new());
    }

    #[tokio::test]
    async fn a_file_that_cannot_be_used_is_set_aside() {
        let too_large = "x".repeat(usize::try_from(LARGEST).unwrap() + 1);
        for text in ["", "{", r#"{"version":1}"#, r#"{"version":2,"containers":{}}"#, too_large.as_str()] {
            let dir = tempfile::tempdir().unwrap();
            std::fs::write(dir.path().join(FILE), text).unwrap();
            let store = Store::new(dir.path().to_owned());
            assert_eq!(store.load_or_start_afresh().await, Known::new());
            assert_eq!(std::fs::read_to_string(dir.path().join(ASIDE)).unwrap().len(), text.len());
            assert!(!dir.path().join(FILE).exists());
            store.save(known()).await.unwrap();
            assert_eq!(store.load_or_start_afresh().await, known());
        }
    }

    #[tokio::test]
    async fn fields_of_a_later_release_are_passed_over() {
        let dir = tempfile::tempdir().unwrap();
        let text =
            r#"{"version":1,"more":1,"containers":{"id-1":{"startup":true,"readiness":false,"new":[]}}}"#;
        std::fs::write(dir.path().join(FILE), text).unwrap();
        assert_eq!(Store::new(dir.path().to_owned()).load_or_start_afresh().await, known());
    }

    #[tokio::test]
    async fn a_folder_that_cannot_be_made_is_an_error_that_names_it() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("file"), "").unwrap();
        let error = Store::new(dir.path().join("file/prober")).save(known()).await.unwrap_err();
        assert!(error.to_string().ends_with("file/prober"), "{error}");
    }
}
