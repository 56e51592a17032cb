//! Bounds and values of fields, as the kubelet checks them. All problems are told at once.

use std::collections::BTreeMap;
use std::path::{Component, Path};

use bulkhead_model::{eviction, node_labels};

use crate::duration::Duration;
use crate::error::Problem;
use crate::kubelet::{KubeletConfiguration, Taint};

/// Everything in `config` that is out of bounds, each with its field and what to do. Empty: nothing.
pub fn validate(config: &KubeletConfiguration) -> Vec<Problem> {
    let mut problems = Vec::new();
    durations(config, &mut problems);
    numbers(config, &mut problems);
    choices(config, &mut problems);
    paths(config, &mut problems);
    endpoints(config, &mut problems);
    evictions(config, &mut problems);
    manifest_url(config, &mut problems);
    combinations(config, &mut problems);
    problems
}

fn add(problems: &mut Vec<Problem>, field: &str, message: impl Into<String>) {
    problems.push(Problem::of(field, message));
}

fn durations(c: &KubeletConfiguration, problems: &mut Vec<Problem>) {
    let second = Duration::from_secs(1);
    let least = Duration::from_nanos(1);
    let most = Duration::from_nanos(i64::MAX);
    let bounds = [
        ("syncFrequency", c.sync_frequency, least, most),
        ("fileCheckFrequency", c.file_check_frequency, least, most),
        ("httpCheckFrequency", c.http_check_frequency, least, most),
        ("nodeStatusUpdateFrequency", c.node_status_update_frequency, least, most),
        ("nodeStatusReportFrequency", c.node_status_report_frequency, least, most),
        ("runtimeRequestTimeout", c.runtime_request_timeout, least, most),
        ("streamingConnectionIdleTimeout", c.streaming_connection_idle_timeout, least, most),
        ("cpuManagerReconcilePeriod", c.cpu_manager_reconcile_period, least, most),
        ("evictionPressureTransitionPeriod", c.eviction_pressure_transition_period, least, most),
        ("logging.flushFrequency", c.logging.flush_frequency, least, most),
        ("authentication.webhook.cacheTTL", c.authentication.webhook.cache_ttl, least, most),
        (
            "authorization.webhook.cacheAuthorizedTTL",
            c.authorization.webhook.cache_authorized_ttl,
            least,
            most,
        ),
        (
            "authorization.webhook.cacheUnauthorizedTTL",
            c.authorization.webhook.cache_unauthorized_ttl,
            least,
            most,
        ),
        ("imageMinimumGCAge", c.image_minimum_gc_age, Duration::ZERO, most),
        ("imageMaximumGCAge", c.image_maximum_gc_age, Duration::ZERO, most),
        ("shutdownGracePeriod", c.shutdown_grace_period, Duration::ZERO, most),
        ("shutdownGracePeriodCriticalPods", c.shutdown_grace_period_critical_pods, Duration::ZERO, most),
        ("cpuCFSQuotaPeriod", c.cpu_cfs_quota_period, Duration::from_millis(1), second),
        ("containerLogMonitorInterval", c.container_log_monitor_interval, Duration::from_secs(3), most),
        (
            "crashLoopBackOff.maxContainerRestartPeriod",
            c.crash_loop_back_off.max_container_restart_period,
            second,
            Duration::from_secs(300),
        ),
    ];
    for (field, value, low, high) in bounds {
        if value >= low && value <= high {
            continue;
        }
        let bounds = match (low, high) {
            (low, high) if high == most && low == least => "more than 0s".to_owned(),
            (low, high) if high == most => format!("at least {low}"),
            (low, high) => format!("{low} to {high}"),
        };
        add(problems, field, format!("is {value}: set it to {bounds}, or remove it"));
    }
}

