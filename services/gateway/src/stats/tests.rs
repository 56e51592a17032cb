use std::collections::BTreeSet;

use serde_json::Value;

use super::*;

/// Every key path that a kubelet 1.37.2 with pods on it answered, lists as `[]`.
const KUBELET: &str = include_str!("../../tests/summary-keys.txt");

/// Keys that are told and that the kubelet which was asked did not tell, and why. There is none the other way round.
const TOLD_HERE: [(&str, &str); 6] = [
    ("pods[].process_stats", "in its API; that kubelet counted no processes of pods"),
    ("pods[].network", "in its API; that kubelet's runtime told no traffic of sandboxes on cgroup v1"),
    ("pods[].volume", "in its API; its pods had no volume that is measured"),
    ("pods[].containers[].cpu.psi", "in its API; its runtime told none, the cgroups do"),
    ("pods[].containers[].memory.psi", "as for cpu"),
    ("pods[].containers[].io.psi", "as for cpu"),
];

fn full() -> wire::Summary {
    let line = || Some(wire::PressureLine { avg10: 1.5, total_usec: 8, ..Default::default() });
    let psi = || Some(wire::Pressure { some: line(), full: line() });
    let io = || Some(wire::IoStats { time_unix_nano: 1_796_048_787_900_000_000, psi: psi() });
    let swap = |available_bytes| {
        let time_unix_nano = 1_796_048_787_900_000_000;
        Some(wire::SwapStats { time_unix_nano, available_bytes, usage_bytes: 1 })
    };
    let cpu = || {
        Some(wire::CpuStats {
            time_unix_nano: 1_796_048_787_900_000_000,
            usage_nano_cores: Some(5),
            usage_core_nano_seconds: 7,
            psi: psi(),
        })
    };
    let memory = || {
        Some(wire::MemoryStats {
            time_unix_nano: 1_796_048_787_900_000_000,
            available_bytes: Some(1),
            usage_bytes: 2,
            working_set_bytes: 3,
            rss_bytes: 4,
            page_faults: 5,
            major_page_faults: 6,
            psi: psi(),
        })
    };
    let fs = |used_bytes| {
        Some(wire::FsStats {
            time_unix_nano: 1_796_048_787_900_000_000,
            capacity: Some(wire::FsCapacity::default()),
            used_bytes,
            inodes_used: Some(2),
        })
    };
    let network = || {
        Some(wire::NetworkStats {
            time_unix_nano: 1_796_048_787_900_000_000,
            default_interface: "eth0".to_owned(),
            interfaces: ["ifb0", "eth0"].map(interface).into(),
        })
    };
    let container = |name: &str, available| wire::ContainerStats {
        name: name.to_owned(),
        start_unix_nano: 1_796_048_700_000_000_000,
        cpu: cpu(),
        memory: memory(),
        io: io(),
        swap: swap(available),
        ..Default::default()
    };
    wire::Summary {
        node: Some(wire::NodeStats {
            node_name: "node-a".to_owned(),
            start_unix_nano: 1_796_000_000_000_000_000,
            cpu: cpu(),
            memory: memory(),
            system_containers: vec![container("pods", None)],
            process_count: 287,
            max_pid: 32768,
            io: io(),
            swap: swap(Some(2)),
            fs: fs(6),
            image_fs: fs(7),
            container_fs: fs(8),
            network: network(),
        }),
        pods: vec![wire::PodStats {
            uid: "u".to_owned(),
            name: "n".to_owned(),
            namespace: "ns".to_owned(),
            start_unix_nano: 1_796_048_700_000_000_000,
            cpu: cpu(),
            memory: memory(),
            process_count: Some(3),
            containers: vec![wire::ContainerStats { rootfs: fs(9), logs: fs(10), ..container("c", Some(2)) }],
            io: io(),
            swap: swap(None),
            network: network(),
            ephemeral_storage: fs(11),
            volumes: vec![wire::VolumeStats { name: "v".to_owned(), fs: fs(12) }],
        }],
    }
}

fn interface(name: &str) -> wire::InterfaceStats {
    wire::InterfaceStats { name: name.to_owned(), rx_bytes: 9, ..Default::default() }
}

