use std::collections::BTreeSet;

use serde_json::Value;

use super::*;

/// Every key path that a kubelet 1.37.2 with pods on it answered, lists as `[]`.
const KUBELET: &str = include_str!("../../tests/summary-keys.txt");

fn full() -> wire::Summary {
    let cpu = || {
        Some(wire::CpuStats {
            time_unix_nano: 1_796_048_787_900_000_000,
            usage_nano_cores: Some(5),
            usage_core_nano_seconds: 7,
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
        })
    };
    let container = |name: &str| wire::ContainerStats {
        name: name.to_owned(),
        start_unix_nano: 1_796_048_700_000_000_000,
        cpu: cpu(),
        memory: memory(),
    };
    wire::Summary {
        node: Some(wire::NodeStats {
            node_name: "node-a".to_owned(),
            start_unix_nano: 1_796_000_000_000_000_000,
            cpu: cpu(),
            memory: memory(),
            system_containers: vec![container("pods")],
            process_count: 287,
            max_pid: 32768,
        }),
        pods: vec![wire::PodStats {
            uid: "u".to_owned(),
            name: "n".to_owned(),
            namespace: "ns".to_owned(),
            start_unix_nano: 1_796_048_700_000_000_000,
            cpu: cpu(),
            memory: memory(),
            process_count: Some(3),
            containers: vec![container("c")],
        }],
    }
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
    // The kubelet that was asked counted no processes of pods; the field is in its API all the same.
    let told_elsewhere = |key: &str| key.starts_with("pods[].process_stats");
    let unknown: Vec<_> =
        ours.iter().filter(|key| !kubelet.contains(key.as_str()) && !told_elsewhere(key)).collect();
    assert!(unknown.is_empty(), "keys that the kubelet does not have: {unknown:?}");
    // The other way round: what we do not tell is what nobody measures yet, and nothing else.
    let missing = kubelet.iter().filter(|key| !ours.contains(**key));
    let parts =
        ["psi", "io", "swap", "network", "fs", "runtime", "rootfs", "logs", "ephemeral-storage", "volume"];
    for key in missing {
        assert!(key.split(['.', '[', ']']).any(|part| parts.contains(&part)), "{key} is missing");
    }
}

#[test]
fn figures_and_dates_are_told_as_they_are() {
    let told = told(Extent::Whole);
    assert_eq!(told["node"]["rlimit"]["maxpid"], 32768);
    assert_eq!(told["node"]["rlimit"]["curproc"], 287);
    assert_eq!(told["node"]["cpu"]["usageNanoCores"], 5);
    assert_eq!(told["pods"][0]["containers"][0]["memory"]["workingSetBytes"], 3);
    assert_eq!(told["pods"][0]["podRef"]["namespace"], "ns");
    assert_eq!(told["pods"][0]["process_stats"]["process_count"], 3);
    let time = told["node"]["cpu"]["time"].as_str().unwrap();
    assert_eq!(time.len(), "2026-11-30T14:26:27Z".len(), "whole seconds: {time}");
    assert!(time.ends_with('Z'));
}

#[test]
fn only_cpu_and_memory_leaves_out_the_rest() {
    let told = told(Extent::CpuAndMemory);
    assert!(told["node"].get("rlimit").is_none());
    assert!(told["pods"][0].get("process_stats").is_none());
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
