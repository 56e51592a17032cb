//! The file system that a folder is on. Must never fail the rest: what cannot be asked is absent.

use std::path::Path;

/// What statvfs(3) says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FsFigures {
    /// Bytes for who is not root.
    pub(crate) available_bytes: u64,
    /// Bytes of the whole file system.
    pub(crate) capacity_bytes: u64,
    /// Bytes in use by anybody.
    pub(crate) used_bytes: u64,
    /// Inodes left.
    pub(crate) inodes_free: u64,
    /// Inodes of the whole file system.
    pub(crate) inodes: u64,
}

/// Asks about `folder`.
pub(crate) fn read(folder: &Path) -> Option<FsFigures> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_is_asked() {
        let told = read(Path::new("/")).unwrap();
        assert!(told.capacity_bytes >= told.used_bytes && told.capacity_bytes > 0, "{told:?}");
        assert!(told.inodes >= told.inodes_free, "{told:?}");
        assert_eq!(read(Path::new("/no/such/folder")), None);
    }
}
