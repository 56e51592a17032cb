//! What the launcher does as root: makes the top of the pods' tree for an unprivileged owner, and takes the tree down.
//! Must never give away anything above `kubepods`, nor touch another user's cgroups.

use std::io;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Gid, Uid, chownat};

use crate::layout::{CgroupName, CgroupPath, Layout, QosTier};
use crate::tree::{self, Removal};
use crate::{CgroupError, Mounts, file};

/// The files of a cgroup that its owner writes. The kernel gives those of cgroups made later to whoever makes them.
const OWNED: [&str; 17] = [
    "cgroup.kill",
    "cgroup.procs",
    "cgroup.subtree_control",
    "cgroup.threads",
    "cpu.cfs_period_us",
    "cpu.cfs_quota_us",
    "cpu.max",
    "cpu.shares",
    "cpu.weight",
    "cpuset.cpus",
    "cpuset.mems",
    "memory.limit_in_bytes",
    "memory.low",
    "memory.max",
    "memory.min",
    "pids.max",
    "tasks",
];

/// Most files of a cgroup that are looked at. The kernel makes about a hundred.
const FILES: usize = 1024;

/// Who gets the tree: the user and group of `syncd`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The user id.
    pub uid: u32,
    /// The group id.
    pub gid: u32,
}

/// How far taking down has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TearDown {
    /// Nothing is left.
    Done,
    /// Something is still there: wait a moment and call again.
    Waiting {
        /// Processes that were there and were sent SIGKILL.
        processes: usize,
    },
}

/// Makes `<root>/kubepods` in every hierarchy and gives it to `owner`. Safe to repeat.
///
/// Cgroups of an earlier run, or of a kubelet that this node agent replaces, are handed over too: the tree's top, the QoS
/// classes and the pods. Containers stay the runtime's. Directories above `kubepods` stay root's.
pub fn prepare(mounts: &Mounts, root: &CgroupPath, owner: Owner) -> Result<(), CgroupError> {
    if owner.uid == u32::MAX || owner.gid == u32::MAX {
        return Err(CgroupError::InvalidOwner { uid: owner.uid, gid: owner.gid });
    }
    let layout = Layout::new(root.clone());
    let top = layout.path(&CgroupName::Kubepods);
    tree::create(mounts, &top)?;
    for mount in mounts.hierarchies() {
        for qos in [QosTier::Guaranteed, QosTier::Burstable, QosTier::BestEffort] {
            let tier = layout.tier(qos).below(mount);
            let Some(children) = file::children(&tier)? else { continue };
            give(&tier, owner)?;
            for child in children {
                if child.file_name().and_then(|name| Layout::pod_uid(name.to_str()?)).is_some() {
                    give(&child, owner)?;
                }
            }
        }
    }
    Ok(())
}

/// Kills what is left in `<root>/kubepods` and removes it, and the directories above it when nothing else is in them.
///
/// One step that never waits: killed processes take a moment to leave. Call again, a bounded number of times, while the
/// answer is [`TearDown::Waiting`].
pub fn tear_down(mounts: &Mounts, root: &CgroupPath) -> Result<TearDown, CgroupError> {
    let top = Layout::new(root.clone()).path(&CgroupName::Kubepods);
    let killed = tree::kill(mounts, &top)?;
    if let Removal::Busy { .. } = tree::remove_all(mounts, &top)? {
        return Ok(TearDown::Waiting { processes: killed.signalled });
    }
    for step in root.lineage().iter().rev() {
        // Busy: somebody else is in there, and it is theirs.
        if let Removal::Busy { .. } = tree::remove_one(mounts, step)? {
            break;
        }
    }
    Ok(TearDown::Done)
}

fn give(dir: &Path, owner: Owner) -> Result<(), CgroupError> {
    chown(dir, owner)?;
    for name in OWNED.map(ToOwned::to_owned).into_iter().chain(huge_page_files(dir)?) {
        match chown(&dir.join(name), owner) {
            // Each controller and version has only some of them.
            Err(CgroupError::Chown { source, .. }) if file::is_gone(&source) => {}
            result => result?,
        }
    }
    Ok(())
}

