//! `/metrics/cadvisor`: what the kernel tells of every cgroup of the node and its pods, under the names and labels of the
//! kubelet's built-in cAdvisor. Pure.

use bulkhead_api::evictd::v1::{
    Cgroup, CgroupFigureKind as Figure, FsStats, InterfaceStats, ListCgroupsResponse, Machine,
};
use bulkhead_api::process::v1::{MetricFamily, MetricKind, MetricSeries};

/// Labels that every series of a cgroup has.
const LABELS: [&str; 6] = ["container", "id", "image", "name", "namespace", "pod"];
/// Labels of the machine's series.
const MACHINE: [&str; 3] = ["boot_id", "machine_id", "system_uuid"];

/// One family, without its series.
#[derive(Clone, Copy)]
struct Head {
    name: &'static str,
    kind: MetricKind,
    help: &'static str,
}

/// A family that has one figure of each cgroup.
struct Row {
    head: Head,
    /// The figure, with the values of the further labels.
    figures: &'static [(Figure, &'static [&'static str])],
    /// Further labels.
    labels: &'static [&'static str],
    unit: Unit,
}

/// What a figure is told in.
#[derive(Clone, Copy)]
enum Unit {
    /// As it is.
    Own,
    /// Nanoseconds as seconds.
    Seconds,
}

const fn counter(name: &'static str, help: &'static str) -> Head {
    Head { name, kind: MetricKind::Counter, help }
}

const fn gauge(name: &'static str, help: &'static str) -> Head {
    Head { name, kind: MetricKind::Gauge, help }
}

