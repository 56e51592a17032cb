//! Prometheus' text format 0.0.4. Pure.

use std::fmt::Write as _;

use bulkhead_api::process::v1::{MetricFamily, MetricKind, MetricSeries};

/// The text of these families. Those without a series are left out, as the kubelet does.
pub(crate) fn write(families: &[MetricFamily]) -> String {
    let mut text = String::new();
    for family in families.iter().filter(|family| !family.series.is_empty()) {
        let kind = match family.kind() {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            MetricKind::Histogram => "histogram",
            MetricKind::Unspecified => "untyped",
        };
        let name = &family.name;
        // Writing to a String does not fail.
        let _ = writeln!(text, "# HELP {name} {}", escaped(&family.help, Place::Help));
        let _ = writeln!(text, "# TYPE {name} {kind}");
        for series in &family.series {
            if family.kind() == MetricKind::Histogram {
                histogram(&mut text, family, series);
            } else {
                line(&mut text, name, &labels(family, series, None), &number(series.value), series);
            }
        }
    }
    text
}

fn histogram(text: &mut String, family: &MetricFamily, series: &MetricSeries) {
    let name = &family.name;
    let mut count = 0_u64;
    let bounds = family.bounds.iter().copied().chain([f64::INFINITY]);
    let buckets = series.buckets.iter().copied().chain(std::iter::repeat(0));
    for (bound, in_bucket) in bounds.zip(buckets) {
        count = count.saturating_add(in_bucket);
        let labels = labels(family, series, Some(&number(bound)));
        line(text, &format!("{name}_bucket"), &labels, &count.to_string(), series);
    }
    let labels = labels(family, series, None);
    line(text, &format!("{name}_sum"), &labels, &number(series.value), series);
    line(text, &format!("{name}_count"), &labels, &count.to_string(), series);
}

fn line(text: &mut String, name: &str, labels: &str, value: &str, series: &MetricSeries) {
    let _ = match series.time_unix_milli {
        0 => writeln!(text, "{name}{labels} {value}"),
        at => writeln!(text, "{name}{labels} {value} {at}"),
    };
}

fn labels(family: &MetricFamily, series: &MetricSeries, le: Option<&str>) -> String {
    let own =
        family.label_names.iter().map(String::as_str).zip(series.label_values.iter().map(String::as_str));
    let pairs = own.chain(le.map(|le| ("le", le)));
    let pairs: Vec<_> =
        pairs.map(|(name, value)| format!("{name}=\"{}\"", escaped(value, Place::Label))).collect();
    if pairs.is_empty() { String::new() } else { format!("{{{}}}", pairs.join(",")) }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Help,
    Label,
}

fn escaped(value: &str, place: Place) -> String {
    let value = value.replace('\\', "\\\\").replace('\n', "\\n");
    if place == Place::Label { value.replace('"', "\\\"") } else { value }
}

fn number(value: f64) -> String {
    if value == f64::INFINITY {
        "+Inf".to_owned()
    } else if value == f64::NEG_INFINITY {
        "-Inf".to_owned()
    } else if value.is_nan() {
        "NaN".to_owned()
    } else {
        value.to_string()
    }
}
