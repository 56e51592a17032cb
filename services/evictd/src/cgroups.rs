//! The list of cgroups with all that the kernel tells of them, out of what was read. Pure.

use std::collections::{BTreeMap, BTreeSet};

use bulkhead_api::evictd::v1::{
    Cgroup, CgroupFigure, CgroupFigureKind as Kind, ListCgroupsResponse, Machine, Summary,
};
use bulkhead_cgroup::{CgroupPath, Detail};

use crate::extra::Extra;
use crate::hardware::Hardware;
use crate::machine::Detailed;
use crate::plan::{Plan, PodPlan};
use crate::summary::unix_nano;

/// What the list is made from.
pub(crate) struct Listed<'a> {
    /// Whose cgroups they are.
    pub(crate) plan: &'a Plan,
    /// What the kernel told.
    pub(crate) details: &'a BTreeMap<CgroupPath, Detailed>,
    /// What is known beside that.
    pub(crate) extra: &'a Extra,
    /// The newest summary: the node's own figures.
    pub(crate) summary: &'a Summary,
    /// The machine.
    pub(crate) hardware: &'a Hardware,
    /// Bytes of memory and of swap of the machine.
    pub(crate) memory: (u64, u64),
}

/// Cgroups to read for the list: the root, those above the pods, and everything of the pods.
pub(crate) fn wanted(plan: &Plan) -> BTreeSet<CgroupPath> {
    let sandboxes = plan.pods.iter().filter_map(|pod| Some(pod.sandbox.as_ref()?.cgroup.clone()));
    plan.cgroups().into_iter().chain(sandboxes).chain(plan.tiers.iter().cloned()).collect()
}

impl Listed<'_> {
    /// The list, by path. What is gone is not in it.
    pub(crate) fn response(&self) -> ListCgroupsResponse {
        let mut names: BTreeMap<&CgroupPath, Cgroup> = BTreeMap::new();
        for pod in &self.plan.pods {
            names.insert(&pod.cgroup, of_pod(pod));
            names.extend(pod.sandbox.iter().map(|sandbox| (&sandbox.cgroup, self.sandbox(pod))));
            names.extend(
                pod.containers.iter().enumerate().map(|(n, one)| (&one.cgroup, self.container(pod, n))),
            );
        }
        let cgroups = self.details.iter().map(|(path, detailed)| {
            let known = names.remove(path).unwrap_or_else(|| self.of_node(path));
            Cgroup {
                path: path.to_string(),
                time_unix_nano: detailed.at.unix_nano,
                figures: detailed.figures.iter().map(|(detail, value)| figure(*detail, *value)).collect(),
                ..known
            }
        });
        ListCgroupsResponse { cgroups: cgroups.collect(), machine: Some(self.machine()) }
    }

    fn machine(&self) -> Machine {
        let Hardware { cpus, cores, sockets, machine_id, system_uuid, boot_id } = self.hardware.clone();
        let (memory_bytes, swap_bytes) = self.memory;
        Machine {
            cpus,
            physical_cores: cores,
            sockets,
            memory_bytes,
            swap_bytes,
            machine_id,
            system_uuid,
            boot_id,
        }
    }

    fn of_node(&self, path: &CgroupPath) -> Cgroup {
        let node = self.summary.node.as_ref().filter(|_| *path == CgroupPath::root());
        let start = node.map_or(0, |node| node.start_unix_nano);
        Cgroup {
            start_unix_nano: start,
            created_unix_nano: start,
            network: node.and_then(|node| node.network.clone()),
            fs: node.and_then(|node| node.fs),
            device: node.map(|_| self.extra.root_device.clone()).unwrap_or_default(),
            ..Cgroup::default()
        }
    }

    fn sandbox(&self, pod: &PodPlan) -> Cgroup {
        Cgroup {
            id: pod.sandbox.as_ref().map(|sandbox| sandbox.id.clone()).unwrap_or_default(),
            network: self.extra.networks.get(&pod.view.uid).cloned(),
            ..of_pod(pod)
        }
    }

    fn container(&self, pod: &PodPlan, index: usize) -> Cgroup {
        let Some(container) = pod.containers.get(index) else { return of_pod(pod) };
        Cgroup {
            container: container.name.clone(),
            id: container.id.clone(),
            image: container.image.clone(),
            created_unix_nano: unix_nano(container.made_at),
            start_unix_nano: unix_nano(container.started_at),
            fs: self.extra.layers.as_ref().and_then(|layers| layers.get(&container.id)).copied(),
            device: self.extra.layer_device.clone(),
            ..of_pod(pod)
        }
    }
}

/// A pod is as old as its sandbox.
fn of_pod(pod: &PodPlan) -> Cgroup {
    let made = pod.sandbox.as_ref().map_or(0, |sandbox| unix_nano(sandbox.made_at));
    Cgroup {
        pod_namespace: pod.view.namespace.clone(),
        pod_name: pod.view.name.clone(),
        created_unix_nano: made,
        start_unix_nano: made,
        ..Cgroup::default()
    }
}

