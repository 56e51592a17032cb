//! emptyDir: a directory that all of the pod's users may write to, on the node's disk, in memory or in huge pages. Other
//! plug-ins put their files into one.

use std::path::Path;

use crate::beneath::Dir;
use crate::error::Error;
use crate::mounts::{Cover, cover, mount_hugetlbfs, mount_tmpfs};
use crate::names::{PodUid, VOLUMES, VolumeName};
use crate::own::directory_mode;
use crate::spec::Medium;

/// The mode of an emptyDir (API: it is writable for every user of the pod).
const OPEN_TO_ALL: u32 = 0o777;

/// Where a volume goes.
pub(crate) struct Place<'a> {
    /// `{root}/pods`.
    pub(crate) pods: &'a Path,
    pub(crate) uid: &'a PodUid,
    /// The plug-in's.
    pub(crate) folder: &'static str,
    pub(crate) name: &'a VolumeName,
    /// The pod's.
    pub(crate) fs_group: Option<u32>,
}

impl Place<'_> {
    /// The folder of the plug-in's volumes in the pod's directory; made if need be.
    pub(crate) fn folder(&self) -> Result<Dir, Error> {
        let all = Dir::trusted(self.pods)?;
        let Some(pod) = all.open(self.uid.as_str())? else {
            return Err(Error::NoPodDirectory { path: self.pods.join(self.uid.as_str()) });
        };
        pod.open_or_make_closed(VOLUMES)?.open_or_make_closed(self.folder)
    }
}

/// Makes the volume. What stands already is left as it is, with its content and its owner. Returns whether anything was
/// made.
pub(crate) fn set_up(place: &Place<'_>, medium: Medium) -> Result<bool, Error> {
    let volumes = place.folder()?;
    let name = place.name.as_str();
    match (medium, cover(&volumes, name)?) {
        (Medium::Memory { .. }, Cover::Tmpfs) | (Medium::HugePages { .. }, Cover::HugePages) => Ok(false),
        (Medium::Disk, Cover::None) => Ok(directory(&volumes, name, place.fs_group)?.1),
        (Medium::Memory { size }, Cover::None) => {
            let (directory, _) = directory(&volumes, name, place.fs_group)?;
            mount_tmpfs(&directory, size, place.fs_group)?;
            Ok(true)
        }
        (Medium::HugePages { page }, Cover::None) => {
            let (directory, _) = directory(&volumes, name, place.fs_group)?;
            mount_hugetlbfs(&directory, page, place.fs_group)?;
            Ok(true)
        }
        (_, Cover::Tmpfs | Cover::HugePages | Cover::Other) => {
            Err(Error::MountInTheWay { path: volumes.path().join(name) })
        }
    }
}

