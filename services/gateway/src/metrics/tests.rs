use bulkhead_api::evictd::v1::{
    ContainerStats, CpuStats, MemoryStats, NodeStats, PodStats, Summary, SwapStats,
};

use super::*;

/// What a kubelet 1.37.2 answered under `/metrics/resource`: name, type, labels.
const KUBELET: &str = include_str!("../../tests/metrics-resource.tsv");

fn series(labels: &[&str], value: f64) -> MetricSeries {
    let label_values = labels.iter().map(|&label| label.to_owned()).collect();
    MetricSeries { label_values, value, ..MetricSeries::default() }
}

fn family(name: &str, labels: &[&str], all: Vec<MetricSeries>) -> MetricFamily {
    MetricFamily {
        name: name.to_owned(),
        help: "Help.".to_owned(),
        kind: MetricKind::Counter.into(),
        label_names: labels.iter().map(|&label| label.to_owned()).collect(),
        series: all,
        bounds: Vec::new(),
    }
}

#[test]
fn the_text_is_that_of_the_format() {
    let mut strange = family("a_total", &["l"], vec![series(&["x\\\"\ny"], 2.5)]);
    strange.help = "one\\\ntwo".to_owned();
    strange.series[0].time_unix_milli = 1_796_048_787_900;
    let histogram = MetricFamily {
        kind: MetricKind::Histogram.into(),
        bounds: vec![0.1, 1.0],
        series: vec![MetricSeries { value: 3.25, buckets: vec![2, 1, 1], ..MetricSeries::default() }],
        ..family("h", &[], Vec::new())
    };
    let empty = family("nothing", &[], Vec::new());
    let text = write(&[strange, histogram, empty]);
    let wanted = "# HELP a_total one\\\\\\ntwo
# TYPE a_total counter
a_total{l=\"x\\\\\\\"\\ny\"} 2.5 1796048787900
# HELP h Help.
# TYPE h histogram
h_bucket{le=\"0.1\"} 2
h_bucket{le=\"1\"} 3
h_bucket{le=\"+Inf\"} 4
h_sum 3.25
h_count 4
";
    assert_eq!(text, wanted);
}

#[test]
fn names_come_once_and_what_does_not_fit_is_left_out() {
    let own = |value| family("process_open_fds", &[], vec![series(&[], value)]);
    let told = vec![
        ("a".to_owned(), Some(vec![own(1.0), family("x", &[], vec![series(&[], 1.0)])])),
        ("b".to_owned(), Some(vec![own(2.0), family("x", &["l"], vec![series(&["v"], 1.0)])])),
        ("c".to_owned(), None),
        ("prober".to_owned(), Some(vec![family("prober_probe_total", &[], vec![series(&[], 1.0)])])),
    ];
    let all = all(told);
    let names: Vec<_> = all.iter().map(|family| family.name.as_str()).collect();
    assert_eq!(names, [UP, "process_open_fds", "x"]);
    assert_eq!(all[0].series.iter().map(|s| s.value).collect::<Vec<_>>(), [1.0, 1.0, 0.0, 1.0]);
    let labels: Vec<_> = all[1].series.iter().map(|s| s.label_values[0].as_str()).collect();
    assert_eq!(labels, ["a", "b"]);
    assert_eq!(all[2].series.len(), 1);
}

#[test]
fn resources_are_told_as_by_the_kubelet() {
    let at = 1_796_048_787_900_000_000;
    let cpu = || {
        Some(CpuStats { time_unix_nano: at, usage_core_nano_seconds: 1_500_000_000, ..CpuStats::default() })
    };
    let memory = || Some(MemoryStats { time_unix_nano: at, working_set_bytes: 9, ..MemoryStats::default() });
    let swap = || Some(SwapStats { time_unix_nano: at, available_bytes: Some(3), usage_bytes: 4 });
    let container = ContainerStats {
        name: "c".to_owned(),
        start_unix_nano: 2_500_000_000,
        cpu: cpu(),
        memory: memory(),
        swap: swap(),
        ..ContainerStats::default()
    };
    let pod = PodStats {
        name: "p".to_owned(),
        namespace: "ns".to_owned(),
        cpu: cpu(),
        memory: memory(),
        swap: swap(),
        containers: vec![container],
        ..PodStats::default()
    };
    let node = NodeStats { cpu: cpu(), memory: memory(), swap: swap(), ..NodeStats::default() };
    let mut ours: Vec<String> = Vec::new();
    let told = resource::families(Some(&Summary { node: Some(node), pods: vec![pod] }));
    for family in &told {
        let kind = if family.kind() == MetricKind::Counter { "counter" } else { "gauge" };
        ours.push(format!("{}\t{kind}\t{}", family.name, family.label_names.join(",")));
    }
    ours.sort();
    let kubelet: Vec<&str> = KUBELET.lines().filter(|line| !line.starts_with('#')).collect();
    assert_eq!(ours, kubelet);
    let text = write(&told);
    let labels = "{container=\"c\",namespace=\"ns\",pod=\"p\"}";
    for line in [
        format!("container_cpu_usage_seconds_total{labels} 1.5 1796048787900\n"),
        format!("container_start_time_seconds{labels} 2.5\n"),
        format!("container_swap_limit_bytes{labels} 7 1796048787900\n"),
        "node_memory_working_set_bytes 9 1796048787900\n".to_owned(),
        "\nscrape_error 0\n".to_owned(),
    ] {
        assert!(text.contains(&line), "{line} in {text}");
    }
    assert!(write(&resource::families(None)).contains("\nscrape_error 1\n"));
}
