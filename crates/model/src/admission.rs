//! Whether a node takes a pod that comes for the first time.
//!
//! Owns the kubelet's admission: number of pods, resources, host ports, operating system, node selector, sysctls, and what
//! this machine cannot confine as asked. Must never be asked about a pod that was taken before: what runs goes on running,
//! whatever became of the node since.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Pod;

use crate::eviction::{self, Condition};
use crate::qos::QosClass;
use crate::quantity::Quantity;
use crate::resources::{self, ResourceList};
use crate::{confinement, ports, spec, sysctl};

/// What a node offers to pods.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Node {
    /// `status.allocatable`; a resource that is missing is not counted.
    pub allocatable: ResourceList,
    /// The node's labels.
    pub labels: BTreeMap<String, String>,
    /// `allowedUnsafeSysctls`.
    pub unsafe_sysctls: Vec<String>,
    /// What the kernel can confine with.
    pub confinement: confinement::Kernel,
}

/// Why a node does not take a pod. The pod fails with this.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Rejection {
    /// `status.reason`, the kubelet's word.
    pub reason: String,
    /// `status.message`.
    pub message: String,
}

impl Rejection {
    /// Because of `message`, which stands after the kubelet's first words.
    pub fn new(reason: impl Into<String>, message: impl AsRef<str>) -> Self {
        Self { reason: reason.into(), message: format!("Pod was rejected: {}", message.as_ref()) }
    }
}

/// Takes or rejects `pod` beside `others`: the pods that this node took and that are not over.
///
/// # Errors
/// The first reason against it.
pub fn admit<'a>(
    pod: &Pod,
    others: impl IntoIterator<Item = &'a Pod> + Clone,
    node: &Node,
) -> Result<(), Rejection> {
    system(pod, node)?;
    sysctl::check(pod, &node.unsafe_sysctls).map_err(|why| Rejection::new("SysctlForbidden", why))?;
    confinement::check(pod, node.confinement)
        .map_err(|refusal| Rejection::new(refusal.reason, refusal.message))?;
    room(pod, others.clone(), node)?;
    if let Some((port, other)) = ports::first_conflict(pod, others) {
        let name = |value: &Option<String>| value.clone().unwrap_or_default();
        let (namespace, name) = (name(&other.metadata.namespace), name(&other.metadata.name));
        return Err(Rejection::new(
            "NodePorts",
            format!("the node's port {port} is taken by pod {namespace}/{name}"),
        ));
    }
    Ok(())
}

/// Takes or rejects `pod` on a node under these pressures. With memory alone, only best-effort pods that do not tolerate
/// it are kept out.
///
/// # Errors
/// The pressures.
pub fn admit_under_pressure(pod: &Pod, pressures: &BTreeSet<Condition>) -> Result<(), Rejection> {
    if pressures.is_empty() || eviction::is_critical(pod) {
        return Ok(());
    }
    let only_memory = pressures.iter().all(|pressure| *pressure == Condition::MemoryPressure);
    if only_memory && (QosClass::of(pod) != QosClass::BestEffort || tolerates_memory_pressure(pod)) {
        return Ok(());
    }
    let names: Vec<_> = pressures.iter().map(|pressure| pressure.as_str()).collect();
    let text = format!("The node had condition: [{}]. ", names.join(" "));
    Err(Rejection::new(eviction::REASON, text))
}

fn tolerates_memory_pressure(pod: &Pod) -> bool {
    let mut tolerations = pod.spec.iter().flat_map(|spec| spec.tolerations.iter().flatten());
    tolerations.any(|toleration| {
        let key = toleration.key.as_deref().unwrap_or_default();
        let exists = toleration.operator.as_deref() == Some("Exists");
        let key_fits = key == "node.kubernetes.io/memory-pressure" || (key.is_empty() && exists);
        let value_fits = exists || toleration.value.as_deref().unwrap_or_default().is_empty();
        let effect = toleration.effect.as_deref().unwrap_or_default();
        key_fits && value_fits && (effect.is_empty() || effect == "NoSchedule")
    })
}

fn system(pod: &Pod, node: &Node) -> Result<(), Rejection> {
    let of_spec = pod.spec.as_ref();
    if let Some(os) = of_spec.and_then(|spec| spec.os.as_ref()).filter(|os| os.name != "linux") {
        let text = format!("it needs the operating system {}, and this node has linux", os.name);
        return Err(Rejection::new("PodOSNotSupported", text));
    }
    // The scheduler looked at the node's labels, which may be more than those that it gives itself.
    let selector = of_spec.and_then(|spec| spec.node_selector.as_ref()).filter(|_| spec::is_static(pod));
    for (key, value) in selector.into_iter().flatten() {
        let own = node.labels.get(key);
        if own != Some(value) {
            let own = own.map_or_else(|| "has no such label".to_owned(), |own| format!("has {own}"));
            return Err(Rejection::new(
                "NodeAffinity",
                format!("its nodeSelector asks for {key}={value}, and this node {own}"),
            ));
        }
    }
    Ok(())
}

