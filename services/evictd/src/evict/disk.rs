//! What one pod takes of disks, put together. Pure.

use std::collections::BTreeMap;

use bulkhead_api::syncd::v1::StatsView;
use bulkhead_model::eviction::{DiskUse, LocalLimits, Signal};
use bulkhead_model::quantity::Quantity;

use crate::logs::Taken;

/// What one pod takes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PodDisk {
    /// Running containers by name.
    pub(crate) containers: BTreeMap<String, ContainerDisk>,
    /// By name; `None` when volumed did not say.
    pub(crate) volumes: Option<BTreeMap<String, VolumeDisk>>,
}

/// What one container takes. `None`: it was not measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ContainerDisk {
    /// What it wrote into its root.
    pub(crate) layer: Option<Taken>,
    /// Logs of all its instances.
    pub(crate) logs: Option<Taken>,
}

/// What one volume takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct VolumeDisk {
    /// What is in it.
    pub(crate) taken: Taken,
    /// Whether that is on the node's disk.
    pub(crate) on_disk: bool,
}

impl ContainerDisk {
    /// Layer and logs, when both are known.
    pub(crate) fn whole(&self) -> Option<Taken> {
        Some(sum([self.layer?, self.logs?]))
    }
}

impl PodDisk {
    /// For its own limits. Of a part there is no sum.
    pub(crate) fn limited(&self, layers_elsewhere: bool) -> DiskUse {
        let volumes = self.volumes.iter().flatten();
        let container = |(name, disk): (&String, &ContainerDisk)| {
            let taken = if layers_elsewhere { disk.logs? } else { disk.whole()? };
            Some((name.clone(), taken.bytes))
        };
        DiskUse {
            volumes: volumes.map(|(name, volume)| (name.clone(), volume.taken.bytes)).collect(),
            total: self.total().map(|taken| taken.bytes),
            containers: self.containers.iter().filter_map(container).collect(),
        }
    }

    /// What it takes of the disk that the signal is about. `None` when part of that is not known.
    pub(crate) fn of(&self, signal: Signal, layers_elsewhere: bool) -> Option<Taken> {
        if !layers_elsewhere {
            return self.total();
        }
        match signal {
            Signal::NodefsAvailable | Signal::NodefsInodesFree => {
                let logs: Option<Vec<_>> = self.containers.values().map(|disk| disk.logs).collect();
                Some(sum([sum(logs?), self.volumes_on_disk()?]))
            }
            _ => {
                let layers: Option<Vec<_>> = self.containers.values().map(|disk| disk.layer).collect();
                layers.map(sum)
            }
        }
    }

    fn total(&self) -> Option<Taken> {
        let containers: Option<Vec<_>> = self.containers.values().map(ContainerDisk::whole).collect();
        Some(sum([sum(containers?), self.volumes_on_disk()?]))
    }

    fn volumes_on_disk(&self) -> Option<Taken> {
        let volumes = self.volumes.as_ref()?.values();
        Some(sum(volumes.filter(|volume| volume.on_disk).map(|volume| volume.taken)))
    }
}

/// The limits of a pod, as syncd tells them. What cannot be understood limits nothing.
pub(crate) fn limits(pod: &StatsView) -> LocalLimits {
    let read = |text: &str| Quantity::parse(text).ok();
    let volumes = pod.limited_volumes.iter();
    let containers = pod.containers.iter();
    LocalLimits {
        empty_dirs: volumes.filter_map(|v| Some((v.name.clone(), read(&v.size_limit)?))).collect(),
        pod: read(&pod.ephemeral_limit),
        containers: containers.filter_map(|c| Some((c.name.clone(), read(&c.ephemeral_limit)?))).collect(),
    }
}

fn sum(parts: impl IntoIterator<Item = Taken>) -> Taken {
    parts.into_iter().fold(Taken::default(), |sum, part| Taken {
        bytes: sum.bytes.saturating_add(part.bytes),
        inodes: sum.inodes.saturating_add(part.inodes),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(bytes: u64) -> Taken {
        Taken { bytes, inodes: 1 }
    }

    fn pod() -> PodDisk {
        let container = ContainerDisk { layer: Some(taken(100)), logs: Some(taken(20)) };
        let volume = |bytes, on_disk| VolumeDisk { taken: taken(bytes), on_disk };
        PodDisk {
            containers: [("c".to_owned(), container)].into(),
            volumes: Some([("d".to_owned(), volume(3, true)), ("m".to_owned(), volume(1000, false))].into()),
        }
    }

    #[test]
    fn each_disk_has_its_part() {
        let pod = pod();
        let bytes = |signal, elsewhere| pod.of(signal, elsewhere).unwrap().bytes;
        assert_eq!(bytes(Signal::NodefsAvailable, false), 123, "not what is in memory");
        assert_eq!(bytes(Signal::ImagefsAvailable, false), 123);
        assert_eq!(bytes(Signal::NodefsAvailable, true), 23);
        assert_eq!(bytes(Signal::ImagefsAvailable, true), 100);
        let used = pod.limited(false);
        assert_eq!((used.total, used.containers["c"], used.volumes["m"]), (Some(123), 120, 1000));
        assert_eq!(pod.limited(true).containers["c"], 20, "the layer is on another disk");
    }

    #[test]
    fn of_a_part_there_is_no_sum() {
        let no_volumes = PodDisk { volumes: None, ..pod() };
        assert_eq!(
            (no_volumes.limited(false).total, no_volumes.of(Signal::NodefsAvailable, true)),
            (None, None)
        );
        let mut no_layer = pod();
        no_layer.containers.insert("e".to_owned(), ContainerDisk { layer: None, logs: Some(taken(1)) });
        let used = no_layer.limited(false);
        assert_eq!((used.total, used.containers.get("e")), (None, None));
        assert_eq!(no_layer.of(Signal::ImagefsAvailable, true), None);
    }
}
