//! Security contexts of pods and containers, the container's value before the pod's.

use bulkhead_cri::wire;
use bulkhead_model::confinement::{self, Profile};
use k8s_openapi::api::core::v1::{Container, Pod, SELinuxOptions};

use super::{ConfigError, NodeTraits, namespaces};

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
    node: &NodeTraits,
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
    let hides_nothing = privileged || own.proc_mount.as_deref() == Some("Unmasked");
    let texts = |list: &[&str]| match hides_nothing {
        true => Vec::new(),
        false => list.iter().map(|path| (*path).to_owned()).collect(),
    };
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
        // Who may write to the pod's volumes is in their group.
        supplemental_groups: of_pod
            .supplemental_groups
            .into_iter()
            .flatten()
            .chain(of_pod.fs_group)
            .collect(),
        supplemental_groups_policy: match of_pod.supplemental_groups_policy.as_deref() {
            Some("Strict") => wire::SupplementalGroupsPolicy::Strict.into(),
            _ => wire::SupplementalGroupsPolicy::Merge.into(),
        },
        no_new_privs: own.allow_privilege_escalation == Some(false),
        masked_paths: texts(&MASKED),
        readonly_paths: texts(&READ_ONLY),
        seccomp: Some(seccomp_profile(pod, container, node)?),
        // Without one the runtime takes its own where AppArmor is on.
        apparmor: confinement::apparmor(pod, container).map(named_profile),
        selinux_options: confinement::selinux(pod, container).map(selinux_options),
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

/// A label as the CRI has it.
pub(super) fn selinux_options(options: &SELinuxOptions) -> wire::SeLinuxOption {
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    wire::SeLinuxOption {
        user: text(&options.user),
        role: text(&options.role),
        r#type: text(&options.type_),
        level: text(&options.level),
    }
}

fn seccomp_profile(
    pod: &Pod,
    container: &Container,
    node: &NodeTraits,
) -> Result<wire::SecurityProfile, ConfigError> {
    use wire::security_profile::ProfileType::{Localhost, RuntimeDefault, Unconfined};
    if is_privileged(container) {
        return Ok(profile(Unconfined));
    }
    match confinement::seccomp(pod, container) {
        Some(Profile::Localhost(name)) if confinement::profile_name_is_safe(&name) => {
            let path = node.seccomp_dir.join(name).to_string_lossy().into_owned();
            Ok(wire::SecurityProfile { profile_type: Localhost.into(), localhost_ref: path })
        }
        Some(Profile::Localhost(name)) => Err(ConfigError::Seccomp {
            container: container.name.clone(),
            profile: name,
            folder: node.seccomp_dir.clone(),
        }),
        Some(named) => Ok(named_profile(named)),
        None if node.seccomp_default => Ok(profile(RuntimeDefault)),
        None => Ok(profile(Unconfined)),
    }
}

fn named_profile(named: Profile) -> wire::SecurityProfile {
    use wire::security_profile::ProfileType::{Localhost, RuntimeDefault, Unconfined};
    match named {
        Profile::RuntimeDefault => profile(RuntimeDefault),
        Profile::Unconfined => profile(Unconfined),
        Profile::Localhost(name) => {
            wire::SecurityProfile { profile_type: Localhost.into(), localhost_ref: name }
        }
    }
}

fn profile(kind: wire::security_profile::ProfileType) -> wire::SecurityProfile {
    wire::SecurityProfile { profile_type: kind.into(), localhost_ref: String::new() }
}
