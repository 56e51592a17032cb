//! Known fault V4, as far as writing goes: a reader never sees a mix.

use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;

fn file(path: &str, content: &str, mode: u32) -> VolumeFile {
    VolumeFile { path: path.to_owned(), content: content.as_bytes().to_vec(), mode, owner: None }
}

fn now() -> Timestamp {
    Timestamp::from_second(1_764_520_000).unwrap()
}

fn write(top: &Path, files: &[VolumeFile]) -> bool {
    super::write(&Dir::trusted(top).unwrap(), files, None, now(), &|| false).unwrap()
}

/// Names in a folder, sorted.
fn names(top: &Path) -> Vec<String> {
    let mut names: Vec<_> = std::fs::read_dir(top)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn files_are_where_users_look_for_them_and_change_together() {
    let top = tempfile::tempdir().unwrap();
    let top = top.path();
    assert!(write(top, &[file("a", "1", 0o644), file("d/e/f", "2", 0o400)]));
    assert_eq!(names(top), ["..2025_11_30_16_26_40.0", "..data", "a", "d"]);
    assert_eq!(std::fs::read_to_string(top.join("a")).unwrap(), "1");
    assert_eq!(std::fs::read_to_string(top.join("d/e/f")).unwrap(), "2");
    assert_eq!(std::fs::read_link(top.join("d")).unwrap(), Path::new("..data/d"));
    assert_eq!(top.join("d/e/f").metadata().unwrap().mode() & 0o7777, 0o400);
    assert_eq!(top.join("d").metadata().unwrap().mode() & 0o7777, 0o755);
    assert!(!write(top, &[file("a", "1", 0o644), file("d/e/f", "2", 0o400)]), "nothing changed");

    // Each difference shows: content, mode, one file more, one less.
    for files in [
        vec![file("a", "3", 0o644), file("d/e/f", "2", 0o400)],
        vec![file("a", "3", 0o600), file("d/e/f", "2", 0o400)],
        vec![file("a", "3", 0o600), file("d/e/f", "2", 0o400), file("d/g", "", 0o644)],
        vec![file("a", "3", 0o600), file("d/g", "", 0o644)],
        vec![file("z", "3", 0o600)],
        vec![],
    ] {
        assert!(write(top, &files), "{files:?}");
        assert!(!write(top, &files), "{files:?}");
        for file in &files {
            assert_eq!(std::fs::read(top.join(&file.path)).unwrap(), file.content);
        }
        let seen = names(top);
        let users: Vec<_> = seen.iter().filter(|name| !name.starts_with("..")).collect();
        let wanted: BTreeSet<_> = files.iter().map(|file| first(&file.path).to_owned()).collect();
        assert_eq!(users, wanted.iter().collect::<Vec<_>>());
        assert_eq!(seen.len(), wanted.len() + 2, "the earlier directory is gone: {seen:?}");
    }
}

#[test]
fn a_life_that_ended_in_the_middle_is_no_obstacle_and_links_out_are_not_followed() {
    let top = tempfile::tempdir().unwrap();
    let outside = tempfile::tempdir().unwrap();
    let (top, outside) = (top.path(), outside.path());
    std::fs::write(outside.join("kept"), "").unwrap();
    let left = "..2025_11_30_16_26_40.0";
    std::fs::create_dir_all(top.join(left).join("half")).unwrap();
    symlink(outside, top.join(left).join("out")).unwrap();
    symlink(left, top.join(NEW_DATA)).unwrap();
    symlink(outside, top.join("a")).unwrap();
    symlink(outside, top.join(DATA)).unwrap();
    std::fs::write(top.join("stale"), "").unwrap();
    assert!(write(top, &[file("a", "1", 0o644)]));
    assert_eq!(names(top), ["..2025_11_30_16_26_40.1", "..data", "a"]);
    assert_eq!(std::fs::read_to_string(top.join("a")).unwrap(), "1");
    assert_eq!(names(outside), ["kept"]);

    // Somebody wrote into the files: they are put right.
    std::fs::write(top.join("a"), "2").unwrap();
    assert!(write(top, &[file("a", "1", 0o644)]));
    assert_eq!(std::fs::read_to_string(top.join("a")).unwrap(), "1");
}

#[test]
fn the_pods_group_may_read() {
    let top = tempfile::tempdir().unwrap();
    let files = [file("d/a", "1", 0o400)];
    let dir = Dir::trusted(top.path()).unwrap();
    match super::write(&dir, &files, Some(1234), now(), &|| false) {
        Err(Error::Io { source: Errno::PERM, .. }) => eprintln!("skipped: giving files away takes CAP_CHOWN"),
        result => {
            assert!(result.unwrap());
            let found = top.path().join("d/a").metadata().unwrap();
            assert_eq!((found.mode() & 0o7777, found.gid(), found.uid()), (0o440, 1234, 0));
            let found = top.path().join("d").metadata().unwrap();
            assert_eq!((found.mode() & 0o7777, found.gid()), (0o2755, 1234));
            assert!(!super::write(&dir, &files, Some(1234), now(), &|| false).unwrap());
            assert!(super::write(&dir, &files, Some(1235), now(), &|| false).unwrap());
        }
    }
}

#[test]
fn a_reader_with_the_directory_open_never_sees_a_mix() {
    let top = tempfile::tempdir().unwrap();
    let top = top.path();
    let pair = |n: usize| [file("a", &n.to_string(), 0o644), file("b", &n.to_string(), 0o644)];
    write(top, &pair(0));
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut seen = 0;
            while !over.load(Ordering::Relaxed) || seen == 0 {
                // As a careful program does: open the directory once, then read both.
                let Ok(dir) = Dir::trusted(&top.join(DATA)) else { continue };
                let read = |name: &str| {
                    let fd = openat(&dir, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
                    std::io::read_to_string(std::fs::File::from(fd)).ok()
                };
                // Removed while it was read: gone is allowed, mixed is not.
                if let (Some(a), Some(b)) = (read("a"), read("b")) {
                    assert_eq!(a, b);
                    seen += 1;
                }
                // Users' own names are always there.
                assert!(std::fs::read_link(top.join("a")).is_ok());
            }
        });
        for n in 1..300 {
            assert!(write(top, &pair(n)));
        }
        over.store(true, Ordering::Relaxed);
        reader.join().unwrap();
    });
}
