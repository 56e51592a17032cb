//! From a pod to what CRI asks for. Pure: what comes from elsewhere (mounts, image, addresses) is an input.

mod container;
mod sandbox;
mod security;

pub use container::{ConfigError, ContainerPlan, ImageUser, container_config};
pub use sandbox::sandbox_config;

use std::path::{Path, PathBuf};

use bulkhead_cri::wire;
use bulkhead_model::spec;
use k8s_openapi::api::core::v1::Pod;

/// Folder of a pod's logs beneath `podLogsDir`, as the kubelet names it.
pub fn pod_log_dir(pod_logs_dir: &Path, namespace: &str, name: &str, uid: &str) -> PathBuf {
    pod_logs_dir.join(format!("{namespace}_{name}_{uid}"))
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
