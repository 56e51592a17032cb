//! `PodSandboxConfig`.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use bulkhead_cri::wire;
use bulkhead_model::ports::{self, Protocol};
use bulkhead_model::{names, spec};
use k8s_openapi::api::core::v1::Pod;

use super::{namespaces, pod_log_dir, security};

/// Longest host name: Linux takes 64 bytes with the closing zero.
const HOSTNAME_BYTES: usize = 63;

/// The sandbox of `pod`, its `attempt`th. `traceparent` is kept on it as an annotation.
pub fn sandbox_config(
    pod: &Pod,
    attempt: u32,
    cgroup_parent: &str,
    pod_logs_dir: &Path,
    traceparent: &str,
) -> wire::PodSandboxConfig {
    let meta = &pod.metadata;
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    let (name, namespace, uid) = (text(&meta.name), text(&meta.namespace), text(&meta.uid));
    let mut labels: HashMap<_, _> = meta.labels.clone().unwrap_or_default().into_iter().collect();
    labels.extend(identity_labels(&name, &namespace, &uid));
    let mut annotations: BTreeMap<_, _> = meta.annotations.clone().unwrap_or_default();
    if !traceparent.is_empty() {
        annotations.insert(names::TRACEPARENT.to_owned(), traceparent.to_owned());
    }
    wire::PodSandboxConfig {
        log_directory: pod_log_dir(pod_logs_dir, &namespace, &name, &uid).to_string_lossy().into_owned(),
        hostname: hostname(pod, &name),
        metadata: Some(wire::PodSandboxMetadata { name, uid, namespace, attempt }),
        // The runtime gives the node's own; DNS policies come with the rest of the pod's network identity.
        dns_config: None,
        port_mappings: ports::mappings(pod).iter().map(port_mapping).collect(),
        labels,
        annotations: annotations.into_iter().collect(),
        linux: Some(wire::LinuxPodSandboxConfig {
            cgroup_parent: cgroup_parent.to_owned(),
            security_context: Some(wire::LinuxSandboxSecurityContext {
                namespace_options: Some(namespaces(pod)),
                privileged: security::any_privileged(pod),
                // The pause program needs nothing that the runtime's profile forbids.
                seccomp: Some(security::runtime_default()),
                ..Default::default()
            }),
            ..Default::default()
        }),
        ..Default::default()
    }
}

/// The labels by which everything of a pod is found again.
pub(super) fn identity_labels(name: &str, namespace: &str, uid: &str) -> [(String, String); 3] {
    [(names::POD_NAME, name), (names::POD_NAMESPACE, namespace), (names::POD_UID, uid)]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
}

/// Empty for a host-network pod: it has the node's.
fn hostname(pod: &Pod, name: &str) -> String {
    if spec::host_network(pod) {
        return String::new();
    }
    let own = pod.spec.as_ref().and_then(|spec| spec.hostname.as_deref()).filter(|name| !name.is_empty());
    let mut hostname = own.unwrap_or(name).to_owned();
    hostname.truncate(hostname.floor_char_boundary(HOSTNAME_BYTES));
    hostname.trim_end_matches(['-', '.']).to_owned()
}

fn port_mapping(mapping: &ports::PortMapping) -> wire::PortMapping {
    let protocol = match mapping.protocol {
        Protocol::Tcp => wire::Protocol::Tcp,
        Protocol::Udp => wire::Protocol::Udp,
        Protocol::Sctp => wire::Protocol::Sctp,
    };
    wire::PortMapping {
        protocol: protocol.into(),
        container_port: mapping.container_port.into(),
        host_port: mapping.host_port.into(),
        host_ip: mapping.host_ip.clone(),
    }
}
