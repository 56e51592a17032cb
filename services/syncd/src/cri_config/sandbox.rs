//! `PodSandboxConfig`.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use bulkhead_cri::wire;
use bulkhead_model::dns::ResolvConf;
use bulkhead_model::ports::{self, Protocol};
use bulkhead_model::resources::{self, CgroupSettings, PodCgroup};
use bulkhead_model::{confinement, names, sysctl};
use k8s_openapi::api::core::v1::Pod;

use super::{namespaces, pod_log_dir, security};
use crate::identity::Identity;

/// What a sandbox is made from, beside its pod.
#[derive(Clone, Copy, Debug)]
pub struct SandboxPlan<'a> {
    /// The pod.
    pub pod: &'a Pod,
    /// Sandboxes that it had before.
    pub attempt: u32,
    /// The pod's cgroup.
    pub cgroup_parent: &'a str,
    /// `podLogsDir`.
    pub pod_logs_dir: &'a Path,
    /// Trace context of the start that makes it; kept as an annotation unless it is empty.
    pub traceparent: &'a str,
    /// The pod's names.
    pub identity: &'a Identity,
    /// What the configuration says about cgroups.
    pub cgroups: &'a CgroupSettings,
}

/// The sandbox's CRI configuration.
pub fn sandbox_config(plan: &SandboxPlan<'_>) -> wire::PodSandboxConfig {
    let SandboxPlan { pod, attempt, cgroup_parent, pod_logs_dir, traceparent, identity, cgroups } = *plan;
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
        hostname: identity.name.kernel.clone(),
        metadata: Some(wire::PodSandboxMetadata { name, uid, namespace, attempt }),
        dns_config: Some(dns_config(&identity.dns.conf)),
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
                selinux_options: confinement::pod_selinux(pod).map(security::selinux_options),
                ..Default::default()
            }),
            sysctls: sysctl::sysctls(pod).into_iter().collect(),
            overhead: Some(linux_resources(&resources::overhead_cgroup(pod, cgroups))),
            resources: Some(linux_resources(&resources::bare_cgroup(pod, cgroups))),
        }),
        ..Default::default()
    }
}

/// For runtimes that make room for a pod as a whole, such as a machine for it.
fn linux_resources(cgroup: &PodCgroup) -> wire::LinuxContainerResources {
    wire::LinuxContainerResources {
        cpu_shares: i64::try_from(cgroup.cpu_shares).unwrap_or(i64::MAX),
        cpu_quota: cgroup.cpu_quota_us.unwrap_or(0),
        cpu_period: i64::try_from(cgroup.cpu_period_us).unwrap_or(0),
        memory_limit_in_bytes: cgroup.memory_limit_bytes.unwrap_or(0),
        ..Default::default()
    }
}

/// The labels by which everything of a pod is found again.
pub(super) fn identity_labels(name: &str, namespace: &str, uid: &str) -> [(String, String); 3] {
    [(names::POD_NAME, name), (names::POD_NAMESPACE, namespace), (names::POD_UID, uid)]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
}

fn dns_config(conf: &ResolvConf) -> wire::DnsConfig {
    wire::DnsConfig {
        servers: conf.nameservers.clone(),
        searches: conf.searches.clone(),
        options: conf.options.clone(),
    }
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
