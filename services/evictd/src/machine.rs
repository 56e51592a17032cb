//! Reads the figures of one collection: /proc and a list of cgroups, one file after another. Blocks for some small reads
//! a cgroup; must never run on the thread of the async runtime.

use bulkhead_disk::{self as fs, FsFigures};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::UNIX_EPOCH;

use bulkhead_api::evictd::v1::NetworkStats;
use bulkhead_base::{Clock, chain};
use bulkhead_cgroup::{
    CgroupPath, CgroupStats, Detail, Mounts, processes, read_details, read_machine_pressure, read_stats,
};
use bulkhead_model::eviction::Observation;
use tokio::time::Instant;

use crate::error::CollectError;
use crate::hardware::Hardware;
use crate::net::{self, NetFigures};
use crate::plan::Plan;
use crate::problems::Problems;
use crate::proc::{self, ProcFigures};
use crate::summary;
use crate::system::SystemCgroups;

/// Processes of a sandbox that are tried: the first may end while it is looked at.
const SANDBOX_PROCESSES: usize = 4;

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
    /// The node's parts that exist, the pods first: name, cgroup, and when it was made, in nanoseconds since 1970.
    pub(crate) system: Vec<(&'static str, CgroupPath, Option<u64>)>,
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

/// What is left for new work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Left {
    /// Memory without the working set of all.
    pub(crate) memory: Observation,
    /// Processes and threads.
    pub(crate) processes: Observation,
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
    system: SystemCgroups,
    hardware: OnceLock<Hardware>,
}

/// All that the kernel tells of one cgroup.
#[derive(Clone, Debug)]
pub(crate) struct Detailed {
    /// When it was read.
    pub(crate) at: Moment,
    /// The figures.
    pub(crate) figures: Vec<(Detail, u64)>,
}

impl Machine {
    /// With the proc file system at `proc_dir`. Nothing is read yet.
    pub(crate) fn new(proc_dir: PathBuf, clock: Arc<dyn Clock>) -> Self {
        let (mounts, hardware) = (OnceLock::new(), OnceLock::new());
        let system = SystemCgroups::new(&proc_dir);
        Self { proc_dir, root_dir: PathBuf::new(), clock, mounts, system, hardware }
    }

    /// With what the configuration says of the cgroups of the node's parts.
    pub(crate) fn with_system(self, agent: Option<CgroupPath>, others: Option<CgroupPath>) -> Self {
        Self { system: self.system.configured(agent, others), ..self }
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

    /// The proc file system.
    pub(crate) fn proc_dir(&self) -> &Path {
        &self.proc_dir
    }

    /// The node agent's root folder.
    pub(crate) fn root_dir(&self) -> &Path {
        &self.root_dir
    }

    /// The machine's hardware, looked at once. Blocks.
    pub(crate) fn hardware(&self) -> &Hardware {
        self.hardware.get_or_init(|| Hardware::read(&self.proc_dir, Path::new("/")))
    }

    /// What is left of memory and processes; `None` when it cannot be read. Blocks for a few small reads.
    pub(crate) fn left(&self) -> Option<Left> {
        let proc = proc::read_lean(&self.proc_dir).ok()?;
        let root = read_stats(self.mounts().ok()?, &CgroupPath::root()).ok()?;
        let memory = summary::node_memory(self.now(), root.as_ref(), &proc);
        Some(Left {
            memory: Observation { available: memory.available_bytes?, capacity: proc.memory_total },
            processes: Observation {
                available: proc.max_tasks.saturating_sub(proc.tasks),
                capacity: proc.max_tasks,
            },
        })
    }

    /// Traffic of pods with a network of their own, by UID. Blocks for some small reads a pod.
    pub(crate) fn networks(&self, plan: &Plan) -> BTreeMap<String, NetworkStats> {
        let Ok(mounts) = self.mounts() else { return BTreeMap::new() };
        let own =
            plan.pods.iter().filter_map(|pod| Some((pod, pod.sandbox.as_ref().filter(|s| s.own_network)?)));
        let traffic = own.filter_map(|(pod, sandbox)| {
            let pids = processes(mounts, &sandbox.cgroup, SANDBOX_PROCESSES).ok()?;
            let read = |pid: &u32| net::read(&self.proc_dir.join(pid.to_string()));
            Some((pod.view.uid.clone(), summary::network(self.now(), &pids.iter().find_map(read)?)))
        });
        traffic.collect()
    }

    /// All that the kernel tells of these cgroups, those that exist. Blocks.
    pub(crate) fn details(
        &self,
        cgroups: &BTreeSet<CgroupPath>,
    ) -> Result<BTreeMap<CgroupPath, Detailed>, CollectError> {
        let mounts = self.mounts()?;
        let read = |path: &CgroupPath| {
            let at = self.now();
            // One that cannot be read is left out; the check `statistics` names it.
            let figures = read_details(mounts, path).ok()??;
            Some((path.clone(), Detailed { at, figures }))
        };
        Ok(cgroups.iter().filter_map(read).collect())
    }

    /// This moment.
    pub(crate) fn now(&self) -> Moment {
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
            system: Vec::new(),
            problems: Problems::default(),
        };
        let system = [("pods", kubepods.clone())].into_iter().chain(self.system.find());
        readings.system = system.map(|(name, path)| (name, path.clone(), made(mounts, &path))).collect();
        let system: BTreeSet<_> = readings.system.iter().map(|(_, path, _)| path.clone()).collect();
        for path in cgroups.union(&system) {
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
        // v1 keeps no pressure in cgroups, and the machine's stands beside them.
        if let Some(root) =
            readings.cgroups.get_mut(&CgroupPath::root()).filter(|root| root.stats.pressure.is_none())
        {
            match read_machine_pressure(&self.proc_dir) {
                Ok(pressure) => root.stats.pressure = pressure,
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
