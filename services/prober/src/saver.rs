//! Writes decisions down when they change, at most once a second.

use std::time::Duration;

use bulkhead_base::chain;
use bulkhead_reconcile::{Next, Reconciler, Trigger};
use bulkhead_service::Check;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::results::Known;
use crate::store::Store;

/// Shortest time between two writes.
const PAUSE: Duration = Duration::from_secs(1);

/// The loop.
pub struct Saver {
    store: Store,
    known: watch::Receiver<Known>,
    check: Check,
    dirty: bool,
    last: Option<Instant>,
}

impl Saver {
    /// Takes what `known` holds now for written.
    pub fn new(store: Store, known: watch::Receiver<Known>, check: Check) -> Self {
        check.good();
        Self { store, known, check, dirty: false, last: None }
    }
}

impl Reconciler for Saver {
    const NAME: &'static str = "keep results";

    fn interval(&self) -> Duration {
        Duration::from_secs(3600)
    }

    async fn reconcile(&mut self, _: Trigger) -> Next {
        self.dirty |= self.known.has_changed().unwrap_or(false);
        if !self.dirty {
            return Next::Wait;
        }
        let rest = self.last.map_or(Duration::ZERO, |last| PAUSE.saturating_sub(last.elapsed()));
        if !rest.is_zero() {
            return Next::After(rest);
        }
        let known = self.known.borrow_and_update().clone();
        let saved = self.store.save(known).await;
        self.last = Some(Instant::now());
        match saved {
            Ok(()) => {
                self.dirty = false;
                self.check.good();
                Next::Wait
            }
            Err(error) => {
                let error = chain(&error).to_string();
                if self.check.newly_bad(format!("a restart would lose results: {error}")) {
                    tracing::error!(
                        error,
                        "probe results are not saved; they are lost if prober restarts now"
                    );
                }
                Next::Failed(error)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use bulkhead_testkit::TestNode;

    use super::*;
    use crate::container::Decided;

    fn known(ids: &[&str]) -> Known {
        let decided = Decided { readiness: Some(true), ..Decided::default() };
        ids.iter().map(|id| ((*id).to_owned(), decided)).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn changes_are_written_at_most_once_a_second() {
        let node = TestNode::new().await;
        let context = node.context("prober");
        let store = Store::new(&context.own_state_dir());
        let sender = watch::Sender::new(known(&["1"]));
        let mut saver = Saver::new(store.clone(), sender.subscribe(), context.check("kept results"));
        assert_eq!(saver.reconcile(Trigger::Start).await, Next::Wait);
        assert_eq!(store.load_or_start_afresh().await, known(&[]), "what was loaded is not written again");

        sender.send_replace(known(&["1", "2"]));
        assert_eq!(saver.reconcile(Trigger::Woken).await, Next::Wait);
        assert_eq!(store.load_or_start_afresh().await, known(&["1", "2"]));
        sender.send_replace(known(&["2"]));
        assert_eq!(saver.reconcile(Trigger::Woken).await, Next::After(PAUSE));
        assert_eq!(store.load_or_start_afresh().await, known(&["1", "2"]));
        tokio::time::advance(PAUSE).await;
        assert_eq!(saver.reconcile(Trigger::Retry).await, Next::Wait);
        assert_eq!(store.load_or_start_afresh().await, known(&["2"]));
    }

    #[tokio::test(start_paused = true)]
    async fn what_could_not_be_written_is_tried_again() {
        let node = TestNode::new().await;
        let context = node.context("prober");
        let store = Store::new(&context.own_state_dir());
        let in_the_way = context.own_state_dir().join("results.json.new");
        std::fs::create_dir_all(&in_the_way).unwrap();
        let sender = watch::Sender::new(known(&[]));
        let mut saver = Saver::new(store.clone(), sender.subscribe(), context.check("kept results"));
        sender.send_replace(known(&["1"]));
        assert!(matches!(saver.reconcile(Trigger::Woken).await, Next::Failed(_)));
        std::fs::remove_dir(&in_the_way).unwrap();
        tokio::time::advance(PAUSE).await;
        assert_eq!(saver.reconcile(Trigger::Retry).await, Next::Wait);
        assert_eq!(store.load_or_start_afresh().await, known(&["1"]));
    }
}
