//! A map that remembers in which generation each entry changed. Both ends of a stream are made of it.
//!
//! Pure: knows no socket and no clock. Must never keep more than [`TOMBSTONES`] removals: whoever fell further behind gets
//! the whole state again.

use std::collections::BTreeMap;
use std::sync::Arc;

/// Removals remembered for consumers that are behind. Past it they get a snapshot; at 1,000 pods a minute it is four
/// minutes' worth.
pub const TOMBSTONES: usize = 4096;

/// Entries with the generation of their last change.
#[derive(Debug)]
pub struct Table<K, V> {
    generation: u64,
    items: BTreeMap<K, (u64, Arc<V>)>,
    changed: BTreeMap<u64, K>,
    removed: BTreeMap<u64, K>,
    removed_at: BTreeMap<K, u64>,
    forgotten: u64,
}

/// What happened after some generation.
#[derive(Debug)]
pub struct Since<K, V> {
    /// Where the table stands now.
    pub generation: u64,
    /// True when removals in between are no longer known: `upserts` is then everything there is.
    pub full: bool,
    /// New and changed entries, oldest change first.
    pub upserts: Vec<(K, Arc<V>)>,
    /// Keys that are gone.
    pub removed: Vec<K>,
}

impl<K: Ord + Clone, V: PartialEq> Default for Table<K, V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: Ord + Clone, V: PartialEq> Table<K, V> {
    /// An empty table at generation 0.
    pub fn new() -> Self {
        Self {
            generation: 0,
            items: BTreeMap::new(),
            changed: BTreeMap::new(),
            removed: BTreeMap::new(),
            removed_at: BTreeMap::new(),
            forgotten: 0,
        }
    }

    /// Where the table stands; grows by one with each change.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// The entry under `key`.
    pub fn get(&self, key: &K) -> Option<Arc<V>> {
        self.items.get(key).map(|(_, value)| value.clone())
    }

    /// All entries in key order.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &Arc<V>)> {
        self.items.iter().map(|(key, (_, value))| (key, value))
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Sets an entry; returns whether that changed anything.
    pub fn upsert(&mut self, key: K, value: V) -> bool {
        if let Some((generation, old)) = self.items.get(&key) {
            if **old == value {
                return false;
            }
            self.changed.remove(generation);
        }
        self.generation += 1;
        if let Some(tombstone) = self.removed_at.remove(&key) {
            self.removed.remove(&tombstone);
        }
        self.changed.insert(self.generation, key.clone());
        self.items.insert(key, (self.generation, Arc::new(value)));
        true
    }

    /// Removes an entry; returns whether there was one.
    pub fn remove(&mut self, key: &K) -> bool {
        let Some((generation, _)) = self.items.remove(key) else { return false };
        self.changed.remove(&generation);
        self.generation += 1;
        self.removed.insert(self.generation, key.clone());
        self.removed_at.insert(key.clone(), self.generation);
        while self.removed.len() > TOMBSTONES {
            if let Some((generation, key)) = self.removed.pop_first() {
                self.removed_at.remove(&key);
                self.forgotten = generation;
            }
        }
        true
    }

    /// Makes the table hold exactly `items`; only real differences count as changes. Returns whether there were any.
    pub fn replace(&mut self, items: BTreeMap<K, V>) -> bool {
        let gone: Vec<K> = self.items.keys().filter(|key| !items.contains_key(key)).cloned().collect();
        let mut changed = !gone.is_empty();
        for key in gone {
            self.remove(&key);
        }
        for (key, value) in items {
            changed |= self.upsert(key, value);
        }
        changed
    }

    /// What changed after `generation`; `None` means nothing was seen yet.
    pub fn since(&self, generation: Option<u64>) -> Since<K, V> {
        let seen = match generation {
            Some(seen) if seen >= self.forgotten && seen <= self.generation => seen,
            _ => {
                let upserts = self.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
                return Since { generation: self.generation, full: true, upserts, removed: Vec::new() };
            }
        };
        let upserts = self
            .changed
            .range(seen + 1..)
            .filter_map(|(_, key)| self.items.get(key).map(|(_, value)| (key.clone(), value.clone())))
            .collect();
        let removed = self.removed.range(seen + 1..).map(|(_, key)| key.clone()).collect();
        Since { generation: self.generation, full: false, upserts, removed }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn equal_values_are_no_change() {
        let mut table = Table::new();
        assert!(table.upsert("a", 1));
        assert!(!table.upsert("a", 1));
        assert!(!table.remove(&"b"));
        assert_eq!(table.generation(), 1);
    }

    #[test]
    fn who_is_too_far_behind_gets_everything() {
        let mut table = Table::new();
        table.upsert(0_usize, ());
        let seen = table.since(None).generation;
        for key in 1..TOMBSTONES + 3 {
            table.upsert(key, ());
            table.remove(&key);
        }
        let since = table.since(Some(seen));
        assert!(since.full);
        assert_eq!(since.upserts.len(), 1);
        assert!(table.since(Some(u64::MAX)).full, "a generation of another life");
    }

    proptest! {
        // Whatever happens in between, a consumer that applies what it is told holds what the table holds.
        #[test]
        fn a_consumer_always_catches_up(steps in prop::collection::vec((0_u8..6, any::<Option<u8>>(), any::<bool>()), 0..200)) {
            let mut table = Table::new();
            let mut copy = BTreeMap::new();
            let mut seen = None;
            for (key, value, read) in steps {
                match value {
                    Some(value) => { table.upsert(key, value); }
                    None => { table.remove(&key); }
                }
                if read {
                    let since = table.since(seen);
                    if since.full { copy.clear(); }
                    for key in &since.removed { copy.remove(key); }
                    for (key, value) in &since.upserts { copy.insert(*key, **value); }
                    seen = Some(since.generation);
                    let now: BTreeMap<u8, u8> = table.iter().map(|(k, v)| (*k, **v)).collect();
                    prop_assert_eq!(&copy, &now);
                }
            }
        }
    }
}
