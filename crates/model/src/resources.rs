//! What containers and pods ask for and may use at most, and the cgroup values that follow from it.
//!
//! Owns the kubelet's arithmetic: sums over a pod with init containers and sidecars (KEP 753), pod-level resources
//! (KEP 2837), overhead (KEP 688), CPU shares, quota and weight, and OOM scores. Must never read or write a cgroup.
//! A quantity that cannot be parsed counts as not stated: the API server and [`crate::manifest`] let none through.

mod cgroup;
mod memory_qos;

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Pod, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;

use crate::capacity;
use crate::quantity::Quantity;
use crate::spec::{self, ContainerKind};

pub use cgroup::{
    CgroupSettings, ContainerCgroup, MAX_SHARES, MIN_QUOTA_US, MIN_SHARES, PodCgroup, bare_cgroup,
    burstable_shares, container_cgroup, cpu_quota_us, cpu_shares, cpu_weight, oom_score_adjust,
    overhead_cgroup, pod_cgroup,
};
pub use memory_qos::{MemoryQos, NodeProtection, Protection};

/// The API's map from resource name to quantity.
pub type ResourceList = BTreeMap<String, ApiQuantity>;

/// An amount of CPU and of memory. `None` where none is stated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amounts {
    /// CPUs.
    pub cpu: Option<Quantity>,
    /// Bytes.
    pub memory: Option<Quantity>,
}

/// Requests and limits of a container or a pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Resources {
    /// What is set aside.
    pub requests: Amounts,
    /// What may be used at most.
    pub limits: Amounts,
}

impl Amounts {
    fn read(list: Option<&ResourceList>) -> Self {
        Self { cpu: amount(list, "cpu"), memory: amount(list, "memory") }
    }

    /// The sums; what only one side states is kept.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        self.join(other, Quantity::plus)
    }

    /// The greater of each; what only one side states is kept.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        self.join(other, Quantity::max)
    }

    /// Each from `self`, else from `other`.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        self.join(other, |own, _| own)
    }

    fn join(self, other: Self, both: fn(Quantity, Quantity) -> Quantity) -> Self {
        let pick = |a: Option<Quantity>, b: Option<Quantity>| match (a, b) {
            (Some(a), Some(b)) => Some(both(a, b)),
            (a, b) => a.or(b),
        };
        Self { cpu: pick(self.cpu, other.cpu), memory: pick(self.memory, other.memory) }
    }
}

/// One resource of a list, by name; `None` when it is not stated.
pub fn amount(list: Option<&ResourceList>, name: &str) -> Option<Quantity> {
    list?.get(name).and_then(|text| Quantity::parse(&text.0).ok())
}

/// Requests and limits of one container. A request that is missing is the limit, as the API server defaults it.
pub fn container(container: &Container) -> Resources {
    read(container.resources.as_ref())
}

/// What `spec.resources` says about the pod as a whole (KEP 2837); `None` when it names neither CPU nor memory.
///
/// A request that it does not name is what the containers ask for together, else the pod's limit.
pub fn pod_level(pod: &Pod) -> Option<Resources> {
    let requirements = pod.spec.as_ref()?.resources.as_ref()?;
    let requests = Amounts::read(requirements.requests.as_ref());
    let limits = Amounts::read(requirements.limits.as_ref());
    if requests == Amounts::default() && limits == Amounts::default() {
        return None;
    }
    Some(Resources { requests: requests.or(sum(pod, |r| r.requests)).or(limits), limits })
}

/// Requests and limits of the whole pod, overhead included.
///
/// The greater of: all app containers and sidecars together; each init container with the sidecars before it.
/// Pod-level resources replace these sums. Overhead is added to requests, and to limits that are stated.
pub fn pod(pod: &Pod) -> Resources {
    let summed = Resources { requests: sum(pod, |r| r.requests), limits: sum(pod, |r| r.limits) };
    let whole =
        pod_level(pod).map_or(summed, |own| Resources { limits: own.limits.or(summed.limits), ..own });
    let overhead = Amounts::read(pod.spec.as_ref().and_then(|spec| spec.overhead.as_ref()));
    let on_top = |limit: Option<Quantity>, more: Option<Quantity>| match (limit, more) {
        (Some(limit), Some(more)) if !limit.is_zero() => Some(limit.plus(more)),
        (limit, _) => limit,
    };
    Resources {
        requests: whole.requests.plus(overhead),
        limits: Amounts {
            cpu: on_top(whole.limits.cpu, overhead.cpu),
            memory: on_top(whole.limits.memory, overhead.memory),
        },
    }
}

