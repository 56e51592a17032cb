//! The end of a pod: stopped within its grace, seen to be stopped, and then everything of it removed.

use bulkhead_cri::Run;
use bulkhead_model::actions::KillPod;
use bulkhead_model::decision::Stage;
use bulkhead_model::grace;
use tokio::time::Instant;

use super::{Goal, Step, Wanted, Worker};
use crate::error::PodError;

impl Worker {
    /// One try, given up when the pod is to be stopped sooner than it was to be until now.
    pub(super) async fn end(&mut self, goal: Goal) -> Result<Step, PodError> {
        let grace = grace::pod_grace(&self.pod, self.shorter);
        let mut control = self.control.clone();
        let sooner = async move {
            // It ends with the manager, and then the process does as well.
            let shorter = |wanted: &Wanted| grace::pod_grace(&wanted.pod, None) < grace;
            if control.wait_for(shorter).await.is_err() {
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            ended = self.terminate(goal) => ended,
            () = sooner => Ok(Step::Wait(Some(Instant::now()))),
        }
    }

    /// Each part may be done again.
    async fn terminate(&mut self, goal: Goal) -> Result<Step, PodError> {
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
        self.volumes.clear();
        if goal == Goal::Run {
            return self.clear().await;
        }
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

    /// The pod is being deleted in the API server, and nothing of it runs: what shows how it ended stays until it is gone there.
    async fn clear(&mut self) -> Result<Step, PodError> {
        self.in_folders(|folders, _, _| folders.remove_cgroup()).await?;
        self.deps.records.update(&self.uid, |record| record.finished = true);
        self.deps.records.kept().await;
        self.decision.cleared = true;
        Ok(Step::Wait(None))
    }
}

/// What is not there is removed.
fn gone(result: Result<(), bulkhead_cri::CriError>) -> Result<(), bulkhead_cri::CriError> {
    match result {
        Err(error) if !error.is_not_found() => Err(error),
        _ => Ok(()),
    }
}
