//! What a process says about its own parts: named checks, and readiness that only moves one way.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use bulkhead_base::Clock;
use jiff::Timestamp;
use tokio::sync::watch;

/// All checks of a process. Clones share it.
#[derive(Clone)]
pub(crate) struct Checks {
    clock: Arc<dyn Clock>,
    checks: Arc<Mutex<BTreeMap<&'static str, State>>>,
    ready: watch::Sender<bool>,
}

/// One check now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct State {
    /// Why not; empty when it is fine.
    pub(crate) reason: String,
    /// Since when it is so.
    pub(crate) since: Timestamp,
}

impl Checks {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, checks: Arc::default(), ready: watch::channel(false).0 }
    }

    /// Records a check; returns whether fine turned to not fine or back. The time changes only then.
    pub(crate) fn set(&self, name: &'static str, result: Result<(), String>) -> bool {
        let reason = result.err().unwrap_or_default();
        let now = self.clock.now();
        let mut checks = self.checks.lock().unwrap_or_else(PoisonError::into_inner);
        let state = checks.entry(name).or_insert_with(|| State { reason: reason.clone(), since: now });
        let turned = state.reason.is_empty() != reason.is_empty();
        if turned {
            state.since = now;
        }
        state.reason = reason;
        turned
    }

    pub(crate) fn snapshot(&self) -> BTreeMap<&'static str, State> {
        self.checks.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set_ready(&self) {
        self.ready.send_replace(true);
    }

    pub(crate) fn is_ready(&self) -> bool {
        *self.ready.borrow()
    }

    pub(crate) async fn wait_ready(&self) {
        // The sender lives as long as `self`.
        let _ = self.ready.subscribe().wait_for(|ready| *ready).await;
    }
}
