//! The node object. Pure: from facts to the API's type.

use std::collections::BTreeMap;

use bulkhead_cri::wire;
use k8s_openapi::api::core::v1::{
    ContainerImage, DaemonEndpoint, Node, NodeAddress, NodeCondition, NodeDaemonEndpoints, NodeFeatures,
    NodeRuntimeHandler, NodeRuntimeHandlerFeatures, NodeSpec, NodeStatus, NodeSystemInfo,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::capacity::{allocatable, capacity};
use crate::config::Settings;
use crate::host::HostFacts;
use crate::runtime::RuntimeState;

/// What this release can do that not every node can: the API server and the scheduler rely on it (KEP 5328). Sorted.
const DECLARED: [&str; 2] =
    ["InPlacePodLevelResourcesVerticalScaling", "InPlacePodVerticalScalingInitContainers"];

/// The kubelet that this one stands in for, and its own version.
const KUBELET_VERSION: &str = concat!("v1.37.2+bulkhead.", env!("CARGO_PKG_VERSION"));

/// Everything that the node object depends on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NodeInput<'a> {
    pub(crate) settings: &'a Settings,
    pub(crate) host: &'a HostFacts,
    pub(crate) runtime: &'a RuntimeState,
    /// The node's addresses, the primary one first.
    pub(crate) ips: &'a [String],
    pub(crate) conditions: &'a [NodeCondition],
    /// The largest images, largest first.
    pub(crate) images: &'a [ContainerImage],
}

/// The node as the API server would see it. What others own is not in it: volumes, the cluster's annotations.
pub(crate) fn node(input: &NodeInput<'_>) -> Node {
    let NodeInput { settings, host, runtime, .. } = *input;
    Node {
        metadata: ObjectMeta {
            name: Some(settings.node_name.clone()),
            labels: Some(labels(&settings.node_name)),
            annotations: settings.attach_detach.then(|| {
                let name = "volumes.kubernetes.io/controller-managed-attach-detach";
                [(name.to_owned(), "true".to_owned())].into()
            }),
            ..ObjectMeta::default()
        },
        spec: Some(NodeSpec::default()),
        status: Some(NodeStatus {
            addresses: Some(addresses(input.ips, &settings.node_name)),
            capacity: Some(capacity(host, &settings.limits)),
            allocatable: Some(allocatable(host, &settings.limits)),
            conditions: Some(input.conditions.to_vec()),
            declared_features: Some(DECLARED.map(ToOwned::to_owned).into()),
            daemon_endpoints: Some(NodeDaemonEndpoints {
                kubelet_endpoint: Some(DaemonEndpoint { port: settings.port.into() }),
            }),
            features: runtime.features.as_ref().map(|features| NodeFeatures {
                supplemental_groups_policy: Some(features.supplemental_groups_policy),
            }),
            images: (!input.images.is_empty()).then(|| input.images.to_vec()),
            node_info: Some(info(host, runtime)),
            runtime_handlers: (!runtime.handlers.is_empty())
                .then(|| runtime.handlers.iter().map(handler).collect()),
            ..NodeStatus::default()
        }),
    }
}

fn labels(name: &str) -> BTreeMap<String, String> {
    let labels = [
        ("beta.kubernetes.io/arch", architecture()),
        ("beta.kubernetes.io/os", "linux"),
        ("kubernetes.io/arch", architecture()),
        ("kubernetes.io/hostname", name),
        ("kubernetes.io/os", "linux"),
    ];
    labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into()
}

fn addresses(ips: &[String], name: &str) -> Vec<NodeAddress> {
    let address =
        |type_: &str, address: &str| NodeAddress { type_: type_.to_owned(), address: address.to_owned() };
    let internal = ips.iter().map(|ip| address("InternalIP", ip));
    internal.chain([address("Hostname", name)]).collect()
}

fn info(host: &HostFacts, runtime: &RuntimeState) -> NodeSystemInfo {
    let RuntimeState { name, version, .. } = runtime;
    NodeSystemInfo {
        architecture: architecture().to_owned(),
        boot_id: host.boot_id.clone(),
        container_runtime_version: if name.is_empty() {
            String::new()
        } else {
            format!("{name}://{version}")
        },
        kernel_version: host.kernel_version.clone(),
        kubelet_version: KUBELET_VERSION.to_owned(),
        machine_id: host.machine_id.clone(),
        operating_system: "linux".to_owned(),
        os_image: host.os_image.clone(),
        running_in_user_namespace: Some(host.in_user_namespace),
        system_uuid: host.system_uuid.clone(),
        ..NodeSystemInfo::default()
    }
}

fn handler(handler: &wire::RuntimeHandler) -> NodeRuntimeHandler {
    let features = handler.features.as_ref().map(|features| NodeRuntimeHandlerFeatures {
        recursive_read_only_mounts: Some(features.recursive_read_only_mounts),
        user_namespaces: Some(features.user_namespaces),
    });
    NodeRuntimeHandler { name: Some(handler.name.clone()), features }
}

/// Go's name, which the API uses.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "x86" => "386",
        "aarch64" => "arm64",
        "powerpc64" => "ppc64le",
        "loongarch64" => "loong64",
        other => other,
    }
}

#[cfg(test)]
mod tests;
