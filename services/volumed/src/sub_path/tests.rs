//! Known fault V5: a link in a volume must never show a container what is outside of it.

use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::testing::{Pods, may_mount};

fn parts(path: &str) -> Vec<String> {
    path.split('/').map(str::to_owned).collect()
}

/// Where the part was found.
fn found(volume: &Path, path: &str) -> Result<PathBuf, Error> {
    let top = Dir::trusted(volume)?;
    let fd = find(&top, &parts(path))?;
    Ok(std::fs::read_link(crate::beneath::descriptor_path(&fd)).unwrap())
}

fn folder() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().canonicalize().unwrap();
    (folder, path)
}

#[test]
fn links_that_stay_in_the_volume_are_followed_and_no_others() {
    let (_folder, volume) = folder();
    let (_outside, outside) = folder();
    std::fs::create_dir_all(volume.join("a/b")).unwrap();
    std::fs::write(volume.join("a/file"), "").unwrap();
    symlink("a/b", volume.join("in")).unwrap();
    symlink("../a/b", volume.join("a/up-and-in")).unwrap();
    symlink("/", volume.join("root")).unwrap();
    symlink("../../..", volume.join("up")).unwrap();
    symlink("../../..", volume.join("a/up")).unwrap();
    symlink(&outside, volume.join("out")).unwrap();
    symlink(volume.join("a"), volume.join("absolute")).unwrap();
    symlink("loop", volume.join("loop")).unwrap();
    symlink("/proc/self/root", volume.join("magic")).unwrap();
    symlink("nowhere", volume.join("dangling")).unwrap();
    for (path, expected) in
        [("a", "a"), ("a/b", "a/b"), ("in", "a/b"), ("a/up-and-in", "a/b"), ("a/file", "a/file")]
    {
        assert_eq!(found(&volume, path).unwrap(), volume.join(expected), "{path}");
    }
    assert_eq!(
        find(Dir::trusted(&volume).unwrap(), &[]).map(|fd| fstat(fd).unwrap().st_ino).unwrap(),
        volume.metadata().unwrap().ino()
    );
    for path in [
        "root",
        "root/etc",
        "up",
        "up/etc",
        "a/up",
        "out",
        "out/new",
        "absolute",
        "loop",
        "magic",
        "magic/etc",
    ] {
        assert!(matches!(found(&volume, path), Err(Error::LeavesVolume { .. })), "{path}");
    }
    assert!(found(&volume, "dangling").is_err());
    assert!(found(&volume, "dangling/x").is_err());
    assert!(matches!(found(&volume, "a/file/x"), Err(Error::PartNotADirectory { .. })));
    assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 0, "nothing is made outside");
    assert!(!volume.join("nowhere").exists());
}

#[test]
fn what_is_missing_is_made_with_the_volumes_mode() {
    let (_folder, volume) = folder();
    std::fs::create_dir(volume.join("real")).unwrap();
    symlink("real", volume.join("link")).unwrap();
    std::fs::set_permissions(&volume, PermissionsExt::from_mode(0o777)).unwrap();
    assert_eq!(found(&volume, "link/x/y").unwrap(), volume.join("real/x/y"));
    for made in ["real/x", "real/x/y"] {
        assert_eq!(volume.join(made).metadata().unwrap().mode() & 0o7777, 0o777, "{made}");
    }
    std::fs::set_permissions(&volume, PermissionsExt::from_mode(0o2770)).unwrap();
    std::os::unix::fs::chown(&volume, None, Some(4321)).unwrap_or_else(|_| eprintln!("not given away"));
    std::fs::set_permissions(&volume, PermissionsExt::from_mode(0o2770)).unwrap();
    found(&volume, "new").unwrap();
    let (top, new) = (volume.metadata().unwrap(), volume.join("new").metadata().unwrap());
    assert_eq!((new.mode() & 0o7777, new.gid()), (0o2770, top.gid()));
}

