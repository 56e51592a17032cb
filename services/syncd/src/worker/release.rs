//! What an evicted pod leaves behind goes: its containers with what they wrote, and their logs. The disk may be what it was
//! evicted for.
//!
//! Never before statusd has told that the pod is over: until then the containers are the only proof of how they ended.

use std::time::Duration;

use bulkhead_cri::Run;
use bulkhead_model::runtime::RuntimePod;
use tokio::time::Instant;

use super::Worker;
use crate::error::PodError;

/// Wait before statusd is asked again.
const AGAIN: Duration = Duration::from_secs(1);

impl Worker {
    /// Removes the containers of an evicted pod, all of which have ended. When to come again, if it is too soon.
    pub(super) async fn release(&mut self, runtime: &RuntimePod) -> Result<Option<Instant>, PodError> {
        if self.shorter.is_none() || runtime.containers.is_empty() {
            return Ok(None);
        }
        if !self.deps.peers.is_told_over(&self.uid).await? {
            return Ok(Some(Instant::now() + AGAIN));
        }
        self.acted = true;
        for container in &runtime.containers {
            match self.deps.runtime.remove_container(&container.id).await {
                Err(error) if !error.is_not_found() => {
                    return Err(self.doing("removing a container")(error));
                }
                _ => self.forget_files(&container.name, container.attempt, &container.log_path),
            }
        }
        Ok(None)
    }

    /// A container is gone: so are its termination message and its log.
    pub(super) fn forget_files(&self, name: &str, attempt: u32, log: &str) {
        self.folders.remove_termination_log(name, attempt);
        // Only beneath the pod's own log folder: the path comes from the runtime.
        if std::path::Path::new(log).starts_with(&self.deps.settings.pod_logs_dir) {
            let _ = std::fs::remove_file(log);
        }
    }
}
