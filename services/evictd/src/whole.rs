//! The summary with what is had only when somebody asks for all. Pure.

use std::collections::BTreeMap;

use bulkhead_api::evictd::v1::{FsStats, PodStats, Summary};

use crate::extra::{Extra, Volume};
use crate::plan::{Plan, PodPlan};

/// Puts it in. `plan` is the one that the summary was made by.
pub(crate) fn whole(mut summary: Summary, plan: &Plan, extra: &Extra) -> Summary {
    let plans: BTreeMap<&str, &PodPlan> = plan.pods.iter().map(|pod| (pod.view.uid.as_str(), pod)).collect();
    let mut disk = None;
    if let Some(node) = &mut summary.node {
        node.image_fs = extra.image_fs;
        node.container_fs = extra.container_fs;
        disk = node.fs;
    }
    for pod in &mut summary.pods {
        if let Some(plan) = plans.get(pod.uid.as_str()) {
            fill(pod, plan, extra);
            pod.ephemeral_storage = disk.and_then(|disk| ephemeral(pod, disk, extra));
        }
    }
    summary
}

fn fill(pod: &mut PodStats, plan: &PodPlan, extra: &Extra) {
    for container in &mut pod.containers {
        let planned = plan.containers.iter().find(|planned| planned.name == container.name);
        let layer = planned.and_then(|planned| extra.layers.as_ref()?.get(&planned.id));
        container.rootfs = layer.copied();
        container.logs = extra.logs.get(&(pod.uid.clone(), container.name.clone())).copied();
    }
    pod.network = extra.networks.get(&pod.uid).cloned();
    pod.volumes = volumes(extra, &pod.uid).iter().map(|volume| volume.stats.clone()).collect();
}

fn volumes<'a>(extra: &'a Extra, uid: &str) -> &'a [Volume] {
    extra.volumes.as_ref().and_then(|all| all.get(uid)).map_or(&[], Vec::as_slice)
}

/// What the pod takes of the node's `disk`: writable layers, logs, and volumes that are on it. Of part of it there is no sum.
fn ephemeral(pod: &PodStats, disk: FsStats, extra: &Extra) -> Option<FsStats> {
    if extra.layers.is_none() || extra.volumes.is_none() {
        return None;
    }
    let own = pod.containers.iter().flat_map(|container| [container.rootfs, container.logs]);
    let volumes =
        volumes(extra, &pod.uid).iter().filter(|volume| volume.on_disk).map(|volume| volume.stats.fs);
    let parts: Vec<FsStats> = own.chain(volumes).flatten().collect();
    let sum = |of: fn(&FsStats) -> u64| parts.iter().map(of).fold(0, u64::saturating_add);
    Some(FsStats {
        time_unix_nano: parts.iter().map(|part| part.time_unix_nano).max()?,
        capacity: disk.capacity,
        used_bytes: sum(|part| part.used_bytes),
        inodes_used: Some(sum(|part| part.inodes_used.unwrap_or(0))),
    })
}

#[cfg(test)]
mod tests {
    use bulkhead_api::evictd::v1::{ContainerStats, FsCapacity, NetworkStats, NodeStats, VolumeStats};

    use bulkhead_model::runtime::ContainerState::Running;

    use super::*;
    use crate::testing::{container, plan, runtime_pod, view};

    fn figures(time: u64, used: u64) -> FsStats {
        FsStats { time_unix_nano: time, capacity: None, used_bytes: used, inodes_used: Some(1) }
    }

    fn two() -> Plan {
        let mut pod = runtime_pod("u", 1);
        pod.containers = ["a", "b"].map(|name| container(name, &format!("id-{name}"), Running)).into();
        plan(&[(view("u", "/kubepods/podu"), pod)])
    }

    fn summary() -> Summary {
        let container = |name: &str| ContainerStats { name: name.to_owned(), ..Default::default() };
        let fs = FsStats { capacity: Some(FsCapacity { inodes: 9, ..Default::default() }), ..figures(1, 7) };
        Summary {
            node: Some(NodeStats { fs: Some(fs), ..Default::default() }),
            pods: vec![PodStats {
                uid: "u".to_owned(),
                containers: vec![container("a"), container("b")],
                ..Default::default()
            }],
        }
    }

    fn volume(name: &str, used: u64, on_disk: bool) -> Volume {
        Volume { stats: VolumeStats { name: name.to_owned(), fs: Some(figures(4, used)) }, on_disk }
    }

    fn extra() -> Extra {
        Extra {
            layers: Some(
                [("id-a".to_owned(), figures(2, 100)), ("id-of-another".to_owned(), figures(2, 1))].into(),
            ),
            image_fs: Some(figures(3, 50)),
            container_fs: Some(figures(3, 60)),
            logs: [(("u".to_owned(), "b".to_owned()), figures(5, 20))].into(),
            networks: [("u".to_owned(), NetworkStats { time_unix_nano: 6, ..Default::default() })].into(),
            volumes: Some([("u".to_owned(), vec![volume("d", 3, true), volume("m", 1000, false)])].into()),
            ..Extra::default()
        }
    }

    #[test]
    fn everything_is_put_where_it_belongs() {
        let whole = whole(summary(), &two(), &extra());
        let node = whole.node.unwrap();
        assert_eq!((node.image_fs.unwrap().used_bytes, node.container_fs.unwrap().used_bytes), (50, 60));
        let pod = &whole.pods[0];
        let parts: Vec<_> = pod
            .containers
            .iter()
            .map(|c| (c.rootfs.map(|f| f.used_bytes), c.logs.map(|f| f.used_bytes)))
            .collect();
        assert_eq!(parts, [(Some(100), None), (None, Some(20))]);
        assert_eq!(pod.network.as_ref().unwrap().time_unix_nano, 6);
        assert_eq!(pod.volumes.iter().map(|v| v.name.as_str()).collect::<Vec<_>>(), ["d", "m"]);
        let taken = pod.ephemeral_storage.unwrap();
        assert_eq!(
            (taken.used_bytes, taken.inodes_used, taken.time_unix_nano),
            (123, Some(3), 5),
            "not the one in memory"
        );
        assert_eq!(taken.capacity.unwrap().inodes, 9, "of the node's disk");
    }

    #[test]
    fn of_a_part_there_is_no_sum() {
        for missing in
            [Extra { layers: None, ..extra() }, Extra { volumes: None, ..extra() }, Extra::default()]
        {
            let pod = whole(summary(), &two(), &missing).pods.remove(0);
            assert_eq!(pod.ephemeral_storage, None, "{missing:?}");
        }
    }
}
