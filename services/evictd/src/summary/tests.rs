use std::time::Duration;

use bulkhead_api::evictd::v1::{IoStats, PressureLine};
use bulkhead_cgroup::{Pressure, PressureLine as Line};
use bulkhead_model::runtime::ContainerState::Running;
use tokio::time::Instant;

use super::*;
use crate::problems::Problems;
use crate::testing::{container, path, runtime_pod, view};

const SECOND: u64 = 1_000_000_000;

/// Readings at `seconds` after `start`, with this processor time by cgroup.
fn readings(start: Instant, seconds: u64, used: &[(&str, u64)]) -> Readings {
    let at = Moment { instant: start + Duration::from_secs(seconds), unix_nano: seconds * SECOND };
    let reading = |used| {
        let memory = CgroupMemory {
            usage: Some(5000),
            working_set: Some(4000),
            inactive_file: 1000,
            rss: 3000,
            page_faults: 11,
            major_page_faults: 2,
            swap: Some(600),
            ..CgroupMemory::default()
        };
        let stats = CgroupStats {
            cpu_usage_ns: Some(used),
            memory: Some(memory),
            pids: Some(4),
            ..CgroupStats::default()
        };
        Reading { at, stats }
    };
    Readings {
        at,
        proc: ProcFigures {
            boot_seconds: 3,
            cpu_used_ns: 2 * seconds * SECOND,
            memory_total: 100_000,
            memory_free: 40_000,
            inactive_file: 10_000,
            anonymous: 20_000,
            swap_total: 9000,
            swap_free: 7000,
            tasks: 287,
            max_tasks: 32_768,
        },
        cgroups: used.iter().map(|(name, used)| (path(name), reading(*used))).collect(),
        network: None,
        fs: None,
        system: vec![("pods", path("/kubepods"), Some(5)), ("kubelet", path("/agent"), None)],
        problems: Problems::default(),
    }
}

fn plan() -> Plan {
    let mut pod = runtime_pod("u1", 7);
    pod.containers = ["a", "b"].map(|name| container(name, name, Running)).into();
    let pods = [(view("u1", "/kubepods/podu1"), pod), (view("u2", "/kubepods/podu2"), runtime_pod("u2", 7))];
    crate::testing::plan(&pods)
}

fn summary(plan: &Plan, readings: &Readings, before: &Samples) -> Summary {
    Input { node_name: "node-a", plan, readings, before }.summary()
}

fn rate(cpu: Option<CpuStats>) -> Option<u64> {
    cpu.unwrap().usage_nano_cores
}

#[test]
fn figures_of_pod_and_container_are_taken_over() {
    let mut readings = readings(
        Instant::now(),
        20,
        &[("/", 9), ("/kubepods", 8), ("/kubepods/podu1", 7), ("/kubepods/podu1/a", 6)],
    );
    readings.cgroups.get_mut(&path("/kubepods/podu1")).unwrap().stats.memory.as_mut().unwrap().limit =
        Some(10_000);
    let summary = summary(&plan(), &readings, &Samples::default());
    let cpu = |usage| CpuStats {
        time_unix_nano: 20 * SECOND,
        usage_nano_cores: None,
        usage_core_nano_seconds: usage,
        psi: None,
    };
    let swap = Some(SwapStats { time_unix_nano: 20 * SECOND, available_bytes: None, usage_bytes: 600 });
    let io = Some(IoStats { time_unix_nano: 20 * SECOND, psi: None });
    let memory = MemoryStats {
        time_unix_nano: 20 * SECOND,
        available_bytes: None,
        usage_bytes: 5000,
        working_set_bytes: 4000,
        rss_bytes: 3000,
        page_faults: 11,
        major_page_faults: 2,
        psi: None,
    };
    let expected = PodStats {
        uid: "u1".to_owned(),
        name: "name-u1".to_owned(),
        namespace: "default".to_owned(),
        start_unix_nano: 7 * SECOND,
        cpu: Some(cpu(7)),
        memory: Some(MemoryStats { available_bytes: Some(6000), ..memory }),
        process_count: Some(4),
        containers: vec![ContainerStats {
            name: "a".to_owned(),
            start_unix_nano: 20 * SECOND,
            cpu: Some(cpu(6)),
            memory: Some(memory),
            swap,
            io,
            ..ContainerStats::default()
        }],
        swap,
        io,
        ..PodStats::default()
    };
    assert_eq!(summary.pods, [expected], "container b and pod u2 are gone");
    let node = summary.node.unwrap();
    assert_eq!((node.node_name.as_str(), node.start_unix_nano), ("node-a", 3 * SECOND));
    assert_eq!((node.process_count, node.max_pid), (287, 32_768));
    let pods = ContainerStats {
        name: "pods".to_owned(),
        start_unix_nano: 5,
        cpu: Some(cpu(8)),
        memory: Some(MemoryStats { available_bytes: Some(96_000), ..memory }),
        swap,
        io,
        ..ContainerStats::default()
    };
    assert_eq!(node.system_containers, [pods], "the agent's cgroup was not read");
    let swap = node.swap.unwrap();
    assert_eq!((swap.available_bytes, swap.usage_bytes), (Some(7000), 2000));
}

