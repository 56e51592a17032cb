//! What syncd's worker decided about a pod: the half of a pod's status that the runtime cannot know.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use crate::status_view::ResourceView;

/// Where a pod is in its life on this node. Only moves down this list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stage {
    /// Wanted: containers are started and kept.
    #[default]
    Syncing,
    /// Being stopped: no container may start any more.
    Terminating,
    /// The runtime was seen, after the last action, to hold nothing that runs.
    Terminated,
}

/// Why a container waits: shown as `state.waiting`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Waiting {
    /// The kubelet's reason, such as `ContainerCreating`, `ErrImagePull`, `CrashLoopBackOff`.
    pub reason: String,
    /// For people; at most 1,024 bytes.
    pub message: String,
}

/// How far a change of a running pod's resources has come (KEP 1287).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resize {
    /// The node did not accept what is asked for: shown as the condition PodResizePending.
    pub pending: Option<ResizeStep>,
    /// It did, and not all of it applies: shown as the condition PodResizeInProgress.
    pub progress: Option<ResizeStep>,
    /// By container: requests and limits that apply, where they are not those that were accepted.
    pub applied: BTreeMap<String, ResourceView>,
    /// Those of the pod as a whole, if there are any such containers.
    pub applied_total: Option<ResourceView>,
}

/// Where a change of resources is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResizeStep {
    /// The kubelet's reason; perhaps empty.
    pub reason: String,
    /// For people; perhaps empty.
    pub message: String,
    /// `metadata.generation` of the pod that asks for it.
    pub generation: i64,
}

/// A worker's decisions about one pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// Where the pod is in its life.
    pub stage: Stage,
    /// Per container name: why it is not running, if the worker knows better than the runtime.
    pub waiting: BTreeMap<String, Waiting>,
    /// When set, the pod failed as a whole with this reason (`Evicted`, `DeadlineExceeded`, an admission reason).
    pub failed: Option<Waiting>,
    /// Whether it failed because of a disruption that the node caused: `status.conditions` says so, with `failed`'s message.
    pub disrupted: bool,
    /// When this node first accepted the pod: `status.startTime`.
    pub started_at: Option<Timestamp>,
    /// By container id: what a container that ended left as its termination message, its failed postStart hook included; empty
    /// if that is nothing. An id that is missing was not looked at yet: what was published of it stands.
    pub messages: BTreeMap<String, String>,
    /// Ids of containers whose postStart hook has not ended: they are neither shown as running nor probed until it has.
    pub in_post_start: BTreeSet<String>,
    /// Nothing that the pod used is left on the node but what shows how it ended. Only ever true of a pod that is being deleted.
    pub cleared: bool,
    /// How far a change of its resources has come.
    pub resize: Resize,
    /// Counts the worker's passes; newer decisions replace older ones.
    pub generation: u64,
}
