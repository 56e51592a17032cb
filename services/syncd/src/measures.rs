//! What syncd counts and measures, under the kubelet's names.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bulkhead_api::process::v1::MetricFamily;
use bulkhead_model::decision::Stage;
use bulkhead_model::resources::NodeProtection;
use bulkhead_model::spec::ContainerKind;
use bulkhead_model::start_time::StartTimes;
use bulkhead_service::{Counter, Desc, Gauge, Histogram, Metrics, SECONDS};

use crate::source::Desired;
use crate::views::Views;

/// Upper bounds for the start of a pod, in seconds: from half a second to an hour.
const STARTS: &[f64] = &[
    0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 20.0, 30.0, 45.0, 60.0, 120.0, 180.0, 240.0, 300.0, 360.0,
    480.0, 600.0, 900.0, 1200.0, 1800.0, 2700.0, 3600.0,
];
/// Upper bounds for containers of one pod.
const CONTAINERS: &[f64] = &[1.0, 2.0, 4.0, 8.0, 16.0];
/// The label `static`: every pod is, so far.
const STATIC: &str = "true";

/// What a worker's pass is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pass {
    /// The first one over a pod in this life.
    Create,
    /// The pod changed.
    Update,
    /// Another look.
    Sync,
    /// Its end.
    Kill,
}

/// All that is counted. Clones share it.
#[derive(Clone)]
pub struct Measures {
    pass: Histogram,
    worker_start: Histogram,
    pod_start: Histogram,
    total_start: Histogram,
    own_start: Histogram,
    first_start: Gauge,
    started_network: Arc<AtomicBool>,
    containers: Histogram,
    pods: Counter,
    pod_errors: Counter,
    sandbox: Histogram,
    sandbox_errors: Counter,
    started: Counter,
    started_errors: Counter,
    restarted: Counter,
    orphans: Counter,
    cleaned: Gauge,
    not_cleaned: Gauge,
    memory_min: Gauge,
    memory_low: Gauge,
}

const fn desc(name: &'static str, help: &'static str, labels: &'static [&'static str]) -> Desc {
    Desc { name, help, labels }
}

impl Measures {
    /// In this registry.
    pub fn new(metrics: &Metrics) -> Self {
        let seconds = |name, help, labels, bounds| metrics.histogram(desc(name, help, labels), bounds);
        let count = |name, help, labels| metrics.counter(desc(name, help, labels));
        let gauge = |name, help| metrics.gauge(desc(name, help, &[]));
        Self {
            pass: seconds(
                "kubelet_pod_worker_duration_seconds",
                "Time of one pass over a pod, in seconds.",
                &["operation_type"],
                SECONDS,
            ),
            worker_start: seconds(
                "kubelet_pod_worker_start_duration_seconds",
                "Time from seeing a pod to its worker's start, in seconds.",
                &[],
                SECONDS,
            ),
            pod_start: seconds(
                "kubelet_pod_start_duration_seconds",
                "Time from seeing a pod to the start of everything in it, in seconds.",
                &[],
                STARTS,
            ),
            total_start: seconds(
                "kubelet_pod_start_total_duration_seconds",
                "Time from a pod's creation to the start of everything in it, in seconds. Without static pods.",
                &[],
                STARTS,
            ),
            own_start: seconds(
                "kubelet_pod_start_sli_duration_seconds",
                "Time from a pod's creation to the start of everything in it, in seconds, without pulls of its images and \
                 runs of its init containers. Without static pods.",
                &[],
                STARTS,
            ),
            first_start: gauge(
                "kubelet_first_network_pod_start_sli_duration_seconds",
                "As kubelet_pod_start_sli_duration_seconds, of the first pod with a network of its own; 0: none yet.",
            ),
            started_network: Arc::default(),
            containers: metrics
                .histogram(desc("kubelet_containers_per_pod_count", "Containers of a pod.", &[]), CONTAINERS),
            pods: count("kubelet_started_pods_total", "Sandboxes that were to be made.", &[]),
            pod_errors: count("kubelet_started_pods_errors_total", "Sandboxes that could not be made.", &[]),
            sandbox: seconds(
                "kubelet_run_podsandbox_duration_seconds",
                "Time to make a sandbox, in seconds.",
                &["runtime_handler"],
                SECONDS,
            ),
            sandbox_errors: count(
                "kubelet_run_podsandbox_errors_total",
                "Sandboxes that the runtime did not make.",
                &["runtime_handler"],
            ),
            started: count(
                "kubelet_started_containers_total",
                "Containers that were to be started.",
                &["container_type"],
            ),
            started_errors: count(
                "kubelet_started_containers_errors_total",
                "Containers that could not be started.",
                &["code", "container_type"],
            ),
            restarted: count(
                "kubelet_restarted_pods_total",
                "Pods that came back with their UID while they were ended.",
                &["static"],
            ),
            orphans: count("kubelet_orphaned_runtime_pods_total", "Pods that no source knew.", &[]),
            cleaned: gauge(
                "kubelet_orphan_pod_cleaned_volumes",
                "Pods whose left-over volumes the last look removed.",
            ),
            not_cleaned: gauge(
                "kubelet_orphan_pod_cleaned_volumes_errors",
                "Pods whose left-over volumes the last look could not remove.",
            ),
            memory_min: gauge(
                "kubelet_memory_qos_node_memory_min_bytes",
                "Memory of guaranteed pods that is never reclaimed, in bytes.",
            ),
            memory_low: gauge(
                "kubelet_memory_qos_node_memory_low_bytes",
                "Memory of burstable pods that is reclaimed last, in bytes.",
            ),
        }
    }

