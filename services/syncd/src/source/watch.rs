//! Keeps the desired pods up to date: a full scan every `fileCheckFrequency`, and at once when inotify says that something
//! moved. inotify is a hint; the scan is the truth.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bulkhead_base::{Clock, chain};
use bulkhead_reconcile::{LoopStatus, Next, Reconciler, Trigger, Wake, Waker, drive, wake};
use bulkhead_service::Check;
use jiff::Timestamp;
use notify::{RecursiveMode, Watcher};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::files::read_dir;
use super::plan::{Desired, plan};

/// A burst of changes in the directory is looked at once it has been quiet for this long: an editor writes a file in
/// several steps.
const SETTLE: Duration = Duration::from_millis(100);

/// What to follow.
pub struct Sources {
    /// `staticPodPath`; `None` when the node has no static pods.
    pub dir: Option<PathBuf>,
    /// `fileCheckFrequency`.
    pub period: Duration,
    /// Name of the node, for names and UIDs.
    pub node_name: String,
    /// First dates of pods from an earlier life, by UID.
    pub seen: BTreeMap<String, Timestamp>,
    /// The wall clock.
    pub clock: Arc<dyn Clock>,
    /// Says whether the directory can be read.
    pub check: Check,
}

/// Follows the sources until `shutdown`. The value is `None` until all of them were read once: nothing may be removed
/// before.
pub fn follow(sources: Sources, shutdown: CancellationToken) -> watch::Receiver<Option<Arc<Desired>>> {
    let (sender, receiver) = watch::channel(None);
    let (waker, waiting) = wake();
    let scan = Scan { sources, sender, waker, watcher: None, reported: BTreeMap::new() };
    let (status, _) = watch::channel(LoopStatus::default());
    tokio::spawn(run(scan, waiting, status, shutdown));
    receiver
}

async fn run(scan: Scan, waiting: Wake, status: watch::Sender<LoopStatus>, shutdown: CancellationToken) {
    drive(scan, waiting, status, shutdown.cancelled_owned()).await;
}

/// `None` when the directory cannot be watched (it may not exist yet): the scan alone then finds changes.
fn inotify(dir: &std::path::Path, waker: Waker) -> Option<notify::RecommendedWatcher> {
    let watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
        // Reading the files is an event too.
        if event.is_ok_and(|event| !event.kind.is_access()) {
            waker.wake();
        }
    });
    let mut watcher = watcher.ok()?;
    match watcher.watch(dir, RecursiveMode::NonRecursive) {
        Ok(()) => Some(watcher),
        Err(error) => {
            tracing::debug!(dir = %dir.display(), error = %chain(&error), "not watched");
            None
        }
    }
}

struct Scan {
    sources: Sources,
    sender: watch::Sender<Option<Arc<Desired>>>,
    waker: Waker,
    /// Kept for its drop only. `None` while the directory cannot be watched.
    watcher: Option<notify::RecommendedWatcher>,
    /// Refusals that were logged: each is logged once, not at every scan.
    reported: BTreeMap<PathBuf, String>,
}

impl Reconciler for Scan {
    const NAME: &'static str = "static pods";

    fn interval(&self) -> Duration {
        self.sources.period
    }

    async fn reconcile(&mut self, trigger: Trigger) -> Next {
        let Some(dir) = self.sources.dir.clone() else {
            self.sources.check.good();
            self.sender.send_replace(Some(Arc::default()));
            return Next::Wait;
        };
        if self.watcher.is_none() {
            self.watcher = inotify(&dir, self.waker.clone());
        }
        if trigger == Trigger::Woken {
            tokio::time::sleep(SETTLE).await;
        }
        let read = tokio::task::spawn_blocking(move || read_dir(&dir)).await;
        let files = match read {
            Ok(Ok(files)) => files,
            Ok(Err(error)) => return self.failed(chain(&error).to_string()),
            Err(error) => return self.failed(error.to_string()),
        };
        let previous = self.sender.borrow().clone().unwrap_or_default();
        let now = self.sources.clock.now();
        let desired = plan(files, &previous, &self.sources.seen, &self.sources.node_name, now);
        self.report(&desired);
        self.sources.check.good();
        self.sender.send_if_modified(|current| {
            let same = current.as_ref().is_some_and(|current| **current == desired);
            if !same {
                *current = Some(Arc::new(desired));
            }
            !same
        });
        Next::Wait
    }
}

impl Scan {
    fn failed(&mut self, reason: String) -> Next {
        self.sources.check.bad(reason.clone());
        Next::Failed(reason)
    }

    fn report(&mut self, desired: &Desired) {
        for (file, reason) in &desired.refused {
            if self.reported.get(file) != Some(reason) {
                tracing::error!(file = %file.display(), reason, "manifest refused");
            }
        }
        self.reported.clone_from(&desired.refused);
    }
}
