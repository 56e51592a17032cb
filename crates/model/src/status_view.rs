//! What statusd is given of a pod: enough to compute its status.
//!
//! Owns the choice of fields. Must never carry environment, commands, what volumes hold, labels or annotations: a secret that
//! does not travel cannot leak.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Pod, ResourceRequirements, VolumeMount};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use crate::phase::Phase;
use crate::resources::{self, Amounts, Resources};
use crate::signal;
use crate::spec::{self, ContainerKind, RestartPolicy};

/// A pod, as far as its status depends on it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatusView {
    /// UID of the pod; for a static pod the kubelet's 32 hexadecimal digits.
    pub uid: String,
    /// `metadata.name`.
    pub name: String,
    /// `metadata.namespace`.
    pub namespace: String,
    /// `spec.nodeName`.
    pub node_name: String,
    /// `metadata.generation`; 0 if it has none, as static pods.
    pub generation: i64,
    /// Whether the pod uses the node's network namespace and so its addresses.
    pub host_network: bool,
    /// Whether the pod comes from a manifest on this node.
    pub static_pod: bool,
    /// The pod's own restart policy.
    pub restart_policy: RestartPolicy,
    /// `status.qosClass`.
    pub qos_class: String,
    /// Init containers and sidecars in spec order, then app containers, then ephemeral ones.
    pub containers: Vec<ContainerView>,
    /// Condition types that the pod names as readiness gates.
    pub readiness_gates: Vec<String>,
    /// What the API server says of the pod's conditions: `True`, `False` or `Unknown` by type.
    pub conditions: BTreeMap<String, String>,
    /// `status.phase` in the API server, once that is final.
    pub final_phase: Option<Phase>,
    /// Whether the pod is being deleted there.
    pub deleting: bool,
    /// Requests and limits of the pod as a whole.
    pub resources: ResourceView,
}

/// A container, as far as its status depends on it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContainerView {
    /// `name` in the pod's spec.
    pub name: String,
    /// The image as the pod asks for it.
    pub image: String,
    /// What it is for.
    pub kind: ContainerKind,
    /// When it runs again.
    pub restart_policy: RestartPolicy,
    /// Which probes it has.
    pub probes: ProbePresence,
    /// What it asks for.
    pub resources: ResourceView,
    /// Where it has its volumes.
    pub mounts: Vec<MountView>,
    /// `lifecycle.stopSignal`; empty: it names none.
    pub stop_signal: String,
}

/// Where a container has a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MountView {
    /// Name of the volume.
    pub volume: String,
    /// `mountPath`.
    pub path: String,
    /// Whether the container may not write there.
    pub read_only: bool,
    /// `recursiveReadOnly` as the pod asks for it; empty: not at all.
    pub recursive_read_only: String,
}

/// Which probes a container has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProbePresence {
    /// Has a startup probe.
    pub startup: bool,
    /// Has a liveness probe.
    pub liveness: bool,
    /// Has a readiness probe.
    pub readiness: bool,
}

/// Requests and limits: resource name to quantity, as written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResourceView {
    /// What is set aside.
    pub requests: BTreeMap<String, String>,
    /// What may be used at most.
    pub limits: BTreeMap<String, String>,
}

impl StatusView {
    /// Takes what is needed of `pod`; `qos_class` is the class that the node runs it in.
    pub fn new(pod: &Pod, qos_class: &str) -> Self {
        let meta = &pod.metadata;
        let pod_spec = pod.spec.as_ref();
        let gates = pod_spec.and_then(|spec| spec.readiness_gates.as_ref()).into_iter().flatten();
        let total = resources::pod(pod);
        let (lasting, ephemeral) = (spec::containers(pod), spec::ephemeral(pod));
        let passing = ephemeral.iter().map(|found| ContainerView::new(&found.as_spec()));
        let containers = lasting.iter().map(ContainerView::new).chain(passing);
        Self {
            uid: meta.uid.clone().unwrap_or_default(),
            name: meta.name.clone().unwrap_or_default(),
            namespace: meta.namespace.clone().unwrap_or_default(),
            node_name: pod_spec.and_then(|spec| spec.node_name.clone()).unwrap_or_default(),
            generation: meta.generation.unwrap_or(0),
            host_network: spec::host_network(pod),
            static_pod: spec::is_static(pod),
            restart_policy: spec::pod_restart_policy(pod),
            qos_class: qos_class.to_owned(),
            containers: containers.collect(),
            readiness_gates: gates.map(|gate| gate.condition_type.clone()).collect(),
            conditions: conditions(pod),
            final_phase: spec::final_phase(pod),
            deleting: meta.deletion_timestamp.is_some(),
            resources: ResourceView::total(total),
        }
    }
}

fn conditions(pod: &Pod) -> BTreeMap<String, String> {
    let said = pod.status.as_ref().and_then(|status| status.conditions.as_ref()).into_iter().flatten();
    said.map(|condition| (condition.type_.clone(), condition.status.clone())).collect()
}

impl ContainerView {
    fn new(found: &spec::SpecContainer<'_>) -> Self {
        let container = found.container;
        Self {
            name: container.name.clone(),
            image: container.image.clone().unwrap_or_default(),
            kind: found.kind,
            restart_policy: found.restart_policy,
            probes: ProbePresence::of(container),
            resources: ResourceView::new(container.resources.as_ref()),
            mounts: container.volume_mounts.iter().flatten().map(MountView::new).collect(),
            stop_signal: signal::of(container).unwrap_or_default().to_owned(),
        }
    }
}

