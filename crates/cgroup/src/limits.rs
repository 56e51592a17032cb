//! Limits of a cgroup: what they may be and how they are written for v1 and v2. Must never decide a value.

use std::collections::BTreeMap;
use std::error::Error as _;
use std::io;
use std::path::PathBuf;

use cgroups_rs::fs::MaxValue;
use cgroups_rs::fs::cpu::CpuController;
use cgroups_rs::fs::memory::MemController;
use cgroups_rs::fs::pid::PidController;
use rustix::io::Errno;

use crate::layout::CgroupPath;
use crate::{CgroupError, Mounts, Version, file};

/// CPU shares that the kernel accepts (v1 `cpu.shares`; the API's requests are turned into the same unit).
const SHARES: std::ops::RangeInclusive<u64> = 2..=262_144;
/// The kernel's smallest quota and its bounds of a period, in microseconds (sched-bwc).
const MIN_QUOTA_US: u64 = 1000;
const PERIOD_US: std::ops::RangeInclusive<u64> = 1000..=1_000_000;
/// What v2 has when nothing was set, in microseconds.
const DEFAULT_PERIOD_US: u64 = 100_000;
/// v1 shows "unlimited" as the largest multiple of a page; no machine has a limit near it.
const V1_UNLIMITED: u64 = 1 << 62;
/// Memory limits are kept in pages. Where pages are larger, a limit that is no multiple is merely written again.
const PAGE: u64 = 4096;

/// A limit that can be absent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ceiling {
    /// No limit; takes away one that was set.
    Unlimited,
    /// At most this much.
    At(u64),
}

/// What to set on a cgroup. `None` leaves as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Share of the processors under contention, in v1's unit: 1024 is one processor's request. Brought into
    /// 2..=262144 as the kernel does; on v2 it becomes a weight ([`weight_of_shares`]).
    pub cpu_shares: Option<u64>,
    /// Processor time per period, in microseconds; at least 1000.
    pub cpu_quota_us: Option<Ceiling>,
    /// The period, in microseconds; 1000 to 1000000.
    pub cpu_period_us: Option<u64>,
    /// Memory in bytes; not 0. The kernel rounds it down to pages.
    pub memory_limit_bytes: Option<Ceiling>,
    /// Processes and threads.
    pub pids_max: Option<Ceiling>,
    /// Bytes that are never reclaimed (`memory.min`); 0: none. v2 only.
    pub memory_min: Option<u64>,
    /// Bytes that are reclaimed last (`memory.low`); 0: none. v2 only.
    pub memory_low: Option<u64>,
    /// Bytes of huge pages, by the kernel's name of their size (`2MB`). A size, or a controller, that the machine has not is
    /// passed over.
    pub huge_pages: BTreeMap<String, u64>,
}

/// `cpu.weight` for CPU shares, by KEP-2254: 2..=262144 onto 1..=10000 linearly, rounded down.
///
/// Newer runtimes use another curve for containers. Both only weigh a cgroup against its siblings, and the siblings of
/// a container are containers, those of a pod are pods.
pub fn weight_of_shares(shares: u64) -> u64 {
    let (least, most) = (*SHARES.start(), *SHARES.end());
    let above = shares.clamp(least, most).saturating_sub(least);
    1 + above * 9999 / (most - least)
}

/// CPU shares for `cpu.weight`: the way back, as the kubelet's metrics take it.
pub(crate) fn shares_of_weight(weight: u64) -> u64 {
    let (least, most) = (*SHARES.start(), *SHARES.end());
    least + weight.clamp(1, 10_000).saturating_sub(1) * (most - least) / 9999
}

