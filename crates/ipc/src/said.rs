//! What was said already. What fails, or is refused, mostly does so again: the log says it once in a while.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// How long the same refusal is not told again: who is refused mostly asks again.
const QUIET: Duration = Duration::from_secs(300);
/// Texts remembered. Beyond them each is said; the log has a limit of its own.
const REMEMBERED: usize = 512;

/// What was told lately.
#[derive(Debug)]
pub struct Said {
    quiet: Duration,
    hasher: RandomState,
    at: Mutex<BTreeMap<u64, Instant>>,
}

impl Default for Said {
    /// For refusals: the same one every five minutes.
    fn default() -> Self {
        Self::every(QUIET)
    }
}

impl Said {
    /// The same text is news again after `quiet`.
    pub fn every(quiet: Duration) -> Self {
        Self { quiet, hasher: RandomState::new(), at: Mutex::default() }
    }

    /// Whether `what` was not said lately; from now on it was.
    pub fn is_news(&self, what: &str, now: Instant) -> bool {
        let key = self.hasher.hash_one(what);
        let mut said = self.at.lock().unwrap_or_else(PoisonError::into_inner);
        let lately = |at: &Instant| now.saturating_duration_since(*at) < self.quiet;
        if said.get(&key).is_some_and(lately) {
            return false;
        }
        if said.len() >= REMEMBERED {
            said.retain(|_, at| lately(at));
        }
        if said.len() < REMEMBERED {
            said.insert(key, now);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_told_once_in_five_minutes() {
        let (said, start) = (Said::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        assert!(said.is_news("a", at(0)) && said.is_news("b", at(1)));
        assert!(!said.is_news("a", at(299)) && !said.is_news("b", at(300)));
        assert!(said.is_news("a", at(300)) && !said.is_news("a", at(400)));
    }

    #[test]
    fn memory_is_bounded_and_nothing_is_lost_beyond() {
        let (said, start) = (Said::default(), Instant::now());
        for number in 0..REMEMBERED * 2 {
            assert!(said.is_news(&number.to_string(), start));
        }
        assert_eq!(said.at.lock().unwrap().len(), REMEMBERED);
        assert!(said.is_news("later", start + QUIET));
        assert_eq!(said.at.lock().unwrap().len(), 1);
    }
}