/// Limits of huge pages: a file for every size that the machine has.
fn huge_page_files(dir: &Path) -> Result<Vec<String>, CgroupError> {
    let failed = |source| CgroupError::Read { path: dir.to_owned(), source };
    let entries = std::fs::read_dir(dir).map_err(failed)?.take(FILES);
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let is_limit = |name: &String| {
        name.starts_with("hugetlb.") && (name.ends_with(".max") || name.ends_with(".limit_in_bytes"))
    };
    Ok(names.filter(is_limit).collect())
}

fn chown(path: &Path, owner: Owner) -> Result<(), CgroupError> {
    let Owner { uid, gid } = owner;
    // Not through a link: whoever could plant one would choose what root gives away.
    let flags = AtFlags::SYMLINK_NOFOLLOW;
    chownat(CWD, path, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)), flags).map_err(|errno| {
        CgroupError::Chown { path: path.to_owned(), uid, gid, source: io::Error::from(errno) }
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::MetadataExt;

    use super::*;
    use crate::fixture::{V2, path};

    fn this_user() -> Owner {
        Owner { uid: rustix::process::getuid().as_raw(), gid: rustix::process::getgid().as_raw() }
    }

    #[test]
    fn an_owner_that_the_kernel_would_not_set_is_refused() {
        let v2 = V2::new();
        for owner in [Owner { uid: u32::MAX, gid: 0 }, Owner { uid: 0, gid: u32::MAX }] {
            let error = prepare(&v2.mounts(), &CgroupPath::root(), owner).unwrap_err();
            assert!(matches!(error, CgroupError::InvalidOwner { .. }), "{error}");
        }
    }

    #[test]
    fn the_tree_and_earlier_pods_are_given_and_nothing_else() {
        if !rustix::process::getuid().is_root() {
            eprintln!("skipped: only root can give files away");
            return;
        }
        let v2 = V2::new();
        for cgroup in ["/b", "/b/kubepods", "/b/kubepods/burstable", "/b/kubepods/burstable/podx"] {
            v2.kernel_makes(cgroup);
        }
        v2.kernel_makes("/b/kubepods/burstable/podx/container");
        v2.kernel_makes("/b/kubepods/system");
        prepare(&v2.mounts(), &path("/b"), Owner { uid: 4711, gid: 4712 }).unwrap();
        let owner = |file: &str| {
            let seen = fs::metadata(v2.file("/", file)).unwrap();
            (seen.uid(), seen.gid())
        };
        for given in
            ["", "/cgroup.subtree_control", "/memory.max", "/burstable", "/burstable/podx/cgroup.kill"]
        {
            assert_eq!(owner(&format!("b/kubepods{given}")), (4711, 4712), "{given}");
        }
        for kept in ["b", "b/cgroup.procs", "b/kubepods/burstable/podx/container", "b/kubepods/system"] {
            assert_eq!(owner(kept), (0, 0), "{kept}");
        }
        assert_eq!(owner("b/kubepods/cgroup.controllers"), (0, 0), "what nobody writes");
    }

    #[test]
    fn a_link_is_not_followed() {
        let v2 = V2::new();
        let outside = tempfile::tempdir().unwrap();
        v2.kernel_makes("/kubepods");
        v2.delete("/kubepods", "cgroup.procs");
        let target = outside.path().join("gone");
        std::os::unix::fs::symlink(&target, v2.file("/kubepods", "cgroup.procs")).unwrap();
        // Following the link would meet no file there.
        chown(&v2.file("/kubepods", "cgroup.procs"), this_user()).unwrap();
    }

    #[test]
    fn taking_down_leaves_what_others_have_beside_it() {
        let v2 = V2::new();
        let Mounts::V2 { mountpoint } = v2.mounts() else { panic!("v2 expected") };
        fs::create_dir_all(mountpoint.join("a/b/kubepods/burstable/podx")).unwrap();
        fs::create_dir_all(mountpoint.join("a/other")).unwrap();
        assert_eq!(tear_down(&v2.mounts(), &path("/a/b")).unwrap(), TearDown::Done);
        assert!(!mountpoint.join("a/b").exists());
        assert!(mountpoint.join("a/other").exists());
        assert_eq!(tear_down(&v2.mounts(), &path("/a/b")).unwrap(), TearDown::Done, "again");
    }
}
