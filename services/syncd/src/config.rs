//! What syncd takes from the node's configuration and flags.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use bulkhead_cgroup::CgroupPath;
use bulkhead_config::KubeletConfiguration;
use bulkhead_model::admission::Node;
use bulkhead_model::capacity::{Limits, allocatable};
use bulkhead_model::dns::ClusterDns;
use bulkhead_model::quantity::{Format, Quantity};
use bulkhead_model::resources::{self, CgroupSettings, MemoryQos};
use bulkhead_model::sysctl;
use bulkhead_service::{Context, ServiceError};

use crate::cri_config::NodeTraits;
use crate::identity::NameSettings;
use crate::machine;
use crate::source::ManifestUrl;

/// Pods that start at once. On two cores the runtime gets no faster beyond four, and the pods that wait would only wait
/// longer each.
pub const PARALLEL_STARTS: usize = 4;
/// Pods that stop at once: mostly waiting for processes to end.
pub const PARALLEL_STOPS: usize = 16;

/// Settings of this process.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Name of the node.
    pub node_name: String,
    /// `staticPodPath`.
    pub static_pod_dir: Option<PathBuf>,
    /// `fileCheckFrequency`.
    pub file_check: Duration,
    /// `staticPodURL` and `staticPodURLHeader`.
    pub manifest_url: Option<ManifestUrl>,
    /// `httpCheckFrequency`.
    pub http_check: Duration,
    /// `syncFrequency`: the longest time until a pod is looked at again.
    pub resync: Duration,
    /// `runtimeRequestTimeout`.
    pub runtime_timeout: Duration,
    /// `crashLoopBackOff.maxContainerRestartPeriod`.
    pub longest_backoff: Duration,
    /// Folder of pods' folders.
    pub pods_dir: PathBuf,
    /// `podLogsDir`.
    pub pod_logs_dir: PathBuf,
    /// `cgroupRoot`.
    pub cgroup_root: CgroupPath,
    /// For pods' and containers' cgroups.
    pub cgroups: CgroupSettings,
    /// What the node offers to pods.
    pub node: Node,
    /// What of the node shapes every container. What depends on its cgroups is filled in once they are known.
    pub traits: NodeTraits,
    /// What the configuration says about keeping and throttling memory; done on cgroup v2 alone.
    pub memory_qos: MemoryQos,
    /// For pods' names.
    pub names: NameSettings,
    /// CPUs that pods may use: what a container without a limit is told.
    pub cpus: Quantity,
    /// Bytes of memory that pods may use: likewise.
    pub memory: Quantity,
    /// Addresses of the node, the primary one first.
    pub node_ips: Vec<String>,
}

