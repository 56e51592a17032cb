use std::collections::BTreeSet;

use super::*;
use crate::kubelet::every_field_set;
use crate::{ConfigError, KubeletConfiguration, Loaded, Source, parse};

/// Names and kinds as a kubelet 1.37.2 lists them.
const KUBELETS: &str = include_str!("../../tests/flags.tsv");
const HEADER: &str = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";

fn given(flags: &[&str]) -> Vec<Given> {
    let mut all: Vec<Given> = Vec::new();
    for flag in flags {
        let bare = flag.trim_start_matches("--");
        let (name, value) = bare.split_once('=').unwrap_or((bare, "true"));
        let flag = Flag::find(name).unwrap_or_else(|| panic!("no flag --{name}"));
        match all.iter_mut().find(|given| given.flag == flag) {
            Some(given) => given.values.push(value.to_owned()),
            None => all.push(Given { flag, values: vec![value.to_owned()] }),
        }
    }
    all
}

fn loaded(text: &str, flags: &[&str]) -> Result<Loaded, ConfigError> {
    let text = format!("{HEADER}{text}");
    parse(&[Source { name: "f", text: text.as_bytes() }], &given(flags))
}

fn refused(text: &str, flags: &[&str]) -> Vec<String> {
    match loaded(text, flags) {
        Err(ConfigError::Invalid { problems, .. }) => problems.0.iter().map(ToString::to_string).collect(),
        other => panic!("{flags:?}: {other:?}"),
    }
}

/// The field that a flag set, as JSON, refused or not.
fn set_by(flag: &str, text: &str) -> serde_json::Value {
    let text = format!("{HEADER}{text}");
    let flags = given(&[flag]);
    let examined = crate::load::examine(&[Source { name: "f", text: text.as_bytes() }], &flags).unwrap();
    let About::Field(field) = flags[0].flag.about else { panic!("{flag} sets no field") };
    let all = serde_json::to_value(&examined.config).unwrap();
    all.pointer(&format!("/{}", field.replace('.', "/"))).cloned().unwrap_or_default()
}

#[test]
fn every_flag_of_the_kubelet_is_there_and_no_other() {
    let kubelets: Vec<&str> = KUBELETS.lines().filter_map(|line| line.split('\t').next()).collect();
    let ours: Vec<String> = FLAGS.iter().map(|flag| format!("--{}", flag.name)).collect();
    assert_eq!(ours, kubelets);
}

#[test]
fn flags_are_written_as_the_kubelet_has_them() {
    for (line, flag) in KUBELETS.lines().zip(FLAGS) {
        let kind = line.split('\t').nth(1).unwrap_or_default();
        let expected: &[Kind] = match kind {
            "" | "RuntimeDefault" | "version" => &[Kind::Switch, Kind::Taints],
            "int" | "int32" | "Level" => &[Kind::Number],
            "string" | "ip" | "quantity" => &[Kind::Text],
            "duration" => &[Kind::Time],
            "strings" => &[Kind::Texts],
            "mapStringString" => &[Kind::Pairs, Kind::Thresholds],
            "mapStringBool" => &[Kind::Switches],
            "colonSeparatedMultimapStringString" => &[Kind::Headers],
            "reserved" => &[Kind::Reservations],
            "pattern=N," => &[Kind::Levels],
            other => panic!("{other}"),
        };
        assert!(expected.contains(&flag.kind), "--{}: {kind} is no {:?}", flag.name, flag.kind);
    }
}

#[test]
fn fields_are_real_and_set_by_one_flag() {
    let all = serde_json::to_value(every_field_set()).unwrap();
    let mut seen = BTreeSet::new();
    for flag in FLAGS {
        if let About::Field(field) = flag.about {
            assert!(all.pointer(&format!("/{}", field.replace('.', "/"))).is_some(), "--{}", flag.name);
            assert!(seen.insert(field), "{field} is set by two");
        }
    }
}

#[test]
fn flags_win_over_files() {
    let config = loaded("maxPods: 5\nlogging: {verbosity: 1, format: json}\n", &["--max-pods=7", "--v=4"]);
    let config = config.unwrap().config;
    assert_eq!((config.max_pods, config.logging.verbosity, config.logging.format.as_str()), (7, 4, "json"));
    let config = parse(&[], &given(&["--max-pods=7", "--max-pods=8"])).unwrap().config;
    assert_eq!(config.max_pods, 8, "the last one counts");
    // Unlike in a file, where tools write zeroes for what they do not set, a zero that was given is one.
    assert_eq!(loaded("maxPods: 5\n", &["--max-pods=0"]).unwrap().config.max_pods, 0);
    let report = |text: &str| loaded(text, &["--node-status-update-frequency=30s"]).unwrap().config;
    assert_eq!(report("").node_status_report_frequency.to_string(), "5m0s");
}

