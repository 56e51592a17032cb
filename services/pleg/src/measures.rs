//! What pleg tells of itself, under the kubelet's names.

use std::sync::Arc;
use std::time::Duration;

use bulkhead_api::process::v1::MetricFamily;
use bulkhead_ipc::Publisher;
use bulkhead_model::runtime::{ContainerState, RuntimePod};
use bulkhead_service::{Desc, Histogram, Metrics, SECONDS};

use crate::trust::Trust;

/// Upper bounds for the time between two lists, in seconds.
const INTERVALS: &[f64] = &[1.0, 1.1, 1.25, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0, 60.0, 121.0, 180.0, 600.0];

/// How long lists take, and how far they are apart.
#[derive(Clone)]
pub(crate) struct Measures {
    duration: Histogram,
    interval: Histogram,
}

const fn plain(name: &'static str, help: &'static str) -> Desc {
    Desc { name, help, labels: &[] }
}

impl Measures {
    /// In this registry.
    pub(crate) fn new(metrics: &Metrics) -> Self {
        let duration = plain("kubelet_pleg_relist_duration_seconds", "Time to list the runtime, in seconds.");
        let interval = plain(
            "kubelet_pleg_relist_interval_seconds",
            "Time between two lists of the runtime, in seconds.",
        );
        Self {
            duration: metrics.histogram(duration, SECONDS),
            interval: metrics.histogram(interval, INTERVALS),
        }
    }

    /// A list was answered.
    pub(crate) fn listed(&self, took: Duration, since_the_last: Option<Duration>) {
        self.duration.observe(&[], took.as_secs_f64());
        if let Some(interval) = since_the_last {
            self.interval.observe(&[], interval.as_secs_f64());
        }
    }
}

impl std::fmt::Debug for Measures {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Measures")
    }
}

/// What is counted when somebody asks.
pub(crate) fn now(publisher: &Publisher<String, RuntimePod>, trust: &Trust) -> Vec<MetricFamily> {
    let (mut pods, mut states) = (0.0, [0.0; 4]);
    for pod in publisher.snapshot().into_values() {
        let pod: Arc<RuntimePod> = pod;
        if pod.sandboxes.iter().any(|sandbox| sandbox.ready) {
            pods += 1.0;
        }
        for container in &pod.containers {
            let [created, exited, running, unknown] = &mut states;
            *match container.state {
                ContainerState::Created => created,
                ContainerState::Exited => exited,
                ContainerState::Running => running,
                ContainerState::Unknown => unknown,
            } += 1.0;
        }
    }
    let names = ["created", "exited", "running", "unknown"].map(|name| vec![name.to_owned()]);
    let containers = Desc {
        name: "kubelet_running_containers",
        help: "Containers that the runtime holds, by state.",
        labels: &["container_state"],
    };
    let events = plain("bulkhead_pleg_events_trusted", "Whether the runtime's events are relied on.");
    vec![
        plain("kubelet_running_pods", "Pods with a running sandbox.").gauge([(Vec::new(), pods)]),
        containers.gauge(names.into_iter().zip(states)),
        events.gauge([(Vec::new(), if trust.events() { 1.0 } else { 0.0 })]),
    ]
}