const fn row(head: Head, figures: &'static [(Figure, &'static [&'static str])]) -> Row {
    Row { head, figures, labels: &[], unit: Unit::Own }
}

const fn seconds(head: Head, figures: &'static [(Figure, &'static [&'static str])]) -> Row {
    Row { head, figures, labels: &[], unit: Unit::Seconds }
}

const ROWS: [Row; 36] = [
    seconds(
        counter(
            "container_cpu_cfs_throttled_seconds_total",
            "Time in which the cgroup was held back by its quota.",
        ),
        &[(Figure::CpuThrottledNs, &[])],
    ),
    row(
        counter("container_cpu_cfs_periods_total", "Periods of the cgroup's quota that went by."),
        &[(Figure::CpuPeriods, &[])],
    ),
    row(
        counter(
            "container_cpu_cfs_throttled_periods_total",
            "Periods in which the cgroup was held back by its quota.",
        ),
        &[(Figure::CpuThrottledPeriods, &[])],
    ),
    seconds(
        counter("container_cpu_system_seconds_total", "Processor time used in the kernel."),
        &[(Figure::CpuSystemNs, &[])],
    ),
    seconds(
        counter("container_cpu_user_seconds_total", "Processor time used outside of the kernel."),
        &[(Figure::CpuUserNs, &[])],
    ),
    Row {
        labels: &["cpu"],
        ..seconds(
            counter("container_cpu_usage_seconds_total", "Processor time used."),
            &[(Figure::CpuUsageNs, &["total"])],
        )
    },
    row(gauge("container_memory_cache", "Bytes of file pages."), &[(Figure::MemoryCache, &[])]),
    row(
        counter("container_memory_events_high_total", "How often memory went over the high limit."),
        &[(Figure::MemoryEventsHigh, &[])],
    ),
    row(
        counter("container_memory_events_max_total", "How often memory was about to go over the limit."),
        &[(Figure::MemoryEventsMax, &[])],
    ),
    row(
        counter("container_memory_failcnt", "How often memory met its limit."),
        &[(Figure::MemoryFailcnt, &[])],
    ),
    Row {
        labels: &["failure_type", "scope"],
        ..row(
            counter("container_memory_failures_total", "Page faults."),
            &[
                (Figure::MemoryFaultsOwn, &["pgfault", "container"]),
                (Figure::MemoryFaults, &["pgfault", "hierarchy"]),
                (Figure::MemoryMajorFaultsOwn, &["pgmajfault", "container"]),
                (Figure::MemoryMajorFaults, &["pgmajfault", "hierarchy"]),
            ],
        )
    },
    row(
        gauge("container_memory_file_dirty_bytes", "Bytes of file pages that are not written yet."),
        &[(Figure::MemoryFileDirty, &[])],
    ),
    row(
        gauge("container_memory_file_writeback_bytes", "Bytes of file pages that are being written."),
        &[(Figure::MemoryFileWriteback, &[])],
    ),
    row(
        gauge("container_memory_kernel_usage", "Bytes of the kernel's own memory."),
        &[(Figure::MemoryKernel, &[])],
    ),
    row(
        gauge("container_memory_mapped_file", "Bytes of files that are mapped."),
        &[(Figure::MemoryMappedFile, &[])],
    ),
    row(
        gauge("container_memory_max_usage_bytes", "The most memory that was ever used, in bytes."),
        &[(Figure::MemoryMaxUsage, &[])],
    ),
    row(
        counter("container_memory_pgscan_total", "Pages that were looked at for reclaim."),
        &[(Figure::MemoryPagesScanned, &[])],
    ),
    row(
        counter("container_memory_pgsteal_total", "Pages that were reclaimed."),
        &[(Figure::MemoryPagesStolen, &[])],
    ),
    row(gauge("container_memory_rss", "Bytes of anonymous memory."), &[(Figure::MemoryRss, &[])]),
    row(gauge("container_memory_swap", "Bytes of swap."), &[(Figure::MemorySwap, &[])]),
    row(
        gauge("container_memory_total_active_file_bytes", "Bytes of file pages that were touched lately."),
        &[(Figure::MemoryActiveFile, &[])],
    ),
    row(
        gauge(
            "container_memory_total_inactive_file_bytes",
            "Bytes of file pages that were not touched lately.",
        ),
        &[(Figure::MemoryInactiveFile, &[])],
    ),
    row(gauge("container_memory_usage_bytes", "Bytes of memory in use."), &[(Figure::MemoryUsage, &[])]),
    row(
        gauge(
            "container_memory_working_set_bytes",
            "Bytes of memory in use without file pages that were not touched lately.",
        ),
        &[(Figure::MemoryWorkingSet, &[])],
    ),
    row(
        counter(
            "container_memory_workingset_refault_anon_total",
            "Anonymous pages that were needed again soon after they had gone.",
        ),
        &[(Figure::MemoryRefaultAnon, &[])],
    ),
    row(
        counter(
            "container_memory_workingset_refault_file_total",
            "File pages that were needed again soon after they had gone.",
        ),
        &[(Figure::MemoryRefaultFile, &[])],
    ),
    row(
        counter("container_oom_events_total", "Processes that the kernel killed for memory."),
        &[(Figure::OomKills, &[])],
    ),
    row(gauge("container_processes", "Processes in the cgroup itself."), &[(Figure::Processes, &[])]),
    row(gauge("container_threads", "Threads in the cgroup."), &[(Figure::Threads, &[])]),
    row(
        gauge("container_threads_max", "The most threads that there may be; 0: no limit."),
        &[(Figure::ThreadsMax, &[])],
    ),
    row(
        gauge("container_spec_cpu_period", "Period of the processor quota, in microseconds."),
        &[(Figure::CpuPeriod, &[])],
    ),
    row(
        gauge("container_spec_cpu_quota", "Processor quota, in microseconds a period."),
        &[(Figure::CpuQuota, &[])],
    ),
    row(gauge("container_spec_cpu_shares", "Share of the processors."), &[(Figure::CpuShares, &[])]),
    row(
        gauge("container_spec_memory_limit_bytes", "Memory limit, in bytes; 0: none."),
        &[(Figure::MemoryLimit, &[])],
    ),
    row(
        gauge("container_spec_memory_reservation_limit_bytes", "Memory reservation, in bytes; 0: none."),
        &[(Figure::MemoryReservation, &[])],
    ),
    row(
        gauge("container_spec_memory_swap_limit_bytes", "Limit of swap, in bytes; 0: none."),
        &[(Figure::MemorySwapLimit, &[])],
    ),
];
type OfInterface = fn(&InterfaceStats) -> u64;

const INTERFACES: [(Head, OfInterface); 8] = [
    (counter("container_network_receive_bytes_total", "Bytes received."), |one| one.rx_bytes),
    (counter("container_network_receive_errors_total", "Errors on receiving."), |one| one.rx_errors),
    (counter("container_network_receive_packets_dropped_total", "Packets received and dropped."), |one| {
        one.rx_dropped
    }),
    (counter("container_network_receive_packets_total", "Packets received."), |one| one.rx_packets),
    (counter("container_network_transmit_bytes_total", "Bytes sent."), |one| one.tx_bytes),
    (counter("container_network_transmit_errors_total", "Errors on sending."), |one| one.tx_errors),
    (
        counter("container_network_transmit_packets_dropped_total", "Packets dropped instead of sent."),
        |one| one.tx_dropped,
    ),
    (counter("container_network_transmit_packets_total", "Packets sent."), |one| one.tx_packets),
];

type OfFs = fn(&FsStats) -> Option<u64>;

const FILE_SYSTEMS: [(Head, OfFs); 4] = [
    (gauge("container_fs_inodes_free", "Inodes left on the file system."), |fs| {
        Some(fs.capacity?.inodes_free)
    }),
    (gauge("container_fs_inodes_total", "Inodes of the file system."), |fs| Some(fs.capacity?.inodes)),
    (gauge("container_fs_limit_bytes", "Bytes of the file system."), |fs| Some(fs.capacity?.capacity_bytes)),
    (gauge("container_fs_usage_bytes", "Bytes in use on the file system."), |fs| Some(fs.used_bytes)),
];

type OfCgroup = fn(&Cgroup) -> u64;

/// Dates, in nanoseconds since 1970; 0: it is not known.
const DATES: [(Head, OfCgroup); 3] = [
    (gauge("container_creation_time_seconds", "When it was made, in seconds since 1970."), |one| {
        one.created_unix_nano
    }),
    (gauge("container_last_seen", "When it was read last, in seconds since 1970."), |one| one.time_unix_nano),
    (gauge("container_start_time_seconds", "When it was started, in seconds since 1970."), |one| {
        one.start_unix_nano
    }),
];

type OfMachine = fn(&Machine) -> u64;

const MACHINES: [(Head, OfMachine); 5] = [
    (gauge("machine_cpu_cores", "Processors."), |one| one.cpus),
    (gauge("machine_cpu_physical_cores", "Cores."), |one| one.physical_cores),
    (gauge("machine_cpu_sockets", "Sockets."), |one| one.sockets),
    (gauge("machine_memory_bytes", "Memory of the machine, in bytes."), |one| one.memory_bytes),
    (gauge("machine_swap_bytes", "Swap of the machine, in bytes."), |one| one.swap_bytes),
];

/// The families for these cgroups; `None`: they could not be had.
pub(crate) fn families(told: Option<&ListCgroupsResponse>) -> Vec<MetricFamily> {
    let mut all = Vec::new();
    let cgroups = told.map_or(&[][..], |told| &told.cgroups);
    all.extend(ROWS.iter().map(|row| row.family(cgroups)));
    all.extend(DATES.iter().map(|(head, of)| dates(*head, *of, cgroups)));
    all.extend(FILE_SYSTEMS.iter().map(|(head, of)| file_systems(*head, *of, cgroups)));
    all.extend(INTERFACES.iter().map(|(head, of)| interfaces(*head, *of, cgroups)));
    if let Some(machine) = told.and_then(|told| told.machine.as_ref()) {
        all.extend(MACHINES.iter().map(|(head, of)| of_machine(*head, *of, machine)));
    }
    let failed = if told.is_some() { 0.0 } else { 1.0 };
    for name in ["container_scrape_error", "machine_scrape_error"] {
        let head = gauge(name, "1 if there was an error while getting the metrics, 0 otherwise.");
        all.push(family(head, &[], vec![MetricSeries { value: failed, ..MetricSeries::default() }]));
    }
    all.sort_by(|one, other| one.name.cmp(&other.name));
    all
}

impl Row {
    fn family(&self, cgroups: &[Cgroup]) -> MetricFamily {
        let mut all = Vec::new();
        for cgroup in cgroups {
            for (figure, further) in self.figures {
                let found = cgroup.figures.iter().find(|found| found.kind() == *figure);
                all.extend(found.map(|found| {
                    let value = match self.unit {
                        Unit::Own => number(found.value),
                        Unit::Seconds => number(found.value) / 1e9,
                    };
                    series(cgroup, self.labels, further, value)
                }));
            }
        }
        family(self.head, self.labels, all)
    }
}

fn dates(head: Head, of: OfCgroup, cgroups: &[Cgroup]) -> MetricFamily {
    let known = cgroups.iter().filter(|cgroup| of(cgroup) > 0);
    family(
        head,
        &[],
        known.map(|cgroup| series(cgroup, &[], &[], number(of(cgroup) / 1_000_000_000))).collect(),
    )
}

fn file_systems(head: Head, of: OfFs, cgroups: &[Cgroup]) -> MetricFamily {
    let value = |cgroup: &Cgroup| {
        let value = of(cgroup.fs.as_ref()?)?;
        Some(series(cgroup, &["device"], &[&cgroup.device], number(value)))
    };
    family(head, &["device"], cgroups.iter().filter_map(value).collect())
}

fn interfaces(head: Head, of: OfInterface, cgroups: &[Cgroup]) -> MetricFamily {
    let mut all = Vec::new();
    for cgroup in cgroups {
        let interfaces = cgroup.network.iter().flat_map(|network| &network.interfaces);
        all.extend(interfaces.map(|one| series(cgroup, &["interface"], &[&one.name], number(of(one)))));
    }
    family(head, &["interface"], all)
}

fn of_machine(head: Head, of: OfMachine, machine: &Machine) -> MetricFamily {
    let labels = [&machine.boot_id, &machine.machine_id, &machine.system_uuid];
    let series = MetricSeries {
        label_values: labels.map(Clone::clone).into(),
        value: number(of(machine)),
        ..MetricSeries::default()
    };
    MetricFamily { label_names: MACHINE.map(str::to_owned).into(), ..family(head, &[], vec![series]) }
}

fn family(head: Head, further: &[&str], series: Vec<MetricSeries>) -> MetricFamily {
    let own = series.iter().any(|series| !series.label_values.is_empty());
    let names = if own { sorted(further, &LABELS) } else { Vec::new() };
    MetricFamily {
        name: head.name.to_owned(),
        help: head.help.to_owned(),
        kind: head.kind.into(),
        label_names: names.iter().map(|(name, _)| (*name).to_owned()).collect(),
        series,
        bounds: Vec::new(),
    }
}

fn series(cgroup: &Cgroup, names: &[&str], values: &[&str], value: f64) -> MetricSeries {
    let Cgroup { path, container, id, image, pod_namespace, pod_name, .. } = cgroup;
    let own = [container, path, image, id, pod_namespace, pod_name].map(String::as_str);
    let values: Vec<&str> = values.iter().copied().chain(own).collect();
    let sorted = sorted(names, &LABELS);
    let label_values = sorted.iter().filter_map(|(_, at)| values.get(*at)).map(|&value| value.to_owned());
    MetricSeries {
        label_values: label_values.collect(),
        value,
        buckets: Vec::new(),
        time_unix_milli: i64::try_from(cgroup.time_unix_nano / 1_000_000).unwrap_or(0),
    }
}

/// Names of labels in the kubelet's order, which is the alphabet's, and where each stood.
fn sorted<'a>(further: &[&'a str], own: &[&'a str]) -> Vec<(&'a str, usize)> {
    let mut names: Vec<_> =
        further.iter().chain(own).copied().enumerate().map(|(at, name)| (name, at)).collect();
    names.sort_unstable();
    names
}

#[expect(clippy::cast_precision_loss, reason = "Prometheus knows no other numbers")]
fn number(value: u64) -> f64 {
    value as f64
}
