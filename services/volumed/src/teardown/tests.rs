//! Mounts and links in a pod's directory, against set-up and teardown.

use std::num::NonZeroU64;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use rustix::mount::mount_bind;

use super::*;
use crate::empty_dir;
use crate::names::{EMPTY_DIR, VolumeName};
use crate::spec::Medium;
use crate::testing::{Pods, may_mount};

const MEMORY: Medium = Medium::Memory { size: NonZeroU64::new(1 << 20) };

fn down(pods: &Pods, uid: &PodUid) -> Result<bool, Error> {
    tear_down(pods.path(), uid, &|| false)
}

fn up(pods: &Pods, uid: &PodUid, medium: Medium) -> Result<bool, Error> {
    let name = &VolumeName::parse("v").unwrap();
    let place =
        empty_dir::Place { pods: pods.path(), uid, folder: crate::names::EMPTY_DIR, name, fs_group: None };
    empty_dir::set_up(&place, medium)
}

/// Something precious, beside the pods' folder.
struct Outside(tempfile::TempDir);

impl Outside {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        for folder in ["", EMPTY_DIR, "volumes", "v"] {
            let folder = dir.path().join(folder);
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join("kept"), "precious").unwrap();
            std::fs::set_permissions(&folder, PermissionsExt::from_mode(0o750)).unwrap();
        }
        Self(dir)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    /// A link text that leads here from anywhere in a pods' folder without crossing a mount, where there is none.
    fn relative(&self) -> PathBuf {
        let real = self.path().canonicalize().unwrap();
        Path::new(&"../".repeat(12)).join(real.strip_prefix("/").unwrap())
    }

    /// Every path with its mode and content.
    fn state(&self) -> Vec<(String, u32, String)> {
        let mut found = Vec::new();
        let mut todo = vec![self.path().to_owned()];
        while let Some(path) = todo.pop() {
            let metadata = path.symlink_metadata().unwrap();
            let mode = metadata.permissions().mode();
            found.push((
                path.display().to_string(),
                mode,
                std::fs::read_to_string(&path).unwrap_or_default(),
            ));
            if metadata.is_dir() {
                todo.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
            }
        }
        found.sort();
        found
    }
}

#[test]
fn down_is_the_end_of_volumes_and_not_of_the_pods_directory() {
    let pods = Pods::new();
    let uid = pods.add("u1");
    assert!(!down(&pods, &uid).unwrap());
    assert!(!down(&pods, &PodUid::parse("never-seen").unwrap()).unwrap());
    up(&pods, &uid, Medium::Disk).unwrap();
    std::fs::create_dir_all(pods.empty_dir("u1", "v").join("a/b")).unwrap();
    // What another agent left.
    let csi = pods.path().join("u1/volumes/kubernetes.io~csi/v1");
    std::fs::create_dir_all(&csi).unwrap();
    std::fs::write(csi.join("vol_data.json"), "{}").unwrap();
    std::fs::write(pods.path().join("u1/etc-hosts"), "").unwrap();
    assert!(down(&pods, &uid).unwrap());
    let left: Vec<_> =
        std::fs::read_dir(pods.path().join("u1")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["etc-hosts"]);
    assert!(!down(&pods, &uid).unwrap());
}

#[test]
fn a_bind_mount_is_unmounted_and_its_files_survive() {
    if !may_mount() {
        return;
    }
    let pods = Pods::new();
    let outside = Outside::new();
    let uid = pods.add("u1");
    up(&pods, &uid, Medium::Disk).unwrap();
    let volume = pods.empty_dir("u1", "v");
    let odd = volume.join("a b\\040c\nd");
    for inside in [&odd, &volume.join("x/y")] {
        std::fs::create_dir_all(inside).unwrap();
        mount_bind(outside.path(), inside).unwrap();
    }
    // One over another, a file, and one that a later one hides.
    mount_bind(outside.path().join("v"), &odd).unwrap();
    std::fs::write(volume.join("f"), "").unwrap();
    mount_bind(outside.path().join("kept"), volume.join("f")).unwrap();
    mount_bind(outside.path(), volume.join("x")).unwrap();
    let before = outside.state();
    assert!(down(&pods, &uid).unwrap());
    assert_eq!(outside.state(), before);
    assert_eq!(pods.mounts(), [""; 0].map(PathBuf::from));
    assert!(!pods.path().join("u1/volumes").exists());
}

