//! What statusd remembers: one record per pod, and the runtime's name. Shared by the loop that computes and the one that
//! saves; a change wakes the latter.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bulkhead_reconcile::Waker;
use serde::{Deserialize, Serialize};
use tokio::sync::{Notify, watch};

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
    shared: Arc<Shared>,
    changed: Waker,
}

#[derive(Debug)]
struct Shared {
    now: Mutex<Now>,
    /// The newest change that a write was tried for.
    tried: watch::Sender<u64>,
    /// Somebody waits for a write.
    hurry: Notify,
}

#[derive(Debug)]
struct Now {
    memory: Memory,
    /// Counts changes.
    changes: u64,
}

impl Records {
    /// Begins with `memory`; wakes `changed` at each change.
    pub(crate) fn new(memory: Memory, changed: Waker) -> Self {
        let now = Mutex::new(Now { memory, changes: 0 });
        Self { shared: Arc::new(Shared { now, tried: watch::Sender::new(0), hurry: Notify::new() }), changed }
    }

    pub(crate) fn get(&self, uid: &str) -> Option<Arc<Record>> {
        self.lock().memory.pods.get(uid).cloned()
    }

    pub(crate) fn uids(&self) -> Vec<String> {
        self.lock().memory.pods.keys().cloned().collect()
    }

    pub(crate) fn runtime_name(&self) -> String {
        self.lock().memory.runtime_name.clone()
    }

    /// A copy, with the records shared, and how many changes are in it.
    pub(crate) fn memory(&self) -> (Memory, u64) {
        let now = self.lock();
        (now.memory.clone(), now.changes)
    }

    pub(crate) fn set(&self, uid: &str, record: Record) {
        self.change(|memory| {
            if memory.pods.get(uid).is_some_and(|old| **old == record) {
                return false;
            }
            memory.pods.insert(uid.to_owned(), Arc::new(record));
            true
        });
    }

    pub(crate) fn remove(&self, uid: &str) {
        self.change(|memory| memory.pods.remove(uid).is_some());
    }

    pub(crate) fn set_runtime_name(&self, name: &str) {
        self.change(|memory| {
            let other = memory.runtime_name != name;
            name.clone_into(&mut memory.runtime_name);
            other
        });
    }

    /// Has everything written now, and waits until it is, or the disk refused it. For ever where nothing
    /// [keeps](crate::keeper::keep) the records.
    pub(crate) async fn kept(&self) {
        let wanted = self.lock().changes;
        self.shared.hurry.notify_one();
        // The sender lives as long as `self`.
        let _ = self.shared.tried.subscribe().wait_for(|tried| *tried >= wanted).await;
    }

    /// A write with so many changes in it was tried.
    pub(crate) fn tried(&self, changes: u64) {
        self.shared.tried.send_replace(changes);
    }

    /// Returns when somebody waits for a write. Cancel-safe.
    pub(crate) async fn hurried(&self) {
        self.shared.hurry.notified().await;
    }

    fn change(&self, change: impl FnOnce(&mut Memory) -> bool) {
        let mut now = self.lock();
        if change(&mut now.memory) {
            now.changes += 1;
            drop(now);
            self.changed.wake();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Now> {
        self.shared.now.lock().unwrap_or_else(PoisonError::into_inner)
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
