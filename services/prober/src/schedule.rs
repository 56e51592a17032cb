//! When a probe runs first, and when again. Pure: dates and randomness come in.

use std::collections::hash_map::DefaultHasher;
use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::time::Duration;

use bulkhead_model::probe::{ProbeKind, ProbeSpec};
use jiff::Timestamp;

/// Longest first spread of a probe that somebody waits for: startup, and a readiness that is not known yet.
const SOON: Duration = Duration::from_millis(500);

/// Spreads first runs, so that the probes of a hundred pods do not all run in the same moment for ever after.
/// The same seed gives the same spread.
#[derive(Clone, Copy, Debug)]
pub struct Spread(u64);

impl Spread {
    /// With this seed.
    #[cfg(test)]
    pub fn seeded(seed: u64) -> Self {
        Self(seed)
    }

    /// With a seed of this process' life.
    pub fn random() -> Self {
        Self(RandomState::new().build_hasher().finish())
    }

    /// How long the first run of `spec` waits, for a container that has run for `running_for`: what is left of the initial
    /// delay, and then at most one period. `decided`: the outcome is known from before, so nobody waits for this run.
    pub fn first(
        &self,
        spec: &ProbeSpec,
        container_id: &str,
        running_for: Duration,
        decided: bool,
    ) -> Duration {
        let awaited = spec.kind != ProbeKind::Liveness && !decided;
        let span = if awaited { spec.period.min(SOON) } else { spec.period };
        spec.delay_left(running_for).saturating_add(self.part(span, container_id, spec.kind))
    }

    /// A share of `span`, even over containers and probes.
    fn part(&self, span: Duration, container_id: &str, kind: ProbeKind) -> Duration {
        let mut hasher = DefaultHasher::new();
        (self.0, container_id, kind).hash(&mut hasher);
        let nanos = (span.as_nanos() * u128::from(hasher.finish())) >> 64;
        u64::try_from(nanos).map_or(span, Duration::from_nanos)
    }
}

/// How long something that began at `since` has lasted; zero when the clock was set back meanwhile.
pub fn lasted(since: Timestamp, now: Timestamp) -> Duration {
    now.duration_since(since).try_into().unwrap_or(Duration::ZERO)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::exec_spec;

    fn seconds(count: u64) -> Duration {
        Duration::from_secs(count)
    }

    #[test]
    fn the_same_seed_spreads_the_same_way_and_widely() {
        let spec = ProbeSpec { period: seconds(100), ..exec_spec(ProbeKind::Liveness) };
        let waits = |seed| -> Vec<Duration> {
            (0..100).map(|n| Spread::seeded(seed).first(&spec, &format!("c{n}"), seconds(0), false)).collect()
        };
        assert_eq!(waits(1), waits(1));
        assert_ne!(waits(1), waits(2));
        for tenth in 0..10 {
            let tenth = seconds(tenth * 10)..seconds(tenth * 10 + 10);
            let hits = waits(1).iter().filter(|wait| tenth.contains(*wait)).count();
            assert!((1..=30).contains(&hits), "{tenth:?}: {hits}");
        }
    }

    #[test]
    fn the_initial_delay_counts_from_the_start() {
        let spec = ProbeSpec { initial_delay: seconds(20), ..exec_spec(ProbeKind::Startup) };
        let wait = |running_for| Spread::seeded(1).first(&spec, "c", running_for, false);
        let spread = wait(seconds(20));
        assert!(spread < seconds(1));
        assert_eq!(wait(seconds(0)), seconds(20) + spread);
        assert_eq!(wait(seconds(15)), seconds(5) + spread);
        assert_eq!(wait(seconds(500)), spread);
    }

    #[test]
    fn a_clock_that_was_set_back_lasts_nothing() {
        let at = |second| Timestamp::from_second(second).unwrap();
        assert_eq!(lasted(at(10), at(15)), seconds(5));
        assert_eq!(lasted(at(15), at(10)), seconds(0));
    }

    proptest! {
        #[test]
        fn awaited_probes_run_soon_and_others_within_a_period(
            seed: u64, id in "[a-z]{1,8}", period in 1_u64..600, decided: bool,
        ) {
            for kind in ProbeKind::ALL {
                let spec = ProbeSpec { period: seconds(period), ..exec_spec(kind) };
                let wait = Spread::seeded(seed).first(&spec, &id, seconds(0), decided);
                let longest = if kind == ProbeKind::Liveness || decided { seconds(period) } else { seconds(1) };
                prop_assert!(wait <= longest, "{kind:?} {wait:?}");
            }
        }
    }
}
