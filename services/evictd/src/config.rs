//! What evictd takes from its flags and the node's configuration.

use std::path::PathBuf;

use bulkhead_cgroup::{CgroupError, CgroupPath, Layout};
use bulkhead_config::KubeletConfiguration;
use bulkhead_model::eviction::{self, NodeRules};
use bulkhead_service::Context;

/// Flags that only evictd has.
#[derive(Clone, Debug, clap::Args)]
pub struct EvictdFlags {
    /// Where the proc file system is; its self/mountinfo tells where the cgroup hierarchies are.
    #[arg(long, value_name = "DIR", default_value = "/proc")]
    pub proc_dir: PathBuf,
}

/// What the loop of evictions needs to know.
#[derive(Clone, Debug, Default)]
pub(crate) struct EvictionSettings {
    /// The node's thresholds.
    pub(crate) rules: NodeRules,
    /// `evictionMaxPodGracePeriod`, in seconds.
    pub(crate) max_grace: u64,
    /// `localStorageCapacityIsolation`: whether pods are held to their own limits of disk.
    pub(crate) local_limits: bool,
}

impl EvictionSettings {
    /// Of a configuration that validation took.
    pub(crate) fn new(config: &KubeletConfiguration) -> Self {
        let grace = config.eviction_soft_grace_period.iter().filter_map(|(signal, text)| {
            Some((signal.clone(), text.parse::<bulkhead_config::Duration>().ok()?.to_std()))
        });
        let rules = eviction::rules(
            &config.eviction_hard,
            &config.eviction_soft,
            &grace.collect(),
            &config.eviction_minimum_reclaim,
        );
        Self {
            rules: NodeRules { rules, transition: config.eviction_pressure_transition_period.to_std() },
            max_grace: u64::try_from(config.eviction_max_pod_grace_period).unwrap_or(0),
            local_limits: config.local_storage_capacity_isolation,
        }
    }
}

/// What the rules need to know of the node.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// `nodeName` of the summary.
    pub(crate) node_name: String,
    /// Where pods have their cgroups.
    pub(crate) layout: Layout,
    /// `kubeletCgroups`, if it is set.
    pub(crate) agent: Option<CgroupPath>,
    /// `systemCgroups`, if it is set.
    pub(crate) others: Option<CgroupPath>,
}

impl Settings {
    /// Of this process; an error when `cgroupRoot` or another of them is no path of a cgroup.
    pub(crate) fn new(context: &Context) -> Result<Self, CgroupError> {
        let root = CgroupPath::parse(&context.config.cgroup_root)?;
        let part = |name: &str| match name {
            "" => Ok(None),
            name => CgroupPath::parse(name).map(Some),
        };
        Ok(Self {
            node_name: context.flags.node_name(),
            layout: Layout::new(root),
            agent: part(&context.config.kubelet_cgroups)?,
            others: part(&context.config.system_cgroups)?,
        })
    }
}
