//! Keys that are due at some time, each once: the earlier of two requests wins.

use std::collections::{BTreeMap, BTreeSet};

use tokio::time::Instant;

/// Bounded by the number of keys.
#[derive(Debug)]
pub struct DelayQueue<K> {
    due: BTreeMap<K, Instant>,
    order: BTreeSet<(Instant, K)>,
}

impl<K> Default for DelayQueue<K> {
    fn default() -> Self {
        Self { due: BTreeMap::new(), order: BTreeSet::new() }
    }
}

impl<K: Ord + Clone> DelayQueue<K> {
    /// An empty queue.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes `key` due at `at`, or earlier if it already is.
    pub fn push(&mut self, key: K, at: Instant) {
        if self.due.get(&key).is_some_and(|due| *due <= at) {
            return;
        }
        self.remove(&key);
        self.order.insert((at, key.clone()));
        self.due.insert(key, at);
    }

    /// Forgets `key`.
    pub fn remove(&mut self, key: &K) {
        if let Some(at) = self.due.remove(key) {
            self.order.remove(&(at, key.clone()));
        }
    }

    /// When the next key is due.
    pub fn next_due(&self) -> Option<Instant> {
        self.order.first().map(|(at, _)| *at)
    }

    /// Takes a key that is due at `now`, earliest first.
    pub fn pop_due(&mut self, now: Instant) -> Option<K> {
        if self.next_due()? > now {
            return None;
        }
        let (_, key) = self.order.pop_first()?;
        self.due.remove(&key);
        Some(key)
    }

    /// Waits until a key is due and takes it; waits for ever while the queue is empty. Cancel-safe.
    pub async fn next(&mut self) -> K {
        loop {
            match self.next_due() {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
            if let Some(key) = self.pop_due(Instant::now()) {
                return key;
            }
        }
    }

    /// Number of keys.
    pub fn len(&self) -> usize {
        self.due.len()
    }

    /// Whether nothing is due at any time.
    pub fn is_empty(&self) -> bool {
        self.due.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn earlier_requests_win_and_each_key_comes_once() {
        let start = Instant::now();
        let at = |s| start + Duration::from_secs(s);
        let mut queue = DelayQueue::new();
        queue.push("a", at(10));
        queue.push("b", at(5));
        queue.push("a", at(2));
        queue.push("b", at(7));
        queue.push("c", at(1));
        queue.remove(&"c");
        assert_eq!(queue.pop_due(at(1)), None);
        assert_eq!(queue.next().await, "a");
        assert_eq!(Instant::now(), at(2));
        assert_eq!(queue.next().await, "b");
        assert_eq!(Instant::now(), at(5));
        assert!(queue.is_empty());
        let empty = tokio::time::timeout(Duration::from_secs(99), queue.next()).await;
        assert!(empty.is_err(), "an empty queue waits");
    }
}