#[test]
fn a_mount_in_use_stays_and_so_does_everything_else() {
    if !may_mount() {
        return;
    }
    let pods = Pods::new();
    let uid = pods.add("u1");
    up(&pods, &uid, MEMORY).unwrap();
    let held = std::fs::File::create(pods.empty_dir("u1", "v").join("open")).unwrap();
    let disk = pods.path().join("u1/volumes/kubernetes.io~empty-dir/other");
    std::fs::create_dir(&disk).unwrap();
    match down(&pods, &uid) {
        Err(Error::StillInUse { path }) => assert_eq!(path, pods.empty_dir("u1", "v")),
        other => panic!("{other:?}"),
    }
    assert!(disk.exists());
    drop(held);
    assert!(down(&pods, &uid).unwrap());
    assert_eq!(pods.mounts().len(), 0);
}

#[test]
fn nothing_is_removed_through_a_mount_that_came_in_between() {
    if !may_mount() {
        return;
    }
    let pods = Pods::new();
    let outside = Outside::new();
    let before = outside.state();
    let uid = pods.add("u1");
    up(&pods, &uid, Medium::Disk).unwrap();
    let inside = pods.empty_dir("u1", "v").join("deep/er");
    std::fs::create_dir_all(&inside).unwrap();
    mount_bind(outside.path(), &inside).unwrap();
    // Removal alone, as if the mount had come after unmounting.
    let volumes = Dir::trusted(&pods.path().join("u1/volumes")).unwrap();
    assert!(matches!(empty(&volumes, &|| false), Err(Error::StillMounted { .. })));
    assert_eq!(outside.state(), before);
    // And as the volumes themselves.
    drop(volumes);
    assert!(down(&pods, &uid).unwrap());
    up(&pods, &uid, Medium::Disk).unwrap();
    mount_bind(outside.path(), pods.path().join("u1")).unwrap();
    assert!(matches!(down(&pods, &uid), Err(Error::MountInTheWay { .. })));
    assert_eq!(outside.state(), before);
}

#[test]
fn volumes_that_were_moved_elsewhere_in_the_pod_leave_no_mount() {
    if !may_mount() {
        return;
    }
    let pods = Pods::new();
    let uid = pods.add("u1");
    up(&pods, &uid, MEMORY).unwrap();
    let pod = pods.path().join("u1");
    std::fs::rename(pod.join("volumes"), pod.join("hidden")).unwrap();
    assert!(down(&pods, &uid).unwrap());
    assert_eq!(pods.mounts().len(), 0);
}

#[test]
fn no_link_at_any_level_leads_out() {
    for level in ["", "volumes", "volumes/kubernetes.io~empty-dir", "volumes/kubernetes.io~empty-dir/v"] {
        let pods = Pods::new();
        let outside = Outside::new();
        let before = outside.state();
        let uid = PodUid::parse("u1").unwrap();
        let link = pods.path().join("u1").join(level);
        let link = link.to_str().unwrap().trim_end_matches('/');
        std::fs::create_dir_all(Path::new(link).parent().unwrap()).unwrap();
        symlink(outside.relative(), link).unwrap();
        for medium in [Medium::Disk, MEMORY] {
            let result = up(&pods, &uid, medium);
            assert!(matches!(result, Err(Error::NotADirectory { .. })), "{level:?} {medium:?}: {result:?}");
        }
        let result = down(&pods, &uid);
        if level.is_empty() {
            // The pod's directory is not ours to remove, and a link there is worth a look.
            assert!(matches!(result, Err(Error::NotADirectory { .. })), "{result:?}");
        } else {
            assert!(result.unwrap());
            assert!(Path::new(link).symlink_metadata().is_err(), "{level}");
        }
        assert_eq!(outside.state(), before, "{level}");
    }
}

