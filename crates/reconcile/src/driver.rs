//! Runs a [`Reconciler`] until shutdown: at start, at its interval, when woken, and again soon after a failure.

use std::time::Duration;

use bulkhead_base::Backoff;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::wake::Wake;

/// One loop. Its pass never fails: what went wrong is part of [`Next`] and of the loop's own state.
pub trait Reconciler: Send {
    /// Name in logs and status.
    const NAME: &'static str;
    /// The longest time between two passes.
    fn interval(&self) -> Duration;
    /// Looks at everything and does what is missing.
    fn reconcile(&mut self, trigger: Trigger) -> impl Future<Output = Next> + Send;
}

/// Why a pass runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trigger {
    /// The first pass.
    Start,
    /// The interval is over.
    Interval,
    /// Somebody asked for it.
    Woken,
    /// The pass before failed or asked to come back.
    Retry,
}

/// What a pass says about the next one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// All is as it should be: wait for the interval or a signal.
    Wait,
    /// Come back at the latest after this time.
    After(Duration),
    /// It failed, for this reason: come back with back-off.
    Failed(String),
}

/// How a loop is doing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoopStatus {
    /// Passes finished.
    pub passes: u64,
    /// Failures since the last good pass.
    pub failures: u64,
    /// When the last good pass ended.
    pub last_good: Option<Instant>,
    /// Why the last pass failed; empty when it did not.
    pub last_error: String,
}

/// First and longest wait after failures.
const RETRY: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(10));

/// Runs `reconciler` until the sender side of `wake` and the shutdown future say so: returns when `shutdown` completes.
/// A pass that runs then is dropped: bodies must be written so that being dropped at an await loses nothing.
pub async fn drive<R: Reconciler>(
    mut reconciler: R,
    mut wake: Wake,
    status: watch::Sender<LoopStatus>,
    shutdown: impl Future<Output = ()>,
) {
    tokio::pin!(shutdown);
    let mut trigger = Trigger::Start;
    let mut backoff = Backoff::new(RETRY.0, RETRY.1);
    loop {
        let next = tokio::select! {
            () = &mut shutdown => return,
            next = reconciler.reconcile(trigger) => next,
        };
        let wait = note(&next, &status, &mut backoff, R::NAME).unwrap_or_else(|| reconciler.interval());
        let due = if matches!(next, Next::Wait) { Trigger::Interval } else { Trigger::Retry };
        // All three arms are cancel-safe: a signal that loses the race is kept by `Wake`.
        trigger = tokio::select! {
            () = &mut shutdown => return,
            () = wake.woken() => Trigger::Woken,
            () = tokio::time::sleep(wait.min(reconciler.interval())) => due,
        };
    }
}

/// Records a pass; returns how long to wait, if not for the interval.
fn note(
    next: &Next,
    status: &watch::Sender<LoopStatus>,
    backoff: &mut Backoff,
    name: &str,
) -> Option<Duration> {
    let (wait, error) = match next {
        Next::Wait => (None, None),
        Next::After(after) => (Some(*after), None),
        Next::Failed(error) => (Some(backoff.next_delay()), Some(error)),
    };
    status.send_modify(|status| {
        status.passes += 1;
        match error {
            Some(error) => {
                status.failures += 1;
                status.last_error.clone_from(error);
            }
            None => {
                status.failures = 0;
                status.last_good = Some(Instant::now());
                status.last_error.clear();
            }
        }
    });
    match error {
        Some(error) => tracing::warn!(task = name, error, "pass failed; trying again"),
        None => backoff.reset(),
    }
    wait
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc;

    use super::*;
    use crate::wake::wake;

    struct Scripted {
        calls: mpsc::UnboundedSender<(Trigger, Instant)>,
        script: Vec<Next>,
    }

    impl Reconciler for Scripted {
        const NAME: &'static str = "scripted";
        fn interval(&self) -> Duration {
            Duration::from_secs(60)
        }
        async fn reconcile(&mut self, trigger: Trigger) -> Next {
            self.calls.send((trigger, Instant::now())).unwrap();
            self.script.pop().unwrap_or(Next::Wait)
        }
    }

    #[tokio::test(start_paused = true)]
    async fn passes_come_at_start_interval_signal_and_after_failures() {
        let (calls, mut seen) = mpsc::unbounded_channel();
        let (waker, waiting) = wake();
        let (status, status_seen) = watch::channel(LoopStatus::default());
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let script =
            vec![Next::After(Duration::from_secs(5)), Next::Failed("b".into()), Next::Failed("a".into())];
        let start = Instant::now();
        let task = tokio::spawn(drive(Scripted { calls, script }, waiting, status, async {
            let _ = stopped.await;
        }));
        let mut expect = async |trigger, millis| {
            let (got, at) = seen.recv().await.unwrap();
            assert_eq!((got, (at - start).as_millis()), (trigger, millis));
        };
        expect(Trigger::Start, 0).await;
        expect(Trigger::Retry, 200).await;
        assert_eq!(status_seen.borrow().last_error, "b");
        expect(Trigger::Retry, 600).await;
        expect(Trigger::Retry, 5600).await;
        assert_eq!(status_seen.borrow().failures, 0);
        expect(Trigger::Interval, 65_600).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        waker.wake();
        waker.wake();
        expect(Trigger::Woken, 66_600).await;
        expect(Trigger::Interval, 126_600).await;
        stop.send(()).unwrap();
        task.await.unwrap();
    }
}
