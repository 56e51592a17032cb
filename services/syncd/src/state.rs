//! What syncd must know after its own death and cannot read elsewhere: when each pod was first seen and started, and which
//! ones are over.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bulkhead_base::chain;
use bulkhead_model::resize::Allocation;
use bulkhead_service::StateFile;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ResourceRequirements;
use serde::{Deserialize, Serialize};
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

const VERSION: u32 = 1;
/// Time until a write that failed is tried again.
const AGAIN: Duration = Duration::from_secs(10);

/// What is kept of one pod.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodRecord {
    /// `kubernetes.io/config.seen`.
    pub seen: Timestamp,
    /// `status.startTime`.
    pub started_at: Timestamp,
    /// No container of it runs again, whatever the runtime remembers.
    #[serde(default)]
    pub finished: bool,
    /// Why the pod failed as a whole, once it has.
    #[serde(default)]
    pub failed: Option<Failure>,
    /// By container id: how its postStart hook ended. A running container with a hook that is not here gets it (again).
    #[serde(default)]
    pub post_start: BTreeMap<String, HookEnd>,
    /// The runtime's handler, as the pod's class was last known to name it.
    #[serde(default)]
    pub handler: Option<String>,
    /// Names of the ephemeral containers that have run: none runs again, whatever the runtime remembers.
    #[serde(default)]
    pub ephemeral_ran: BTreeSet<String>,
    /// Its resources, if they may change while it runs.
    #[serde(default)]
    pub resources: PodResources,
}

/// Resources of a pod of the API server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodResources {
    /// What this node accepted last: what containers are started with. `None` of other pods.
    pub allocated: Option<Allocation>,
    /// By container id: what it runs with.
    pub applied: BTreeMap<String, ResourceRequirements>,
    /// The change that was accepted and is not made yet.
    pub changing: Option<Changing>,
}

/// A change of resources that is being made.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Changing {
    /// `metadata.generation` of the pod that asks for it.
    pub generation: i64,
    /// Resources of the pod as a whole, before it.
    #[serde(default)]
    pub before: Option<ResourceRequirements>,
}

/// Why a pod failed as a whole.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// Such as `DeadlineExceeded`.
    pub reason: String,
    /// For people.
    pub message: String,
    /// How it is evicted, if that is why.
    #[serde(default)]
    pub eviction: Option<Eviction>,
}

/// How a pod is evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Eviction {
    /// Longest time that its containers get to stop.
    pub grace_seconds: u64,
    /// The node ran short; the pod broke no limit of its own.
    pub disruption: bool,
}

/// How a hook ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum HookEnd {
    /// Well.
    Done,
    /// With this text; the container is stopped.
    Failed(String),
}

impl Failure {
    /// Not by an eviction.
    pub fn new(reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self { reason: reason.into(), message: message.into(), eviction: None }
    }
}

impl PodRecord {
    /// Of a pod that was just accepted.
    pub fn new(seen: Timestamp) -> Self {
        Self {
            seen,
            started_at: seen,
            finished: false,
            failed: None,
            post_start: BTreeMap::new(),
            handler: None,
            ephemeral_ran: BTreeSet::new(),
            resources: PodResources::default(),
        }
    }
}