#[test]
fn a_race_between_a_directory_and_a_link_never_leads_out() {
    const ROUNDS: usize = 20_000;
    const SWAPS: usize = 300;
    for level in
        ["u1", "u1/volumes", "u1/volumes/kubernetes.io~empty-dir", "u1/volumes/kubernetes.io~empty-dir/v"]
    {
        let pods = Pods::new();
        let outside = Outside::new();
        let before = outside.state();
        let uid = pods.add("u1");
        let target = pods.path().join(level);
        let aside = pods.path().join("aside");
        let swaps = AtomicUsize::new(0);
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    if target.symlink_metadata().is_ok_and(|found| found.is_dir()) {
                        let _ = std::fs::remove_dir_all(&aside);
                    }
                    let _ = std::fs::rename(&target, &aside);
                    if symlink(outside.relative(), &target).is_ok() {
                        swaps.fetch_add(1, Ordering::Relaxed);
                        std::thread::yield_now();
                    }
                    let _ = std::fs::remove_file(&target);
                    let _ = std::fs::rename(&aside, &target);
                }
            });
            for _ in 0..ROUNDS {
                // Either may be refused; neither may do harm.
                let _ = up(&pods, &uid, Medium::Disk);
                let _ = down(&pods, &uid);
                if swaps.load(Ordering::Relaxed) > SWAPS {
                    break;
                }
            }
            done.store(true, Ordering::Relaxed);
        });
        assert!(swaps.load(Ordering::Relaxed) > 0, "{level}: there was no race");
        assert_eq!(outside.state(), before, "{level}");
    }
}

#[test]
fn time_that_is_over_stops_it_and_the_next_call_ends_it() {
    let pods = Pods::new();
    let uid = pods.add("u1");
    up(&pods, &uid, Medium::Disk).unwrap();
    std::fs::create_dir_all(pods.empty_dir("u1", "v").join("a/b/c")).unwrap();
    assert!(matches!(tear_down(pods.path(), &uid, &|| true), Err(Error::Interrupted)));
    // A volume is whole at its name, or not there.
    assert!(!pods.empty_dir("u1", "v").exists());
    assert!(up(&pods, &uid, Medium::Disk).unwrap());
    assert!(down(&pods, &uid).unwrap());
    assert!(!pods.path().join("u1/volumes").exists());
}

#[test]
fn the_three_capabilities_of_the_access_file_are_enough() {
    use std::os::unix::fs::chown;

    if !rustix::process::geteuid().is_root() || !may_mount() {
        eprintln!("skipped: giving capabilities up takes root");
        return;
    }
    let pods = Pods::new();
    let uid = pods.add("u1");
    let pod = pods.path().join("u1");
    chown(&pod, Some(61_001), Some(61_001)).unwrap();
    std::fs::set_permissions(&pod, PermissionsExt::from_mode(0o2770)).unwrap();
    let with_three = |work: &(dyn Fn() -> bool + Sync)| {
        let row = &bulkhead_api::access::ACCESS.process["volumed"];
        let three =
            row.capabilities.iter().map(|row| row.name.parse::<caps::Capability>().unwrap()).collect();
        std::thread::scope(|scope| {
            // Capabilities belong to a thread.
            let thread = scope.spawn(move || {
                caps::set(None, caps::CapSet::Effective, &three).unwrap();
                work()
            });
            thread.join().unwrap()
        })
    };
    for medium in [Medium::Disk, MEMORY] {
        assert!(with_three(&|| up(&pods, &uid, medium).unwrap()), "{medium:?}");
        // As containers of other users leave it: closed, sticky, and not ours.
        let volume = pods.empty_dir("u1", "v");
        let tree = volume.join("closed/sticky");
        std::fs::create_dir_all(&tree).unwrap();
        std::fs::write(tree.join("file"), "").unwrap();
        for (path, mode) in
            [(tree.join("file"), 0), (tree, 0o1777), (volume.join("closed"), 0), (volume, 0o1700)]
        {
            chown(&path, Some(61_002), Some(61_002)).unwrap();
            std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
        }
        assert!(with_three(&|| down(&pods, &uid).unwrap()), "{medium:?}");
        assert!(!pod.join("volumes").exists());
    }
}
