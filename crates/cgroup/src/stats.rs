//! What a cgroup uses: processor time, memory, processes, pressure. Only reads, so another user than the tree's owner
//! can do it. Must never invent a figure: one that the kernel does not give is `None`.

use std::path::{Path, PathBuf};

use crate::layout::CgroupPath;
use crate::{CgroupError, Mounts, file};

/// A v1 limit at or above this is none.
pub(crate) const V1_UNLIMITED: u64 = 1 << 62;

/// Figures of one cgroup with everything beneath it, read one file after another: they are of about the same moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CgroupStats {
    /// Processor time used since the cgroup was made, in nanoseconds.
    pub cpu_usage_ns: Option<u64>,
    /// Memory; absent without the controller.
    pub memory: Option<MemoryStats>,
    /// Processes and threads now. The root has no such figure.
    pub pids: Option<u64>,
    /// Processes that the kernel killed for memory since the cgroup was made. v1 counts this cgroup alone, v2 with
    /// everything beneath it.
    pub oom_kills: Option<u64>,
    /// Pressure stall information; v2 only, and only where the kernel keeps it.
    pub pressure: Option<PressureStats>,
}

/// Memory of one cgroup with everything beneath it, in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryStats {
    /// All that is charged to the cgroup. v2 has no such figure for the root.
    pub usage: Option<u64>,
    /// Usage without file pages that were not touched lately: what the kubelet holds against limits and thresholds.
    pub working_set: Option<u64>,
    /// File pages that were not touched lately.
    pub inactive_file: u64,
    /// Anonymous memory.
    pub rss: u64,
    /// Swap in use; absent when the kernel does not count it.
    pub swap: Option<u64>,
    /// The cgroup's own limit; absent when there is none.
    pub limit: Option<u64>,
    /// Page faults since the cgroup was made. On v1, too, they include what is beneath; the kubelet shows zero there
    /// for pods.
    pub page_faults: u64,
    /// Page faults that waited for a device.
    pub major_page_faults: u64,
}

/// Pressure stall information of one cgroup (kernel: accounting/psi).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PressureStats {
    /// Waiting for a processor.
    pub cpu: Pressure,
    /// Waiting for memory.
    pub memory: Pressure,
    /// Waiting for devices.
    pub io: Pressure,
}

/// Pressure on one resource.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Pressure {
    /// At least one task waited.
    pub some: PressureLine,
    /// All tasks waited. Older kernels have no such line for processors; it is all zero then.
    pub full: PressureLine,
}

/// Shares of time spent waiting, in percent, and the sum of it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PressureLine {
    /// Over the last 10 seconds.
    pub avg10: f64,
    /// Over the last 60 seconds.
    pub avg60: f64,
    /// Over the last 300 seconds.
    pub avg300: f64,
    /// Since the cgroup was made, in microseconds.
    pub total_us: u64,
}

/// Reads a cgroup's figures; `None` when it does not exist (any more).
///
/// # Errors
/// A file that cannot be read, is larger than 64 KiB, or holds what the kernel does not write; the error names it.
pub fn read_stats(mounts: &Mounts, path: &CgroupPath) -> Result<Option<CgroupStats>, CgroupError> {
    let stats = match mounts {
        Mounts::V1 { .. } => read_v1(mounts, path)?,
        Mounts::V2 { mountpoint } => read_v2(&path.below(mountpoint))?,
    };
    let nothing = stats.cpu_usage_ns.is_none() && stats.memory.is_none() && stats.pids.is_none();
    Ok(if nothing { None } else { Some(stats) })
}

/// Pressure on the whole machine, from the folder `pressure` of the proc file system in `proc_dir`: what there is where the
/// root cgroup has none, as on v1. `None` where the kernel keeps none.
///
/// # Errors
/// As [`read_stats`].
pub fn read_machine_pressure(proc_dir: &Path) -> Result<Option<PressureStats>, CgroupError> {
    pressures(&proc_dir.join("pressure"), "")
}