/// Writes to `path` what differs from `limits`; answers with the files that it wrote, in order.
pub(crate) fn apply(
    mounts: &Mounts,
    path: &CgroupPath,
    limits: &Limits,
) -> Result<Vec<&'static str>, CgroupError> {
    limits.check()?;
    let mut written = Vec::new();
    if limits.cpu_shares.is_some() || limits.cpu_quota_us.is_some() || limits.cpu_period_us.is_some() {
        let knobs = Knobs::of(mounts, path, "cpu")?;
        match mounts.version() {
            Version::V1 => apply_cpu_v1(&knobs, limits, &mut written)?,
            Version::V2 => apply_cpu_v2(&knobs, limits, &mut written)?,
        }
    }
    if let Some(ceiling) = limits.memory_limit_bytes {
        apply_memory(&Knobs::of(mounts, path, "memory")?, ceiling, &mut written)?;
    }
    if let Some(ceiling) = limits.pids_max {
        apply_pids(&Knobs::of(mounts, path, "pids")?, ceiling, &mut written)?;
    }
    if mounts.version() == Version::V2 {
        for (knob, bytes) in [("memory.min", limits.memory_min), ("memory.low", limits.memory_low)] {
            if let Some(bytes) = bytes {
                apply_protection(&Knobs::of(mounts, path, "memory")?, knob, bytes, &mut written)?;
            }
        }
    }
    if let (false, Ok(knobs)) = (limits.huge_pages.is_empty(), Knobs::of(mounts, path, "hugetlb")) {
        apply_huge_pages(&knobs, &limits.huge_pages, &mut written)?;
    }
    Ok(written)
}

impl Limits {
    /// What the kernel, or the library that writes to it, would take for something else.
    fn check(&self) -> Result<(), CgroupError> {
        let fail = |what, value, reason| Err(CgroupError::InvalidLimit { what, value, reason });
        if let Some(Ceiling::At(quota)) = self.cpu_quota_us
            && quota < MIN_QUOTA_US
        {
            return fail("cpu_quota_us", quota, "at least 1000 microseconds");
        }
        if let Some(period) = self.cpu_period_us
            && !PERIOD_US.contains(&period)
        {
            return fail("cpu_period_us", period, "1000 to 1000000 microseconds");
        }
        let is_size = |size: &String| size.bytes().all(|b| b.is_ascii_alphanumeric());
        if let Some((_, bytes)) = self.huge_pages.iter().find(|(size, _)| !is_size(size)) {
            return fail("huge_pages", *bytes, "a size such as 2MB, which becomes part of a file's name");
        }
        if self.memory_limit_bytes == Some(Ceiling::At(0)) {
            return fail("memory_limit_bytes", 0, "0 would kill every process; say Unlimited");
        }
        Ok(())
    }
}

impl Ceiling {
    /// As cgroups-rs and v1 have it: -1 is no limit.
    fn signed(self) -> i64 {
        match self {
            Self::Unlimited => -1,
            Self::At(value) => i64::try_from(value).unwrap_or(-1),
        }
    }
}

/// The files of one controller in one cgroup.
struct Knobs {
    controller: &'static str,
    dir: PathBuf,
    v2: bool,
}

impl Knobs {
    fn of(mounts: &Mounts, path: &CgroupPath, controller: &'static str) -> Result<Self, CgroupError> {
        let Some(mount) = mounts.controller(controller) else {
            let path = mounts.hierarchies().first().map(|mount| mount.to_path_buf()).unwrap_or_default();
            return Err(CgroupError::NoController { controller, path });
        };
        Ok(Self { controller, dir: path.below(mount), v2: mounts.version() == Version::V2 })
    }

    fn read(&self, knob: &str) -> Result<String, CgroupError> {
        match file::read_optional(&self.dir.join(knob), file::KNOB_LIMIT)? {
            Some(text) => Ok(text),
            None if self.dir.is_dir() => {
                Err(CgroupError::NoController { controller: self.controller, path: self.dir.clone() })
            }
            None => Err(CgroupError::NoCgroup { path: self.dir.clone() }),
        }
    }

    /// The number in `knob`; `max` and negative numbers are no limit.
    fn ceiling(&self, knob: &str) -> Result<Ceiling, CgroupError> {
        parse_ceiling(self.read(knob)?.trim()).ok_or_else(|| self.malformed(knob))
    }

