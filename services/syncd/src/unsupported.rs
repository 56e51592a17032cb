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
    note(spec.host_aliases.as_ref().is_some_and(|list| !list.is_empty()), "hostAliases");
    note(spec.dns_config.is_some(), "dnsConfig");
    note(spec.dns_policy.as_deref() == Some("None"), "dnsPolicy None");
    note(spec.subdomain.as_ref().is_some_and(|name| !name.is_empty()), "subdomain");
    note(spec.active_deadline_seconds.is_some(), "activeDeadlineSeconds");
    note(spec.ephemeral_containers.as_ref().is_some_and(|list| !list.is_empty()), "ephemeralContainers");
    note(spec.runtime_class_name.is_some(), "runtimeClassName");
    note(spec.host_users == Some(false), "hostUsers false");
    note(spec.resource_claims.as_ref().is_some_and(|list| !list.is_empty()), "resourceClaims");
    if let Some(security) = &spec.security_context {
        note(security.sysctls.as_ref().is_some_and(|list| !list.is_empty()), "securityContext.sysctls");
        note(security.fs_group.is_some(), "securityContext.fsGroup");
        note(security.se_linux_options.is_some(), "securityContext.seLinuxOptions");
        note(security.app_armor_profile.is_some(), "securityContext.appArmorProfile");
    }
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
    note(container.lifecycle.is_some(), "lifecycle");
    note(container.volume_devices.as_ref().is_some_and(|list| !list.is_empty()), "volumeDevices");
    note(container.restart_policy_rules.as_ref().is_some_and(|list| !list.is_empty()), "restartPolicyRules");
    for mount in container.volume_mounts.iter().flatten() {
        note(mount.sub_path.as_ref().is_some_and(|path| !path.is_empty()), "volumeMounts.subPath");
        note(mount.sub_path_expr.as_ref().is_some_and(|path| !path.is_empty()), "volumeMounts.subPathExpr");
        note(
            mount.recursive_read_only.as_deref().is_some_and(|v| v != "Disabled"),
            "volumeMounts.recursiveReadOnly",
        );
        note(
            mount.mount_propagation.as_deref().is_some_and(|v| v != "None"),
            "volumeMounts.mountPropagation",
        );
    }
    let resources = container.resources.as_ref();
    let names = resources.and_then(|r| r.limits.as_ref()).into_iter().flatten().map(|(name, _)| name);
    for name in names {
        note(name.starts_with("hugepages-"), "hugepages");
    }
    if let Some(security) = &container.security_context {
        note(security.se_linux_options.is_some(), "securityContext.seLinuxOptions");
        note(security.app_armor_profile.is_some(), "securityContext.appArmorProfile");
        note(security.proc_mount.as_deref().is_some_and(|v| v != "Default"), "securityContext.procMount");
    }
    found
}

fn is_built(volume: &Volume) -> bool {
    let medium = volume.empty_dir.as_ref().and_then(|dir| dir.medium.as_deref());
    volume.host_path.is_some()
        || (volume.empty_dir.is_some() && medium.is_none_or(|medium| medium.is_empty() || medium == "Memory"))
}
