//! Who owns what is made for a pod: root, as with the kubelet, and the pod's `fsGroup` if it has one.

use std::os::fd::AsFd;

use rustix::fs::{Gid, Mode, Uid, fchmod, fchown};
use rustix::io::Errno;

/// The bit by which what is made in a directory gets the directory's group.
pub(crate) const SET_GROUP: u32 = 0o2000;

/// The mode of a directory that a pod with `fs_group` may write to: `mode`, and its group goes on to what is made in it.
pub(crate) fn directory_mode(mode: u32, fs_group: Option<u32>) -> u32 {
    match fs_group {
        Some(_) => mode | SET_GROUP | 0o770,
        None => mode,
    }
}

/// As [`give`], to root.
pub(crate) fn settle(fd: impl AsFd, mode: u32, fs_group: Option<u32>) -> Result<(), Errno> {
    give(fd, mode, None, fs_group)
}

/// Sets exactly this mode, whatever the umask, and gives the file or directory to the user (root without one) and the group.
/// Only for what this process has made and nobody can change yet.
pub(crate) fn give(fd: impl AsFd, mode: u32, owner: Option<u32>, fs_group: Option<u32>) -> Result<(), Errno> {
    if mode & SET_GROUP != 0 {
        // The system drops the bit when the group is not one of ours, and keeps it when the group changes afterwards. So
        // this takes no CAP_FSETID.
        fchown(&fd, None, Some(rustix::process::getegid()))?;
    }
    fchmod(&fd, Mode::from_raw_mode(mode))?;
    let group = fs_group.map_or(Gid::ROOT, Gid::from_raw);
    match fchown(&fd, Some(owner.map_or(Uid::ROOT, Uid::from_raw)), Some(group)) {
        // Without CAP_CHOWN (a development run), or on a network disk that allows it to nobody. The mode says enough.
        Err(Errno::PERM) if fs_group.is_none() && owner.is_none() => Ok(()),
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn mode_and_group_are_exact() {
        let folder = tempfile::tempdir().unwrap();
        for (at, (mode, group)) in
            [(0o777, None), (0o750, None), (0o2777, Some(1234))].into_iter().enumerate()
        {
            let path = folder.path().join(at.to_string());
            std::fs::create_dir(&path).unwrap();
            match settle(std::fs::File::open(&path).unwrap(), mode, group) {
                Err(Errno::PERM) => eprintln!("skipped: giving files away takes CAP_CHOWN"),
                result => {
                    result.unwrap();
                    let found = path.metadata().unwrap();
                    assert_eq!(found.mode() & 0o7777, mode);
                    assert!(group.is_none_or(|group| group == found.gid()));
                }
            }
        }
    }

    #[test]
    fn a_group_goes_on_to_what_is_made() {
        assert_eq!(directory_mode(0o755, None), 0o755);
        assert_eq!(directory_mode(0o755, Some(7)), 0o2775);
        assert_eq!(directory_mode(0o777, Some(0)), 0o2777);
    }
}
