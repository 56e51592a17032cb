//! The summary out of what was read. Pure: the rules of the node's, the pods' and the containers' figures.
//!
//! They are those of the kubelet's Summary API (`stats.k8s.io/v1alpha1`): the working set is the memory in use without
//! file pages that were not touched lately, what is available is the limit without the working set, and of the node the
//! machine's memory without it. Must never invent a figure: what was not read is absent.

use bulkhead_disk::FsFigures;
use std::collections::BTreeMap;

use bulkhead_api::evictd::v1::{
    ContainerStats, CpuStats, FsCapacity, FsStats, InterfaceStats, MemoryStats, NetworkStats, NodeStats,
    PodStats, Summary, SwapStats,
};
use bulkhead_cgroup::{CgroupPath, CgroupStats, MemoryStats as CgroupMemory, PressureStats};
use jiff::Timestamp;

use crate::machine::{Moment, Reading, Readings};
use crate::net::NetFigures;
use crate::plan::{ContainerPlan, Plan, PodPlan};
use crate::proc::ProcFigures;
use crate::rate::{Sample, nano_cores};

/// Counters of one collection, for the rates of the next.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Samples {
    cgroups: BTreeMap<CgroupPath, Sample>,
    /// From /proc. Its own entry: the root cgroup counts the same time in another way.
    machine: Option<Sample>,
}

/// What the rules work on.
pub(crate) struct Input<'a> {
    /// `nodeName`.
    pub(crate) node_name: &'a str,
    /// What should be in the summary.
    pub(crate) plan: &'a Plan,
    /// What was read.
    pub(crate) readings: &'a Readings,
    /// Counters of the collection before.
    pub(crate) before: &'a Samples,
}

impl Samples {
    /// What `readings` hold for the next collection. What is gone is forgotten.
    pub(crate) fn of(readings: &Readings) -> Self {
        let cgroups =
            readings.cgroups.iter().filter_map(|(path, reading)| Some((path.clone(), sample(reading)?)));
        Self { cgroups: cgroups.collect(), machine: Some(machine_sample(readings)) }
    }
}

