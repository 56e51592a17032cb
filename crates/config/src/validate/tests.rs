use super::*;
use crate::kubelet::every_field_set;

fn config(text: &str) -> KubeletConfiguration {
    let root = crate::tree::read(text.as_bytes(), 0, "f").unwrap();
    crate::de::from_tree(&root, &["f"]).value.unwrap()
}

fn fields(text: &str) -> Vec<String> {
    validate(&config(text)).into_iter().map(|problem| problem.field).collect()
}

#[test]
fn the_defaults_are_valid() {
    assert_eq!(validate(&KubeletConfiguration::default()), []);
}

#[test]
fn values_at_the_bounds_are_valid() {
    let table = [
        "port: 1",
        "port: 65535",
        "readOnlyPort: 0",
        "readOnlyPort: 65535",
        "healthzPort: 0",
        "maxPods: 0",
        "registerWithTaints: [{key: a, effect: NoSchedule}, {key: b.c/d, value: e, effect: NoExecute}]",
        "cpuCFSQuotaPeriod: 1ms",
        "cpuCFSQuotaPeriod: 1s",
        "syncFrequency: 1ns",
        "crashLoopBackOff: {maxContainerRestartPeriod: 1s}",
        "crashLoopBackOff: {maxContainerRestartPeriod: 300s}",
        "oomScoreAdj: -1000",
        "oomScoreAdj: 1000",
        "podPidsLimit: -1",
        "podPidsLimit: 0",
        "resolvConf: ''",
        "cgroupDriver: systemd",
        "cgroupRoot: /",
        "cgroupRoot: /a/b",
        "staticPodPath: /etc/kubernetes/manifests/",
        "logging: {format: json, verbosity: 10}",
        "imageServiceEndpoint: unix:///a",
        "nodeStatusMaxImages: -1",
        "{serializeImagePulls: false, maxParallelImagePulls: 1}",
        "maxParallelImagePulls: 1",
        "imageMaximumGCAge: 2m",
        "enforceNodeAllocatable: [none]",
        "enforceNodeAllocatable: []",
        "{cgroupsPerQOS: false, enforceNodeAllocatable: []}",
        "{tlsCertFile: /a, tlsPrivateKeyFile: /b}",
        "{shutdownGracePeriod: 30s, shutdownGracePeriodCriticalPods: 30s}",
        "memoryThrottlingFactor: 1.0",
        "evictionHard: {memory.available: '0%', nodefs.available: '100%', pid.available: 1k}",
        "{evictionSoft: {memory.available: 1Gi}, evictionSoftGracePeriod: {memory.available: 1m}}",
        "evictionHard: {}",
        "{staticPodURL: 'https://h:8443/pods?a=b', staticPodURLHeader: {Authorization: ['Bearer x'], X-A: ['', b]}}",
        "staticPodURL: 'http://[::1]/'",
    ];
    for text in table {
        assert_eq!(fields(text), Vec::<String>::new(), "{text}");
    }
}

