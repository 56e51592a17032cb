//! From requests and limits to the numbers that the kernel takes.

use k8s_openapi::api::core::v1::{Container, Pod};

use super::{Amounts, Resources};
use crate::qos::QosClass;
use crate::spec::{self, ContainerKind};

/// The fewest CPU shares that the kernel takes; what a best-effort pod gets.
pub const MIN_SHARES: u64 = 2;
/// The most CPU shares that the kernel takes.
pub const MAX_SHARES: u64 = 262_144;
/// The smallest CPU quota that the kernel takes, in microseconds.
pub const MIN_QUOTA_US: i64 = 1000;

/// `oom_score_adj` of containers that must be killed last but for the node's own daemons.
const OOM_GUARANTEED: i64 = -997;
/// `oom_score_adj` of containers that go first.
const OOM_BEST_EFFORT: i64 = 1000;
/// From this priority on a pod is critical (`system-cluster-critical`).
const CRITICAL_PRIORITY: i32 = 2_000_000_000;

/// What the node's configuration says about every pod's cgroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CgroupSettings {
    /// `cpuCFSQuotaPeriod` in microseconds; the kubelet's default is 100,000.
    pub cpu_period_us: u64,
    /// `cpuCFSQuota`: whether CPU limits are enforced.
    pub enforce_cpu_limits: bool,
    /// `podPidsLimit`; `None` for no limit.
    pub pids_limit: Option<i64>,
    /// The machine's memory in bytes, for OOM scores.
    pub memory_capacity_bytes: i64,
}

/// Values of a pod's own cgroup, the parent of its containers'. `None` where there is no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PodCgroup {
    /// cgroup v1 `cpu.shares`; [`cpu_weight`] turns it into v2's `cpu.weight`.
    pub cpu_shares: u64,
    /// CPU time per period in microseconds, over all CPUs.
    pub cpu_quota_us: Option<i64>,
    /// The period in microseconds.
    pub cpu_period_us: u64,
    /// Bytes.
    pub memory_limit_bytes: Option<i64>,
    /// Processes and threads together.
    pub pids_limit: Option<i64>,
}

/// Values of one container's cgroup and process, for the CRI. `None` where there is no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContainerCgroup {
    /// CPU shares.
    pub cpu_shares: u64,
    /// CPU time per period in microseconds.
    pub cpu_quota_us: Option<i64>,
    /// The period in microseconds.
    pub cpu_period_us: u64,
    /// Bytes.
    pub memory_limit_bytes: Option<i64>,
    /// `/proc/PID/oom_score_adj`, -1000 to 1000.
    pub oom_score_adj: i64,
}

/// CPU shares for thousandths of a CPU: 1024 a CPU, at least [`MIN_SHARES`], at most [`MAX_SHARES`].
pub fn cpu_shares(milli_cpu: i64) -> u64 {
    let milli = u64::try_from(milli_cpu).unwrap_or(0);
    (milli.saturating_mul(1024) / 1000).clamp(MIN_SHARES, MAX_SHARES)
}

/// CPU quota in microseconds per `period_us`, at least [`MIN_QUOTA_US`]; `None` (no limit) for zero or less.
pub fn cpu_quota_us(milli_cpu: i64, period_us: u64) -> Option<i64> {
    if milli_cpu <= 0 {
        return None;
    }
    let quota = i128::from(milli_cpu) * i128::from(period_us) / 1000;
    Some(i64::try_from(quota).unwrap_or(i64::MAX).max(MIN_QUOTA_US))
}