impl Input<'_> {
    /// The whole summary.
    pub(crate) fn summary(&self) -> Summary {
        Summary {
            node: Some(self.node()),
            pods: self.plan.pods.iter().filter_map(|pod| self.pod(pod)).collect(),
        }
    }

    fn node(&self) -> NodeStats {
        let Readings { at, proc, .. } = self.readings;
        let root = self.reading(&CgroupPath::root());
        let system = self.readings.system.iter().filter_map(|(name, path, made)| {
            let reading = self.reading(path)?;
            Some(ContainerStats {
                name: (*name).to_owned(),
                start_unix_nano: made.unwrap_or(0),
                cpu: self.cpu(path),
                memory: memory(reading),
                swap: swap(reading),
                io: pressure::io(reading),
                ..ContainerStats::default()
            })
        });
        NodeStats {
            node_name: self.node_name.to_owned(),
            start_unix_nano: proc.boot_seconds.saturating_mul(1_000_000_000),
            cpu: Some(self.cpu(&CgroupPath::root()).unwrap_or_else(|| self.machine_cpu())),
            memory: Some(MemoryStats {
                psi: root.and_then(|root| pressure::of(root, |psi| &psi.memory)),
                ..node_memory(root.map_or(*at, |root| root.at), root.map(|root| &root.stats), proc)
            }),
            system_containers: system.map(|part| self.within_the_machine(part)).collect(),
            process_count: proc.tasks,
            max_pid: proc.max_tasks,
            swap: Some(node_swap(*at, proc)),
            io: root.and_then(pressure::io),
            network: self.readings.network.as_ref().map(|figures| network(*at, figures)),
            fs: self.readings.fs.map(|figures| fs(*at, figures)),
            ..NodeStats::default()
        }
    }

    /// Pods together may use what the machine has, if nothing limits them.
    fn within_the_machine(&self, mut part: ContainerStats) -> ContainerStats {
        let pods = part.name == "pods";
        if let Some(memory) = part.memory.as_mut().filter(|memory| pods && memory.available_bytes.is_none()) {
            let total = self.readings.proc.memory_total;
            memory.available_bytes = Some(total.saturating_sub(memory.working_set_bytes));
        }
        part
    }

    /// `None` when the pod's cgroup is gone or was not made yet.
    fn pod(&self, pod: &PodPlan) -> Option<PodStats> {
        let reading = self.reading(&pod.cgroup)?;
        Some(PodStats {
            uid: pod.view.uid.clone(),
            name: pod.view.name.clone(),
            namespace: pod.view.namespace.clone(),
            start_unix_nano: pod.sandbox.as_ref().map_or(0, |sandbox| unix_nano(sandbox.made_at)),
            cpu: self.cpu(&pod.cgroup),
            memory: memory(reading),
            process_count: reading.stats.pids,
            containers: pod.containers.iter().filter_map(|container| self.container(container)).collect(),
            swap: swap(reading),
            io: pressure::io(reading),
            ..PodStats::default()
        })
    }

    /// `None` when the container's cgroup is gone: it ended after pleg saw it run.
    fn container(&self, container: &ContainerPlan) -> Option<ContainerStats> {
        let reading = self.reading(&container.cgroup)?;
        Some(ContainerStats {
            name: container.name.clone(),
            start_unix_nano: unix_nano(container.started_at),
            cpu: self.cpu(&container.cgroup),
            memory: memory(reading),
            swap: swap(reading).map(|swap| SwapStats {
                available_bytes: self.readings.proc.available_to_containers(),
                ..swap
            }),
            io: pressure::io(reading),
            ..ContainerStats::default()
        })
    }

    fn reading(&self, path: &CgroupPath) -> Option<&Reading> {
        self.readings.cgroups.get(path)
    }

    fn cpu(&self, path: &CgroupPath) -> Option<CpuStats> {
        let reading = self.reading(path)?;
        let psi = pressure::of(reading, |psi| &psi.cpu);
        Some(CpuStats { psi, ..cpu(reading.at, sample(reading)?, self.before.cgroups.get(path)) })
    }

    fn machine_cpu(&self) -> CpuStats {
        cpu(self.readings.at, machine_sample(self.readings), self.before.machine.as_ref())
    }
}

fn sample(reading: &Reading) -> Option<Sample> {
    Some(Sample { at: reading.at.instant, used_ns: reading.stats.cpu_usage_ns? })
}

fn machine_sample(readings: &Readings) -> Sample {
    Sample { at: readings.at.instant, used_ns: readings.proc.cpu_used_ns }
}

fn cpu(at: Moment, now: Sample, before: Option<&Sample>) -> CpuStats {
    CpuStats {
        time_unix_nano: at.unix_nano,
        usage_nano_cores: before.and_then(|before| nano_cores(*before, now)),
        usage_core_nano_seconds: now.used_ns,
        psi: None,
    }
}

fn memory(reading: &Reading) -> Option<MemoryStats> {
    let memory = reading.stats.memory.as_ref()?;
    let (usage, working_set) = (memory.usage?, memory.working_set?);
    Some(MemoryStats {
        time_unix_nano: reading.at.unix_nano,
        available_bytes: memory.limit.map(|limit| limit.saturating_sub(working_set)),
        usage_bytes: usage,
        working_set_bytes: working_set,
        rss_bytes: memory.rss,
        page_faults: memory.page_faults,
        major_page_faults: memory.major_page_faults,
        psi: pressure::of(reading, |psi| &psi.memory),
    })
}

/// Swap of a cgroup. What of it may be used is told for containers alone, as by the kubelet.
fn swap(reading: &Reading) -> Option<SwapStats> {
    let usage_bytes = reading.stats.memory.as_ref()?.swap?;
    Some(SwapStats { time_unix_nano: reading.at.unix_nano, available_bytes: None, usage_bytes })
}