#[test]
fn values_beyond_the_bounds_name_their_field() {
    let table = [
        ("port: 0", "port"),
        ("maxPods: -1", "maxPods"),
        ("registerWithTaints: [{key: '', effect: NoSchedule}]", "registerWithTaints"),
        ("registerWithTaints: [{key: a, value: '-', effect: NoSchedule}]", "registerWithTaints"),
        ("registerWithTaints: [{key: a, effect: Never}]", "registerWithTaints"),
        ("syncFrequency: -1s", "syncFrequency"),
        ("fileCheckFrequency: 0s", "fileCheckFrequency"),
        ("nodeStatusUpdateFrequency: 0s", "nodeStatusUpdateFrequency"),
        ("nodeStatusReportFrequency: -1ns", "nodeStatusReportFrequency"),
        ("runtimeRequestTimeout: 0s", "runtimeRequestTimeout"),
        ("cpuCFSQuotaPeriod: 999us", "cpuCFSQuotaPeriod"),
        ("cpuCFSQuotaPeriod: 1.001s", "cpuCFSQuotaPeriod"),
        (
            "crashLoopBackOff: {maxContainerRestartPeriod: 999ms}",
            "crashLoopBackOff.maxContainerRestartPeriod",
        ),
        ("crashLoopBackOff: {maxContainerRestartPeriod: 301s}", "crashLoopBackOff.maxContainerRestartPeriod"),
        ("oomScoreAdj: 1001", "oomScoreAdj"),
        ("podPidsLimit: -2", "podPidsLimit"),
        ("registryPullQPS: -1", "registryPullQPS"),
        ("registryBurst: -1", "registryBurst"),
        ("cgroupDriver: Systemd", "cgroupDriver"),
        ("logging: {format: xml}", "logging.format"),
        ("logging: {flushFrequency: -5}", "logging.flushFrequency"),
        ("authorization: {mode: RBAC}", "authorization.mode"),
        ("tlsMinVersion: VersionTLS10", "tlsMinVersion"),
        ("tlsCipherSuites: [TLS_RSA_WITH_AES_128_CBC_SHA]", "tlsCipherSuites"),
        ("staticPodPath: manifests", "staticPodPath"),
        ("staticPodPath: /etc/../manifests", "staticPodPath"),
        ("podLogsDir: ./x", "podLogsDir"),
        ("staticPodURL: /pods", "staticPodURL"),
        ("staticPodURL: 'ftp://h/'", "staticPodURL"),
        ("staticPodURL: 'https:///pods'", "staticPodURL"),
        ("staticPodURL: 'https://h/a b'", "staticPodURL"),
        ("staticPodURL: 'https://u:p@h/'", "staticPodURL"),
        ("staticPodURLHeader: {'X A': [b]}", "staticPodURLHeader"),
        ("staticPodURLHeader: {X-A: [\"a\\nb\"]}", "staticPodURLHeader"),
        ("httpCheckFrequency: 0s", "httpCheckFrequency"),
        ("podLogsDir: /var/lög", "podLogsDir"),
        ("cgroupRoot: pods", "cgroupRoot"),
        ("resolvConf: resolv.conf", "resolvConf"),
        ("containerRuntimeEndpoint: /run/containerd.sock", "containerRuntimeEndpoint"),
        ("containerRuntimeEndpoint: unix://run/containerd.sock", "containerRuntimeEndpoint"),
        ("containerRuntimeEndpoint: 'unix:///'", "containerRuntimeEndpoint"),
        ("containerRuntimeEndpoint: 'npipe:////./pipe/x'", "containerRuntimeEndpoint"),
        ("imageServiceEndpoint: tcp://1.2.3.4:5", "imageServiceEndpoint"),
        ("maxParallelImagePulls: 2", "maxParallelImagePulls"),
        ("{serializeImagePulls: false, maxParallelImagePulls: 0}", "maxParallelImagePulls"),
        ("imageGCLowThresholdPercent: 85", "imageGCLowThresholdPercent"),
        ("imageGCHighThresholdPercent: 101", "imageGCHighThresholdPercent"),
        ("imageMaximumGCAge: 1m", "imageMaximumGCAge"),
        ("containerLogMaxFiles: 1", "containerLogMaxFiles"),
        ("containerLogMonitorInterval: 2s", "containerLogMonitorInterval"),
        ("shutdownGracePeriodCriticalPods: 1s", "shutdownGracePeriodCriticalPods"),
        ("enforceNodeAllocatable: [all]", "enforceNodeAllocatable"),
        ("enforceNodeAllocatable: [none, pods]", "enforceNodeAllocatable"),
        ("cgroupsPerQOS: false", "enforceNodeAllocatable"),
        ("enforceNodeAllocatable: [pods, kube-reserved]", "kubeReservedCgroup"),
        ("tlsCertFile: /a", "tlsPrivateKeyFile"),
        ("podsPerCore: 111", "podsPerCore"),
        (
            "{memoryReservationPolicy: TieredReservation, featureGates: {MemoryQoS: false}}",
            "memoryReservationPolicy",
        ),
        ("memoryThrottlingFactor: 0.0", "memoryThrottlingFactor"),
        ("memoryThrottlingFactor: 1.1", "memoryThrottlingFactor"),
        ("userNamespaces: {idsPerPod: 65537}", "userNamespaces.idsPerPod"),
        ("tracing: {samplingRatePerMillion: 1000001}", "tracing.samplingRatePerMillion"),
        ("memorySwap: {swapBehavior: UnlimitedSwap}", "memorySwap.swapBehavior"),
        ("nodeLeaseDurationSeconds: 0", "nodeLeaseDurationSeconds"),
        ("evictionHard: {memory.available: '10%%'}", "evictionHard.memory.available"),
        ("evictionHard: {nodefs.available: '5 %'}", "evictionHard.nodefs.available"),
        ("evictionHard: {nodefs.available: '-1%'}", "evictionHard.nodefs.available"),
        ("evictionHard: {nodefs.available: 1e3Zi}", "evictionHard.nodefs.available"),
        ("evictionHard: {memory.free: 1Gi}", "evictionHard.memory.free"),
        ("evictionSoft: {memory.available: 1Gi}", "evictionSoft.memory.available"),
        ("evictionSoftGracePeriod: {memory.available: '1'}", "evictionSoftGracePeriod.memory.available"),
        ("evictionSoftGracePeriod: {memory.available: 0s}", "evictionSoftGracePeriod.memory.available"),
        ("evictionMinimumReclaim: {memory.available: x}", "evictionMinimumReclaim.memory.available"),
    ];
    for (text, field) in table {
        assert_eq!(fields(text), [field], "{text}");
    }
}

#[test]
fn a_bad_header_shows_no_value() {
    let problems = validate(&config("staticPodURLHeader: {X-A: [\"s3cret\\n\"]}"));
    let text = format!("{problems:?}");
    assert!(text.contains("X-A") && !text.contains("s3cret"), "{text}");
}

#[test]
fn all_problems_are_told_at_once() {
    assert_eq!(fields("{port: 0, maxPods: -1, cgroupDriver: x, staticPodPath: x}").len(), 4);
}

#[test]
fn every_message_names_a_real_field() {
    let all = serde_json::to_value(every_field_set()).unwrap();
    let bad = "{syncFrequency: -1s, port: 0, cgroupDriver: x, cgroupRoot: x, containerRuntimeEndpoint: x, podsPerCore: 111}";
    for problem in validate(&config(bad)) {
        assert!(all.pointer(&format!("/{}", problem.field.replace('.', "/"))).is_some(), "{problem}");
    }
}

#[test]
fn a_message_says_what_is_and_what_to_do() {
    let text = |yaml: &str| validate(&config(yaml))[0].to_string();
    assert_eq!(
        text("cpuCFSQuotaPeriod: 2s"),
        "field cpuCFSQuotaPeriod: is 2s: set it to 1ms to 1s, or remove it"
    );
    assert_eq!(text("syncFrequency: 0s"), "field syncFrequency: is 0s: set it to more than 0s, or remove it");
    assert_eq!(text("port: 0"), "field port: is 0: set it to 1 to 65535, or remove it");
    assert_eq!(
        text("cgroupDriver: x"),
        "field cgroupDriver: is \"x\": set it to one of cgroupfs, systemd, or remove it"
    );
    assert!(text(&format!("cgroupDriver: {}", "x".repeat(5000))).len() < 300);
}
