//! What the API server writes into a pod's spec where it says nothing.

use k8s_openapi::api::core::v1::{
    Container, EmptyDirVolumeSource, HTTPGetAction, LifecycleHandler, ObjectFieldSelector, PodSpec, Probe,
    ResourceRequirements, Volume,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;

use crate::image::PullPolicy;
use crate::quantity::Quantity;
use crate::resources::ResourceList;

/// Mode of the files of downward API and projected volumes.
const FILE_MODE: i32 = 0o644;

/// Fills in the defaults of the whole spec.
pub(super) fn fill(spec: &mut PodSpec) {
    text(&mut spec.restart_policy, "Always");
    text(&mut spec.dns_policy, "ClusterFirst");
    text(&mut spec.scheduler_name, "default-scheduler");
    spec.termination_grace_period_seconds.get_or_insert(30);
    spec.enable_service_links.get_or_insert(true);
    spec.security_context.get_or_insert_default();
    let host_network = spec.host_network == Some(true);
    for container in spec.init_containers.iter_mut().flatten().chain(&mut spec.containers) {
        fill_container(container);
        for port in container.ports.iter_mut().flatten().filter(|_| host_network) {
            if port.host_port.unwrap_or(0) == 0 {
                port.host_port = Some(port.container_port);
            }
        }
    }
    for volume in spec.volumes.iter_mut().flatten() {
        fill_volume(volume);
    }
    if let Some(overhead) = &mut spec.overhead {
        canonical(overhead);
    }
    if let Some(resources) = &mut spec.resources {
        // Requests of the pod as a whole follow from its containers': they are not simply its limits.
        resources.limits.iter_mut().chain(&mut resources.requests).for_each(canonical);
    }
}

fn fill_container(container: &mut Container) {
    let policy = PullPolicy::default_for(container.image.as_deref().unwrap_or(""));
    text(&mut container.image_pull_policy, policy.as_str());
    text(&mut container.termination_message_path, "/dev/termination-log");
    text(&mut container.termination_message_policy, "File");
    fill_resources(container.resources.get_or_insert_default());
    for port in container.ports.iter_mut().flatten() {
        text(&mut port.protocol, "TCP");
    }
    for source in container.env.iter_mut().flatten().filter_map(|var| var.value_from.as_mut()) {
        source.field_ref.iter_mut().for_each(fill_field);
    }
    let probes =
        [&mut container.startup_probe, &mut container.liveness_probe, &mut container.readiness_probe];
    for probe in probes.into_iter().flatten() {
        fill_probe(probe);
    }
    if let Some(lifecycle) = &mut container.lifecycle {
        for hook in [&mut lifecycle.post_start, &mut lifecycle.pre_stop].into_iter().flatten() {
            fill_hook(hook);
        }
    }
}

fn fill_resources(resources: &mut ResourceRequirements) {
    resources.limits.iter_mut().chain(&mut resources.requests).for_each(canonical);
    if let Some(limits) = &resources.limits {
        let requests = resources.requests.get_or_insert_default();
        for (name, limit) in limits {
            requests.entry(name.clone()).or_insert_with(|| limit.clone());
        }
    }
}

/// Quantities as the API server prints them back.
fn canonical(list: &mut ResourceList) {
    for value in list.values_mut() {
        if let Ok(quantity) = Quantity::parse(&value.0) {
            *value = ApiQuantity(quantity.to_string());
        }
    }
}

fn fill_probe(probe: &mut Probe) {
    number(&mut probe.timeout_seconds, 1);
    number(&mut probe.period_seconds, 10);
    number(&mut probe.success_threshold, 1);
    number(&mut probe.failure_threshold, 3);
    probe.http_get.iter_mut().for_each(fill_http);
    if let Some(grpc) = &mut probe.grpc {
        grpc.service.get_or_insert_default();
    }
}

fn fill_hook(hook: &mut LifecycleHandler) {
    hook.http_get.iter_mut().for_each(fill_http);
}

fn fill_http(http: &mut HTTPGetAction) {
    text(&mut http.path, "/");
    text(&mut http.scheme, "HTTP");
}

fn fill_field(field: &mut ObjectFieldSelector) {
    text(&mut field.api_version, "v1");
}

fn fill_volume(volume: &mut Volume) {
    let bare = Volume { name: volume.name.clone(), ..Default::default() };
    if *volume == bare {
        volume.empty_dir = Some(EmptyDirVolumeSource::default());
    }
    if let Some(host) = &mut volume.host_path {
        host.type_.get_or_insert_default();
    }
    if let Some(limit) = volume.empty_dir.as_mut().and_then(|empty| empty.size_limit.as_mut())
        && let Ok(quantity) = Quantity::parse(&limit.0)
    {
        *limit = ApiQuantity(quantity.to_string());
    }
    if let Some(image) = &mut volume.image {
        let policy = PullPolicy::default_for(image.reference.as_deref().unwrap_or(""));
        text(&mut image.pull_policy, policy.as_str());
    }
    let mut files = Vec::new();
    if let Some(downward) = &mut volume.downward_api {
        downward.default_mode.get_or_insert(FILE_MODE);
        files.extend(downward.items.iter_mut().flatten());
    }
    if let Some(projected) = &mut volume.projected {
        projected.default_mode.get_or_insert(FILE_MODE);
        let sources =
            projected.sources.iter_mut().flatten().filter_map(|source| source.downward_api.as_mut());
        files.extend(sources.flat_map(|downward| downward.items.iter_mut().flatten()));
    }
    files.into_iter().filter_map(|file| file.field_ref.as_mut()).for_each(fill_field);
}

fn text(field: &mut Option<String>, default: &str) {
    if field.as_ref().is_none_or(String::is_empty) {
        *field = Some(default.to_owned());
    }
}

fn number(field: &mut Option<i32>, default: i32) {
    if field.unwrap_or(0) == 0 {
        *field = Some(default);
    }
}
