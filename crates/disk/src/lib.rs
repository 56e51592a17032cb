//! How full the file system of a folder is, also when the folder is closed to this user.
//!
//! Must never fail the rest: what cannot be asked is absent. Must never write.

use std::path::{Path, PathBuf};

/// What statvfs(3) says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FsFigures {
    /// Bytes for who is not root.
    pub available_bytes: u64,
    /// Bytes of the whole file system.
    pub capacity_bytes: u64,
    /// Bytes in use by anybody.
    pub used_bytes: u64,
    /// Inodes left.
    pub inodes_free: u64,
    /// Inodes of the whole file system.
    pub inodes: u64,
}

/// Asks about `folder`.
pub fn read(folder: &Path) -> Option<FsFigures> {
    let told = rustix::fs::statvfs(folder).ok()?;
    let bytes = |blocks: u64| blocks.saturating_mul(told.f_frsize);
    Some(FsFigures {
        available_bytes: bytes(told.f_bavail),
        capacity_bytes: bytes(told.f_blocks),
        used_bytes: bytes(told.f_blocks.saturating_sub(told.f_bfree)),
        inodes_free: told.f_ffree,
        inodes: told.f_files,
    })
}

/// Asks about a folder that may lie in a closed one, as the runtime's do: the nearest folder above it that can be asked
/// and is on the same file system answers for it. `mountinfo` has the form of `/proc/self/mountinfo`.
pub fn read_closed(mountinfo: &str, folder: &Path) -> Option<FsFigures> {
    let mount = mount_of(mountinfo, folder)?;
    folder.ancestors().take_while(|above| above.starts_with(&mount)).find_map(read)
}

/// The folder that [`read_closed`] asks, for who asks again and again.
pub fn open_place(mountinfo: &str, folder: &Path) -> Option<PathBuf> {
    let mount = mount_of(mountinfo, folder)?;
    let mut above = folder.ancestors().take_while(|above| above.starts_with(&mount));
    above.find(|above| read(above).is_some()).map(Path::to_owned)
}

/// What the file system of `folder` is on, such as `/dev/vda1`; empty when it is not known.
pub fn device(mountinfo: &str, folder: &Path) -> String {
    let Some(mount) = mount_of(mountinfo, folder) else { return String::new() };
    let here = |line: &&str| line.split(' ').nth(4).is_some_and(|point| unescape(point) == mount);
    // The last one is on top.
    let line = mountinfo.lines().rfind(here);
    let source = line.and_then(|line| line.split_once(" - ")?.1.split(' ').nth(1));
    source.map(|source| unescape(source).to_string_lossy().into_owned()).unwrap_or_default()
}

/// Where the file system of `folder` is mounted: the deepest mount point above it.
fn mount_of(mountinfo: &str, folder: &Path) -> Option<PathBuf> {
    let points = mountinfo.lines().filter_map(|line| line.split(' ').nth(4)).map(unescape);
    points.filter(|point| folder.starts_with(point)).max_by_key(|point| point.components().count())
}

/// The kernel writes spaces, tabs, newlines and backslashes as a backslash and three octal digits (proc(5)).
fn unescape(point: &str) -> PathBuf {
    use std::os::unix::ffi::OsStringExt;
    let mut bytes = Vec::with_capacity(point.len());
    let mut rest = point.as_bytes();
    while let Some((first, others)) = rest.split_first() {
        let digits = others.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.filter(|_| *first == b'\\').and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = others.get(3..).unwrap_or_default();
            }
            None => {
                bytes.push(*first);
                rest = others;
            }
        }
    }
    PathBuf::from(std::ffi::OsString::from_vec(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "22 1 8:1 / / rw - ext4 /dev/vda rw
30 22 0:26 / /tmp/a\\040b rw - tmpfs tmpfs rw
31 22 0:27 / /no/such rw shared:1 - ext4 /dev/vdb rw
broken
";

    #[test]
    fn a_closed_folder_is_answered_for_by_one_above_it_on_the_same_file_system() {
        let of = |folder: &str| mount_of(MOUNTS, Path::new(folder));
        assert_eq!(of("/tmp/a b/c"), Some("/tmp/a b".into()));
        assert_eq!(of("/tmp/a"), Some("/".into()));
        assert_eq!(of("/no/such/folder"), Some("/no/such".into()));
        assert_eq!(mount_of("", Path::new("/x")), None);
        assert_eq!(device(MOUNTS, Path::new("/no/such")), "/dev/vdb");
        assert_eq!(
            (device(MOUNTS, Path::new("/etc")), device("", Path::new("/"))),
            ("/dev/vda".to_owned(), String::new())
        );
        assert_eq!(
            read_closed(MOUNTS, Path::new("/not/there")).map(|fs| fs.inodes),
            read(Path::new("/")).map(|fs| fs.inodes)
        );
        assert_eq!(open_place(MOUNTS, Path::new("/not/there")), Some("/".into()));
        assert_eq!(open_place(MOUNTS, Path::new("/no/such/folder")), None);
        assert_eq!(
            read_closed(MOUNTS, Path::new("/no/such/folder")),
            None,
            "nothing on that file system can be asked"
        );
    }

    #[test]
    fn this_machine_is_asked() {
        let told = read(Path::new("/")).unwrap();
        assert!(told.capacity_bytes >= told.used_bytes && told.capacity_bytes > 0, "{told:?}");
        assert!(told.inodes >= told.inodes_free, "{told:?}");
        assert_eq!(read(Path::new("/no/such/folder")), None);
    }
}