/// The volume's directory, and whether it is new.
fn directory(volumes: &Dir, name: &str, fs_group: Option<u32>) -> Result<(Dir, bool), Error> {
    match volumes.open(name)? {
        Some(directory) => Ok((directory, false)),
        None => Ok((volumes.make_whole(name, directory_mode(OPEN_TO_ALL, fs_group), fs_group)?, true)),
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;
    use crate::names::EMPTY_DIR;
    use crate::testing::{Pods, may_mount};

    fn set_up(pods: &Path, uid: &PodUid, name: &VolumeName, medium: Medium) -> Result<bool, Error> {
        super::set_up(&Place { pods, uid, folder: EMPTY_DIR, name, fs_group: None }, medium)
    }

    fn name(text: &str) -> VolumeName {
        VolumeName::parse(text).unwrap()
    }

    fn statfs_bytes(path: &Path) -> u64 {
        let stat = rustix::fs::statvfs(path).unwrap();
        stat.f_blocks * stat.f_frsize
    }

    #[test]
    fn a_directory_open_to_all_that_keeps_its_content() {
        let pods = Pods::new();
        let uid = pods.add("u1");
        assert!(set_up(pods.path(), &uid, &name("data"), Medium::Disk).unwrap());
        let path = pods.empty_dir("u1", "data");
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o7777, 0o777);
        std::fs::write(path.join("file"), "kept").unwrap();
        // A container may change its own volume.
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o700)).unwrap();
        assert!(!set_up(pods.path(), &uid, &name("data"), Medium::Disk).unwrap());
        assert_eq!(std::fs::read_to_string(path.join("file")).unwrap(), "kept");
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o7777, 0o700);
    }

    #[test]
    fn nobody_else_can_reach_a_volume_through_its_parents() {
        let pods = Pods::new();
        let uid = pods.add("u1");
        // As its owner makes it, with a group of its own that is inherited.
        std::fs::set_permissions(pods.path().join("u1"), PermissionsExt::from_mode(0o2770)).unwrap();
        set_up(pods.path(), &uid, &name("data"), Medium::Disk).unwrap();
        let path = pods.empty_dir("u1", "data");
        for parent in path.ancestors().skip(1).take(2) {
            let mode = parent.metadata().unwrap().permissions().mode();
            assert_eq!(mode & 0o077, 0, "{}: {mode:o}", parent.display());
        }
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o777);
    }

    #[test]
    fn a_pod_without_a_directory_is_refused() {
        let pods = Pods::new();
        let uid = PodUid::parse("u1").unwrap();
        let result = set_up(pods.path(), &uid, &name("data"), Medium::Disk);
        assert!(matches!(result, Err(Error::NoPodDirectory { .. })));
        assert!(!pods.path().join("u1").exists());
    }

    #[test]
    fn a_file_in_place_of_the_volume_is_left_alone() {
        let pods = Pods::new();
        let uid = pods.add("u1");
        set_up(pods.path(), &uid, &name("other"), Medium::Disk).unwrap();
        let path = pods.empty_dir("u1", "data");
        std::fs::write(&path, "file").unwrap();
        for medium in [Medium::Disk, Medium::Memory { size: None }] {
            let result = set_up(pods.path(), &uid, &name("data"), medium);
            assert!(matches!(result, Err(Error::NotADirectory { .. })), "{medium:?}");
        }
        std::fs::remove_file(&path).unwrap();
        symlink(pods.empty_dir("u1", "other"), &path).unwrap();
        for medium in [Medium::Disk, Medium::Memory { size: None }] {
            let result = set_up(pods.path(), &uid, &name("data"), medium);
            assert!(matches!(result, Err(Error::NotADirectory { .. })), "{medium:?}");
        }
    }

    #[test]
    fn memory_is_a_tmpfs_of_the_given_size_and_mounted_once() {
        if !may_mount() {
            return;
        }
        let pods = Pods::new();
        let uid = pods.add("u1");
        let medium = Medium::Memory { size: NonZeroU64::new(8 << 20) };
        assert!(set_up(pods.path(), &uid, &name("ram"), medium).unwrap());
        let path = pods.empty_dir("u1", "ram");
        assert_eq!(statfs_bytes(&path), 8 << 20);
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o7777, 0o777);
        std::fs::write(path.join("file"), "kept").unwrap();
        assert!(!set_up(pods.path(), &uid, &name("ram"), medium).unwrap());
        assert_eq!(std::fs::read_to_string(path.join("file")).unwrap(), "kept");
        assert_eq!(pods.mounts().len(), 1);
    }

    #[test]
    fn a_foreign_mount_in_place_of_a_volume_is_refused() {
        if !may_mount() {
            return;
        }
        let pods = Pods::new();
        let uid = pods.add("u1");
        set_up(pods.path(), &uid, &name("data"), Medium::Disk).unwrap();
        let outside = tempfile::tempdir().unwrap();
        rustix::mount::mount_bind(outside.path(), pods.empty_dir("u1", "data")).unwrap();
        let result = set_up(pods.path(), &uid, &name("data"), Medium::Disk);
        assert!(matches!(result, Err(Error::MountInTheWay { .. })));
    }
}
