//! The cgroups of the node's own parts, as the Summary API names them: `kubelet`, the node agent; `runtime`, the container
//! runtime. Blocks for some small reads of /proc. Must never take a cgroup that holds the whole machine for one of a part.

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use bulkhead_cgroup::CgroupPath;
use tokio::time::Instant;

/// Names of runtimes' processes.
const RUNTIMES: [&str; 2] = ["containerd", "crio"];
/// The slice that holds every process of the node agent under systemd.
const SLICE: &str = "bulkhead.slice";
/// How often a runtime that was not found is looked for.
const LOOK: Duration = Duration::from_secs(300);
/// Processes that are looked at.
const PROCESSES: usize = 32 * 1024;

/// Finds them.
pub(crate) struct SystemCgroups {
    proc_dir: PathBuf,
    /// `kubeletCgroups`, if it is set.
    agent: Option<CgroupPath>,
    /// `systemCgroups`, if it is set.
    others: Option<CgroupPath>,
    runtime: Mutex<Runtime>,
}

#[derive(Default)]
struct Runtime {
    pid: Option<u32>,
    looked: Option<Instant>,
}

impl SystemCgroups {
    /// With the proc file system at `proc_dir`.
    pub(crate) fn new(proc_dir: &Path) -> Self {
        Self { proc_dir: proc_dir.to_owned(), agent: None, others: None, runtime: Mutex::default() }
    }

    /// With what the configuration says of them.
    pub(crate) fn configured(self, agent: Option<CgroupPath>, others: Option<CgroupPath>) -> Self {
        Self { agent, others, ..self }
    }

    /// Those that there are, by name.
    pub(crate) fn find(&self) -> Vec<(&'static str, CgroupPath)> {
        let agent = self.agent.clone().or_else(|| self.cgroup_of("self").map(whole_agent));
        let runtime = self.runtime().and_then(|pid| self.cgroup_of(&pid.to_string()));
        let found = [("kubelet", agent), ("runtime", runtime), ("misc", self.others.clone())];
        found.into_iter().filter_map(|(name, path)| Some((name, path?))).collect()
    }

    /// Of a process; `None` for the root, which holds the whole machine.
    fn cgroup_of(&self, process: &str) -> Option<CgroupPath> {
        let text = std::fs::read_to_string(self.proc_dir.join(process).join("cgroup")).ok()?;
        let path = CgroupPath::parse(cgroup(&text)?).ok()?;
        (path != CgroupPath::root()).then_some(path)
    }

    fn runtime(&self) -> Option<u32> {
        let mut known = self.runtime.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        known.pid = known.pid.filter(|pid| self.is_runtime(*pid));
        if known.pid.is_none() && known.looked.is_none_or(|at| at.elapsed() >= LOOK) {
            known.looked = Some(Instant::now());
            let entries = std::fs::read_dir(&self.proc_dir).into_iter().flatten().flatten().take(PROCESSES);
            let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
            known.pid = pids.into_iter().find(|pid| self.is_runtime(*pid));
        }
        known.pid
    }

    fn is_runtime(&self, pid: u32) -> bool {
        let name = std::fs::read_to_string(self.proc_dir.join(pid.to_string()).join("comm"));
        name.is_ok_and(|name| RUNTIMES.contains(&name.trim_end()))
    }
}

/// The cgroup in the text of `/proc/PID/cgroup`: that of v2, or on v1 the one that processor time and memory agree on.
fn cgroup(text: &str) -> Option<&str> {
    let of = |controller: &str| {
        let lines = text.lines().filter_map(|line| line.split_once(':')?.1.split_once(':'));
        lines
            .into_iter()
            .find(|(names, _)| names.split(',').any(|name| name == controller))
            .map(|(_, path)| path)
    };
    match (of("cpuacct"), of("memory")) {
        (Some(cpu), Some(memory)) => (cpu == memory).then_some(cpu),
        (None, None) => of(""),
        _ => None,
    }
}

/// All processes of the agent are in one slice under systemd, each in a cgroup of its own in it.
fn whole_agent(own: CgroupPath) -> CgroupPath {
    let text = own.to_string();
    let slice = text.find(SLICE).and_then(|at| text.get(..at.saturating_add(SLICE.len())));
    slice.and_then(|slice| CgroupPath::parse(slice).ok()).unwrap_or(own)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::testing::path;

    #[test]
    fn the_cgroup_is_the_one_that_processor_time_and_memory_agree_on() {
        let table = [
            ("0::/system.slice/x.service\n", Some("/system.slice/x.service")),
            ("4:memory:/a\n2:cpu,cpuacct:/a\n0::/\n", Some("/a")),
            ("4:memory:/a\n2:cpu,cpuacct:/\n0::/b\n", None),
            ("4:memory:/a\n0::/b\n", None),
            ("", None),
            ("odd\n0:x\n", None),
        ];
        for (text, wanted) in table {
            assert_eq!(cgroup(text), wanted, "{text:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_agent_is_its_whole_slice_and_a_runtime_is_looked_for_now_and_then() {
        let proc = tempfile::tempdir().unwrap();
        let write = |file: &str, text: &str| {
            let path = proc.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("self/cgroup", "0::/bulkhead.slice/bulkhead-evictd.service\n");
        let system = SystemCgroups::new(proc.path());
        assert_eq!(system.find(), [("kubelet", path("/bulkhead.slice"))]);
        write("7/comm", "containerd\n");
        write("7/cgroup", "0::/system.slice/containerd.service\n");
        write("8/comm", "containerd-shim\n");
        assert_eq!(system.find().len(), 1, "looked for a moment ago");
        tokio::time::advance(LOOK).await;
        assert_eq!(system.find()[1], ("runtime", path("/system.slice/containerd.service")));
        write("7/comm", "sh\n");
        write("self/cgroup", "0::/\n");
        assert!(system.find().is_empty(), "another process by now, and the root is nobody's");
        let system = SystemCgroups::new(proc.path()).configured(Some(path("/agent")), Some(path("/misc")));
        assert_eq!(system.find(), [("kubelet", path("/agent")), ("misc", path("/misc"))]);
    }
}
