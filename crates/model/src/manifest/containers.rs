//! One container of a manifest.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{Container, EnvVar, PodSpec, ResourceRequirements};

use super::path::{At, Fault};
use super::text::{absolute_path, at_most, is_port_name, is_qualified_name, one_of};
use super::{probes, volumes};
use crate::env;
use crate::ports::{self, HostPort, Protocol};
use crate::quantity::Quantity;
use crate::resources::ResourceList;

/// Most ports of a container.
const MAX_PORTS: usize = 200;
/// Most variables of a container.
const MAX_ENV: usize = 2000;
/// Most words of a command.
const MAX_ARGS: usize = 2000;
/// Longest image reference in bytes.
const MAX_IMAGE: usize = 1024;

/// All containers, and what they must not share.
pub(super) fn check(at: &At<'_>, spec: &PodSpec) -> Result<(), Fault> {
    let (init, app) = (at.field("initContainers"), at.field("containers"));
    for (index, container) in spec.init_containers.iter().flatten().enumerate() {
        let at = init.index(index);
        check_container(&at, spec, container)?;
        if container.restart_policy.as_deref() != Some("Always") {
            probes::none(&at, container)?;
        }
    }
    for (index, container) in spec.containers.iter().enumerate() {
        check_container(&app.index(index), spec, container)?;
    }
    host_ports(at, spec)
}

fn check_container(at: &At<'_>, spec: &PodSpec, container: &Container) -> Result<(), Fault> {
    let image = container.image.as_deref().unwrap_or("");
    let at_image = at.field("image");
    at_image.require(!image.is_empty(), "is missing")?;
    at_image.require(image == image.trim(), "must not begin or end with white space")?;
    at_image.require(image.len() <= MAX_IMAGE, "must have at most 1024 bytes")?;
    let policies = ["Always", "IfNotPresent", "Never"];
    one_of(&at.field("imagePullPolicy"), container.image_pull_policy.as_deref(), &policies)?;
    one_of(
        &at.field("restartPolicy"),
        container.restart_policy.as_deref(),
        &["Always", "OnFailure", "Never"],
    )?;
    let policies = ["File", "FallbackToLogsOnError"];
    one_of(
        &at.field("terminationMessagePolicy"),
        container.termination_message_policy.as_deref(),
        &policies,
    )?;
    for (field, path) in [
        ("terminationMessagePath", &container.termination_message_path),
        ("workingDir", &container.working_dir),
    ] {
        match path.as_deref() {
            None | Some("") => {}
            Some(path) => absolute_path(&at.field(field), path)?,
        }
    }
    for (field, words) in [("command", &container.command), ("args", &container.args)] {
        let at = at.field(field);
        at_most(&at, words.as_ref(), MAX_ARGS)?;
        for (index, word) in words.iter().flatten().enumerate() {
            at.index(index).require(!word.contains('\0'), "must not hold a NUL byte")?;
        }
    }
    check_env(&at.field("env"), container)?;
    check_ports(&at.field("ports"), spec, container)?;
    resources(&at.field("resources"), container.resources.as_ref())?;
    probes::check(at, spec, container)?;
    volumes::check_mounts(&at.field("volumeMounts"), spec, container)
}

fn check_env(at: &At<'_>, container: &Container) -> Result<(), Fault> {
    at_most(at, container.env.as_ref(), MAX_ENV)?;
    for (index, variable) in container.env.iter().flatten().enumerate() {
        check_variable(&at.index(index), variable)?;
    }
    Ok(())
}

fn check_variable(at: &At<'_>, variable: &EnvVar) -> Result<(), Fault> {
    at.field("name").require(!variable.name.is_empty(), "is missing")?;
    at.field("name").require(env::name_is_valid(&variable.name), "must be printable ASCII without `=`")?;
    let value = variable.value.as_deref().unwrap_or("");
    if value.contains('\0') {
        return Err(at
            .field("value")
            .fault(format!("the value of `{}` must not hold a NUL byte", variable.name)));
    }
    let Some(source) = &variable.value_from else { return Ok(()) };
    let at = at.field("valueFrom");
    at.require(value.is_empty(), "cannot be set together with value")?;
    match (&source.field_ref, &source.resource_field_ref, &source.file_key_ref) {
        (Some(field), None, None) => {
            let known = env::field_path_is_known(&field.field_path);
            at.field("fieldRef").field("fieldPath").require(known, "is no field that a variable can show")
        }
        (None, Some(field), None) => {
            let known = env::resource_is_known(&field.resource);
            let at = at.field("resourceFieldRef");
            at.field("resource").require(known, "is no resource that a variable can show")?;
            let divisor = field.divisor.as_ref().map(|divisor| Quantity::parse(&divisor.0)).transpose();
            divisor.map(drop).map_err(|error| at.field("divisor").fault(error.to_string()))
        }
        (None, None, Some(_)) => {
            Err(at.field("fileKeyRef").fault("is not supported yet: give the value itself, or fieldRef"))
        }
        _ => Err(at.fault("must name exactly one source")),
    }
}

