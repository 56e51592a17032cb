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
            let used =
                pod.containers.iter().any(|c| c.sandbox_id == sandbox.id && !removed.contains(c.id.as_str()));
            if !used {
                prune.sandboxes.push(sandbox.id.clone());
            }
        }
        prune
    }
}

#[cfg(test)]
mod tests {
    use bulkhead_model::runtime::{Container, Sandbox};

    use super::*;

    fn at(second: i64) -> jiff::Timestamp {
        jiff::Timestamp::from_second(second).unwrap()
    }

    fn container(name: &str, attempt: u32, sandbox: &str, state: ContainerState) -> Container {
        Container {
            id: format!("{name}{attempt}"),
            name: name.into(),
            sandbox_id: sandbox.into(),
            attempt,
            state,
            created_at: at(attempt.into()),
            started_at: None,
            finished_at: None,
            exit_code: 0,
            reason: String::new(),
            message: String::new(),
            image: String::new(),
            image_id: String::new(),
            log_path: String::new(),
            hash: None,
            user: None,
            stop_signal: String::new(),
            annotations: std::collections::BTreeMap::default(),
        }
    }

    fn sandbox(id: &str, attempt: u32, ready: bool) -> Sandbox {
        let created_at = at(attempt.into());
        Sandbox { id: id.into(), attempt, ready, created_at, ips: Vec::new(), traceparent: String::new() }
    }

    #[test]
    fn only_dead_things_beyond_the_last_run_go() {
        use ContainerState::{Created, Exited, Running, Unknown};
        let mut pod = RuntimePod {
            sandboxes: vec![sandbox("s2", 2, true), sandbox("s1", 1, false), sandbox("s0", 0, false)],
            containers: vec![
                container("a", 3, "s2", Running),
                container("a", 2, "s1", Exited),
                container("a", 1, "s0", Exited),
                container("a", 0, "s0", Exited),
                container("b", 1, "s2", Exited),
                container("b", 0, "s2", Unknown),
                container("c", 0, "s2", Created),
            ],
            ..Default::default()
        };
        pod.sort();
        let prune = Prune::of(&pod);
        let ids: Vec<_> = prune.containers.iter().map(|(id, _)| id.as_str()).collect();
        assert_eq!(ids, ["a1", "a0"]);
        assert_eq!(prune.sandboxes, ["s0"], "s1 still has a container that is kept");
        pod.containers.retain(|c| !ids.contains(&c.id.as_str()));
        pod.sandboxes.retain(|s| s.id != "s0");
        assert!(Prune::of(&pod).is_empty());
    }
}
