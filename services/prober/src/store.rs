//! `results.json`: what probes decided, for the next life of this process.
//!
//! Owns what is in it and that no disk holds up a probe; how it is kept is [`StateFile`]'s.

use std::path::{Path, PathBuf};

use bulkhead_service::{StateFile, StateFileError};

use crate::results::Known;

const FILE: &str = "results.json";
const VERSION: u32 = 1;

/// The file. Clones share it.
#[derive(Clone, Debug)]
pub struct Store {
    file: StateFile<Known>,
}

impl Store {
    /// In `dir`, which is made when it is missing.
    pub fn new(dir: &Path) -> Self {
        Self { file: StateFile::new(dir, FILE, VERSION) }
    }

    /// What was saved last; nothing when there is no file that can be used. The reason is logged.
    pub async fn load_or_start_afresh(&self) -> Known {
        let file = self.file.clone();
        let load = move || file.load_or_log("containers are probed afresh");
        let loaded = tokio::task::spawn_blocking(load).await.unwrap_or_else(|error| {
            tracing::error!(%error, "earlier probe results were not read; containers are probed afresh");
            None
        });
        loaded.unwrap_or_default()
    }

    /// Replaces the file.
    ///
    /// # Errors
    /// [`StateFileError::Io`] when it cannot be written; the old one then stays.
    pub async fn save(&self, known: Known) -> Result<(), StateFileError> {
        let file = self.file.clone();
        tokio::task::spawn_blocking(move || file.save(&known)).await.unwrap_or_else(|cut_off| {
            Err(StateFileError::Io { action: "write", path: PathBuf::from(FILE), source: cut_off.into() })
        })
    }
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
        let store = Store::new(dir.path());
        assert_eq!(store.load_or_start_afresh().await, Known::new(), "no file is no error");
        store.save(known()).await.unwrap();
        assert_eq!(Store::new(dir.path()).load_or_start_afresh().await, known());
    }

    #[tokio::test]
    async fn without_a_file_that_can_be_used_it_starts_afresh() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(FILE), r#"{"version":1,"content":{"id-1":{"startup":3}}}"#).unwrap();
        let store = Store::new(dir.path());
        assert_eq!(store.load_or_start_afresh().await, Known::new());
        store.save(known()).await.unwrap();
        assert_eq!(store.load_or_start_afresh().await, known());
    }

    #[tokio::test]
    async fn fields_of_a_later_release_are_passed_over() {
        let dir = tempfile::tempdir().unwrap();
        let text = r#"{"version":1,"more":1,"content":{"id-1":{"startup":true,"readiness":false,"new":[]}}}"#;
        std::fs::write(dir.path().join(FILE), text).unwrap();
        assert_eq!(Store::new(dir.path()).load_or_start_afresh().await, known());
    }
}
