//! All that the kernel tells of a cgroup, figure by figure: more than [`crate::CgroupStats`] has, for who wants to look
//! closely. Only reads. Must never invent a figure: one that the kernel does not give is not in the list.

use std::path::Path;

use crate::layout::CgroupPath;
use crate::stats::{Keyed, V1_UNLIMITED, limit_v2, number};
use crate::{CgroupError, Mounts, file};

/// What a figure is about. Bytes, nanoseconds or counts, of the cgroup with everything beneath it where nothing else is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[expect(
    missing_docs,
    reason = "the names say it; what they do not say stands in the wire's CgroupFigureKind"
)]
pub enum Detail {
    CpuUsageNs,
    CpuUserNs,
    CpuSystemNs,
    /// Of a cgroup with a quota.
    CpuPeriods,
    CpuThrottledPeriods,
    CpuThrottledNs,
    CpuShares,
    /// Microseconds.
    CpuPeriod,
    /// Microseconds; only where there is one.
    CpuQuota,
    MemoryUsage,
    MemoryWorkingSet,
    MemoryRss,
    MemoryCache,
    MemorySwap,
    MemoryMappedFile,
    MemoryMaxUsage,
    /// v1 alone.
    MemoryFailcnt,
    MemoryKernel,
    MemoryFileDirty,
    MemoryFileWriteback,
    MemoryActiveFile,
    MemoryInactiveFile,
    /// Of this cgroup alone; v2 does not tell them apart.
    MemoryFaultsOwn,
    MemoryFaults,
    MemoryMajorFaultsOwn,
    MemoryMajorFaults,
    /// v2 alone.
    MemoryPagesScanned,
    /// v2 alone.
    MemoryPagesStolen,
    MemoryRefaultAnon,
    MemoryRefaultFile,
    /// v2 alone.
    MemoryEventsHigh,
    /// v2 alone.
    MemoryEventsMax,
    OomKills,
    /// 0: none.
    MemoryLimit,
    /// 0: none. v1's soft limit, v2's `memory.low`.
    MemoryReservation,
    /// Of memory and swap together on v1, of swap on v2. 0: none.
    MemorySwapLimit,
    /// In this cgroup alone.
    Processes,
    Threads,
    /// 0: no limit.
    ThreadsMax,
}

use Detail as D;

/// Lines of `memory.stat`, v1.
const STAT_V1: [(&str, Detail); 14] = [
    ("total_rss", D::MemoryRss),
    ("total_cache", D::MemoryCache),
    ("total_swap", D::MemorySwap),
    ("total_mapped_file", D::MemoryMappedFile),
    ("total_dirty", D::MemoryFileDirty),
    ("total_writeback", D::MemoryFileWriteback),
    ("total_active_file", D::MemoryActiveFile),
    ("total_inactive_file", D::MemoryInactiveFile),
    ("pgfault", D::MemoryFaultsOwn),
    ("total_pgfault", D::MemoryFaults),
    ("pgmajfault", D::MemoryMajorFaultsOwn),
    ("total_pgmajfault", D::MemoryMajorFaults),
    ("total_workingset_refault_anon", D::MemoryRefaultAnon),
    ("total_workingset_refault_file", D::MemoryRefaultFile),
];

/// Lines of `memory.stat`, v2.
const STAT_V2: [(&str, Detail); 14] = [
    ("anon", D::MemoryRss),
    ("file", D::MemoryCache),
    ("file_mapped", D::MemoryMappedFile),
    ("kernel", D::MemoryKernel),
    ("file_dirty", D::MemoryFileDirty),
    ("file_writeback", D::MemoryFileWriteback),
    ("active_file", D::MemoryActiveFile),
    ("inactive_file", D::MemoryInactiveFile),
    ("pgfault", D::MemoryFaults),
    ("pgmajfault", D::MemoryMajorFaults),
    ("pgscan", D::MemoryPagesScanned),
    ("pgsteal", D::MemoryPagesStolen),
    ("workingset_refault_anon", D::MemoryRefaultAnon),
    ("workingset_refault_file", D::MemoryRefaultFile),
];

/// Reads every figure of a cgroup; `None` when it does not exist (any more).
///
/// # Errors
/// A file that cannot be read, is larger than 64 KiB, or holds what the kernel does not write; the error names it.
pub fn read_details(mounts: &Mounts, path: &CgroupPath) -> Result<Option<Vec<(Detail, u64)>>, CgroupError> {
    let mut found = Found::default();
    match mounts {
        Mounts::V1 { .. } => found.v1(mounts, path)?,
        Mounts::V2 { mountpoint } => found.v2(&path.below(mountpoint))?,
    }
    Ok((!found.0.is_empty()).then_some(found.0))
}

