//! Which machine it is: figures without it say nothing.

use serde::Serialize;

/// A machine.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    /// Model of the CPU.
    pub cpu: String,
    /// CPUs.
    pub cores: usize,
    /// Memory in MiB.
    pub memory_mib: u64,
    /// Release of the kernel.
    pub kernel: String,
    /// Version of the cgroup tree.
    pub cgroups: &'static str,
    /// Day of the run.
    pub date: String,
}

impl Machine {
    /// In one line, without the day.
    pub fn name(&self) -> String {
        format!(
            "{}, {} cores, {} MiB, Linux {}, cgroups {}",
            self.cpu, self.cores, self.memory_mib, self.kernel, self.cgroups
        )
    }

    /// The one that this runs on.
    pub fn this() -> Self {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let value = |text: &str, name: &str| {
            let line = text.lines().find(|line| line.starts_with(name));
            let value = line.and_then(|line| line.split_once(':')).map(|(_, value)| value.trim().to_owned());
            value.unwrap_or_else(|| "unknown".to_owned())
        };
        let kib = value(&read("/proc/meminfo"), "MemTotal").trim_end_matches("kB").trim().parse::<u64>();
        let unified = std::path::Path::new("/sys/fs/cgroup/cgroup.controllers").exists();
        Self {
            cpu: value(&read("/proc/cpuinfo"), "model name"),
            cores: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            memory_mib: kib.unwrap_or(0) / 1024,
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            cgroups: if unified { "v2" } else { "v1" },
            date: bulkhead_base::Clock::now(&bulkhead_base::SystemClock).strftime("%Y-%m-%d").to_string(),
        }
    }
}
