//! From a pod to what CRI asks for. Pure: what comes from elsewhere (mounts, image, addresses) is an input.

mod container;
mod sandbox;
mod security;
mod volume_mounts;

pub use container::{
    ConfigError, ContainerPlan, ImageUser, check_memory_limit, container_config, resources_update,
};
pub use sandbox::{SandboxPlan, sandbox_config};
pub use volume_mounts::{SubPath, sub_paths};

use std::path::{Path, PathBuf};

use bulkhead_cri::wire;
use bulkhead_model::resources::MemoryQos;
use bulkhead_model::{names, spec};
use k8s_openapi::api::core::v1::Pod;

/// What of the node shapes every container.
#[derive(Clone, Debug, Default)]
pub struct NodeTraits {
    /// Folder of the seccomp profiles that pods may name.
    pub seccomp_dir: PathBuf,
    /// `seccompDefault`: who names no seccomp profile has the runtime's.
    pub seccomp_default: bool,
    /// Bytes of a page of each size of huge pages that the kernel has.
    pub huge_pages: Vec<u64>,
    /// Whether `memory.swap.max` is there to keep containers from swapping.
    pub bounds_swap: bool,
    /// How memory is kept and throttled; nothing of it on cgroup v1.
    pub memory_qos: MemoryQos,
}

/// Folder of a pod's logs beneath `podLogsDir`.
pub fn pod_log_dir(pod_logs_dir: &Path, namespace: &str, name: &str, uid: &str) -> PathBuf {
    pod_logs_dir.join(names::pod_log_folder(namespace, name, uid))
}

/// Namespaces of a pod's sandbox and containers.
fn namespaces(pod: &Pod) -> wire::NamespaceOption {
    use wire::NamespaceMode::{Container, Node, Pod as InPod};
    let pod_spec = pod.spec.as_ref();
    let flag = |value: Option<bool>| value.unwrap_or(false);
    let network = if spec::host_network(pod) { Node } else { InPod };
    let pid = match pod_spec {
        Some(s) if flag(s.host_pid) => Node,
        Some(s) if flag(s.share_process_namespace) => InPod,
        _ => Container,
    };
    let ipc = if pod_spec.is_some_and(|s| flag(s.host_ipc)) { Node } else { InPod };
    wire::NamespaceOption { network: network.into(), pid: pid.into(), ipc: ipc.into(), ..Default::default() }
}

#[cfg(test)]
mod tests;
