//! The node of a real kubelet (tests/data/node.json) is built again from the facts of its machine.

use bulkhead_config::KubeletConfiguration;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};

use super::*;
use crate::capacity;
use crate::conditions::Conditions;

/// Fields that are not statusd's: the API server, or a controller sets them.
const OF_OTHERS: [&str; 4] = [
    "/metadata/annotations/node.alpha.kubernetes.io~1ttl",
    "/metadata/creationTimestamp",
    "/metadata/resourceVersion",
    "/metadata/uid",
];

fn real() -> Value {
    serde_json::from_str(include_str!("../../tests/data/node.json")).unwrap()
}

fn host() -> HostFacts {
    HostFacts {
        cpus: Some(2),
        memory: Some(24_684_084 * 1024),
        huge_pages: [(2 << 20, 0), (1 << 30, 0)].into(),
        disk: Some(270_553_174_016),
        machine_id: "3d1219c7c4c5404aaa1f6d2a48adfda4".to_owned(),
        system_uuid: "3d1219c7c4c5404aaa1f6d2a48adfda4".to_owned(),
        boot_id: "281889bd-2310-42be-bc3c-345b83e4dbd1".to_owned(),
        kernel_version: "6.18.0".to_owned(),
        os_image: "Debian GNU/Linux 12 (bookworm)".to_owned(),
        in_user_namespace: false,
    }
}

fn runtime() -> RuntimeState {
    let handler = |name: &str| wire::RuntimeHandler {
        name: name.to_owned(),
        features: Some(wire::RuntimeHandlerFeatures {
            recursive_read_only_mounts: true,
            user_namespaces: true,
        }),
    };
    RuntimeState {
        name: "containerd".to_owned(),
        version: "2.4.2+unknown".to_owned(),
        handlers: vec![handler(""), handler("runc")],
        features: Some(wire::RuntimeFeatures { supplemental_groups_policy: true, ..Default::default() }),
        ..RuntimeState::default()
    }
}

fn settings() -> Settings {
    let config = KubeletConfiguration::default();
    Settings {
        node_name: "node-a".to_owned(),
        port: config.port,
        attach_detach: config.enable_controller_attach_detach,
        limits: capacity::limits(&config),
    }
}

fn remove(value: &mut Value, pointer: &str) {
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    let parent = value.pointer_mut(parent).unwrap().as_object_mut().unwrap();
    assert!(parent.remove(&key.replace("~1", "/")).is_some(), "{pointer} is not there");
}

#[test]
#[cfg(target_arch = "x86_64")]
fn the_node_is_the_kubelets_field_by_field() {
    let memory = Conditions::default();
    let began = memory.update(&[], &Default::default(), "2026-11-30T14:08:52Z".parse::<Timestamp>().unwrap());
    assert_eq!(
        began.last().unwrap().last_transition_time,
        Some(Time("2026-11-30T14:08:52Z".parse().unwrap()))
    );
    let conditions =
        memory.update(&[], &Default::default(), "2026-11-30T14:23:22Z".parse::<Timestamp>().unwrap());
    let images: Vec<ContainerImage> = serde_json::from_value(real()["status"]["images"].clone()).unwrap();
    let input = NodeInput {
        settings: &settings(),
        host: &host(),
        runtime: &runtime(),
        ips: &["192.0.2.10".to_owned()],
        conditions: &conditions,
        images: &images,
    };
    let ours = serde_json::to_value(node(&input)).unwrap();
    let mut real = real();
    for pointer in OF_OTHERS {
        remove(&mut real, pointer);
    }
    // Not all that a kubelet declares is built.
    let declared = real["status"]["declaredFeatures"].as_array_mut().unwrap();
    declared.retain(|feature| DECLARED.iter().any(|built| *feature == **built));
    assert_eq!(declared.len(), DECLARED.len());
    // Ours to choose: the version that this kubelet calls itself.
    assert_eq!(ours["status"]["nodeInfo"]["kubeletVersion"], "v1.37.2+bulkhead.0.1.0");
    real["status"]["nodeInfo"]["kubeletVersion"] = ours["status"]["nodeInfo"]["kubeletVersion"].clone();
    assert_eq!(ours, real);
}

#[test]
fn a_node_of_which_nothing_is_known_is_still_a_node() {
    let input = NodeInput {
        settings: &Settings { node_name: "n".to_owned(), ..Settings::default() },
        host: &HostFacts::default(),
        runtime: &RuntimeState::default(),
        ips: &[],
        conditions: &[],
        images: &[],
    };
    let node = serde_json::to_value(node(&input)).unwrap();
    assert_eq!(node["status"]["addresses"], json!([{"type": "Hostname", "address": "n"}]));
    assert_eq!(node["status"]["nodeInfo"]["containerRuntimeVersion"], "");
    assert_eq!(node["status"]["capacity"], json!({"pods": "0"}));
}
