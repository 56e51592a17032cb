//! Statistics: what tests set as a container's usage, in the shape of the wire. Pure.

use bulkhead_api::cri::v1;

use super::world::{Container, Sandbox, Usage, World};

impl World {
    /// Figures of the running containers that a filter lets through.
    pub(super) fn container_stats(
        &self,
        filter: Option<&v1::ContainerStatsFilter>,
        now: i64,
    ) -> Vec<v1::ContainerStats> {
        let measured = self.containers.values().filter(|container| container.is_measured(filter));
        measured.map(|container| container.stats(now)).collect()
    }

    /// Figures of the ready sandboxes that a filter lets through.
    pub(super) fn sandbox_stats(
        &self,
        filter: Option<&v1::PodSandboxStatsFilter>,
        now: i64,
    ) -> Vec<v1::PodSandboxStats> {
        let ready = v1::PodSandboxState::SandboxReady;
        let measured = self.sandboxes.values().filter(|s| s.state == ready && s.is_measured(filter));
        measured.map(|sandbox| self.stats_of(sandbox, now)).collect()
    }

    /// Figures of one sandbox: the sum over its running containers.
    pub(super) fn stats_of(&self, sandbox: &Sandbox, now: i64) -> v1::PodSandboxStats {
        let running = || self.containers_of(&sandbox.id).filter(|container| container.is_measured(None));
        let total = running().fold(Usage::default(), |sum, container| Usage {
            cpu_core_nanoseconds: sum.cpu_core_nanoseconds + container.usage.cpu_core_nanoseconds,
            memory_working_set_bytes: sum.memory_working_set_bytes + container.usage.memory_working_set_bytes,
            ..sum
        });
        v1::PodSandboxStats {
            attributes: Some(sandbox.attributes()),
            linux: Some(v1::LinuxPodSandboxStats {
                cpu: Some(cpu(&total, now)),
                memory: Some(memory(&total, now)),
                network: None,
                process: None,
                containers: running().map(|container| container.stats(now)).collect(),
                io: None,
            }),
            windows: None,
        }
    }
}

impl Container {
    /// Its figures.
    pub(super) fn stats(&self, now: i64) -> v1::ContainerStats {
        v1::ContainerStats {
            attributes: Some(self.attributes()),
            cpu: Some(cpu(&self.usage, now)),
            memory: Some(memory(&self.usage, now)),
            writable_layer: Some(v1::FilesystemUsage {
                timestamp: now,
                fs_id: None,
                used_bytes: figure(self.usage.writable_layer_bytes),
                inodes_used: figure(self.usage.writable_layer_inodes),
            }),
            swap: None,
            io: None,
        }
    }
}

fn cpu(usage: &Usage, now: i64) -> v1::CpuUsage {
    let usage_core_nano_seconds = figure(usage.cpu_core_nanoseconds);
    v1::CpuUsage { timestamp: now, usage_core_nano_seconds, ..Default::default() }
}

fn memory(usage: &Usage, now: i64) -> v1::MemoryUsage {
    let working_set_bytes = figure(usage.memory_working_set_bytes);
    v1::MemoryUsage { timestamp: now, working_set_bytes, ..Default::default() }
}

fn figure(value: u64) -> Option<v1::UInt64Value> {
    Some(v1::UInt64Value { value })
}
