//! The configuration as typed fields, named, ordered and printed as the API type.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use serde::{Deserialize, Serialize};

use crate::duration::Duration;

mod parts;

pub use parts::{
    Anonymous, Authentication, Authorization, AuthorizationWebhook, CrashLoopBackOff, Headers,
    LogFormatOptions, LogOptions, Logging, MemoryReservation, MemorySwap, ShutdownByPriority, Taint, Tracing,
    UserNamespaces, VModuleItem, Webhook, X509,
};

/// `KubeletConfiguration` of `kubelet.config.k8s.io/v1beta1`, all defaults filled in.
///
/// Texts that are quantities or percentages are kept as written; whoever acts on them reads them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct KubeletConfiguration {
    /// Whether the secured server (`port`) runs. Default: true.
    pub enable_server: bool,
    /// Directory with static pod manifests, or one manifest file; absolute. Empty: no static pods.
    #[serde(skip_serializing_if = "is_zero")]
    pub static_pod_path: String,
    /// Directory of the pods' log files; absolute. Default: `/var/log/pods`.
    #[serde(skip_serializing_if = "is_zero")]
    pub pod_logs_dir: String,
    /// How often each pod is synchronised at the latest; more than zero. Default: 1m.
    pub sync_frequency: Duration,
    /// How often `static_pod_path` is read in full; more than zero. Default: 20s.
    pub file_check_frequency: Duration,
    /// How often `static_pod_url` is read; more than zero. Default: 20s.
    pub http_check_frequency: Duration,
    /// URL with static pod manifests. Empty: none.
    #[serde(rename = "staticPodURL", skip_serializing_if = "is_zero")]
    pub static_pod_url: String,
    /// HTTP headers for `static_pod_url`; may hold secrets.
    #[serde(rename = "staticPodURLHeader", skip_serializing_if = "is_zero")]
    pub static_pod_url_header: Headers,
    /// Address that the servers listen on. Default: 0.0.0.0.
    #[serde(deserialize_with = "parts::ip_address")]
    pub address: IpAddr,
    /// Port of the secured server, 1 to 65535; `enable_server` switches it off. Default: 10250.
    #[serde(skip_serializing_if = "is_zero")]
    pub port: u16,
    /// Port of the read-only server without authentication. 0: no such server.
    #[serde(skip_serializing_if = "is_zero")]
    pub read_only_port: u16,
    /// Serving certificate with its chain, PEM; absolute.
    #[serde(skip_serializing_if = "is_zero")]
    pub tls_cert_file: String,
    /// Key of `tls_cert_file`, PEM; absolute.
    #[serde(skip_serializing_if = "is_zero")]
    pub tls_private_key_file: String,
    /// Cipher suites of the server for TLS 1.2, by their names in [`crate::TLS_CIPHER_SUITES`]; those of TLS 1.3 are always
    /// there. Empty: all.
    #[serde(skip_serializing_if = "is_zero")]
    pub tls_cipher_suites: Vec<String>,
    /// `VersionTLS12` or `VersionTLS13`. Empty: TLS 1.2.
    #[serde(skip_serializing_if = "is_zero")]
    pub tls_min_version: String,
    /// Whether the client certificate is renewed through the API server.
    #[serde(skip_serializing_if = "is_zero")]
    pub rotate_certificates: bool,
    /// Whether the serving certificate is asked from the API server.
    #[serde(rename = "serverTLSBootstrap", skip_serializing_if = "is_zero")]
    pub server_tls_bootstrap: bool,
    /// Who a caller of the server is.
    pub authentication: Authentication,
    /// What a caller of the server may do.
    pub authorization: Authorization,
    /// Image pulls a second, on average; 0: no limit. Default: 5.
    #[serde(rename = "registryPullQPS")]
    pub registry_pull_qps: i32,
    /// Image pulls in a burst; not negative. Default: 10.
    #[serde(skip_serializing_if = "is_zero")]
    pub registry_burst: i32,
    /// When a pod must prove that it may use an image that is there (KEP-2535). Default:
    /// `NeverVerifyPreloadedImages`.
    #[serde(skip_serializing_if = "is_zero")]
    pub image_pull_credentials_verification_policy: String,
    /// Images that any pod may use, for the policy `NeverVerifyAllowlistedImages`.
    #[serde(skip_serializing_if = "is_zero")]
    pub preloaded_images_verification_allowlist: Vec<String>,
    /// Events a second, on average; 0: no limit. Default: 50.
    #[serde(rename = "eventRecordQPS")]
    pub event_record_qps: i32,
    /// Events in a burst; not negative. Default: 100.
    #[serde(skip_serializing_if = "is_zero")]
    pub event_burst: i32,
    /// Whether the server offers logs, exec, attach and port-forward. Default: true.
    pub enable_debugging_handlers: bool,
    /// Whether lock contention is profiled.
    #[serde(skip_serializing_if = "is_zero")]
    pub enable_contention_profiling: bool,
    /// Port of `/healthz`; 0: none. Default: 10248.
    pub healthz_port: u16,
    /// Address of `/healthz`. Default: 127.0.0.1.
    #[serde(deserialize_with = "parts::ip_address")]
    pub healthz_bind_address: IpAddr,
    /// `oom_score_adj` of the node agent, -1000 to 1000. Default: -999.
    pub oom_score_adj: i32,
    /// DNS domain of the cluster, added to the search lists of pods.
    #[serde(skip_serializing_if = "is_zero")]
    pub cluster_domain: String,
    /// DNS servers of the cluster, for pods.
    #[serde(rename = "clusterDNS", skip_serializing_if = "is_zero")]
    pub cluster_dns: Vec<IpAddr>,
    /// How long a streaming connection may be idle. Default: 4h.
    pub streaming_connection_idle_timeout: Duration,
    /// How often the node status is computed; more than zero. Default: 10s.
    pub node_status_update_frequency: Duration,
    /// How often an unchanged node status is sent; more than zero. Default: 5m, or
    /// `node_status_update_frequency` when that is set.
    pub node_status_report_frequency: Duration,
    /// How long the node lease holds, in seconds; more than zero. Default: 40.
    #[serde(skip_serializing_if = "is_zero")]
    pub node_lease_duration_seconds: i32,
    /// How long an unused image is kept at least. Default: 2m.
    #[serde(rename = "imageMinimumGCAge")]
    pub image_minimum_gc_age: Duration,
    /// How long an unused image is kept at most; 0: for ever. Default: 0.
    #[serde(rename = "imageMaximumGCAge")]
    pub image_maximum_gc_age: Duration,
    /// Disk use in percent from which images are collected, 0 to 100. Default: 85.
    #[serde(rename = "imageGCHighThresholdPercent")]
    pub image_gc_high_threshold_percent: i32,
    /// Disk use in percent down to which images are collected, below the high one. Default: 80.
    #[serde(rename = "imageGCLowThresholdPercent")]
    pub image_gc_low_threshold_percent: i32,
    /// How often volume use is measured; zero or less: never. Default: 1m.
    pub volume_stats_agg_period: Duration,
    /// Absolute name of the cgroup of the node agent. Empty: where it was started.
    #[serde(skip_serializing_if = "is_zero")]
    pub kubelet_cgroups: String,
    /// Absolute name of the cgroup for other processes of the system. Empty: they are left alone.
    #[serde(skip_serializing_if = "is_zero")]
    pub system_cgroups: String,
    /// Absolute name of the cgroup above those of pods. Empty: the root.
    #[serde(skip_serializing_if = "is_zero")]
    pub cgroup_root: String,
    /// Whether pods get cgroups of their own, sorted by QoS class. Default: true.
    #[serde(rename = "cgroupsPerQOS")]
    pub cgroups_per_qos: bool,
    /// `cgroupfs` or `systemd`; must match the runtime's. Default: `cgroupfs`.
    #[serde(skip_serializing_if = "is_zero")]
    pub cgroup_driver: String,
    /// `none` or `static`. Default: `none`.
    #[serde(skip_serializing_if = "is_zero")]
    pub cpu_manager_policy: String,
    /// Whether only the process that ran out of memory is killed and not its container. None: only on cgroup
    /// v1.
    #[serde(rename = "singleProcessOOMKill", skip_serializing_if = "Option::is_none")]
    pub single_process_oom_kill: Option<bool>,
    /// Options of `cpu_manager_policy`.
    #[serde(skip_serializing_if = "is_zero")]
    pub cpu_manager_policy_options: BTreeMap<String, String>,
    /// How often CPU sets are set again. Default: 10s.
    pub cpu_manager_reconcile_period: Duration,
    /// `None` or `Static`. Default: `None`.
    #[serde(skip_serializing_if = "is_zero")]
    pub memory_manager_policy: String,
    /// `none`, `best-effort`, `restricted` or `single-numa-node`. Default: `none`.
    #[serde(skip_serializing_if = "is_zero")]
    pub topology_manager_policy: String,
    /// `container` or `pod`. Default: `container`.
    #[serde(skip_serializing_if = "is_zero")]
    pub topology_manager_scope: String,
    /// Options of `topology_manager_policy`.
    #[serde(skip_serializing_if = "is_zero")]
    pub topology_manager_policy_options: BTreeMap<String, String>,
    /// Share of a resource that is kept for guaranteed pods, as a percentage by resource.
    #[serde(skip_serializing_if = "is_zero")]
    pub qos_reserved: BTreeMap<String, String>,
    /// Deadline of calls to the runtime but pull, logs, exec and attach; more than zero. Default: 2m.
    pub runtime_request_timeout: Duration,
    /// `promiscuous-bridge`, `hairpin-veth` or `none`. Default: `promiscuous-bridge`.
    #[serde(skip_serializing_if = "is_zero")]
    pub hairpin_mode: String,
    /// How many pods the node runs; not negative. Default: 110.
    #[serde(skip_serializing_if = "is_zero")]
    pub max_pods: i32,
    /// Addresses for pods without a cluster.
    #[serde(rename = "podCIDR", skip_serializing_if = "is_zero")]
    pub pod_cidr: String,
    /// How many process ids a pod may use; -1: no limit. Default: -1.
    pub pod_pids_limit: i64,
    /// Resolver file that the one of pods is made from; absolute. Empty: none. Default: `/etc/resolv.conf`.
    pub resolv_conf: String,
    /// Whether the agent starts its pods and ends. No longer supported by the kubelet.
    #[serde(skip_serializing_if = "is_zero")]
    pub run_once: bool,
    /// Whether CPU limits are enforced. Default: true.
    #[serde(rename = "cpuCFSQuota")]
    pub cpu_cfs_quota: bool,
    /// Period of CPU limits, 1ms to 1s. Default: 100ms.
    #[serde(rename = "cpuCFSQuotaPeriod")]
    pub cpu_cfs_quota_period: Duration,
    /// How many images the node status lists; -1: all. Default: 50.
    pub node_status_max_images: i32,
    /// How many files the node agent may have open; not negative. Default: 1000000.
    #[serde(skip_serializing_if = "is_zero")]
    pub max_open_files: i64,
    /// Encoding of requests to the API server. Default: `application/vnd.kubernetes.protobuf`.
    #[serde(skip_serializing_if = "is_zero")]
    pub content_type: String,
    /// Requests to the API server a second, on average; 0: no limit. Default: 50.
    #[serde(rename = "kubeAPIQPS")]
    pub kube_api_qps: i32,
    /// Requests to the API server in a burst; not negative. Default: 100.
    #[serde(rename = "kubeAPIBurst", skip_serializing_if = "is_zero")]
    pub kube_api_burst: i32,
    /// Whether images are pulled one at a time. Default: true.
    pub serialize_image_pulls: bool,
    /// How many images are pulled at a time, at least 1. None: no limit, unless `serialize_image_pulls`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_parallel_image_pulls: Option<i32>,
    /// Quantity or percentage by signal below which pods are evicted at once.
    #[serde(skip_serializing_if = "is_zero")]
    pub eviction_hard: BTreeMap<String, String>,
    /// Quantity or percentage by signal below which pods are evicted after a grace period.
    #[serde(skip_serializing_if = "is_zero")]
    pub eviction_soft: BTreeMap<String, String>,
    /// Grace period by signal of `eviction_soft`.
    #[serde(skip_serializing_if = "is_zero")]
    pub eviction_soft_grace_period: BTreeMap<String, String>,
    /// How long a pressure condition stays after its signal is gone. Default: 5m.
    pub eviction_pressure_transition_period: Duration,
    /// Longest termination grace of a pod that is evicted softly, in seconds. Default: 0.
    #[serde(skip_serializing_if = "is_zero")]
    pub eviction_max_pod_grace_period: i32,
    /// Quantity or percentage by signal that an eviction frees at least.
    #[serde(skip_serializing_if = "is_zero")]
    pub eviction_minimum_reclaim: BTreeMap<String, String>,
    /// Whether signals missing in `eviction_hard` keep their defaults. Default: false.
    pub merge_default_eviction_settings: bool,
    /// How many pods the node runs per core; 0: no such limit. At most `max_pods`.
    #[serde(skip_serializing_if = "is_zero")]
    pub pods_per_core: i32,
    /// Whether the cluster's controller attaches volumes. Default: true.
    pub enable_controller_attach_detach: bool,
    /// Whether kernel settings that differ are an error and not changed.
    #[serde(skip_serializing_if = "is_zero")]
    pub protect_kernel_defaults: bool,
    /// Whether the chain `KUBE-IPTABLES-HINT` is made. Default: true.
    #[serde(rename = "makeIPTablesUtilChains")]
    pub make_iptables_util_chains: bool,
    /// Without effect. Default: 14.
    pub iptables_masquerade_bit: i32,
    /// Without effect. Default: 15.
    pub iptables_drop_bit: i32,
    /// Features switched on or off by name.
    #[serde(skip_serializing_if = "is_zero")]
    pub feature_gates: BTreeMap<String, bool>,
    /// Whether swap on the node keeps the agent from starting. Default: true.
    pub fail_swap_on: bool,
    /// Use of swap by containers.
    pub memory_swap: MemorySwap,
    /// Size, as a quantity, from which a container log is rotated. Default: `10Mi`.
    #[serde(skip_serializing_if = "is_zero")]
    pub container_log_max_size: String,
    /// How many log files a container may have, more than 1. Default: 5.
    pub container_log_max_files: i32,
    /// How many logs are rotated at a time, at least 1. Default: 1.
    pub container_log_max_workers: i32,
    /// How often container logs are looked at, at least 3s. Default: 10s.
    pub container_log_monitor_interval: Duration,
    /// `Get`, `Cache` or `Watch`. Default: `Watch`.
    #[serde(skip_serializing_if = "is_zero")]
    pub config_map_and_secret_change_detection_strategy: String,
    /// Quantity by resource that is kept for the system.
    #[serde(skip_serializing_if = "is_zero")]
    pub system_reserved: BTreeMap<String, String>,
    /// Quantity by resource that is kept for Kubernetes' own parts.
    #[serde(skip_serializing_if = "is_zero")]
    pub kube_reserved: BTreeMap<String, String>,
    /// CPUs that are kept for the system and Kubernetes, as a list such as `0-1,4`.
    #[serde(rename = "reservedSystemCPUs", skip_serializing_if = "is_zero")]
    pub reserved_system_cpus: String,
    /// Minor version whose hidden metrics are shown.
    #[serde(skip_serializing_if = "is_zero")]
    pub show_hidden_metrics_for_version: String,
    /// Absolute name of the cgroup that `system_reserved` is enforced on.
    #[serde(skip_serializing_if = "is_zero")]
    pub system_reserved_cgroup: String,
    /// Absolute name of the cgroup that `kube_reserved` is enforced on.
    #[serde(skip_serializing_if = "is_zero")]
    pub kube_reserved_cgroup: String,
    /// What the limit on all pods is enforced for. Default: `pods`.
    #[serde(skip_serializing_if = "is_zero")]
    pub enforce_node_allocatable: Vec<String>,
    /// Unsafe sysctls, or patterns that end in `*`, that pods may set.
    #[serde(skip_serializing_if = "is_zero")]
    pub allowed_unsafe_sysctls: Vec<String>,
    /// Directory of exec volume plug-ins; absolute.
    #[serde(skip_serializing_if = "is_zero")]
    pub volume_plugin_dir: String,
    /// Id of this machine at its cloud provider.
    #[serde(rename = "providerID", skip_serializing_if = "is_zero")]
    pub provider_id: String,
    /// Whether the kernel tells of memory pressure.
    #[serde(skip_serializing_if = "is_zero")]
    pub kernel_memcg_notification: bool,
    /// How the processes log.
    pub logging: Logging,
    /// Whether the server offers the node's logs. Default: true.
    pub enable_system_log_handler: bool,
    /// Whether the server offers queries of the node's logs. Default: false.
    pub enable_system_log_query: bool,
    /// How long a shutdown of the node waits for pods; 0: not at all. Default: 0.
    pub shutdown_grace_period: Duration,
    /// The part of `shutdown_grace_period` that is for critical pods. Default: 0.
    pub shutdown_grace_period_critical_pods: Duration,
    /// How long a shutdown of the node waits, by pod priority.
    #[serde(skip_serializing_if = "is_zero")]
    pub shutdown_grace_period_by_pod_priority: Vec<ShutdownByPriority>,
    /// Restarts of containers that end.
    pub crash_loop_back_off: CrashLoopBackOff,
    /// Memory that is kept for the system, by NUMA node.
    #[serde(skip_serializing_if = "is_zero")]
    pub reserved_memory: Vec<MemoryReservation>,
    /// Whether the server offers profiles. Default: true.
    pub enable_profiling_handler: bool,
    /// Whether the server lets the log verbosity be changed. Default: true.
    pub enable_debug_flags_handler: bool,
    /// Whether `RuntimeDefault` is the seccomp profile of all that name none. Default: false.
    pub seccomp_default: bool,
    /// Share of the memory limit from which a container is slowed (KEP-2570), above 0 to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_throttling_factor: Option<f64>,
    /// Protection of requested memory on cgroup v2 (KEP-2570). Default: `None`.
    #[serde(skip_serializing_if = "is_zero")]
    pub memory_reservation_policy: String,
    /// Taints of the node when it registers.
    #[serde(skip_serializing_if = "is_zero")]
    pub register_with_taints: Vec<Taint>,
    /// Whether the node registers itself. Default: true.
    pub register_node: bool,
    /// Where spans are sent. None: nowhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tracing: Option<Tracing>,
    /// Whether requests and limits of ephemeral storage are kept. Default: true.
    pub local_storage_capacity_isolation: bool,
    /// Socket of the container runtime, `unix:///PATH`. Default: `unix:///run/containerd/containerd.sock`.
    pub container_runtime_endpoint: String,
    /// Socket of the image service, `unix:///PATH`. Empty: that of the runtime.
    #[serde(skip_serializing_if = "is_zero")]
    pub image_service_endpoint: String,
    /// Whether cgroup v1 keeps the agent from starting. Default: true.
    pub fail_cgroup_v1: bool,
    /// Id ranges of pods with a user namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_namespaces: Option<UserNamespaces>,
}

