//! Which pods have to be looked at. Bounded by the number of pods: a pod is marked once, however often it changes.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use bulkhead_api::prober::v1::ContainerResult;
use bulkhead_ipc::Mirror;
use bulkhead_ipc::table::Since;
use bulkhead_model::status::NodeFacts;
use bulkhead_reconcile::Waker;
use tokio::sync::watch;

/// Marks, and the loop that they wake. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Marks {
    marked: Arc<Mutex<Marked>>,
    waker: Waker,
}

/// What was marked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Marked {
    /// All pods.
    pub(crate) all: bool,
    /// These.
    pub(crate) uids: BTreeSet<String>,
}

impl Marks {
    /// None; `waker` is woken with each.
    pub(crate) fn new(waker: Waker) -> Self {
        Self { marked: Arc::default(), waker }
    }

    /// Takes all marks.
    pub(crate) fn take(&self) -> Marked {
        std::mem::take(&mut self.marked.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Marks the pods that change in a mirror whose keys are pod UIDs. Never returns.
    pub(crate) async fn follow_pods<V: PartialEq + Send + Sync + 'static>(self, mirror: Mirror<String, V>) {
        let mut changes = mirror.changes();
        loop {
            self.add(of_pods(changes.next().await));
        }
    }

    /// Marks the pods whose containers have new probe results. Never returns.
    pub(crate) async fn follow_results(self, mirror: Mirror<String, ContainerResult>) {
        let mut changes = mirror.changes();
        loop {
            self.add(of_results(&changes.next().await));
        }
    }

    /// Marks all pods when what they all depend on changes. Ends with the sender.
    pub(crate) async fn follow_node(self, mut node: watch::Receiver<NodeFacts>) {
        while node.changed().await.is_ok() {
            self.add(Marked { all: true, uids: BTreeSet::new() });
        }
    }

    fn add(&self, new: Marked) {
        let mut marked = self.marked.lock().unwrap_or_else(PoisonError::into_inner);
        marked.all |= new.all;
        marked.uids.extend(new.uids);
        drop(marked);
        self.waker.wake();
    }
}

fn of_pods<V>(since: Since<String, V>) -> Marked {
    let changed = since.upserts.into_iter().map(|(uid, _)| uid);
    Marked { all: since.full, uids: changed.chain(since.removed).collect() }
}

/// A result that is gone changes no status: what was published of the same container stands.
fn of_results(since: &Since<String, ContainerResult>) -> Marked {
    let uids = since.upserts.iter().map(|(_, result)| result.pod_uid.clone()).collect();
    Marked { all: since.full, uids }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake;

    #[test]
    fn what_changed_is_marked() {
        let pods = |full| Since {
            generation: 1,
            full,
            upserts: vec![("a".to_owned(), Arc::new(1))],
            removed: vec!["b".to_owned()],
        };
        let uids = |uids: &[&str]| uids.iter().map(|uid| (*uid).to_owned()).collect();
        assert_eq!(of_pods(pods(false)), Marked { all: false, uids: uids(&["a", "b"]) });
        assert!(of_pods(pods(true)).all, "what was removed in between is not known");
        let result = fake::ready("u", true);
        let results = Since {
            generation: 1,
            full: false,
            upserts: vec![(result.container_id.clone(), Arc::new(result))],
            removed: vec!["c2".to_owned()],
        };
        assert_eq!(of_results(&results), Marked { all: false, uids: uids(&["u"]) });
    }
}
