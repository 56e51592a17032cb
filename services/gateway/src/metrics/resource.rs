//! `/metrics/resource`: processor time and memory of node, pods and containers with the times at which they were read,
//! for metrics-server. Pure.

use bulkhead_api::evictd::v1::{CpuStats, MemoryStats, Summary, SwapStats};
use bulkhead_api::process::v1::{MetricFamily, MetricKind, MetricSeries};

/// Labels of a container's series.
const CONTAINER: &[&str] = &["container", "namespace", "pod"];
/// Labels of a pod's series.
const POD: &[&str] = &["namespace", "pod"];
/// Of the node's.
const NODE: &[&str] = &[];

/// The families for these statistics; `None`: they could not be had.
pub(crate) fn families(summary: Option<&Summary>) -> Vec<MetricFamily> {
    let mut all = Families::default();
    if let Some(summary) = summary {
        fill(&mut all, summary);
    }
    let failed = if summary.is_some() { 0.0 } else { 1.0 };
    // The older name is told beside the newer one, as by the kubelet.
    for name in ["resource_scrape_error", "scrape_error"] {
        all.gauge(
            name,
            "1 if there was an error while getting the metrics, 0 otherwise.",
            NODE,
            [],
            Some((failed, 0)),
        );
    }
    all.0
}

fn fill(all: &mut Families, summary: &Summary) {
    for pod in &summary.pods {
        for container in &pod.containers {
            let labels = || [container.name.as_str(), pod.namespace.as_str(), pod.name.as_str()];
            all.counter(
                "container_cpu_usage_seconds_total",
                "Processor time used by the container, in core-seconds.",
                CONTAINER,
                labels(),
                container.cpu.as_ref().map(seconds),
            );
            all.gauge(
                "container_memory_working_set_bytes",
                "Working set of the container, in bytes.",
                CONTAINER,
                labels(),
                container.memory.as_ref().map(working_set),
            );
            // Without a time: the start is long ago, and the series is to live on.
            let started = (container.start_unix_nano > 0).then(|| (nano(container.start_unix_nano), 0));
            all.gauge(
                "container_start_time_seconds",
                "Start of the container since 1970, in seconds.",
                CONTAINER,
                labels(),
                started,
            );
            all.gauge(
                "container_swap_limit_bytes",
                "Swap that the container may use, in bytes.",
                CONTAINER,
                labels(),
                container.swap.as_ref().and_then(swap_limit),
            );
            all.gauge(
                "container_swap_usage_bytes",
                "Swap used by the container, in bytes.",
                CONTAINER,
                labels(),
                container.swap.as_ref().map(swap),
            );
        }
        let labels = || [pod.namespace.as_str(), pod.name.as_str()];
        all.counter(
            "pod_cpu_usage_seconds_total",
            "Processor time used by the pod, in core-seconds.",
            POD,
            labels(),
            pod.cpu.as_ref().map(seconds),
        );
        all.gauge(
            "pod_memory_working_set_bytes",
            "Working set of the pod, in bytes.",
            POD,
            labels(),
            pod.memory.as_ref().map(working_set),
        );
        all.gauge(
            "pod_swap_usage_bytes",
            "Swap used by the pod, in bytes.",
            POD,
            labels(),
            pod.swap.as_ref().map(swap),
        );
    }
    let Some(node) = &summary.node else { return };
    all.counter(
        "node_cpu_usage_seconds_total",
        "Processor time used by the node, in core-seconds.",
        NODE,
        [],
        node.cpu.as_ref().map(seconds),
    );
    all.gauge(
        "node_memory_working_set_bytes",
        "Working set of the node, in bytes.",
        NODE,
        [],
        node.memory.as_ref().map(working_set),
    );
    all.gauge(
        "node_swap_usage_bytes",
        "Swap used by the node, in bytes.",
        NODE,
        [],
        node.swap.as_ref().map(swap),
    );
}

/// A value and its time in milliseconds.
type At = (f64, i64);

fn seconds(cpu: &CpuStats) -> At {
    (nano(cpu.usage_core_nano_seconds), millis(cpu.time_unix_nano))
}

fn working_set(memory: &MemoryStats) -> At {
    (number(memory.working_set_bytes), millis(memory.time_unix_nano))
}

fn swap(swap: &SwapStats) -> At {
    (number(swap.usage_bytes), millis(swap.time_unix_nano))
}

fn swap_limit(swap: &SwapStats) -> Option<At> {
    let limit = swap.available_bytes?.saturating_add(swap.usage_bytes);
    Some((number(limit), millis(swap.time_unix_nano)))
}

fn nano(value: u64) -> f64 {
    number(value) / 1e9
}

fn millis(unix_nano: u64) -> i64 {
    i64::try_from(unix_nano / 1_000_000).unwrap_or(0)
}

#[expect(clippy::cast_precision_loss, reason = "Prometheus knows no other numbers")]
fn number(value: u64) -> f64 {
    value as f64
}

/// In the order in which they were first told.
#[derive(Default)]
struct Families(Vec<MetricFamily>);

impl Families {
    fn counter<const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        names: &[&str],
        labels: [&str; N],
        at: Option<At>,
    ) {
        self.add(Kind(MetricKind::Counter, name, help), names, labels, at);
    }

    fn gauge<const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        names: &[&str],
        labels: [&str; N],
        at: Option<At>,
    ) {
        self.add(Kind(MetricKind::Gauge, name, help), names, labels, at);
    }

    /// What is not known has no series.
    fn add<const N: usize>(&mut self, kind: Kind<'_>, names: &[&str], labels: [&str; N], at: Option<At>) {
        let Some((value, time_unix_milli)) = at else { return };
        let Kind(kind, name, help) = kind;
        let labels = labels.map(str::to_owned).to_vec();
        let series = MetricSeries { label_values: labels, value, buckets: Vec::new(), time_unix_milli };
        match self.0.iter_mut().find(|family| family.name == name) {
            Some(family) => family.series.push(series),
            None => self.0.push(MetricFamily {
                name: name.to_owned(),
                help: help.to_owned(),
                kind: kind.into(),
                label_names: names.iter().map(|&name| name.to_owned()).collect(),
                series: vec![series],
                bounds: Vec::new(),
            }),
        }
    }
}

struct Kind<'a>(MetricKind, &'a str, &'a str);