#[test]
fn rates_come_with_the_second_collection_and_not_for_a_cgroup_that_began_anew() {
    let start = Instant::now();
    let (plan, names) = (plan(), ["/", "/kubepods", "/kubepods/podu1", "/kubepods/podu1/a"]);
    let first = readings(start, 10, &names.map(|name| (name, 5 * SECOND)));
    let before = Samples::of(&first);
    let used = [15 * SECOND, 10 * SECOND, 5 * SECOND, SECOND];
    let mut second: Vec<_> = names.into_iter().zip(used).collect();
    second.push(("/kubepods/podu1/b", SECOND));
    let second = readings(start, 20, &second);
    let Summary { node, pods } = summary(&plan, &second, &before);
    let node = node.unwrap();
    assert_eq!(rate(node.cpu), Some(SECOND));
    assert_eq!(rate(node.system_containers[0].cpu), Some(SECOND / 2));
    assert_eq!(rate(pods[0].cpu), Some(0));
    let containers: Vec<_> = pods[0].containers.iter().map(|container| rate(container.cpu)).collect();
    assert_eq!(containers, [None, None], "a restarted, b is new");
    let after = Samples::of(&readings(start, 30, &[("/", 0)]));
    assert_eq!(after.cgroups.len(), 1, "what is gone is forgotten");
}

#[test]
fn the_node_falls_back_on_proc() {
    let start = Instant::now();
    let plan = plan();
    let with = |memory: Option<CgroupMemory>| {
        let mut readings = readings(start, 10, &[("/", 5)]);
        readings.cgroups.get_mut(&CgroupPath::root()).unwrap().stats.memory = memory;
        summary(&plan, &readings, &Samples::default()).node.unwrap().memory.unwrap()
    };
    let v2 = CgroupMemory { inactive_file: 15_000, rss: 30_000, page_faults: 4, ..CgroupMemory::default() };
    let v1 = CgroupMemory { usage: Some(50_000), ..v2.clone() };
    let figures = |memory: MemoryStats| {
        (
            memory.usage_bytes,
            memory.working_set_bytes,
            memory.available_bytes,
            memory.rss_bytes,
            memory.page_faults,
        )
    };
    let table = [
        ("v1", Some(v1), (50_000, 35_000, Some(65_000), 30_000, 4)),
        ("v2", Some(v2), (60_000, 45_000, Some(55_000), 30_000, 4)),
        ("no memory controller", None, (60_000, 50_000, Some(50_000), 20_000, 0)),
    ];
    for (name, memory, expected) in table {
        assert_eq!(figures(with(memory)), expected, "{name}");
    }

    let first = readings(start, 10, &[]);
    let node = summary(&plan, &readings(start, 20, &[]), &Samples::of(&first)).node.unwrap();
    assert_eq!(rate(node.cpu), Some(2 * SECOND), "two processors, as /proc/stat tells");
    assert!(node.system_containers.is_empty());
}