/// cgroup v2's `cpu.weight` (1 to 10,000) for v1's shares, by the conversion that present OCI runtimes use: a curve
/// through 2 -> 1, 1024 -> 100 and 262,144 -> 10,000.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "shares are at most 262,144 and the result is between 1 and 10,000"
)]
pub fn cpu_weight(shares: u64) -> u64 {
    if shares <= MIN_SHARES {
        return 1;
    }
    if shares >= MAX_SHARES {
        return 10_000;
    }
    let log = (shares as f64).log2();
    let exponent = (log * log + 125.0 * log) / 612.0 - 7.0 / 34.0;
    // The subtraction keeps what is exact in theory (1024 -> 100) from being rounded up by a last bit.
    ((10_f64.powf(exponent) - 1e-9).ceil() as u64).clamp(1, 10_000)
}

/// The cgroup of a whole pod.
///
/// Shares are the sum of the requests. Quota and memory limit are set only when every container states one (or the
/// pod as a whole does): otherwise one container without a limit would be held by its neighbours'.
pub fn pod_cgroup(pod: &Pod, settings: &CgroupSettings) -> PodCgroup {
    let Resources { requests, limits } = super::pod(pod);
    let declared = super::pod_level(pod).map(|own| own.limits).unwrap_or_default();
    let each: Vec<Amounts> =
        spec::containers(pod).iter().map(|item| super::container(item.container).limits).collect();
    let stated = |part: fn(&Amounts) -> Option<crate::quantity::Quantity>| {
        let positive = |amounts: &Amounts| part(amounts).is_some_and(|q| !q.is_zero());
        positive(&declared) || each.iter().all(positive)
    };
    let class = QosClass::of(pod);
    let limited = class != QosClass::BestEffort;
    let cpu_quota_us = limits
        .cpu
        .filter(|_| limited && settings.enforce_cpu_limits && stated(|a| a.cpu))
        .and_then(|cpu| cpu_quota_us(cpu.milli_value(), settings.cpu_period_us));
    PodCgroup {
        cpu_shares: if limited { cpu_shares(milli(requests)) } else { MIN_SHARES },
        cpu_quota_us,
        cpu_period_us: settings.cpu_period_us,
        memory_limit_bytes: limits
            .memory
            .filter(|_| limited && stated(|a| a.memory))
            .map(|m| m.value())
            .filter(|m| *m > 0),
        pids_limit: settings.pids_limit,
    }
}

/// What [`pod_cgroup`] would be without the pod's overhead: for the runtime, which knows what it needs itself.
pub fn bare_cgroup(pod: &Pod, settings: &CgroupSettings) -> PodCgroup {
    if pod.spec.as_ref().is_none_or(|spec| spec.overhead.is_none()) {
        return pod_cgroup(pod, settings);
    }
    let mut pod = pod.clone();
    if let Some(spec) = &mut pod.spec {
        spec.overhead = None;
    }
    pod_cgroup(&pod, settings)
}

/// The pod's overhead alone.
pub fn overhead_cgroup(pod: &Pod, settings: &CgroupSettings) -> PodCgroup {
    let overhead = Amounts::read(pod.spec.as_ref().and_then(|spec| spec.overhead.as_ref()));
    let cpu = overhead.cpu.filter(|_| settings.enforce_cpu_limits);
    PodCgroup {
        cpu_shares: overhead.cpu.map_or(0, |cpu| cpu_shares(cpu.milli_value())),
        cpu_quota_us: cpu.and_then(|cpu| cpu_quota_us(cpu.milli_value(), settings.cpu_period_us)),
        cpu_period_us: settings.cpu_period_us,
        memory_limit_bytes: overhead.memory.map(|memory| memory.value()).filter(|bytes| *bytes > 0),
        pids_limit: None,
    }
}

/// The cgroup of one container of `pod`.
pub fn container_cgroup(pod: &Pod, container: &Container, settings: &CgroupSettings) -> ContainerCgroup {
    let Resources { requests, limits } = super::container(container);
    let enforced = limits.cpu.filter(|_| settings.enforce_cpu_limits);
    ContainerCgroup {
        cpu_shares: cpu_shares(milli(requests)),
        cpu_quota_us: enforced.and_then(|cpu| cpu_quota_us(cpu.milli_value(), settings.cpu_period_us)),
        cpu_period_us: settings.cpu_period_us,
        memory_limit_bytes: limits.memory.map(|memory| memory.value()).filter(|bytes| *bytes > 0),
        oom_score_adj: oom_score_adjust(pod, container, settings.memory_capacity_bytes),
    }
}