#[test]
fn every_kind_is_read() {
    let table = [
        ("--seccomp-default", "", "true"),
        ("--cpu-cfs-quota=F", "", "false"),
        ("--oom-score-adj=-1000", "", "-1000"),
        ("--sync-frequency=90s", "", r#""1m30s""#),
        ("--cluster-dns=10.0.0.1, 10.0.0.2", "clusterDNS: [10.0.0.9]\n", r#"["10.0.0.1","10.0.0.2"]"#),
        (
            "--eviction-hard=memory.available<1Gi,nodefs.available<5%",
            "evictionHard: {pid.available: 5%}\n",
            r#"{"memory.available":"1Gi","nodefs.available":"5%"}"#,
        ),
        (
            "--kube-reserved=cpu=100m,memory=1Gi",
            "kubeReserved: {pid: '5'}\n",
            r#"{"cpu":"100m","memory":"1Gi"}"#,
        ),
        (
            "--feature-gates=A=true,B=false",
            "featureGates: {B: true, C: true}\n",
            r#"{"A":true,"B":false,"C":true}"#,
        ),
        ("--manifest-url-header=A:b,A:c,D:e:f", "", r#"{"A":["b","c"],"D":["e:f"]}"#),
        (
            "--register-with-taints=a=b:NoSchedule,c:NoExecute",
            "",
            r#"[{"effect":"NoSchedule","key":"a","value":"b"},{"effect":"NoExecute","key":"c"}]"#,
        ),
        (
            "--reserved-memory=0:memory=1Gi,hugepages-2Mi=2Mi;1:memory=2Gi",
            "",
            r#"[{"limits":{"hugepages-2Mi":"2Mi","memory":"1Gi"},"numaNode":0},{"limits":{"memory":"2Gi"},"numaNode":1}]"#,
        ),
        (
            "--vmodule=a*=5,b=1",
            "",
            r#"[{"filePattern":"a*","verbosity":5},{"filePattern":"b","verbosity":1}]"#,
        ),
        ("--allowed-unsafe-sysctls=", "allowedUnsafeSysctls: [net.*]\n", "null"),
    ];
    for (flag, text, expected) in table {
        assert_eq!(set_by(flag, text).to_string(), expected, "{flag}");
    }
}

#[test]
fn faults_name_the_flag() {
    let table: &[(&str, &str)] = &[
        ("--max-pods=many", "--max-pods: is \"many\": write a whole number"),
        ("--max-pods=-1", "--max-pods: field maxPods: is -1: set it to at least 0, or remove it"),
        ("--cpu-cfs-quota=maybe", "--cpu-cfs-quota: is \"maybe\": write true or false"),
        (
            "--cgroup-driver=systemd",
            "--cgroup-driver: field cgroupDriver: this release of bulkhead implements only cgroupfs; remove it or set it to that",
        ),
        (
            "--kube-api-burst=7",
            "--kube-api-burst: field kubeAPIBurst: this release of bulkhead does not implement it; remove it or set it to its default 100",
        ),
        (
            "--lock-file=/run/lock/kubelet.lock",
            "--lock-file: this release of bulkhead does not implement it; remove it (by default it is not set)",
        ),
        (
            "--maximum-dead-containers=3",
            "--maximum-dead-containers: this release of bulkhead does not implement it; remove it or set it to its default -1",
        ),
        ("--manifest-url-header=hunter2", "--manifest-url-header: is no header: write NAME:VALUE,NAME:VALUE"),
        (
            "--eviction-hard=memory.available",
            "--eviction-hard: is \"memory.available\": write KEY<VALUE,KEY<VALUE",
        ),
    ];
    for (flag, expected) in table {
        assert_eq!(refused("", &[flag]), [*expected], "{flag}");
    }
}

#[test]
fn defaults_of_what_is_missing_are_taken() {
    let flags = ["--exit-on-lock-contention=false", "--lock-file=", "--maximum-dead-containers=-1"];
    let config = loaded("", &flags).unwrap().config;
    assert_eq!(config, KubeletConfiguration::default());
    assert!(loaded("", &["--housekeeping-interval=10000ms", "--exit-on-lock-contention=f"]).is_ok());
}
