//! The pod's own fields as values of variables.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, ObjectFieldSelector, ResourceFieldSelector};

use super::PodFacts;
use crate::quantity::Quantity;
use crate::resources;
use crate::spec;

/// Whether `fieldRef.fieldPath` names something that a variable can show.
pub fn field_path_is_known(path: &str) -> bool {
    match subscript(path) {
        Some((field, _)) => matches!(field, "metadata.labels" | "metadata.annotations"),
        None => matches!(
            path,
            "metadata.name"
                | "metadata.namespace"
                | "metadata.uid"
                | "spec.nodeName"
                | "spec.serviceAccountName"
                | "status.hostIP"
                | "status.hostIPs"
                | "status.podIP"
                | "status.podIPs"
        ),
    }
}

/// Whether `resourceFieldRef.resource` names something that a variable can show.
pub fn resource_is_known(resource: &str) -> bool {
    let Some((list, name)) = resource.split_once('.') else { return false };
    matches!(list, "limits" | "requests")
        && (matches!(name, "cpu" | "memory" | "ephemeral-storage") || name.starts_with("hugepages-"))
}

/// The value of a `fieldRef`; a label or annotation that the pod has not is empty.
pub(super) fn field_value(field: &ObjectFieldSelector, facts: &PodFacts<'_>) -> Result<String, String> {
    let path = field.field_path.as_str();
    if let Some(version) = field.api_version.as_deref().filter(|version| !matches!(*version, "" | "v1")) {
        return Err(format!("fieldRef.apiVersion `{version}` is not supported: use v1"));
    }
    let metadata = &facts.pod.metadata;
    if let Some((field, key)) = subscript(path) {
        let map = match field {
            "metadata.labels" => &metadata.labels,
            "metadata.annotations" => &metadata.annotations,
            _ => return Err(format!("fieldRef.fieldPath `{path}` is not supported")),
        };
        return Ok(map.as_ref().and_then(|map: &BTreeMap<_, _>| map.get(key)).cloned().unwrap_or_default());
    }
    let account = facts.pod.spec.as_ref().and_then(|spec| spec.service_account_name.clone());
    let first = |ips: &[String]| ips.first().cloned().unwrap_or_default();
    Ok(match path {
        "metadata.name" => metadata.name.clone().unwrap_or_default(),
        "metadata.namespace" => metadata.namespace.clone().unwrap_or_default(),
        "metadata.uid" => metadata.uid.clone().unwrap_or_default(),
        "spec.nodeName" => facts.node_name.to_owned(),
        "spec.serviceAccountName" => account.unwrap_or_default(),
        "status.hostIP" => first(facts.host_ips),
        "status.hostIPs" => facts.host_ips.join(","),
        "status.podIP" => first(facts.pod_ips),
        "status.podIPs" => facts.pod_ips.join(","),
        _ => return Err(format!("fieldRef.fieldPath `{path}` is not supported")),
    })
}

/// The value of a `resourceFieldRef` of `own` or of the container that it names, in units of its divisor, rounded up.
/// A CPU or memory limit that is not stated is what the node has for pods; anything else that is not stated is 0.
pub(super) fn resource_value(
    own: &Container,
    field: &ResourceFieldSelector,
    facts: &PodFacts<'_>,
) -> Result<String, String> {
    let resource = field.resource.as_str();
    if !resource_is_known(resource) {
        return Err(format!("resourceFieldRef.resource `{resource}` is not supported"));
    }
    let named = field.container_name.as_deref().filter(|name| !name.is_empty() && *name != own.name);
    let all = spec::containers(facts.pod);
    let container = match named {
        None => own,
        Some(name) => {
            all.iter().find(|item| item.name() == name).map(|item| item.container).ok_or_else(|| {
                format!("resourceFieldRef.containerName `{name}`: the pod has no such container")
            })?
        }
    };
    let requirements = container.resources.as_ref();
    let limits = requirements.and_then(|r| r.limits.as_ref());
    let requests = requirements.and_then(|r| r.requests.as_ref());
    let (list, name) = resource.split_once('.').unwrap_or(("", resource));
    let limit = resources::amount(limits, name);
    let stated = match list {
        "limits" => limit.filter(|limit| !limit.is_zero()).or(match name {
            "cpu" => Some(facts.allocatable_cpu),
            "memory" => Some(facts.allocatable_memory),
            _ => None,
        }),
        _ => resources::amount(requests, name).or(limit),
    };
    let divisor = match field.divisor.as_ref().map(|divisor| Quantity::parse(&divisor.0)) {
        Some(Ok(divisor)) if !divisor.is_zero() => divisor,
        Some(Err(error)) => return Err(format!("resourceFieldRef.divisor: {error}")),
        // A divisor of 0 is what clients write for none.
        _ => Quantity::from_milli(1000),
    };
    Ok(stated.unwrap_or(Quantity::ZERO).divided_by(divisor).unwrap_or(0).to_string())
}

/// `metadata.labels['key']` as (`metadata.labels`, `key`).
fn subscript(path: &str) -> Option<(&str, &str)> {
    path.strip_suffix("']").and_then(|path| path.split_once("['")).filter(|(_, key)| !key.is_empty())
}
