//! What a node has, and what of it pods may use, by the rules of [`bulkhead_model::capacity`]. Pure.

use bulkhead_config::KubeletConfiguration;
use bulkhead_model::capacity as rules;
pub(crate) use bulkhead_model::capacity::Limits;
use bulkhead_model::resources::ResourceList;

use crate::host::HostFacts;

/// What the configuration says about the node's resources.
pub(crate) fn limits(config: &KubeletConfiguration) -> Limits {
    Limits::configured(config.max_pods, config.pods_per_core, &config.eviction_hard)
}

/// `status.capacity`.
pub(crate) fn capacity(host: &HostFacts, limits: &Limits) -> ResourceList {
    rules::capacity(&machine(host), limits)
}

/// `status.allocatable`.
pub(crate) fn allocatable(host: &HostFacts, limits: &Limits) -> ResourceList {
    rules::allocatable(&machine(host), limits)
}

fn machine(host: &HostFacts) -> rules::Machine {
    rules::Machine {
        cpus: host.cpus,
        memory: host.memory,
        huge_pages: host.huge_pages.clone(),
        disk: host.disk,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_the_kubelets() {
        let limits = limits(&KubeletConfiguration::default());
        assert_eq!((limits.max_pods, limits.pods_per_core), (110, 0));
        assert_eq!(limits.memory, Some(rules::Threshold::Bytes(100 << 20)));
        assert_eq!(limits.disk, Some(rules::Threshold::Share(0.1)));
    }
}
