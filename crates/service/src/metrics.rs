//! What a process counts and measures: counters, gauges and histograms with labels, and figures read when asked for.
//!
//! Owns the series of one process. Bounded: a family takes [`SERIES`] label sets, and what comes after them is counted
//! under `other`. Must never know where it is shown: gateway writes the text.
//!
//! A registry of our own and not prometheus-client's: values travel to gateway as messages, where that crate can only
//! encode text, and the figures of `/metrics/resource` need times, which it has not.

mod own;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bulkhead_api::process::v1 as wire;

pub use own::process_metrics;

/// Label sets of one family.
const SERIES: usize = 1024;
/// Longest label value kept, in bytes.
const LABEL_BYTES: usize = 253;
/// Value of every label of the series that takes what is past [`SERIES`].
const OTHER: &str = "other";

/// Upper bounds for durations of calls in seconds, from 5 ms to 10 s: Prometheus' own defaults, which the kubelet uses.
pub const SECONDS: &[f64] = &[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// The registry of one process. Clones share it.
#[derive(Clone, Default)]
pub struct Metrics(Arc<Mutex<Registry>>);

#[derive(Default)]
struct Registry {
    families: BTreeMap<&'static str, Family>,
    readers: Vec<Box<dyn Fn() -> Vec<wire::MetricFamily> + Send + Sync>>,
}

/// Name, meaning and label names of a family.
#[derive(Clone, Copy, Debug)]
pub struct Desc {
    /// As in Prometheus' text format.
    pub name: &'static str,
    /// One line.
    pub help: &'static str,
    /// Names of its labels. Their values come in the same order.
    pub labels: &'static [&'static str],
}

struct Family {
    desc: Desc,
    kind: wire::MetricKind,
    bounds: &'static [f64],
    series: BTreeMap<Vec<String>, Series>,
}

#[derive(Default)]
struct Series {
    value: f64,
    buckets: Vec<u64>,
}

/// Counts things.
#[derive(Clone)]
pub struct Counter(Handle);

/// Tells a value that may fall.
#[derive(Clone)]
pub struct Gauge(Handle);

/// Counts values by size.
#[derive(Clone)]
pub struct Histogram(Handle);

#[derive(Clone)]
struct Handle {
    metrics: Metrics,
    name: &'static str,
}

impl Metrics {
    /// A counter. A family that exists already is shared.
    pub fn counter(&self, desc: Desc) -> Counter {
        Counter(self.add(desc, wire::MetricKind::Counter, &[]))
    }

    /// A gauge.
    pub fn gauge(&self, desc: Desc) -> Gauge {
        Gauge(self.add(desc, wire::MetricKind::Gauge, &[]))
    }

    /// A histogram with these upper bounds, which rise.
    pub fn histogram(&self, desc: Desc, bounds: &'static [f64]) -> Histogram {
        Histogram(self.add(desc, wire::MetricKind::Histogram, bounds))
    }

    /// Families that are read whenever somebody asks. `read` must be quick and must not use this registry.
    pub fn read_with(&self, read: impl Fn() -> Vec<wire::MetricFamily> + Send + Sync + 'static) {
        self.lock().readers.push(Box::new(read));
    }

    /// Everything there is now, ordered by name.
    pub fn gather(&self) -> Vec<wire::MetricFamily> {
        let registry = self.lock();
        let kept = registry.families.values().map(Family::to_wire);
        let mut all: Vec<_> = kept.chain(registry.readers.iter().flat_map(|read| read())).collect();
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all
    }

    fn add(&self, desc: Desc, kind: wire::MetricKind, bounds: &'static [f64]) -> Handle {
        let mut registry = self.lock();
        registry.families.entry(desc.name).or_insert_with(|| Family {
            desc,
            kind,
            bounds,
            series: BTreeMap::new(),
        });
        if desc.labels.is_empty()
            && let Some(family) = registry.families.get_mut(desc.name)
        {
            // One series, and it is there from the start: zero is a value.
            family.series(&[]);
        }
        Handle { metrics: self.clone(), name: desc.name }
    }