impl Settings {
    /// Reads them.
    ///
    /// # Errors
    /// When the cgroup root is no path, or the manifest URL cannot be asked.
    pub fn new(context: &Context) -> Result<Self, ServiceError> {
        let (config, flags) = (&context.config, &context.flags);
        let cgroup_root = CgroupPath::parse(&config.cgroup_root)
            .map_err(|error| ServiceError::configuration("cgroupRoot cannot be used", error))?;
        if let Some(pattern) = config.allowed_unsafe_sysctls.iter().find(|p| !sysctl::pattern_is_of_pods(p)) {
            let why = std::io::Error::other(format!("{pattern} would let pods change the whole node"));
            return Err(ServiceError::configuration("allowedUnsafeSysctls cannot be used", why));
        }
        let manifest_url = match config.static_pod_url.as_str() {
            "" => None,
            url => Some(ManifestUrl::new(url, &config.static_pod_url_header).map_err(|error| {
                ServiceError::configuration("staticPodURL, with staticPodURLHeader, cannot be used", error)
            })?),
        };
        let pods_dir = flags.root_dir.join("pods");
        let machine = machine::machine(&flags.root_dir);
        let node = Node {
            allocatable: allocatable(
                &machine,
                &Limits::configured(config.max_pods, config.pods_per_core, &config.eviction_hard),
            ),
            // What the node always has wins, as where it registers.
            labels: flags
                .node_labels
                .0
                .clone()
                .into_iter()
                .chain(machine::labels(&flags.node_name()))
                .collect(),
            unsafe_sysctls: config.allowed_unsafe_sysctls.clone(),
            confinement: machine::kernel(),
        };
        let memory = machine.memory.and_then(|bytes| i64::try_from(bytes).ok()).unwrap_or(0);
        let usable = |name| resources::amount(Some(&node.allocatable), name);
        let nothing = Quantity::from_value(0, Format::DecimalSi);
        Ok(Self {
            node_name: flags.node_name(),
            static_pod_dir: (!config.static_pod_path.is_empty())
                .then(|| config.static_pod_path.clone().into()),
            file_check: config.file_check_frequency.to_std(),
            manifest_url,
            http_check: config.http_check_frequency.to_std(),
            resync: config.sync_frequency.to_std(),
            runtime_timeout: config.runtime_request_timeout.to_std(),
            longest_backoff: config.crash_loop_back_off.max_container_restart_period.to_std(),
            pods_dir,
            pod_logs_dir: config.pod_logs_dir.clone().into(),
            cgroup_root,
            cgroups: CgroupSettings {
                cpu_period_us: u64::try_from(config.cpu_cfs_quota_period.to_std().as_micros())
                    .unwrap_or(100_000),
                enforce_cpu_limits: config.cpu_cfs_quota,
                pids_limit: (config.pod_pids_limit > 0).then_some(config.pod_pids_limit),
                memory_capacity_bytes: memory,
            },
            memory_qos: memory_qos(config, usable("memory")),
            cpus: usable("cpu").unwrap_or(nothing),
            memory: usable("memory").unwrap_or(nothing),
            node,
            traits: NodeTraits {
                seccomp_dir: flags.root_dir.join("seccomp"),
                seccomp_default: config.seccomp_default,
                huge_pages: machine.huge_pages.keys().copied().collect(),
                bounds_swap: false,
                memory_qos: MemoryQos::default(),
            },
            names: NameSettings {
                cluster: ClusterDns {
                    servers: config.cluster_dns.iter().map(ToString::to_string).collect(),
                    domain: config.cluster_domain.trim_end_matches('.').to_owned(),
                },
                resolv_conf: (!config.resolv_conf.is_empty()).then(|| config.resolv_conf.clone().into()),
            },
            node_ips: flags.node_ips().iter().map(IpAddr::to_string).collect(),
        })
    }
}

/// `memoryThrottlingFactor` and `memoryReservationPolicy`, unless the feature is switched off.
fn memory_qos(config: &KubeletConfiguration, allocatable: Option<Quantity>) -> MemoryQos {
    if config.feature_gates.get("MemoryQoS") == Some(&false) {
        return MemoryQos::default();
    }
    MemoryQos {
        throttling_factor: config.memory_throttling_factor,
        tiered_reservation: config.memory_reservation_policy == "TieredReservation",
        allocatable_bytes: allocatable.and_then(|bytes| u64::try_from(bytes.value()).ok()).unwrap_or(0),
        page_bytes: u64::try_from(rustix::param::page_size()).unwrap_or(4096),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_kept_and_throttled_only_where_that_is_asked_for() {
        let config = |gate: Option<bool>| KubeletConfiguration {
            memory_throttling_factor: Some(0.9),
            memory_reservation_policy: "TieredReservation".to_owned(),
            feature_gates: gate.map(|on| ("MemoryQoS".to_owned(), on)).into_iter().collect(),
            ..Default::default()
        };
        let of = |config: &KubeletConfiguration| {
            let found = memory_qos(config, Quantity::parse("1Gi").ok());
            (found.throttling_factor, found.tiered_reservation)
        };
        assert_eq!(of(&KubeletConfiguration::default()), (None, false));
        assert_eq!(of(&config(None)), (Some(0.9), true));
        assert_eq!(of(&config(Some(true))), (Some(0.9), true));
        assert_eq!(of(&config(Some(false))), (None, false));
        assert_eq!(memory_qos(&config(None), Quantity::parse("1Gi").ok()).allocatable_bytes, 1 << 30);
    }
}