/// CPU shares of the burstable class: the sum of its pods' requests.
pub fn burstable_shares<'a>(pods: impl IntoIterator<Item = &'a Pod>) -> u64 {
    let burstable = pods.into_iter().filter(|pod| QosClass::of(pod) == QosClass::Burstable);
    cpu_shares(burstable.fold(0_i64, |sum, pod| sum.saturating_add(milli(super::pod(pod).requests))))
}

/// `oom_score_adj` of a container, by the rule that the API documents for node memory pressure.
///
/// Guaranteed pods and node-critical ones -997, best-effort pods 1000, the rest `1000 - 1000 * request / capacity`
/// between 2 and 999. A sidecar's is never above its pod's app containers' (KEP 753).
pub fn oom_score_adjust(pod: &Pod, container: &Container, memory_capacity_bytes: i64) -> i64 {
    if is_node_critical(pod) {
        return OOM_GUARANTEED;
    }
    match QosClass::of(pod) {
        QosClass::Guaranteed => return OOM_GUARANTEED,
        QosClass::BestEffort => return OOM_BEST_EFFORT,
        QosClass::Burstable => {}
    }
    let capacity = i128::from(memory_capacity_bytes.max(1));
    let score = |container: &Container| {
        let request = super::container(container).requests.memory.map_or(0, |memory| memory.value());
        let score = 1000 - 1000 * i128::from(request) / capacity;
        i64::try_from(score.clamp(2, 999)).unwrap_or(999)
    };
    let all = spec::containers(pod);
    let sidecar = all.iter().any(|item| item.kind == ContainerKind::Sidecar && item.name() == container.name);
    let apps = all.iter().filter(|item| sidecar && item.kind == ContainerKind::App);
    apps.map(|item| score(item.container)).fold(score(container), i64::min)
}

/// Whether the node cannot do without the pod: `system-node-critical`, and either static or of critical priority.
fn is_node_critical(pod: &Pod) -> bool {
    let spec = pod.spec.as_ref();
    let class = spec.and_then(|spec| spec.priority_class_name.as_deref());
    let critical = spec.and_then(|spec| spec.priority).is_some_and(|priority| priority >= CRITICAL_PRIORITY);
    class == Some("system-node-critical") && (spec::is_static(pod) || critical)
}