    /// A worker's pass ended.
    pub fn passed(&self, pass: Pass, took: Duration) {
        let operation = match pass {
            Pass::Create => "create",
            Pass::Update => "update",
            Pass::Sync => "sync",
            Pass::Kill => "kill",
        };
        self.pass.observe(&[operation], took.as_secs_f64());
    }

    /// A pod that was seen this long ago got its first worker.
    pub fn worker_started(&self, after: Duration, containers: u32) {
        self.worker_start.observe(&[], after.as_secs_f64());
        self.containers.observe(&[], f64::from(containers));
    }

    /// Everything of a pod that was seen this long ago was started.
    pub fn pod_started(&self, after: Duration) {
        self.pod_start.observe(&[], after.as_secs_f64());
    }

    /// Everything of a pod that counts was started.
    pub fn pod_start_took(&self, times: StartTimes) {
        self.total_start.observe(&[], times.total.as_secs_f64());
        self.own_start.observe(&[], times.own.as_secs_f64());
        if times.network && !self.started_network.swap(true, Ordering::Relaxed) {
            self.first_start.set(&[], times.own.as_secs_f64());
        }
    }

    /// The runtime was asked for a sandbox.
    pub fn sandbox_made(&self, took: Duration, failed: bool) {
        self.pods.add_one(&[]);
        self.sandbox.observe(&[""], took.as_secs_f64());
        self.started.add_one(&["pod_sandbox"]);
        if failed {
            self.pod_errors.add_one(&[]);
            self.sandbox_errors.add_one(&[""]);
            self.started_errors.add_one(&["RunPodSandboxError", "pod_sandbox"]);
        }
    }

    /// A container was to be started. The error is the kubelet's reason.
    pub fn container_started(&self, kind: ContainerKind, result: Result<(), &str>) {
        let kind = match kind {
            ContainerKind::App => "container",
            ContainerKind::Init | ContainerKind::Sidecar => "init_container",
            ContainerKind::Ephemeral => "ephemeral_container",
        };
        self.started.add_one(&[kind]);
        if let Err(reason) = result {
            self.started_errors.add_one(&[reason, kind]);
        }
    }

