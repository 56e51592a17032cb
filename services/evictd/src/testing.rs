//! Fixtures of tests.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bulkhead_api::common::v1::Part;
use bulkhead_api::syncd::v1::StatsView;
use bulkhead_cgroup::{CgroupPath, Layout, Version};
use bulkhead_ipc::{Mirror, Update};
use bulkhead_model::runtime::{Container, ContainerState, RuntimePod};
use bulkhead_testkit::peers;
use jiff::Timestamp;

use crate::collect::Pods;
use crate::plan::Plan;

/// A path that is known to be good.
pub(crate) fn path(text: &str) -> CgroupPath {
    CgroupPath::parse(text).unwrap()
}

/// So many seconds after 1970.
pub(crate) fn second(seconds: i64) -> Timestamp {
    Timestamp::from_second(seconds).unwrap()
}

/// A pod as syncd tells it.
pub(crate) fn view(uid: &str, cgroup: &str) -> StatsView {
    StatsView {
        uid: uid.to_owned(),
        name: format!("name-{uid}"),
        namespace: "default".to_owned(),
        cgroup: cgroup.to_owned(),
        ..StatsView::default()
    }
}

/// A pod with a sandbox that was made `made` seconds after 1970, without containers.
pub(crate) fn runtime_pod(uid: &str, made: i64) -> RuntimePod {
    let sandbox = peers::sandbox(&format!("sandbox-{uid}"), second(made), &[]);
    peers::runtime_pod(uid, uid, sandbox, vec![])
}

/// A container made at second 10, started at second 20.
pub(crate) fn container(name: &str, id: &str, state: ContainerState) -> Container {
    Container { created_at: second(10), ..peers::container(id, name, state, second(20)) }
}

/// A plan of these pods beneath the root.
pub(crate) fn plan(pods: &[(StatsView, RuntimePod)]) -> Plan {
    let views = pods.iter().map(|(view, _)| (view.uid.clone(), Arc::new(view.clone()))).collect();
    let pods = pods.iter().map(|(_, pod)| (pod.uid.clone(), Arc::new(pod.clone()))).collect();
    Plan::new(&Layout::new(CgroupPath::root()), views, &pods)
}

/// Mirrors without streams.
pub(crate) fn detached() -> Pods {
    Pods { views: Mirror::detached(), running: Mirror::detached() }
}

/// Gives mirrors their whole state.
pub(crate) fn sync(pods: &Pods, views: &[StatsView], running: &[RuntimePod]) {
    pods.views.apply(whole(views.iter().map(|view| (view.uid.clone(), view.clone())).collect()));
    pods.running.apply(whole(running.iter().map(|pod| (pod.uid.clone(), pod.clone())).collect()));
}

fn whole<V>(upserts: Vec<(String, V)>) -> Update<String, V> {
    Update { epoch: "e".to_owned(), generation: 1, part: Part::SnapshotEnd, upserts, removed: vec![] }
}

/// A folder that looks like /proc.
pub(crate) struct ProcFixture(tempfile::TempDir);

impl ProcFixture {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        write_proc(dir.path());
        Self(dir)
    }

    pub(crate) fn dir(&self) -> &Path {
        self.0.path()
    }
}

fn write_proc(dir: &Path) {
    let files = [
        (
            "stat",
            "cpu  100 10 50 9000 40 3 7 5 20 0\ncpu0 100 10 50 9000 40 3 7 5 20 0\nintr 5 0 0\nctxt 9\nbtime 1796051663\nprocesses 99\n",
        ),
        ("meminfo", include_str!("testing/meminfo")),
        ("loadavg", "1.96 1.77 1.81 2/287 17434\n"),
        ("sys/kernel/pid_max", "32768\n"),
        ("sys/kernel/threads-max", "192729\n"),
    ];
    fs::create_dir_all(dir.join("sys/kernel")).unwrap();
    for (name, content) in files {
        fs::write(dir.join(name), content).unwrap();
    }
}

/// A machine in a folder: /proc, and cgroup hierarchies that its mountinfo names.
pub(crate) struct CgroupFixture {
    dir: tempfile::TempDir,
    version: Version,
}

impl CgroupFixture {
    pub(crate) fn new(version: Version) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (proc, cgroup) = (dir.path().join("proc"), dir.path().join("cgroup"));
        fs::create_dir_all(proc.join("self")).unwrap();
        write_proc(&proc);
        let mounts: Vec<String> = match version {
            Version::V2 => vec![format!("30 1 0:26 / {} rw - cgroup2 cgroup2 rw\n", cgroup.display())],
            Version::V1 => (31..)
                .zip(["cpuacct", "memory", "pids"])
                .map(|(id, name)| {
                    format!("{id} 1 0:{id} / {}/{name} rw - cgroup cgroup rw,{name}\n", cgroup.display())
                })
                .collect(),
        };
        fs::write(proc.join("self/mountinfo"), mounts.concat()).unwrap();
        Self { dir, version }
    }

    pub(crate) fn proc_dir(&self) -> PathBuf {
        self.dir.path().join("proc")
    }

    /// Makes a cgroup, or changes its figures: processor seconds used, and the memory limit.
    pub(crate) fn cgroup(&self, cgroup: &str, cpu_seconds: u64, limit: Option<u64>) {
        let write = |controller, file, text: &str| self.write(controller, cgroup, file, text);
        match self.version {
            Version::V1 => {
                write("cpuacct", "cpuacct.usage", &format!("{}\n", cpu_seconds * 1_000_000_000));
                write("memory", "memory.usage_in_bytes", "5000\n");
                let stat = "total_rss 3000\ntotal_pgfault 11\ntotal_pgmajfault 2\ntotal_inactive_file 1000\n";
                write("memory", "memory.stat", stat);
                let limit = limit.unwrap_or(9_223_372_036_854_771_712);
                write("memory", "memory.limit_in_bytes", &format!("{limit}\n"));
            }
            Version::V2 => {
                write("cpu", "cpu.stat", &format!("usage_usec {}\n", cpu_seconds * 1_000_000));
                write("memory", "memory.current", "5000\n");
                write("memory", "memory.stat", "anon 3000\ninactive_file 1000\npgfault 11\npgmajfault 2\n");
                let limit = limit.map_or("max".to_owned(), |limit| limit.to_string());
                write("memory", "memory.max", &format!("{limit}\n"));
            }
        }
        write("pids", "pids.current", "4\n");
    }

    /// Writes one file of a cgroup.
    pub(crate) fn write(&self, controller: &str, cgroup: &str, file: &str, text: &str) {
        let mount = self.dir.path().join("cgroup");
        let mount = if self.version == Version::V1 { mount.join(controller) } else { mount };
        let folder = path(cgroup).below(&mount);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join(file), text).unwrap();
    }
}