/// Ids of the processes in a cgroup itself, at most `most` of them; empty when it does not exist.
///
/// # Errors
/// When the list cannot be read.
pub fn processes(mounts: &Mounts, path: &CgroupPath, most: usize) -> Result<Vec<u32>, CgroupError> {
    let Some(folder) = process_folder(mounts, path) else { return Ok(Vec::new()) };
    let text = file::read_optional(&folder.join("cgroup.procs"), LIST_LIMIT)?.unwrap_or_default();
    Ok(text.lines().filter_map(|line| line.trim().parse().ok()).take(most).collect())
}

/// Largest list of processes, in bytes: a hundred thousand of them.
const LIST_LIMIT: u64 = 1024 * 1024;

fn process_folder(mounts: &Mounts, path: &CgroupPath) -> Option<std::path::PathBuf> {
    let mount = ["memory", "cpu", "pids"].iter().find_map(|controller| mounts.controller(controller));
    mount.map(|mount| path.below(mount))
}

#[derive(Default)]
struct Found(Vec<(Detail, u64)>);

impl Found {
    fn put(&mut self, detail: Detail, value: Option<u64>) {
        if let Some(value) = value {
            self.0.push((detail, value));
        }
    }

    fn lines(&mut self, of: &Keyed, table: &[(&str, Detail)]) -> Result<(), CgroupError> {
        for (key, detail) in table {
            self.put(*detail, of.get(key)?);
        }
        Ok(())
    }

    fn v1(&mut self, mounts: &Mounts, path: &CgroupPath) -> Result<(), CgroupError> {
        let dir = |controller| mounts.controller(controller).map(|mount| path.below(mount));
        if let Some(dir) = dir("cpuacct") {
            self.put(D::CpuUsageNs, number(&dir.join("cpuacct.usage"))?);
            self.put(D::CpuUserNs, number(&dir.join("cpuacct.usage_user"))?);
            self.put(D::CpuSystemNs, number(&dir.join("cpuacct.usage_sys"))?);
        }
        if let Some(dir) = dir("cpu") {
            let quota = file::read_optional(&dir.join("cpu.cfs_quota_us"), file::KNOB_LIMIT)?;
            // -1: there is none.
            let quota = quota.and_then(|text| text.trim().parse().ok());
            self.put(D::CpuShares, number(&dir.join("cpu.shares"))?);
            self.put(D::CpuPeriod, number(&dir.join("cpu.cfs_period_us"))?);
            self.put(D::CpuQuota, quota);
            if let Some(stat) = Keyed::read(dir.join("cpu.stat"))?.filter(|_| quota.is_some()) {
                self.put(D::CpuPeriods, stat.get("nr_periods")?);
                self.put(D::CpuThrottledPeriods, stat.get("nr_throttled")?);
                self.put(D::CpuThrottledNs, stat.get("throttled_time")?);
            }
        }
        if let Some(dir) = dir("memory") {
            self.memory_v1(&dir)?;
        }
        if let Some(dir) = dir("pids") {
            self.tasks(&dir)?;
        }
        Ok(())
    }

    fn memory_v1(&mut self, dir: &Path) -> Result<(), CgroupError> {
        let Some(stat) = Keyed::read(dir.join("memory.stat"))? else { return Ok(()) };
        let usage = number(&dir.join("memory.usage_in_bytes"))?;
        self.put(D::MemoryUsage, usage);
        self.working_set(usage, stat.get("total_inactive_file")?);
        self.lines(&stat, &STAT_V1)?;
        let limit = |name: &str| -> Result<_, CgroupError> {
            Ok(number(&dir.join(name))?.map(|limit| if limit < V1_UNLIMITED { limit } else { 0 }))
        };
        self.put(D::MemoryMaxUsage, number(&dir.join("memory.max_usage_in_bytes"))?);
        self.put(D::MemoryFailcnt, number(&dir.join("memory.failcnt"))?);
        self.put(D::MemoryKernel, number(&dir.join("memory.kmem.usage_in_bytes"))?);
        self.put(D::MemoryLimit, limit("memory.limit_in_bytes")?);
        self.put(D::MemoryReservation, limit("memory.soft_limit_in_bytes")?);
        self.put(D::MemorySwapLimit, limit("memory.memsw.limit_in_bytes")?);
        if let Some(control) = Keyed::read(dir.join("memory.oom_control"))? {
            self.put(D::OomKills, control.get("oom_kill")?);
        }
        Ok(())
    }

