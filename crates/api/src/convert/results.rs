//! Probe results on the wire.

use bulkhead_model::probe::{Health, ProbeResults};

use crate::prober::v1 as wire;

/// What a container's probes say, as syncd's and statusd's rules take it.
pub fn probe_results_from_wire(result: &wire::ContainerResult) -> ProbeResults {
    let health = match result.health() {
        wire::Health::Live => Health::Live,
        wire::Health::LivenessFailed => Health::LivenessFailed,
        wire::Health::StartupFailed => Health::StartupFailed,
    };
    ProbeResults { started: result.started, ready: result.ready, health }
}

/// Health for the wire.
pub fn health_to_wire(health: Health) -> wire::Health {
    match health {
        Health::Live => wire::Health::Live,
        Health::LivenessFailed => wire::Health::LivenessFailed,
        Health::StartupFailed => wire::Health::StartupFailed,
    }
}
