use proptest::prelude::*;

use super::*;
use crate::fixture::{V1, V2, path};

const PSI: &str =
    "some avg10=1.50 avg60=0.25 avg300=0.00 total=12345\nfull avg10=0.50 avg60=0.00 avg300=0.00 total=99\n";

fn v1() -> V1 {
    let v1 = V1::new();
    v1.kernel_makes("/pod");
    v1.write("cpuacct", "/pod", "cpuacct.usage", "332269969878\n");
    v1.write("memory", "/pod", "memory.usage_in_bytes", "1000\n");
    v1.write("memory", "/pod", "memory.limit_in_bytes", "4096\n");
    // The lines of a v1 kernel; those without total_ are of the cgroup alone.
    let stat = "cache 1\nrss 2\npgfault 3\npgmajfault 4\ninactive_file 5\nhierarchical_memory_limit 4096\n\
        total_cache 600\ntotal_rss 70\ntotal_swap 0\ntotal_pgfault 80\ntotal_pgmajfault 9\ntotal_inactive_file 400\n";
    v1.write("memory", "/pod", "memory.stat", stat);
    v1.write("memory", "/pod", "memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n");
    v1.write("pids", "/pod", "pids.current", "5\n");
    v1
}

fn v2() -> V2 {
    let v2 = V2::new();
    v2.kernel_makes("/pod");
    v2.write("/pod", "cpu.stat", "usage_usec 343319625\nuser_usec 1\nsystem_usec 2\n");
    v2.write("/pod", "memory.current", "1000\n");
    v2.write("/pod", "memory.max", "4096\n");
    v2.write("/pod", "memory.swap.current", "11\n");
    v2.write("/pod", "memory.stat", "anon 70\nfile 600\npgfault 80\npgmajfault 9\ninactive_file 400\n");
    v2.write("/pod", "memory.events", "low 0\nhigh 0\nmax 3\noom 1\noom_kill 2\n");
    v2.write("/pod", "pids.current", "5\n");
    for name in ["cpu.pressure", "memory.pressure", "io.pressure"] {
        v2.write("/pod", name, PSI);
    }
    v2
}

fn memory(swap: u64) -> MemoryStats {
    MemoryStats {
        usage: Some(1000),
        working_set: Some(600),
        inactive_file: 400,
        rss: 70,
        swap: Some(swap),
        limit: Some(4096),
        page_faults: 80,
        major_page_faults: 9,
    }
}

#[test]
fn v1_figures_include_what_is_beneath() {
    let expected = CgroupStats {
        cpu_usage_ns: Some(332_269_969_878),
        memory: Some(memory(0)),
        pids: Some(5),
        oom_kills: Some(2),
        pressure: None,
    };
    assert_eq!(read_stats(&v1().mounts(), &path("/pod")).unwrap(), Some(expected));
}

#[test]
fn v2_figures() {
    let pressure = Pressure {
        some: PressureLine { avg10: 1.5, avg60: 0.25, avg300: 0.0, total_us: 12345 },
        full: PressureLine { avg10: 0.5, avg60: 0.0, avg300: 0.0, total_us: 99 },
    };
    let expected = CgroupStats {
        cpu_usage_ns: Some(343_319_625_000),
        memory: Some(memory(11)),
        pids: Some(5),
        oom_kills: Some(2),
        pressure: Some(PressureStats { cpu: pressure, memory: pressure, io: pressure }),
    };
    assert_eq!(read_stats(&v2().mounts(), &path("/pod")).unwrap(), Some(expected));
}

#[test]
fn a_cgroup_that_is_gone_is_none() {
    assert_eq!(read_stats(&v1().mounts(), &path("/gone")).unwrap(), None);
    assert_eq!(read_stats(&v2().mounts(), &path("/gone")).unwrap(), None);
}

#[test]
fn a_hierarchy_that_is_gone_or_absent_takes_only_its_own_figures() {
    let v1 = v1();
    std::fs::remove_dir_all(v1.file("memory", "/pod", "")).unwrap();
    let stats = read_stats(&v1.mounts(), &path("/pod")).unwrap().unwrap();
    assert_eq!((stats.memory, stats.oom_kills, stats.pids), (None, None, Some(5)));

    let Mounts::V1 { mut controllers, unified } = v1.mounts() else { panic!("v1 expected") };
    controllers.remove("pids");
    let mounts = Mounts::V1 { controllers, unified };
    assert_eq!(read_stats(&mounts, &path("/pod")).unwrap().unwrap().pids, None);
}

