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
                self.check.bad(format!("a restart would lose results: {error}"));
                Next::Failed(error)
            }
        }
    }
}
