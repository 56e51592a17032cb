use bulkhead_base::SystemClock;
use bulkhead_cgroup::Version;

use super::*;
use crate::testing::{CgroupFixture, path};

fn read(fixture: &CgroupFixture, paths: &[&str]) -> Readings {
    let machine = Machine::new(fixture.proc_dir(), Arc::new(SystemClock));
    let paths = paths.iter().map(|text| path(text)).collect();
    machine.read(&path("/kubepods"), &paths).unwrap()
}

#[test]
fn both_versions_are_read() {
    for version in [Version::V1, Version::V2] {
        let fixture = CgroupFixture::new(version);
        fixture.cgroup("/kubepods", 9, None);
        fixture.cgroup("/kubepods/podu1", 7, Some(1 << 20));
        let readings = read(&fixture, &["/", "/kubepods", "/kubepods/podu1", "/kubepods/podgone"]);
        assert_eq!(readings.problems, Problems::default(), "{version:?}");
        assert_eq!(readings.proc.tasks, 287);
        assert!(readings.system[0].2.unwrap() > 0);
        let pod = &readings.cgroups[&path("/kubepods/podu1")];
        assert_eq!(pod.stats.cpu_usage_ns, Some(7_000_000_000), "{version:?}");
        let memory = pod.stats.memory.as_ref().unwrap();
        assert_eq!((memory.usage, memory.working_set, memory.limit), (Some(5000), Some(4000), Some(1 << 20)));
        assert_eq!((memory.rss, memory.page_faults, memory.major_page_faults), (3000, 11, 2));
        assert_eq!(pod.stats.pids, Some(4));
        assert!(pod.at.unix_nano >= readings.at.unix_nano && pod.at.instant >= readings.at.instant);
        assert!(!readings.cgroups.contains_key(&path("/kubepods/podgone")), "{version:?}");
    }
}

#[test]
fn a_malformed_file_spoils_its_own_cgroup_alone() {
    for version in [Version::V1, Version::V2] {
        let fixture = CgroupFixture::new(version);
        fixture.cgroup("/kubepods/podu1", 7, None);
        fixture.cgroup("/kubepods/podu2", 7, None);
        fixture.write("memory", "/kubepods/podu1", "memory.stat", "anon many\ntotal_rss many\n");
        let readings = read(&fixture, &["/kubepods/podu1", "/kubepods/podu2"]);
        let left: Vec<_> = readings.cgroups.keys().cloned().collect();
        assert_eq!(left, [path("/kubepods/podu2")], "{version:?}");
        let problem = readings.problems.summary().unwrap();
        assert!(problem.contains("podu1/memory.stat"), "{problem}");
    }
}

#[test]
fn cgroups_that_cannot_be_found_are_looked_for_again() {
    let fixture = CgroupFixture::new(Version::V2);
    let mountinfo = fixture.proc_dir().join("self/mountinfo");
    let content = std::fs::read_to_string(&mountinfo).unwrap();
    std::fs::write(&mountinfo, "").unwrap();
    let machine = Machine::new(fixture.proc_dir(), Arc::new(SystemClock));
    let error = machine.read(&path("/kubepods"), &BTreeSet::new()).unwrap_err();
    assert!(chain(&error).to_string().contains("no cgroup file system is mounted"), "{}", chain(&error));
    std::fs::write(&mountinfo, content).unwrap();
    machine.read(&path("/kubepods"), &BTreeSet::new()).unwrap();
}

#[test]
fn this_machine_is_read() {
    let machine = Machine::new("/proc".into(), Arc::new(SystemClock));
    let readings = machine.read(&path("/kubepods"), &BTreeSet::from([CgroupPath::root()])).unwrap();
    let root = &readings.cgroups[&CgroupPath::root()].stats;
    assert!(root.cpu_usage_ns.is_some_and(|used| used > 0), "{root:?}");
    assert!(readings.proc.memory_total > 0);
}
