//! A signal that says "look again". Any number of signals before the look count as one.

use std::sync::Arc;

use tokio::sync::Notify;

/// The looking side.
#[derive(Debug)]
pub struct Wake(Arc<Notify>);

/// The signalling side. Clones signal the same loop.
#[derive(Clone, Debug)]
pub struct Waker(Arc<Notify>);

/// A connected pair.
pub fn wake() -> (Waker, Wake) {
    let notify = Arc::new(Notify::new());
    (Waker(notify.clone()), Wake(notify))
}

impl Waker {
    /// Asks for one more look. Never blocks; lost only in an earlier signal that was not answered yet.
    pub fn wake(&self) {
        self.0.notify_one();
    }
}

impl Wake {
    /// Waits for a signal. Cancel-safe: a signal that arrives while nobody waits is kept.
    pub async fn woken(&mut self) {
        self.0.notified().await;
    }

    /// A signalling side for this one.
    pub fn waker(&self) -> Waker {
        Waker(self.0.clone())
    }
}
