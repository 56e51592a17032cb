//! What a container runtime can do that not every one can, and what pods need of it.
//!
//! Must never be guessed: a runtime that does not tell cannot.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Pod, VolumeMount};

use crate::admission::Rejection;
use crate::spec;

/// Name of the handler that pods without a runtime class have.
pub const DEFAULT_HANDLER: &str = "";

/// What the runtime says of itself (CRI `StatusResponse`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuntimeFeatures {
    /// It can give a container no other groups than its pod asks for.
    pub supplemental_groups_policy: bool,
    /// By handler: whether it makes mounts read-only in all their depth.
    pub recursive_read_only: BTreeMap<String, bool>,
}

impl RuntimeFeatures {
    /// Whether pods with this handler can have mounts that are read-only in all their depth.
    pub fn recursive_read_only(&self, handler: &str) -> bool {
        self.recursive_read_only.get(handler).copied().unwrap_or(false)
    }
}

/// Whether anything of `pod` depends on what the runtime can do.
pub fn depends_on_runtime(pod: &Pod) -> bool {
    let recursive = |container: &Container| {
        container.volume_mounts.iter().flatten().any(|mount| wish(mount) != Wish::Plain)
    };
    is_strict(pod)
        || spec::containers(pod).iter().any(|found| recursive(found.container))
        || spec::ephemeral(pod).iter().any(|found| recursive(&found.container))
}

/// Takes or rejects a pod that comes for the first time.
///
/// # Errors
/// Why a node with such a runtime does not take it, in the kubelet's words.
pub fn admit(pod: &Pod, features: &RuntimeFeatures) -> Result<(), Rejection> {
    if is_strict(pod) && !features.supplemental_groups_policy {
        let text = "SupplementalGroupsPolicy=Strict is not supported in this node";
        return Err(Rejection::new("SupplementalGroupsPolicyNotSupported", text));
    }
    Ok(())
}

/// Whether a mount is made read-only in all its depth, where the runtime can do that or cannot. `None`: it must be, and the
/// runtime cannot.
pub fn is_recursive_read_only(mount: &VolumeMount, supported: bool) -> Option<bool> {
    match wish(mount) {
        Wish::Plain => Some(false),
        Wish::IfPossible => Some(supported),
        Wish::Enabled => supported.then_some(true),
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Wish {
    Plain,
    IfPossible,
    Enabled,
}

fn wish(mount: &VolumeMount) -> Wish {
    match mount.recursive_read_only.as_deref() {
        Some("IfPossible") => Wish::IfPossible,
        Some("Enabled") => Wish::Enabled,
        _ => Wish::Plain,
    }
}

fn is_strict(pod: &Pod) -> bool {
    let security = pod.spec.as_ref().and_then(|spec| spec.security_context.as_ref());
    security.and_then(|security| security.supplemental_groups_policy.as_deref()) == Some("Strict")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(spec: &Value) -> Pod {
        let mut spec = spec.clone();
        if spec.get("containers").is_none() {
            spec["containers"] = json!([{"name": "c"}]);
        }
        serde_json::from_value(json!({"spec": spec})).unwrap()
    }

    fn mount(mode: Option<&str>) -> VolumeMount {
        VolumeMount { recursive_read_only: mode.map(ToOwned::to_owned), ..Default::default() }
    }

    #[test]
    fn strict_groups_need_a_runtime_that_can() {
        let table = [
            (Some("Strict"), false, false),
            (Some("Strict"), true, true),
            (Some("Merge"), false, true),
            (None, false, true),
        ];
        for (policy, can, taken) in table {
            let pod = pod(&json!({"securityContext": {"supplementalGroupsPolicy": policy}}));
            let features = RuntimeFeatures { supplemental_groups_policy: can, ..Default::default() };
            let answer = admit(&pod, &features);
            assert_eq!(answer.is_ok(), taken, "{policy:?} {can}");
            assert_eq!(depends_on_runtime(&pod), policy == Some("Strict"));
            if let Err(rejection) = answer {
                assert_eq!(rejection.reason, "SupplementalGroupsPolicyNotSupported");
            }
        }
    }

    #[test]
    fn a_mount_is_read_only_in_depth_as_far_as_the_runtime_goes() {
        let table = [
            (None, false, Some(false)),
            (None, true, Some(false)),
            (Some("Disabled"), true, Some(false)),
            (Some("IfPossible"), false, Some(false)),
            (Some("IfPossible"), true, Some(true)),
            (Some("Enabled"), false, None),
            (Some("Enabled"), true, Some(true)),
        ];
        for (mode, supported, result) in table {
            assert_eq!(is_recursive_read_only(&mount(mode), supported), result, "{mode:?} {supported}");
        }
    }

    #[test]
    fn the_pods_handler_counts() {
        let features = |handlers: &[(&str, bool)]| RuntimeFeatures {
            recursive_read_only: handlers.iter().map(|(name, can)| ((*name).to_owned(), *can)).collect(),
            ..Default::default()
        };
        let two = features(&[(DEFAULT_HANDLER, true), ("runc", false)]);
        assert_eq!(
            [DEFAULT_HANDLER, "runc", "kata"].map(|name| two.recursive_read_only(name)),
            [true, false, false]
        );
        assert!(!features(&[("runc", true)]).recursive_read_only(DEFAULT_HANDLER), "not told");
    }

    #[test]
    fn a_mount_of_an_init_container_counts_too() {
        let mounts = |mode: &str| json!([{"name": "v", "mountPath": "/v", "readOnly": true, "recursiveReadOnly": mode}]);
        let init = pod(&json!({"initContainers": [{"name": "i", "volumeMounts": mounts("IfPossible")}]}));
        assert!(depends_on_runtime(&init));
        let plain = pod(&json!({"containers": [{"name": "c", "volumeMounts": mounts("Disabled")}]}));
        assert!(!depends_on_runtime(&plain));
    }
}
