//! Reads the figures of one collection: /proc and a list of cgroups, one file after another. Blocks for some small reads
//! a cgroup; must never run on the thread of the async runtime.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::UNIX_EPOCH;

use bulkhead_base::{Clock, chain};
use bulkhead_cgroup::{CgroupPath, CgroupStats, Mounts, read_stats};
use tokio::time::Instant;

use crate::error::CollectError;
use crate::fs::{self, FsFigures};
use crate::net::{self, NetFigures};
use crate::problems::Problems;
use crate::proc::{self, ProcFigures};

/// Where figures come from.
pub(crate) trait Figures: Send + Sync + 'static {
    /// Reads the machine's figures and those of `cgroups`. Blocks.
    fn read(&self, kubepods: &CgroupPath, cgroups: &BTreeSet<CgroupPath>) -> Result<Readings, CollectError>;
}

/// What was read in one collection.
#[derive(Clone, Debug)]
pub(crate) struct Readings {
    /// When /proc was read.
    pub(crate) at: Moment,
    /// What it said.
    pub(crate) proc: ProcFigures,
    /// The node's network; `None` when it cannot be read.
    pub(crate) network: Option<NetFigures>,
    /// The file system of the node agent's root folder.
    pub(crate) fs: Option<FsFigures>,
    /// Every cgroup that exists.
    pub(crate) cgroups: BTreeMap<CgroupPath, Reading>,
    /// When the cgroup of all pods was made, in nanoseconds since 1970; `None` while there is none.
    pub(crate) kubepods_made: Option<u64>,
    /// Cgroups that exist and cannot be read.
    pub(crate) problems: Problems,
}

/// Figures of one cgroup.
#[derive(Clone, Debug)]
pub(crate) struct Reading {
    /// When they were read.
    pub(crate) at: Moment,
    /// The figures.
    pub(crate) stats: CgroupStats,
}

/// One moment on both clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Moment {
    /// For measuring.
    pub(crate) instant: Instant,
    /// For people, in nanoseconds since 1970.
    pub(crate) unix_nano: u64,
}

/// This machine, or a picture of one in a folder.
pub(crate) struct Machine {
    proc_dir: PathBuf,
    root_dir: PathBuf,
    clock: Arc<dyn Clock>,
    mounts: OnceLock<Mounts>,
}

impl Machine {
    /// With the proc file system at `proc_dir`. Nothing is read yet.
    pub(crate) fn new(proc_dir: PathBuf, clock: Arc<dyn Clock>) -> Self {
        Self { proc_dir, root_dir: PathBuf::new(), clock, mounts: OnceLock::new() }
    }

    /// With the node agent's root folder there.
    pub(crate) fn with_root(self, root_dir: &Path) -> Self {
        Self { root_dir: root_dir.to_owned(), ..self }
    }

    /// Looked up until found, then kept: a node does not change its cgroup version while it runs.
    fn mounts(&self) -> Result<&Mounts, CollectError> {
        if let Some(mounts) = self.mounts.get() {
            return Ok(mounts);
        }
        let found =
            Mounts::detect_from(&self.proc_dir.join("self/mountinfo")).map_err(CollectError::Mounts)?;
        Ok(self.mounts.get_or_init(|| found))
    }

    fn now(&self) -> Moment {
        let unix_nano = u64::try_from(self.clock.now().as_nanosecond()).unwrap_or(0);
        Moment { instant: Instant::now(), unix_nano }
    }
}

impl Figures for Machine {
    fn read(&self, kubepods: &CgroupPath, cgroups: &BTreeSet<CgroupPath>) -> Result<Readings, CollectError> {
        let mounts = self.mounts()?;
        let mut readings = Readings {
            at: self.now(),
            proc: proc::read(&self.proc_dir)?,
            network: net::read(&self.proc_dir),
            fs: fs::read(&self.root_dir),
            cgroups: BTreeMap::new(),
            kubepods_made: made(mounts, kubepods),
            problems: Problems::default(),
        };
        for path in cgroups {
            let at = self.now();
            match read_stats(mounts, path) {
                Ok(Some(stats)) => {
                    readings.cgroups.insert(path.clone(), Reading { at, stats });
                }
                // It ended, or has not begun yet.
                Ok(None) => {}
                Err(error) => readings.problems.add(chain(&error).to_string()),
            }
        }
        Ok(readings)
    }
}

/// When a cgroup was made. The kernel does not keep that. The times of a directory and of its first file are near it or
/// later (a directory's moves when a cgroup is made in it), so the earliest of all hierarchies is the best there is.
fn made(mounts: &Mounts, path: &CgroupPath) -> Option<u64> {
    let folders = mounts.hierarchies().into_iter().map(|mount| path.below(mount));
    folders.flat_map(|folder| [folder.join("cgroup.procs"), folder]).filter_map(|file| modified(&file)).min()
}

fn modified(path: &Path) -> Option<u64> {
    let time = std::fs::metadata(path).and_then(|metadata| metadata.modified()).ok()?;
    u64::try_from(time.duration_since(UNIX_EPOCH).ok()?.as_nanos()).ok()
}

#[cfg(test)]
mod tests;