fn room<'a>(
    pod: &Pod,
    others: impl IntoIterator<Item = &'a Pod> + Clone,
    node: &Node,
) -> Result<(), Rejection> {
    for name in node.allocatable.keys() {
        if let Some(text) = shortage(pod, others.clone(), node, name) {
            return Err(Rejection::new(format!("OutOf{name}"), text));
        }
    }
    Ok(())
}

/// What of one resource is missing for a pod beside `others`; `None`: it fits, or nobody counts the resource.
pub(crate) fn shortage<'a>(
    pod: &Pod,
    others: impl IntoIterator<Item = &'a Pod> + Clone,
    node: &Node,
    name: &str,
) -> Option<String> {
    let has = resources::amount(Some(&node.allocatable), name)?;
    let wanted = wanted(pod, name);
    // Who asks for nothing is not kept out by those who took too much.
    if wanted.is_zero() {
        return None;
    }
    let sum = |sum: Quantity, other: &Pod| sum.plus(self::wanted(other, name));
    let others = others.into_iter().filter(|other| other.metadata.uid != pod.metadata.uid);
    let used = others.fold(Quantity::ZERO, sum);
    (used.plus(wanted) > has).then(|| {
        let [wanted, used, has] = [wanted, used, has].map(|quantity| figure(name, quantity));
        format!(
            "Node didn't have enough resource: {name}, requested: {wanted}, used: {used}, capacity: {has}"
        )
    })
}

/// A quantity as the kubelet tells it.
pub(crate) fn figure(name: &str, quantity: Quantity) -> i64 {
    match name {
        "cpu" => quantity.milli_value(),
        _ => quantity.value(),
    }
}