fn milli(requests: Amounts) -> i64 {
    requests.cpu.map_or(0, |cpu| cpu.milli_value())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::names;
    use crate::resources::tests::{container, list, pod, requirements, sidecar};

    const SETTINGS: CgroupSettings = CgroupSettings {
        cpu_period_us: 100_000,
        enforce_cpu_limits: true,
        pids_limit: Some(1024),
        memory_capacity_bytes: 8 << 30,
    };

    #[test]
    fn overhead_stands_beside_what_containers_ask_for() {
        let mut p = pod(vec![container("cpu=500m", "cpu=1,memory=64Mi")], vec![]);
        p.spec.as_mut().unwrap().overhead = list("cpu=250m,memory=16Mi");
        let figures = |cgroup: PodCgroup| {
            (cgroup.cpu_shares, cgroup.cpu_quota_us, cgroup.memory_limit_bytes.map(|bytes| bytes >> 20))
        };
        assert_eq!(figures(pod_cgroup(&p, &SETTINGS)), (768, Some(125_000), Some(80)));
        assert_eq!(figures(bare_cgroup(&p, &SETTINGS)), (512, Some(100_000), Some(64)));
        assert_eq!(figures(overhead_cgroup(&p, &SETTINGS)), (256, Some(25_000), Some(16)));
        p.spec.as_mut().unwrap().overhead = None;
        assert_eq!(bare_cgroup(&p, &SETTINGS), pod_cgroup(&p, &SETTINGS));
        assert_eq!(figures(overhead_cgroup(&p, &SETTINGS)), (0, None, None));
    }

    #[test]
    fn shares_quota_and_weight() {
        for (milli, shares) in
            [(-5, 2), (0, 2), (1, 2), (2, 2), (3, 3), (100, 102), (1000, 1024), (i64::MAX, 262_144)]
        {
            assert_eq!(cpu_shares(milli), shares, "{milli}m");
        }
        for (milli, period, quota) in [
            (0, 100_000, None),
            (-1, 100_000, None),
            (1, 100_000, Some(1000)),
            (10, 100_000, Some(1000)),
            (11, 100_000, Some(1100)),
            (1500, 100_000, Some(150_000)),
            (1500, 10_000, Some(15_000)),
            (i64::MAX, 1_000_000, Some(i64::MAX)),
        ] {
            assert_eq!(cpu_quota_us(milli, period), quota, "{milli}m of {period}");
        }
        for (shares, weight) in
            [(0, 1), (2, 1), (102, 17), (1024, 100), (262_144, 10_000), (u64::MAX, 10_000)]
        {
            assert_eq!(cpu_weight(shares), weight, "{shares} shares");
        }
    }

    #[test]
    fn the_pods_cgroup_by_class() {
        let (mib, gib) = (1_i64 << 20, 1_i64 << 30);
        let table = [
            ("best effort", pod(vec![container("", "")], vec![]), (2, None, None)),
            (
                "guaranteed",
                pod(vec![container("", "cpu=1500m,memory=1Gi")], vec![]),
                (1536, Some(150_000), Some(gib)),
            ),
            ("requests only", pod(vec![container("cpu=100m,memory=1Gi", "")], vec![]), (102, None, None)),
            (
                "every container limited",
                pod(
                    vec![container("cpu=100m", "cpu=1,memory=64Mi"), container("", "cpu=1,memory=64Mi")],
                    vec![],
                ),
                (1126, Some(200_000), Some(128 * mib)),
            ),
            (
                "one container has no memory limit",
                pod(vec![container("", "cpu=1,memory=64Mi"), container("", "cpu=1")], vec![]),
                (2048, Some(200_000), None),
            ),
            (
                "an init container has no limit",
                pod(vec![container("", "cpu=1,memory=64Mi")], vec![container("", "")]),
                (1024, None, None),
            ),
            (
                "a sidecar adds up",
                pod(vec![container("", "cpu=1,memory=64Mi")], vec![sidecar("", "cpu=500m,memory=16Mi")]),
                (1536, Some(150_000), Some(80 * mib)),
            ),
        ];
        for (name, pod, (shares, quota, memory)) in table {
            let seen = pod_cgroup(&pod, &SETTINGS);
            assert_eq!(
                (seen.cpu_shares, seen.cpu_quota_us, seen.memory_limit_bytes),
                (shares, quota, memory),
                "{name}"
            );
            assert_eq!((seen.cpu_period_us, seen.pids_limit), (100_000, Some(1024)), "{name}");
        }
    }

    #[test]
    fn pod_level_limits_hold_without_any_containers_own() {
        let mut p = pod(vec![container("", "")], vec![]);
        p.spec.as_mut().unwrap().resources = Some(requirements("cpu=1", "cpu=2,memory=1Gi"));
        let seen = pod_cgroup(&p, &SETTINGS);
        assert_eq!(
            (seen.cpu_shares, seen.cpu_quota_us, seen.memory_limit_bytes),
            (1024, Some(200_000), Some(1 << 30))
        );
    }

    #[test]
    fn without_cpu_quota_only_memory_is_limited() {
        let p = pod(vec![container("", "cpu=1,memory=1Gi")], vec![]);
        let settings = CgroupSettings { enforce_cpu_limits: false, ..SETTINGS };
        assert_eq!(pod_cgroup(&p, &settings).cpu_quota_us, None);
        let c = container_cgroup(&p, &p.spec.as_ref().unwrap().containers[0], &settings);
        assert_eq!((c.cpu_shares, c.cpu_quota_us, c.memory_limit_bytes), (1024, None, Some(1 << 30)));
        assert_eq!(c.oom_score_adj, -997);
    }

    #[test]
    fn the_burstable_class_gets_what_its_pods_request() {
        let pods = [
            pod(vec![container("cpu=100m", "")], vec![]),
            pod(vec![container("cpu=400m", "cpu=1")], vec![]),
            pod(vec![container("", "cpu=1,memory=1Gi")], vec![]),
            pod(vec![container("", "")], vec![]),
        ];
        assert_eq!(burstable_shares(&pods), 512);
        assert_eq!(burstable_shares([]), 2);
    }

    #[test]
    fn oom_scores() {
        let first = |p: &Pod| oom_score_adjust(p, &p.spec.as_ref().unwrap().containers[0], 8 << 30);
        let table = [
            ("best effort", pod(vec![container("", "")], vec![]), 1000),
            ("guaranteed", pod(vec![container("", "cpu=1,memory=1Gi")], vec![]), -997),
            ("no memory request", pod(vec![container("cpu=1", "")], vec![]), 999),
            ("an eighth", pod(vec![container("memory=1Gi", "")], vec![]), 875),
            ("all", pod(vec![container("memory=8Gi", "")], vec![]), 2),
            ("more than all", pod(vec![container("memory=80Gi", "")], vec![]), 2),
            ("almost nothing", pod(vec![container("memory=1", "")], vec![]), 999),
        ];
        for (name, pod, score) in table {
            assert_eq!(first(&pod), score, "{name}");
        }
        let mut side = pod(
            vec![container("memory=4Gi", ""), container("memory=2Gi", "")],
            vec![sidecar("memory=1Gi", "")],
        );
        let sidecar = &mut side.spec.as_mut().unwrap().init_containers.as_mut().unwrap()[0];
        sidecar.name = "s".into();
        let sidecar = sidecar.clone();
        assert_eq!(oom_score_adjust(&side, &sidecar, 8 << 30), 500, "like the app container that goes last");
        assert_eq!(oom_score_adjust(&side, &sidecar, 0), 2, "a machine without memory divides by nothing");
    }

    #[test]
    fn node_critical_pods_go_last() {
        let mut p = pod(vec![container("cpu=1", "")], vec![]);
        let score = |p: &Pod| oom_score_adjust(p, &p.spec.as_ref().unwrap().containers[0], 8 << 30);
        p.spec.as_mut().unwrap().priority_class_name = Some("system-node-critical".into());
        assert_eq!(score(&p), 999, "the class alone is only a claim");
        p.metadata.annotations = Some(BTreeMap::from([(names::CONFIG_SOURCE.to_owned(), "file".to_owned())]));
        assert_eq!(score(&p), -997);
        p.metadata.annotations = None;
        p.spec.as_mut().unwrap().priority = Some(2_000_001_000);
        assert_eq!(score(&p), -997);
        assert!(list("").is_none());
    }

    proptest! {
        #[test]
        fn weight_grows_with_shares_and_stays_in_bounds(a in any::<u64>(), b in 0_u64..300_000) {
            prop_assert!((1..=10_000).contains(&cpu_weight(a)));
            prop_assert!(cpu_weight(b) <= cpu_weight(b + 1));
        }

        #[test]
        fn scores_stay_in_bounds(request in 0_i64..i64::MAX, capacity in any::<i64>()) {
            let p = pod(vec![container(&format!("memory={request},cpu=1m"), "")], vec![]);
            let score = oom_score_adjust(&p, &p.spec.as_ref().unwrap().containers[0], capacity);
            prop_assert!((2..=999).contains(&score));
        }
    }
}
