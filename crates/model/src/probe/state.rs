//! The threshold machine: when a run of answers changes what a container is taken for.

use super::{ProbeKind, ProbeOutcome, ProbeSpec};

/// One probe of one container, over that container's attempts.
///
/// It flips only when a threshold is reached. After a startup or liveness probe failed it holds that failure until it is
/// given a new container id: the kill is under way, and more answers of the dying container mean nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeState {
    kind: ProbeKind,
    success_threshold: u32,
    failure_threshold: u32,
    container_id: String,
    outcome: ProbeOutcome,
    settled: bool,
    last: ProbeOutcome,
    run: u32,
}

impl ProbeState {
    /// Nothing is known of `container_id` yet.
    pub fn new(spec: &ProbeSpec, container_id: &str) -> Self {
        Self {
            kind: spec.kind,
            success_threshold: spec.success_threshold,
            failure_threshold: spec.failure_threshold,
            container_id: container_id.to_owned(),
            outcome: spec.kind.initial(),
            settled: false,
            last: ProbeOutcome::Unknown,
            run: 0,
        }
    }

    /// Starts from what an earlier process found for the same container id.
    pub fn seeded(spec: &ProbeSpec, container_id: &str, outcome: ProbeOutcome) -> Self {
        let settled = outcome != ProbeOutcome::Unknown;
        let outcome = if settled { outcome } else { spec.kind.initial() };
        Self { outcome, settled, ..Self::new(spec, container_id) }
    }

    /// Tells which container runs now. Another id than before starts everything afresh.
    pub fn set_container(&mut self, container_id: &str) {
        if self.container_id != container_id {
            self.container_id = container_id.to_owned();
            self.outcome = self.kind.initial();
            self.settled = false;
            self.last = ProbeOutcome::Unknown;
            self.run = 0;
        }
    }

    /// Counts one answer. Returns whether [`outcome`](Self::outcome) or [`settled`](Self::settled) changed.
    ///
    /// [`ProbeOutcome::Unknown`] counts neither way and does not end a run. Answers while the probe
    /// [is not wanted](Self::wants_probing) are dropped.
    pub fn record(&mut self, answer: ProbeOutcome) -> bool {
        if answer == ProbeOutcome::Unknown || !self.wants_probing() {
            return false;
        }
        if self.last == answer {
            self.run = self.run.saturating_add(1);
        } else {
            self.last = answer;
            self.run = 1;
        }
        let threshold =
            if answer == ProbeOutcome::Success { self.success_threshold } else { self.failure_threshold };
        if self.run < threshold {
            return false;
        }
        let changed = self.settled() != Some(answer);
        self.outcome = answer;
        self.settled = true;
        changed
    }

    /// Which probe this is.
    pub fn kind(&self) -> ProbeKind {
        self.kind
    }

    /// The container that the outcome belongs to.
    pub fn container_id(&self) -> &str {
        &self.container_id
    }

    /// What the container is taken for; [`ProbeKind::initial`] until a threshold was reached.
    pub fn outcome(&self) -> ProbeOutcome {
        self.outcome
    }

    /// The outcome if a probe decided it, `None` while it is only the initial one. Who remembers what was said of this
    /// container id before must keep that while this is `None`.
    pub fn settled(&self) -> Option<ProbeOutcome> {
        self.settled.then_some(self.outcome)
    }

