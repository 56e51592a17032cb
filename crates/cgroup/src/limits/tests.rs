use proptest::prelude::*;

use super::*;
use crate::fixture::{V1, V2, path};

fn all() -> Limits {
    Limits {
        cpu_shares: Some(512),
        cpu_quota_us: Some(Ceiling::At(50_000)),
        cpu_period_us: Some(20_000),
        memory_limit_bytes: Some(Ceiling::At(100 * 1024 * 1024 + 17)),
        pids_max: Some(Ceiling::At(64)),
        ..Limits::default()
    }
}

#[test]
fn v1_writes_what_differs_and_only_that() {
    let v1 = V1::new();
    v1.kernel_makes("/kubepods");
    let (mounts, top) = (v1.mounts(), path("/kubepods"));
    let written = apply(&mounts, &top, &all()).unwrap();
    assert_eq!(
        written,
        ["cpu.shares", "cpu.cfs_period_us", "cpu.cfs_quota_us", "memory.limit_in_bytes", "pids.max"]
    );
    assert_eq!(v1.read("cpu", "/kubepods", "cpu.shares"), "512");
    assert_eq!(v1.read("cpu", "/kubepods", "cpu.cfs_quota_us"), "50000");
    assert_eq!(v1.read("cpu", "/kubepods", "cpu.cfs_period_us"), "20000");
    assert_eq!(v1.read("memory", "/kubepods", "memory.limit_in_bytes"), "104857617");
    assert_eq!(v1.read("pids", "/kubepods", "pids.max"), "64");
    // The kernel keeps whole pages.
    v1.write("memory", "/kubepods", "memory.limit_in_bytes", "104857600\n");
    assert!(apply(&mounts, &top, &all()).unwrap().is_empty());
    assert!(apply(&mounts, &top, &Limits::default()).unwrap().is_empty());

    let lifted = Limits {
        cpu_quota_us: Some(Ceiling::Unlimited),
        memory_limit_bytes: Some(Ceiling::Unlimited),
        pids_max: Some(Ceiling::Unlimited),
        ..Limits::default()
    };
    let written = apply(&mounts, &top, &lifted).unwrap();
    assert_eq!(written, ["cpu.cfs_quota_us", "memory.limit_in_bytes", "pids.max"]);
    assert_eq!(v1.read("memory", "/kubepods", "memory.limit_in_bytes"), "-1");
    assert_eq!(v1.read("pids", "/kubepods", "pids.max"), "max");
    v1.write("memory", "/kubepods", "memory.limit_in_bytes", "9223372036854771712\n");
    assert!(apply(&mounts, &top, &lifted).unwrap().is_empty());
}

#[test]
fn v2_writes_what_differs_and_only_that() {
    let v2 = V2::new();
    v2.kernel_makes("/kubepods");
    let (mounts, top) = (v2.mounts(), path("/kubepods"));
    let written = apply(&mounts, &top, &all()).unwrap();
    assert_eq!(written, ["cpu.weight", "cpu.max", "memory.max", "pids.max"]);
    assert_eq!(v2.read("/kubepods", "cpu.weight"), "20");
    assert_eq!(v2.read("/kubepods", "cpu.max"), "50000 20000");
    assert_eq!(v2.read("/kubepods", "memory.max"), "104857617");
    assert!(apply(&mounts, &top, &all()).unwrap().is_empty());

    let period = Limits { cpu_period_us: Some(100_000), ..Limits::default() };
    assert_eq!(apply(&mounts, &top, &period).unwrap(), ["cpu.max"]);
    assert_eq!(v2.read("/kubepods", "cpu.max"), "50000 100000", "the quota stays");

    let lifted = Limits {
        cpu_quota_us: Some(Ceiling::Unlimited),
        memory_limit_bytes: Some(Ceiling::Unlimited),
        ..Limits::default()
    };
    assert_eq!(apply(&mounts, &top, &lifted).unwrap(), ["cpu.max", "memory.max"]);
    assert_eq!(v2.read("/kubepods", "cpu.max"), "max 100000");
    assert_eq!(v2.read("/kubepods", "memory.max"), "max");
    assert!(apply(&mounts, &top, &lifted).unwrap().is_empty());
}

#[test]
fn what_would_mean_something_else_is_refused_before_any_write() {
    let v2 = V2::new();
    v2.kernel_makes("/kubepods");
    let wrong = [
        ("cpu_quota_us", Limits { cpu_quota_us: Some(Ceiling::At(0)), ..all() }),
        ("cpu_quota_us", Limits { cpu_quota_us: Some(Ceiling::At(999)), ..all() }),
        ("cpu_period_us", Limits { cpu_period_us: Some(1_000_001), ..all() }),
        ("cpu_period_us", Limits { cpu_period_us: Some(0), ..all() }),
        ("memory_limit_bytes", Limits { memory_limit_bytes: Some(Ceiling::At(0)), ..all() }),
    ];
    for (field, limits) in wrong {
        let error = apply(&v2.mounts(), &path("/kubepods"), &limits).unwrap_err();
        assert!(matches!(error, CgroupError::InvalidLimit { what, .. } if what == field), "{error}");
    }
    assert_eq!(v2.read("/kubepods", "cpu.weight"), "100\n");
}

