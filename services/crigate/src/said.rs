//! Refusals that were told already. Who is refused mostly asks again; each refusal is counted, and told once in a while.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// How long the same refusal is not told again.
const QUIET: Duration = Duration::from_secs(300);
/// Refusals remembered. Beyond them each is told; the log has a limit of its own.
const REMEMBERED: usize = 512;

/// What was told lately.
#[derive(Debug, Default)]
pub struct Said {
    hasher: RandomState,
    at: Mutex<BTreeMap<u64, Instant>>,
}

impl Said {
    /// Whether `what` was not told within the last five minutes; from now on it was.
    pub fn is_news(&self, what: &str, now: Instant) -> bool {
        let key = self.hasher.hash_one(what);
        let mut said = self.at.lock().unwrap_or_else(PoisonError::into_inner);
        let lately = |at: &Instant| now.saturating_duration_since(*at) < QUIET;
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
