use bulkhead_api::evictd::v1::{
    Cgroup, CgroupFigure, ContainerStats, CpuStats, FsCapacity, FsStats, InterfaceStats, ListCgroupsResponse,
    Machine, MemoryStats, NetworkStats, NodeStats, PodStats, Summary, SwapStats,
};

use super::*;

/// What a kubelet 1.37.2 answered under `/metrics/resource`: name, type, labels.
const KUBELET: &str = include_str!("../../tests/metrics-resource.tsv");
/// The same of `/metrics/cadvisor`.
const CADVISOR: &str = include_str!("../../tests/metrics-cadvisor.tsv");
/// What of that is not told, by the beginning of its name, and why.
const NOT_TOLD: [(&str, &str); 19] = [
    ("cadvisor_version_info", "there is no cAdvisor in here"),
    ("container_file_descriptors", "/proc/PID/fd is root's and the process' own"),
    ("container_sockets", "as file descriptors"),
    (
        "container_ulimits_soft",
        "of one process, where there are many; set by who made the pod, so known without asking",
    ),
    ("container_health_state", "of Docker's health checks; pods have probes, which /metrics/probes has"),
    ("container_fs_io_current", "the kernel counts it for whole disks only, not for cgroups"),
    ("container_fs_io_time_seconds_total", "as above"),
    ("container_fs_io_time_weighted_seconds_total", "as above"),
    ("container_fs_read_seconds_total", "as above"),
    ("container_fs_reads_merged_total", "as above"),
    ("container_fs_reads_total", "as above"),
    ("container_fs_sector_reads_total", "as above"),
    ("container_fs_sector_writes_total", "as above"),
    ("container_fs_write_seconds_total", "as above"),
    ("container_fs_writes_merged_total", "as above"),
    ("container_fs_writes_total", "as above"),
    ("machine_cpu_books", "of mainframes; 0 everywhere else"),
    ("machine_cpu_drawers", "as above"),
    ("machine_nvm_", "of memory modules that keep their content; 0 everywhere else"),
];
/// What is told beside that.
const TOLD_HERE: [(&str, &str); 4] = [
    ("container_cpu_cfs_periods_total", "cAdvisor's own; no pod of that kubelet had a processor limit"),
    ("container_cpu_cfs_throttled_periods_total", "as above"),
    ("container_cpu_cfs_throttled_seconds_total", "as above"),
    ("container_spec_cpu_quota", "as above"),
];

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

/// Families in the form of the kubelet's list.
fn rows(told: &[MetricFamily]) -> Vec<String> {
    let kind = |family: &MetricFamily| if family.kind() == MetricKind::Counter { "counter" } else { "gauge" };
    let row = |f: &MetricFamily| format!("{}\t{}\t{}", f.name, kind(f), f.label_names.join(","));
    let mut rows: Vec<_> = told.iter().filter(|family| !family.series.is_empty()).map(row).collect();
    rows.sort();
    rows
}

/// A cgroup with every figure that there is.
fn cgroup(path: &str, container: &str) -> Cgroup {
    let figures = (1..=39).map(|kind| CgroupFigure { kind, value: 1_500_000_000 });
    let fs = FsStats {
        capacity: Some(FsCapacity { inodes: 7, ..Default::default() }),
        used_bytes: 3,
        ..Default::default()
    };
    let interface = InterfaceStats { name: "eth0".to_owned(), rx_packets: 5, ..Default::default() };
    Cgroup {
        path: path.to_owned(),
        pod_namespace: "ns".to_owned(),
        pod_name: "p".to_owned(),
        container: container.to_owned(),
        id: "i".to_owned(),
        image: "im".to_owned(),
        time_unix_nano: 1_796_048_787_900_000_000,
        created_unix_nano: 2_000_000_000,
        start_unix_nano: 3_500_000_000,
        figures: figures.collect(),
        network: Some(NetworkStats { interfaces: vec![interface], ..Default::default() }),
        fs: Some(fs),
        device: "/dev/vda".to_owned(),
    }
}

#[test]
fn cgroups_are_told_as_by_the_kubelet() {
    let machine = Machine { cpus: 2, boot_id: "b".to_owned(), ..Machine::default() };
    let cgroups = vec![cgroup("/kubepods/podp", ""), cgroup("/kubepods/podp/i", "c")];
    let told = cadvisor::families(Some(&ListCgroupsResponse { machine: Some(machine), cgroups }));
    let listed = |row: &str, list: &[(&str, &str)]| list.iter().any(|(name, _)| row.starts_with(name));
    let ours = rows(&told);
    let kubelet: Vec<&str> = CADVISOR.lines().filter(|line| !line.starts_with('#')).collect();
    let extra: Vec<_> =
        ours.iter().filter(|row| !kubelet.contains(&row.as_str()) && !listed(row, &TOLD_HERE)).collect();
    assert!(extra.is_empty(), "not the kubelet's: {extra:?}");
    let missing = kubelet.iter().filter(|row| !ours.contains(&(**row).to_owned()));
    let missing: Vec<_> = missing.filter(|row| !listed(row, &NOT_TOLD)).collect();
    assert!(missing.is_empty(), "neither told nor listed with a reason: {missing:?}");
    let stale: Vec<_> = ours.iter().filter(|row| listed(row, &NOT_TOLD)).collect();
    assert!(stale.is_empty(), "told by now: take them off the list: {stale:?}");
    let text = write(&told);
    let labels = "id=\"/kubepods/podp/i\",image=\"im\",";
    let rest = "name=\"i\",namespace=\"ns\",pod=\"p\"";
    let at = "1796048787900";
    for line in [
        format!(
            "container_cpu_usage_seconds_total{{container=\"c\",cpu=\"total\",{labels}{rest}}} 1.5 {at}\n"
        ),
        format!(
            "container_memory_failures_total{{container=\"c\",failure_type=\"pgfault\",{labels}{rest},scope=\"hierarchy\"}} 1500000000 {at}\n"
        ),
        format!("container_fs_usage_bytes{{container=\"c\",device=\"/dev/vda\",{labels}{rest}}} 3 {at}\n"),
        format!(
            "container_network_receive_packets_total{{container=\"c\",{labels}interface=\"eth0\",{rest}}} 5 {at}\n"
        ),
        format!("container_start_time_seconds{{container=\"c\",{labels}{rest}}} 3 {at}\n"),
        "machine_cpu_cores{boot_id=\"b\",machine_id=\"\",system_uuid=\"\"} 2\n".to_owned(),
        "\ncontainer_scrape_error 0\n".to_owned(),
    ] {
        assert!(text.contains(&line), "{line} in {text}");
    }
    assert!(write(&cadvisor::families(None)).contains("machine_scrape_error 1\n"));
    // What is not known is not told.
    let bare = Cgroup { path: "/".to_owned(), ..Cgroup::default() };
    let told = cadvisor::families(Some(&ListCgroupsResponse { machine: None, cgroups: vec![bare] }));
    assert_eq!(rows(&told), ["container_scrape_error\tgauge\t", "machine_scrape_error\tgauge\t"]);
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
    let told = resource::families(Some(&Summary { node: Some(node), pods: vec![pod] }));
    let ours = rows(&told);
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