    fn v2(&mut self, dir: &Path) -> Result<(), CgroupError> {
        if let Some(stat) = Keyed::read(dir.join("cpu.stat"))? {
            let nanoseconds =
                |key| Ok::<_, CgroupError>(stat.get(key)?.map(|used| used.saturating_mul(1000)));
            self.put(D::CpuUsageNs, nanoseconds("usage_usec")?);
            self.put(D::CpuUserNs, nanoseconds("user_usec")?);
            self.put(D::CpuSystemNs, nanoseconds("system_usec")?);
            let (quota, period) = cpu_max(dir)?;
            if quota.is_some() {
                self.put(D::CpuPeriods, stat.get("nr_periods")?);
                self.put(D::CpuThrottledPeriods, stat.get("nr_throttled")?);
                self.put(D::CpuThrottledNs, nanoseconds("throttled_usec")?);
            }
            self.put(D::CpuPeriod, period);
            self.put(D::CpuQuota, quota);
        }
        self.put(D::CpuShares, number(&dir.join("cpu.weight"))?.map(crate::limits::shares_of_weight));
        self.memory_v2(dir)?;
        self.tasks(dir)
    }

    fn memory_v2(&mut self, dir: &Path) -> Result<(), CgroupError> {
        let Some(stat) = Keyed::read(dir.join("memory.stat"))? else { return Ok(()) };
        let usage = number(&dir.join("memory.current"))?;
        self.put(D::MemoryUsage, usage);
        self.working_set(usage, stat.get("inactive_file")?);
        self.lines(&stat, &STAT_V2)?;
        self.put(D::MemorySwap, number(&dir.join("memory.swap.current"))?);
        self.put(D::MemoryMaxUsage, number(&dir.join("memory.peak"))?);
        if usage.is_some() {
            self.put(D::MemoryLimit, Some(limit_v2(&dir.join("memory.max"))?.unwrap_or(0)));
            self.put(D::MemoryReservation, Some(limit_v2(&dir.join("memory.low"))?.unwrap_or(0)));
            self.put(D::MemorySwapLimit, Some(limit_v2(&dir.join("memory.swap.max"))?.unwrap_or(0)));
        }
        if let Some(events) = Keyed::read(dir.join("memory.events"))? {
            self.put(D::MemoryEventsHigh, events.get("high")?);
            self.put(D::MemoryEventsMax, events.get("max")?);
            self.put(D::OomKills, events.get("oom_kill")?);
        }
        Ok(())
    }

    fn working_set(&mut self, usage: Option<u64>, inactive: Option<u64>) {
        let used = usage.zip(inactive).map(|(usage, inactive)| usage.saturating_sub(inactive));
        self.put(D::MemoryWorkingSet, used);
    }

    fn tasks(&mut self, dir: &Path) -> Result<(), CgroupError> {
        let Some(threads) = number(&dir.join("pids.current"))? else { return Ok(()) };
        self.put(D::Threads, Some(threads));
        self.put(D::ThreadsMax, Some(limit_v2(&dir.join("pids.max"))?.unwrap_or(0)));
        let list = file::read_optional(&dir.join("cgroup.procs"), LIST_LIMIT)?;
        self.put(D::Processes, list.and_then(|list| u64::try_from(list.lines().count()).ok()));
        Ok(())
    }
}

