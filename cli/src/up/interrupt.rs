//! Ctrl-C, TERM and HUP: the first asks to stop, the next one to hurry.

use anyhow::Context;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use crate::output;

/// How often it was asked.
#[derive(Clone)]
pub struct Interrupts(watch::Receiver<u32>);

impl Interrupts {
    /// Listens from now on.
    pub fn listen() -> anyhow::Result<Self> {
        let (count, received) = watch::channel(0);
        for kind in [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()] {
            let mut signals = signal(kind).context("cannot listen to signals")?;
            let count = count.clone();
            tokio::spawn(async move {
                while signals.recv().await.is_some() {
                    count.send_modify(|count| *count += 1);
                    let first = *count.borrow() == 1;
                    output::event(if first { "stopping; again to hurry" } else { "hurrying" });
                }
            });
        }
        Ok(Self(received))
    }

    /// Waits for the first.
    pub async fn asked_to_stop(&mut self) {
        self.wait(1).await;
    }

    /// Waits for one more than there were: how [`Interrupts::hurry`] tells impatience from the wish to stop.
    pub fn hurry(&self) -> impl Future<Output = ()> + use<> {
        let mut this = self.clone();
        let seen = *this.0.borrow();
        async move { this.wait(seen + 1).await }
    }

    async fn wait(&mut self, count: u32) {
        if self.0.wait_for(|seen| *seen >= count).await.is_err() {
            // Nobody counts any more.
            std::future::pending::<()>().await;
        }
    }
}