fn numbers(c: &KubeletConfiguration, problems: &mut Vec<Problem>) {
    let i32_max = i64::from(i32::MAX);
    let bounds: [(&str, i64, i64, i64); 21] = [
        ("port", c.port.into(), 1, 65535),
        ("oomScoreAdj", c.oom_score_adj.into(), -1000, 1000),
        ("registryPullQPS", c.registry_pull_qps.into(), 0, i32_max),
        ("registryBurst", c.registry_burst.into(), 0, i32_max),
        ("eventRecordQPS", c.event_record_qps.into(), 0, i32_max),
        ("eventBurst", c.event_burst.into(), 0, i32_max),
        ("kubeAPIQPS", c.kube_api_qps.into(), 0, i32_max),
        ("kubeAPIBurst", c.kube_api_burst.into(), 0, i32_max),
        ("nodeLeaseDurationSeconds", c.node_lease_duration_seconds.into(), 1, i32_max),
        ("imageGCHighThresholdPercent", c.image_gc_high_threshold_percent.into(), 0, 100),
        ("imageGCLowThresholdPercent", c.image_gc_low_threshold_percent.into(), 0, 100),
        ("maxPods", c.max_pods.into(), 0, i32_max),
        ("podsPerCore", c.pods_per_core.into(), 0, i32_max),
        ("podPidsLimit", c.pod_pids_limit, -1, i64::MAX),
        ("nodeStatusMaxImages", c.node_status_max_images.into(), -1, i32_max),
        ("maxOpenFiles", c.max_open_files, 0, i64::MAX),
        ("evictionMaxPodGracePeriod", c.eviction_max_pod_grace_period.into(), 0, i32_max),
        ("containerLogMaxFiles", c.container_log_max_files.into(), 2, i32_max),
        ("containerLogMaxWorkers", c.container_log_max_workers.into(), 1, i32_max),
        ("iptablesMasqueradeBit", c.iptables_masquerade_bit.into(), 0, 31),
        ("iptablesDropBit", c.iptables_drop_bit.into(), 0, 31),
    ];
    let optional = [
        ("maxParallelImagePulls", c.max_parallel_image_pulls.map(i64::from), 1, i32_max),
        (
            "tracing.samplingRatePerMillion",
            c.tracing.as_ref().and_then(|tracing| tracing.sampling_rate_per_million).map(i64::from),
            0,
            1_000_000,
        ),
    ];
    let set = optional.into_iter().filter_map(|(field, value, low, high)| Some((field, value?, low, high)));
    for (field, value, low, high) in bounds.into_iter().chain(set) {
        if value < low || value > high {
            let bounds = if high >= i32_max { format!("at least {low}") } else { format!("{low} to {high}") };
            add(problems, field, format!("is {value}: set it to {bounds}, or remove it"));
        }
    }
    if let Some(factor) = c.memory_throttling_factor
        && !(factor > 0.0 && factor <= 1.0)
    {
        add(
            problems,
            "memoryThrottlingFactor",
            format!("is {factor}: set it above 0 and at most 1, or remove it"),
        );
    }
    if let Some(ids) = c.user_namespaces.as_ref().and_then(|namespaces| namespaces.ids_per_pod)
        && (ids < 65536 || ids % 65536 != 0)
    {
        add(
            problems,
            "userNamespaces.idsPerPod",
            format!("is {ids}: set it to a multiple of 65536, or remove it"),
        );
    }
}

/// The first that the API server would not take.
fn taints(c: &KubeletConfiguration, problems: &mut Vec<Problem>) {
    const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
    let wrong = c.register_with_taints.iter().find_map(|taint| {
        let Taint { key, value, effect, .. } = taint;
        if !node_labels::is_key(key) {
            return Some(format!("holds a taint with the key {}: write one as of a label", quoted(key)));
        }
        if !value.is_empty() && !node_labels::is_name(value) {
            return Some(format!("holds {} for {key}: write a value as of a label", quoted(value)));
        }
        let known = EFFECTS.contains(&effect.as_str());
        (!known).then(|| {
            format!("holds {} for {key}: write one of the effects {}", quoted(effect), EFFECTS.join(", "))
        })
    });
    if let Some(message) = wrong {
        add(problems, "registerWithTaints", message);
    }
}