struct Bound {
    pods: Pods,
    uid: PodUid,
}

impl Bound {
    fn new() -> Self {
        let pods = Pods::new();
        let uid = pods.add("u1");
        Self { pods, uid }
    }

    fn bind(&self, what: &OwnedFd) -> bool {
        let name = VolumeName::parse("v").unwrap();
        let place = Place { volume: &name, container: &name, index: 3 };
        set_up(&pod_directory(self.pods.path(), &self.uid).unwrap(), &place, what).unwrap()
    }

    fn place(&self) -> PathBuf {
        self.pods.path().join("u1/volume-subpaths/v/v/3")
    }
}

#[test]
fn a_part_is_bound_once_and_anew_when_it_is_another_and_goes_at_the_end() {
    if !may_mount() {
        return;
    }
    let (_folder, volume) = folder();
    for name in ["a", "b"] {
        std::fs::create_dir(volume.join(name)).unwrap();
        std::fs::write(volume.join(name).join(name), "").unwrap();
    }
    let bound = Bound::new();
    let top = Dir::trusted(&volume).unwrap();
    let find = |path: &str| find(&top, &parts(path)).unwrap();
    assert!(bound.bind(&find("a")));
    assert!(!bound.bind(&find("a")));
    assert!(bound.place().join("a").exists());
    // What the path leads to by now does not matter: the place is what it was bound to.
    std::fs::rename(volume.join("a"), volume.join("c")).unwrap();
    symlink("/", volume.join("a")).unwrap();
    assert!(bound.place().join("a").exists());
    assert!(bound.bind(&find("b")));
    assert!(bound.place().join("b").exists() && !bound.place().join("a").exists());
    assert!(bound.bind(&find("b/b")));
    assert!(bound.place().is_file());
    assert!(bound.bind(&find("b")));
    assert_eq!(bound.pods.mounts().len(), 1);
    crate::teardown::tear_down(bound.pods.path(), &bound.uid, &|| false).unwrap();
    assert_eq!(bound.pods.mounts().len(), 0);
    assert_eq!(std::fs::read_dir(bound.pods.path().join("u1")).unwrap().count(), 0);
    assert!(volume.join("b/b").exists(), "what was bound is untouched");
}

/// A container flips a directory and a link as fast as it can while its neighbour starts again and again.
#[test]
fn no_race_shows_what_is_outside() {
    let (_folder, volume) = folder();
    let (_outside, outside) = folder();
    std::fs::write(outside.join("shadow"), "").unwrap();
    std::fs::create_dir_all(volume.join("x/y")).unwrap();
    std::fs::create_dir(volume.join("other")).unwrap();
    let over = AtomicBool::new(false);
    let before = volume.metadata().unwrap().dev();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (link, path) = (volume.join("link"), volume.join("x"));
            let mut absolute = false;
            while !over.load(Ordering::Relaxed) {
                absolute = !absolute;
                symlink(if absolute { outside.as_path() } else { Path::new("../../..") }, &link).unwrap();
                let flags = rustix::fs::RenameFlags::EXCHANGE;
                rustix::fs::renameat_with(rustix::fs::CWD, &link, rustix::fs::CWD, &path, flags).unwrap();
                rustix::fs::renameat_with(rustix::fs::CWD, &link, rustix::fs::CWD, &path, flags).unwrap();
                std::fs::remove_file(&link).unwrap();
            }
        });
        for round in 0..1000 {
            let path = if round % 3 == 0 { format!("x/y/new{round}") } else { "x/y".to_owned() };
            if let Ok(real) = found(&volume, &path) {
                // While it was swapped away it is called `link`.
                assert!(real.starts_with(&volume), "{}", real.display());
            }
        }
        over.store(true, Ordering::Relaxed);
    });
    assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 1, "nothing is made outside");
    assert_eq!(before, volume.metadata().unwrap().dev());
}
