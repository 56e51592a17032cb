//! The runtime's event stream, when it has one: an event says only that its pod is to be read.
//!
//! What an event tells about the pod is not used: the state is what the runtime answers when asked, never a sum of events.
//! One action makes several events, and whoever asked for the action looks at the pod next: so an event waits for a moment,
//! and a pod that was read since its last event is not read again.
//!
//! Events are relied on (see [`crate::trust`]) from the first one on. Only that proves them: a runtime that has none says
//! so at once, but one that has them may send nothing at all, not even the head of its answer, before the first event. When
//! they were proved once, a stream that is opened again counts after a while without a refusal.

use std::collections::BTreeMap;
use std::time::Duration;

use bulkhead_base::{Backoff, chain};
use bulkhead_cri::{Observe, wire};
use bulkhead_model::names;
use bulkhead_reconcile::DelayQueue;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tonic::{Code, Status};

use crate::cache::Cache;
use crate::reader::Reader;
use crate::trust::Trust;

/// First and longest wait before a broken stream is opened again.
const RECONNECT: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(10));
/// How long a stream that is opened again must last, without an event, until it is relied on.
const PROBATION: Duration = Duration::from_secs(10);
/// From a pod's first event to its read: time for the other events of the same change, and for a look by who made it. Much
/// shorter than the second that a change waits without events.
const SETTLE: Duration = Duration::from_millis(100);
/// Pods with an event that are read or wait for it. Past it events are dropped: the relist sees those pods.
const PODS: usize = 1024;

/// Follows the stream.
#[derive(Debug)]
pub(crate) struct Events<O> {
    reader: Reader<O>,
    lives: watch::Receiver<u64>,
    trust: Trust,
    /// Whether there was an event in this life.
    proved: bool,
    /// Pods with events: when the last one came, in the order of reads.
    noticed: BTreeMap<String, u64>,
    /// Those that wait for their read.
    settling: DelayQueue<String>,
    /// One for each pod that is being read; it tells the pod and when its read began.
    reads: JoinSet<(String, u64)>,
}

impl<O: Observe> Events<O> {
    /// `lives` grows when the runtime is back: see [`crate::relist::Relist`].
    pub(crate) fn new(reader: Reader<O>, lives: watch::Receiver<u64>, trust: Trust) -> Self {
        Self {
            reader,
            lives,
            trust,
            proved: false,
            noticed: BTreeMap::new(),
            settling: DelayQueue::new(),
            reads: JoinSet::new(),
        }
    }

    /// Returns only when the relist is gone.
    pub(crate) async fn run(mut self) {
        let mut backoff = Backoff::new(RECONNECT.0, RECONNECT.1);
        // Before the first list was answered there is nobody to ask.
        if self.lives.wait_for(|lives| *lives > 0).await.is_err() {
            return;
        }
        loop {
            self.lives.borrow_and_update();
            let error = self.attend(&mut backoff).await;
            self.trust.lose();
            if error.code() == Code::Unimplemented {
                tracing::info!("the runtime has no events; relisting alone");
                self.proved = false;
                backoff.reset();
                if self.lives.changed().await.is_err() {
                    return;
                }
                continue;
            }
            tracing::debug!(%error, "no events; opening the stream again");
            tokio::select! {
                () = tokio::time::sleep(backoff.next_delay()) => {}
                Ok(()) = self.lives.changed() => {}
            }
        }
    }

    /// Opens the stream and reads it to its end, which is an error.
    async fn attend(&mut self, backoff: &mut Backoff) -> Status {
        let probation = tokio::time::sleep(PROBATION);
        tokio::pin!(probation);
        let client = self.reader.client().clone();
        let opening = client.container_events();
        tokio::pin!(opening);
        let opened = loop {
            tokio::select! {
                opened = &mut opening => break opened,
                () = &mut probation, if self.on_probation() => self.trust.gain(),
            }
        };
        let mut stream = match opened {
            Ok(stream) => stream,
            Err(error) => return error.status,
        };
        loop {
            tokio::select! {
                () = &mut probation, if self.on_probation() => self.trust.gain(),
                message = stream.message() => match message {
                    Ok(Some(event)) => {
                        backoff.reset();
                        self.proved = true;
                        self.trust.gain();
                        self.trust.moved();
                        if let Some(uid) = owner(&event, self.reader.cache()) {
                            self.mark(uid);
                        }
                    }
                    Ok(None) => return Status::unavailable("the runtime ended the stream"),
                    Err(status) => return status,
                },
                uid = self.settling.next() => self.read(uid),
                Some(done) = self.reads.join_next() => {
                    if let Ok((uid, began)) = done {
                        self.finish(uid, began);
                    }
                }
            }
        }
    }

    fn on_probation(&self) -> bool {
        self.proved && !self.trust.events()
    }

    fn mark(&mut self, uid: String) {
        if self.noticed.len() >= PODS && !self.noticed.contains_key(&uid) {
            return;
        }
        let now = self.reader.cache().moment();
        // One that settles or is being read already only learns that there is more to see.
        if self.noticed.insert(uid.clone(), now).is_none() {
            self.settling.push(uid, Instant::now() + SETTLE);
        }
    }

    fn read(&mut self, uid: String) {
        let cache = self.reader.cache();
        let noticed = self.noticed.get(&uid).copied().unwrap_or_default();
        if cache.is_confirmed_since(&uid, noticed) {
            self.noticed.remove(&uid);
            return;
        }
        let began = cache.moment();
        let reader = self.reader.clone();
        self.reads.spawn(async move {
            if let Err(error) = reader.refresh(&uid).await {
                tracing::debug!(pod = uid, error = %chain(&error), "a pod could not be read after its event");
            }
            (uid, began)
        });
    }

    /// The read may have asked before an event that came meanwhile.
    fn finish(&mut self, uid: String, began: u64) {
        match self.noticed.get(&uid) {
            Some(noticed) if *noticed > began => self.settling.push(uid, Instant::now() + SETTLE),
            _ => drop(self.noticed.remove(&uid)),
        }
    }
}

/// The pod that an event is about; `None` when it is about nothing of a pod, or of a pod that nobody knows.
fn owner(event: &wire::ContainerEventResponse, cache: &Cache) -> Option<String> {
    let of_sandbox = event.pod_sandbox_status.as_ref().map(|sandbox| &sandbox.labels);
    let of_container = || event.containers_statuses.first().map(|container| &container.labels);
    match of_sandbox.or_else(of_container) {
        Some(labels) => labels.get(names::POD_UID).filter(|uid| !uid.is_empty()).cloned(),
        // The sandbox is gone.
        None => cache.owner_of(&event.container_id),
    }
}

#[cfg(test)]
mod tests;
