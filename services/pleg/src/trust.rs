//! Whether the runtime's events are relied on, shared by who follows them and the relist.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bulkhead_reconcile::Waker;

/// Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Trust {
    shared: Arc<Shared>,
    relist: Waker,
}

#[derive(Debug, Default)]
struct Shared {
    events: AtomicBool,
    /// Something moved since the last list began.
    moved: AtomicBool,
}

impl Trust {
    /// Not yet; `relist` is woken when a list is due before its interval.
    pub(crate) fn new(relist: Waker) -> Self {
        Self { shared: Arc::default(), relist }
    }

    /// Whether events are relied on.
    pub(crate) fn events(&self) -> bool {
        self.shared.events.load(Ordering::Relaxed)
    }

    /// Events come, or may be relied on to come.
    pub(crate) fn gain(&self) {
        if !self.shared.events.swap(true, Ordering::Relaxed) {
            tracing::info!("the runtime tells its events; relisting rarely");
        }
    }

    /// The stream of events is gone: the relist goes back to its pace.
    pub(crate) fn lose(&self) {
        if self.shared.events.swap(false, Ordering::Relaxed) {
            tracing::info!("no events; relisting every second");
            self.relist.wake();
        }
    }

    /// Something moved: a list is due soon. However often this is called, the relist is woken once for its next list.
    pub(crate) fn moved(&self) {
        if !self.shared.moved.swap(true, Ordering::Relaxed) && self.events() {
            self.relist.wake();
        }
    }

    /// A list begins: what moves from now on needs another one.
    pub(crate) fn confirming(&self) {
        self.shared.moved.store(false, Ordering::Relaxed);
    }
}
