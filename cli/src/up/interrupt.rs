//! Ctrl-C, TERM and HUP: the first asks to stop, the next one to hurry.

use std::time::Duration;

use anyhow::Context;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::output;

/// sudo and timeout pass on what the terminal sent too: two signals at once are one wish.
const TWICE: Duration = Duration::from_millis(300);

/// How often it was asked.
#[derive(Clone)]
pub struct Interrupts(watch::Receiver<(u32, Instant)>);

impl Interrupts {
    /// Listens from now on.
    pub fn listen() -> anyhow::Result<Self> {
        let (count, received) = watch::channel((0, Instant::now()));
        for kind in [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()] {
            let mut signals = signal(kind).context("cannot listen to signals")?;
            let count = count.clone();
            tokio::spawn(async move {
                while signals.recv().await.is_some() {
                    let counted = count.send_if_modified(|(count, last)| {
                        let counts = *count == 0 || last.elapsed() > TWICE;
                        if counts {
                            (*count, *last) = (*count + 1, Instant::now());
                        }
                        counts
                    });
                    if counted {
                        let first = count.borrow().0 == 1;
                        output::event(if first { "stopping; again to hurry" } else { "hurrying" });
                    }
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
        let seen = this.0.borrow().0;
        async move { this.wait(seen + 1).await }
    }

    async fn wait(&mut self, count: u32) {
        if self.0.wait_for(|(seen, _)| *seen >= count).await.is_err() {
            // Nobody counts any more.
            std::future::pending::<()>().await;
        }
    }
}
