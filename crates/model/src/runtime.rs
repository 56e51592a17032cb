//! What the container runtime was seen to hold of a pod. Owned and published by pleg; read by everybody else.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use jiff::Timestamp;

/// One pod as the runtime holds it, dead attempts included.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuntimePod {
    /// UID of the pod (for a static pod the kubelet's 32 hex digits).
    pub uid: String,
    /// `metadata.name`, with the node name appended for a static pod.
    pub name: String,
    /// `metadata.namespace`.
    pub namespace: String,
    /// Sandboxes, newest first (by attempt, then creation time).
    pub sandboxes: Vec<Sandbox>,
    /// Containers of every kind: those of one name together, newest first. What is newer is said by the attempt: a clock that
    /// was set back makes dates lie.
    pub containers: Vec<Container>,
}

/// One pod sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sandbox {
    /// The runtime's id.
    pub id: String,
    /// How many sandboxes of this pod came before it.
    pub attempt: u32,
    /// Whether its infrastructure stands.
    pub ready: bool,
    /// When the runtime created it.
    pub created_at: Timestamp,
    /// Its addresses, the runtime's primary one first; empty for a host-network pod. A ready sandbox of any other pod
    /// without an address is taken for one that lost its network, and is replaced: publish none as ready before its
    /// addresses were read.
    pub ips: Vec<String>,
    /// W3C trace context of the start that made it, from its annotation; empty if unknown.
    pub traceparent: String,
}

/// One container, running or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Container {
    /// The runtime's id, without a `containerd://` prefix.
    pub id: String,
    /// `name` in the pod's spec.
    pub name: String,
    /// The sandbox it was made in.
    pub sandbox_id: String,
    /// The attempt, which is the restart count of the container with this name.
    pub attempt: u32,
    /// What it does.
    pub state: ContainerState,
    /// When the runtime created it.
    pub created_at: Timestamp,
    /// When it was started; `None` if never.
    pub started_at: Option<Timestamp>,
    /// When it ended; `None` if it has not.
    pub finished_at: Option<Timestamp>,
    /// Exit code; meaningful only when exited.
    pub exit_code: i32,
    /// The runtime's reason (`Completed`, `Error`, `OOMKilled`, ...).
    pub reason: String,
    /// The runtime's message.
    pub message: String,
    /// The image as the pod asked for it.
    pub image: String,
    /// The image as the runtime resolved it (a digest or an image id).
    pub image_id: String,
    /// Absolute path of its log on the node; empty if it has none.
    pub log_path: String,
    /// Fingerprint of the spec it was made from ([`crate::names::CONTAINER_HASH`]); `None` if it carries none.
    pub hash: Option<u32>,
    /// CRI annotations that this project or a kubelet put there.
    pub annotations: BTreeMap<String, String>,
    /// Whom its first process runs as; `None` when the runtime does not tell.
    pub user: Option<User>,
    /// What it is stopped with, by the API's name (`SIGTERM`); empty when the runtime does not tell.
    pub stop_signal: String,
}

/// Whom a container's first process runs as.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct User {
    /// User id.
    pub uid: i64,
    /// Group id.
    pub gid: i64,
    /// Further groups, the image's among them.
    pub supplemental_groups: Vec<i64>,
}

/// A container's state, as CRI tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ContainerState {
    /// Made, never started.
    Created,
    /// Its process runs.
    Running,
    /// Its process ended.
    Exited,
    /// The runtime cannot tell; treated as neither running nor finished.
    Unknown,
}

impl Container {
    /// Whether it runs, or may: what the runtime cannot tell has to be taken for running.
    pub fn may_run(&self) -> bool {
        matches!(self.state, ContainerState::Running | ContainerState::Unknown)
    }

    /// Whether it was made and nobody started it since.
    pub fn is_unstarted(&self) -> bool {
        self.state == ContainerState::Created
    }
}

impl RuntimePod {
    /// The newest container with this name.
    pub fn newest(&self, name: &str) -> Option<&Container> {
        self.containers.iter().find(|container| container.name == name)
    }

    /// The newest sandbox, ready or not.
    pub fn newest_sandbox(&self) -> Option<&Sandbox> {
        self.sandboxes.first()
    }

    /// Whether any container runs or any sandbox is ready.
    pub fn is_active(&self) -> bool {
        self.sandboxes.iter().any(|sandbox| sandbox.ready) || self.containers.iter().any(Container::may_run)
    }

    /// Puts sandboxes and containers into the order that this type promises.
    pub fn sort(&mut self) {
        self.sandboxes.sort_by_key(|sandbox| Reverse((sandbox.attempt, sandbox.created_at)));
        let newest = |container: &Container| Reverse((container.attempt, container.created_at));
        self.containers.sort_by(|a, b| a.name.cmp(&b.name).then_with(|| newest(a).cmp(&newest(b))));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn container(name: &str, attempt: u32, created: i64) -> Container {
        Container {
            id: format!("{name}{attempt}"),
            name: name.into(),
            sandbox_id: "s".into(),
            attempt,
            state: ContainerState::Exited,
            created_at: Timestamp::from_second(created).unwrap(),
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
            annotations: BTreeMap::default(),
        }
    }

    #[test]
    fn a_later_attempt_is_newer_whatever_the_clock_said() {
        let sandbox = |attempt: u32, created| Sandbox {
            id: format!("s{attempt}"),
            attempt,
            ready: true,
            created_at: Timestamp::from_second(created).unwrap(),
            ips: Vec::new(),
            traceparent: String::new(),
        };
        let mut pod = RuntimePod {
            sandboxes: vec![sandbox(0, 5000), sandbox(1, 1400)],
            containers: vec![container("b", 0, 1), container("a", 0, 5000), container("a", 1, 1400)],
            ..Default::default()
        };
        pod.sort();
        assert_eq!(pod.newest_sandbox().unwrap().id, "s1");
        assert_eq!((pod.newest("a").unwrap().attempt, pod.newest("b").unwrap().attempt), (1, 0));
    }
}