/// What a pod takes of one resource.
pub(crate) fn wanted(pod: &Pod, name: &str) -> Quantity {
    match name {
        "pods" => Quantity::from_milli(1000),
        "cpu" => resources::pod(pod).requests.cpu.unwrap_or(Quantity::ZERO),
        "memory" => resources::pod(pod).requests.memory.unwrap_or(Quantity::ZERO),
        name => resources::pod_other(pod, name),
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;
    use serde_json::{Value, json};

    use super::*;
    use crate::names;

    fn pod(uid: &str, spec: &Value) -> Pod {
        let mut spec = spec.clone();
        if spec.get("containers").is_none() {
            spec["containers"] = json!([{"name": "c"}]);
        }
        serde_json::from_value(json!({"metadata": {"uid": uid, "name": uid, "namespace": "d"}, "spec": spec}))
            .unwrap()
    }

    fn asks(uid: &str, requests: Value) -> Pod {
        pod(uid, &json!({"containers": [{"name": "c", "resources": {"requests": requests}}]}))
    }

    fn ports(uid: &str, port: u16) -> Pod {
        pod(uid, &json!({"containers": [{"name": "c", "ports": [{"containerPort": 80, "hostPort": port}]}]}))
    }

    fn node() -> Node {
        let has = [("cpu", "2"), ("memory", "1Gi"), ("pods", "4"), ("hugepages-2Mi", "4Mi")];
        let labels = [("kubernetes.io/os", "linux"), ("kubernetes.io/arch", "amd64")];
        Node {
            allocatable: has.map(|(name, value)| (name.into(), ApiQuantity(value.into()))).into(),
            labels: labels.map(|(key, value)| (key.into(), value.into())).into(),
            ..Default::default()
        }
    }

    fn reason(pod: &Pod, others: &[Pod]) -> (String, String) {
        match admit(pod, others, &node()) {
            Ok(()) => Default::default(),
            Err(rejection) => (rejection.reason, rejection.message),
        }
    }

    #[test]
    fn room_is_what_others_leave() {
        let half = asks("a", json!({"cpu": "1500m", "memory": "512Mi"}));
        let table = [
            (json!({"cpu": "500m", "memory": "512Mi"}), ""),
            (json!({"cpu": "501m"}), "OutOfcpu"),
            (json!({"memory": "513Mi"}), "OutOfmemory"),
            (json!({"hugepages-2Mi": "4Mi"}), ""),
            (json!({"hugepages-2Mi": "6Mi"}), "OutOfhugepages-2Mi"),
            (json!({"example.com/device": "1"}), ""),
            (json!({}), ""),
        ];
        for (requests, expected) in table {
            let (reason, message) = reason(&asks("b", requests.clone()), std::slice::from_ref(&half));
            assert_eq!(reason, expected, "{requests}: {message}");
        }
        let (_, message) = reason(&asks("b", json!({"cpu": "501m"})), std::slice::from_ref(&half));
        assert_eq!(
            message,
            "Pod was rejected: Node didn't have enough resource: cpu, requested: 501, used: 1500, capacity: 2000"
        );
        assert_eq!(reason(&half, std::slice::from_ref(&half)).0, "", "itself does not count");
        let too_much = asks("z", json!({"cpu": "9"}));
        assert_eq!(reason(&asks("b", json!({})), &[too_much]).0, "", "who asks for nothing always fits");
    }

    #[test]
    fn pods_are_counted() {
        let others: Vec<_> = ["a", "b", "c"].map(|uid| pod(uid, &json!({}))).into();
        assert_eq!(reason(&pod("d", &json!({})), &others).0, "");
        let full: Vec<_> = others.into_iter().chain([pod("d", &json!({}))]).collect();
        assert_eq!(reason(&pod("e", &json!({})), &full).0, "OutOfpods");
    }

    #[test]
    fn init_containers_and_sidecars_count_as_they_run() {
        let huge = |name: &str, policy: Option<&str>| json!({"name": name, "restartPolicy": policy, "resources": {"limits": {"hugepages-2Mi": "2Mi"}}});
        let three = pod(
            "a",
            &json!({"initContainers": [huge("i", None), huge("s", Some("Always"))], "containers": [huge("c", None)]}),
        );
        assert_eq!(reason(&three, &[]).0, "", "the init container is over when the other two run");
        let more = pod(
            "a",
            &json!({"initContainers": [huge("s", Some("Always"))], "containers": [huge("c", None), huge("d", None)]}),
        );
        assert_eq!(reason(&more, &[]).0, "OutOfhugepages-2Mi");
    }

    #[test]
    fn pressure_keeps_pods_out_that_are_not_critical() {
        use Condition::{DiskPressure, MemoryPressure};
        let effort = asks("a", json!({}));
        let burstable = asks("a", json!({"memory": "1Mi"}));
        let critical = pod("a", &json!({"priority": 2_000_000_000}));
        let tolerant = pod(
            "a",
            &json!({"tolerations": [{"key": "node.kubernetes.io/memory-pressure", "operator": "Exists", "effect": "NoSchedule"}]}),
        );
        let elsewhere = pod("a", &json!({"tolerations": [{"operator": "Exists", "effect": "NoExecute"}]}));
        let memory = "Pod was rejected: The node had condition: [MemoryPressure]. ";
        let disk = "Pod was rejected: The node had condition: [DiskPressure]. ";
        let both = "Pod was rejected: The node had condition: [MemoryPressure DiskPressure]. ";
        let table: [(&Pod, &[Condition], &str); 10] = [
            (&effort, &[], ""),
            (&effort, &[MemoryPressure], memory),
            (&elsewhere, &[MemoryPressure], memory),
            (&tolerant, &[MemoryPressure], ""),
            (&burstable, &[MemoryPressure], ""),
            (&burstable, &[DiskPressure], disk),
            (&tolerant, &[DiskPressure], disk),
            (&burstable, &[DiskPressure, MemoryPressure], both),
            (&critical, &[DiskPressure, MemoryPressure], ""),
            (&effort, &[Condition::PidPressure], "Pod was rejected: The node had condition: [PIDPressure]. "),
        ];
        for (pod, pressures, expected) in table {
            let found = admit_under_pressure(pod, &pressures.iter().copied().collect());
            let message = found.map_or_else(
                |rejection| {
                    assert_eq!(rejection.reason, "Evicted");
                    rejection.message
                },
                |()| String::new(),
            );
            assert_eq!(message, expected, "{pressures:?}");
        }
    }

    #[test]
    fn ports_systems_selectors_and_sysctls() {
        let taken = [ports("a", 8080)];
        let (why, message) = reason(&ports("b", 8080), &taken);
        assert_eq!(why, "NodePorts");
        assert!(message.contains("8080/TCP") && message.contains("d/a"), "{message}");
        assert_eq!(reason(&ports("b", 8081), &taken).0, "");
        let table = [
            (json!({"os": {"name": "windows"}}), "PodOSNotSupported"),
            (json!({"os": {"name": "linux"}}), ""),
            (json!({"nodeSelector": {"kubernetes.io/arch": "arm64"}}), "NodeAffinity"),
            (json!({"nodeSelector": {"kubernetes.io/arch": "amd64"}}), ""),
            (json!({"nodeSelector": {"disk": "ssd"}}), "NodeAffinity"),
            (
                json!({"securityContext": {"sysctls": [{"name": "net.core.somaxconn", "value": "1"}]}}),
                "SysctlForbidden",
            ),
            (json!({"securityContext": {"appArmorProfile": {"type": "RuntimeDefault"}}}), "AppArmor"),
            (json!({"securityContext": {"appArmorProfile": {"type": "Unconfined"}}}), ""),
            (json!({"securityContext": {"seLinuxOptions": {"type": "t"}}}), ""),
        ];
        for (spec, expected) in table {
            let mut pod = pod("b", &spec);
            let source = |source: &str| [(names::CONFIG_SOURCE.to_owned(), source.to_owned())].into();
            pod.metadata.annotations = Some(source("file"));
            assert_eq!(reason(&pod, &[]).0, expected, "{spec}");
            pod.metadata.annotations = Some(source("api"));
            let of_api = if expected == "NodeAffinity" { "" } else { expected };
            assert_eq!(reason(&pod, &[]).0, of_api, "{spec} of the API server");
        }
    }
}
