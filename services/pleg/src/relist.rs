//! The relist: everything is listed, and what differs from what is known is read. Every second; every two minutes while
//! the runtime's events are relied on and nothing moves.
//!
//! An event has the relist run a second later, and then each second until a list finds nothing new: so a lost event, a
//! failed read or an address that is not known yet costs a second in the middle of changes, and two minutes at most when
//! it is the only one.
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
use tokio::time::Instant;

use crate::cache::Read;
use crate::listing::{PodListing, Row, rows};
use crate::measures::Measures;
use crate::reader::Reader;
use crate::trust::Trust;

/// From the end of one list to the next one: the kubelet's relist period.
pub(crate) const INTERVAL: Duration = Duration::from_secs(1);
/// The same while events are relied on and nothing moves. Well below [`crate::health::THRESHOLD`], so that a runtime that
/// hangs without breaking its stream is noticed.
pub(crate) const QUIET: Duration = Duration::from_secs(2 * 60);

/// The loop's state.
#[derive(Debug)]
pub(crate) struct Relist<O> {
    reader: Reader<O>,
    lives: watch::Sender<u64>,
    trust: Trust,
    measures: Option<Measures>,
    /// When the last list was asked for.
    listed_at: Option<Instant>,
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
    /// `lives` grows whenever the runtime answers again after it did not: it may be another one then. `trust` says
    /// whether events are relied on.
    pub(crate) fn new(reader: Reader<O>, lives: watch::Sender<u64>, trust: Trust) -> Self {
        Self {
            reader,
            lives,
            trust,
            measures: None,
            listed_at: None,
            answers: false,
            busy: BTreeSet::new(),
            reads: JoinSet::new(),
        }
    }

    /// Measures lists there.
    pub(crate) fn measured(self, measures: Measures) -> Self {
        Self { measures: Some(measures), ..self }
    }

    fn measure(&mut self, began: Instant) {
        let before = self.listed_at.replace(began);
        if let Some(measures) = &self.measures {
            measures.listed(began.elapsed(), before.map(|before| began.saturating_duration_since(before)));
        }
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
        if self.trust.events() { QUIET } else { INTERVAL }
    }

    async fn reconcile(&mut self, trigger: Trigger) -> Next {
        if trigger == Trigger::Woken {
            // What woke it is being read: the list is there to confirm it.
            return Next::After(INTERVAL);
        }
        self.trust.confirming();
        while let Some(outcome) = self.reads.try_join_next() {
            self.finish(outcome);
        }
        let cache = self.reader.cache().clone();
        let read = Arc::new(cache.begin());
        let began = Instant::now();
        let (sandboxes, containers) = match self.reader.list().await {
            Ok(listed) => listed,
            Err(error) => {
                self.answers = false;
                return Next::Failed(chain(&error).to_string());
            }
        };
        self.measure(began);
        if !std::mem::replace(&mut self.answers, true) {
            self.lives.send_modify(|lives| *lives += 1);
        }
        let rows = rows(&sandboxes, &containers);
        for pod in read.changed(&rows) {
            self.start(&read, pod);
        }
        read.remove_missing(&rows);
        if cache.is_open() {
            return if self.busy.is_empty() { Next::Wait } else { Next::After(INTERVAL) };
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
