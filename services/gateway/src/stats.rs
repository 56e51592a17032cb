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
    rlimit: Option<Rlimit>,
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
    // This one has underscores in the kubelet's API.
    #[serde(rename = "process_stats", skip_serializing_if = "Option::is_none")]
    process_stats: Option<ProcessStats>,
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
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Cpu {
    time: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    usage_nano_cores: Option<u64>,
    usage_core_nano_seconds: u64,
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
    Summary {
        node: Node {
            node_name: node.node_name,
            system_containers: node.system_containers.into_iter().map(container).collect(),
            start_time: date(node.start_unix_nano),
            cpu: node.cpu.map(cpu),
            memory: node.memory.map(memory),
            rlimit: rlimit.filter(|rlimit| rlimit.maxpid > 0),
        },
        pods: from.pods.into_iter().map(|from| pod(from, extent)).collect(),
    }
}

fn pod(from: wire::PodStats, extent: Extent) -> Pod {
    let counted = from.process_count.filter(|_| extent == Extent::Whole);
    Pod {
        pod_ref: PodRef { name: from.name, namespace: from.namespace, uid: from.uid },
        start_time: date(from.start_unix_nano),
        containers: from.containers.into_iter().map(container).collect(),
        cpu: from.cpu.map(cpu),
        memory: from.memory.map(memory),
        process_stats: counted.map(|process_count| ProcessStats { process_count }),
    }
}

fn container(from: wire::ContainerStats) -> Container {
    Container {
        name: from.name,
        start_time: date(from.start_unix_nano),
        cpu: from.cpu.map(cpu),
        memory: from.memory.map(memory),
    }
}

fn cpu(from: wire::CpuStats) -> Cpu {
    Cpu {
        time: date(from.time_unix_nano),
        usage_nano_cores: from.usage_nano_cores,
        usage_core_nano_seconds: from.usage_core_nano_seconds,
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
    }
}

/// A date of the API: whole seconds. `None`, which becomes `null`, when it is not known.
fn date(unix_nano: u64) -> Option<Timestamp> {
    let seconds = i64::try_from(unix_nano / 1_000_000_000).ok()?;
    (seconds > 0).then(|| Timestamp::new(seconds, 0).ok()).flatten()
}

#[cfg(test)]
mod tests;