fn fs(at: Moment, figures: FsFigures) -> FsStats {
    FsStats {
        time_unix_nano: at.unix_nano,
        capacity: Some(capacity(figures)),
        used_bytes: figures.used_bytes,
        inodes_used: Some(figures.inodes.saturating_sub(figures.inodes_free)),
    }
}

/// What a file system holds, whoever uses it.
pub(crate) fn capacity(figures: FsFigures) -> FsCapacity {
    let FsFigures { available_bytes, capacity_bytes, inodes_free, inodes, .. } = figures;
    FsCapacity { available_bytes, capacity_bytes, inodes_free, inodes }
}

/// Traffic in the summary's form.
pub(crate) fn network(at: Moment, figures: &NetFigures) -> NetworkStats {
    let interfaces = figures.interfaces.iter().map(|one| InterfaceStats {
        name: one.name.clone(),
        rx_bytes: one.rx_bytes,
        rx_errors: one.rx_errors,
        tx_bytes: one.tx_bytes,
        tx_errors: one.tx_errors,
        rx_packets: one.rx_packets,
        rx_dropped: one.rx_dropped,
        tx_packets: one.tx_packets,
        tx_dropped: one.tx_dropped,
    });
    NetworkStats {
        time_unix_nano: at.unix_nano,
        default_interface: figures.default_interface.clone(),
        interfaces: interfaces.collect(),
    }
}

fn node_swap(at: Moment, proc: &ProcFigures) -> SwapStats {
    SwapStats {
        time_unix_nano: at.unix_nano,
        available_bytes: Some(proc.swap_free),
        usage_bytes: proc.swap_total.saturating_sub(proc.swap_free),
    }
}

/// The root cgroup's figures where it has them; on v2 it has no usage, and without the memory controller nothing.
pub(crate) fn node_memory(at: Moment, root: Option<&CgroupStats>, proc: &ProcFigures) -> MemoryStats {
    let root = root.and_then(|root| root.memory.as_ref());
    let figure = |of_root: fn(&CgroupMemory) -> u64, other| root.map_or(other, of_root);
    let usage = root.and_then(|root| root.usage);
    let usage = usage.unwrap_or_else(|| proc.memory_total.saturating_sub(proc.memory_free));
    let working_set = usage.saturating_sub(figure(|root| root.inactive_file, proc.inactive_file));
    MemoryStats {
        time_unix_nano: at.unix_nano,
        available_bytes: Some(proc.memory_total.saturating_sub(working_set)),
        usage_bytes: usage,
        working_set_bytes: working_set,
        rss_bytes: figure(|root| root.rss, proc.anonymous),
        page_faults: figure(|root| root.page_faults, 0),
        major_page_faults: figure(|root| root.major_page_faults, 0),
        psi: None,
    }
}

mod pressure {
    //! The kernel's pressure figures, where it has them.

    use bulkhead_api::evictd::v1::{IoStats, Pressure, PressureLine};
    use bulkhead_cgroup::{Pressure as Kernels, PressureLine as Line};

    use super::{PressureStats, Reading};

    pub(super) fn of(reading: &Reading, which: fn(&PressureStats) -> &Kernels) -> Option<Pressure> {
        let kernels = which(reading.stats.pressure.as_ref()?);
        Some(Pressure { some: Some(line(&kernels.some)), full: Some(line(&kernels.full)) })
    }

    /// Always there, as by the kubelet: a time, and pressure where it is known.
    pub(super) fn io(reading: &Reading) -> Option<IoStats> {
        Some(IoStats { time_unix_nano: reading.at.unix_nano, psi: of(reading, |psi| &psi.io) })
    }

    fn line(line: &Line) -> PressureLine {
        let Line { avg10, avg60, avg300, total_us } = *line;
        PressureLine { avg10, avg60, avg300, total_usec: total_us }
    }
}

/// A date in nanoseconds since 1970.
pub(crate) fn unix_nano(at: Timestamp) -> u64 {
    u64::try_from(at.as_nanosecond()).unwrap_or(0)
}

#[cfg(test)]
mod tests;
