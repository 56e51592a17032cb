//! Answers that hold for a while, by hashes of what was asked. Bounded, whoever asks however much.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use sha2::{Digest, Sha256};
use tokio::time::Instant;
use uuid::Uuid;

/// A hash of something that must not be kept itself.
pub(super) type Key = [u8; 32];

/// Makes keys that nobody outside of this process can make.
pub(super) struct Keys(Uuid);

/// Answers by key.
pub(super) struct Cache<T> {
    most: usize,
    entries: Mutex<HashMap<Key, (T, Instant)>>,
}

impl Keys {
    pub(super) fn new() -> Self {
        Self(Uuid::new_v4())
    }

    /// The key of these parts: `[ab, c]` and `[a, bc]` have different ones.
    pub(super) fn of(&self, parts: &[&[u8]]) -> Key {
        let mut digest = Sha256::new_with_prefix(self.0.as_bytes());
        for part in parts {
            digest.update(u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
            digest.update(part);
        }
        digest.finalize().into()
    }
}

impl<T: Clone> Cache<T> {
    /// Of at most so many answers.
    pub(super) fn new(most: usize) -> Self {
        Self { most, entries: Mutex::default() }
    }

    /// The answer, while it holds.
    pub(super) fn get(&self, key: &Key, now: Instant) -> Option<T> {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.get(key).filter(|(_, until)| now < *until).map(|(answer, _)| answer.clone())
    }

    /// Keeps an answer. When there is no room, those that do not hold any more go, and else any one.
    pub(super) fn put(&self, key: Key, answer: T, until: Instant) {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        if entries.len() >= self.most && !entries.contains_key(&key) {
            let now = Instant::now();
            entries.retain(|_, (_, until)| now < *until);
            if entries.len() >= self.most
                && let Some(any) = entries.keys().next().copied()
            {
                entries.remove(&any);
            }
        }
        entries.insert(key, (answer, until));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn answers_hold_for_a_while_and_room_is_bounded() {
        let (keys, cache) = (Keys::new(), Cache::new(8));
        let key = keys.of(&[b"a"]);
        let life = Duration::from_secs(10);
        cache.put(key, 1, Instant::now() + life);
        assert_eq!(cache.get(&key, Instant::now()), Some(1));
        tokio::time::advance(life).await;
        assert_eq!(cache.get(&key, Instant::now()), None);
        for n in 0..100_u8 {
            cache.put(keys.of(&[&[n]]), n.into(), Instant::now() + life);
            assert_eq!(cache.get(&keys.of(&[&[n]]), Instant::now()), Some(n.into()), "the newest is there");
        }
        assert_eq!(cache.entries.lock().unwrap().len(), 8);
    }

    #[test]
    fn keys_tell_parts_apart_and_are_no_ones_guess() {
        let keys = Keys::new();
        assert_ne!(keys.of(&[b"ab", b"c"]), keys.of(&[b"a", b"bc"]));
        assert_eq!(keys.of(&[b"a"]), keys.of(&[b"a"]));
        assert_ne!(keys.of(&[b"a"]), Keys::new().of(&[b"a"]));
    }
}
