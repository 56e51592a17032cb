//! Directory trees that look like a v1 or v2 hierarchy, for tests on machines that have the other one.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::{CgroupPath, Mounts};

const V1_KNOBS: [(&str, &[(&str, &str)]); 7] = [
    ("cpu", &[("cpu.shares", "1024\n"), ("cpu.cfs_quota_us", "-1\n"), ("cpu.cfs_period_us", "100000\n")]),
    ("cpuacct", &[("cpuacct.usage", "0\n")]),
    ("cpuset", &[("cpuset.cpus", "\n"), ("cpuset.mems", "\n")]),
    ("hugetlb", &[("hugetlb.2MB.limit_in_bytes", "9223372036854771712\n")]),
    ("memory", &[("memory.limit_in_bytes", "9223372036854771712\n")]),
    ("name=systemd", &[]),
    ("pids", &[("pids.max", "max\n"), ("pids.current", "0\n")]),
];

const V2_KNOBS: [(&str, &str); 12] = [
    ("cgroup.controllers", ""),
    ("cgroup.kill", ""),
    ("cgroup.procs", ""),
    ("cgroup.subtree_control", ""),
    ("cpu.max", "max 100000\n"),
    ("cpu.weight", "100\n"),
    ("hugetlb.2MB.max", "max\n"),
    ("memory.low", "0\n"),
    ("memory.max", "max\n"),
    ("memory.min", "0\n"),
    ("pids.max", "max\n"),
    ("cpu.stat", "usage_usec 0\n"),
];

/// Parses a path that is known to be good.
pub(crate) fn path(text: &str) -> CgroupPath {
    CgroupPath::parse(text).unwrap()
}

/// A hybrid machine: seven v1 hierarchies and a unified one.
pub(crate) struct V1 {
    dir: TempDir,
}

impl V1 {
    pub(crate) fn new() -> Self {
        let fixture = Self { dir: tempfile::tempdir().unwrap() };
        for mount in fixture.mounts().hierarchies() {
            fs::create_dir_all(mount).unwrap();
        }
        fixture.write("cpuset", "/", "cpuset.cpus", "0-1\n");
        fixture.write("cpuset", "/", "cpuset.mems", "0\n");
        fixture
    }

    pub(crate) fn mounts(&self) -> Mounts {
        let controllers: BTreeMap<String, PathBuf> = V1_KNOBS
            .iter()
            .map(|(name, _)| ((*name).to_owned(), self.dir.path().join(name.trim_start_matches("name="))))
            .collect();
        Mounts::V1 { controllers, unified: Some(self.dir.path().join("unified")) }
    }

    /// Does what the kernel does when a cgroup is made: its files appear.
    pub(crate) fn kernel_makes(&self, cgroup: &str) {
        for mount in self.mounts().hierarchies() {
            let dir = path(cgroup).below(mount);
            fs::create_dir_all(&dir).unwrap();
            fs::write(dir.join("cgroup.procs"), "").unwrap();
        }
        for (controller, knobs) in V1_KNOBS {
            for (knob, value) in knobs {
                self.write(controller, cgroup, knob, value);
            }
        }
    }

    pub(crate) fn write(&self, controller: &str, cgroup: &str, knob: &str, text: &str) {
        fs::write(self.file(controller, cgroup, knob), text).unwrap();
    }

    pub(crate) fn read(&self, controller: &str, cgroup: &str, knob: &str) -> String {
        fs::read_to_string(self.file(controller, cgroup, knob)).unwrap()
    }

    pub(crate) fn file(&self, controller: &str, cgroup: &str, knob: &str) -> PathBuf {
        let mounts = self.mounts();
        path(cgroup).below(mounts.controller(controller).unwrap()).join(knob)
    }
}

/// A machine with the unified hierarchy.
pub(crate) struct V2 {
    dir: TempDir,
}

impl V2 {
    pub(crate) fn new() -> Self {
        let fixture = Self { dir: tempfile::tempdir().unwrap() };
        fixture.write("/", "cgroup.controllers", "");
        fixture.write("/", "cgroup.subtree_control", "");
        fixture
    }

    pub(crate) fn mounts(&self) -> Mounts {
        Mounts::V2 { mountpoint: self.dir.path().to_owned() }
    }

    /// Does what the kernel does when a cgroup is made: its files appear.
    pub(crate) fn kernel_makes(&self, cgroup: &str) {
        fs::create_dir_all(self.file(cgroup, "")).unwrap();
        for (knob, value) in V2_KNOBS {
            self.write(cgroup, knob, value);
        }
    }

    pub(crate) fn write(&self, cgroup: &str, knob: &str, text: &str) {
        fs::write(self.file(cgroup, knob), text).unwrap();
    }

    pub(crate) fn read(&self, cgroup: &str, knob: &str) -> String {
        fs::read_to_string(self.file(cgroup, knob)).unwrap()
    }

    pub(crate) fn delete(&self, cgroup: &str, knob: &str) {
        fs::remove_file(self.file(cgroup, knob)).unwrap();
    }

    pub(crate) fn file(&self, cgroup: &str, knob: &str) -> PathBuf {
        path(cgroup).below(Path::new(self.dir.path())).join(knob)
    }
}
