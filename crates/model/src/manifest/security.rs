//! Security contexts of a manifest: profiles, sysctls and what does not exist on Linux.

use k8s_openapi::api::core::v1::{AppArmorProfile, Container, PodSpec, SeccompProfile, Sysctl};

use super::path::{At, Fault};
use super::text::{at_most, one_of};
use crate::confinement::profile_name_is_safe;

/// Most sysctls of a pod.
const MAX_SYSCTLS: usize = 100;
/// Longest name of a sysctl (the API's rule).
const MAX_SYSCTL_NAME: usize = 253;
const PROFILES: [&str; 3] = ["RuntimeDefault", "Unconfined", "Localhost"];

/// The pod's own context and that of each container.
pub(super) fn check(at: &At<'_>, spec: &PodSpec) -> Result<(), Fault> {
    if let Some(security) = &spec.security_context {
        let at = at.field("securityContext");
        at.field("windowsOptions").require(security.windows_options.is_none(), "cannot be set for Linux")?;
        let policy = security.supplemental_groups_policy.as_deref();
        one_of(&at.field("supplementalGroupsPolicy"), policy, &["Merge", "Strict"])?;
        sysctls(&at.field("sysctls"), security.sysctls.as_ref())?;
        seccomp(&at.field("seccompProfile"), security.seccomp_profile.as_ref())?;
        apparmor(&at.field("appArmorProfile"), security.app_armor_profile.as_ref())?;
    }
    for (list, containers) in [
        ("initContainers", spec.init_containers.as_deref()),
        ("containers", Some(spec.containers.as_slice())),
    ] {
        let list = at.field(list);
        for (index, container) in containers.into_iter().flatten().enumerate() {
            check_container(&list.index(index).field("securityContext"), spec, container)?;
        }
    }
    Ok(())
}

fn check_container(at: &At<'_>, spec: &PodSpec, container: &Container) -> Result<(), Fault> {
    let Some(security) = &container.security_context else { return Ok(()) };
    at.field("windowsOptions").require(security.windows_options.is_none(), "cannot be set for Linux")?;
    seccomp(&at.field("seccompProfile"), security.seccomp_profile.as_ref())?;
    apparmor(&at.field("appArmorProfile"), security.app_armor_profile.as_ref())?;
    let proc_mount = security.proc_mount.as_deref();
    one_of(&at.field("procMount"), proc_mount, &["Default", "Unmasked"])?;
    let shows_all = proc_mount == Some("Unmasked");
    let own_users = spec.host_users == Some(false);
    at.field("procMount").require(
        !shows_all || own_users,
        "can be Unmasked only with hostUsers false: what it shows is the node's otherwise",
    )?;
    let escalates = security.privileged == Some(true)
        || security
            .capabilities
            .iter()
            .flat_map(|c| c.add.iter().flatten())
            .any(|name| name.ends_with("SYS_ADMIN"));
    let contradiction = security.allow_privilege_escalation == Some(false) && escalates;
    at.field("allowPrivilegeEscalation")
        .require(!contradiction, "cannot be false for a container that is privileged or has CAP_SYS_ADMIN")
}

fn sysctls(at: &At<'_>, list: Option<&Vec<Sysctl>>) -> Result<(), Fault> {
    at_most(at, list, MAX_SYSCTLS)?;
    let mut seen = std::collections::BTreeSet::new();
    for (index, sysctl) in list.into_iter().flatten().enumerate() {
        let item = at.index(index);
        let at = item.field("name");
        let part = |part: &str| {
            !part.is_empty()
                && part
                    .bytes()
                    .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'_')
        };
        let right = sysctl.name.len() <= MAX_SYSCTL_NAME && sysctl.name.split(['.', '/']).all(part);
        at.require(
            right,
            "must be lower-case words with dots between them, such as net.ipv4.tcp_syncookies",
        )?;
        at.require(seen.insert(sysctl.name.replace('/', ".")), "is set twice")?;
    }
    Ok(())
}

fn seccomp(at: &At<'_>, profile: Option<&SeccompProfile>) -> Result<(), Fault> {
    let Some(profile) = profile else { return Ok(()) };
    one_of(&at.field("type"), Some(&profile.type_), &PROFILES)?;
    let name = profile.localhost_profile.as_deref();
    localhost(at, &profile.type_, name)?;
    let safe = name.is_none_or(profile_name_is_safe);
    at.field("localhostProfile").require(safe, "must be a path beneath the node's profiles, without `..`")
}

fn apparmor(at: &At<'_>, profile: Option<&AppArmorProfile>) -> Result<(), Fault> {
    let Some(profile) = profile else { return Ok(()) };
    one_of(&at.field("type"), Some(&profile.type_), &PROFILES)?;
    let name = profile.localhost_profile.as_deref();
    localhost(at, &profile.type_, name)?;
    let right = name.is_none_or(|name| name.trim() == name && name.len() <= 4095);
    at.field("localhostProfile").require(right, "must be a profile's name without white space around it")
}

fn localhost(at: &At<'_>, kind: &str, name: Option<&str>) -> Result<(), Fault> {
    at.field("type").require(!kind.is_empty(), "is missing")?;
    let named = name.is_some_and(|name| !name.is_empty());
    match kind {
        "Localhost" => {
            at.field("localhostProfile").require(named, "must name the profile when the type is Localhost")
        }
        _ => at.field("localhostProfile").require(name.is_none(), "can be set only with the type Localhost"),
    }
}
