//! Ephemeral containers: which ones have run, and whose processes one sees.

use std::collections::BTreeSet;

use bulkhead_model::runtime::RuntimePod;
use bulkhead_model::spec;

use super::Worker;

impl Worker {
    /// Those that have run, whatever the runtime holds of them by now.
    pub(super) fn ephemeral_ran(&self) -> BTreeSet<String> {
        self.deps.records.get(&self.uid).map(|record| record.ephemeral_ran).unwrap_or_default()
    }

    /// Remembers those that the runtime shows to have been started.
    pub(super) fn follow_ephemeral(&self, runtime: &RuntimePod) {
        let ran = spec::ephemeral(&self.pod).into_iter().map(|found| found.container.name);
        let is_started = |name: &String| runtime.newest(name).is_some_and(|newest| !newest.is_unstarted());
        let ran: Vec<_> = ran.filter(is_started).collect();
        if !ran.is_empty() {
            self.deps.records.update(&self.uid, |record| record.ephemeral_ran.extend(ran));
        }
    }

    /// It was started, and is not again.
    pub(super) async fn ephemeral_started(&self, name: &str) {
        let ran = name.to_owned();
        self.deps.records.update(&self.uid, |record| {
            record.ephemeral_ran.insert(ran);
        });
        self.deps.records.kept().await;
    }

    /// Id of the container whose processes the ephemeral container of this name sees; `None`: its own.
    ///
    /// # Errors
    /// When that container is not there.
    pub(super) fn target_of(&self, name: &str, runtime: &RuntimePod) -> Result<Option<String>, String> {
        let found = spec::ephemeral(&self.pod).into_iter().find(|found| found.container.name == name);
        let Some(target) = found.and_then(|found| found.target) else { return Ok(None) };
        match runtime.newest(&target) {
            Some(container) => Ok(Some(container.id.clone())),
            None => Err(format!("unable to find target container {target}")),
        }
    }
}
