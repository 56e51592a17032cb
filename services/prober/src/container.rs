//! What is known of one container id: the state of each of its probes, and what they said last.

use std::collections::BTreeMap;
use std::time::Duration;

use bulkhead_model::probe::{
    ContainerProbes, Handler, Health, ProbeKind, ProbeOutcome, ProbeResults, ProbeSpec, ProbeState,
};
use bulkhead_model::probe_view::ProbedContainer;
use serde::{Deserialize, Serialize};

use crate::report::Report;

/// The probes of one container id.
#[derive(Clone, Debug)]
pub struct Probes {
    probes: BTreeMap<ProbeKind, Probe>,
    newest: Option<ProbeKind>,
    was_ready: bool,
}

#[derive(Clone, Debug)]
struct Probe {
    spec: ProbeSpec,
    state: ProbeState,
    said: String,
}

/// What an answer changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recorded {
    /// A probe decided, or decided otherwise than before.
    pub changed: bool,
    /// The container became ready for the first time.
    pub first_ready: bool,
}

/// What the probes of one container id decided: what must survive a restart. `true` is a success.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decided {
    /// By the startup probe.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub startup: Option<bool>,
    /// By the liveness probe.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub liveness: Option<bool>,
    /// By the readiness probe.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub readiness: Option<bool>,
}

impl Decided {
    /// No probe decided.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    fn of(&self, kind: ProbeKind) -> ProbeOutcome {
        let decided = match kind {
            ProbeKind::Startup => self.startup,
            ProbeKind::Liveness => self.liveness,
            ProbeKind::Readiness => self.readiness,
        };
        match decided {
            Some(true) => ProbeOutcome::Success,
            Some(false) => ProbeOutcome::Failure,
            None => ProbeOutcome::Unknown,
        }
    }
}

impl Probes {
    /// Those of `probed`; `known` is what an earlier life of this process found for the same id.
    pub fn new(probed: &ProbedContainer, container_id: &str, known: Option<Decided>) -> Self {
        let known = known.unwrap_or_default();
        let probes = specs(probed).map(|(spec, said)| {
            let state = ProbeState::seeded(&spec, container_id, known.of(spec.kind));
            (spec.kind, Probe { spec, state, said })
        });
        Self { probes: probes.collect(), newest: None, was_ready: known.readiness == Some(true) }
    }

    /// Takes over changed probes. What was decided stays; a run of answers begins anew.
    pub fn adopt(&mut self, probed: &ProbedContainer, container_id: &str) {
        let unchanged =
            |(spec, _): (ProbeSpec, String)| self.probes.get(&spec.kind).is_some_and(|p| p.spec == spec);
        if specs(probed).count() == self.probes.len() && specs(probed).all(unchanged) {
            return;
        }
        let was_ready = self.was_ready;
        *self = Self { was_ready, ..Self::new(probed, container_id, Some(self.decided())) };
    }

    /// The state of one probe; `None` if the container has none of this kind.
    pub fn state(&self, kind: ProbeKind) -> Option<&ProbeState> {
        self.probes.get(&kind).map(|probe| &probe.state)
    }

    /// Counts one answer.
    pub fn record(&mut self, kind: ProbeKind, report: &Report) -> Recorded {
        let Some(probe) = self.probes.get_mut(&kind) else { return Recorded::default() };
        probe.said = report.sentence(kind);
        let changed = probe.state.record(report.outcome);
        if !probe.said.is_empty() {
            self.newest = Some(kind);
        }
        let ready = kind == ProbeKind::Readiness && probe.state.settled() == Some(ProbeOutcome::Success);
        let first_ready = changed && ready && !self.was_ready;
        self.was_ready |= ready;
        Recorded { changed, first_ready }
    }

    /// What they add up to.
    pub fn results(&self, running: bool) -> ProbeResults {
        ContainerProbes {
            running,
            startup: self.state(ProbeKind::Startup),
            liveness: self.state(ProbeKind::Liveness),
            readiness: self.state(ProbeKind::Readiness),
        }
        .results()
    }

    /// What they decided.
    pub fn decided(&self) -> Decided {
        let of = |kind| Some(self.state(kind)?.settled()? == ProbeOutcome::Success);
        Decided {
            startup: of(ProbeKind::Startup),
            liveness: of(ProbeKind::Liveness),
            readiness: of(ProbeKind::Readiness),
        }
    }

    /// What to tell people: why the container must end, or what was said last and has not been taken back.
    pub fn message(&self) -> &str {
        let of =
            |kind| self.probes.get(&kind).map(|probe| probe.said.as_str()).filter(|said| !said.is_empty());
        let first = match self.results(true).health {
            Health::StartupFailed => Some(ProbeKind::Startup),
            Health::LivenessFailed => Some(ProbeKind::Liveness),
            Health::Live => self.newest,
        };
        first.and_then(of).or_else(|| ProbeKind::ALL.into_iter().find_map(of)).unwrap_or_default()
    }
}

