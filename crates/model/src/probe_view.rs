//! What prober is given of a pod: enough to probe it.
//!
//! Owns the choice of fields. Must never carry environment, volumes, images, labels or annotations.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;

use crate::grace;
use crate::probe::{ProbeKind, ProbeSpec};
use crate::spec::{self, ContainerKind, RestartPolicy};

/// A pod, as far as its probes depend on it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProbeView {
    /// UID of the pod.
    pub uid: String,
    /// `metadata.name`.
    pub name: String,
    /// `metadata.namespace`.
    pub namespace: String,
    /// Whether the pod's address is the node's.
    pub host_network: bool,
    /// The pod's own restart policy.
    pub restart_policy: RestartPolicy,
    /// The pod's grace period.
    pub grace: Duration,
    /// Containers that have probes, in the order of [`spec::containers`].
    pub containers: Vec<ProbedContainer>,
}

/// A container with probes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProbedContainer {
    /// `name` in the pod's spec.
    pub name: String,
    /// What it is for.
    pub kind: ContainerKind,
    /// When it runs again. Not [`RestartPolicy::Never`]: it is probed again after it ended, whatever the pod's policy.
    pub restart_policy: RestartPolicy,
    /// Its probes, in the order of [`ProbeKind::ALL`].
    pub probes: Vec<ProbeSpec>,
    /// Its probes that cannot be run. Each counts as a probe that has not decided yet.
    pub broken: Vec<BrokenProbe>,
}

/// A probe that cannot be run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokenProbe {
    /// Which of the container's probes.
    pub kind: ProbeKind,
    /// For people: what is wrong with it.
    pub reason: String,
}

impl ProbeView {
    /// Takes what is needed of `pod`.
    pub fn new(pod: &Pod) -> Self {
        Self {
            uid: pod.metadata.uid.clone().unwrap_or_default(),
            name: pod.metadata.name.clone().unwrap_or_default(),
            namespace: pod.metadata.namespace.clone().unwrap_or_default(),
            host_network: spec::host_network(pod),
            restart_policy: spec::pod_restart_policy(pod),
            grace: grace::pod_grace(pod, None),
            containers: spec::containers(pod).iter().filter_map(ProbedContainer::new).collect(),
        }
    }
}

impl ProbedContainer {
    /// `None` for a container without probes.
    fn new(found: &spec::SpecContainer<'_>) -> Option<Self> {
        let (mut probes, mut broken) = (Vec::new(), Vec::new());
        for kind in ProbeKind::ALL {
            match ProbeSpec::of(kind, found.container) {
                Ok(probe) => probes.extend(probe),
                Err(error) => broken.push(BrokenProbe { kind, reason: error.to_string() }),
            }
        }
        (!probes.is_empty() || !broken.is_empty()).then(|| Self {
            name: found.name().to_owned(),
            kind: found.kind,
            restart_policy: found.restart_policy,
            probes,
            broken,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_view_holds_the_probes_and_no_environment() {
        let pod: Pod = serde_json::from_value(serde_json::json!({
            "metadata": {"name": "p", "namespace": "n", "uid": "u", "annotations": {"a": "s3cret"}},
            "spec": {
                "terminationGracePeriodSeconds": 7, "restartPolicy": "Never",
                "initContainers": [
                    {"name": "i"},
                    {"name": "s", "restartPolicy": "Always", "startupProbe": {"grpc": {"port": 5000}}}
                ],
                "containers": [
                    {"name": "a", "env": [{"name": "A", "value": "s3cret"}],
                     "readinessProbe": {"tcpSocket": {"port": 80}}, "livenessProbe": {"tcpSocket": {"port": "none"}}},
                    {"name": "b"}
                ]
            }
        }))
        .unwrap();
        let view = ProbeView::new(&pod);
        assert!(!format!("{view:?}").contains("s3cret"));
        assert_eq!((view.uid.as_str(), view.name.as_str(), view.namespace.as_str()), ("u", "p", "n"));
        assert_eq!((view.grace, view.host_network), (Duration::from_secs(7), false));
        let seen: Vec<_> = view
            .containers
            .iter()
            .map(|c| {
                let kinds: Vec<_> = c.probes.iter().map(|probe| probe.kind).collect();
                let broken: Vec<_> = c.broken.iter().map(|broken| broken.kind).collect();
                (c.name.as_str(), c.kind, c.restart_policy, kinds, broken)
            })
            .collect();
        let expected = [
            ("s", ContainerKind::Sidecar, RestartPolicy::Always, vec![ProbeKind::Startup], vec![]),
            (
                "a",
                ContainerKind::App,
                RestartPolicy::Never,
                vec![ProbeKind::Readiness],
                vec![ProbeKind::Liveness],
            ),
        ];
        assert_eq!(seen, expected);
        assert!(view.containers[1].broken[0].reason.contains("\"none\""));
    }
}
