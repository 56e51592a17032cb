//! What a CRI request asks for, in the policy's words. Where runtimes fill in what is missing, what they fill in counts.

use bulkhead_api::cri::v1::{
    Capability, ContainerConfig, CreateContainerRequest, NamespaceMode, NamespaceOption, PodSandboxConfig,
    RunPodSandboxRequest, SecurityProfile, security_profile::ProfileType,
};
use bulkhead_policy::{Asked, DeviceWish, HostNamespaces, LogFile, Look, Part, Pod, Profile, Wish};

/// Annotations with this beginning name CDI devices too; their values are lists of names.
const CDI_ANNOTATION: &str = "cdi.k8s.io/";

/// A request that has something to judge.
pub trait Wishes: Send {
    /// What it asks for. Never empty.
    fn wishes(&self, look: &Look<'_>) -> Vec<Wish>;
}

impl Wishes for RunPodSandboxRequest {
    fn wishes(&self, look: &Look<'_>) -> Vec<Wish> {
        let config = self.config.clone().unwrap_or_default();
        vec![sandbox(&config, look, "")]
    }
}

impl Wishes for CreateContainerRequest {
    /// The container, and the sandbox's configuration that comes with it: runtimes take names and folders from there.
    fn wishes(&self, look: &Look<'_>) -> Vec<Wish> {
        let config = self.config.clone().unwrap_or_default();
        let sandbox_config = self.sandbox_config.clone().unwrap_or_default();
        let sandbox = sandbox(&sandbox_config, look, &config.log_path);
        vec![container(&config, sandbox.pod.clone(), look), sandbox]
    }
}

fn sandbox(config: &PodSandboxConfig, look: &Look<'_>, log_path: &str) -> Wish {
    let metadata = config.metadata.clone().unwrap_or_default();
    let security = config.linux.clone().and_then(|linux| linux.security_context).unwrap_or_default();
    let log = LogFile { folder: look.log_folder(&config.log_directory), file: log_path.to_owned() };
    Wish {
        pod: Pod { namespace: metadata.namespace, name: metadata.name, uid: metadata.uid },
        part: Part::Sandbox,
        asked: Asked {
            privileged: security.privileged,
            host: host(security.namespace_options.as_ref()),
            devices: cdi_annotations(config.annotations.iter()),
            #[expect(deprecated, reason = "runtimes still read it")]
            seccomp: Some(seccomp(security.seccomp.as_ref(), &security.seccomp_profile_path)),
            app_armor: Some(app_armor(security.apparmor.as_ref(), "")),
            log: Some(log),
            ..Default::default()
        },
    }
}

fn container(config: &ContainerConfig, pod: Pod, look: &Look<'_>) -> Wish {
    let security = config.linux.clone().and_then(|linux| linux.security_context).unwrap_or_default();
    // An image mount has no source on the node.
    let sources = config.mounts.iter().filter(|mount| mount.image.is_none() || !mount.host_path.is_empty());
    let mounts = sources.map(|mount| look.mount(&pod.uid, &mount.host_path)).collect();
    let files = config.devices.iter().map(|device| DeviceWish::Path(look.mount(&pod.uid, &device.host_path)));
    let named = config.cdi_devices.iter().map(|device| DeviceWish::Cdi(device.name.clone()));
    let devices = files.chain(named).chain(cdi_annotations(config.annotations.iter())).collect();
    let Capability { add_capabilities, add_ambient_capabilities, .. } =
        security.capabilities.unwrap_or_default();
    let asked = Asked {
        privileged: security.privileged,
        host: host(security.namespace_options.as_ref()),
        mounts,
        devices,
        capabilities: [add_capabilities, add_ambient_capabilities].concat(),
        #[expect(deprecated, reason = "runtimes still read it")]
        seccomp: Some(seccomp(security.seccomp.as_ref(), &security.seccomp_profile_path)),
        #[expect(deprecated, reason = "runtimes still read it")]
        app_armor: Some(app_armor(security.apparmor.as_ref(), &security.apparmor_profile)),
        log: None,
    };
    let name = config.metadata.clone().unwrap_or_default().name;
    Wish { pod, part: Part::Container(name), asked }
}

fn host(options: Option<&NamespaceOption>) -> HostNamespaces {
    let Some(options) = options else { return HostNamespaces::default() };
    let node = |mode: i32| mode == i32::from(NamespaceMode::Node);
    HostNamespaces { network: node(options.network), pid: node(options.pid), ipc: node(options.ipc) }
}

fn cdi_annotations<'a>(annotations: impl Iterator<Item = (&'a String, &'a String)>) -> Vec<DeviceWish> {
    let cdi = annotations.filter(|(key, _)| key.starts_with(CDI_ANNOTATION));
    cdi.flat_map(|(_, names)| names.split(',')).map(|name| DeviceWish::Cdi(name.trim().to_owned())).collect()
}