fn choices(c: &KubeletConfiguration, problems: &mut Vec<Problem>) {
    let choices: [(&str, &str, &[&str]); 13] = [
        ("cgroupDriver", &c.cgroup_driver, &["cgroupfs", "systemd"]),
        ("authorization.mode", &c.authorization.mode, &["Webhook", "AlwaysAllow"]),
        (
            "imagePullCredentialsVerificationPolicy",
            &c.image_pull_credentials_verification_policy,
            &["NeverVerify", "NeverVerifyPreloadedImages", "NeverVerifyAllowlistedImages", "AlwaysVerify"],
        ),
        ("cpuManagerPolicy", &c.cpu_manager_policy, &["none", "static"]),
        ("memoryManagerPolicy", &c.memory_manager_policy, &["None", "Static"]),
        (
            "topologyManagerPolicy",
            &c.topology_manager_policy,
            &["none", "best-effort", "restricted", "single-numa-node"],
        ),
        ("topologyManagerScope", &c.topology_manager_scope, &["container", "pod"]),
        ("hairpinMode", &c.hairpin_mode, &["promiscuous-bridge", "hairpin-veth", "none"]),
        (
            "configMapAndSecretChangeDetectionStrategy",
            &c.config_map_and_secret_change_detection_strategy,
            &["Get", "Cache", "Watch"],
        ),
        ("memorySwap.swapBehavior", &c.memory_swap.swap_behavior, &["", "NoSwap", "LimitedSwap"]),
        ("memoryReservationPolicy", &c.memory_reservation_policy, &["None", "TieredReservation"]),
        // Older versions are not offered: the TLS library has none.
        ("tlsMinVersion", &c.tls_min_version, &["", "VersionTLS12", "VersionTLS13"]),
        ("logging.format", &c.logging.format, &["text", "json"]),
    ];
    for (field, value, allowed) in choices {
        if !allowed.contains(&value) {
            let named: Vec<_> = allowed.iter().filter(|name| !name.is_empty()).copied().collect();
            add(
                problems,
                field,
                format!("is {}: set it to one of {}, or remove it", quoted(value), named.join(", ")),
            );
        }
    }
    let suites = &c.tls_cipher_suites;
    for value in suites.iter().filter(|value| !crate::TLS_CIPHER_SUITES.contains(&value.as_str())) {
        let known = crate::TLS_CIPHER_SUITES.join(", ");
        let message =
            format!("holds {}, which the TLS library does not have: use only {known}", quoted(value));
        add(problems, "tlsCipherSuites", message);
    }
    taints(c, problems);
    let enforceable = [
        "none",
        "pods",
        "system-reserved",
        "system-reserved-compressible",
        "kube-reserved",
        "kube-reserved-compressible",
    ];
    for value in &c.enforce_node_allocatable {
        if !enforceable.contains(&value.as_str()) {
            let message = format!("holds {}: use only {}", quoted(value), enforceable.join(", "));
            add(problems, "enforceNodeAllocatable", message);
        }
    }
}

fn paths(c: &KubeletConfiguration, problems: &mut Vec<Problem>) {
    let paths = [
        ("staticPodPath", &c.static_pod_path),
        ("podLogsDir", &c.pod_logs_dir),
        ("tlsCertFile", &c.tls_cert_file),
        ("tlsPrivateKeyFile", &c.tls_private_key_file),
        ("authentication.x509.clientCAFile", &c.authentication.x509.client_ca_file),
        ("resolvConf", &c.resolv_conf),
        ("volumePluginDir", &c.volume_plugin_dir),
        ("cgroupRoot", &c.cgroup_root),
        ("kubeletCgroups", &c.kubelet_cgroups),
        ("systemCgroups", &c.system_cgroups),
        ("systemReservedCgroup", &c.system_reserved_cgroup),
        ("kubeReservedCgroup", &c.kube_reserved_cgroup),
    ];
    for (field, path) in paths {
        if path.is_empty() {
            continue;
        }
        if let Some(fault) = path_fault(path) {
            add(problems, field, format!("is {}, {fault}", quoted(path)));
        }
    }
    // Names of log files and their links are built from it, and not every reader of them takes more than this.
    if !c.pod_logs_dir.is_ascii() {
        add(problems, "podLogsDir", "holds characters that are not ASCII: choose another directory");
    }
}