    fn malformed(&self, knob: &str) -> CgroupError {
        let reason = "not a number or \"max\"".to_owned();
        CgroupError::Malformed { path: self.dir.join(knob), line: 1, reason }
    }

    fn cpu(&self) -> CpuController {
        CpuController::new(self.dir.clone(), PathBuf::new(), self.v2)
    }

    /// Turns a failed write of the library into ours: its text repeats its cause, and names no directory.
    fn wrote(
        &self,
        knob: &'static str,
        value: impl ToString,
        result: cgroups_rs::fs::error::Result<()>,
    ) -> Result<(), CgroupError> {
        result.map_err(|error| {
            let errno = error.source().and_then(|cause| cause.downcast_ref::<io::Error>()?.raw_os_error());
            let source = match errno {
                Some(errno) => io::Error::from_raw_os_error(errno),
                None => io::Error::other(error.kind().to_string()),
            };
            CgroupError::Write { path: self.dir.join(knob), value: value.to_string(), source }
        })
    }
}

fn parse_ceiling(text: &str) -> Option<Ceiling> {
    if text == "max" || text.strip_prefix('-').is_some_and(|rest| rest.parse::<u64>().is_ok()) {
        return Some(Ceiling::Unlimited);
    }
    text.parse().ok().map(Ceiling::At)
}

fn apply_cpu_v1(knobs: &Knobs, limits: &Limits, written: &mut Vec<&'static str>) -> Result<(), CgroupError> {
    if let Some(shares) = limits.cpu_shares {
        let shares = shares.clamp(*SHARES.start(), *SHARES.end());
        if knobs.ceiling("cpu.shares")? != Ceiling::At(shares) {
            knobs.wrote("cpu.shares", shares, knobs.cpu().set_shares(shares))?;
            written.push("cpu.shares");
        }
    }
    let (quota_knob, period_knob) = ("cpu.cfs_quota_us", "cpu.cfs_period_us");
    let quota = match limits.cpu_quota_us {
        Some(quota) if knobs.ceiling(quota_knob)? != quota => Some(quota.signed()),
        _ => None,
    };
    let period = match limits.cpu_period_us {
        Some(period) if knobs.ceiling(period_knob)? != Ceiling::At(period) => Some(period),
        _ => None,
    };
    let set_period = |period: u64| knobs.wrote(period_knob, period, knobs.cpu().set_cfs_period(period));
    let set_quota = |quota: i64| knobs.wrote(quota_knob, quota, knobs.cpu().set_cfs_quota(quota));
    match (quota, period) {
        (Some(quota), Some(period)) => {
            // The pair must fit the parent's at every moment; one of the two orders does.
            match set_period(period) {
                Err(CgroupError::Write { source, .. }) if file::has_errno(&source, Errno::INVAL) => {
                    set_quota(quota)?;
                    set_period(period)?;
                    written.extend([quota_knob, period_knob]);
                }
                Err(error) => return Err(error),
                Ok(()) => {
                    set_quota(quota)?;
                    written.extend([period_knob, quota_knob]);
                }
            }
        }
        (Some(quota), None) => {
            set_quota(quota)?;
            written.push(quota_knob);
        }
        (None, Some(period)) => {
            set_period(period)?;
            written.push(period_knob);
        }
        (None, None) => {}
    }
    Ok(())
}