/// What the whole pod takes of a resource other than CPU and memory.
///
/// The greater of: all app containers and sidecars together; each init container with the sidecars before it. What
/// `spec.resources` says about the pod as a whole replaces that. Overhead comes on top.
pub fn pod_other(pod: &Pod, name: &str) -> Quantity {
    let wanted = |requirements: Option<&ResourceRequirements>| {
        let list = |list: Option<&ResourceList>| amount(list, name);
        let requirements = requirements?;
        list(requirements.requests.as_ref()).or(list(requirements.limits.as_ref()))
    };
    let overhead = amount(pod.spec.as_ref().and_then(|spec| spec.overhead.as_ref()), name);
    let on_top = |sum: Quantity| overhead.map_or(sum, |overhead| sum.plus(overhead));
    if let Some(whole) = wanted(pod.spec.as_ref().and_then(|spec| spec.resources.as_ref())) {
        return on_top(whole);
    }
    let (mut running, mut sidecars, mut highest) = (Quantity::ZERO, Quantity::ZERO, Quantity::ZERO);
    for item in spec::containers(pod) {
        let request = wanted(item.container.resources.as_ref()).unwrap_or(Quantity::ZERO);
        match item.kind {
            ContainerKind::App => running = running.plus(request),
            ContainerKind::Sidecar => {
                running = running.plus(request);
                sidecars = sidecars.plus(request);
                highest = highest.max(sidecars);
            }
            ContainerKind::Init => highest = highest.max(request.plus(sidecars)),
            ContainerKind::Ephemeral => {}
        }
    }
    on_top(running.max(highest))
}

/// Limits in bytes of huge pages of a pod's cgroup, by size of a page: of each of `sizes`, for who asks for none gets none.
pub fn pod_huge_pages(pod: &Pod, sizes: &[u64]) -> BTreeMap<u64, u64> {
    let limit = |size: &u64| {
        let wanted = pod_other(pod, &capacity::huge_page_resource(*size)).value();
        (*size, u64::try_from(wanted).unwrap_or(0))
    };
    sizes.iter().map(limit).collect()
}

fn read(requirements: Option<&ResourceRequirements>) -> Resources {
    let limits = Amounts::read(requirements.and_then(|r| r.limits.as_ref()));
    let requests = Amounts::read(requirements.and_then(|r| r.requests.as_ref())).or(limits);
    Resources { requests, limits }
}

fn sum(pod: &Pod, part: fn(Resources) -> Amounts) -> Amounts {
    let (mut running, mut sidecars, mut highest_init) =
        (Amounts::default(), Amounts::default(), Amounts::default());
    for item in spec::containers(pod) {
        let wanted = part(container(item.container));
        match item.kind {
            ContainerKind::App => running = running.plus(wanted),
            ContainerKind::Sidecar => {
                running = running.plus(wanted);
                sidecars = sidecars.plus(wanted);
                highest_init = highest_init.max(sidecars);
            }
            ContainerKind::Init => highest_init = highest_init.max(wanted.plus(sidecars)),
            ContainerKind::Ephemeral => {}
        }
    }
    running.max(highest_init)
}

#[cfg(test)]
pub(crate) mod tests {
    use k8s_openapi::api::core::v1::PodSpec;

    use super::*;

    /// `cpu=1,memory=1Gi` as the API's map.
    pub(crate) fn list(text: &str) -> Option<ResourceList> {
        let entries = text.split(',').filter(|part| !part.is_empty());
        let map: ResourceList = entries
            .map(|part| {
                let (name, value) = part.split_once('=').unwrap();
                (name.to_owned(), ApiQuantity(value.to_owned()))
            })
            .collect();
        (!map.is_empty()).then_some(map)
    }

