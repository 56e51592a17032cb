//! Mounts below the node's own folders, as mountinfo lists them. Must never unmount anything outside them.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use nix::mount::{MntFlags, umount2};

use super::layout::is_below;

/// Unmounts everything below `folders`, deepest first; returns what stayed.
pub fn unmount_below(folders: &[PathBuf]) -> anyhow::Result<Vec<PathBuf>> {
    let read = || std::fs::read_to_string("/proc/self/mountinfo").context("cannot read /proc/self/mountinfo");
    for mount in below(&read()?, folders) {
        if umount2(&mount, MntFlags::UMOUNT_NOFOLLOW).is_err() {
            // In use by something that is on its way out: it is gone for everyone else at once.
            let _ = umount2(&mount, MntFlags::UMOUNT_NOFOLLOW | MntFlags::MNT_DETACH);
        }
    }
    Ok(below(&read()?, folders))
}

/// Mount points below `folders` in `mountinfo` (proc(5)), the newest first: what is on top is unmounted before what it
/// covers.
fn below(mountinfo: &str, folders: &[PathBuf]) -> Vec<PathBuf> {
    let points = mountinfo.lines().filter_map(|line| line.split(' ').nth(4)).map(unescape);
    let ours = |point: &PathBuf| folders.iter().any(|folder| is_below(point, folder));
    let mut found: Vec<PathBuf> = points.filter(ours).collect();
    found.reverse();
    found
}

/// proc(5) writes space, tab, newline and backslash as three octal digits.
fn unescape(text: &str) -> PathBuf {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        let code = tail.get(..3).filter(|_| *first == b'\\');
        let code = code.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        match code {
            Some(code) => {
                bytes.push(code);
                rest = tail.get(3..).unwrap_or_default();
            }
            None => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    Path::new(&OsString::from_vec(bytes)).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_own_mounts_and_the_newest_first() {
        let info = "1 0 0:1 / / rw - ext4 a rw\n\
            2 1 0:2 / /s/root/pods/u/v rw - tmpfs t rw\n\
            3 1 0:2 / /s/root/pods/u/v/w\\040x rw - tmpfs t rw\n\
            4 1 0:2 / /s2/x rw - tmpfs t rw\n\
            5 1 0:2 / /s rw - tmpfs t rw\n\
            broken\n";
        let found = below(info, &["/s".into()]);
        assert_eq!(found, [PathBuf::from("/s/root/pods/u/v/w x"), PathBuf::from("/s/root/pods/u/v")]);
    }

    #[test]
    fn odd_escapes_are_survived() {
        assert_eq!(unescape("/a\\134b"), Path::new("/a\\b"));
        assert_eq!(unescape("/a\\9"), Path::new("/a\\9"));
        assert_eq!(unescape("\\"), Path::new("\\"));
    }
}