fn apply_cpu_v2(knobs: &Knobs, limits: &Limits, written: &mut Vec<&'static str>) -> Result<(), CgroupError> {
    if let Some(shares) = limits.cpu_shares {
        let weight = weight_of_shares(shares);
        if knobs.ceiling("cpu.weight")? != Ceiling::At(weight) {
            knobs.wrote("cpu.weight", weight, knobs.cpu().set_shares(weight))?;
            written.push("cpu.weight");
        }
    }
    if limits.cpu_quota_us.is_none() && limits.cpu_period_us.is_none() {
        return Ok(());
    }
    let now = parse_cpu_max(&knobs.read("cpu.max")?).ok_or_else(|| knobs.malformed("cpu.max"))?;
    let wanted = (limits.cpu_quota_us.unwrap_or(now.0), limits.cpu_period_us.unwrap_or(now.1));
    if wanted != now {
        let (quota, period) = (wanted.0.signed(), wanted.1);
        let result = knobs.cpu().set_cfs_quota_and_period(Some(quota), Some(period));
        knobs.wrote("cpu.max", format!("{quota} {period}"), result)?;
        written.push("cpu.max");
    }
    Ok(())
}

/// `$QUOTA $PERIOD` of `cpu.max`, in microseconds.
pub(crate) fn parse_cpu_max(text: &str) -> Option<(Ceiling, u64)> {
    let mut words = text.split_whitespace();
    let quota = parse_ceiling(words.next()?)?;
    let period = match words.next() {
        Some(period) => period.parse().ok()?,
        None => DEFAULT_PERIOD_US,
    };
    words.next().is_none().then_some((quota, period))
}

fn apply_memory(knobs: &Knobs, ceiling: Ceiling, written: &mut Vec<&'static str>) -> Result<(), CgroupError> {
    let knob = if knobs.v2 { "memory.max" } else { "memory.limit_in_bytes" };
    if in_pages(knobs.ceiling(knob)?) != in_pages(ceiling) {
        let memory = MemController::new(knobs.dir.clone(), PathBuf::new(), knobs.v2);
        knobs.wrote(knob, ceiling.signed(), memory.set_limit(ceiling.signed()))?;
        written.push(knob);
    }
    Ok(())
}

/// cgroups-rs knows neither file. What cannot be protected is told as `max`.
fn apply_protection(
    knobs: &Knobs,
    knob: &'static str,
    bytes: u64,
    written: &mut Vec<&'static str>,
) -> Result<(), CgroupError> {
    if in_pages(knobs.ceiling(knob)?) != in_pages(Ceiling::At(bytes)) {
        file::write(&knobs.dir.join(knob), &bytes.to_string())?;
        written.push(knob);
    }
    Ok(())
}

/// cgroups-rs finds sizes by looking at this machine, which is not always the one of `knobs`.
fn apply_huge_pages(
    knobs: &Knobs,
    limits: &BTreeMap<String, u64>,
    written: &mut Vec<&'static str>,
) -> Result<(), CgroupError> {
    let ending = if knobs.v2 { "max" } else { "limit_in_bytes" };
    for (size, bytes) in limits {
        let path = knobs.dir.join(format!("hugetlb.{size}.{ending}"));
        let Some(text) = file::read_optional(&path, file::KNOB_LIMIT)? else { continue };
        if parse_ceiling(text.trim()) != Some(Ceiling::At(*bytes)) {
            file::write(&path, &bytes.to_string())?;
            written.push("hugetlb");
        }
    }
    Ok(())
}

/// What the kernel keeps of a memory limit.
fn in_pages(ceiling: Ceiling) -> Ceiling {
    match ceiling {
        Ceiling::At(bytes) if bytes < V1_UNLIMITED => Ceiling::At(bytes / PAGE),
        Ceiling::At(_) | Ceiling::Unlimited => Ceiling::Unlimited,
    }
}

fn apply_pids(knobs: &Knobs, ceiling: Ceiling, written: &mut Vec<&'static str>) -> Result<(), CgroupError> {
    if knobs.ceiling("pids.max")? != ceiling {
        let pids = PidController::new(knobs.dir.clone(), PathBuf::new(), knobs.v2);
        let value = match ceiling.signed() {
            -1 => MaxValue::Max,
            value => MaxValue::Value(value),
        };
        knobs.wrote("pids.max", value, pids.set_pid_max(value))?;
        written.push("pids.max");
    }
    Ok(())
}

#[cfg(test)]
mod tests;
