//! Security contexts of pods and containers, the container's value before the pod's.

use bulkhead_cri::wire;
use k8s_openapi::api::core::v1::{Container, Pod, SeccompProfile};

use super::{ConfigError, namespaces};

/// What a container must not see in /proc and /sys, unless it is privileged: what the kubelet and Docker mask.
const MASKED: [&str; 11] = [
    "/proc/asound",
    "/proc/acpi",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/sys/firmware",
    "/sys/devices/virtual/powercap",
];
/// What it may see but not write.
const READ_ONLY: [&str; 5] = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];

/// The user that the image names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImageUser {
    /// By number.
    pub uid: Option<i64>,
    /// By name.
    pub name: String,
}

/// The runtime's own seccomp profile.
pub(super) fn runtime_default() -> wire::SecurityProfile {
    profile(wire::security_profile::ProfileType::RuntimeDefault)
}

/// Whether any container of the pod is privileged: its sandbox then is too.
pub(super) fn any_privileged(pod: &Pod) -> bool {
    let Some(spec) = &pod.spec else { return false };
    spec.init_containers.iter().flatten().chain(&spec.containers).any(is_privileged)
}

fn is_privileged(container: &Container) -> bool {
    container.security_context.as_ref().and_then(|security| security.privileged).unwrap_or(false)
}

/// The security context of one container.
///
/// # Errors
/// When it must not run as root but would, or names a seccomp profile that is not known.
pub(super) fn container_security(
    pod: &Pod,
    container: &Container,
    image: &ImageUser,
) -> Result<wire::LinuxContainerSecurityContext, ConfigError> {
    let of_pod = pod.spec.as_ref().and_then(|spec| spec.security_context.clone()).unwrap_or_default();
    let own = container.security_context.clone().unwrap_or_default();
    let privileged = is_privileged(container);
    let user = own.run_as_user.or(of_pod.run_as_user);
    let group = own.run_as_group.or(of_pod.run_as_group);
    if own.run_as_non_root.or(of_pod.run_as_non_root) == Some(true) {
        must_not_be_root(container, user, image)?;
    }
    let capabilities = own.capabilities.unwrap_or_default();
    let seccomp = own.seccomp_profile.as_ref().or(of_pod.seccomp_profile.as_ref());
    let texts = |list: &[&str]| list.iter().map(|path| (*path).to_owned()).collect();
    Ok(wire::LinuxContainerSecurityContext {
        capabilities: Some(wire::Capability {
            add_capabilities: capabilities.add.unwrap_or_default(),
            drop_capabilities: capabilities.drop.unwrap_or_default(),
            ..Default::default()
        }),
        privileged,
        namespace_options: Some(namespaces(pod)),
        run_as_user: user.or(image.uid).map(|value| wire::Int64Value { value }),
        run_as_username: if user.is_none() { image.name.clone() } else { String::new() },
        run_as_group: group.map(|value| wire::Int64Value { value }),
        readonly_rootfs: own.read_only_root_filesystem.unwrap_or(false),
        supplemental_groups: of_pod.supplemental_groups.unwrap_or_default(),
        no_new_privs: own.allow_privilege_escalation == Some(false),
        masked_paths: if privileged { Vec::new() } else { texts(&MASKED) },
        readonly_paths: if privileged { Vec::new() } else { texts(&READ_ONLY) },
        seccomp: Some(seccomp_profile(container, privileged, seccomp)?),
        ..Default::default()
    })
}

fn must_not_be_root(container: &Container, user: Option<i64>, image: &ImageUser) -> Result<(), ConfigError> {
    let name = container.name.clone();
    match user.or(image.uid) {
        Some(0) => Err(ConfigError::RunsAsRoot { container: name }),
        None if image.name.is_empty() => Err(ConfigError::RunsAsRoot { container: name }),
        // The kubelet refuses this too: a name says nothing about its number.
        None => Err(ConfigError::UserNotNumeric { container: name, user: image.name.clone() }),
        Some(_) => Ok(()),
    }
}

fn seccomp_profile(
    container: &Container,
    privileged: bool,
    wanted: Option<&SeccompProfile>,
) -> Result<wire::SecurityProfile, ConfigError> {
    use wire::security_profile::ProfileType::{RuntimeDefault, Unconfined};
    if privileged {
        return Ok(profile(Unconfined));
    }
    match wanted.map(|profile| profile.type_.as_str()) {
        None | Some("Unconfined") => Ok(profile(Unconfined)),
        Some("RuntimeDefault") => Ok(profile(RuntimeDefault)),
        Some(other) => {
            Err(ConfigError::Seccomp { container: container.name.clone(), profile: other.to_owned() })
        }
    }
}

fn profile(kind: wire::security_profile::ProfileType) -> wire::SecurityProfile {
    wire::SecurityProfile { profile_type: kind.into(), localhost_ref: String::new() }
}
