//! A map that keeps what was used lately and no more than it may. Pure.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

/// Values by key, at most `most` of them: the one that was not used for longest goes first.
#[derive(Debug)]
pub(super) struct Recent<K, V> {
    most: usize,
    uses: u64,
    values: HashMap<K, (u64, V)>,
    by_use: BTreeMap<u64, K>,
}

impl<K: Hash + Eq + Clone, V> Recent<K, V> {
    /// Nothing is in it.
    pub(super) fn new(most: usize) -> Self {
        Self { most, uses: 0, values: HashMap::new(), by_use: BTreeMap::new() }
    }

    /// The value of a key, made when there is none. That is a use.
    pub(super) fn or_insert_with(&mut self, key: &K, make: impl FnOnce() -> V) -> &mut V {
        self.uses += 1;
        let uses = self.uses;
        if let Some((last, _)) = self.values.get(key) {
            self.by_use.remove(last);
        } else if self.values.len() >= self.most
            && let Some((_, oldest)) = self.by_use.pop_first()
        {
            self.values.remove(&oldest);
        }
        self.by_use.insert(uses, key.clone());
        let entry = self.values.entry(key.clone()).or_insert_with(|| (uses, make()));
        entry.0 = uses;
        &mut entry.1
    }

    /// How many there are.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.values.len().max(self.by_use.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_used_for_longest_goes_first() {
        let mut recent = Recent::new(2);
        *recent.or_insert_with(&"a", || 1) += 1;
        recent.or_insert_with(&"b", || 1);
        assert_eq!(*recent.or_insert_with(&"a", || 9), 2, "it is kept");
        recent.or_insert_with(&"c", || 1);
        assert_eq!(recent.len(), 2);
        assert_eq!(*recent.or_insert_with(&"a", || 9), 2, "it was used after b");
        assert_eq!(*recent.or_insert_with(&"b", || 9), 9, "b went");
        assert_eq!(recent.len(), 2);
    }
}
