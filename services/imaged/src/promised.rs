//! Images that containers were just told they could have: they are used soon, though no container has them yet.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Most that are kept; beyond that the oldest is forgotten.
const MOST: usize = 1000;

/// Promises by image id. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Promised(Arc<Mutex<BTreeMap<String, Instant>>>);

impl Promised {
    /// A container was told at `now` that it can have this image.
    pub(crate) fn note(&self, id: &str, now: Instant) {
        let mut promises = self.promises();
        if promises.len() >= MOST
            && !promises.contains_key(id)
            && let Some(oldest) = promises.iter().min_by_key(|(_, at)| **at).map(|(id, _)| id.clone())
        {
            promises.remove(&oldest);
        }
        promises.insert(id.to_owned(), now);
    }

    /// Those younger than `age`; older ones are forgotten.
    pub(crate) fn since(&self, now: Instant, age: Duration) -> Vec<String> {
        let mut promises = self.promises();
        promises.retain(|_, at| now.saturating_duration_since(*at) < age);
        promises.keys().cloned().collect()
    }

    /// Whether this one is younger than `age`.
    pub(crate) fn has(&self, id: &str, now: Instant, age: Duration) -> bool {
        self.promises().get(id).is_some_and(|at| now.saturating_duration_since(*at) < age)
    }

    fn promises(&self) -> MutexGuard<'_, BTreeMap<String, Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_promise_holds_for_a_while_and_there_are_only_so_many() {
        let promised = Promised::default();
        let age = Duration::from_secs(120);
        let start = Instant::now();
        promised.note("a", start);
        assert!(promised.has("a", start + age / 2, age));
        assert!(!promised.has("a", start + age, age) && !promised.has("b", start, age));
        promised.note("a", start + age);
        assert_eq!(promised.since(start + age, age), ["a"]);
        for number in 0..MOST {
            promised.note(&format!("b{number}"), start + age * 2);
        }
        assert_eq!(promised.promises().len(), MOST);
        assert!(!promised.has("a", start + age, age), "the oldest went");
        assert!(promised.since(start + age * 3, age).is_empty());
    }
}