fn check_ports(at: &At<'_>, spec: &PodSpec, container: &Container) -> Result<(), Fault> {
    at_most(at, container.ports.as_ref(), MAX_PORTS)?;
    let mut names = BTreeSet::new();
    for (index, port) in container.ports.iter().flatten().enumerate() {
        let at = at.index(index);
        let range = "must be between 1 and 65535";
        at.field("containerPort").require((1..=65535).contains(&port.container_port), range)?;
        let host_port = port.host_port.unwrap_or(0);
        at.field("hostPort").require((0..=65535).contains(&host_port), range)?;
        if spec.host_network == Some(true) && host_port != 0 {
            let same = host_port == port.container_port;
            at.field("hostPort").require(same, "must be the containerPort when hostNetwork is set")?;
        }
        let known = Protocol::parse(port.protocol.as_deref().unwrap_or("")).is_some();
        at.field("protocol").require(known, "must be one of TCP, UDP, SCTP")?;
        match port.host_ip.as_deref() {
            None | Some("") => {}
            Some(ip) => {
                at.field("hostIP")
                    .require(ip.parse::<std::net::IpAddr>().is_ok(), "must be an IP address")?;
            }
        }
        if let Some(name) = port.name.as_deref().filter(|name| !name.is_empty()) {
            let rule =
                "must be at most 15 lower-case letters, digits and single `-`, with at least one letter";
            at.field("name").require(is_port_name(name), rule)?;
            at.field("name").require(names.insert(name), "is the name of an earlier port")?;
        }
    }
    Ok(())
}

/// No two ports of the pod may take the same port of the node.
fn host_ports(at: &At<'_>, spec: &PodSpec) -> Result<(), Fault> {
    let host_network = spec.host_network == Some(true);
    let mut taken: BTreeSet<HostPort> = BTreeSet::new();
    let sidecar = |c: &&Container| c.restart_policy.as_deref() == Some("Always");
    let lists = [
        (at.field("initContainers"), spec.init_containers.iter().flatten().collect::<Vec<_>>()),
        (at.field("containers"), spec.containers.iter().collect()),
    ];
    for (position, (list, containers)) in lists.iter().enumerate() {
        for (index, container) in containers.iter().enumerate().filter(|(_, c)| position == 1 || sidecar(c)) {
            let item = list.index(index);
            let at = item.field("ports");
            for (index, port) in container.ports.iter().flatten().enumerate() {
                let Some(port) = ports::host_port(port, host_network) else { continue };
                if taken.contains(&port) {
                    let text = format!("takes the node's port {port}, which the pod takes already");
                    return Err(at.index(index).fault(text));
                }
                taken.insert(port);
            }
        }
    }
    Ok(())
}

/// Requests and limits: quantities, not negative, requests within limits.
pub(super) fn resources(at: &At<'_>, requirements: Option<&ResourceRequirements>) -> Result<(), Fault> {
    let Some(requirements) = requirements else { return Ok(()) };
    let (limits, requests) = (at.field("limits"), at.field("requests"));
    quantities(&limits, requirements.limits.as_ref())?;
    quantities(&requests, requirements.requests.as_ref())?;
    for (name, request) in requirements.requests.iter().flatten() {
        let limit = requirements.limits.as_ref().and_then(|limits| limits.get(name));
        let (Ok(request), Some(Ok(limit))) =
            (Quantity::parse(&request.0), limit.map(|limit| Quantity::parse(&limit.0)))
        else {
            continue;
        };
        let at = requests.field(name);
        if request > limit {
            return Err(at.fault(format!("{request} is more than the limit, {limit}")));
        }
        let exact = !name.starts_with("hugepages-") || request == limit;
        at.require(exact, "must be the limit: huge pages cannot be promised in part")?;
    }
    Ok(())
}

/// A map of resources: known names, quantities that are not negative.
pub(super) fn quantities(at: &At<'_>, list: Option<&ResourceList>) -> Result<(), Fault> {
    for (name, text) in list.into_iter().flatten() {
        let at = at.field(name);
        let standard =
            matches!(name.as_str(), "cpu" | "memory" | "ephemeral-storage") || name.starts_with("hugepages-");
        let extended = name.contains('/') && is_qualified_name(name);
        let rule =
            "must be cpu, memory, ephemeral-storage, hugepages-<size> or a name such as example.com/device";
        at.require(standard || extended, rule)?;
        let quantity = Quantity::parse(&text.0).map_err(|error| at.fault(error.to_string()))?;
        at.require(!quantity.is_negative(), "must not be negative")?;
    }
    Ok(())
}
