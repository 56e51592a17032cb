//! Follows the static pod directory: a full scan every `fileCheckFrequency`, and at once when inotify says that something
//! moved. inotify is a hint; the scan is the truth.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bulkhead_base::{Clock, chain};
use bulkhead_model::manifest;
use bulkhead_model::static_pod::{Origin, StaticSource};
use bulkhead_reconcile::{LoopStatus, Next, Reconciler, Trigger, Wake, Waker, drive, wake};
use bulkhead_service::Check;
use notify::{RecursiveMode, Watcher};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::Board;
use super::files::{FileRead, read_dir};
use super::plan::{Item, Kind, Place, Reading, keep, take};

/// A burst of changes in the directory is looked at once it has been quiet for this long: an editor writes a file in
/// several steps.
const SETTLE: Duration = Duration::from_millis(100);

/// What to follow.
pub struct FollowFiles {
    /// `staticPodPath`.
    pub dir: PathBuf,
    /// `fileCheckFrequency`.
    pub period: Duration,
    /// Name of the node, for names and UIDs.
    pub node_name: String,
    /// Where it is told.
    pub board: Board,
    /// The wall clock.
    pub clock: Arc<dyn Clock>,
    /// Says whether the directory can be read.
    pub check: Check,
}

impl FollowFiles {
    /// Follows it until `shutdown`.
    pub fn spawn(self, shutdown: CancellationToken) {
        let (waker, waiting) = wake();
        let scan = Scan { source: self, waker, watcher: None };
        let (status, _) = watch::channel(LoopStatus::default());
        tokio::spawn(run(scan, waiting, status, shutdown));
    }
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
    source: FollowFiles,
    waker: Waker,
    /// Kept for its drop only. `None` while the directory cannot be watched.
    watcher: Option<notify::RecommendedWatcher>,
}

impl Reconciler for Scan {
    const NAME: &'static str = "static pods";

    fn interval(&self) -> Duration {
        self.source.period
    }

    async fn reconcile(&mut self, trigger: Trigger) -> Next {
        let dir = self.source.dir.clone();
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
        let items = files.into_iter().map(|file| self.item(file)).collect();
        let board = &self.source.board;
        board.read(Kind::File, keep(Reading { items, complete: true }, &board.found(Kind::File)));
        self.source.check.good();
        Next::Wait
    }
}

impl Scan {
    fn failed(&mut self, reason: String) -> Next {
        self.source.check.bad(reason.clone());
        let place = Place { kind: Kind::File, name: self.source.dir.display().to_string() };
        self.source.board.failed(place, reason.clone());
        Next::Failed(reason)
    }

    fn item(&self, FileRead { path, content }: FileRead) -> Item {
        let name = path.to_string_lossy().into_owned();
        let pod = content.and_then(|bytes| {
            let source = StaticSource { origin: Origin::File(&name), node_name: &self.source.node_name };
            take(manifest::parse(&bytes), &source, self.source.clock.now())
        });
        Item { place: Place { kind: Kind::File, name }, pod }
    }
}
