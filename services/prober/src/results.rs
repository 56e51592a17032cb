//! What is told to others, and what is kept for the next life of this process.

use std::collections::{BTreeMap, BTreeSet};

use bulkhead_api::convert::health_to_wire;
use bulkhead_api::prober::v1::ContainerResult;
use bulkhead_ipc::Publisher;
use bulkhead_reconcile::Waker;
use tokio::sync::watch;

use crate::container::{Decided, Probes};

/// What probes decided, by container id.
pub type Known = BTreeMap<String, Decided>;

/// Publishes results and keeps decisions. Only containers that the runtime holds are in it, so it is bounded by them.
pub struct Results {
    publisher: Publisher<String, ContainerResult>,
    known: watch::Sender<Known>,
    /// Wakes who writes `known` down.
    changed: Waker,
}

/// Whom a result is about.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// UID of the pod.
    pub pod_uid: &'a str,
    /// Name in the pod's spec.
    pub name: &'a str,
    /// The runtime's id.
    pub id: &'a str,
    /// Whether it was seen to run.
    pub running: bool,
}

impl Results {
    /// Starts with what an earlier life decided.
    pub fn new(publisher: Publisher<String, ContainerResult>, known: Known, changed: Waker) -> Self {
        Self { publisher, known: watch::Sender::new(known), changed }
    }

    /// What was decided, as it changes.
    pub fn known(&self) -> watch::Receiver<Known> {
        self.known.subscribe()
    }

    /// Says how a container is.
    pub fn tell(&self, subject: Subject<'_>, probes: &Probes) {
        let Subject { pod_uid, name, id, running } = subject;
        let results = probes.results(running);
        let result = ContainerResult {
            container_id: id.to_owned(),
            pod_uid: pod_uid.to_owned(),
            container_name: name.to_owned(),
            started: results.started,
            ready: results.ready,
            health: health_to_wire(results.health).into(),
            message: probes.message().to_owned(),
        };
        self.publisher.upsert(id.to_owned(), result);
        let decided = if running { probes.decided() } else { Decided::default() };
        self.keep(|known| match known.get(id) {
            Some(before) if *before == decided => false,
            None if decided.is_empty() => false,
            _ if decided.is_empty() => known.remove(id).is_some(),
            _ => {
                known.insert(id.to_owned(), decided);
                true
            }
        });
    }

    /// The container is no more, or has no probes any more.
    pub fn forget(&self, id: &str) {
        self.publisher.remove(&id.to_owned());
        self.keep(|known| known.remove(id).is_some());
    }

    /// Everything that exists was told: subscribers get it from now on, and the rest is forgotten.
    pub fn open(&self, existing: &BTreeSet<String>) {
        self.keep(|known| {
            let before = known.len();
            known.retain(|id, _| existing.contains(id));
            known.len() != before
        });
        self.publisher.open();
    }

    fn keep(&self, change: impl FnOnce(&mut Known) -> bool) {
        if self.known.send_if_modified(change) {
            self.changed.wake();
        }
    }
}