/// Every probe of the container with what there is to say before it ran. One that cannot be run never decides.
fn specs(probed: &ProbedContainer) -> impl Iterator<Item = (ProbeSpec, String)> {
    let broken = probed.broken.iter().map(|broken| {
        let spec = ProbeSpec {
            kind: broken.kind,
            handler: Handler::Exec { command: Vec::new() },
            initial_delay: Duration::ZERO,
            period: Duration::from_secs(1),
            timeout: Duration::from_secs(1),
            success_threshold: 1,
            failure_threshold: 1,
            termination_grace: None,
        };
        (spec, Report::unknown(&broken.reason).sentence(broken.kind))
    });
    probed.probes.iter().map(|spec| (spec.clone(), String::new())).chain(broken)
}

#[cfg(test)]
mod tests {
    use ProbeKind::{Liveness, Readiness, Startup};
    use bulkhead_model::probe_view::BrokenProbe;

    use super::*;
    use crate::testing::exec_spec;

    fn probed(kinds: &[ProbeKind]) -> ProbedContainer {
        let probes =
            kinds.iter().map(|kind| ProbeSpec { failure_threshold: 2, ..exec_spec(*kind) }).collect();
        ProbedContainer { name: "a".into(), probes, ..ProbedContainer::default() }
    }

    #[test]
    fn what_was_decided_comes_back_after_a_restart() {
        let probed = probed(&ProbeKind::ALL);
        let mut probes = Probes::new(&probed, "1", None);
        assert!(probes.decided().is_empty());
        for (kind, report) in [
            (Startup, Report::success()),
            (Readiness, Report::failure("no")),
            (Readiness, Report::failure("no")),
        ] {
            probes.record(kind, &report);
        }
        let decided = probes.decided();
        assert_eq!(decided, Decided { startup: Some(true), liveness: None, readiness: Some(false) });
        let again = Probes::new(&probed, "1", Some(decided));
        assert_eq!(again.results(true), probes.results(true));
        assert_eq!(again.decided(), decided);
    }

    #[test]
    fn the_first_readiness_is_told_once_and_not_after_a_restart() {
        let mut probes = Probes::new(&probed(&[Readiness]), "1", None);
        let mut first = |report: Report| probes.record(Readiness, &report).first_ready;
        assert!(first(Report::success()));
        assert!(!first(Report::success()));
        assert!(!first(Report::failure("")));
        assert!(!first(Report::failure("")));
        assert!(!first(Report::success()), "ready again is not ready first");
        let known = Decided { readiness: Some(true), ..Decided::default() };
        let mut probes = Probes::new(&probed(&[Readiness]), "1", Some(known));
        assert_eq!(probes.record(Readiness, &Report::success()), Recorded::default());
    }

    #[test]
    fn the_message_is_the_reason_of_the_end_or_the_newest() {
        let mut probes = Probes::new(&probed(&[Liveness, Readiness]), "1", None);
        assert_eq!(probes.message(), "");
        probes.record(Liveness, &Report::failure("ill"));
        probes.record(Readiness, &Report::failure("busy"));
        assert_eq!(probes.message(), "Readiness probe failed: busy");
        probes.record(Readiness, &Report::success());
        assert_eq!(probes.message(), "Liveness probe failed: ill", "a success takes back its own words only");
        probes.record(Liveness, &Report::failure("dead"));
        probes.record(Readiness, &Report::failure("busy"));
        assert_eq!(probes.message(), "Liveness probe failed: dead");
    }

    #[test]
    fn a_broken_probe_never_decides_and_says_why() {
        let mut probed = probed(&[Liveness]);
        probed.broken.push(BrokenProbe { kind: Readiness, reason: "no such port".into() });
        let mut probes = Probes::new(&probed, "1", None);
        assert_eq!((probes.results(true).started, probes.results(true).ready), (Some(true), None));
        assert_eq!(probes.message(), "Readiness probe errored: no such port");
        probes.adopt(&probed, "1");
        assert_eq!(probes.message(), "Readiness probe errored: no such port");
    }

    #[test]
    fn changed_probes_keep_what_was_decided() {
        let mut probes = Probes::new(&probed(&[Liveness, Readiness]), "1", None);
        probes.record(Readiness, &Report::success());
        probes.record(Liveness, &Report::failure("1 of 2"));
        let mut changed = probed(&[Liveness, Readiness]);
        changed.probes[0].failure_threshold = 1;
        probes.adopt(&changed, "1");
        assert_eq!(probes.decided().readiness, Some(true));
        assert!(probes.record(Liveness, &Report::failure("")).changed, "the new threshold counts");
        probes.adopt(&probed(&[Readiness]), "1");
        assert_eq!(probes.state(Liveness), None);
        assert_eq!(probes.results(true).ready, Some(true));
    }
}
