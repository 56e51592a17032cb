//! What a pod may ask for and this release does not do. Refusing it by name beats doing half of it silently; each later
//! step takes lines out of here.

use k8s_openapi::api::core::v1::{Container, Pod, Volume};

/// Names of the fields that this release cannot do; empty for a pod that it can run as asked.
pub fn unsupported(pod: &Pod) -> Vec<String> {
    let Some(spec) = &pod.spec else { return Vec::new() };
    let mut found = Vec::new();
    let mut note = |present: bool, name: &str| {
        if present {
            found.push(name.to_owned());
        }
    };
    note(spec.ephemeral_containers.as_ref().is_some_and(|list| !list.is_empty()), "ephemeralContainers");
    note(spec.runtime_class_name.is_some(), "runtimeClassName");
    note(spec.host_users == Some(false), "hostUsers false");
    note(spec.resource_claims.as_ref().is_some_and(|list| !list.is_empty()), "resourceClaims");
    for container in spec.init_containers.iter().flatten().chain(&spec.containers) {
        found.extend(
            of_container(container).into_iter().map(|field| format!("{field} of {}", container.name)),
        );
    }
    for volume in spec.volumes.iter().flatten().filter(|volume| !is_built(volume)) {
        found.push(format!("the kind of volume {}", volume.name));
    }
    found
}

fn of_container(container: &Container) -> Vec<&'static str> {
    let mut found = Vec::new();
    let mut note = |present: bool, name| {
        if present {
            found.push(name);
        }
    };
    note(container.volume_devices.as_ref().is_some_and(|list| !list.is_empty()), "volumeDevices");
    note(container.restart_policy_rules.as_ref().is_some_and(|list| !list.is_empty()), "restartPolicyRules");
    found
}

fn is_built(volume: &Volume) -> bool {
    volume.host_path.is_some() || volume.empty_dir.is_some() || volume.downward_api.is_some()
}
