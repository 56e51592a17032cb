//! Links to containers' logs under the names that log collectors know: `POD_NAMESPACE_CONTAINER-ID.log` in a folder beside
//! that of pods' logs (`/var/log/containers`), as the kubelet makes them.
//!
//! What links there are follows from what the runtime holds and from nothing else, so nothing of them is kept. Must never
//! touch a log, nor what is no link.

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use bulkhead_ipc::Mirror;
use bulkhead_ipc::said::Said;
use bulkhead_ipc::table::Since;
use bulkhead_model::runtime::{Container, ContainerState, RuntimePod};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Name of the folder, beside that of pods' logs.
const FOLDER: &str = "containers";
/// The ending that log collectors look for.
const SUFFIX: &str = ".log";
/// Longest name of a file without its ending, in bytes; longer ones are cut, as the kubelet cuts them.
const NAME_BYTES: usize = 255 - SUFFIX.len();

/// Wait before what the disk refused is tried again.
const RETRY: Duration = Duration::from_secs(10);
/// How often the same refusal is said.
const SAY_AGAIN: Duration = Duration::from_secs(300);

/// By name: where it leads.
type Links = BTreeMap<String, PathBuf>;

/// The folder of links.
#[derive(Clone, Debug)]
pub struct LogLinks {
    dir: PathBuf,
    logs: PathBuf,
}

/// A link as it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Present {
    name: String,
    target: PathBuf,
    /// Nothing is where it leads.
    broken: bool,
}

/// What to do in the folder.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Work {
    make: Links,
    remove: BTreeSet<String>,
}

impl LogLinks {
    /// Links to what is in `pod_logs_dir`; `None` when that has no folder beside it.
    pub fn beside(pod_logs_dir: &Path) -> Option<Self> {
        let dir = pod_logs_dir.parent()?.join(FOLDER);
        (dir != pod_logs_dir).then(|| Self { dir, logs: pod_logs_dir.to_owned() })
    }

    /// Keeps the links to what the runtime holds until `shutdown`. Begins once that is known as a whole.
    pub async fn follow(self, pods: Mirror<String, RuntimePod>, shutdown: CancellationToken) {
        let mut changes = pods.changes();
        let mut there = BTreeMap::<String, Links>::new();
        // What is still to do; `begin` comes first.
        let (mut left, mut begun, mut failed) = (Work::default(), false, false);
        let said = Said::every(SAY_AGAIN);
        loop {
            // All arms are cancel-safe: changes that lose the race are told the next time.
            let since = tokio::select! {
                () = shutdown.cancelled() => return,
                since = changes.next() => Some(since),
                () = tokio::time::sleep(RETRY), if failed => None,
            };
            if let Some(since) = since {
                self.note(&since, &mut there, &mut left);
            }
            if begun && left == Work::default() {
                continue;
            }
            let (this, work) = (self.clone(), left.clone());
            let done =
                tokio::task::spawn_blocking(move || if begun { this.apply(&work) } else { this.begin(work) });
            match done.await.map_err(std::io::Error::other).and_then(|done| done) {
                Ok(()) => (left, begun, failed) = (Work::default(), true, false),
                Err(error) => {
                    if said.is_news(&error.to_string(), Instant::now()) {
                        tracing::warn!(dir = %self.dir.display(), %error, "links to containers' logs are missing there");
                    }
                    failed = true;
                }
            }
        }
    }

    /// Adds what a change of the runtime makes necessary.
    fn note(&self, since: &Since<String, RuntimePod>, there: &mut BTreeMap<String, Links>, work: &mut Work) {
        let mut gone = since.removed.clone();
        if since.full {
            let held: BTreeSet<&String> = since.upserts.iter().map(|(uid, _)| uid).collect();
            gone.extend(there.keys().filter(|uid| !held.contains(uid)).cloned());
        }
        for uid in &gone {
            work.change(&there.remove(uid).unwrap_or_default(), &Links::new());
        }
        for (uid, pod) in &since.upserts {
            let wanted = links(pod, &self.logs);
            let before = there.insert(uid.clone(), wanted.clone());
            work.change(&before.unwrap_or_default(), &wanted);
        }
    }

    /// The first look: what an earlier life left behind goes.
    fn begin(&self, mut work: Work) -> std::io::Result<()> {
        match std::fs::create_dir(&self.dir) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        work.remove.extend(surplus(&self.list()?, &work.make, &self.logs));
        self.apply(&work)
    }

    fn list(&self) -> std::io::Result<Vec<Present>> {
        let links = std::fs::read_dir(&self.dir)?.flatten().filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            // Of what is no link there is no target.
            let target = std::fs::read_link(entry.path()).ok()?;
            let broken = matches!(entry.path().metadata(), Err(error) if error.kind() == ErrorKind::NotFound);
            Some(Present { name, target, broken })
        });
        Ok(links.collect())
    }

    /// Does all that it can; the first failure is returned.
    fn apply(&self, work: &Work) -> std::io::Result<()> {
        let removed = work.remove.iter().map(|name| remove(&self.dir.join(name)));
        let made = work.make.iter().map(|(name, target)| make(&self.dir.join(name), target));
        removed.chain(made).fold(Ok(()), Result::and)
    }
}

impl Work {
    /// Adds the way from one pod's links to others.
    fn change(&mut self, there: &Links, wanted: &Links) {
        for name in there.keys().filter(|name| !wanted.contains_key(*name)) {
            self.make.remove(name);
            self.remove.insert(name.clone());
        }
        for (name, target) in wanted.iter().filter(|(name, target)| there.get(*name) != Some(*target)) {
            self.remove.remove(name);
            self.make.insert(name.clone(), target.clone());
        }
    }
}

/// Links to the logs of a pod's containers that were started. Names and paths come from the runtime: only what is beneath
/// `logs`, and under a name that is one.
fn links(pod: &RuntimePod, logs: &Path) -> Links {
    let link = |container: &Container| {
        let target = Path::new(&container.log_path);
        let ours = target.starts_with(logs) && !target.components().any(|part| part == Component::ParentDir);
        let started = matches!(container.state, ContainerState::Running | ContainerState::Exited);
        let name = name(pod, container);
        (ours && started && !name.contains('/')).then(|| (name, target.to_owned()))
    };
    pod.containers.iter().filter_map(link).collect()
}

fn name(pod: &RuntimePod, container: &Container) -> String {
    let mut name = format!("{}_{}_{}-{}", pod.name, pod.namespace, container.name, container.id);
    name.truncate(name.floor_char_boundary(NAME_BYTES));
    name + SUFFIX
}

/// Names of links that no container has: those that lead to pods' logs, and those that lead nowhere.
fn surplus(present: &[Present], wanted: &Links, logs: &Path) -> Vec<String> {
    let left = present.iter().filter(|link| {
        let known = wanted.contains_key(&link.name);
        !known && link.name.ends_with(SUFFIX) && (link.broken || link.target.starts_with(logs))
    });
    left.map(|link| link.name.clone()).collect()
}

fn make(path: &Path, target: &Path) -> std::io::Result<()> {
    match std::os::unix::fs::symlink(target, path) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        done => return done,
    }
    // What is no link is somebody's; that is the error then.
    if std::fs::read_link(path)? == target {
        return Ok(());
    }
    std::fs::remove_file(path)?;
    std::os::unix::fs::symlink(target, path)
}

fn remove(path: &Path) -> std::io::Result<()> {
    match std::fs::read_link(path).and_then(|_| std::fs::remove_file(path)) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

#[cfg(test)]
mod tests;
