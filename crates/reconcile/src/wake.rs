//! A signal that says "look again". Any number of signals before the look count as one.

use std::sync::Arc;

use tokio::sync::watch;

/// The looking side.
#[derive(Debug)]
pub struct Wake {
    seen: watch::Receiver<()>,
    /// Kept so that waiting can never fail.
    sender: Arc<watch::Sender<()>>,
}

/// The signalling side. Clones signal the same loop.
#[derive(Clone, Debug)]
pub struct Waker(Arc<watch::Sender<()>>);

/// A connected pair.
pub fn wake() -> (Waker, Wake) {
    let (sender, seen) = watch::channel(());
    let sender = Arc::new(sender);
    (Waker(sender.clone()), Wake { seen, sender })
}

impl Waker {
    /// Asks for one more look. Never blocks; lost only in an earlier signal that was not answered yet.
    pub fn wake(&self) {
        self.0.send_replace(());
    }
}

impl Wake {
    /// Waits for a signal. Cancel-safe: a signal that arrives while nobody waits is kept.
    pub async fn woken(&mut self) {
        // Cannot fail: a sender is in `self`.
        let _ = self.seen.changed().await;
    }

    /// A signalling side for this one.
    pub fn waker(&self) -> Waker {
        Waker(self.sender.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn signals_before_a_look_count_as_one_and_none_is_lost() {
        let (waker, mut wake) = wake();
        waker.wake();
        waker.clone().wake();
        wake.woken().await;
        let quiet = tokio::time::timeout(std::time::Duration::from_secs(9), wake.woken()).await;
        assert!(quiet.is_err(), "the second signal came before the look");
        waker.wake();
        wake.woken().await;
        drop(waker);
        let quiet = tokio::time::timeout(std::time::Duration::from_secs(9), wake.woken()).await;
        assert!(quiet.is_err(), "nobody left to signal is no signal");
        let again = wake.waker();
        again.wake();
        wake.woken().await;
    }
}