impl MountView {
    fn new(mount: &VolumeMount) -> Self {
        Self {
            volume: mount.name.clone(),
            path: mount.mount_path.clone(),
            read_only: mount.read_only == Some(true),
            recursive_read_only: mount.recursive_read_only.clone().unwrap_or_default(),
        }
    }
}

impl ProbePresence {
    fn of(container: &Container) -> Self {
        Self {
            startup: container.startup_probe.is_some(),
            liveness: container.liveness_probe.is_some(),
            readiness: container.readiness_probe.is_some(),
        }
    }
}

impl ResourceView {
    /// Of a whole pod.
    pub fn total(resources: Resources) -> Self {
        Self { requests: amounts(resources.requests), limits: amounts(resources.limits) }
    }

    /// As they are written.
    pub fn new(resources: Option<&ResourceRequirements>) -> Self {
        let list = |list: Option<&BTreeMap<String, Quantity>>| {
            list.into_iter().flatten().map(|(name, quantity)| (name.clone(), quantity.0.clone())).collect()
        };
        Self {
            requests: list(resources.and_then(|r| r.requests.as_ref())),
            limits: list(resources.and_then(|r| r.limits.as_ref())),
        }
    }
}

fn amounts(amounts: Amounts) -> BTreeMap<String, String> {
    let named = [("cpu", amounts.cpu), ("memory", amounts.memory)];
    named.into_iter().filter_map(|(name, amount)| Some((name.to_owned(), amount?.to_string()))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod() -> Pod {
        serde_json::from_value(serde_json::json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": "s-node-a", "namespace": "default", "uid": "u", "generation": 4,
                "annotations": {"kubernetes.io/config.source": "file", "token": "s3cret"},
                "labels": {"x": "s3cret"}, "deletionTimestamp": "2026-01-02T03:04:05Z"
            },
            "status": {"phase": "Failed", "conditions": [
                {"type": "example.com/gate", "status": "False"}, {"type": "Ready", "status": "True"}
            ]},
            "spec": {
                "nodeName": "node-a", "hostNetwork": true, "restartPolicy": "OnFailure",
                "readinessGates": [{"conditionType": "example.com/gate"}],
                "initContainers": [
                    {"name": "i", "image": "bb:1", "env": [{"name": "A", "value": "s3cret"}]},
                    {"name": "s", "image": "bb:2", "restartPolicy": "Always", "lifecycle": {"stopSignal": "SIGINT"},
                     "startupProbe": {"httpGet": {"port": 80, "httpHeaders": [{"name": "A", "value": "s3cret"}]}}}
                ],
                "containers": [{
                    "name": "a", "image": "bb:3", "command": ["s3cret"],
                    "readinessProbe": {"exec": {"command": ["s3cret"]}},
                    "livenessProbe": {"exec": {"command": ["s3cret"]}},
                    "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}, "limits": {"memory": "32Mi"}},
                    "volumeMounts": [{"name": "v", "mountPath": "/v", "readOnly": true}]
                }]
            }
        }))
        .unwrap()
    }

    #[test]
    fn the_view_holds_what_status_needs_and_no_secret() {
        let view = StatusView::new(&pod(), "Burstable");
        assert!(!format!("{view:?}").contains("s3cret"));
        let text = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(name, amount)| ((*name).to_owned(), (*amount).to_owned())).collect()
        };
        let resources = ResourceView {
            requests: text(&[("cpu", "10m"), ("memory", "16Mi")]),
            limits: text(&[("memory", "32Mi")]),
        };
        let container = |name: &str, image: &str, kind, restart_policy| ContainerView {
            name: name.into(),
            image: image.into(),
            kind,
            restart_policy,
            ..Default::default()
        };
        let (startup, both) = (
            ProbePresence { startup: true, ..Default::default() },
            ProbePresence { startup: false, liveness: true, readiness: true },
        );
        let expected = StatusView {
            uid: "u".into(),
            name: "s-node-a".into(),
            namespace: "default".into(),
            node_name: "node-a".into(),
            generation: 4,
            host_network: true,
            static_pod: true,
            restart_policy: RestartPolicy::OnFailure,
            qos_class: "Burstable".into(),
            containers: vec![
                container("i", "bb:1", ContainerKind::Init, RestartPolicy::OnFailure),
                ContainerView {
                    probes: startup,
                    stop_signal: "SIGINT".into(),
                    ..container("s", "bb:2", ContainerKind::Sidecar, RestartPolicy::Always)
                },
                ContainerView {
                    probes: both,
                    resources: resources.clone(),
                    mounts: vec![MountView {
                        volume: "v".into(),
                        path: "/v".into(),
                        read_only: true,
                        recursive_read_only: String::new(),
                    }],
                    ..container("a", "bb:3", ContainerKind::App, RestartPolicy::OnFailure)
                },
            ],
            readiness_gates: vec!["example.com/gate".into()],
            conditions: text(&[("example.com/gate", "False"), ("Ready", "True")]),
            final_phase: Some(Phase::Failed),
            deleting: true,
            resources,
        };
        assert_eq!(view, expected);
    }

    #[test]
    fn an_empty_pod_gives_an_empty_view() {
        assert_eq!(StatusView::new(&Pod::default(), ""), StatusView::default());
    }
}
