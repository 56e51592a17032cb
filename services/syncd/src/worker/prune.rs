//! Which dead containers and sandboxes of a pod are removed. Pure.

use std::collections::BTreeSet;

use bulkhead_model::runtime::{ContainerState, RuntimePod};

/// Dead containers kept beside the newest one of each name: what `lastState` shows (the kubelet's default).
const KEPT: usize = 1;

/// What to remove.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Prune {
    /// Ids and log files of dead containers.
    pub(super) containers: Vec<(String, String)>,
    /// Ids of dead sandboxes without containers.
    pub(super) sandboxes: Vec<String>,
}

impl Prune {
    pub(super) fn is_empty(&self) -> bool {
        self.containers.is_empty() && self.sandboxes.is_empty()
    }

    /// The newest container of each name and its [`KEPT`] predecessors stay, and so does the newest sandbox.
    pub(super) fn of(pod: &RuntimePod) -> Self {
        let mut prune = Self::default();
        let names: BTreeSet<&str> = pod.containers.iter().map(|c| c.name.as_str()).collect();
        for name in names {
            let older = pod.containers.iter().filter(|c| c.name == name).skip(1);
            let dead = older.filter(|c| c.state == ContainerState::Exited);
            prune.containers.extend(dead.skip(KEPT).map(|c| (c.id.clone(), c.log_path.clone())));
        }
        let removed: BTreeSet<&str> = prune.containers.iter().map(|(id, _)| id.as_str()).collect();
        for sandbox in pod.sandboxes.iter().skip(1).filter(|sandbox| !sandbox.ready) {
            let used = pod.containers.iter().any(|c| c.sandbox_id == sandbox.id && !removed.contains(c.id.as_str()));
            if !used {
                prune.sandboxes.push(sandbox.id.clone());
            }
        }
        prune
    }
}
