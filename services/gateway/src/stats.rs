//! The statistics summary in the JSON of the kubelet's `/stats/summary`. Pure.
//!
//! Key names are those of `k8s.io/kubelet` stats/v1alpha1. What nobody on the node measures is left out.

use bulkhead_api::evictd::v1 as wire;
use jiff::Timestamp;
use serde::Serialize;

/// How much to tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    /// Everything.
    Whole,
    /// `only_cpu_and_memory=true`, which is what metrics-server asks for.
    CpuAndMemory,
}

/// The answer to `/stats/summary`.
#[derive(Debug, Serialize)]
pub(crate) struct Summary {
    node: Node,
    pods: Vec<Pod>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Node {
    node_name: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    system_containers: Vec<Container>,
    start_time: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cpu: Option<Cpu>,
    #[serde(skip_serializing_if = "Option::is_none")]
    memory: Option<Memory>,
    #[serde(skip_serializing_if = "Option::is_none")]
    io: Option<Io>,
    #[serde(skip_serializing_if = "Option::is_none")]
    network: Option<Network>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fs: Option<Fs>,
    #[serde(skip_serializing_if = "Option::is_none")]
    runtime: Option<Runtime>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rlimit: Option<Rlimit>,
    #[serde(skip_serializing_if = "Option::is_none")]
    swap: Option<Swap>,
}

/// File systems of the container runtime.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Runtime {
    #[serde(skip_serializing_if = "Option::is_none")]
    image_fs: Option<Fs>,
    #[serde(skip_serializing_if = "Option::is_none")]
    container_fs: Option<Fs>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Pod {
    pod_ref: PodRef,
    start_time: Option<Timestamp>,
    containers: Vec<Container>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cpu: Option<Cpu>,
    #[serde(skip_serializing_if = "Option::is_none")]
    memory: Option<Memory>,
    #[serde(skip_serializing_if = "Option::is_none")]
    io: Option<Io>,
    #[serde(skip_serializing_if = "Option::is_none")]
    network: Option<Network>,
    // The kubelet's API has these three as they are here.
    #[serde(rename = "volume", skip_serializing_if = "Vec::is_empty")]
    volumes: Vec<Volume>,
    #[serde(rename = "ephemeral-storage", skip_serializing_if = "Option::is_none")]
    ephemeral_storage: Option<Fs>,
    #[serde(skip_serializing_if = "Option::is_none")]
    swap: Option<Swap>,
    #[serde(rename = "process_stats", skip_serializing_if = "Option::is_none")]
    process_stats: Option<ProcessStats>,
}

#[derive(Debug, Serialize)]
struct Volume {
    #[serde(flatten)]
    fs: Option<Fs>,
    name: String,
}

#[derive(Debug, Serialize)]
struct PodRef {
    name: String,
    namespace: String,
    uid: String,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Container {
    name: String,
    start_time: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cpu: Option<Cpu>,
    #[serde(skip_serializing_if = "Option::is_none")]
    memory: Option<Memory>,
    #[serde(skip_serializing_if = "Option::is_none")]
    io: Option<Io>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rootfs: Option<Fs>,
    #[serde(skip_serializing_if = "Option::is_none")]
    logs: Option<Fs>,
    #[serde(skip_serializing_if = "Option::is_none")]
    swap: Option<Swap>,
}

#[derive(Debug, Serialize)]
struct Io {
    time: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    psi: Option<Psi>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Swap {
    time: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    swap_available_bytes: Option<u64>,
    swap_usage_bytes: u64,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Fs {
    time: Option<Timestamp>,
    #[serde(flatten)]
    capacity: Option<FsCapacity>,
    used_bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    inodes_used: Option<u64>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct FsCapacity {
    available_bytes: u64,
    capacity_bytes: u64,
    inodes_free: u64,
    inodes: u64,
}

/// The interface with the default route, and all of them.
#[derive(Debug, Serialize)]
struct Network {
    time: Option<Timestamp>,
    #[serde(flatten)]
    default: Option<Interface>,
    interfaces: Vec<Interface>,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Interface {
    name: String,
    rx_bytes: u64,
    rx_errors: u64,
    tx_bytes: u64,
    tx_errors: u64,
}

#[derive(Debug, Serialize)]
struct Psi {
    full: PsiLine,
    some: PsiLine,
}

#[derive(Debug, Serialize)]
struct PsiLine {
    /// In the kernel's unit, microseconds.
    total: u64,
    avg10: f64,
    avg60: f64,
    avg300: f64,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Cpu {
    time: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    usage_nano_cores: Option<u64>,
    usage_core_nano_seconds: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    psi: Option<Psi>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Memory {
    time: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    available_bytes: Option<u64>,
    usage_bytes: u64,
    working_set_bytes: u64,
    rss_bytes: u64,
    page_faults: u64,
    major_page_faults: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    psi: Option<Psi>,
}

#[derive(Debug, Serialize)]
struct Rlimit {
    time: Option<Timestamp>,
    maxpid: u64,
    curproc: u64,
}

#[derive(Debug, Serialize)]
struct ProcessStats {
    process_count: u64,
}

/// evictd's figures in the kubelet's form.
pub(crate) fn summary(from: wire::Summary, extent: Extent) -> Summary {
    let node = from.node.unwrap_or_default();
    // Processes are counted in the same collection.
    let counted = node.cpu.as_ref().and_then(|cpu| date(cpu.time_unix_nano));
    let rlimit = (extent == Extent::Whole).then_some(Rlimit {
        time: counted,
        maxpid: node.max_pid,
        curproc: node.process_count,
    });
    let whole = extent == Extent::Whole;
    let stores = (whole && (node.image_fs.is_some() || node.container_fs.is_some()))
        .then(|| Runtime { image_fs: node.image_fs.map(fs), container_fs: node.container_fs.map(fs) });
    Summary {
        node: Node {
            node_name: node.node_name,
            system_containers: node
                .system_containers
                .into_iter()
                .map(|from| container(from, extent))
                .collect(),
            start_time: date(node.start_unix_nano),
            cpu: node.cpu.map(cpu),
            memory: node.memory.map(memory),
            io: node.io.filter(|_| whole).map(io),
            swap: node.swap.filter(|_| whole).map(swap),
            network: node.network.filter(|_| whole).map(network),
            fs: node.fs.filter(|_| whole).map(fs),
            runtime: stores,
            rlimit: rlimit.filter(|rlimit| rlimit.maxpid > 0),
        },
        pods: from.pods.into_iter().map(|from| pod(from, extent)).collect(),
    }
}

fn pod(from: wire::PodStats, extent: Extent) -> Pod {
    let whole = extent == Extent::Whole;
    let volume = |volume: wire::VolumeStats| Volume { name: volume.name, fs: volume.fs.map(fs) };
    Pod {
        pod_ref: PodRef { name: from.name, namespace: from.namespace, uid: from.uid },
        start_time: date(from.start_unix_nano),
        containers: from.containers.into_iter().map(|from| container(from, extent)).collect(),
        cpu: from.cpu.map(cpu),
        memory: from.memory.map(memory),
        io: from.io.filter(|_| whole).map(io),
        network: from.network.filter(|_| whole).map(network),
        volumes: from.volumes.into_iter().filter(|_| whole).map(volume).collect(),
        ephemeral_storage: from.ephemeral_storage.filter(|_| whole).map(fs),
        swap: from.swap.filter(|_| whole).map(swap),
        process_stats: from
            .process_count
            .filter(|_| whole)
            .map(|process_count| ProcessStats { process_count }),
    }
}

fn container(from: wire::ContainerStats, extent: Extent) -> Container {
    let whole = extent == Extent::Whole;
    Container {
        name: from.name,
        start_time: date(from.start_unix_nano),
        cpu: from.cpu.map(cpu),
        memory: from.memory.map(memory),
        io: from.io.filter(|_| whole).map(io),
        rootfs: from.rootfs.filter(|_| whole).map(fs),
        logs: from.logs.filter(|_| whole).map(fs),
        swap: from.swap.filter(|_| whole).map(swap),
    }
}

fn io(from: wire::IoStats) -> Io {
    Io { time: date(from.time_unix_nano), psi: from.psi.map(psi) }
}

fn fs(from: wire::FsStats) -> Fs {
    let capacity = from.capacity.map(|of| FsCapacity {
        available_bytes: of.available_bytes,
        capacity_bytes: of.capacity_bytes,
        inodes_free: of.inodes_free,
        inodes: of.inodes,
    });
    Fs {
        time: date(from.time_unix_nano),
        capacity,
        used_bytes: from.used_bytes,
        inodes_used: from.inodes_used,
    }
}

fn network(from: wire::NetworkStats) -> Network {
    let interfaces = from.interfaces.into_iter().map(|from| Interface {
        name: from.name,
        rx_bytes: from.rx_bytes,
        rx_errors: from.rx_errors,
        tx_bytes: from.tx_bytes,
        tx_errors: from.tx_errors,
    });
    let interfaces: Vec<_> = interfaces.collect();
    Network {
        time: date(from.time_unix_nano),
        default: interfaces.iter().find(|one| one.name == from.default_interface).cloned(),
        interfaces,
    }
}

fn swap(from: wire::SwapStats) -> Swap {
    Swap {
        time: date(from.time_unix_nano),
        swap_available_bytes: from.available_bytes,
        swap_usage_bytes: from.usage_bytes,
    }
}

fn psi(from: wire::Pressure) -> Psi {
    let line = |line: Option<wire::PressureLine>| {
        let wire::PressureLine { avg10, avg60, avg300, total_usec } = line.unwrap_or_default();
        PsiLine { total: total_usec, avg10, avg60, avg300 }
    };
    Psi { full: line(from.full), some: line(from.some) }
}

fn cpu(from: wire::CpuStats) -> Cpu {
    Cpu {
        time: date(from.time_unix_nano),
        usage_nano_cores: from.usage_nano_cores,
        usage_core_nano_seconds: from.usage_core_nano_seconds,
        psi: from.psi.map(psi),
    }
}

fn memory(from: wire::MemoryStats) -> Memory {
    Memory {
        time: date(from.time_unix_nano),
        available_bytes: from.available_bytes,
        usage_bytes: from.usage_bytes,
        working_set_bytes: from.working_set_bytes,
        rss_bytes: from.rss_bytes,
        page_faults: from.page_faults,
        major_page_faults: from.major_page_faults,
        psi: from.psi.map(psi),
    }
}

/// A date of the API: whole seconds. `None`, which becomes `null`, when it is not known.
fn date(unix_nano: u64) -> Option<Timestamp> {
    let seconds = i64::try_from(unix_nano / 1_000_000_000).ok()?;
    (seconds > 0).then(|| Timestamp::new(seconds, 0).ok()).flatten()
}

#[cfg(test)]
mod tests;
