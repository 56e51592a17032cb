//! The pods' cgroups as `syncd` uses them: make, limit, list, kill, remove. Runs without privileges in a tree that the
//! launcher prepared. Must never name a container's cgroup: those are the runtime's.

use std::collections::BTreeSet;

use crate::layout::{CgroupName, CgroupPath, Layout, PodCgroup, QosTier};
use crate::limits::{self, Limits};
use crate::tree::{self, Killed, Removal};
use crate::{CgroupError, Mounts, file};

/// Makes and removes the cgroups beneath one `cgroupRoot`. Keeps no state: the file system is the state.
#[derive(Clone, Debug)]
pub struct CgroupManager {
    mounts: Mounts,
    layout: Layout,
}

impl CgroupManager {
    /// Works in `root` (`cgroupRoot` of KubeletConfiguration) of every hierarchy in `mounts`.
    pub fn new(mounts: Mounts, root: CgroupPath) -> Self {
        Self { mounts, layout: Layout::new(root) }
    }

    /// Where the cgroups are within a hierarchy.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Where the hierarchies are.
    pub fn mounts(&self) -> &Mounts {
        &self.mounts
    }

    /// Makes a cgroup and what is missing above it. True when anything was made; safe to repeat, and to call after an
    /// attempt that failed half-way.
    ///
    /// v2 controllers are passed on down to its parent; v1 cpusets take over their parent's processors.
    pub fn create(&self, name: &CgroupName) -> Result<bool, CgroupError> {
        tree::create(&self.mounts, &self.layout.path(name))
    }

    /// True when the cgroup is there in every hierarchy.
    pub fn exists(&self, name: &CgroupName) -> bool {
        let path = self.layout.path(name);
        self.mounts.hierarchies().iter().all(|mount| path.below(mount).is_dir())
    }

    /// Sets limits. Answers with the files that were written, huge pages under their controller's name: none when all was
    /// as asked.
    pub fn apply(&self, name: &CgroupName, limits: &Limits) -> Result<Vec<&'static str>, CgroupError> {
        limits::apply(&self.mounts, &self.layout.path(name), limits)
    }

    /// Removes a cgroup; of a pod also what a runtime left beneath it. Never waits: while processes are in it the
    /// answer is [`Removal::Busy`], and the caller tries again.
    ///
    /// `Kubepods` and the QoS classes are busy while they hold a pod.
    pub fn remove(&self, name: &CgroupName) -> Result<Removal, CgroupError> {
        let path = self.layout.path(name);
        match name {
            CgroupName::Pod(_) => tree::remove_all(&self.mounts, &path),
            CgroupName::Kubepods | CgroupName::Burstable | CgroupName::BestEffort => {
                tree::remove_one(&self.mounts, &path)
            }
        }
    }

    /// Every pod that has a cgroup in any hierarchy, also one that is only half made or half removed.
    pub fn list_pods(&self) -> Result<BTreeSet<PodCgroup>, CgroupError> {
        let mut pods = BTreeSet::new();
        for mount in self.mounts.hierarchies() {
            for qos in [QosTier::Guaranteed, QosTier::Burstable, QosTier::BestEffort] {
                let children = file::children(&self.layout.tier(qos).below(mount))?.unwrap_or_default();
                let names = children.iter().filter_map(|child| child.file_name()?.to_str());
                pods.extend(names.filter_map(Layout::pod_uid).map(|uid| PodCgroup { qos, uid }));
            }
        }
        Ok(pods)
    }

    /// The processes in a cgroup and beneath it; empty when it does not exist.
    pub fn pids(&self, name: &CgroupName) -> Result<BTreeSet<u32>, CgroupError> {
        tree::processes(&self.mounts, &self.layout.path(name))
    }

    /// Sends SIGKILL to all processes in a cgroup and beneath it. Repeat until [`pids`](Self::pids) is empty.
    ///
    /// On v2 the kernel does it, whoever owns the processes. On v1 they are signalled one by one, so an unprivileged
    /// caller reaches only processes of its own user; the others are counted as denied.
    pub fn kill(&self, name: &CgroupName) -> Result<Killed, CgroupError> {
        tree::kill(&self.mounts, &self.layout.path(name))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::PodUid;
    use crate::fixture::{V1, V2};

    fn pod(qos: QosTier, uid: &str) -> PodCgroup {
        PodCgroup { qos, uid: PodUid::parse(uid).unwrap() }
    }

    #[test]
    fn pods_are_found_wherever_a_part_of_them_is() {
        let v1 = V1::new();
        let manager = CgroupManager::new(v1.mounts(), CgroupPath::parse("/bulkhead").unwrap());
        assert!(manager.list_pods().unwrap().is_empty(), "before the tree is there");
        let make = |controller: &str, path: &str| {
            fs::create_dir_all(v1.mounts().controller(controller).unwrap().join(path)).unwrap();
        };
        make("cpu", "bulkhead/kubepods/poda/container");
        make("memory", "bulkhead/kubepods/burstable/podb");
        make("pids", "bulkhead/kubepods/burstable/podb");
        make("pids", "bulkhead/kubepods/besteffort/podc");
        make("pids", "bulkhead/kubepods/other");
        make("pids", "kubepods/podforeign");
        let expected =
            [pod(QosTier::Guaranteed, "a"), pod(QosTier::Burstable, "b"), pod(QosTier::BestEffort, "c")];
        assert_eq!(manager.list_pods().unwrap(), BTreeSet::from(expected));
    }

    #[test]
    fn a_qos_class_with_a_pod_stays_and_a_pod_goes_with_what_is_left_in_it() {
        let v2 = V2::new();
        let manager = CgroupManager::new(v2.mounts(), CgroupPath::root());
        let Mounts::V2 { mountpoint } = v2.mounts() else { panic!("v2 expected") };
        fs::create_dir_all(mountpoint.join("kubepods/burstable/podb/container")).unwrap();
        assert!(matches!(manager.remove(&CgroupName::Burstable).unwrap(), Removal::Busy { .. }));
        assert!(matches!(manager.remove(&CgroupName::Kubepods).unwrap(), Removal::Busy { .. }));
        let name = CgroupName::Pod(pod(QosTier::Burstable, "b"));
        assert!(manager.exists(&name));
        assert_eq!(manager.remove(&name).unwrap(), Removal::Removed);
        assert_eq!(manager.remove(&name).unwrap(), Removal::AlreadyGone);
        assert!(!manager.exists(&name));
        assert_eq!(manager.remove(&CgroupName::Burstable).unwrap(), Removal::Removed);
    }
}