    /// A pod that was ended is wanted again.
    pub fn pod_restarted(&self) {
        self.restarted.add_one(&[STATIC]);
    }

    /// A pod that only the runtime knew is ended.
    pub fn orphan_found(&self) {
        self.orphans.add_one(&[]);
    }

    /// What pods are promised of the memory.
    pub fn memory_protected(&self, memory: NodeProtection) {
        #[expect(clippy::cast_precision_loss, reason = "bytes of memory are far below 2^53")]
        let bytes = |bytes: u64| bytes as f64;
        self.memory_min.set(&[], bytes(memory.guaranteed));
        self.memory_low.set(&[], bytes(memory.burstable));
    }

    /// What a look for left-over volumes came to.
    pub fn volumes_cleaned(&self, pods: u32, failed: u32) {
        self.cleaned.set(&[], f64::from(pods));
        self.not_cleaned.set(&[], f64::from(failed));
    }
}

/// What is counted when somebody asks.
pub fn now(views: &Views, desired: Option<&Arc<Desired>>) -> Vec<MetricFamily> {
    let mut working = [[0.0; 3]; 5];
    let mut active = 0.0;
    let is_desired = |uid: &String| desired.is_some_and(|desired| desired.pods.contains_key(uid));
    for (uid, item) in views.status.snapshot() {
        let config = match (item.view.static_pod, is_desired(&uid)) {
            (true, true) => 1,
            (true, false) => 3,
            // A stand-in for what only the runtime knows.
            (false, _) => 4,
        };
        let stage = match item.decision.stage {
            Stage::Syncing => 0,
            Stage::Terminating => 1,
            Stage::Terminated => 2,
        };
        if stage < 2 {
            active += 1.0;
        }
        if let Some(count) = working.get_mut(config).and_then(|row: &mut [f64; 3]| row.get_mut(stage)) {
            *count += 1.0;
        }
    }
    let configs = [
        ("desired", ""),
        ("desired", STATIC),
        ("orphan", ""),
        ("orphan", STATIC),
        ("runtime_only", "unknown"),
    ];
    let stages = ["sync", "terminating", "terminated"];
    let working = configs.iter().zip(working).flat_map(|((config, is_static), row)| {
        stages.iter().zip(row).map(move |(stage, count)| (strings(&[config, stage, is_static]), count))
    });
    let by_static = |count: f64| [(strings(&[""]), 0.0), (strings(&[STATIC]), count)];
    let desired = desired.map_or(0, |desired| desired.pods.len());
    let desired = f64::from(u32::try_from(desired).unwrap_or(u32::MAX));
    vec![
        desc("kubelet_active_pods", "Pods that are not over.", &["static"]).gauge(by_static(active)),
        desc("kubelet_desired_pods", "Pods that the sources ask for.", &["static"]).gauge(by_static(desired)),
        desc("kubelet_mirror_pods", "Mirror pods.", &[]).gauge([(Vec::new(), 0.0)]),
        desc("kubelet_working_pods", "Pods that have a worker.", &["config", "lifecycle", "static"])
            .gauge(working),
    ]
}

fn strings(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_pod_with_a_network_is_told_for_good() {
        let metrics = Metrics::default();
        let measures = Measures::new(&metrics);
        for (seconds, network) in [(1, false), (2, true), (3, true)] {
            let own = Duration::from_secs(seconds);
            measures.pod_start_took(StartTimes { total: own * 2, own, network });
        }
        let families = metrics.gather();
        let family = |name: &str| families.iter().find(|family| family.name == name).unwrap();
        let value = |name: &str| family(name).series[0].value;
        assert!((value("kubelet_first_network_pod_start_sli_duration_seconds") - 2.0).abs() < 1e-9);
        assert!((value("kubelet_pod_start_sli_duration_seconds") - 6.0).abs() < 1e-9, "the sum");
        assert!((value("kubelet_pod_start_total_duration_seconds") - 12.0).abs() < 1e-9);
    }
}
