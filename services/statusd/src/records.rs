//! What statusd remembers: one record per pod, and the runtime's name. Shared by the loop that computes and the one that
//! saves; a change wakes the latter.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bulkhead_reconcile::Waker;
use serde::{Deserialize, Serialize};

use crate::record::Record;

/// All that must survive statusd. Copies share the records.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Memory {
    /// As container ids begin; empty while it is not known.
    pub(crate) runtime_name: String,
    /// By pod UID.
    #[serde(with = "shared")]
    pub(crate) pods: BTreeMap<String, Arc<Record>>,
}

/// The memory, shared.
#[derive(Clone, Debug)]
pub(crate) struct Records {
    memory: Arc<Mutex<Memory>>,
    changed: Waker,
}

impl Records {
    /// Begins with `memory`; wakes `changed` at each change.
    pub(crate) fn new(memory: Memory, changed: Waker) -> Self {
        Self { memory: Arc::new(Mutex::new(memory)), changed }
    }

    pub(crate) fn get(&self, uid: &str) -> Option<Arc<Record>> {
        self.lock().pods.get(uid).cloned()
    }

    pub(crate) fn uids(&self) -> Vec<String> {
        self.lock().pods.keys().cloned().collect()
    }

    pub(crate) fn runtime_name(&self) -> String {
        self.lock().runtime_name.clone()
    }

    /// A copy, with the records shared.
    pub(crate) fn memory(&self) -> Memory {
        self.lock().clone()
    }

    pub(crate) fn set(&self, uid: &str, record: Record) {
        let mut memory = self.lock();
        if memory.pods.get(uid).is_some_and(|old| **old == record) {
            return;
        }
        memory.pods.insert(uid.to_owned(), Arc::new(record));
        drop(memory);
        self.changed.wake();
    }

    pub(crate) fn remove(&self, uid: &str) {
        let removed = self.lock().pods.remove(uid);
        if removed.is_some() {
            self.changed.wake();
        }
    }

    pub(crate) fn set_runtime_name(&self, name: &str) {
        let mut memory = self.lock();
        if memory.runtime_name != name {
            name.clone_into(&mut memory.runtime_name);
            drop(memory);
            self.changed.wake();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Records in JSON as if they were not shared: a copy of all statuses for each write would be waste.
mod shared {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use serde::{Deserialize, Deserializer, Serializer};

    use crate::record::Record;

    type Pods = BTreeMap<String, Arc<Record>>;

    pub(super) fn serialize<S: Serializer>(pods: &Pods, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(pods.iter().map(|(uid, record)| (uid, &**record)))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Pods, D::Error> {
        let pods = BTreeMap::<String, Record>::deserialize(from)?;
        Ok(pods.into_iter().map(|(uid, record)| (uid, Arc::new(record))).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_memory_is_the_same_after_it_was_saved() {
        let record = Record { terminated: true, ..Record::default() };
        let pods = [("u".to_owned(), Arc::new(record))].into();
        for memory in [Memory::default(), Memory { runtime_name: "containerd".to_owned(), pods }] {
            let saved = serde_json::to_vec(&memory).unwrap();
            assert_eq!(serde_json::from_slice::<Memory>(&saved).unwrap(), memory);
        }
    }
}
