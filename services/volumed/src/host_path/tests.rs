use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;

use super::*;

const KINDS: [HostPathType; 7] = [
    HostPathType::DirectoryOrCreate,
    HostPathType::Directory,
    HostPathType::FileOrCreate,
    HostPathType::File,
    HostPathType::Socket,
    HostPathType::CharDevice,
    HostPathType::BlockDevice,
];

fn run(path: &Path, kind: HostPathType) -> Result<bool, String> {
    set_up(&HostPath { path: path.to_str().unwrap().to_owned(), kind }).map_err(|error| {
        error.to_string().split_once(": ").unwrap().1.replace(path.to_str().unwrap(), "PATH")
    })
}

/// A fresh folder with one of each.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    std::fs::create_dir(path.join("dir")).unwrap();
    std::fs::write(path.join("file"), "content").unwrap();
    symlink("dir", path.join("to-dir")).unwrap();
    symlink("file", path.join("to-file")).unwrap();
    symlink("nowhere", path.join("dangling")).unwrap();
    UnixListener::bind(path.join("socket")).unwrap();
    folder
}

#[test]
fn every_type_against_everything() {
    const MISSING: Result<bool, &str> = Err("PATH does not exist");
    const NO_DIR: Result<bool, &str> = Err("PATH is not a directory");
    const NO_FILE: Result<bool, &str> = Err("PATH is not a file");
    const NO_SOCKET: Result<bool, &str> = Err("PATH is not a socket file");
    const NO_CHAR: Result<bool, &str> = Err("PATH is not a character device");
    const NO_BLOCK: Result<bool, &str> = Err("PATH is not a block device");
    const FOUND: Result<bool, &str> = Ok(false);
    const MADE: Result<bool, &str> = Ok(true);
    const NO_PARENT: Result<bool, &str> = Err("PATH cannot be made: its parent directory does not exist");
    const DANGLING: Result<bool, &str> = Err("PATH is a symbolic link to something that does not exist");
    const OVER: Result<bool, &str> = Err("PATH leads over a symbolic link to something that does not exist");
    const PARENT: Result<bool, &str> = Err("PATH cannot be made: one of its parents is not a directory");
    // In the order of KINDS.
    let table = [
        ("missing", [MADE, MISSING, MADE, MISSING, MISSING, MISSING, MISSING]),
        ("no/parent", [MADE, MISSING, NO_PARENT, MISSING, MISSING, MISSING, MISSING]),
        ("file/below", [PARENT, MISSING, NO_PARENT, MISSING, MISSING, MISSING, MISSING]),
        ("file", [NO_DIR, NO_DIR, FOUND, FOUND, NO_SOCKET, NO_CHAR, NO_BLOCK]),
        ("dir", [FOUND, FOUND, NO_FILE, NO_FILE, NO_SOCKET, NO_CHAR, NO_BLOCK]),
        ("to-dir", [FOUND, FOUND, NO_FILE, NO_FILE, NO_SOCKET, NO_CHAR, NO_BLOCK]),
        ("to-file", [NO_DIR, NO_DIR, FOUND, FOUND, NO_SOCKET, NO_CHAR, NO_BLOCK]),
        ("dangling", [OVER, MISSING, DANGLING, MISSING, MISSING, MISSING, MISSING]),
        ("socket", [NO_DIR, NO_DIR, NO_FILE, NO_FILE, FOUND, NO_CHAR, NO_BLOCK]),
        ("/dev/null", [NO_DIR, NO_DIR, NO_FILE, NO_FILE, NO_SOCKET, FOUND, NO_BLOCK]),
    ];
    for (name, expected) in table {
        for (kind, expected) in KINDS.into_iter().zip(expected) {
            let folder = folder();
            let path = folder.path().join(name);
            let before = content(folder.path());
            assert_eq!(run(&path, kind), expected.map_err(str::to_owned), "{kind:?} of {name}");
            assert_eq!(content(folder.path()) != before, expected == MADE, "{kind:?} of {name}");
        }
    }
}

#[test]
fn what_is_made_has_the_modes_of_the_api() {
    let folder = folder();
    let path = |name: &str| folder.path().join(name);
    run(&path("a/b/c"), HostPathType::DirectoryOrCreate).unwrap();
    run(&path("to-dir/d"), HostPathType::DirectoryOrCreate).unwrap();
    run(&path("to-dir/f"), HostPathType::FileOrCreate).unwrap();
    for (name, mode) in [("a", 0o755), ("a/b", 0o755), ("a/b/c", 0o755), ("dir/d", 0o755), ("dir/f", 0o644)] {
        let found = path(name).symlink_metadata().unwrap();
        assert_eq!(found.permissions().mode() & 0o7777, mode, "{name}");
        assert_eq!(found.is_file(), mode == 0o644, "{name}");
    }
    assert_eq!(std::fs::read(path("dir/f")).unwrap(), b"");
    for kind in [HostPathType::DirectoryOrCreate, HostPathType::Directory] {
        assert_eq!(run(&path("a/b/c"), kind), Ok(false));
    }
    // What exists keeps its mode.
    std::fs::set_permissions(path("a/b"), PermissionsExt::from_mode(0o700)).unwrap();
    run(&path("a/b/x"), HostPathType::DirectoryOrCreate).unwrap();
    assert_eq!(path("a/b").metadata().unwrap().permissions().mode() & 0o7777, 0o700);
}

#[test]
fn without_a_type_nothing_is_looked_at() {
    let folder = folder();
    let before = content(folder.path());
    for name in ["missing", "no/parent", "file/below", "dangling", "dir", "file"] {
        assert_eq!(run(&folder.path().join(name), HostPathType::Any), Ok(false), "{name}");
    }
    assert_eq!(content(folder.path()), before);
}

#[test]
fn a_loop_of_links_is_an_error_that_names_the_path() {
    let folder = folder();
    let path = folder.path().join("loop");
    symlink("loop", &path).unwrap();
    for kind in KINDS {
        let error = set_up(&HostPath { path: path.to_str().unwrap().to_owned(), kind }).unwrap_err();
        assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
    }
}

fn content(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut todo = vec![folder.to_owned()];
    while let Some(folder) = todo.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            if entry.file_type().unwrap().is_dir() {
                todo.push(entry.path());
            }
            found.push(entry.path());
        }
    }
    found.sort();
    found
}