fn path_fault(path: &str) -> Option<&'static str> {
    if !path.starts_with('/') {
        Some("which is not absolute: begin it with /")
    } else if path.contains('\0') {
        Some("which holds a NUL character: remove it")
    } else if Path::new(path).components().any(|part| part == Component::ParentDir) {
        Some("which holds ..: write the path without it")
    } else {
        None
    }
}

fn endpoints(c: &KubeletConfiguration, problems: &mut Vec<Problem>) {
    let endpoints = [
        ("containerRuntimeEndpoint", c.container_runtime_endpoint.as_str(), "its socket"),
        ("imageServiceEndpoint", c.image_service_endpoint.as_str(), "its socket, or remove it"),
    ];
    for (field, endpoint, what) in endpoints {
        if endpoint.is_empty() && field == "imageServiceEndpoint" {
            continue;
        }
        let path =
            endpoint.strip_prefix("unix://").filter(|path| path.len() > 1 && path_fault(path).is_none());
        if path.is_none() {
            add(
                problems,
                field,
                format!("is {}: write unix:// and the absolute path of {what}", quoted(endpoint)),
            );
        }
    }
}

/// Neither the URL, whose query may be a credential, nor a header's value is shown.
fn manifest_url(c: &KubeletConfiguration, problems: &mut Vec<Problem>) {
    let url = c.static_pod_url.as_str();
    if !url.is_empty() {
        let rest = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"));
        let authority = rest.and_then(|rest| rest.split(['/', '?', '#']).next()).unwrap_or_default();
        if authority.is_empty() || !url.bytes().all(|byte| byte.is_ascii_graphic()) {
            add(problems, "staticPodURL", "is no http:// or https:// URL with a host");
        } else if authority.contains('@') {
            let message = "holds a user name or password: give them as a header in staticPodURLHeader";
            add(problems, "staticPodURL", message);
        }
    }
    let token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    for (name, values) in &c.static_pod_url_header.0 {
        let value =
            |value: &String| value.bytes().all(|byte| byte == b'\t' || (byte >= b' ' && byte != 0x7f));
        if name.is_empty() || !name.bytes().all(token) || !values.iter().all(value) {
            let message =
                format!("holds {}: its name, or a value of it, is none that HTTP allows", quoted(name));
            add(problems, "staticPodURLHeader", message);
        }
    }
}

fn evictions(c: &KubeletConfiguration, problems: &mut Vec<Problem>) {
    let maps = [
        ("evictionHard", &c.eviction_hard),
        ("evictionSoft", &c.eviction_soft),
        ("evictionMinimumReclaim", &c.eviction_minimum_reclaim),
    ];
    for (field, map) in maps {
        let (_, faults) = eviction::thresholds(map);
        for fault in faults {
            add(problems, &format!("{field}.{}", fault.signal), fault.problem);
        }
    }
    let grace = &c.eviction_soft_grace_period;
    for signal in c.eviction_soft.keys().filter(|signal| !grace.contains_key(*signal)) {
        let message = "has no grace period: set one in evictionSoftGracePeriod, or use evictionHard";
        add(problems, &format!("evictionSoft.{signal}"), message);
    }
    grace_periods(grace, problems);
}

fn grace_periods(grace: &BTreeMap<String, String>, problems: &mut Vec<Problem>) {
    for (signal, text) in grace {
        let fault = eviction::known(signal).err().or_else(|| match text.parse::<Duration>() {
            Ok(time) if time > Duration::ZERO => None,
            Ok(time) => Some(format!("is {time}: set it to more than 0s")),
            Err(error) => Some(error.to_string()),
        });
        if let Some(fault) = fault {
            add(problems, &format!("evictionSoftGracePeriod.{signal}"), fault);
        }
    }
}

