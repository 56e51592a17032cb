//! What the probes of one container add up to.

use super::{ProbeOutcome, ProbeState};

/// The merged answer about one container id.
///
/// `None` means "no probe of this process has decided yet": readers keep what was last said of this id (a prober that
/// was restarted must not flip a container), and take a new id for not started and not ready.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProbeResults {
    /// Whether the startup probe succeeded; true without one while the container runs.
    pub started: Option<bool>,
    /// Whether the readiness probe succeeds; without one, the same as `started`. Never true while `started` is not.
    pub ready: Option<bool>,
    /// Whether the container may live on.
    pub health: Health,
}

/// Whether a container may live on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Health {
    /// No probe says otherwise.
    #[default]
    Live,
    /// Its liveness probe failed: it must be killed.
    LivenessFailed,
    /// Its startup probe failed: it must be killed.
    StartupFailed,
}

/// What one container id has to merge. A `None` among the probes means that the container has none of that kind.
#[derive(Clone, Copy, Debug)]
pub struct ContainerProbes<'a> {
    /// Whether the runtime was seen to run it. Merge only what is known: a container that was not looked at yet since
    /// this process started must not be called stopped.
    pub running: bool,
    /// State of its startup probe.
    pub startup: Option<&'a ProbeState>,
    /// State of its liveness probe.
    pub liveness: Option<&'a ProbeState>,
    /// State of its readiness probe.
    pub readiness: Option<&'a ProbeState>,
}

impl ProbeResults {
    /// Whether no probe asks for the container's end.
    pub fn live(&self) -> bool {
        self.health == Health::Live
    }
}

impl ContainerProbes<'_> {
    /// Merges by the kubelet's rule: without a startup probe a running container is started; without a readiness probe a
    /// started container is ready; what does not run is neither.
    pub fn results(&self) -> ProbeResults {
        if !self.running {
            return ProbeResults { started: Some(false), ready: Some(false), health: Health::Live };
        }
        let succeeded = |state: &ProbeState| state.settled().map(|outcome| outcome == ProbeOutcome::Success);
        let failed = |state: Option<&ProbeState>| {
            state.is_some_and(|state| state.settled() == Some(ProbeOutcome::Failure))
        };
        let started = self.startup.map_or(Some(true), succeeded);
        let ready = match (started, self.readiness) {
            (Some(false), _) => Some(false),
            (started, None) => started,
            (Some(true), Some(readiness)) => succeeded(readiness),
            // Readiness is not probed before the start is known; an earlier answer is as good as none.
            (None, Some(_)) => None,
        };
        let health = if failed(self.startup) {
            Health::StartupFailed
        } else if failed(self.liveness) {
            Health::LivenessFailed
        } else {
            Health::Live
        };
        ProbeResults { started, ready, health }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::{Handler, ProbeKind, ProbeSpec};
    use super::*;

    fn state(kind: ProbeKind, outcome: ProbeOutcome) -> ProbeState {
        let spec = ProbeSpec {
            kind,
            handler: Handler::Exec { command: Vec::new() },
            initial_delay: Duration::ZERO,
            period: Duration::from_secs(1),
            timeout: Duration::from_secs(1),
            success_threshold: 1,
            failure_threshold: 1,
            termination_grace: None,
        };
        ProbeState::seeded(&spec, "1", outcome)
    }

    #[test]
    fn probes_merge_by_the_kubelets_rule() {
        use Health::{Live, LivenessFailed, StartupFailed};
        use ProbeOutcome::{Failure as F, Success as S, Unknown as U};
        let (yes, no) = (Some(true), Some(false));
        // startup, liveness, readiness -> started, ready, health
        let table = [
            ((None, None, None), (yes, yes, Live)),
            ((None, None, Some(U)), (yes, None, Live)),
            ((None, None, Some(S)), (yes, yes, Live)),
            ((None, None, Some(F)), (yes, no, Live)),
            ((None, Some(F), Some(S)), (yes, yes, LivenessFailed)),
            ((None, Some(U), None), (yes, yes, Live)),
            ((Some(U), None, None), (None, None, Live)),
            ((Some(U), None, Some(S)), (None, None, Live)),
            ((Some(S), Some(S), Some(U)), (yes, None, Live)),
            ((Some(S), None, None), (yes, yes, Live)),
            ((Some(F), Some(F), Some(S)), (no, no, StartupFailed)),
        ];
        for ((startup, liveness, readiness), (started, ready, health)) in table {
            let startup_state = startup.map(|outcome| state(ProbeKind::Startup, outcome));
            let liveness_state = liveness.map(|outcome| state(ProbeKind::Liveness, outcome));
            let readiness_state = readiness.map(|outcome| state(ProbeKind::Readiness, outcome));
            let mut probes = ContainerProbes {
                running: true,
                startup: startup_state.as_ref(),
                liveness: liveness_state.as_ref(),
                readiness: readiness_state.as_ref(),
            };
            let expected = ProbeResults { started, ready, health };
            assert_eq!(probes.results(), expected, "{startup:?} {liveness:?} {readiness:?}");
            assert_eq!(expected.live(), health == Live);
            probes.running = false;
            assert_eq!(probes.results(), ProbeResults { started: no, ready: no, health: Live });
        }
    }
}
