//! What syncd takes from the node's configuration and flags.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use bulkhead_cgroup::CgroupPath;
use bulkhead_model::quantity::{Format, Quantity};
use bulkhead_model::resources::CgroupSettings;
use bulkhead_service::{Context, ServiceError};

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
    /// CPUs of the node: what a container without a limit is told.
    pub cpus: Quantity,
    /// Bytes of memory of the node: likewise.
    pub memory: Quantity,
    /// Addresses of the node, the primary one first.
    pub node_ips: Vec<String>,
}

impl Settings {
    /// Reads them.
    ///
    /// # Errors
    /// When the cgroup root is no path.
    pub fn new(context: &Context) -> Result<Self, ServiceError> {
        let (config, flags) = (&context.config, &context.flags);
        let cgroup_root = CgroupPath::parse(&config.cgroup_root)
            .map_err(|error| ServiceError::configuration("cgroupRoot cannot be used", error))?;
        let memory = memory_bytes();
        let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Ok(Self {
            node_name: flags.node_name(),
            static_pod_dir: (!config.static_pod_path.is_empty())
                .then(|| config.static_pod_path.clone().into()),
            file_check: config.file_check_frequency.to_std(),
            resync: config.sync_frequency.to_std(),
            runtime_timeout: config.runtime_request_timeout.to_std(),
            longest_backoff: config.crash_loop_back_off.max_container_restart_period.to_std(),
            pods_dir: flags.root_dir.join("pods"),
            pod_logs_dir: config.pod_logs_dir.clone().into(),
            cgroup_root,
            cgroups: CgroupSettings {
                cpu_period_us: u64::try_from(config.cpu_cfs_quota_period.to_std().as_micros())
                    .unwrap_or(100_000),
                enforce_cpu_limits: config.cpu_cfs_quota,
                pids_limit: (config.pod_pids_limit > 0).then_some(config.pod_pids_limit),
                memory_capacity_bytes: memory,
            },
            cpus: Quantity::from_value(i64::try_from(cpus).unwrap_or(1), Format::DecimalSi),
            memory: Quantity::from_value(memory, Format::BinarySi),
            node_ips: flags.node_ips().iter().map(IpAddr::to_string).collect(),
        })
    }
}

/// `MemTotal`; 0 where /proc/meminfo cannot be read.
fn memory_bytes() -> i64 {
    let info = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let total = info.lines().find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix("kB"));
    total.and_then(|kib| kib.trim().parse::<i64>().ok()).map_or(0, |kib| kib.saturating_mul(1024))
}
