//! What a pod's spec says about each container: its kind and its restart policy.
//!
//! Owns the order in which containers are looked at everywhere: init containers first, then app containers, each in
//! spec order. Must never look at what runs.

use std::borrow::Cow;

use k8s_openapi::api::core::v1::{Container, EphemeralContainer, Pod};

use crate::names;
use crate::phase::Phase;

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
    /// One of `spec.ephemeralContainers`, for people who look at a running pod (KEP 277): runs once, and counts for nothing.
    Ephemeral,
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

/// An ephemeral container, as any other.
#[derive(Clone, Debug, PartialEq)]
pub struct Ephemeral {
    /// As the pod asks for it; without what the API does not let it have.
    pub container: Container,
    /// The container whose processes it sees; `None`: its own.
    pub target: Option<String>,
}

impl Ephemeral {
    /// With its place among the pod's containers.
    pub fn as_spec(&self) -> SpecContainer<'_> {
        SpecContainer {
            container: &self.container,
            kind: ContainerKind::Ephemeral,
            restart_policy: RestartPolicy::Never,
        }
    }

    fn new(asked: &EphemeralContainer) -> Self {
        let asked = asked.clone();
        let container = Container {
            name: asked.name,
            image: asked.image,
            image_pull_policy: asked.image_pull_policy,
            command: asked.command,
            args: asked.args,
            working_dir: asked.working_dir,
            env: asked.env,
            env_from: asked.env_from,
            resources: asked.resources,
            volume_mounts: asked.volume_mounts,
            volume_devices: asked.volume_devices,
            security_context: asked.security_context,
            termination_message_path: asked.termination_message_path,
            termination_message_policy: asked.termination_message_policy,
            stdin: asked.stdin,
            stdin_once: asked.stdin_once,
            tty: asked.tty,
            ..Default::default()
        };
        Self { container, target: asked.target_container_name.filter(|target| !target.is_empty()) }
    }
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

/// The pod's ephemeral containers, in spec order.
pub fn ephemeral(pod: &Pod) -> Vec<Ephemeral> {
    let asked = pod.spec.iter().flat_map(|spec| spec.ephemeral_containers.iter().flatten());
    asked.map(Ephemeral::new).collect()
}

/// The container of this name, of whatever kind.
pub fn container<'a>(pod: &'a Pod, name: &str) -> Option<Cow<'a, Container>> {
    let lasting = containers(pod).into_iter().find(|found| found.name() == name);
    let passing = || ephemeral(pod).into_iter().find(|found| found.container.name == name);
    lasting.map(|found| Cow::Borrowed(found.container)).or_else(|| Some(Cow::Owned(passing()?.container)))
}

/// Names of the Secrets that the pod's images may be pulled with.
pub fn pull_secrets(pod: &Pod) -> Vec<String> {
    let secrets = pod.spec.iter().flat_map(|spec| spec.image_pull_secrets.iter().flatten());
    secrets.map(|secret| secret.name.clone()).collect()
}

/// Whether the pod comes from a source of this node and not from the API server.
pub fn is_static(pod: &Pod) -> bool {
    let source = pod.metadata.annotations.as_ref().and_then(|all| all.get(names::CONFIG_SOURCE));
    source.is_some_and(|source| source != "api")
}

/// The phase that the API server has of the pod, if that is final: nothing of it runs again, whatever else is known.
pub fn final_phase(pod: &Pod) -> Option<Phase> {
    let phase = Phase::parse(pod.status.as_ref()?.phase.as_deref()?)?;
    phase.is_final().then_some(phase)
}

/// Whether the pod is being deleted in the API server.
pub fn is_deleting(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some()
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
    fn an_ephemeral_container_is_no_other_and_has_neither_probes_nor_hooks() {
        let pod: Pod = serde_json::from_value(serde_json::json!({"spec": {
            "containers": [{"name": "a"}],
            "ephemeralContainers": [
                {"name": "e", "image": "bb:1", "command": ["sh"], "stdin": true, "tty": true, "targetContainerName": "a",
                 "livenessProbe": {}, "lifecycle": {}, "ports": [{"containerPort": 1}]},
                {"name": "f", "targetContainerName": ""}
            ]
        }}))
        .unwrap();
        assert_eq!(containers(&pod).len(), 1);
        let found = ephemeral(&pod);
        let e = &found[0].container;
        assert_eq!((e.image.as_deref(), e.stdin, e.tty), (Some("bb:1"), Some(true), Some(true)));
        assert!(e.liveness_probe.is_none() && e.lifecycle.is_none() && e.ports.is_none());
        let targets: Vec<_> = found.iter().map(|found| found.target.as_deref()).collect();
        assert_eq!(targets, [Some("a"), None]);
        let seen = found[0].as_spec();
        assert_eq!((seen.kind, seen.restart_policy), (ContainerKind::Ephemeral, RestartPolicy::Never));
        let names = ["a", "e", "x"].map(|name| super::container(&pod, name).map(|found| found.name.clone()));
        assert_eq!(names, [Some("a".to_owned()), Some("e".to_owned()), None]);
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