#[test]
fn a_missing_cgroup_controller_or_mount_is_told_apart() {
    let v1 = V1::new();
    let error = apply(&v1.mounts(), &path("/gone"), &all()).unwrap_err();
    assert!(matches!(error, CgroupError::NoCgroup { .. }), "{error}");

    let v2 = V2::new();
    v2.kernel_makes("/kubepods");
    v2.delete("/kubepods", "memory.max");
    let error = apply(&v2.mounts(), &path("/kubepods"), &all()).unwrap_err();
    assert!(matches!(error, CgroupError::NoController { controller: "memory", .. }), "{error}");

    let Mounts::V1 { mut controllers, unified } = v1.mounts() else { panic!("v1 expected") };
    controllers.remove("pids");
    v1.kernel_makes("/kubepods");
    let error = apply(&Mounts::V1 { controllers, unified }, &path("/kubepods"), &all()).unwrap_err();
    assert!(matches!(error, CgroupError::NoController { controller: "pids", .. }), "{error}");
}

#[test]
fn a_knob_that_is_no_number_is_named() {
    let v1 = V1::new();
    v1.kernel_makes("/kubepods");
    v1.write("cpu", "/kubepods", "cpu.shares", "many\n");
    let error = apply(&v1.mounts(), &path("/kubepods"), &all()).unwrap_err();
    assert!(error.to_string().contains("kubepods/cpu.shares, line 1"), "{error}");
}

#[test]
fn shares_become_the_keps_weights() {
    let table = [(0, 1), (2, 1), (102, 4), (1024, 39), (262_144, 10_000), (u64::MAX, 10_000)];
    for (shares, weight) in table {
        assert_eq!(weight_of_shares(shares), weight, "{shares}");
    }
}

proptest! {
    #[test]
    fn weights_stay_in_bounds_and_order(a in 0..300_000u64, b in 0..300_000u64) {
        let (low, high) = (weight_of_shares(a.min(b)), weight_of_shares(a.max(b)));
        prop_assert!(1 <= low && low <= high && high <= 10_000);
    }

    #[test]
    fn cpu_max_comes_back(quota in prop::option::of(any::<u64>()), period in any::<u64>()) {
        let text = format!("{} {period}\n", quota.map_or("max".to_owned(), |quota| quota.to_string()));
        let quota = quota.map_or(Ceiling::Unlimited, Ceiling::At);
        prop_assert_eq!(parse_cpu_max(&text), Some((quota, period)));
    }

    #[test]
    fn any_text_is_read_without_panic(text in ".{0,40}|[0-9max -]{0,24}") {
        let _ = (parse_ceiling(&text), parse_cpu_max(&text));
    }
}

#[test]
fn huge_pages_are_bounded_where_there_are_any() {
    let limits = Limits {
        huge_pages: [("2MB".to_owned(), 4 << 20), ("1GB".to_owned(), 0)].into(),
        ..Limits::default()
    };
    let (v1, v2, top) = (V1::new(), V2::new(), path("/kubepods"));
    v1.kernel_makes("/kubepods");
    v2.kernel_makes("/kubepods");
    for mounts in [v1.mounts(), v2.mounts()] {
        assert_eq!(apply(&mounts, &top, &limits).unwrap(), ["hugetlb"], "1GB is no size of this machine");
        assert!(apply(&mounts, &top, &limits).unwrap().is_empty());
    }
    assert_eq!(v1.read("hugetlb", "/kubepods", "hugetlb.2MB.limit_in_bytes"), "4194304");
    assert_eq!(v2.read("/kubepods", "hugetlb.2MB.max"), "4194304");
    let Mounts::V1 { mut controllers, unified } = v1.mounts() else { panic!("v1 expected") };
    controllers.remove("hugetlb");
    let without = Mounts::V1 { controllers, unified };
    assert!(apply(&without, &top, &limits).unwrap().is_empty(), "no controller is no error");
    let bad = Limits { huge_pages: [("../x".to_owned(), 1)].into(), ..Limits::default() };
    assert!(matches!(apply(&v2.mounts(), &top, &bad), Err(CgroupError::InvalidLimit { .. })));
}

#[test]
fn memory_is_protected_on_v2_alone() {
    let limits = Limits { memory_min: Some(10 << 20), memory_low: Some(5), ..Limits::default() };
    let (v1, v2, top) = (V1::new(), V2::new(), path("/kubepods"));
    v1.kernel_makes("/kubepods");
    v2.kernel_makes("/kubepods");
    assert!(apply(&v1.mounts(), &top, &limits).unwrap().is_empty());
    assert_eq!(apply(&v2.mounts(), &top, &limits).unwrap(), ["memory.min"], "5 bytes are no page");
    assert_eq!(v2.read("/kubepods", "memory.min"), "10485760");
    let none = Limits { memory_min: Some(0), memory_low: Some(0), ..Limits::default() };
    assert_eq!(apply(&v2.mounts(), &top, &none).unwrap(), ["memory.min"]);
    assert_eq!(v2.read("/kubepods", "memory.min"), "0");
}