/// `cpu.max`: quota, or `max`, and period, in microseconds.
fn cpu_max(dir: &Path) -> Result<(Option<u64>, Option<u64>), CgroupError> {
    let text = file::read_optional(&dir.join("cpu.max"), file::KNOB_LIMIT)?.unwrap_or_default();
    let mut words = text.split_whitespace().map(|word| word.parse().ok());
    Ok((words.next().flatten(), words.next().flatten()))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fs;

    use super::*;

    fn read(version: &str, files: &[(&str, &str)]) -> BTreeMap<Detail, u64> {
        let dir = tempfile::tempdir().unwrap();
        let mounts = match version {
            "v2" => Mounts::V2 { mountpoint: dir.path().to_owned() },
            _ => {
                let controllers = ["cpu", "cpuacct", "memory", "pids"];
                let mount = |name: &str| (name.to_owned(), dir.path().to_owned());
                Mounts::V1 { controllers: controllers.map(mount).into(), unified: None }
            }
        };
        fs::create_dir(dir.path().join("c")).unwrap();
        for (name, text) in files {
            fs::write(dir.path().join("c").join(name), text).unwrap();
        }
        let path = CgroupPath::parse("/c").unwrap();
        let first = if files.is_empty() { vec![] } else { vec![7] };
        assert_eq!(processes(&mounts, &path, 1).unwrap(), first);
        read_details(&mounts, &path).unwrap().unwrap_or_default().into_iter().collect()
    }

    #[test]
    fn both_versions_are_read_and_nothing_is_invented() {
        let v1 = read(
            "v1",
            &[
                ("cpuacct.usage", "9\n"),
                ("cpuacct.usage_user", "5\n"),
                ("cpuacct.usage_sys", "4\n"),
                ("cpu.shares", "102\n"),
                ("cpu.cfs_period_us", "100000\n"),
                ("cpu.cfs_quota_us", "-1\n"),
                ("cpu.stat", "nr_periods 1\nnr_throttled 2\nthrottled_time 3\n"),
                (
                    "memory.stat",
                    "cache 1\npgfault 3\ntotal_cache 2\ntotal_inactive_file 4\ntotal_pgfault 6\n",
                ),
                ("memory.usage_in_bytes", "10\n"),
                ("memory.limit_in_bytes", "9223372036854771712\n"),
                ("pids.current", "3\n"),
                ("pids.max", "max\n"),
                ("cgroup.procs", "7\n8\n"),
            ],
        );
        let wanted = [
            (D::CpuUsageNs, 9),
            (D::CpuUserNs, 5),
            (D::CpuSystemNs, 4),
            (D::CpuShares, 102),
            (D::CpuPeriod, 100_000),
            (D::MemoryUsage, 10),
            (D::MemoryWorkingSet, 6),
            (D::MemoryCache, 2),
            (D::MemoryInactiveFile, 4),
            (D::MemoryFaultsOwn, 3),
            (D::MemoryFaults, 6),
            (D::MemoryLimit, 0),
            (D::Processes, 2),
            (D::Threads, 3),
            (D::ThreadsMax, 0),
        ];
        assert_eq!(v1, wanted.into());
        let v2 = read(
            "v2",
            &[
                (
                    "cpu.stat",
                    "usage_usec 9\nuser_usec 5\nsystem_usec 4\nnr_periods 6\nnr_throttled 2\nthrottled_usec 3\n",
                ),
                ("cpu.max", "50000 100000\n"),
                ("cpu.weight", "4\n"),
                ("memory.stat", "anon 1\nfile 2\ninactive_file 4\npgscan 5\n"),
                ("memory.current", "10\n"),
                ("memory.max", "64\n"),
                ("memory.events", "low 0\nhigh 1\nmax 2\noom 3\noom_kill 4\n"),
                ("cgroup.procs", "7\n"),
            ],
        );
        let wanted = [
            (D::CpuUsageNs, 9000),
            (D::CpuUserNs, 5000),
            (D::CpuSystemNs, 4000),
            (D::CpuPeriods, 6),
            (D::CpuThrottledPeriods, 2),
            (D::CpuThrottledNs, 3000),
            (D::CpuShares, v2[&D::CpuShares]),
            (D::CpuPeriod, 100_000),
            (D::CpuQuota, 50_000),
            (D::MemoryUsage, 10),
            (D::MemoryWorkingSet, 6),
            (D::MemoryRss, 1),
            (D::MemoryCache, 2),
            (D::MemoryInactiveFile, 4),
            (D::MemoryPagesScanned, 5),
            (D::MemoryLimit, 64),
            (D::MemoryReservation, 0),
            (D::MemorySwapLimit, 0),
            (D::MemoryEventsHigh, 1),
            (D::MemoryEventsMax, 2),
            (D::OomKills, 4),
        ];
        assert_eq!(v2, wanted.into());
        assert!((80..=110).contains(&v2[&D::CpuShares]), "weight 4 is some 100 shares: {v2:?}");
        assert!(read("v1", &[]).is_empty() && read("v2", &[]).is_empty());
    }

    #[test]
    fn what_the_kernel_does_not_write_names_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let mounts = Mounts::V2 { mountpoint: dir.path().to_owned() };
        fs::write(dir.path().join("memory.stat"), "anon many\n").unwrap();
        let error = read_details(&mounts, &CgroupPath::root()).unwrap_err();
        assert!(error.to_string().contains("memory.stat"), "{error}");
    }
}
