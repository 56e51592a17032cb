//! What an earlier life left behind and no pod owns: cgroups, folders, log folders. Looked for once a minute, and only once
//! sources and runtime were seen whole.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bulkhead_base::chain;
use bulkhead_cgroup::{CgroupName, PodCgroup, Removal};
use bulkhead_reconcile::{Next, Reconciler, Trigger};
use tokio::sync::watch;

use crate::source::Desired;
use crate::worker::Deps;

const PERIOD: Duration = Duration::from_secs(60);

/// The loop.
pub struct Housekeeping {
    deps: Arc<Deps>,
    desired: watch::Receiver<Option<Arc<Desired>>>,
    /// What could not be removed and was said once.
    said: BTreeSet<String>,
}

impl Housekeeping {
    /// For [`bulkhead_reconcile::drive`].
    pub fn new(deps: Arc<Deps>, desired: watch::Receiver<Option<Arc<Desired>>>) -> Self {
        Self { deps, desired, said: BTreeSet::new() }
    }

    /// Every source was read in this life: what none of them knows is left over.
    fn is_informed(&self) -> bool {
        self.desired.borrow().as_ref().is_some_and(|desired| desired.unread.is_empty())
    }

    /// UIDs that a worker has, or that the runtime holds something of. Always looked at after what is to be removed was
    /// listed: what a pod that comes meanwhile makes is then not on the list.
    fn known(&self) -> BTreeSet<String> {
        let workers = self.deps.views.status.snapshot();
        let runtime = self.deps.runtime_pods.snapshot();
        workers.into_keys().chain(runtime.into_keys()).collect()
    }

    fn say_once(&mut self, what: String, reason: &str) {
        // Bounded: one entry for each thing that is left over.
        if self.said.len() < 1024 && self.said.insert(what.clone()) {
            tracing::warn!(what, reason, "left over and not removed");
        }
    }

    /// Records of pods whose end a kill cut off: the same pod may come again, and must not be taken for that one.
    fn records(&self) {
        let recorded = self.deps.records.seen();
        let known = self.known();
        for uid in recorded.keys().filter(|uid| !known.contains(*uid)) {
            self.deps.records.set(uid, None);
        }
    }

    async fn folders(&mut self) {
        let settings = &self.deps.settings;
        let (pods, logs) = (settings.pods_dir.clone(), settings.pod_logs_dir.clone());
        let listed = (list(&pods).await, list(&logs).await);
        let known = self.known();
        let (mut cleaned, mut failed) = (0, 0);
        for uid in listed.0.into_iter().filter(|uid| !known.contains(uid)) {
            // volumed unmounts first and refuses while something is mounted: nothing is deleted through a mount.
            if let Err(error) = self.deps.peers.tear_down_volumes(&uid).await {
                self.say_once(format!("pod folder {uid}"), &error.to_string());
                failed += 1;
                continue;
            }
            cleaned += 1;
            self.remove(pods.join(&uid)).await;
        }
        self.deps.measures.volumes_cleaned(cleaned, failed);
        for name in listed.1 {
            let uid = name.rsplit('_').next().unwrap_or_default();
            if name.split('_').count() == 3 && !known.contains(uid) {
                self.remove(logs.join(&name)).await;
            }
        }
    }

    async fn remove(&mut self, path: std::path::PathBuf) {
        let target = path.clone();
        let removed = tokio::task::spawn_blocking(move || std::fs::remove_dir_all(target)).await;
        match removed {
            Ok(Ok(())) => tracing::info!(folder = %path.display(), "left-over folder removed"),
            Ok(Err(error)) if error.kind() != std::io::ErrorKind::NotFound => {
                self.say_once(path.display().to_string(), &error.to_string());
            }
            _ => {}
        }
    }

    async fn cgroups(&mut self) {
        let cgroups = self.deps.cgroups.clone();
        let listed = match tokio::task::spawn_blocking(move || cgroups.list_pods()).await {
            Ok(Ok(pods)) => pods,
            Ok(Err(error)) => return self.say_once("pod cgroups".to_owned(), &chain(&error).to_string()),
            Err(_) => return,
        };
        let known = self.known();
        let left: Vec<PodCgroup> =
            listed.into_iter().filter(|pod| !known.contains(pod.uid.as_str())).collect();
        let cgroups = self.deps.cgroups.clone();
        let removed = tokio::task::spawn_blocking(move || {
            let mut failed = Vec::new();
            for pod in left {
                match cgroups.remove(&CgroupName::Pod(pod.clone())) {
                    Ok(Removal::Removed | Removal::AlreadyGone) => {}
                    Ok(Removal::Busy { path }) => {
                        failed.push((path.display().to_string(), "processes run in it".to_owned()));
                    }
                    Err(error) => {
                        failed.push((format!("cgroup of {}", pod.uid.as_str()), chain(&error).to_string()))
                    }
                }
            }
            failed
        })
        .await;
        for (what, reason) in removed.unwrap_or_default() {
            self.say_once(what, &reason);
        }
    }
}

impl Reconciler for Housekeeping {
    const NAME: &'static str = "housekeeping";

    fn interval(&self) -> Duration {
        PERIOD
    }

    async fn reconcile(&mut self, _: Trigger) -> Next {
        let runtime = &self.deps.runtime_pods;
        if !self.is_informed() || !self.deps.views.status.is_open() || !runtime.status().live {
            return Next::After(Duration::from_secs(5));
        }
        self.records();
        self.folders().await;
        self.cgroups().await;
        Next::Wait
    }
}

/// Names of folders in `dir`.
async fn list(dir: &Path) -> Vec<String> {
    let dir = dir.to_owned();
    let names = tokio::task::spawn_blocking(move || {
        let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
        let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        folders.filter_map(|entry| entry.file_name().into_string().ok()).collect()
    });
    names.await.unwrap_or_default()
}
