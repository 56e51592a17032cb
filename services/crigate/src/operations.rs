//! How long the runtime takes and how often it fails, by method, under the kubelet's names. Pure but for its counters.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bulkhead_api::process::v1::{MetricFamily, MetricKind, MetricSeries};

/// Upper bounds in seconds: from 5 ms, each 2.5 times the one before, as the kubelet has them.
const BOUNDS: [f64; 14] = [
    0.005,
    0.0125,
    0.03125,
    0.078_125,
    0.195_312_5,
    0.488_281_25,
    1.220_703_125,
    3.051_757_812_5,
    7.629_394_531_25,
    19.073_486_328_125,
    47.683_715_820_312_5,
    119.209_289_550_781_25,
    298.023_223_876_953_1,
    745.058_059_692_382_8,
];
const LABEL: &str = "operation_type";

/// One method's.
#[derive(Debug, Default)]
pub struct Operations {
    errors: AtomicU64,
    micros: AtomicU64,
    buckets: [AtomicU64; BOUNDS.len() + 1],
}

/// The sum over all processes of one method's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    errors: u64,
    micros: u64,
    buckets: [u64; BOUNDS.len() + 1],
}

impl Operations {
    /// A call was answered, or failed.
    pub fn note(&self, took: Duration, failed: bool) {
        self.errors.fetch_add(u64::from(failed), Ordering::Relaxed);
        self.micros.fetch_add(u64::try_from(took.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
        let seconds = took.as_secs_f64();
        let bucket = BOUNDS.iter().position(|bound| seconds <= *bound).unwrap_or(BOUNDS.len());
        if let Some(count) = self.buckets.get(bucket) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Adds them to `totals`.
    pub fn add_to(&self, totals: &mut Totals) {
        totals.errors = totals.errors.saturating_add(self.errors.load(Ordering::Relaxed));
        totals.micros = totals.micros.saturating_add(self.micros.load(Ordering::Relaxed));
        for (sum, count) in totals.buckets.iter_mut().zip(&self.buckets) {
            *sum = sum.saturating_add(count.load(Ordering::Relaxed));
        }
    }
}

/// The kubelet's name of a method such as `RuntimeService/RunPodSandbox`: `run_podsandbox`.
pub fn operation_type(label: &str) -> String {
    let method = label.rsplit('/').next().unwrap_or_default();
    let mut name = String::with_capacity(method.len() + 4);
    for (at, letter) in method.char_indices() {
        if letter.is_ascii_uppercase() && at > 0 {
            name.push('_');
        }
        name.push(letter.to_ascii_lowercase());
    }
    match name.as_str() {
        "update_container_resources" => "update_container".to_owned(),
        _ => name.replace("pod_sandbox", "podsandbox"),
    }
}

/// The families, from sums by operation. Operations that never ran are left out.
#[expect(clippy::cast_precision_loss, reason = "Prometheus knows no other numbers")]
pub fn families(totals: &BTreeMap<String, Totals>) -> Vec<MetricFamily> {
    let ran = || totals.iter().filter(|(_, totals)| totals.buckets.iter().any(|count| *count > 0));
    let series = |name: &str, value, buckets| MetricSeries {
        label_values: vec![name.to_owned()],
        value,
        buckets,
        time_unix_milli: 0,
    };
    let family = |name: &str, help: &str, kind: MetricKind, series: Vec<MetricSeries>| MetricFamily {
        name: name.to_owned(),
        help: help.to_owned(),
        kind: kind.into(),
        label_names: vec![LABEL.to_owned()],
        series,
        bounds: if kind == MetricKind::Histogram { BOUNDS.to_vec() } else { Vec::new() },
    };
    let count = |totals: &Totals| totals.buckets.iter().fold(0, |sum: u64, count| sum.saturating_add(*count));
    let total = ran().map(|(name, totals)| series(name, count(totals) as f64, Vec::new())).collect();
    let failed = ran().filter(|(_, totals)| totals.errors > 0);
    let errors = failed.map(|(name, totals)| series(name, totals.errors as f64, Vec::new())).collect();
    let times = ran()
        .map(|(name, totals)| series(name, totals.micros as f64 / 1e6, totals.buckets.to_vec()))
        .collect();
    vec![
        family("kubelet_runtime_operations_total", "Calls of the runtime.", MetricKind::Counter, total),
        family(
            "kubelet_runtime_operations_errors_total",
            "Calls of the runtime that failed.",
            MetricKind::Counter,
            errors,
        ),
        family(
            "kubelet_runtime_operations_duration_seconds",
            "Time of calls of the runtime, in seconds.",
            MetricKind::Histogram,
            times,
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_the_kubelets() {
        for (label, name) in [
            ("RuntimeService/RunPodSandbox", "run_podsandbox"),
            ("RuntimeService/PodSandboxStatus", "podsandbox_status"),
            ("RuntimeService/ListPodSandbox", "list_podsandbox"),
            ("RuntimeService/ExecSync", "exec_sync"),
            ("RuntimeService/UpdateContainerResources", "update_container"),
            ("ImageService/ListImages", "list_images"),
        ] {
            assert_eq!(operation_type(label), name);
        }
    }

    #[test]
    fn calls_of_all_processes_add_up() {
        let (one, two) = (Operations::default(), Operations::default());
        one.note(Duration::from_millis(4), false);
        two.note(Duration::from_millis(6), true);
        two.note(Duration::from_secs(1000), false);
        let mut totals = BTreeMap::from([
            ("version".to_owned(), Totals::default()),
            ("never".to_owned(), Totals::default()),
        ]);
        for operations in [&one, &two] {
            operations.add_to(totals.get_mut("version").unwrap());
        }
        let families = families(&totals);
        let [total, errors, times] = &families[..] else { panic!("{families:?}") };
        assert_eq!((total.series.len(), total.series[0].value), (1, 3.0));
        assert_eq!(errors.series[0].value, 1.0);
        assert_eq!(times.series[0].value, 1000.01);
        assert_eq!(
            times.series[0]
                .buckets
                .iter()
                .enumerate()
                .filter(|(_, n)| **n > 0)
                .map(|(at, _)| at)
                .collect::<Vec<_>>(),
            [0, 1, 14]
        );
        assert_eq!(times.series[0].buckets.len(), times.bounds.len() + 1);
    }
}
