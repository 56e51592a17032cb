//! The relist: every second everything is listed, and what differs from what is known is read.
//!
//! A pass does not wait for these reads: a container whose inspection hangs delays its own pod, no other one and not the
//! next list. Only the passes before the state is whole for the first time wait, since nothing is published until then.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bulkhead_base::chain;
use bulkhead_cri::Observe;
use bulkhead_reconcile::{Next, Reconciler, Trigger};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::cache::Read;
use crate::listing::{PodListing, Row, rows};
use crate::reader::Reader;

/// From the end of one list to the next one: the kubelet's relist period.
pub(crate) const INTERVAL: Duration = Duration::from_secs(1);

/// The loop's state.
#[derive(Debug)]
pub(crate) struct Relist<O> {
    reader: Reader<O>,
    lives: watch::Sender<u64>,
    answers: bool,
    /// Pods with a read on its way; each has one task in `reads`.
    busy: BTreeSet<String>,
    reads: JoinSet<Outcome>,
}

#[derive(Debug)]
struct Outcome {
    uid: String,
    error: Option<String>,
}

impl<O: Observe> Relist<O> {
    /// `lives` grows whenever the runtime answers again after it did not: it may be another one then.
    pub(crate) fn new(reader: Reader<O>, lives: watch::Sender<u64>) -> Self {
        Self { reader, lives, answers: false, busy: BTreeSet::new(), reads: JoinSet::new() }
    }

    fn start(&mut self, read: &Arc<Read>, rows: &[Row<'_>]) {
        let Some(listing) = PodListing::of(rows) else { return };
        // A pod that is being read is left alone: the next list tells whether that was enough.
        if !self.busy.insert(listing.uid.clone()) {
            return;
        }
        let (reader, read) = (self.reader.clone(), read.clone());
        self.reads.spawn(async move {
            let uid = listing.uid.clone();
            let error =
                reader.refresh_from(&read, listing).await.err().map(|error| chain(&error).to_string());
            if let Some(error) = &error {
                tracing::warn!(pod = uid, error, "a pod could not be read; trying again");
            }
            Outcome { uid, error }
        });
    }

    fn finish(&mut self, outcome: Result<Outcome, tokio::task::JoinError>) -> Option<String> {
        let outcome = outcome.ok()?;
        self.busy.remove(&outcome.uid);
        outcome.error
    }
}

impl<O: Observe> Reconciler for Relist<O> {
    const NAME: &'static str = "relist";

    fn interval(&self) -> Duration {
        INTERVAL
    }

    async fn reconcile(&mut self, _: Trigger) -> Next {
        while let Some(outcome) = self.reads.try_join_next() {
            self.finish(outcome);
        }
        let cache = self.reader.cache().clone();
        let read = Arc::new(cache.begin());
        let (sandboxes, containers) = match self.reader.list().await {
            Ok(listed) => listed,
            Err(error) => {
                self.answers = false;
                return Next::Failed(chain(&error).to_string());
            }
        };
        if !std::mem::replace(&mut self.answers, true) {
            self.lives.send_modify(|lives| *lives += 1);
        }
        let rows = rows(&sandboxes, &containers);
        for pod in read.changed(&rows) {
            self.start(&read, pod);
        }
        read.remove_missing(&rows);
        if cache.is_open() {
            return Next::Wait;
        }
        let mut failure = None;
        while let Some(outcome) = self.reads.join_next().await {
            failure = self.finish(outcome).or(failure);
        }
        if read.is_whole(&rows) {
            cache.open();
            return Next::Wait;
        }
        Next::Failed(failure.unwrap_or_else(|| "pods changed while they were read".to_owned()))
    }
}

#[cfg(test)]
mod tests;