/// Without a profile runtimes confine nothing, unless their own configuration says so.
fn seccomp(profile: Option<&SecurityProfile>, path: &str) -> Profile {
    named(profile, path).unwrap_or(Profile::Unconfined)
}

/// Without a profile runtimes take their own.
fn app_armor(profile: Option<&SecurityProfile>, name: &str) -> Profile {
    named(profile, name).unwrap_or(Profile::RuntimeDefault)
}

/// The profile, or else the old text for it: `runtime/default`, `unconfined`, `localhost/NAME`.
fn named(profile: Option<&SecurityProfile>, old: &str) -> Option<Profile> {
    if let Some(profile) = profile {
        return Some(match ProfileType::try_from(profile.profile_type) {
            Ok(ProfileType::RuntimeDefault) => Profile::RuntimeDefault,
            Ok(ProfileType::Localhost) => Profile::Localhost(profile.localhost_ref.clone()),
            // A kind that is not known may be anything.
            Ok(ProfileType::Unconfined) | Err(_) => Profile::Unconfined,
        });
    }
    match old {
        "" => None,
        "runtime/default" | "docker/default" => Some(Profile::RuntimeDefault),
        _ => Some(
            old.strip_prefix("localhost/")
                .map_or(Profile::Unconfined, |name| Profile::Localhost(name.to_owned())),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_what_runtimes_take() {
        let profile =
            |kind: ProfileType| SecurityProfile { profile_type: kind.into(), localhost_ref: "/k/x".into() };
        let local = || Profile::Localhost("/k/x".to_owned());
        assert_eq!(seccomp(None, ""), Profile::Unconfined);
        assert_eq!(app_armor(None, ""), Profile::RuntimeDefault);
        for (new, old, expected) in [
            (Some(ProfileType::RuntimeDefault), "unconfined", Profile::RuntimeDefault),
            (Some(ProfileType::Unconfined), "runtime/default", Profile::Unconfined),
            (Some(ProfileType::Localhost), "", local()),
            (None, "runtime/default", Profile::RuntimeDefault),
            (None, "docker/default", Profile::RuntimeDefault),
            (None, "unconfined", Profile::Unconfined),
            (None, "localhost//k/x", local()),
            (None, "anything", Profile::Unconfined),
        ] {
            assert_eq!(seccomp(new.map(profile).as_ref(), old), expected);
            assert_eq!(app_armor(new.map(profile).as_ref(), old), expected);
        }
        let unknown = SecurityProfile { profile_type: 77, localhost_ref: String::new() };
        assert_eq!(seccomp(Some(&unknown), ""), Profile::Unconfined);
    }

    #[test]
    fn annotations_ask_for_devices_too() {
        let annotations =
            [("cdi.k8s.io/x".to_owned(), "a.com/g=0, a.com/g=1".to_owned()), ("y".into(), "z".into())];
        let devices = cdi_annotations(annotations.iter().map(|(key, value)| (key, value)));
        assert_eq!(devices, ["a.com/g=0", "a.com/g=1"].map(|name| DeviceWish::Cdi(name.to_owned())));
    }
}
