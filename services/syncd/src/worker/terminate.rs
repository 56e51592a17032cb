//! The end of a pod: stopped within its grace, seen to be stopped, and then everything of it removed.

use bulkhead_cri::Run;
use bulkhead_model::actions::KillPod;
use bulkhead_model::decision::Stage;

use super::{Step, Worker};
use crate::error::PodError;

impl Worker {
    /// One try; each part may be done again.
    pub(super) async fn terminate(&mut self) -> Result<Step, PodError> {
        if self.decision.stage == Stage::Syncing {
            self.decision.stage = Stage::Terminating;
            self.publish();
        }
        let mut runtime = self.observe().await?;
        if runtime.is_active() {
            tracing::info!(pod.uid = self.uid, pod.name = self.name(), "stopping the pod");
            self.stop_everything(&runtime, KillPod::Terminating).await?;
            runtime = self.observe().await?;
            if runtime.is_active() {
                return Err(PodError::StillRuns { uid: self.uid.clone() });
            }
        }
        if self.decision.stage != Stage::Terminated {
            self.decision.stage = Stage::Terminated;
            self.decision.waiting.clear();
            self.publish();
        }
        // Seen, newer than the last action: nothing runs. Only now may what it used go.
        self.deps.peers.tear_down_volumes(&self.uid).await?;
        for container in &runtime.containers {
            gone(self.deps.runtime.remove_container(&container.id).await)
                .map_err(self.doing("removing a container"))?;
        }
        for sandbox in &runtime.sandboxes {
            gone(self.deps.runtime.remove_pod_sandbox(&sandbox.id).await)
                .map_err(self.doing("removing the sandbox"))?;
        }
        self.in_folders(|folders, _, _| {
            folders.remove_cgroup()?;
            folders.remove()
        })
        .await?;
        tracing::info!(pod.uid = self.uid, pod.name = self.name(), "pod removed");
        Ok(Step::Gone)
    }
}

/// What is not there is removed.
fn gone(result: Result<(), bulkhead_cri::CriError>) -> Result<(), bulkhead_cri::CriError> {
    match result {
        Err(error) if !error.is_not_found() => Err(error),
        _ => Ok(()),
    }
}
