//! What a pod's spec says about each container: its kind and its restart policy.
//!
//! Owns the order in which containers are looked at everywhere: init containers first, then app containers, each in
//! spec order. Must never look at what runs.

use k8s_openapi::api::core::v1::{Container, Pod};

use crate::names;

/// What a container is for. From the list it stands in and, for init containers, its own `restartPolicy`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ContainerKind {
    /// Runs to its end before the next one starts.
    Init,
    /// An init container with `restartPolicy: Always`: starts in the init order, then runs as long as the pod.
    Sidecar,
    /// One of `spec.containers`.
    #[default]
    App,
}

/// When a container that ended runs again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RestartPolicy {
    /// Whatever its exit code.
    #[default]
    Always,
    /// Only when its exit code was not 0.
    OnFailure,
    /// Not at all.
    Never,
}

/// One container of a pod with what its place in the spec means.
#[derive(Clone, Copy, Debug)]
pub struct SpecContainer<'a> {
    /// As the pod asks for it.
    pub container: &'a Container,
    /// What it is for.
    pub kind: ContainerKind,
    /// Its own policy if it has one, else the pod's. A sidecar's is always [`RestartPolicy::Always`].
    pub restart_policy: RestartPolicy,
}

impl SpecContainer<'_> {
    /// The container's name.
    pub fn name(&self) -> &str {
        &self.container.name
    }
}

impl RestartPolicy {
    /// Reads the API's text. `None` for text that the API does not know.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "Always" => Some(Self::Always),
            "OnFailure" => Some(Self::OnFailure),
            "Never" => Some(Self::Never),
            _ => None,
        }
    }

    /// The API's text.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Always => "Always",
            Self::OnFailure => "OnFailure",
            Self::Never => "Never",
        }
    }

    /// Whether a container that ended with `exit_code` runs again.
    pub fn restarts_after(self, exit_code: i32) -> bool {
        match self {
            Self::Always => true,
            Self::OnFailure => exit_code != 0,
            Self::Never => false,
        }
    }
}

/// The pod's own restart policy; the API's default, `Always`, when it names none or one that is unknown.
pub fn pod_restart_policy(pod: &Pod) -> RestartPolicy {
    let policy = pod.spec.as_ref().and_then(|spec| spec.restart_policy.as_deref());
    policy.and_then(RestartPolicy::parse).unwrap_or_default()
}

/// Every container of the pod but the ephemeral ones: init containers and sidecars in spec order, then app containers.
pub fn containers(pod: &Pod) -> Vec<SpecContainer<'_>> {
    let Some(spec) = &pod.spec else { return Vec::new() };
    let pod_policy = pod_restart_policy(pod);
    let own = |container: &Container| container.restart_policy.as_deref().and_then(RestartPolicy::parse);
    let init = spec.init_containers.iter().flatten().map(|container| match own(container) {
        Some(RestartPolicy::Always) => {
            SpecContainer { container, kind: ContainerKind::Sidecar, restart_policy: RestartPolicy::Always }
        }
        policy => {
            // The pod's `Always` is about app containers: an init container that ended well is done.
            let policy = match policy.unwrap_or(pod_policy) {
                RestartPolicy::Never => RestartPolicy::Never,
                RestartPolicy::Always | RestartPolicy::OnFailure => RestartPolicy::OnFailure,
            };
            SpecContainer { container, kind: ContainerKind::Init, restart_policy: policy }
        }
    });
    let app = spec.containers.iter().map(|container| SpecContainer {
        container,
        kind: ContainerKind::App,
        restart_policy: own(container).unwrap_or(pod_policy),
    });
    init.chain(app).collect()
}

/// Whether the pod comes from a source of this node and not from the API server.
pub fn is_static(pod: &Pod) -> bool {
    let source = pod.metadata.annotations.as_ref().and_then(|all| all.get(names::CONFIG_SOURCE));
    source.is_some_and(|source| source != "api")
}

/// Whether the pod uses the node's own network namespace.
pub fn host_network(pod: &Pod) -> bool {
    pod.spec.as_ref().and_then(|spec| spec.host_network).unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::PodSpec;

    use super::*;

    fn container(name: &str, policy: Option<&str>) -> Container {
        Container { name: name.into(), restart_policy: policy.map(Into::into), ..Default::default() }
    }

    #[test]
    fn kinds_and_policies_follow_the_list_the_container_and_the_pod() {
        use ContainerKind::{App, Init, Sidecar};
        use RestartPolicy::{Always, Never, OnFailure};
        // (pod's policy, expected policies of: init, sidecar, app, app with its own Never)
        let table = [
            (None, [OnFailure, Always, Always, Never]),
            (Some("Always"), [OnFailure, Always, Always, Never]),
            (Some("OnFailure"), [OnFailure, Always, OnFailure, Never]),
            (Some("Never"), [Never, Always, Never, Never]),
            (Some("nonsense"), [OnFailure, Always, Always, Never]),
        ];
        for (policy, expected) in table {
            let pod = Pod {
                spec: Some(PodSpec {
                    restart_policy: policy.map(Into::into),
                    init_containers: Some(vec![container("i", None), container("s", Some("Always"))]),
                    containers: vec![container("a", None), container("b", Some("Never"))],
                    ..Default::default()
                }),
                ..Default::default()
            };
            let seen: Vec<_> = containers(&pod).iter().map(|c| (c.kind, c.restart_policy)).collect();
            let kinds = [Init, Sidecar, App, App];
            let expected: Vec<_> = kinds.into_iter().zip(expected).collect();
            assert_eq!(seen, expected, "pod policy {policy:?}");
        }
        assert!(containers(&Pod::default()).is_empty());
    }

    #[test]
    fn policies_decide_by_exit_code_and_keep_their_names() {
        for (policy, name, zero, one) in [
            (RestartPolicy::Always, "Always", true, true),
            (RestartPolicy::OnFailure, "OnFailure", false, true),
            (RestartPolicy::Never, "Never", false, false),
        ] {
            assert_eq!(policy.as_str(), name);
            assert_eq!(RestartPolicy::parse(name), Some(policy));
            assert_eq!((policy.restarts_after(0), policy.restarts_after(1)), (zero, one), "{name}");
        }
    }
}
