//! A pod's metadata and spec, by the rules of the API's validation. What concerns one container or volume is next door.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{Pod, PodSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::path::{At, Fault};
use super::text::{
    at_most, dns_label, is_dns_subdomain, is_label_value, is_qualified_name, is_uid, no_parent, one_of,
};
use super::{containers, security, volumes};

/// Most containers of a pod, init containers included.
const MAX_CONTAINERS: usize = 100;
/// Most volumes of a pod.
const MAX_VOLUMES: usize = 200;
/// Most entries of each other list of a pod's spec.
const MAX_ENTRIES: usize = 100;
/// Most bytes of all annotations together.
const MAX_ANNOTATIONS: usize = 256 << 10;

/// Refuses the first thing that the API server would refuse.
pub(super) fn check(pod: &Pod) -> Result<(), Fault> {
    check_metadata(&At::ROOT.field("metadata"), &pod.metadata)?;
    let at = At::ROOT.field("spec");
    let spec = pod.spec.as_ref().ok_or_else(|| at.fault("is missing"))?;
    check_spec(&at, spec)?;
    containers::check(&at, spec)?;
    security::check(&at, spec)?;
    volumes::check(&at, spec)
}

fn check_metadata(at: &At<'_>, metadata: &ObjectMeta) -> Result<(), Fault> {
    let name = metadata.name.as_deref().unwrap_or("");
    let at_name = at.field("name");
    at_name.require(!name.is_empty(), "is missing")?;
    let rule = "must be 1 to 253 lower-case letters, digits, `-` or `.`, each part beginning and ending with a letter or digit";
    at_name.require(is_dns_subdomain(name), rule)?;
    match metadata.namespace.as_deref() {
        None | Some("") => {}
        Some(namespace) => dns_label(&at.field("namespace"), namespace)?,
    }
    match metadata.uid.as_deref() {
        None | Some("") => {}
        Some(uid) => at.field("uid").require(is_uid(uid), "must be 1 to 63 letters, digits or `-`")?,
    }
    let labels = at.field("labels");
    for (key, value) in metadata.labels.iter().flatten() {
        let at = labels.field(key);
        at.require(is_qualified_name(key), "is not the key of a label")?;
        at.require(is_label_value(value), "must be at most 63 letters, digits, `-`, `_` or `.`")?;
    }
    let annotations = at.field("annotations");
    for key in metadata.annotations.iter().flat_map(BTreeMap::keys) {
        let right = is_qualified_name(&key.to_ascii_lowercase());
        annotations.field(key).require(right, "is not the key of an annotation")?;
    }
    let size: usize = metadata.annotations.iter().flatten().map(|(key, value)| key.len() + value.len()).sum();
    annotations.require(size <= MAX_ANNOTATIONS, "have more than 256 KiB together")
}

fn check_spec(at: &At<'_>, spec: &PodSpec) -> Result<(), Fault> {
    one_of(&at.field("restartPolicy"), spec.restart_policy.as_deref(), &["Always", "OnFailure", "Never"])?;
    let dns_policies = ["ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"];
    one_of(&at.field("dnsPolicy"), spec.dns_policy.as_deref(), &dns_policies)?;
    let nameservers = spec.dns_config.as_ref().and_then(|config| config.nameservers.as_ref());
    if spec.dns_policy.as_deref() == Some("None") {
        let some = nameservers.is_some_and(|list| !list.is_empty());
        at.field("dnsConfig")
            .field("nameservers")
            .require(some, "must name a server when dnsPolicy is None")?;
    }
    if let Some(seconds) = spec.termination_grace_period_seconds {
        at.field("terminationGracePeriodSeconds").require(seconds >= 0, "must not be negative")?;
    }
    if let Some(seconds) = spec.active_deadline_seconds {
        let right = (1..=i64::from(i32::MAX)).contains(&seconds);
        at.field("activeDeadlineSeconds").require(right, "must be between 1 and 2147483647")?;
    }
    for (field, text) in [("hostname", &spec.hostname), ("subdomain", &spec.subdomain)] {
        match text.as_deref() {
            None | Some("") => {}
            Some(text) => dns_label(&at.field(field), text)?,
        }
    }
    // Another system than this node's is refused with the pod, where people look for it.
    let system = spec.os.as_ref().map(|os| os.name.as_str());
    one_of(&at.field("os").field("name"), system, &["linux", "windows"])?;
    let both = spec.share_process_namespace == Some(true) && spec.host_pid == Some(true);
    at.field("shareProcessNamespace").require(!both, "cannot be set together with hostPID")?;
    let none = spec.ephemeral_containers.as_ref().is_none_or(Vec::is_empty);
    at.field("ephemeralContainers").require(none, "cannot be part of a manifest")?;
    let gates = spec.scheduling_gates.as_ref().is_none_or(Vec::is_empty);
    at.field("schedulingGates").require(gates, "cannot be part of a static pod: nothing opens them")?;
    at_most(&at.field("hostAliases"), spec.host_aliases.as_ref(), MAX_ENTRIES)?;
    at_most(&at.field("tolerations"), spec.tolerations.as_ref(), MAX_ENTRIES)?;
    let aliases = at.field("hostAliases");
    for (index, alias) in spec.host_aliases.iter().flatten().enumerate() {
        let at = aliases.index(index);
        at.field("ip").require(alias.ip.parse::<std::net::IpAddr>().is_ok(), "must be an IP address")?;
        at_most(&at.field("hostnames"), alias.hostnames.as_ref(), MAX_ENTRIES)?;
        for name in alias.hostnames.iter().flatten() {
            at.field("hostnames").require(is_dns_subdomain(name), "must be DNS names")?;
        }
    }
    if let Some(class) = spec.runtime_class_name.as_deref() {
        // It becomes the name of a handler.
        no_parent(&at.field("runtimeClassName"), class)?;
        at.field("runtimeClassName").require(is_dns_subdomain(class), "must be a DNS name")?;
    }
    containers::quantities(&at.field("overhead"), spec.overhead.as_ref())?;
    containers::resources(&at.field("resources"), spec.resources.as_ref())?;
    check_counts(at, spec)
}

fn check_counts(at: &At<'_>, spec: &PodSpec) -> Result<(), Fault> {
    at.field("containers").require(!spec.containers.is_empty(), "must hold at least one container")?;
    at_most(&at.field("containers"), Some(&spec.containers), MAX_CONTAINERS)?;
    at_most(&at.field("initContainers"), spec.init_containers.as_ref(), MAX_CONTAINERS)?;
    at_most(&at.field("volumes"), spec.volumes.as_ref(), MAX_VOLUMES)?;
    let mut seen = BTreeSet::new();
    for (list, containers) in [
        ("initContainers", spec.init_containers.as_deref()),
        ("containers", Some(spec.containers.as_slice())),
    ] {
        let list = at.field(list);
        for (index, container) in containers.into_iter().flatten().enumerate() {
            let item = list.index(index);
            let at = item.field("name");
            at.require(!container.name.is_empty(), "is missing")?;
            dns_label(&at, &container.name)?;
            at.require(seen.insert(container.name.as_str()), "is the name of an earlier container")?;
        }
    }
    Ok(())
}
