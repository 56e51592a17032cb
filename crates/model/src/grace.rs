//! How long a container gets between the request to end and its death.
//!
//! Owns the arithmetic of grace periods. Must never wait. Sources: `spec.terminationGracePeriodSeconds`,
//! `metadata.deletionGracePeriodSeconds` and the probe's `terminationGracePeriodSeconds` (KEP 2238) of the API.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;

use crate::probe::ProbeKind;
use crate::spec;

/// The API's default for `spec.terminationGracePeriodSeconds`.
pub const DEFAULT: Duration = Duration::from_secs(30);

/// What a process still gets to handle its signal when a preStop hook used the whole grace period up (the kubelet's).
pub const AFTER_HOOK: Duration = Duration::from_secs(2);

/// Why a container is stopped, as far as its grace depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// The pod ends, its sandbox was lost, its definition changed and the like.
    Other,
    /// A probe of this kind failed. Its own grace period counts if it has one.
    Probe(ProbeKind),
}

/// The whole pod's grace: the period that the deletion asked for, shorter or longer, else the spec's; `shorter` (an
/// eviction, a node shutdown) can only shorten it. Zero kills at once; a negative period counts as 1 s, as in the API.
pub fn pod_grace(pod: &Pod, shorter: Option<Duration>) -> Duration {
    let spec =
        pod.spec.as_ref().and_then(|spec| spec.termination_grace_period_seconds).map_or(DEFAULT, seconds);
    let base = pod.metadata.deletion_grace_period_seconds.map_or(spec, seconds);
    shorter.map_or(base, |shorter| shorter.min(base))
}

/// The grace of one container of the pod. As [`pod_grace`], except that a failed startup or liveness probe with a period
/// of its own puts that in place of the pod's, as long as the pod is not being deleted.
pub fn container_grace(
    pod: &Pod,
    container: &str,
    reason: StopReason,
    shorter: Option<Duration>,
) -> Duration {
    let pods = pod_grace(pod, shorter);
    let StopReason::Probe(kind) = reason else { return pods };
    if pod.metadata.deletion_grace_period_seconds.is_some() {
        return pods;
    }
    let containers = spec::containers(pod);
    let Some(found) = containers.iter().find(|c| c.name() == container) else { return pods };
    let probe = match kind {
        ProbeKind::Startup => &found.container.startup_probe,
        ProbeKind::Liveness => &found.container.liveness_probe,
        ProbeKind::Readiness => &None,
    };
    let own = probe.as_ref().and_then(|probe| probe.termination_grace_period_seconds).map(seconds);
    match (own, shorter) {
        (Some(own), Some(shorter)) => own.min(shorter),
        (Some(own), None) => own,
        (None, _) => pods,
    }
}

/// What is left for the process after its preStop hook took `hook_took`: the two share one budget, but the process gets
/// at least [`AFTER_HOOK`].
pub fn after_pre_stop(grace: Duration, hook_took: Duration) -> Duration {
    grace.saturating_sub(hook_took).max(AFTER_HOOK)
}

/// The API's seconds as a duration; a negative number counts as 1 s.
pub fn seconds(seconds: i64) -> Duration {
    Duration::from_secs(u64::try_from(seconds).unwrap_or(1))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{Container, PodSpec, Probe};
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

    use super::*;

    const S: fn(u64) -> Duration = Duration::from_secs;

    fn pod(spec: Option<i64>, deletion: Option<i64>) -> Pod {
        let probe = |grace| Some(Probe { termination_grace_period_seconds: grace, ..Default::default() });
        let containers = vec![
            Container {
                name: "own".into(),
                liveness_probe: probe(Some(5)),
                startup_probe: probe(Some(90)),
                readiness_probe: probe(Some(1)),
                ..Default::default()
            },
            Container { name: "none".into(), liveness_probe: probe(None), ..Default::default() },
        ];
        Pod {
            metadata: ObjectMeta { deletion_grace_period_seconds: deletion, ..Default::default() },
            spec: Some(PodSpec { termination_grace_period_seconds: spec, containers, ..Default::default() }),
            ..Default::default()
        }
    }

    #[test]
    fn the_pods_grace_is_the_shortest_that_was_asked_for() {
        // spec, deletion, shorter -> grace
        let table = [
            (None, None, None, 30),
            (Some(60), None, None, 60),
            (Some(0), None, None, 0),
            (Some(-1), None, None, 1),
            (Some(60), Some(10), None, 10),
            (Some(60), Some(0), None, 0),
            (Some(60), Some(100), None, 100),
            (Some(60), Some(10), Some(3), 3),
            (Some(60), Some(10), Some(20), 10),
            (Some(60), None, Some(0), 0),
        ];
        for (spec, deletion, shorter, expected) in table {
            let grace = pod_grace(&pod(spec, deletion), shorter.map(S));
            assert_eq!(grace, S(expected), "{spec:?} {deletion:?} {shorter:?}");
        }
        assert_eq!(pod_grace(&Pod::default(), None), DEFAULT);
    }

    #[test]
    fn a_failed_probe_brings_its_own_grace_unless_the_pod_is_being_deleted() {
        use ProbeKind::{Liveness, Readiness, Startup};
        use StopReason::{Other, Probe};
        // container, reason, deletion, shorter -> grace; the pod's is 60
        let table = [
            ("own", Other, None, None, 60),
            ("own", Probe(Liveness), None, None, 5),
            ("own", Probe(Startup), None, None, 90),
            ("own", Probe(Readiness), None, None, 60),
            ("own", Probe(Liveness), None, Some(2), 2),
            ("own", Probe(Startup), None, Some(70), 70),
            ("own", Probe(Liveness), Some(20), None, 20),
            ("none", Probe(Liveness), None, None, 60),
            ("unknown", Probe(Liveness), None, None, 60),
        ];
        for (name, reason, deletion, shorter, expected) in table {
            let grace = container_grace(&pod(Some(60), deletion), name, reason, shorter.map(S));
            assert_eq!(grace, S(expected), "{name} {reason:?} {deletion:?} {shorter:?}");
        }
    }

    #[test]
    fn the_hook_and_the_process_share_one_budget_with_a_minimum() {
        for (grace, hook, expected) in
            [(30, 0, 30), (30, 10, 20), (6, 6, 2), (6, 600, 2), (6, 5, 2), (1, 0, 2)]
        {
            assert_eq!(after_pre_stop(S(grace), S(hook)), S(expected), "{grace} {hook}");
        }
    }
}
