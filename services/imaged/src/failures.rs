//! Images whose pulls failed, and until when they are left alone. Pure; `now` is a duration since a fixed start.
//!
//! Bounded: what was quiet for twice the longest back-off is forgotten, and the oldest goes when there are too many.

use std::collections::BTreeMap;
use std::time::Duration;

use bulkhead_base::CrashBackoff;

use crate::answer::PullFailure;

/// Most images remembered.
const MOST: usize = 1024;

/// First and longest wait after failed pulls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackOff {
    /// After the first failure; each further one waits twice as long.
    pub first: Duration,
    /// The longest.
    pub longest: Duration,
}

/// The failed images.
#[derive(Debug)]
pub(crate) struct Failures {
    backoff: CrashBackoff,
    longest: Duration,
    last: BTreeMap<String, Last>,
}

#[derive(Debug)]
struct Last {
    at: Duration,
    failure: PullFailure,
}

/// The kubelet's.
impl Default for BackOff {
    fn default() -> Self {
        Self { first: Duration::from_secs(10), longest: Duration::from_secs(300) }
    }
}

impl Failures {
    /// None yet.
    pub(crate) fn new(rule: BackOff) -> Self {
        Self {
            backoff: CrashBackoff::new(rule.first, rule.longest),
            longest: rule.longest,
            last: BTreeMap::new(),
        }
    }

    /// Notes a failure; returns how long `image` is left alone from `now` on.
    pub(crate) fn note(&mut self, image: &str, failure: PullFailure, now: Duration) -> Duration {
        self.collect(now);
        if self.last.len() >= MOST
            && !self.last.contains_key(image)
            && let Some(oldest) =
                self.last.iter().min_by_key(|(_, last)| last.at).map(|(image, _)| image.clone())
        {
            self.forget(&oldest);
        }
        self.last.insert(image.to_owned(), Last { at: now, failure });
        self.backoff.fail(image, now)
    }

    /// The failure that `image` still waits for at `now`, and how much longer.
    pub(crate) fn waiting(&self, image: &str, now: Duration) -> Option<(&PullFailure, Duration)> {
        let last = self.last.get(image)?;
        let remaining = self.backoff.remaining(image, last.at, now);
        (!remaining.is_zero()).then_some((&last.failure, remaining))
    }

    /// A pull of `image` succeeded.
    pub(crate) fn forget(&mut self, image: &str) {
        self.backoff.reset(image);
        self.last.remove(image);
    }

    fn collect(&mut self, now: Duration) {
        self.backoff.collect(now);
        let keep = self.longest.saturating_mul(2);
        self.last.retain(|_, last| now.saturating_sub(last.at) <= keep);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: fn(u64) -> Duration = Duration::from_secs;

    fn failure(text: &str) -> PullFailure {
        PullFailure::from_runtime(text)
    }

    #[test]
    fn waits_double_and_end_and_a_success_forgets_them() {
        let mut failures = Failures::new(BackOff::default());
        let mut now = S(100);
        for delay in [10, 20, 40, 80, 160, 300, 300] {
            assert_eq!(failures.note("a", failure("x"), now), S(delay));
            let (last, remaining) = failures.waiting("a", now + S(1)).unwrap();
            assert_eq!((&*last.text, remaining), ("x", S(delay - 1)));
            now += S(delay);
            assert_eq!(failures.waiting("a", now), None, "over to the moment");
        }
        assert_eq!(failures.waiting("b", now), None, "a neighbour is not slowed");
        failures.forget("a");
        assert_eq!(failures.note("a", failure("x"), now), S(10));
    }

    #[test]
    fn the_table_is_bounded_by_age_and_by_number() {
        let mut failures = Failures::new(BackOff::default());
        failures.note("old", failure("x"), S(0));
        failures.note("new", failure("x"), S(601));
        assert_eq!(failures.last.keys().collect::<Vec<_>>(), ["new"]);
        for number in 0..2 * MOST as u64 {
            failures.note(&format!("i{number:05}"), failure("x"), S(602) + Duration::from_millis(number));
        }
        assert_eq!(failures.last.len(), MOST);
        assert!(!failures.last.contains_key("new") && failures.last.contains_key("i02047"));
        assert!(failures.waiting("i02047", S(610)).is_some());
    }
}
