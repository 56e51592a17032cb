//! What statusd remembers: one record per pod, and the runtime's name. Shared by the loop that computes and the one that
//! saves; a change wakes the latter.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bulkhead_reconcile::Waker;

use crate::record::Record;

/// All that must survive statusd. Copies share the records.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Memory {
    /// As container ids begin; empty while it is not known.
    pub(crate) runtime_name: String,
    /// By pod UID.
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
