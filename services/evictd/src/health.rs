//! Whether the statistics can be relied on: their age, what is missing in them, and whether the pods are known.

use std::time::Duration;

use bulkhead_reconcile::LoopStatus;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::collect::{Collection, Latest, Pods};

/// Oldest collection that is still fine while nobody asks: one may be late.
const OLD: Duration = Duration::from_secs(130);

/// What the check is about.
pub(crate) struct Watched {
    /// The newest collection.
    pub(crate) latest: watch::Receiver<Latest>,
    /// How the loop is doing.
    pub(crate) status: watch::Receiver<LoopStatus>,
    /// Who is asked about pods.
    pub(crate) pods: Pods,
}

/// Who told everything once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Synced {
    syncd: bool,
    pleg: bool,
}

impl Synced {
    fn of(pods: &Pods) -> Self {
        Self { syncd: pods.views.status().synced, pleg: pods.running.status().synced }
    }
}

/// What the check says at `now`.
fn verdict(
    latest: Option<&Collection>,
    last_error: &str,
    synced: Synced,
    now: Instant,
) -> Result<(), String> {
    let why = if last_error.is_empty() { String::new() } else { format!(": {last_error}") };
    let Some(latest) = latest else { return Err(format!("nothing was collected yet{why}")) };
    if now.saturating_duration_since(latest.at) > OLD {
        return Err(format!("the last collection is older than {OLD:?}{why}"));
    }
    match synced {
        Synced { syncd: false, .. } => Err("no stream from syncd yet: pods are missing".to_owned()),
        Synced { pleg: false, .. } => Err("no stream from pleg yet: containers are missing".to_owned()),
        _ => latest.problems.summary().map_or(Ok(()), Err),
    }
}

/// Reports the verdict whenever it may have changed. Ends with the loop.
pub(crate) async fn follow(watched: Watched, mut report: impl FnMut(Result<(), String>) + Send) {
    let Watched { latest, mut status, pods } = watched;
    loop {
        let last_error = status.borrow_and_update().last_error.clone();
        let collection = latest.borrow().clone();
        let (now, synced) = (Instant::now(), Synced::of(&pods));
        report(verdict(collection.as_deref(), &last_error, synced, now));
        let expiry = collection.map(|known| known.at + OLD + Duration::from_millis(1)).filter(|at| *at > now);
        let expired = async {
            match expiry {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            changed = status.changed() => if changed.is_err() { return },
            () = expired => {}
            () = pods.views.wait_until(|now, _| now.synced != synced.syncd) => {}
            () = pods.running.wait_until(|now, _| now.synced != synced.pleg) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use bulkhead_api::evictd::v1::Summary;

    use super::*;
    use crate::problems::Problems;
    use crate::testing::{detached, plan, sync};

    fn collection(at: Instant, problem: Option<&str>) -> Collection {
        let mut problems = Problems::default();
        problem.into_iter().for_each(|text| problems.add(text.to_owned()));
        Collection { at, summary: Summary::default(), plan: Arc::new(plan(&[])), memory: (0, 0), problems }
    }

    #[tokio::test(start_paused = true)]
    async fn the_verdict_names_what_is_wrong() {
        let at = Instant::now();
        let late = at + OLD + Duration::from_millis(1);
        let (whole, torn) = (collection(at, None), collection(at, Some("podx/memory.stat")));
        let all = Synced { syncd: true, pleg: true };
        let table = [
            (None, "", all, at, Some("nothing was collected yet")),
            (None, "no cgroups", all, at, Some("yet: no cgroups")),
            (Some(&whole), "", all, at + OLD, None),
            (Some(&whole), "", all, late, Some("older than 130s")),
            (Some(&whole), "no cgroups", all, at, None),
            (Some(&whole), "no cgroups", all, late, Some("older than 130s: no cgroups")),
            (Some(&torn), "", all, at, Some("podx/memory.stat")),
            (Some(&whole), "", Synced { syncd: false, ..all }, at, Some("syncd")),
            (Some(&whole), "", Synced { pleg: false, ..all }, at, Some("pleg")),
        ];
        for (latest, error, synced, now, reason) in table {
            match (verdict(latest, error, synced, now), reason) {
                (Ok(()), None) => {}
                (Err(found), Some(reason)) => assert!(found.contains(reason), "{found}"),
                (found, wanted) => panic!("{found:?} instead of {wanted:?}"),
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn it_turns_bad_by_itself_when_the_loop_is_stuck_and_good_when_all_is_there() {
        let start = Instant::now();
        let (sender, latest) = watch::channel(None);
        let (status, seen) = watch::channel(LoopStatus::default());
        let pods = detached();
        let reports = Arc::new(Mutex::new(Vec::new()));
        let log = reports.clone();
        let watched = Watched { latest, status: seen, pods: pods.clone() };
        let task = tokio::spawn(follow(watched, move |verdict| {
            log.lock().unwrap().push((verdict.is_ok(), start.elapsed().as_millis()));
        }));
        tokio::time::sleep(Duration::from_secs(1)).await;
        sender.send_replace(Some(Arc::new(collection(start, None))));
        status.send_modify(|status| status.passes += 1);
        tokio::time::sleep(Duration::from_secs(1)).await;
        sync(&pods, &[], &[]);
        tokio::time::sleep(OLD * 2).await;
        drop(status);
        task.await.unwrap();
        let mut reports = reports.lock().unwrap().clone();
        reports.dedup_by_key(|(good, _)| *good);
        assert_eq!(reports, [(false, 0), (true, 2000), (false, 130_001)]);
    }
}
