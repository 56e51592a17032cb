//! CPU and memory of the node's processes and of its runtime, from /proc.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Context;
use bulkhead_e2e::real_node::RealNode;
use procfs::process::Process;
use serde::Serialize;

/// The private runtime, which is started by the launcher and no process of ours.
pub const CONTAINERD: &str = "containerd";

/// Processes that are looked at, by name.
pub struct Watched(BTreeMap<String, i32>);

/// Seconds of CPU by process.
#[derive(Clone, Debug, Serialize)]
pub struct Cpu(pub BTreeMap<String, f64>);

/// Memory of one process in KiB.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Memory {
    /// Proportional set size: shared pages shared out.
    pub pss_kib: u64,
    /// Unique set size: what would be free without it.
    pub uss_kib: u64,
}

impl Watched {
    /// The processes of a node and its containerd.
    pub fn of(node: &RealNode) -> anyhow::Result<Self> {
        let mut all = BTreeMap::new();
        for (name, (pid, _)) in node.processes() {
            all.insert(name, i32::try_from(pid)?);
        }
        if let Some(runtime) = node.runtime_pid() {
            all.insert(CONTAINERD.to_owned(), i32::try_from(runtime)?);
        }
        Ok(Self(all))
    }

    /// One process and a node's containerd.
    pub fn one(name: &str, pid: i32, node: &RealNode) -> anyhow::Result<Self> {
        let runtime = node.runtime_pid().context("no containerd")?;
        let all = [(name.to_owned(), pid), (CONTAINERD.to_owned(), i32::try_from(runtime)?)];
        Ok(Self(all.into()))
    }

    /// CPU used since each one's start.
    pub fn cpu(&self) -> anyhow::Result<Cpu> {
        let tick = u32::try_from(procfs::ticks_per_second())?;
        let used = |pid: i32| -> anyhow::Result<f64> {
            let stat = Process::new(pid)?.stat()?;
            Ok(f64::from(u32::try_from(stat.utime + stat.stime)?) / f64::from(tick))
        };
        let all = self.0.iter().map(|(name, pid)| Ok((name.clone(), used(*pid)?)));
        all.collect::<anyhow::Result<_>>().map(Cpu)
    }

    /// Memory now. containerd's is left out: its shims would have to be counted with it.
    pub fn memory(&self) -> anyhow::Result<BTreeMap<String, Memory>> {
        let ours = self.0.iter().filter(|(name, _)| *name != CONTAINERD);
        ours.map(|(name, pid)| {
            let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
            Ok((name.clone(), Memory::parse(&text)))
        })
        .collect()
    }
}

impl Cpu {
    /// What was used since `before`.
    pub fn since(&self, before: &Self) -> Self {
        let earlier = |name| before.0.get(name).copied().unwrap_or(0.0);
        Self(self.0.iter().map(|(name, used)| (name.clone(), used - earlier(name))).collect())
    }

    /// Share of one CPU over `time`.
    pub fn per_second(&self, time: Duration) -> Self {
        let seconds = time.as_secs_f64().max(f64::MIN_POSITIVE);
        Self(self.0.iter().map(|(name, used)| (name.clone(), used / seconds)).collect())
    }

    /// All processes but the runtime.
    pub fn ours(&self) -> f64 {
        self.0.iter().filter(|(name, _)| *name != CONTAINERD).map(|(_, used)| used).sum()
    }

    /// The runtime.
    pub fn runtime(&self) -> f64 {
        self.0.get(CONTAINERD).copied().unwrap_or(0.0)
    }
}

impl Memory {
    fn parse(rollup: &str) -> Self {
        let field = |wanted: &str| -> u64 {
            let value = rollup.lines().find_map(|line| line.strip_prefix(wanted)?.strip_prefix(':'));
            let number = value.and_then(|value| value.trim().strip_suffix("kB"));
            number.and_then(|number| number.trim().parse().ok()).unwrap_or(0)
        };
        Self { pss_kib: field("Pss"), uss_kib: field("Private_Clean") + field("Private_Dirty") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rollup_is_read() {
        let text = "00-ff ---p 0 00:00 0 [rollup]\nRss: 90 kB\nPss:      12 kB\nPss_Dirty:  3 kB\nPrivate_Clean: 4 kB\nPrivate_Dirty:  5 kB\n";
        let memory = Memory::parse(text);
        assert_eq!((memory.pss_kib, memory.uss_kib), (12, 9));
    }

    #[test]
    fn the_runtime_is_not_ours() {
        let cpu =
            |own, runtime| Cpu(BTreeMap::from([("pleg".to_owned(), own), (CONTAINERD.to_owned(), runtime)]));
        let used = cpu(3.0, 10.0).since(&cpu(1.0, 4.0)).per_second(Duration::from_secs(2));
        assert_eq!((used.ours(), used.runtime()), (1.0, 3.0));
    }
}