/// The kubelet's defaults.
impl Default for KubeletConfiguration {
    fn default() -> Self {
        Self {
            enable_server: true,
            static_pod_path: String::new(),
            pod_logs_dir: "/var/log/pods".into(),
            sync_frequency: Duration::from_secs(60),
            file_check_frequency: Duration::from_secs(20),
            http_check_frequency: Duration::from_secs(20),
            static_pod_url: String::new(),
            static_pod_url_header: Headers::default(),
            address: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            port: 10250,
            read_only_port: 0,
            tls_cert_file: String::new(),
            tls_private_key_file: String::new(),
            tls_cipher_suites: Vec::new(),
            tls_min_version: String::new(),
            rotate_certificates: false,
            server_tls_bootstrap: false,
            authentication: Authentication::default(),
            authorization: Authorization::default(),
            registry_pull_qps: 5,
            registry_burst: 10,
            image_pull_credentials_verification_policy: "NeverVerifyPreloadedImages".into(),
            preloaded_images_verification_allowlist: Vec::new(),
            event_record_qps: 50,
            event_burst: 100,
            enable_debugging_handlers: true,
            enable_contention_profiling: false,
            healthz_port: 10248,
            healthz_bind_address: IpAddr::V4(Ipv4Addr::LOCALHOST),
            oom_score_adj: -999,
            cluster_domain: String::new(),
            cluster_dns: Vec::new(),
            streaming_connection_idle_timeout: Duration::from_secs(4 * 3600),
            node_status_update_frequency: Duration::from_secs(10),
            node_status_report_frequency: Duration::from_secs(5 * 60),
            node_lease_duration_seconds: 40,
            image_minimum_gc_age: Duration::from_secs(120),
            image_maximum_gc_age: Duration::ZERO,
            image_gc_high_threshold_percent: 85,
            image_gc_low_threshold_percent: 80,
            volume_stats_agg_period: Duration::from_secs(60),
            kubelet_cgroups: String::new(),
            system_cgroups: String::new(),
            cgroup_root: String::new(),
            cgroups_per_qos: true,
            cgroup_driver: "cgroupfs".into(),
            cpu_manager_policy: "none".into(),
            single_process_oom_kill: None,
            cpu_manager_policy_options: BTreeMap::new(),
            cpu_manager_reconcile_period: Duration::from_secs(10),
            memory_manager_policy: "None".into(),
            topology_manager_policy: "none".into(),
            topology_manager_scope: "container".into(),
            topology_manager_policy_options: BTreeMap::new(),
            qos_reserved: BTreeMap::new(),
            runtime_request_timeout: Duration::from_secs(120),
            hairpin_mode: "promiscuous-bridge".into(),
            max_pods: 110,
            pod_cidr: String::new(),
            pod_pids_limit: -1,
            resolv_conf: "/etc/resolv.conf".into(),
            run_once: false,
            cpu_cfs_quota: true,
            cpu_cfs_quota_period: Duration::from_millis(100),
            node_status_max_images: 50,
            max_open_files: 1_000_000,
            content_type: "application/vnd.kubernetes.protobuf".into(),
            kube_api_qps: 50,
            kube_api_burst: 100,
            serialize_image_pulls: true,
            max_parallel_image_pulls: None,
            eviction_hard: default_eviction(),
            eviction_soft: BTreeMap::new(),
            eviction_soft_grace_period: BTreeMap::new(),
            eviction_pressure_transition_period: Duration::from_secs(5 * 60),
            eviction_max_pod_grace_period: 0,
            eviction_minimum_reclaim: BTreeMap::new(),
            merge_default_eviction_settings: false,
            pods_per_core: 0,
            enable_controller_attach_detach: true,
            protect_kernel_defaults: false,
            make_iptables_util_chains: true,
            iptables_masquerade_bit: 14,
            iptables_drop_bit: 15,
            feature_gates: BTreeMap::new(),
            fail_swap_on: true,
            memory_swap: MemorySwap::default(),
            container_log_max_size: "10Mi".into(),
            container_log_max_files: 5,
            container_log_max_workers: 1,
            container_log_monitor_interval: Duration::from_secs(10),
            config_map_and_secret_change_detection_strategy: "Watch".into(),
            system_reserved: BTreeMap::new(),
            kube_reserved: BTreeMap::new(),
            reserved_system_cpus: String::new(),
            show_hidden_metrics_for_version: String::new(),
            system_reserved_cgroup: String::new(),
            kube_reserved_cgroup: String::new(),
            enforce_node_allocatable: vec!["pods".into()],
            allowed_unsafe_sysctls: Vec::new(),
            volume_plugin_dir: "/usr/libexec/kubernetes/kubelet-plugins/volume/exec/".into(),
            provider_id: String::new(),
            kernel_memcg_notification: false,
            logging: Logging::default(),
            enable_system_log_handler: true,
            enable_system_log_query: false,
            shutdown_grace_period: Duration::ZERO,
            shutdown_grace_period_critical_pods: Duration::ZERO,
            shutdown_grace_period_by_pod_priority: Vec::new(),
            crash_loop_back_off: CrashLoopBackOff::default(),
            reserved_memory: Vec::new(),
            enable_profiling_handler: true,
            enable_debug_flags_handler: true,
            seccomp_default: false,
            memory_throttling_factor: None,
            memory_reservation_policy: "None".into(),
            register_with_taints: Vec::new(),
            register_node: true,
            tracing: None,
            local_storage_capacity_isolation: true,
            container_runtime_endpoint: "unix:///run/containerd/containerd.sock".into(),
            image_service_endpoint: String::new(),
            fail_cgroup_v1: true,
            user_namespaces: None,
        }
    }
}