fn combinations(c: &KubeletConfiguration, problems: &mut Vec<Problem>) {
    if c.image_gc_low_threshold_percent >= c.image_gc_high_threshold_percent {
        add(
            problems,
            "imageGCLowThresholdPercent",
            format!(
                "is {} but must be below imageGCHighThresholdPercent, which is {}",
                c.image_gc_low_threshold_percent, c.image_gc_high_threshold_percent
            ),
        );
    }
    if c.image_maximum_gc_age != Duration::ZERO && c.image_maximum_gc_age < c.image_minimum_gc_age {
        let message = format!(
            "is {} but must be 0s or at least imageMinimumGCAge, {}",
            c.image_maximum_gc_age, c.image_minimum_gc_age
        );
        add(problems, "imageMaximumGCAge", message);
    }
    if c.serialize_image_pulls && c.max_parallel_image_pulls.is_some_and(|pulls| pulls > 1) {
        add(
            problems,
            "maxParallelImagePulls",
            "has no effect while serializeImagePulls is true: set that to false",
        );
    }
    if c.shutdown_grace_period_critical_pods > c.shutdown_grace_period {
        let message =
            format!("is more than shutdownGracePeriod, {}: it is a part of it", c.shutdown_grace_period);
        add(problems, "shutdownGracePeriodCriticalPods", message);
    }
    let by_time =
        c.shutdown_grace_period != Duration::ZERO || c.shutdown_grace_period_critical_pods != Duration::ZERO;
    if by_time && !c.shutdown_grace_period_by_pod_priority.is_empty() {
        add(
            problems,
            "shutdownGracePeriodByPodPriority",
            "cannot be used with shutdownGracePeriod: remove one of them",
        );
    }
    let enforced = |name: &str| c.enforce_node_allocatable.iter().any(|value| value == name);
    if enforced("none") && c.enforce_node_allocatable.len() > 1 {
        add(problems, "enforceNodeAllocatable", "holds none beside others: remove none or the others");
    }
    let enforces = c.enforce_node_allocatable.iter().any(|value| value != "none");
    if !c.cgroups_per_qos && enforces {
        add(problems, "enforceNodeAllocatable", "needs cgroupsPerQOS: set that to true, or this to [none]");
    }
    let reserved = [
        ("system-reserved", "systemReservedCgroup", &c.system_reserved_cgroup),
        ("kube-reserved", "kubeReservedCgroup", &c.kube_reserved_cgroup),
    ];
    for (name, field, cgroup) in reserved {
        if enforced(name) && cgroup.is_empty() {
            add(problems, field, format!("is needed by {name} in enforceNodeAllocatable: set it"));
        }
    }
    if c.tls_cert_file.is_empty() != c.tls_private_key_file.is_empty() {
        let missing = if c.tls_cert_file.is_empty() { "tlsCertFile" } else { "tlsPrivateKeyFile" };
        add(problems, missing, "is missing: tlsCertFile and tlsPrivateKeyFile go together");
    }
    let off = c.feature_gates.get("MemoryQoS") == Some(&false);
    if off && c.memory_reservation_policy == "TieredReservation" {
        let message = "needs the feature MemoryQoS, which featureGates switches off: remove one of the two";
        add(problems, "memoryReservationPolicy", message);
    }
    if c.pods_per_core > 0 && c.pods_per_core > c.max_pods {
        add(
            problems,
            "podsPerCore",
            format!("is {} but must be at most maxPods, {}", c.pods_per_core, c.max_pods),
        );
    }
}

/// A value from a file, quoted and cut to a length that a line can bear.
fn quoted(value: &str) -> String {
    let short: String = value.chars().take(80).collect();
    format!("{short:?}")
}

#[cfg(test)]
mod tests;
