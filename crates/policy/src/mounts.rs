//! What is mounted where, by /proc/self/mountinfo (proc(5)). Pure: the text is an input.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// The mounts of a namespace, in the order in which they were made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mounts(Vec<Mount>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Mount {
    /// `major:minor`.
    device: String,
    /// What of the file system is mounted.
    root: PathBuf,
    point: PathBuf,
}

impl Mounts {
    /// Lines that are not understood are left out.
    pub(crate) fn parse(mountinfo: &[u8]) -> Self {
        let mount = |line: &[u8]| {
            let fields: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
            let device = String::from_utf8(fields.get(2)?.to_vec()).ok()?;
            Some(Mount { device, root: unescape(fields.get(3)?), point: unescape(fields.get(4)?) })
        };
        Self(mountinfo.split(|byte| *byte == b'\n').filter_map(mount).collect())
    }

    /// Other names of `place`, when something is mounted on it or above it that is beneath `own`: a bind mount of what is
    /// elsewhere too has that name as well. Empty: what is there is nowhere else.
    pub(crate) fn names_outside(&self, own: &Path, place: &Path) -> Vec<PathBuf> {
        let is_own = |mount: &Mount| mount.point != own && mount.point.starts_with(own);
        // The last one on a point hides those before.
        let holding = self.0.iter().filter(|mount| place.starts_with(&mount.point));
        let Some(held) = holding.max_by_key(|mount| mount.point.components().count()).filter(|m| is_own(m))
        else {
            return Vec::new();
        };
        let Ok(below) = place.strip_prefix(&held.point) else { return Vec::new() };
        let subject = held.root.join(below);
        let elsewhere = self.0.iter().filter(|mount| mount.device == held.device && !is_own(mount));
        elsewhere
            .filter_map(|mount| Some(mount.point.join(subject.strip_prefix(&mount.root).ok()?)))
            .collect()
    }
}

/// Blanks, tabs, newlines and backslashes are octal there.
fn unescape(text: &[u8]) -> PathBuf {
    let mut plain = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((first, after)) = rest.split_first() {
        let octal = after.get(..3).filter(|_| *first == b'\\').and_then(|digits| {
            let digits = std::str::from_utf8(digits).ok()?;
            u8::from_str_radix(digits, 8).ok()
        });
        match octal {
            Some(byte) => {
                plain.push(byte);
                rest = after.get(3..).unwrap_or_default();
            }
            None => {
                plain.push(*first);
                rest = after;
            }
        }
    }
    PathBuf::from(OsString::from_vec(plain))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const INFO: &str = "\
22 1 8:1 / / rw shared:1 - ext4 /dev/sda1 rw
30 22 8:17 / /data rw - ext4 /dev/sdb1 rw
40 22 0:50 / /k/pods/u/volumes/kubernetes.io~empty-dir/mem rw - tmpfs tmpfs rw
41 22 0:50 /sub /k/pods/u/volume-subpaths/mem/c/0 rw - tmpfs tmpfs rw
42 22 8:1 /etc /k/pods/u/volume-subpaths/host/c/0 rw - ext4 /dev/sda1 rw
43 22 8:1 /k/pods/u/volumes/kubernetes.io~empty-dir/disk/a /k/pods/u/volume-subpaths/disk/c/0 rw - ext4 /dev/sda1 rw
44 22 8:17 /x\\040y /k/pods/u/volume-subpaths/data/c/0 rw - ext4 /dev/sdb1 rw
45 22 0:60 / /k/pods/other/volumes/kubernetes.io~empty-dir/mem rw - tmpfs tmpfs rw
46 22 0:60 / /k/pods/u/volume-subpaths/stolen/c/0 rw - tmpfs tmpfs rw
broken
";

    #[test]
    fn a_bind_mount_in_the_pods_folder_has_its_other_name_too() {
        let mounts = Mounts::parse(INFO.as_bytes());
        let names = |place: &str| mounts.names_outside(Path::new("/k/pods/u"), Path::new(place));
        let path = |path: &str| vec![PathBuf::from(path)];
        assert_eq!(names("/k/pods/u/volume-subpaths/host/c/0"), path("/etc"));
        assert_eq!(names("/k/pods/u/volume-subpaths/host/c/0/ssh"), path("/etc/ssh"));
        assert_eq!(names("/k/pods/u/volume-subpaths/data/c/0"), path("/data/x y"));
        assert_eq!(
            names("/k/pods/u/volume-subpaths/disk/c/0"),
            path("/k/pods/u/volumes/kubernetes.io~empty-dir/disk/a"),
            "the pod's own after all"
        );
        assert_eq!(
            names("/k/pods/u/volume-subpaths/stolen/c/0"),
            path("/k/pods/other/volumes/kubernetes.io~empty-dir/mem")
        );
        for own in [
            "/k/pods/u/volumes/kubernetes.io~empty-dir/mem",
            "/k/pods/u/volume-subpaths/mem/c/0",
            "/k/pods/u/etc-hosts",
            "/etc",
        ] {
            assert_eq!(names(own), Vec::<PathBuf>::new(), "{own}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            Mounts::parse(&bytes).names_outside(Path::new("/k"), Path::new("/k/x"));
        }
    }
}