fn figure(detail: Detail, value: u64) -> CgroupFigure {
    let kind = match detail {
        Detail::CpuUsageNs => Kind::CpuUsageNs,
        Detail::CpuUserNs => Kind::CpuUserNs,
        Detail::CpuSystemNs => Kind::CpuSystemNs,
        Detail::CpuPeriods => Kind::CpuPeriods,
        Detail::CpuThrottledPeriods => Kind::CpuThrottledPeriods,
        Detail::CpuThrottledNs => Kind::CpuThrottledNs,
        Detail::CpuShares => Kind::CpuShares,
        Detail::CpuPeriod => Kind::CpuPeriod,
        Detail::CpuQuota => Kind::CpuQuota,
        Detail::MemoryUsage => Kind::MemoryUsage,
        Detail::MemoryWorkingSet => Kind::MemoryWorkingSet,
        Detail::MemoryRss => Kind::MemoryRss,
        Detail::MemoryCache => Kind::MemoryCache,
        Detail::MemorySwap => Kind::MemorySwap,
        Detail::MemoryMappedFile => Kind::MemoryMappedFile,
        Detail::MemoryMaxUsage => Kind::MemoryMaxUsage,
        Detail::MemoryFailcnt => Kind::MemoryFailcnt,
        Detail::MemoryKernel => Kind::MemoryKernel,
        Detail::MemoryFileDirty => Kind::MemoryFileDirty,
        Detail::MemoryFileWriteback => Kind::MemoryFileWriteback,
        Detail::MemoryActiveFile => Kind::MemoryActiveFile,
        Detail::MemoryInactiveFile => Kind::MemoryInactiveFile,
        Detail::MemoryFaultsOwn => Kind::MemoryFaultsOwn,
        Detail::MemoryFaults => Kind::MemoryFaults,
        Detail::MemoryMajorFaultsOwn => Kind::MemoryMajorFaultsOwn,
        Detail::MemoryMajorFaults => Kind::MemoryMajorFaults,
        Detail::MemoryPagesScanned => Kind::MemoryPagesScanned,
        Detail::MemoryPagesStolen => Kind::MemoryPagesStolen,
        Detail::MemoryRefaultAnon => Kind::MemoryRefaultAnon,
        Detail::MemoryRefaultFile => Kind::MemoryRefaultFile,
        Detail::MemoryEventsHigh => Kind::MemoryEventsHigh,
        Detail::MemoryEventsMax => Kind::MemoryEventsMax,
        Detail::OomKills => Kind::OomKills,
        Detail::MemoryLimit => Kind::MemoryLimit,
        Detail::MemoryReservation => Kind::MemoryReservation,
        Detail::MemorySwapLimit => Kind::MemorySwapLimit,
        Detail::Processes => Kind::Processes,
        Detail::Threads => Kind::Threads,
        Detail::ThreadsMax => Kind::ThreadsMax,
    };
    CgroupFigure { kind: kind.into(), value }
}

#[cfg(test)]
mod tests {
    use bulkhead_api::evictd::v1::{FsStats, NetworkStats, NodeStats};
    use bulkhead_model::runtime::ContainerState::Running;
    use tokio::time::Instant;

    use super::*;
    use crate::machine::Moment;
    use crate::testing::{container, path, plan, runtime_pod, view};

    #[test]
    fn every_cgroup_is_told_whose_it_is() {
        let mut pod = runtime_pod("u", 7);
        pod.sandboxes[0].ips = vec!["10.0.0.1".to_owned()];
        pod.containers = vec![container("a", "id-a", Running)];
        let plan = plan(&[(view("u", "/kubepods/burstable/podu"), pod)]);
        let paths = [
            "/",
            "/kubepods",
            "/kubepods/besteffort",
            "/kubepods/burstable",
            "/kubepods/burstable/podu",
            "/kubepods/burstable/podu/id-a",
            "/kubepods/burstable/podu/sandbox-u",
        ]
        .map(path);
        assert_eq!(wanted(&plan), paths.clone().into());
        let at = Moment { instant: Instant::now(), unix_nano: 9 };
        let detailed = Detailed { at, figures: vec![(Detail::MemoryRss, 5)] };
        let mut details: BTreeMap<_, _> = paths.map(|path| (path, detailed.clone())).into();
        details.remove(&path("/kubepods/besteffort"));
        let fs = FsStats { used_bytes: 3, ..FsStats::default() };
        let node = NodeStats { fs: Some(fs), start_unix_nano: 1, ..NodeStats::default() };
        let listed = Listed {
            plan: &plan,
            details: &details,
            extra: &Extra {
                layers: Some([("id-a".to_owned(), fs)].into()),
                networks: [("u".to_owned(), NetworkStats::default())].into(),
                layer_device: "/dev/vda".to_owned(),
                ..Extra::default()
            },
            summary: &Summary { node: Some(node), pods: vec![] },
            hardware: &Hardware { cpus: 2, ..Hardware::default() },
            memory: (10, 0),
        };
        let answer = listed.response();
        let machine = answer.machine.unwrap();
        assert_eq!((machine.cpus, machine.memory_bytes), (2, 10));
        let told: Vec<_> = answer
            .cgroups
            .iter()
            .map(|one| {
                let rest = (one.network.is_some(), one.fs.is_some(), one.start_unix_nano / 1_000_000_000);
                (one.path.as_str(), one.pod_name.as_str(), one.container.as_str(), one.id.as_str(), rest)
            })
            .collect();
        let wanted = [
            ("/", "", "", "", (false, true, 0)),
            ("/kubepods", "", "", "", (false, false, 0)),
            ("/kubepods/burstable", "", "", "", (false, false, 0)),
            ("/kubepods/burstable/podu", "name-u", "", "", (false, false, 7)),
            ("/kubepods/burstable/podu/id-a", "name-u", "a", "id-a", (false, true, 20)),
            ("/kubepods/burstable/podu/sandbox-u", "name-u", "", "sandbox-u", (true, false, 7)),
        ];
        assert_eq!(told, wanted);
        let figure = CgroupFigure { kind: Kind::MemoryRss.into(), value: 5 };
        assert!(answer.cgroups.iter().all(|one| one.figures == [figure] && one.time_unix_nano == 9));
    }
}
