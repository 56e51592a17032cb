//! Talking to whoever supervises the process: readiness, watchdog, stopping.

use sd_notify::NotifyState;

/// Tells that the process serves. Nobody listening is fine.
pub(crate) fn ready() {
    notify(&[NotifyState::Ready]);
}

/// Tells that the process is about to stop.
pub(crate) fn stopping() {
    notify(&[NotifyState::Stopping]);
}

/// Answers the watchdog at half its time from the process' only thread: a blocked thread stops the answers. Never returns
/// when there is a watchdog; returns at once when there is none.
pub(crate) async fn watchdog() {
    let Some(timeout) = sd_notify::watchdog_enabled() else { return };
    let mut ticks = tokio::time::interval(timeout / 2);
    loop {
        ticks.tick().await;
        notify(&[NotifyState::Watchdog]);
    }
}

fn notify(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::debug!(%error, "the supervisor could not be notified");
    }
}
