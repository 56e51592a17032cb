use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use bulkhead_cri::wire;
use bulkhead_model::dns::ClusterDns;
use bulkhead_model::env::PodFacts;
use bulkhead_model::quantity::{Format, Quantity};
use bulkhead_model::resources::CgroupSettings;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::*;
use crate::identity::{Identity, NameSettings};

fn pod(spec: Value) -> Pod {
    serde_json::from_value(json!({
        "metadata": {"name": "web-node-a", "namespace": "shop", "uid": "u1", "labels": {"app": "web"}, "annotations": {"note": "x"}},
        "spec": spec
    }))
    .unwrap()
}

fn one(container: Value) -> Pod {
    pod(json!({"containers": [container]}))
}

const CGROUPS: CgroupSettings = CgroupSettings {
    cpu_period_us: 100_000,
    enforce_cpu_limits: true,
    pids_limit: None,
    memory_capacity_bytes: 1 << 30,
};

fn config_of(pod: &Pod, image_user: ImageUser) -> Result<wire::ContainerConfig, ConfigError> {
    config_on(&traits(), pod, image_user)
}

fn config_on(
    node: &NodeTraits,
    pod: &Pod,
    image_user: ImageUser,
) -> Result<wire::ContainerConfig, ConfigError> {
    let volumes = BTreeMap::from([(
        "data".to_owned(),
        PathBuf::from("/k/pods/u1/volumes/kubernetes.io~empty-dir/data"),
    )]);
    let settings = CGROUPS;
    let ips = ["10.88.0.7".to_owned()];
    let host = ["192.0.2.10".to_owned()];
    container_config(&ContainerPlan {
        container: &pod.spec.as_ref().unwrap().containers[0],
        attempt: 3,
        backoff: std::time::Duration::from_secs(40),
        image_ref: "sha256:abc",
        image_user,
        facts: PodFacts {
            pod,
            node_name: "node-a",
            pod_ips: &ips,
            host_ips: &host,
            allocatable_cpu: Quantity::from_value(2, Format::DecimalSi),
            allocatable_memory: Quantity::from_value(1 << 30, Format::BinarySi),
        },
        objects: &bulkhead_model::env::EnvObjects::default(),
        volumes: &volumes,
        termination_log: Some(Path::new("/k/pods/u1/containers/c/00000003")),
        hosts: Some(Path::new("/k/pods/u1/etc-hosts")),
        recursive_read_only: true,
        target: None,
        cgroups: &settings,
        node,
    })
}

fn traits() -> NodeTraits {
    NodeTraits { seccomp_dir: "/k/seccomp".into(), huge_pages: vec![2 << 20, 1 << 30], ..Default::default() }
}

fn sandbox_of(pod: &Pod, attempt: u32, traceparent: &str) -> wire::PodSandboxConfig {
    let names = NameSettings {
        cluster: ClusterDns { servers: vec!["10.96.0.10".into()], domain: "cluster.local".into() },
        resolv_conf: None,
    };
    sandbox_config(&SandboxPlan {
        pod,
        attempt,
        cgroup_parent: "/kubepods/podu1",
        pod_logs_dir: Path::new("/logs"),
        traceparent,
        identity: &Identity::of(pod, &names).unwrap(),
        cgroups: &CGROUPS,
    })
}

fn security_of(config: &wire::ContainerConfig) -> wire::LinuxContainerSecurityContext {
    config.linux.clone().unwrap().security_context.unwrap()
}

