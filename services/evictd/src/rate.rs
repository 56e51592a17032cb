//! Rates out of counters. Pure.

use tokio::time::Instant;

/// A counter of processor time at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sample {
    /// When it was read.
    pub(crate) at: Instant,
    /// Processor time used until then, in nanoseconds.
    pub(crate) used_ns: u64,
}

/// Processors in use between two samples, in billionths. `None` when no time went by, and when the counter went back:
/// then it is another cgroup's of the same name.
pub(crate) fn nano_cores(before: Sample, now: Sample) -> Option<u64> {
    let used = u128::from(now.used_ns.checked_sub(before.used_ns)?);
    let elapsed = now.at.checked_duration_since(before.at)?.as_nanos();
    u64::try_from(used.checked_mul(1_000_000_000)?.checked_div(elapsed)?).ok()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    fn rate(used: (u64, u64), millis: u64) -> Option<u64> {
        let start = Instant::now();
        let now = Sample { at: start + Duration::from_millis(millis), used_ns: used.1 };
        nano_cores(Sample { at: start, used_ns: used.0 }, now)
    }

    #[test]
    fn rates() {
        let second = 1_000_000_000;
        let table = [
            ("idle", (5, 5), 10_000, Some(0)),
            ("one processor", (0, 10 * second), 10_000, Some(second)),
            ("half of one", (second, 6 * second), 10_000, Some(second / 2)),
            ("64 processors for a second", (0, 64 * second), 1000, Some(64 * second)),
            ("less than a nanocore rounds down", (0, 1), 10_000, Some(0)),
            ("restarted", (6 * second, second), 10_000, None),
            ("no time", (0, second), 0, None),
            ("a counter near its end", (u64::MAX - 10, u64::MAX), 1000, Some(10)),
            ("more than fits", (0, u64::MAX), 1, None),
        ];
        for (name, used, millis, expected) in table {
            assert_eq!(rate(used, millis), expected, "{name}");
        }
        let (early, late) = (Instant::now(), Instant::now() + Duration::from_secs(1));
        let backwards = nano_cores(Sample { at: late, used_ns: 0 }, Sample { at: early, used_ns: 1 });
        assert_eq!(backwards, None, "samples in the wrong order");
    }

    proptest! {
        // What a rate says was used in the time is what was used, but for rounding.
        #[test]
        fn a_rate_times_its_time_is_the_use(start in 0..u64::MAX / 2, used in 0..1_u64 << 45, millis in 1_u64..100_000) {
            let rate = rate((start, start + used), millis).unwrap();
            let again = u128::from(rate) * u128::from(millis) / 1000;
            prop_assert!(again <= u128::from(used));
            prop_assert!(u128::from(used) - again <= u128::from(millis) / 1000 + 1);
        }
    }
}
