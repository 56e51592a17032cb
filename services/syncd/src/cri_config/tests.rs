use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use bulkhead_cri::wire;
use bulkhead_model::env::PodFacts;
use bulkhead_model::quantity::{Format, Quantity};
use bulkhead_model::resources::CgroupSettings;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::*;

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

fn config_of(pod: &Pod, image_user: ImageUser) -> Result<wire::ContainerConfig, ConfigError> {
    let volumes = BTreeMap::from([(
        "data".to_owned(),
        PathBuf::from("/k/pods/u1/volumes/kubernetes.io~empty-dir/data"),
    )]);
    let settings = CgroupSettings {
        cpu_period_us: 100_000,
        enforce_cpu_limits: true,
        pids_limit: None,
        memory_capacity_bytes: 1 << 30,
    };
    let ips = ["10.88.0.7".to_owned()];
    let host = ["192.0.2.10".to_owned()];
    container_config(&ContainerPlan {
        container: &pod.spec.as_ref().unwrap().containers[0],
        attempt: 3,
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
        volumes: &volumes,
        cgroups: &settings,
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
    let sandbox = sandbox_config(&privileged, 0, "/kubepods/podu1", Path::new("/l"), "");
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
    let local = one(
        json!({"name": "c", "image": "bb:1", "securityContext": {"seccompProfile": {"type": "Localhost"}}}),
    );
    assert!(config_of(&local, ImageUser::default()).unwrap_err().to_string().contains("Localhost"));
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
        let sandbox = sandbox_config(&pod, 2, "/kubepods/podu1", Path::new("/logs"), "00-aa");
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
    let sandbox = sandbox_config(&pod, 0, "/p", Path::new("/l"), "");
    assert_eq!(sandbox.hostname, "a".repeat(62));
}
