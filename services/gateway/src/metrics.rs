//! Metrics of all processes as one target: what the kubelet tells under `/metrics`, `/metrics/probes`,
//! `/metrics/resource` and `/metrics/cadvisor`. Pure, but for [`gather`].
//!
//! Names, types and labels are the kubelet's where the thing is the same. What each process has for itself carries the
//! label `process`.

pub(crate) mod cadvisor;
pub(crate) mod gather;
pub(crate) mod resource;
mod text;

use std::collections::BTreeMap;

use bulkhead_api::process::v1::{MetricFamily, MetricKind, MetricSeries};

pub(crate) use text::write;

/// The label that says which process a series is from.
const PROCESS: &str = "process";
/// Families that every process has.
const OWN: &str = "process_";
/// Families that the kubelet keeps apart from the others, under `/metrics/probes`.
const PROBES: &str = "prober_";
/// Families of bulkhead alone.
const UP: &str = "bulkhead_process_up";

/// What one process told, or nothing when it did not answer.
pub(crate) type Told = (String, Option<Vec<MetricFamily>>);

/// Everything but probes, one family for each name, and which processes answered.
pub(crate) fn all(told: Vec<Told>) -> Vec<MetricFamily> {
    let up = told.iter().map(|(process, families)| MetricSeries {
        label_values: vec![process.clone()],
        value: if families.is_some() { 1.0 } else { 0.0 },
        ..MetricSeries::default()
    });
    let up = MetricFamily {
        name: UP.to_owned(),
        help: "Whether the process told its metrics.".to_owned(),
        kind: MetricKind::Gauge.into(),
        label_names: vec![PROCESS.to_owned()],
        series: up.collect(),
        bounds: Vec::new(),
    };
    let mut merged = BTreeMap::from([(UP.to_owned(), up)]);
    for (process, families) in told {
        for family in families.into_iter().flatten().filter(|family| !family.name.starts_with(PROBES)) {
            let family = if family.name.starts_with(OWN) { labelled(family, &process) } else { family };
            add(&mut merged, family);
        }
    }
    merged.into_values().collect()
}

/// What prober tells of probes.
pub(crate) fn probes(prober: Vec<MetricFamily>) -> Vec<MetricFamily> {
    prober.into_iter().filter(|family| family.name.starts_with(PROBES) || family.name == START).collect()
}

/// When the process of pods was started: all that the kubelet tells under `/metrics/slis` of a node without components.
pub(crate) fn start(syncd: Vec<MetricFamily>) -> Vec<MetricFamily> {
    syncd.into_iter().filter(|family| family.name == START).collect()
}

const START: &str = "process_start_time_seconds";

fn labelled(mut family: MetricFamily, process: &str) -> MetricFamily {
    family.label_names.push(PROCESS.to_owned());
    for series in &mut family.series {
        series.label_values.push(process.to_owned());
    }
    family
}

/// A second family of a name joins the first if it has the same form. One that has not is left out: the text would be
/// none any more.
fn add(merged: &mut BTreeMap<String, MetricFamily>, family: MetricFamily) {
    let Some(first) = merged.get_mut(&family.name) else {
        merged.insert(family.name.clone(), family);
        return;
    };
    if first.kind == family.kind && first.label_names == family.label_names && first.bounds == family.bounds {
        let new = |series: &MetricSeries| !first.series.iter().any(|s| s.label_values == series.label_values);
        let new: Vec<_> = family.series.into_iter().filter(new).collect();
        first.series.extend(new);
    }
}

#[cfg(test)]
mod tests;