    fn lock(&self) -> MutexGuard<'_, Registry> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Desc {
    /// A gauge family from values that were read elsewhere.
    pub fn gauge(self, series: impl IntoIterator<Item = (Vec<String>, f64)>) -> wire::MetricFamily {
        self.family(wire::MetricKind::Gauge, series)
    }

    /// A counter family from values that were read elsewhere.
    pub fn counter(self, series: impl IntoIterator<Item = (Vec<String>, f64)>) -> wire::MetricFamily {
        self.family(wire::MetricKind::Counter, series)
    }

    fn family(
        self,
        kind: wire::MetricKind,
        series: impl IntoIterator<Item = (Vec<String>, f64)>,
    ) -> wire::MetricFamily {
        let series = series.into_iter().map(|(label_values, value)| wire::MetricSeries {
            label_values,
            value,
            ..wire::MetricSeries::default()
        });
        wire::MetricFamily {
            name: self.name.to_owned(),
            help: self.help.to_owned(),
            kind: kind.into(),
            label_names: self.labels.iter().map(|&name| name.to_owned()).collect(),
            series: series.collect(),
            bounds: Vec::new(),
        }
    }
}

impl Counter {
    /// Counts one more.
    pub fn add_one(&self, labels: &[&str]) {
        self.0.change(labels, |series, _| series.value += 1.0);
    }

    /// Forgets series that `keep` refuses by their label values: what they are about is gone.
    pub fn retain(&self, keep: impl Fn(&[String]) -> bool) {
        self.0.retain(keep);
    }
}

impl Gauge {
    /// Sets the value.
    pub fn set(&self, labels: &[&str], value: f64) {
        self.0.change(labels, |series, _| series.value = value);
    }
}

impl Histogram {
    /// Counts one value. What is no number is left out.
    pub fn observe(&self, labels: &[&str], value: f64) {
        if value.is_nan() {
            return;
        }
        self.0.change(labels, |series, bounds| {
            series.value += value;
            series.buckets.resize(bounds.len().saturating_add(1), 0);
            let bucket = bounds.iter().position(|bound| value <= *bound).unwrap_or(bounds.len());
            if let Some(count) = series.buckets.get_mut(bucket) {
                *count = count.saturating_add(1);
            }
        });
    }

    /// Forgets series that `keep` refuses by their label values: what they are about is gone.
    pub fn retain(&self, keep: impl Fn(&[String]) -> bool) {
        self.0.retain(keep);
    }
}

impl Handle {
    fn change(&self, labels: &[&str], change: impl FnOnce(&mut Series, &[f64])) {
        if let Some(family) = self.metrics.lock().families.get_mut(self.name) {
            let bounds = family.bounds;
            change(family.series(labels), bounds);
        }
    }

    fn retain(&self, keep: impl Fn(&[String]) -> bool) {
        if let Some(family) = self.metrics.lock().families.get_mut(self.name) {
            family.series.retain(|labels, _| keep(labels));
        }
    }
}

impl Family {
    /// The series of these values; missing ones are empty, surplus ones are dropped.
    fn series(&mut self, labels: &[&str]) -> &mut Series {
        let mut key: Vec<String> = (0..self.desc.labels.len())
            .map(|at| {
                let value = labels.get(at).copied().unwrap_or_default();
                value.get(..value.floor_char_boundary(LABEL_BYTES)).unwrap_or_default().to_owned()
            })
            .collect();
        if self.series.len() >= SERIES && !self.series.contains_key(&key) {
            key.iter_mut().for_each(|value| OTHER.clone_into(value));
        }
        self.series.entry(key).or_default()
    }