fn keys(value: &Value, path: &str, into: &mut BTreeSet<String>) {
    match value {
        Value::Object(object) => {
            for (key, value) in object {
                let path = format!("{path}.{key}");
                into.insert(path.trim_start_matches('.').to_owned());
                keys(value, &path, into);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| keys(item, &format!("{path}[]"), into)),
        _ => {}
    }
}

fn told(extent: Extent) -> Value {
    serde_json::to_value(summary(full(), extent)).unwrap()
}

#[test]
fn keys_are_the_kubelets() {
    let kubelet: BTreeSet<&str> = KUBELET.lines().collect();
    let mut ours = BTreeSet::new();
    keys(&told(Extent::Whole), "", &mut ours);
    let within = |key: &str, list: &[(&str, &str)]| {
        list.iter().any(|(part, _)| {
            key.strip_prefix(part).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        })
    };
    let unknown: Vec<_> =
        ours.iter().filter(|key| !kubelet.contains(key.as_str()) && !within(key, &TOLD_HERE)).collect();
    assert!(unknown.is_empty(), "keys that the kubelet does not have: {unknown:?}");
    let missing: Vec<_> = kubelet.iter().filter(|key| !ours.contains(**key)).collect();
    assert!(missing.is_empty(), "not told: {missing:?}");
    let stale: Vec<_> = TOLD_HERE.iter().filter(|(key, _)| !ours.contains(*key)).collect();
    assert!(stale.is_empty(), "not told any more: take them off the list: {stale:?}");
}

#[test]
fn figures_and_dates_are_told_as_they_are() {
    let told = told(Extent::Whole);
    assert_eq!(told["node"]["rlimit"]["maxpid"], 32768);
    assert_eq!(told["node"]["rlimit"]["curproc"], 287);
    assert_eq!(told["node"]["cpu"]["usageNanoCores"], 5);
    assert_eq!(told["pods"][0]["containers"][0]["memory"]["workingSetBytes"], 3);
    assert_eq!(told["pods"][0]["podRef"]["namespace"], "ns");
    assert_eq!(told["node"]["fs"]["usedBytes"], 6);
    assert_eq!(told["node"]["network"]["name"], "eth0");
    assert_eq!(told["node"]["network"]["rxBytes"], 9);
    assert_eq!(told["pods"][0]["process_stats"]["process_count"], 3);
    assert_eq!(told["node"]["runtime"]["imageFs"]["usedBytes"], 7);
    assert_eq!(told["node"]["runtime"]["containerFs"]["usedBytes"], 8);
    let pod = &told["pods"][0];
    let container = &pod["containers"][0];
    assert_eq!((&container["rootfs"]["usedBytes"], &container["logs"]["usedBytes"]), (&9.into(), &10.into()));
    assert_eq!(pod["ephemeral-storage"]["usedBytes"], 11);
    assert_eq!((&pod["volume"][0]["name"], &pod["volume"][0]["usedBytes"]), (&"v".into(), &12.into()));
    assert_eq!(pod["network"]["name"], "eth0");
    let time = told["node"]["cpu"]["time"].as_str().unwrap();
    assert_eq!(time.len(), "2026-11-30T14:26:27Z".len(), "whole seconds: {time}");
    assert!(time.ends_with('Z'));
}

#[test]
fn only_cpu_and_memory_leaves_out_the_rest() {
    let told = told(Extent::CpuAndMemory);
    assert!(told["node"].get("rlimit").is_none());
    assert!(told["node"].get("io").is_none() && told["pods"][0].get("swap").is_none());
    for key in ["process_stats", "network", "volume", "ephemeral-storage"] {
        assert!(told["pods"][0].get(key).is_none(), "{key}");
    }
    assert!(told["node"].get("runtime").is_none());
    for key in ["rootfs", "logs"] {
        assert!(told["pods"][0]["containers"][0].get(key).is_none(), "{key}");
    }
    assert_eq!(told["pods"][0]["cpu"]["usageCoreNanoSeconds"], 7);
    assert_eq!(told["node"]["memory"]["rssBytes"], 4);
}

#[test]
fn what_is_not_known_is_absent_and_never_zero() {
    let mut from = full();
    let pod = &mut from.pods[0];
    pod.cpu.as_mut().unwrap().usage_nano_cores = None;
    pod.memory.as_mut().unwrap().available_bytes = None;
    pod.start_unix_nano = 0;
    pod.process_count = None;
    let told = serde_json::to_value(summary(from, Extent::Whole)).unwrap();
    let pod = &told["pods"][0];
    assert!(pod["cpu"].get("usageNanoCores").is_none());
    assert!(pod["memory"].get("availableBytes").is_none());
    assert!(pod["startTime"].is_null());
    assert!(pod.get("process_stats").is_none());
    // Nothing at all is an empty summary, and absurd dates are none.
    let empty = serde_json::to_value(summary(wire::Summary::default(), Extent::Whole)).unwrap();
    assert_eq!(empty["pods"], Value::Array(Vec::new()));
    assert_eq!(date(u64::MAX).map(|date| date.as_second()), Some(18_446_744_073));
}
