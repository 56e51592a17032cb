//! Counts what probes said, under the kubelet's names. A pod's series go with the pod.

use std::collections::BTreeMap;
use std::time::Duration;

use bulkhead_model::probe::{ProbeKind, ProbeOutcome};
use bulkhead_service::{Counter, Desc, Histogram, Metrics, SECONDS};

/// The counters.
pub struct Counts {
    total: Counter,
    seconds: Histogram,
    /// Names that series were told with, by pod UID.
    pods: BTreeMap<String, (String, String)>,
}

/// What a probe is about.
#[derive(Clone, Copy, Debug)]
pub struct Probed<'a> {
    /// Of the pod.
    pub uid: &'a str,
    /// Of the pod.
    pub namespace: &'a str,
    /// Of the pod.
    pub name: &'a str,
    /// The container's name.
    pub container: &'a str,
    /// Which of its probes.
    pub kind: ProbeKind,
}

impl Counts {
    /// In this registry.
    pub fn new(metrics: &Metrics) -> Self {
        let total = Desc {
            name: "prober_probe_total",
            help: "Liveness, readiness and startup probes of containers by result.",
            labels: &["container", "namespace", "pod", "pod_uid", "probe_type", "result"],
        };
        let seconds = Desc {
            name: "prober_probe_duration_seconds",
            help: "Time that a probe took, in seconds.",
            labels: &["container", "namespace", "pod", "probe_type"],
        };
        Self {
            total: metrics.counter(total),
            seconds: metrics.histogram(seconds, SECONDS),
            pods: BTreeMap::new(),
        }
    }

    /// Counts one answer.
    pub fn count(&mut self, probed: Probed<'_>, outcome: ProbeOutcome, took: Duration) {
        let Probed { uid, namespace, name, container, kind } = probed;
        let result = match outcome {
            ProbeOutcome::Success => "successful",
            ProbeOutcome::Failure => "failed",
            ProbeOutcome::Unknown => "unknown",
        };
        if !self.pods.contains_key(uid) {
            self.pods.insert(uid.to_owned(), (namespace.to_owned(), name.to_owned()));
        }
        self.total.add_one(&[container, namespace, name, uid, kind.as_str(), result]);
        self.seconds.observe(&[container, namespace, name, kind.as_str()], took.as_secs_f64());
    }

    /// The pod is gone.
    pub fn forget(&mut self, uid: &str) {
        let Some((namespace, name)) = self.pods.remove(uid) else { return };
        self.total.retain(|labels| labels.get(3).is_none_or(|label| label != uid));
        // Another pod may have the name by now.
        if !self.pods.values().any(|other| *other == (namespace.clone(), name.clone())) {
            self.seconds.retain(|labels| labels.get(1) != Some(&namespace) || labels.get(2) != Some(&name));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_come_with_answers_and_go_with_the_pod() {
        let metrics = Metrics::default();
        let mut counts = Counts::new(&metrics);
        let probed =
            |uid| Probed { uid, namespace: "ns", name: uid, container: "c", kind: ProbeKind::Liveness };
        for uid in ["a", "a", "b"] {
            counts.count(probed(uid), ProbeOutcome::Success, Duration::from_millis(20));
        }
        counts.count(probed("a"), ProbeOutcome::Failure, Duration::from_millis(20));
        let told = || {
            let families = metrics.gather();
            let of = |name: &str| {
                let family = families.iter().find(|family| family.name == name).unwrap();
                let series = family.series.iter();
                series.map(|s| (s.label_values.join(" "), s.value)).collect::<Vec<_>>()
            };
            (of("prober_probe_total"), of("prober_probe_duration_seconds").len())
        };
        let line = |labels: &str, value| (labels.to_owned(), value);
        let b = line("c ns b b Liveness successful", 1.0);
        let all =
            vec![line("c ns a a Liveness failed", 1.0), line("c ns a a Liveness successful", 2.0), b.clone()];
        assert_eq!(told(), (all, 2));
        counts.forget("a");
        counts.forget("never seen");
        assert_eq!(told(), (vec![b], 1));
    }
}
