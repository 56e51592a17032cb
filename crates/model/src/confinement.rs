//! How the kernel confines a pod's containers: seccomp, AppArmor, SELinux, and what of /proc is hidden.
//!
//! Owns which profile counts: the container's before the pod's, fields before the annotations of old. Must never build a
//! path into a place that the pod chose: a profile's name goes through [`profile_name_is_safe`].

use k8s_openapi::api::core::v1::{Container, Pod, SELinuxOptions};

use crate::spec;

/// Prefix of the annotations that named AppArmor profiles before the field existed; the container's name follows.
pub const APPARMOR_ANNOTATION: &str = "container.apparmor.security.beta.kubernetes.io/";

/// What the kernel can confine with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kernel {
    /// AppArmor is on.
    pub apparmor: bool,
}

/// A profile that confines a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Profile {
    /// The runtime's own.
    RuntimeDefault,
    /// None.
    Unconfined,
    /// The node's, by name: for seccomp a path beneath the node's profiles, for AppArmor a profile that was loaded.
    Localhost(String),
}

/// What this machine cannot do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// One word for `status.reason`.
    pub reason: &'static str,
    /// For people.
    pub message: String,
}

impl Profile {
    /// From a profile's fields. `None` for a type that the API does not know, or `Localhost` without a name.
    fn of(kind: &str, name: Option<&String>) -> Option<Self> {
        match kind {
            "RuntimeDefault" => Some(Self::RuntimeDefault),
            "Unconfined" => Some(Self::Unconfined),
            "Localhost" => Some(Self::Localhost(name?.clone())),
            _ => None,
        }
    }

    /// From an annotation's value.
    fn of_annotation(text: &str) -> Option<Self> {
        match text {
            "runtime/default" => Some(Self::RuntimeDefault),
            "unconfined" => Some(Self::Unconfined),
            _ => text.strip_prefix("localhost/").map(|name| Self::Localhost(name.to_owned())),
        }
    }
}

/// The seccomp profile of one container; `None` where neither it nor its pod names one.
pub fn seccomp(pod: &Pod, container: &Container) -> Option<Profile> {
    let of_pod = pod.spec.as_ref().and_then(|spec| spec.security_context.as_ref());
    let own = container.security_context.as_ref().and_then(|security| security.seccomp_profile.as_ref());
    let named = own.or(of_pod.and_then(|security| security.seccomp_profile.as_ref()))?;
    Profile::of(&named.type_, named.localhost_profile.as_ref())
}

/// The AppArmor profile of one container; `None` where nothing names one.
pub fn apparmor(pod: &Pod, container: &Container) -> Option<Profile> {
    let own = container.security_context.as_ref().and_then(|security| security.app_armor_profile.as_ref());
    if let Some(named) = own {
        return Profile::of(&named.type_, named.localhost_profile.as_ref());
    }
    let annotations = pod.metadata.annotations.as_ref();
    let annotation = annotations.and_then(|all| all.get(&format!("{APPARMOR_ANNOTATION}{}", container.name)));
    if let Some(text) = annotation {
        return Profile::of_annotation(text);
    }
    let of_pod = pod.spec.as_ref().and_then(|spec| spec.security_context.as_ref());
    let named = of_pod.and_then(|security| security.app_armor_profile.as_ref())?;
    Profile::of(&named.type_, named.localhost_profile.as_ref())
}

/// The SELinux label of one container.
pub fn selinux<'a>(pod: &'a Pod, container: &'a Container) -> Option<&'a SELinuxOptions> {
    let own = container.security_context.as_ref().and_then(|security| security.se_linux_options.as_ref());
    own.or_else(|| pod_selinux(pod))
}

/// The SELinux label of the pod as a whole.
pub fn pod_selinux(pod: &Pod) -> Option<&SELinuxOptions> {
    pod.spec.as_ref()?.security_context.as_ref()?.se_linux_options.as_ref()
}

/// Whether a seccomp profile's name stays beneath the folder that it is looked for in.
pub fn profile_name_is_safe(name: &str) -> bool {
    !name.is_empty()
        && name.len() < 4096
        && !name.starts_with('/')
        && !name.contains('\0')
        && name.split('/').all(|part| part != "..")
}

/// Refuses a pod that asks for a confinement that this kernel has not. Labels of SELinux are no such thing: where it is off they
/// mean nothing, as with the kubelet, and pods for any cluster carry them.
///
/// # Errors
/// What is missing, and for which container.
pub fn check(pod: &Pod, kernel: Kernel) -> Result<(), Refusal> {
    for found in spec::containers(pod) {
        let name = found.name();
        let confined = !matches!(apparmor(pod, found.container), None | Some(Profile::Unconfined));
        if confined && !kernel.apparmor {
            let message =
                format!("container {name} asks for an AppArmor profile, and AppArmor is off on this node");
            return Err(Refusal { reason: "AppArmor", message });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(pod_security: &Value, security: &Value, annotation: Option<&str>) -> Pod {
        let annotations: std::collections::BTreeMap<_, _> =
            annotation.map(|text| (format!("{APPARMOR_ANNOTATION}c"), text)).into_iter().collect();
        serde_json::from_value(json!({
            "metadata": {"annotations": annotations},
            "spec": {"securityContext": pod_security, "containers": [{"name": "c", "securityContext": security}]}
        }))
        .unwrap()
    }

    #[test]
    fn the_container_comes_before_the_annotation_and_that_before_the_pod() {
        use Profile::{Localhost, RuntimeDefault, Unconfined};
        let field = |kind: &str| json!({"appArmorProfile": {"type": kind}});
        let local = json!({"appArmorProfile": {"type": "Localhost", "localhostProfile": "p"}});
        let none = json!({});
        let table = [
            (pod(&none, &none, None), None),
            (pod(&field("RuntimeDefault"), &none, None), Some(RuntimeDefault)),
            (pod(&field("RuntimeDefault"), &none, Some("unconfined")), Some(Unconfined)),
            (pod(&none, &local, Some("unconfined")), Some(Localhost("p".into()))),
            (pod(&none, &none, Some("localhost/q")), Some(Localhost("q".into()))),
            (pod(&none, &none, Some("runtime/default")), Some(RuntimeDefault)),
            (pod(&none, &none, Some("nonsense")), None),
        ];
        for (pod, expected) in table {
            assert_eq!(apparmor(&pod, &pod.spec.as_ref().unwrap().containers[0]), expected, "{pod:?}");
        }
        let seccomp_field = |kind: &str, name: Option<&str>| json!({"seccompProfile": {"type": kind, "localhostProfile": name}});
        let table = [
            (pod(&none, &none, None), None),
            (pod(&seccomp_field("RuntimeDefault", None), &none, None), Some(RuntimeDefault)),
            (
                pod(
                    &seccomp_field("RuntimeDefault", None),
                    &seccomp_field("Localhost", Some("a/b.json")),
                    None,
                ),
                Some(Localhost("a/b.json".into())),
            ),
        ];
        for (pod, expected) in table {
            assert_eq!(seccomp(&pod, &pod.spec.as_ref().unwrap().containers[0]), expected, "{pod:?}");
        }
    }

    #[test]
    fn names_of_profiles_stay_beneath_their_folder() {
        for (name, safe) in [
            ("a.json", true),
            ("dir/a.json", true),
            ("..a", true),
            ("", false),
            ("/a", false),
            ("../a", false),
            ("a/../../b", false),
            ("a/..", false),
            ("a\0", false),
        ] {
            assert_eq!(profile_name_is_safe(name), safe, "{name:?}");
        }
    }
}