#[test]
fn a_container_is_what_its_spec_says_and_can_be_known_again() {
    let pod = one(json!({
        "name": "c", "image": "bb:1", "command": ["run", "$(IP)"], "args": ["$$(IP)"], "workingDir": "/w", "tty": true,
        "env": [{"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}],
        "volumeMounts": [{"name": "data", "mountPath": "/data", "readOnly": true}],
        "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
        "resources": {"requests": {"cpu": "250m"}, "limits": {"cpu": "500m", "memory": "64Mi"}}
    }));
    let config = config_of(&pod, ImageUser::default()).unwrap();
    assert_eq!(config.command, ["run", "10.88.0.7"]);
    assert_eq!(config.args, ["$(IP)"]);
    assert_eq!((config.working_dir.as_str(), config.tty), ("/w", true));
    assert_eq!(config.envs[0].key, "IP");
    assert_eq!(config.log_path, "c/3.log");
    assert_eq!(config.metadata.clone().unwrap().attempt, 3);
    assert_eq!(config.image.clone().unwrap().image, "sha256:abc");
    let mount = &config.mounts[0];
    assert!(mount.readonly && mount.container_path == "/data" && mount.host_path.ends_with("empty-dir/data"));
    let resources = config.linux.clone().unwrap().resources.unwrap();
    assert_eq!((resources.cpu_shares, resources.cpu_quota, resources.cpu_period), (256, 50_000, 100_000));
    assert_eq!(resources.memory_limit_in_bytes, 64 << 20);
    let labels = [
        ("io.kubernetes.pod.name", "web-node-a"),
        ("io.kubernetes.pod.namespace", "shop"),
        ("io.kubernetes.pod.uid", "u1"),
        ("io.kubernetes.container.name", "c"),
    ];
    for (key, value) in labels {
        assert_eq!(config.labels[key], value);
    }
    assert_eq!(config.annotations["io.kubernetes.container.restartCount"], "3");
    assert!(u32::from_str_radix(&config.annotations["io.kubernetes.container.hash"], 16).is_ok());
    assert_eq!(config.annotations["io.kubernetes.pod.terminationGracePeriod"], "30");
}

#[test]
fn the_termination_message_goes_where_the_spec_says() {
    let path = "/dev/termination-log";
    let own = json!([{"name": "data", "mountPath": path}]);
    for (path, mounts, expected) in [
        (json!(path), json!([]), Some("/k/pods/u1/containers/c/00000003")),
        (json!(path), own, Some("/k/pods/u1/volumes/kubernetes.io~empty-dir/data")),
        (json!(""), json!([]), None),
        (Value::Null, json!([]), None),
    ] {
        let container = json!({
            "name": "c", "image": "bb:1", "terminationMessagePath": path, "volumeMounts": mounts,
            "lifecycle": {"postStart": {"sleep": {"seconds": 1}}}
        });
        let config = config_of(&one(container), ImageUser::default()).unwrap();
        let others = config.mounts.iter().filter(|m| m.container_path != "/etc/hosts");
        let found: Vec<_> = others.map(|m| (m.host_path.as_str(), m.readonly)).collect();
        assert_eq!(found, expected.map(|path| (path, false)).into_iter().collect::<Vec<_>>(), "{path}");
        assert_eq!(config.annotations["bulkhead.dev/post-start"], "true");
        assert!(!config.annotations.contains_key("io.kubernetes.container.preStopHandler"));
    }
}

#[test]
fn a_pre_stop_hook_is_kept_beside_its_container_unless_it_may_hold_a_secret() {
    let hook = |pre_stop: Value| {
        let container = json!({"name": "c", "image": "bb:1", "lifecycle": {"preStop": pre_stop}});
        let config = config_of(&one(container), ImageUser::default()).unwrap();
        config.annotations.get("io.kubernetes.container.preStopHandler").cloned()
    };
    assert_eq!(hook(json!({"sleep": {"seconds": 3}})).as_deref(), Some(r#"{"sleep":{"seconds":3}}"#));
    assert!(hook(json!({"httpGet": {"port": 80}})).is_some());
    assert_eq!(
        hook(json!({"httpGet": {"port": 80, "httpHeaders": [{"name": "A", "value": "s3cret"}]}})),
        None
    );
}

#[test]
fn a_containers_security_comes_before_its_pods() {
    let mut pod = one(json!({
        "name": "c", "image": "bb:1",
        "securityContext": {
            "runAsUser": 7, "readOnlyRootFilesystem": true, "allowPrivilegeEscalation": false,
            "capabilities": {"add": ["NET_BIND_SERVICE"], "drop": ["ALL"]}
        }
    }));
    pod.spec.as_mut().unwrap().security_context = serde_json::from_value(json!({
        "runAsUser": 1, "runAsGroup": 2, "supplementalGroups": [3], "seccompProfile": {"type": "RuntimeDefault"}
    }))
    .unwrap();
    let security = security_of(&config_of(&pod, ImageUser { uid: Some(99), name: String::new() }).unwrap());
    assert_eq!(security.run_as_user.unwrap().value, 7);
    assert_eq!(security.run_as_group.unwrap().value, 2);
    assert_eq!(security.supplemental_groups, [3]);
    assert!(security.readonly_rootfs && security.no_new_privs && !security.privileged);
    let capabilities = security.capabilities.unwrap();
    assert_eq!(
        (capabilities.add_capabilities, capabilities.drop_capabilities),
        (vec!["NET_BIND_SERVICE".into()], vec!["ALL".into()])
    );
    assert_eq!(security.seccomp.unwrap().profile_type(), wire::security_profile::ProfileType::RuntimeDefault);
    assert!(security.masked_paths.contains(&"/proc/kcore".to_owned()));

    let privileged = one(json!({"name": "c", "image": "bb:1", "securityContext": {"privileged": true}}));
    let security = security_of(&config_of(&privileged, ImageUser::default()).unwrap());
    assert!(security.privileged && security.masked_paths.is_empty() && security.readonly_paths.is_empty());
    let sandbox = sandbox_of(&privileged, 0, "");
    assert!(sandbox.linux.unwrap().security_context.unwrap().privileged);
}

#[test]
fn run_as_non_root_refuses_what_would_be_root() {
    let user = |uid, name: &str| ImageUser { uid, name: name.to_owned() };
    let table: [(Value, ImageUser, Option<&str>); 6] = [
        (json!({"runAsNonRoot": true, "runAsUser": 5}), user(None, ""), None),
        (json!({"runAsNonRoot": true}), user(Some(5), ""), None),
        (json!({"runAsNonRoot": true, "runAsUser": 0}), user(Some(5), ""), Some("run as root")),
        (json!({"runAsNonRoot": true}), user(Some(0), ""), Some("run as root")),
        (json!({"runAsNonRoot": true}), user(None, ""), Some("run as root")),
        (json!({"runAsNonRoot": true}), user(None, "app"), Some("non-numeric user (app)")),
    ];
    for (security, image, refusal) in table {
        let pod = one(json!({"name": "c", "image": "bb:1", "securityContext": security}));
        let result = config_of(&pod, image.clone());
        match refusal {
            None => assert!(result.is_ok(), "{security} {image:?}"),
            Some(text) => {
                let error = result.unwrap_err().to_string();
                assert!(error.contains(text), "{security} {image:?}: {error}");
            }
        }
    }
}

#[test]
fn what_cannot_be_had_is_an_error_that_names_it_and_no_value() {
    let missing =
        one(json!({"name": "c", "image": "bb:1", "volumeMounts": [{"name": "none", "mountPath": "/x"}]}));
    assert!(config_of(&missing, ImageUser::default()).unwrap_err().to_string().contains("none"));
    let secret = one(json!({"name": "c", "image": "bb:1", "env": [{"name": "A", "value": "s3cret\u{0}"}]}));
    let error = config_of(&secret, ImageUser::default()).unwrap_err();
    let text = bulkhead_base::chain(&error).to_string();
    assert!(text.contains('A') && !text.contains("s3cret"), "{text}");
    let local = one(json!({
        "name": "c", "image": "bb:1",
        "securityContext": {"seccompProfile": {"type": "Localhost", "localhostProfile": "../../etc/x"}}
    }));
    let error = config_of(&local, ImageUser::default()).unwrap_err().to_string();
    assert!(error.contains("../../etc/x") && error.contains("/k/seccomp"), "{error}");
}

#[test]
fn a_sandbox_carries_its_pods_name_and_namespaces() {
    use wire::NamespaceMode::{Container, Node, Pod as InPod};
    let table = [
        (json!({}), (InPod, Container, InPod), "web-node-a"),
        (json!({"hostNetwork": true, "hostPID": true, "hostIPC": true}), (Node, Node, Node), ""),
        (json!({"shareProcessNamespace": true, "hostname": "own"}), (InPod, InPod, InPod), "own"),
    ];
    for (mut spec, (network, pid, ipc), hostname) in table {
        spec["containers"] =
            json!([{"name": "c", "image": "bb:1", "ports": [{"containerPort": 80, "hostPort": 8080}]}]);
        let pod = pod(spec.clone());
        let sandbox = sandbox_of(&pod, 2, "00-aa");
        let linux = sandbox.linux.clone().unwrap();
        let options = linux.security_context.unwrap().namespace_options.unwrap();
        assert_eq!((options.network(), options.pid(), options.ipc()), (network, pid, ipc), "{spec}");
        assert_eq!(sandbox.hostname, hostname);
        assert_eq!(sandbox.port_mappings.len(), usize::from(network == InPod));
        assert_eq!(sandbox.log_directory, "/logs/shop_web-node-a_u1");
        assert_eq!((linux.cgroup_parent.as_str(), sandbox.metadata.unwrap().attempt), ("/kubepods/podu1", 2));
        assert_eq!(
            (sandbox.labels["app"].as_str(), sandbox.labels["io.kubernetes.pod.uid"].as_str()),
            ("web", "u1")
        );
        assert_eq!(
            (sandbox.annotations["note"].as_str(), sandbox.annotations["bulkhead.dev/traceparent"].as_str()),
            ("x", "00-aa")
        );
    }
}

#[test]
fn long_names_become_host_names_that_linux_takes() {
    let mut pod = pod(json!({"containers": []}));
    pod.metadata.name = Some(format!("{}-{}", "a".repeat(62), "b".repeat(30)));
    let sandbox = sandbox_of(&pod, 0, "");
    assert_eq!(sandbox.hostname, "a".repeat(62));
}

#[test]
fn profiles_groups_and_labels() {
    use wire::security_profile::ProfileType::{Localhost, RuntimeDefault, Unconfined};
    let security_with = |security: Value, node: &NodeTraits| {
        let pod = one(json!({"name": "c", "image": "bb:1", "securityContext": security}));
        let container = &pod.spec.as_ref().unwrap().containers[0];
        super::security::container_security(&pod, container, &ImageUser::default(), node).unwrap()
    };
    let seccomp = |security: &wire::LinuxContainerSecurityContext| {
        let seccomp = security.seccomp.clone().unwrap();
        (seccomp.profile_type(), seccomp.localhost_ref)
    };
    let by_default = NodeTraits { seccomp_default: true, ..traits() };
    let local = json!({"seccompProfile": {"type": "Localhost", "localhostProfile": "dir/p.json"}});
    let table = [
        (json!({}), traits(), (Unconfined, "")),
        (json!({}), by_default.clone(), (RuntimeDefault, "")),
        (json!({"seccompProfile": {"type": "Unconfined"}}), by_default.clone(), (Unconfined, "")),
        (json!({"privileged": true}), by_default, (Unconfined, "")),
        (local, traits(), (Localhost, "/k/seccomp/dir/p.json")),
    ];
    for (security, node, (kind, path)) in table {
        assert_eq!(seccomp(&security_with(security.clone(), &node)), (kind, path.to_owned()), "{security}");
    }
    let plain = security_with(json!({}), &traits());
    assert_eq!((plain.apparmor, plain.selinux_options), (None, None));
    let all = json!({
        "appArmorProfile": {"type": "Localhost", "localhostProfile": "p"}, "procMount": "Unmasked",
        "seLinuxOptions": {"level": "s0:c1"}
    });
    let all = security_with(all, &traits());
    assert_eq!(all.apparmor.unwrap().localhost_ref, "p");
    assert_eq!(all.selinux_options.unwrap().level, "s0:c1");
    assert!(all.masked_paths.is_empty() && all.readonly_paths.is_empty());
    let mut pod = one(json!({"name": "c", "image": "bb:1"}));
    pod.spec.as_mut().unwrap().security_context =
        serde_json::from_value(json!({"supplementalGroupsPolicy": "Strict", "sysctls": [{"name": "net/core/somaxconn", "value": "9"}]}))
            .unwrap();
    let security = security_of(&config_of(&pod, ImageUser::default()).unwrap());
    assert_eq!(security.supplemental_groups_policy(), wire::SupplementalGroupsPolicy::Strict);
    assert_eq!(sandbox_of(&pod, 0, "").linux.unwrap().sysctls["net.core.somaxconn"], "9");
}

#[test]
fn huge_pages_and_swap() {
    let pod = one(
        json!({"name": "c", "image": "bb:1", "resources": {"limits": {"hugepages-2Mi": "4Mi", "cpu": "1"}}}),
    );
    let resources = config_of(&pod, ImageUser::default()).unwrap().linux.unwrap().resources.unwrap();
    let limits: Vec<_> = resources.hugepage_limits.iter().map(|l| (l.page_size.as_str(), l.limit)).collect();
    assert_eq!(limits, [("2MB", 4 << 20), ("1GB", 0)]);
    assert!(resources.unified.is_empty());
}

#[test]
fn the_pods_hosts_file_is_mounted_unless_there_is_another() {
    let hosts = |container: Value| {
        let config = config_of(&one(container), ImageUser::default()).unwrap();
        let of_hosts = config.mounts.into_iter().filter(|m| m.container_path.starts_with("/etc/hosts"));
        of_hosts.map(|m| (m.host_path.rsplit('/').next().unwrap().to_owned(), m.readonly)).collect::<Vec<_>>()
    };
    let plain = json!({"name": "c", "image": "bb:1"});
    assert_eq!(hosts(plain), [("etc-hosts".to_owned(), false)]);
    let read_only =
        json!({"name": "c", "image": "bb:1", "securityContext": {"readOnlyRootFilesystem": true}});
    assert_eq!(hosts(read_only), [("etc-hosts".to_owned(), true)]);
    let own =
        json!({"name": "c", "image": "bb:1", "volumeMounts": [{"name": "data", "mountPath": "/etc/hosts/"}]});
    assert_eq!(hosts(own), [("data".to_owned(), false)]);
}

#[test]
fn a_sandbox_has_its_pods_names() {
    let pod = pod(json!({"containers": [], "hostname": "h", "subdomain": "sub", "setHostnameAsFQDN": true}));
    let sandbox = sandbox_of(&pod, 0, "");
    assert_eq!(sandbox.hostname, "h.sub.shop.svc.cluster.local");
    let dns = sandbox.dns_config.unwrap();
    assert_eq!(dns.servers, ["10.96.0.10"]);
    assert_eq!(dns.searches, ["shop.svc.cluster.local", "svc.cluster.local", "cluster.local"]);
    assert_eq!(dns.options, ["ndots:5"]);
}

#[test]
fn the_stop_signal_is_the_pods_or_the_images() {
    for (lifecycle, signal) in [
        (json!({"stopSignal": "SIGUSR1"}), wire::Signal::Sigusr1),
        (json!({"stopSignal": "SIGRTMAX-14"}), wire::Signal::Sigrtmaxminus14),
        (json!({}), wire::Signal::RuntimeDefault),
    ] {
        let container = json!({"name": "c", "image": "bb:1", "lifecycle": lifecycle});
        let config = config_of(&one(container), ImageUser::default()).unwrap();
        assert_eq!(config.stop_signal(), signal, "{lifecycle}");
    }
}

#[test]
fn mounts_are_read_only_in_depth_as_far_as_the_runtime_goes() {
    for (mode, deep) in [("Disabled", false), ("IfPossible", true), ("Enabled", true)] {
        let mount = json!({"name": "data", "mountPath": "/d", "readOnly": true, "recursiveReadOnly": mode});
        let container = json!({"name": "c", "image": "bb:1", "volumeMounts": [mount]});
        let config = config_of(&one(container), ImageUser::default()).unwrap();
        assert_eq!((config.mounts[0].readonly, config.mounts[0].recursive_read_only), (true, deep), "{mode}");
    }
}

#[test]
fn what_the_runtime_has_no_field_for_goes_to_its_cgroup_files() {
    let pod = one(json!({"name": "c", "image": "bb:1", "resources": {"requests": {"memory": "64Mi"}}}));
    let files = |node: &NodeTraits| {
        let config = config_on(node, &pod, ImageUser::default()).unwrap();
        config.linux.unwrap().resources.unwrap().unified.into_iter().collect::<BTreeMap<_, _>>()
    };
    assert!(files(&traits()).is_empty());
    let memory_qos = MemoryQos {
        throttling_factor: Some(0.5),
        tiered_reservation: true,
        allocatable_bytes: 128 << 20,
        page_bytes: 4096,
    };
    let expected = [("memory.high", "100663296"), ("memory.low", "67108864"), ("memory.swap.max", "0")];
    let expected = expected.map(|(file, value)| (file.to_owned(), value.to_owned()));
    assert_eq!(files(&NodeTraits { bounds_swap: true, memory_qos, ..traits() }), expected.into());
}

#[test]
fn a_container_may_be_aimed_at_another_ones_processes() {
    use wire::NamespaceMode::{Container, Node, Pod as InPod, Target};
    for (spec, expected) in [
        (json!({}), Target),
        (json!({"shareProcessNamespace": true}), InPod),
        (json!({"hostPID": true}), Node),
    ] {
        let mut options = namespaces(&pod(spec.clone()));
        super::container::aim(&mut options, "c1");
        assert_eq!(options.pid(), expected, "{spec}");
        assert_eq!(options.target_id, if expected == Target { "c1" } else { "" });
    }
    let plain = config_of(&one(json!({"name": "c"})), ImageUser::default()).unwrap();
    assert_eq!(security_of(&plain).namespace_options.unwrap().pid(), Container);
}

#[test]
fn a_sandbox_says_what_its_pod_needs_beside_and_for_its_containers() {
    let container = json!({"name": "c", "resources": {"limits": {"cpu": "1", "memory": "64Mi"}}});
    let pod = pod(json!({"containers": [container], "overhead": {"cpu": "250m", "memory": "16Mi"}}));
    let linux = sandbox_of(&pod, 0, "").linux.unwrap();
    let figures = |found: Option<wire::LinuxContainerResources>| {
        let found = found.unwrap();
        (found.cpu_shares, found.cpu_quota, found.memory_limit_in_bytes >> 20)
    };
    assert_eq!(figures(linux.overhead), (256, 25_000, 16));
    assert_eq!(figures(linux.resources), (1024, 100_000, 64));
}