#[test]
fn no_limit_is_none_and_a_working_set_is_never_negative() {
    let v1 = v1();
    v1.write("memory", "/pod", "memory.limit_in_bytes", "9223372036854771712\n");
    v1.write("memory", "/pod", "memory.usage_in_bytes", "300\n");
    let memory = read_stats(&v1.mounts(), &path("/pod")).unwrap().unwrap().memory.unwrap();
    assert_eq!((memory.limit, memory.working_set), (None, Some(0)));

    let v2 = v2();
    v2.write("/pod", "memory.max", "max\n");
    v2.write("/pod", "memory.current", "300\n");
    let memory = read_stats(&v2.mounts(), &path("/pod")).unwrap().unwrap().memory.unwrap();
    assert_eq!((memory.limit, memory.working_set), (None, Some(0)));
}

#[test]
fn the_root_has_fewer_figures() {
    let v2 = V2::new();
    assert!(matches!(read_root(&v2.mounts()), Err(CgroupError::NoCgroup { .. })), "no figure at all");
    v2.write("/", "cpu.stat", "usage_usec 7\n");
    v2.write("/", "memory.stat", "anon 70\npgfault 80\npgmajfault 9\ninactive_file 400\n");
    let root = read_root(&v2.mounts()).unwrap();
    assert_eq!(root.cpu_usage_ns, Some(7000));
    let memory = root.memory.unwrap();
    assert_eq!((memory.usage, memory.working_set, memory.rss), (None, None, 70));
    assert_eq!((root.pids, root.pressure), (None, None));
}

#[test]
fn what_the_kernel_does_not_write_is_an_error_that_names_the_file() {
    let cases = [
        ("cpu.stat", "usage_usec\n", "line 1"),
        ("cpu.stat", "user_usec 1\n", "usage_usec"),
        ("memory.stat", "file 1\nanon x\ninactive_file 1\n", "line 2"),
        ("memory.stat", "anon 1 2\ninactive_file 1\n", "line 1"),
        ("memory.stat", "anon -1\ninactive_file 1\n", "line 1"),
        ("memory.current", "", "line 1"),
        ("memory.max", "maximum\n", "line 1"),
        ("memory.events", "oom_kill 99999999999999999999\n", "line 1"),
        ("pids.current", "five\n", "line 1"),
        ("io.pressure", "some avg10=nan avg60=0 avg300=0 total=0\n", "line 1"),
        ("io.pressure", "\nsome avg10=1\n", "line 2"),
        ("io.pressure", "full avg10=0 avg60=0 avg300=0 total=0\n", "some"),
    ];
    for (name, text, expected) in cases {
        let v2 = v2();
        v2.write("/pod", name, text);
        let error = read_stats(&v2.mounts(), &path("/pod")).unwrap_err().to_string();
        assert!(error.contains(&format!("/pod/{name}")) && error.contains(expected), "{name}: {error}");
    }
    let v2 = v2();
    v2.write("/pod", "memory.stat", &"x 1\n".repeat(17_000));
    assert!(matches!(read_stats(&v2.mounts(), &path("/pod")), Err(CgroupError::TooLarge { .. })));
}

#[test]
fn lines_that_later_kernels_add_do_not_matter() {
    let v2 = v2();
    let before = read_stats(&v2.mounts(), &path("/pod")).unwrap();
    v2.write("/pod", "cpu.pressure", &format!("new a=1\nodd\n{PSI}"));
    v2.write("/pod", "cpu.stat", "nested: a b c\nusage_usec_x 1\n\nusage_usec 343319625\n");
    assert_eq!(read_stats(&v2.mounts(), &path("/pod")).unwrap(), before);
}

proptest! {
    #[test]
    fn any_file_is_read_without_panic(text in "((some|full|usage_usec) [a-z0-9=. -]{0,40}\n){0,4}|.{0,60}") {
        crate::fuzz::kernel_files(&text);
    }

    #[test]
    fn values_come_back(value in any::<u64>(), share in 0u32..10_000) {
        let keyed = Keyed { path: "x".into(), text: format!("a 1\nkey {value}\n") };
        prop_assert_eq!(keyed.need("key").unwrap(), value);
        let shown = format!("{}.{:02}", share / 100, share % 100);
        let line = parse_pressure_line(&format!("avg10={shown} avg60=0.00 avg300=0.00 total={value}")).unwrap();
        prop_assert_eq!(line.total_us, value);
        prop_assert_eq!(line.avg10, f64::from(share) / 100.0);
    }
}

#[test]
fn pressure_on_the_machine_is_read_from_proc() {
    let proc = tempfile::tempdir().unwrap();
    assert_eq!(read_machine_pressure(proc.path()).unwrap(), None);
    std::fs::create_dir(proc.path().join("pressure")).unwrap();
    for name in ["cpu", "memory", "io"] {
        std::fs::write(proc.path().join("pressure").join(name), PSI).unwrap();
    }
    let pressure = read_machine_pressure(proc.path()).unwrap().unwrap();
    assert_eq!((pressure.io.some.total_us, pressure.cpu.full.avg10), (12345, 0.5));
}