    pub(crate) fn requirements(requests: &str, limits: &str) -> ResourceRequirements {
        ResourceRequirements { requests: list(requests), limits: list(limits), claims: None }
    }

    pub(crate) fn container(requests: &str, limits: &str) -> Container {
        Container { resources: Some(requirements(requests, limits)), ..Default::default() }
    }

    pub(crate) fn sidecar(requests: &str, limits: &str) -> Container {
        Container { restart_policy: Some("Always".into()), ..container(requests, limits) }
    }

    pub(crate) fn pod(app: Vec<Container>, init: Vec<Container>) -> Pod {
        let mut app = app;
        for (index, container) in app.iter_mut().enumerate() {
            container.name = format!("c{index}");
        }
        let spec = PodSpec { containers: app, init_containers: Some(init), ..Default::default() };
        Pod { spec: Some(spec), ..Default::default() }
    }

    fn text(amounts: Amounts) -> String {
        let show = |q: Option<Quantity>| q.map_or("-".into(), |q| q.to_string());
        format!("{} {}", show(amounts.cpu), show(amounts.memory))
    }

    #[test]
    fn sums_over_init_containers_and_sidecars() {
        let m = |memory: &str| container(&format!("memory={memory}"), "");
        let s = |memory: &str| sidecar(&format!("memory={memory}"), "");
        let table = [
            ("app alone", vec![m("100"), m("50")], vec![], "- 150"),
            ("a big init container", vec![m("100")], vec![m("300"), m("10")], "- 300"),
            ("a small init container", vec![m("100")], vec![m("30")], "- 100"),
            ("a sidecar counts with the apps", vec![m("100")], vec![s("20"), m("30")], "- 120"),
            ("init after a sidecar", vec![m("100")], vec![s("20"), m("90"), s("5")], "- 125"),
            ("init after a sidecar, bigger", vec![m("100")], vec![s("20"), m("200"), s("5")], "- 220"),
            ("init before a sidecar", vec![m("100")], vec![m("121"), s("20")], "- 121"),
            ("nothing", vec![Container::default()], vec![], "- -"),
        ];
        for (name, app, init, expected) in table {
            assert_eq!(text(super::pod(&pod(app, init)).requests), expected, "{name}");
        }
    }

    #[test]
    fn requests_default_to_limits_one_by_one() {
        let seen = super::container(&container("cpu=100m", "cpu=1,memory=1Gi"));
        assert_eq!(text(seen.requests), "100m 1Gi");
        assert_eq!(text(seen.limits), "1 1Gi");
        assert_eq!(super::container(&container("cpu=nonsense", "")), Resources::default());
    }

    #[test]
    fn overhead_goes_on_requests_and_on_limits_that_are_stated() {
        let mut p = pod(vec![container("cpu=1", "memory=1Gi")], vec![]);
        p.spec.as_mut().unwrap().overhead = list("cpu=250m,memory=64Mi");
        let seen = super::pod(&p);
        assert_eq!(text(seen.requests), "1250m 1088Mi");
        assert_eq!(text(seen.limits), "- 1088Mi");
        p.spec.as_mut().unwrap().overhead = list("ephemeral-storage=1Mi");
        assert_eq!(super::pod_other(&p, "ephemeral-storage").value(), 1 << 20);
    }

    #[test]
    fn pod_level_resources_replace_the_sums() {
        let mut p = pod(vec![container("cpu=1", "memory=1Gi")], vec![]);
        p.spec.as_mut().unwrap().resources = Some(requirements("", "cpu=3,memory=4Gi"));
        let seen = super::pod(&p);
        assert_eq!(text(seen.limits), "3 4Gi");
        assert_eq!(text(seen.requests), "1 1Gi", "the containers' requests stay what is asked");
        p.spec.as_mut().unwrap().resources = Some(requirements("cpu=2", "cpu=3"));
        assert_eq!(text(super::pod(&p).requests), "2 1Gi");
    }
}