/// Reads the figures of the root cgroup: of the whole machine, as far as the kernel gives them there.
pub fn read_root(mounts: &Mounts) -> Result<CgroupStats, CgroupError> {
    let path = mounts.hierarchies().first().map(|mount| mount.to_path_buf()).unwrap_or_default();
    read_stats(mounts, &CgroupPath::root())?.ok_or(CgroupError::NoCgroup { path })
}

fn read_v1(mounts: &Mounts, path: &CgroupPath) -> Result<CgroupStats, CgroupError> {
    let dir = |controller| mounts.controller(controller).map(|mount| path.below(mount));
    let mut stats = CgroupStats::default();
    if let Some(dir) = dir("cpuacct") {
        stats.cpu_usage_ns = number(&dir.join("cpuacct.usage"))?;
    }
    if let Some(dir) = dir("memory") {
        stats.memory = memory_v1(&dir)?;
        stats.oom_kills = match Keyed::read(dir.join("memory.oom_control"))? {
            Some(control) => control.get("oom_kill")?,
            None => None,
        };
    }
    if let Some(dir) = dir("pids") {
        stats.pids = number(&dir.join("pids.current"))?;
    }
    Ok(stats)
}

fn memory_v1(dir: &Path) -> Result<Option<MemoryStats>, CgroupError> {
    let Some(stat) = Keyed::read(dir.join("memory.stat"))? else { return Ok(None) };
    let Some(usage) = number(&dir.join("memory.usage_in_bytes"))? else { return Ok(None) };
    let inactive_file = stat.need("total_inactive_file")?;
    let limit = number(&dir.join("memory.limit_in_bytes"))?;
    Ok(Some(MemoryStats {
        usage: Some(usage),
        working_set: Some(usage.saturating_sub(inactive_file)),
        inactive_file,
        rss: stat.need("total_rss")?,
        swap: stat.get("total_swap")?,
        limit: limit.filter(|limit| *limit < V1_UNLIMITED),
        page_faults: stat.need("total_pgfault")?,
        major_page_faults: stat.need("total_pgmajfault")?,
    }))
}

fn read_v2(dir: &Path) -> Result<CgroupStats, CgroupError> {
    let cpu_usage_ns = match Keyed::read(dir.join("cpu.stat"))? {
        Some(stat) => Some(stat.need("usage_usec")?.saturating_mul(1000)),
        None => None,
    };
    let oom_kills = match Keyed::read(dir.join("memory.events"))? {
        Some(events) => events.get("oom_kill")?,
        None => None,
    };
    Ok(CgroupStats {
        cpu_usage_ns,
        memory: memory_v2(dir)?,
        pids: number(&dir.join("pids.current"))?,
        oom_kills,
        pressure: pressures(dir, ".pressure")?,
    })
}

fn memory_v2(dir: &Path) -> Result<Option<MemoryStats>, CgroupError> {
    let Some(stat) = Keyed::read(dir.join("memory.stat"))? else { return Ok(None) };
    let usage = number(&dir.join("memory.current"))?;
    let inactive_file = stat.need("inactive_file")?;
    Ok(Some(MemoryStats {
        usage,
        working_set: usage.map(|usage| usage.saturating_sub(inactive_file)),
        inactive_file,
        rss: stat.need("anon")?,
        swap: number(&dir.join("memory.swap.current"))?,
        limit: limit_v2(&dir.join("memory.max"))?,
        page_faults: stat.need("pgfault")?,
        major_page_faults: stat.need("pgmajfault")?,
    }))
}

pub(crate) fn limit_v2(path: &Path) -> Result<Option<u64>, CgroupError> {
    match file::read_optional(path, file::KNOB_LIMIT)? {
        Some(text) if text.trim() != "max" => parse_number(&text, path).map(Some),
        _ => Ok(None),
    }
}

/// Each resource's file is named for it, with a suffix.
fn pressures(dir: &Path, suffix: &str) -> Result<Option<PressureStats>, CgroupError> {
    let one = |name| {
        let path = dir.join(format!("{name}{suffix}"));
        match file::read_optional(&path, file::KNOB_LIMIT)? {
            Some(text) => parse_pressure(&text, &path).map(Some),
            None => Ok(None),
        }
    };
    match (one("cpu")?, one("memory")?, one("io")?) {
        (Some(cpu), Some(memory), Some(io)) => Ok(Some(PressureStats { cpu, memory, io })),
        _ => Ok(None),
    }
}

