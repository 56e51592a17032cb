use std::cell::Cell;
use std::os::unix::fs::symlink;
use std::path::Path;

use proptest::prelude::*;
use rustix::fs::{CWD, Mode, OFlags, mkdirat, openat};

use super::*;

fn folder() -> (tempfile::TempDir, Dir) {
    let folder = tempfile::tempdir().unwrap();
    let dir = Dir::trusted(folder.path()).unwrap();
    (folder, dir)
}

fn entries(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// A chain of directories far deeper than a path can be long.
fn chain(folder: &Path, depth: usize) {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut at = openat(CWD, folder, flags, Mode::empty()).unwrap();
    for _ in 0..depth {
        mkdirat(&at, "d", Mode::RWXU).unwrap();
        at = openat(&at, "d", flags, Mode::empty()).unwrap();
    }
}

fn descriptors_below(folder: &Path) -> usize {
    let descriptors = std::fs::read_dir("/proc/self/fd").unwrap();
    let targets = descriptors.filter_map(|entry| std::fs::read_link(entry.unwrap().path()).ok());
    targets.filter(|target| target.starts_with(folder)).count()
}

#[test]
fn a_tree_far_deeper_than_descriptors_and_paths() {
    let (folder, dir) = folder();
    chain(folder.path(), 5_000);
    let steps = Cell::new(0_usize);
    let stop = || {
        steps.set(steps.get() + 1);
        if steps.get().is_multiple_of(500) {
            let open = descriptors_below(folder.path());
            assert!(open <= 40, "{open} directories are open");
        }
        false
    };
    empty(&dir, &stop).unwrap();
    assert!(steps.get() > 5_000);
    assert_eq!(entries(folder.path()), [""; 0]);
}

#[test]
fn a_wide_tree() {
    let (folder, dir) = folder();
    std::fs::create_dir(folder.path().join("w")).unwrap();
    for number in 0..10_000 {
        let path = folder.path().join(format!("w/{number}"));
        if number % 10 == 0 {
            std::fs::create_dir(path).unwrap();
        } else {
            std::fs::write(path, "").unwrap();
        }
    }
    empty(&dir, &|| false).unwrap();
    assert_eq!(entries(folder.path()), [""; 0]);
}

#[test]
fn links_are_removed_and_not_what_they_lead_to() {
    let (folder, dir) = folder();
    let outside = tempfile::tempdir().unwrap();
    std::fs::write(outside.path().join("kept"), "").unwrap();
    std::fs::create_dir(folder.path().join("a")).unwrap();
    symlink(outside.path(), folder.path().join("a/out")).unwrap();
    symlink(outside.path().join("kept"), folder.path().join("file")).unwrap();
    symlink("nowhere", folder.path().join("dangling")).unwrap();
    std::fs::hard_link(outside.path().join("kept"), folder.path().join("hard")).unwrap();
    empty(&dir, &|| false).unwrap();
    assert_eq!(entries(folder.path()), [""; 0]);
    assert_eq!(entries(outside.path()), ["kept"]);
}

#[test]
fn a_directory_that_was_swapped_for_a_link_is_removed_as_a_link() {
    let (folder, _) = folder();
    let outside = tempfile::tempdir().unwrap();
    std::fs::write(outside.path().join("kept"), "").unwrap();
    symlink(outside.path(), folder.path().join("d")).unwrap();
    let fd = openat(CWD, folder.path(), OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap();
    // As if it had been read as a directory.
    let mut level = Level::new(fd, c".");
    assert!(level.enter(c"d").unwrap().is_none());
    assert_eq!(entries(folder.path()), [""; 0]);
    assert_eq!(entries(outside.path()), ["kept"]);
}

#[test]
fn nothing_is_half_removed_at_its_name_and_the_next_call_goes_on() {
    let (folder, dir) = folder();
    let names = ["plugin-a/v1", "plugin-a/v2", "plugin-b/v3"];
    for name in names {
        let path = folder.path().join(name);
        std::fs::create_dir_all(&path).unwrap();
        for number in 0..50 {
            std::fs::create_dir(path.join(number.to_string())).unwrap();
        }
    }
    let steps = Cell::new(0);
    let stop = || {
        steps.set(steps.get() + 1);
        steps.get() > 20
    };
    set_aside(&dir).unwrap();
    assert!(matches!(empty(&dir, &stop), Err(Error::Interrupted)));
    assert!(names.iter().all(|name| !folder.path().join(name).exists()));
    let left = entries(folder.path());
    assert!(!left.is_empty() && left.iter().all(|name| name.starts_with(GONE)), "{left:?}");
    // The same pod again, before it is done.
    std::fs::create_dir_all(folder.path().join("plugin-a/v1/x")).unwrap();
    set_aside(&dir).unwrap();
    empty(&dir, &|| false).unwrap();
    assert_eq!(entries(folder.path()), [""; 0]);
}

#[derive(Clone, Debug)]
enum Node {
    File,
    Link,
    Folder(Vec<Node>),
}

fn build(path: &Path, node: &Node, outside: &Path) {
    match node {
        Node::File => std::fs::write(path, "x").unwrap(),
        Node::Link => symlink(outside, path).unwrap(),
        Node::Folder(children) => {
            std::fs::create_dir(path).unwrap();
            for (number, child) in children.iter().enumerate() {
                // Some names are those that removal itself gives.
                let name = if number % 3 == 0 { format!("{GONE}{number}") } else { number.to_string() };
                build(&path.join(name), child, outside);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn any_tree_goes_and_nothing_outside_does(
        nodes in proptest::collection::vec(
            prop_oneof![Just(Node::File), Just(Node::Link)].prop_recursive(6, 60, 8, |inner| {
                proptest::collection::vec(inner, 0..8).prop_map(Node::Folder)
            }),
            0..8,
        ),
        aside in any::<bool>(),
    ) {
        let (folder, dir) = folder();
        let outside = tempfile::tempdir().unwrap();
        std::fs::write(outside.path().join("kept"), "").unwrap();
        let top = folder.path().join("t");
        build(&top, &Node::Folder(nodes), outside.path());
        chain(&top, 40);
        if aside {
            set_aside(&dir).unwrap();
        }
        empty(&dir, &|| false).unwrap();
        prop_assert_eq!(entries(folder.path()), [""; 0]);
        prop_assert_eq!(entries(outside.path()), ["kept"]);
    }
}