fn default_eviction() -> BTreeMap<String, String> {
    let signals = [
        ("imagefs.available", "15%"),
        ("imagefs.inodesFree", "5%"),
        ("memory.available", "100Mi"),
        ("nodefs.available", "10%"),
        ("nodefs.inodesFree", "5%"),
    ];
    signals.map(|(signal, value)| (signal.to_owned(), value.to_owned())).into()
}

/// What the kubelet answers at `/configz`.
#[derive(Serialize)]
struct Configz<'a> {
    kubeletconfig: Document<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Document<'a> {
    kind: &'static str,
    api_version: &'static str,
    #[serde(flatten)]
    config: &'a KubeletConfiguration,
}

impl KubeletConfiguration {
    /// The thresholds of eviction for people, one a line: those at once, then those after a time.
    pub fn eviction_lines(&self) -> Vec<String> {
        let line = |signal: &str, text: &str, when: &str| {
            let given = [(signal.to_owned(), text.to_owned())].into();
            let (thresholds, _) = bulkhead_model::eviction::thresholds(&given);
            if thresholds.is_empty() {
                format!("{signal}: switched off by {text}")
            } else {
                format!("{signal} < {text}: {when}")
            }
        };
        let grace = |signal: &String| self.eviction_soft_grace_period.get(signal).map_or("", String::as_str);
        let hard = self.eviction_hard.iter().map(|(signal, text)| line(signal, text, "at once"));
        let soft = self.eviction_soft.iter();
        hard.chain(soft.map(|(signal, text)| line(signal, text, &format!("after {}", grace(signal)))))
            .collect()
    }

    /// The JSON of `/configz`: fields in the order of the API type, those that are empty left out as it does.
    ///
    /// # Errors
    ///
    /// Never in practice: every field can be printed.
    pub fn to_configz_json(&self) -> Result<String, serde_json::Error> {
        let document = Document { kind: crate::KIND, api_version: crate::API_VERSION, config: self };
        serde_json::to_string(&Configz { kubeletconfig: document })
    }
}

/// Whether a field is left out when printed.
fn is_zero<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

#[cfg(test)]
pub(crate) use tests::every_field_set;

#[cfg(test)]
mod tests;