/// The records, in memory and on disk. Clones share them.
///
/// The disk is slow and pods come by the hundred, so changes wait for each other there: one write holds all that came
/// while the last one ran.
#[derive(Clone, Debug)]
pub struct Records(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    file: StateFile<BTreeMap<String, PodRecord>>,
    now: Mutex<Now>,
    /// The newest change that a write was tried for.
    written: watch::Sender<u64>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Now {
    pods: BTreeMap<String, PodRecord>,
    /// Counts changes.
    changes: u64,
}

impl Records {
    /// Reads the records in `dir`. What a corrupt file held is taken from the runtime as far as that goes.
    pub fn open(dir: &Path) -> Self {
        let file = StateFile::new(dir, "pods.json", VERSION);
        let pods =
            file.load_or_log("pods that run are adopted; their start times and ended pods are not known");
        let now = Mutex::new(Now { pods: pods.unwrap_or_default(), changes: 0 });
        Self(Arc::new(Shared { file, now, written: watch::Sender::new(0), changed: Notify::new() }))
    }

    /// First dates by pod UID.
    pub fn seen(&self) -> BTreeMap<String, Timestamp> {
        self.lock().pods.iter().map(|(uid, record)| (uid.clone(), record.seen)).collect()
    }

    /// One pod's record.
    pub fn get(&self, uid: &str) -> Option<PodRecord> {
        self.lock().pods.get(uid).cloned()
    }

    /// Sets or, with `None`, forgets a pod's record. It is on disk once [`Records::kept`] returns.
    pub fn set(&self, uid: &str, record: Option<PodRecord>) {
        let mut now = self.lock();
        let changed = match record {
            Some(record) => now.pods.insert(uid.to_owned(), record.clone()) != Some(record),
            None => now.pods.remove(uid).is_some(),
        };
        if changed {
            now.changes += 1;
            self.0.changed.notify_one();
        }
    }

    /// Changes a pod's record, if it has one. As with [`Records::set`].
    pub fn update(&self, uid: &str, change: impl FnOnce(&mut PodRecord)) {
        let Some(mut record) = self.get(uid) else { return };
        change(&mut record);
        self.set(uid, Some(record));
    }

    /// Waits until all that was set so far is on disk, or the disk refused it: a full disk must not stop pods. For ever
    /// where nothing [writes](Records::write).
    pub async fn kept(&self) {
        let wanted = self.lock().changes;
        // The sender lives as long as `self`.
        let _ = self.0.written.subscribe().wait_for(|written| *written >= wanted).await;
    }

    /// Writes changes until `shutdown`, and then what is left. What the disk refused is tried again. `told` hears how each
    /// write went.
    pub async fn write(self, shutdown: CancellationToken, told: impl Fn(Result<(), String>)) {
        let mut failed = false;
        loop {
            // All are cancel-safe: a notification that loses the race is kept.
            let stopping = tokio::select! {
                biased;
                () = self.0.changed.notified() => false,
                () = tokio::time::sleep(AGAIN), if failed => false,
                () = shutdown.cancelled() => true,
            };
            if stopping {
                return;
            }
            let written = self.write_once().await;
            failed = written.is_err();
            told(written);
        }
    }

    async fn write_once(&self) -> Result<(), String> {
        let (pods, changes) = {
            let now = self.lock();
            (now.pods.clone(), now.changes)
        };
        let file = self.0.file.clone();
        let written = match tokio::task::spawn_blocking(move || file.save(&pods)).await {
            Ok(saved) => saved.map_err(|error| chain(&error).to_string()),
            Err(error) => Err(error.to_string()),
        };
        self.0.written.send_replace(changes);
        written
    }

    fn lock(&self) -> MutexGuard<'_, Now> {
        self.0.now.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> PodRecord {
        let at = Timestamp::from_second(7).unwrap();
        let ends = [("c1", HookEnd::Done), ("c2", HookEnd::Failed("why".to_owned()))];
        let post_start = ends.map(|(id, end)| (id.to_owned(), end)).into();
        let eviction = Some(Eviction { grace_seconds: 1, disruption: true });
        let failed = Some(Failure { eviction, ..Failure::new("DeadlineExceeded", "late") });
        let (handler, ephemeral_ran) = (Some("kata".to_owned()), ["debug".to_owned()].into());
        let own = ResourceRequirements::default();
        let containers: BTreeMap<_, _> = [("c".to_owned(), own.clone())].into();
        let resources = PodResources {
            allocated: Some(Allocation { pod: None, containers }),
            applied: [("c1".to_owned(), own)].into(),
            changing: Some(Changing { generation: 3, before: None }),
        };
        PodRecord { failed, post_start, handler, ephemeral_ran, resources, ..PodRecord::new(at) }
    }

    #[tokio::test]
    async fn records_survive_and_corrupt_files_are_set_aside() {
        let dir = tempfile::tempdir().unwrap();
        let records = Records::open(dir.path());
        tokio::spawn(records.clone().write(CancellationToken::new(), drop));
        records.set("a", Some(record()));
        records.set("b", Some(record()));
        records.set("b", None);
        records.kept().await;
        let again = Records::open(dir.path());
        assert_eq!((again.get("a"), again.get("b")), (Some(record()), None));
        std::fs::write(dir.path().join("pods.json"), "{").unwrap();
        assert_eq!(Records::open(dir.path()).get("a"), None);
        assert!(dir.path().join("pods.json.corrupt").exists(), "kept for whoever wants to look");
    }

    #[tokio::test]
    async fn what_changed_before_the_stop_is_written() {
        let dir = tempfile::tempdir().unwrap();
        let records = Records::open(dir.path());
        let shutdown = CancellationToken::new();
        records.set("a", Some(record()));
        shutdown.cancel();
        records.write(shutdown, drop).await;
        assert_eq!(Records::open(dir.path()).get("a"), Some(record()));
    }

    #[tokio::test]
    async fn a_disk_that_cannot_be_written_loses_nothing_in_memory_and_stops_nobody() {
        let records = Records::open(Path::new("/proc/no/such/dir"));
        tokio::spawn(records.clone().write(CancellationToken::new(), drop));
        records.set("a", Some(record()));
        records.kept().await;
        assert_eq!(records.get("a"), Some(record()));
    }

    #[tokio::test(start_paused = true)]
    async fn what_the_disk_refused_is_written_once_it_can_be() {
        let dir = tempfile::tempdir().unwrap();
        let in_the_way = dir.path().join("pods.json.new");
        std::fs::create_dir(&in_the_way).unwrap();
        let records = Records::open(dir.path());
        let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
        let told_by = move |written: Result<(), String>| tell.send(written.is_ok()).unwrap();
        tokio::spawn(records.clone().write(CancellationToken::new(), told_by));
        records.set("a", Some(record()));
        records.kept().await;
        assert_eq!(told.recv().await, Some(false));
        std::fs::remove_dir(&in_the_way).unwrap();
        assert_eq!(told.recv().await, Some(true), "without a further change");
        assert_eq!(Records::open(dir.path()).get("a"), Some(record()));
    }
}
