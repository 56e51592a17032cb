//! The runtime's event stream, when it has one: an event says only that its pod is to be read at once.
//!
//! What an event tells about the pod is not used, and a lost event costs at most the second until the next relist: the
//! state is what the runtime answers when asked, never a sum of events.

use std::collections::BTreeMap;
use std::time::Duration;

use bulkhead_base::{Backoff, chain};
use bulkhead_cri::{Observe, wire};
use bulkhead_model::names;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tonic::{Code, Status, Streaming};

use crate::cache::Cache;
use crate::reader::Reader;

/// First and longest wait before a broken stream is opened again.
const RECONNECT: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(10));
/// Pods with an event that are read or wait for it. Past it events are dropped: the relist sees those pods.
const PODS: usize = 1024;

/// Follows the stream.
#[derive(Debug)]
pub(crate) struct Events<O> {
    reader: Reader<O>,
    lives: watch::Receiver<u64>,
    /// Pods that are being read, and whether another event came since that read was started.
    again: BTreeMap<String, bool>,
    reads: JoinSet<String>,
}

impl<O: Observe> Events<O> {
    /// `lives` grows when the runtime is back: see [`crate::relist::Relist`].
    pub(crate) fn new(reader: Reader<O>, lives: watch::Receiver<u64>) -> Self {
        Self { reader, lives, again: BTreeMap::new(), reads: JoinSet::new() }
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
            let error = match self.reader.client().container_events().await {
                Ok(stream) => self.follow(stream, &mut backoff).await,
                Err(error) => error.status,
            };
            if error.code() == Code::Unimplemented {
                tracing::info!("the runtime has no events; relisting alone");
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

    /// Reads the stream to its end, which is an error.
    async fn follow(
        &mut self,
        mut stream: Streaming<wire::ContainerEventResponse>,
        backoff: &mut Backoff,
    ) -> Status {
        loop {
            tokio::select! {
                message = stream.message() => match message {
                    Ok(Some(event)) => {
                        backoff.reset();
                        if let Some(uid) = owner(&event, self.reader.cache()) {
                            self.mark(uid);
                        }
                    }
                    Ok(None) => return Status::unavailable("the runtime ended the stream"),
                    Err(status) => return status,
                },
                Some(done) = self.reads.join_next() => {
                    if let Ok(uid) = done && self.again.remove(&uid) == Some(true) {
                        self.mark(uid);
                    }
                }
            }
        }
    }

    fn mark(&mut self, uid: String) {
        if let Some(again) = self.again.get_mut(&uid) {
            // The read that runs may have asked before this event.
            *again = true;
            return;
        }
        if self.again.len() >= PODS {
            return;
        }
        self.again.insert(uid.clone(), false);
        let reader = self.reader.clone();
        self.reads.spawn(async move {
            if let Err(error) = reader.refresh(&uid).await {
                tracing::debug!(pod = uid, error = %chain(&error), "a pod could not be read after its event");
            }
            uid
        });
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