#[test]
fn a_controller_that_is_missing_leaves_its_figures_out() {
    let mut readings = readings(Instant::now(), 10, &[("/kubepods/podu1", 5)]);
    readings.cgroups.get_mut(&path("/kubepods/podu1")).unwrap().stats =
        CgroupStats { pids: Some(1), ..CgroupStats::default() };
    let pod = summary(&plan(), &readings, &Samples::default()).pods.remove(0);
    assert_eq!((pod.cpu, pod.memory, pod.process_count), (None, None, Some(1)));
}

#[test]
fn pressure_is_told_where_the_kernel_has_it() {
    let mut readings = readings(Instant::now(), 10, &[("/kubepods/podu1", 5), ("/kubepods/podu1/a", 5)]);
    let line = |total_us| Line { avg10: 1.5, avg60: 0.5, avg300: 0.25, total_us };
    let one = |total_us| Pressure { some: line(total_us), full: line(0) };
    let container = readings.cgroups.get_mut(&path("/kubepods/podu1/a")).unwrap();
    container.stats.pressure = Some(PressureStats { cpu: one(1), memory: one(2), io: one(3) });
    let pod = summary(&plan(), &readings, &Samples::default()).pods.remove(0);
    let container = &pod.containers[0];
    let some = |psi: Option<bulkhead_api::evictd::v1::Pressure>| psi.unwrap().some.unwrap();
    let told = |total_usec| PressureLine { avg10: 1.5, avg60: 0.5, avg300: 0.25, total_usec };
    assert_eq!(some(container.cpu.unwrap().psi), told(1));
    assert_eq!(some(container.memory.unwrap().psi), told(2));
    assert_eq!(some(container.io.unwrap().psi), told(3));
    assert_eq!((pod.cpu.unwrap().psi, pod.io.unwrap().psi), (None, None), "never invented");
}

#[test]
fn the_nodes_network_and_file_system_are_taken_over() {
    let mut readings = readings(Instant::now(), 10, &[]);
    assert_eq!(summary(&plan(), &readings, &Samples::default()).node.unwrap().network, None);
    let eth0 = crate::net::Interface {
        name: "eth0".to_owned(),
        rx_bytes: 1,
        rx_errors: 2,
        tx_bytes: 3,
        tx_errors: 4,
        rx_packets: 5,
        rx_dropped: 6,
        tx_packets: 7,
        tx_dropped: 8,
    };
    readings.network = Some(NetFigures { default_interface: "eth0".to_owned(), interfaces: vec![eth0] });
    let network = summary(&plan(), &readings, &Samples::default()).node.unwrap().network.unwrap();
    assert_eq!((network.time_unix_nano, network.default_interface.as_str()), (10 * SECOND, "eth0"));
    let told = &network.interfaces[0];
    assert_eq!((told.rx_bytes, told.rx_errors, told.tx_bytes, told.tx_errors), (1, 2, 3, 4));
    assert_eq!((told.rx_packets, told.rx_dropped, told.tx_packets, told.tx_dropped), (5, 6, 7, 8));
    readings.fs = Some(FsFigures {
        capacity_bytes: 10,
        used_bytes: 4,
        inodes: 9,
        inodes_free: 7,
        ..Default::default()
    });
    let fs = summary(&plan(), &readings, &Samples::default()).node.unwrap().fs.unwrap();
    assert_eq!((fs.used_bytes, fs.inodes_used, fs.capacity.unwrap().capacity_bytes), (4, Some(2), 10));
}

#[test]
fn without_swap_containers_may_use_none() {
    let mut readings = readings(Instant::now(), 10, &[("/kubepods/podu1", 5), ("/kubepods/podu1/a", 5)]);
    readings.proc = ProcFigures { swap_total: 0, swap_free: 0, ..readings.proc };
    let pod = summary(&plan(), &readings, &Samples::default()).pods.remove(0);
    assert_eq!(pod.containers[0].swap.unwrap().available_bytes, Some(0));
}
