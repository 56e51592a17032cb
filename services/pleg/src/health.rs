//! Whether pleg's view can be relied on: the age of the last good list. The rule is pure.

use std::time::Duration;

use bulkhead_reconcile::LoopStatus;
use tokio::sync::watch;
use tokio::time::Instant;

/// Oldest list that is still fine: the kubelet's threshold for the same.
pub(crate) const THRESHOLD: Duration = Duration::from_secs(3 * 60);

/// What the check says at `now`.
pub(crate) fn verdict(status: &LoopStatus, now: Instant) -> Result<(), String> {
    let error = &status.last_error;
    match status.last_good {
        None if error.is_empty() => {
            Err("the runtime was not listed yet: it has not answered so far".to_owned())
        }
        None => Err(format!("the runtime was not listed yet: {error}")),
        Some(at) if now.saturating_duration_since(at) <= THRESHOLD => Ok(()),
        Some(_) if error.is_empty() => {
            Err(format!("the runtime was last listed more than {THRESHOLD:?} ago"))
        }
        Some(_) => Err(format!("the runtime was last listed more than {THRESHOLD:?} ago: {error}")),
    }
}

/// Reports the verdict at each pass, and when the last good list becomes too old without one. Ends with the loop.
pub(crate) async fn follow(
    mut status: watch::Receiver<LoopStatus>,
    mut report: impl FnMut(Result<(), String>) + Send,
) {
    loop {
        let seen = status.borrow_and_update().clone();
        let now = Instant::now();
        report(verdict(&seen, now));
        let too_old =
            seen.last_good.map(|at| at + THRESHOLD + Duration::from_millis(1)).filter(|at| *at > now);
        let expiry = async {
            match too_old {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            changed = status.changed() => if changed.is_err() { return },
            () = expiry => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_list_is_good_for_three_minutes() {
        let at = Instant::now();
        let minutes = |n: u64| at + Duration::from_secs(60 * n);
        let never = LoopStatus::default();
        let failing = LoopStatus { last_error: "no socket".to_owned(), ..LoopStatus::default() };
        let good = LoopStatus { last_good: Some(at), ..LoopStatus::default() };
        let stale = LoopStatus { last_good: Some(at), ..failing.clone() };
        let table = [
            (&never, at, Some("not listed yet")),
            (&failing, at, Some("not listed yet: no socket")),
            (&good, at, None),
            (&good, minutes(3), None),
            (&good, minutes(3) + Duration::from_millis(1), Some("more than 180s ago")),
            (&stale, minutes(3), None),
            (&stale, minutes(4), Some("180s ago: no socket")),
        ];
        for (status, now, reason) in table {
            match (verdict(status, now), reason) {
                (Ok(()), None) => {}
                (Err(found), Some(reason)) => assert!(found.contains(reason), "{found}"),
                (found, wanted) => panic!("{found:?} instead of {wanted:?}"),
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_loop_turns_bad_by_itself_and_good_again() {
        let start = Instant::now();
        let (status, seen) = watch::channel(LoopStatus { last_good: Some(start), ..LoopStatus::default() });
        let reports = Arc::new(Mutex::new(Vec::new()));
        let log = reports.clone();
        let task = tokio::spawn(follow(seen, move |verdict| {
            log.lock().unwrap().push((verdict.is_ok(), start.elapsed().as_millis()));
        }));
        tokio::time::sleep(Duration::from_secs(200)).await;
        status.send_modify(|status| status.last_good = Some(Instant::now()));
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(*reports.lock().unwrap(), [(true, 0), (false, 180_001), (true, 200_000)]);
        drop(status);
        task.await.unwrap();
    }
}