    fn to_wire(&self) -> wire::MetricFamily {
        let buckets = self.bounds.len().saturating_add(1);
        let histogram = self.kind == wire::MetricKind::Histogram;
        let series = self.series.iter().map(|(labels, series)| {
            let mut counts = series.buckets.clone();
            if histogram {
                counts.resize(buckets, 0);
            }
            wire::MetricSeries {
                label_values: labels.clone(),
                value: series.value,
                buckets: counts,
                time_unix_milli: 0,
            }
        });
        wire::MetricFamily {
            name: self.desc.name.to_owned(),
            help: self.desc.help.to_owned(),
            kind: self.kind.into(),
            label_names: self.desc.labels.iter().map(|&name| name.to_owned()).collect(),
            series: series.collect(),
            bounds: self.bounds.to_vec(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALLS: Desc = Desc { name: "calls_total", help: "Calls.", labels: &["method"] };
    const TIME: Desc = Desc { name: "call_seconds", help: "Time.", labels: &[] };

    fn only(metrics: &Metrics) -> wire::MetricFamily {
        let [family] = metrics.gather().try_into().unwrap();
        family
    }

    #[test]
    fn series_are_kept_by_their_labels() {
        let metrics = Metrics::default();
        let calls = metrics.counter(CALLS);
        assert!(only(&metrics).series.is_empty(), "no series before the first count");
        metrics.counter(CALLS).add_one(&["a"]);
        calls.add_one(&["a"]);
        calls.add_one(&["b", "surplus"]);
        let told: Vec<_> = only(&metrics).series.into_iter().map(|s| (s.label_values, s.value)).collect();
        assert_eq!(told, [(vec!["a".to_owned()], 2.0), (vec!["b".to_owned()], 1.0)]);
        calls.retain(|labels| labels == ["b"]);
        assert_eq!(only(&metrics).series.len(), 1);
    }

    #[test]
    fn without_labels_there_is_a_zero_from_the_start() {
        let metrics = Metrics::default();
        let gauge = metrics.gauge(Desc { name: "pods", help: "", labels: &[] });
        assert_eq!(only(&metrics).series[0].value, 0.0);
        gauge.set(&[], 3.0);
        gauge.set(&[], 2.0);
        assert_eq!(only(&metrics).series[0].value, 2.0);
    }

    #[test]
    fn values_go_into_the_bucket_that_holds_them() {
        let metrics = Metrics::default();
        let time = metrics.histogram(TIME, &[0.1, 1.0]);
        assert_eq!(only(&metrics).series[0].buckets, [0, 0, 0]);
        for value in [0.05, 0.1, 0.5, 7.0, f64::NAN] {
            time.observe(&[], value);
        }
        let family = only(&metrics);
        assert_eq!(family.bounds, [0.1, 1.0]);
        assert_eq!(family.series[0].buckets, [2, 1, 1]);
        assert!((family.series[0].value - 7.65).abs() < 1e-9);
    }

    #[test]
    fn labels_are_bounded_in_number_and_length() {
        let metrics = Metrics::default();
        let calls = metrics.counter(CALLS);
        for n in 0..SERIES + 50 {
            calls.add_one(&[&n.to_string()]);
        }
        calls.add_one(&["1"]);
        let family = only(&metrics);
        assert_eq!(family.series.len(), SERIES + 1);
        let of = |name: &str| family.series.iter().find(|s| s.label_values == [name]).unwrap().value;
        assert_eq!((of(OTHER), of("1")), (50.0, 2.0));
        let long = Metrics::default();
        long.counter(CALLS).add_one(&[&"é".repeat(4096)]);
        assert!(only(&long).series[0].label_values[0].len() <= LABEL_BYTES);
    }

    #[test]
    fn what_is_read_elsewhere_stands_in_line() {
        let metrics = Metrics::default();
        metrics.counter(CALLS);
        metrics.read_with(|| vec![Desc { name: "a", help: "", labels: &[] }.gauge([(Vec::new(), 4.0)])]);
        let names: Vec<_> = metrics.gather().into_iter().map(|family| family.name).collect();
        assert_eq!(names, ["a", "calls_total"]);
    }
}