/// Two lines: `some` or `full`, then `avg10=`, `avg60=`, `avg300=` and `total=`.
fn parse_pressure(text: &str, path: &Path) -> Result<Pressure, CgroupError> {
    let mut pressure = Pressure::default();
    let mut has_some = false;
    for (index, line) in text.lines().enumerate() {
        let Some((kind, rest)) = line.split_once(' ') else { continue };
        let place = match kind {
            "some" => {
                has_some = true;
                &mut pressure.some
            }
            "full" => &mut pressure.full,
            // A kind that a later kernel may add.
            _ => continue,
        };
        *place = parse_pressure_line(rest).ok_or_else(|| {
            let reason = "not of the form avg10=N avg60=N avg300=N total=N".to_owned();
            CgroupError::Malformed { path: path.to_owned(), line: index.saturating_add(1), reason }
        })?;
    }
    if has_some {
        Ok(pressure)
    } else {
        let reason = "has no line \"some\"".to_owned();
        Err(CgroupError::Malformed { path: path.to_owned(), line: 0, reason })
    }
}

fn parse_pressure_line(text: &str) -> Option<PressureLine> {
    let value =
        |key: &str| text.split_whitespace().find_map(|word| word.strip_prefix(key)?.strip_prefix('='));
    let average = |key| value(key)?.parse::<f64>().ok().filter(|share| share.is_finite() && *share >= 0.0);
    Some(PressureLine {
        avg10: average("avg10")?,
        avg60: average("avg60")?,
        avg300: average("avg300")?,
        total_us: value("total")?.parse().ok()?,
    })
}

/// The single number in `path`; `None` when it is absent.
pub(crate) fn number(path: &Path) -> Result<Option<u64>, CgroupError> {
    match file::read_optional(path, file::KNOB_LIMIT)? {
        Some(text) => parse_number(&text, path).map(Some),
        None => Ok(None),
    }
}

fn parse_number(text: &str, path: &Path) -> Result<u64, CgroupError> {
    text.trim().parse().map_err(|_| {
        let reason = "not a number from 0 to 2^64-1".to_owned();
        CgroupError::Malformed { path: path.to_owned(), line: 1, reason }
    })
}

/// Every reader here, given one text.
#[cfg(any(test, fuzzing))]
pub(crate) fn read_anything(text: &str) {
    let file = Path::new("x");
    let _ = (parse_pressure(text, file), parse_number(text, file));
    let keyed = Keyed { path: file.to_owned(), text: text.to_owned() };
    let key = text.split_whitespace().next().unwrap_or_default();
    let _ = (keyed.need("usage_usec"), keyed.get(key));
}

/// A file of lines `KEY VALUE`.
pub(crate) struct Keyed {
    path: PathBuf,
    text: String,
}

impl Keyed {
    pub(crate) fn read(path: PathBuf) -> Result<Option<Self>, CgroupError> {
        Ok(file::read_optional(&path, file::KNOB_LIMIT)?.map(|text| Self { path, text }))
    }

    /// The value of `key`, if there is such a line. Other lines may be of any form: kernels add new ones.
    pub(crate) fn get(&self, key: &str) -> Result<Option<u64>, CgroupError> {
        for (index, line) in self.text.lines().enumerate() {
            let mut words = line.split_whitespace();
            if words.next() != Some(key) {
                continue;
            }
            return match (words.next().map(str::parse), words.next()) {
                (Some(Ok(value)), None) => Ok(Some(value)),
                _ => Err(CgroupError::Malformed {
                    path: self.path.clone(),
                    line: index.saturating_add(1),
                    reason: format!("{key} has no number from 0 to 2^64-1"),
                }),
            };
        }
        Ok(None)
    }

    /// The value of `key`, which every kernel writes.
    fn need(&self, key: &str) -> Result<u64, CgroupError> {
        self.get(key)?.ok_or_else(|| CgroupError::Malformed {
            path: self.path.clone(),
            line: 0,
            reason: format!("has no line {key:?}"),
        })
    }
}

#[cfg(test)]
mod tests;