    /// Whether another answer could still matter: not after a startup probe's success, and not after a startup or
    /// liveness failure.
    pub fn wants_probing(&self) -> bool {
        match (self.kind, self.settled()) {
            (ProbeKind::Startup, Some(_)) | (ProbeKind::Liveness, Some(ProbeOutcome::Failure)) => false,
            (ProbeKind::Startup | ProbeKind::Liveness | ProbeKind::Readiness, _) => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::Handler;
    use super::*;
    use ProbeKind::{Liveness, Readiness, Startup};
    use ProbeOutcome::{Failure, Success, Unknown};

    fn spec(kind: ProbeKind, success_threshold: u32, failure_threshold: u32) -> ProbeSpec {
        ProbeSpec {
            kind,
            handler: Handler::Exec { command: Vec::new() },
            initial_delay: Duration::ZERO,
            period: Duration::from_secs(1),
            timeout: Duration::from_secs(1),
            success_threshold,
            failure_threshold,
            termination_grace: None,
        }
    }

    /// `answers`: s, f, u. `expected`: the outcome after each, in the same letters.
    fn check(kind: ProbeKind, thresholds: (u32, u32), answers: &str, expected: &str) {
        let mut state = ProbeState::new(&spec(kind, thresholds.0, thresholds.1), "1");
        let letter = |outcome| match outcome {
            Success => 's',
            Failure => 'f',
            Unknown => 'u',
        };
        let mut seen = String::new();
        for answer in answers.chars() {
            let (before, was_settled) = (state.outcome(), state.settled());
            let changed = state.record(match answer {
                's' => Success,
                'f' => Failure,
                _ => Unknown,
            });
            assert_eq!(
                changed,
                (before, was_settled) != (state.outcome(), state.settled()),
                "{kind:?} {answers}"
            );
            seen.push(letter(state.outcome()));
        }
        assert_eq!(seen, expected, "{kind:?} {thresholds:?} {answers}");
    }

    #[test]
    fn outcomes_flip_only_at_their_threshold() {
        check(Readiness, (1, 3), "sffsfff", "ssssssf");
        check(Readiness, (2, 1), "ssfss", "fsffs");
        check(Readiness, (1, 3), "fff", "fff");
        check(Liveness, (1, 2), "fsfff", "sssff");
        check(Startup, (1, 3), "ffs", "uus");
        check(Startup, (1, 3), "fff", "uuf");
    }

    #[test]
    fn an_answer_that_is_unknown_counts_neither_way() {
        check(Liveness, (1, 2), "fuf", "ssf");
        check(Readiness, (3, 1), "suuss", "ffffs");
    }

    #[test]
    fn a_failed_container_is_held_until_the_next_one() {
        check(Liveness, (1, 1), "fssss", "fffff");
        check(Startup, (1, 1), "fssss", "fffff");
        let mut state = ProbeState::new(&spec(Liveness, 1, 1), "1");
        assert!(state.record(Failure));
        assert!(!state.wants_probing());
        state.set_container("1");
        assert_eq!(state.settled(), Some(Failure), "the same id changes nothing");
        state.set_container("2");
        assert_eq!((state.outcome(), state.settled()), (Success, None));
        assert!(state.wants_probing());
        assert_eq!((state.kind(), state.container_id()), (Liveness, "2"));
    }

    #[test]
    fn a_count_does_not_reach_into_the_next_container() {
        let mut state = ProbeState::new(&spec(Liveness, 1, 2), "1");
        state.record(Failure);
        state.set_container("2");
        assert!(!state.record(Failure), "the first failure of container 2, not the second of both");
        assert!(state.record(Failure));
    }

    #[test]
    fn a_startup_probe_ends_with_its_success() {
        check(Startup, (1, 1), "sff", "sss");
    }

    #[test]
    fn a_probe_that_confirms_the_initial_outcome_settles_it() {
        let mut state = ProbeState::new(&spec(Readiness, 1, 2), "1");
        assert!(!state.record(Failure));
        assert_eq!((state.outcome(), state.settled()), (Failure, None));
        assert!(state.record(Failure), "now a probe has said so");
        assert_eq!(state.settled(), Some(Failure));
        assert!(!state.record(Failure));
    }

    #[test]
    fn a_seed_counts_as_settled_unless_it_is_unknown() {
        let readiness = spec(Readiness, 1, 2);
        let mut state = ProbeState::seeded(&readiness, "1", Success);
        assert_eq!(state.settled(), Some(Success));
        assert!(!state.record(Failure));
        assert!(state.record(Failure), "a seed is overturned by the threshold");
        assert_eq!(ProbeState::seeded(&readiness, "1", Unknown), ProbeState::new(&readiness, "1"));
    }
}
