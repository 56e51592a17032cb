//! What a pod's volumes follow, on the disk: names of objects of the API and what a pod says of itself, so that a next life
//! goes on where this one ends, without anybody's help.
//!
//! Must never hold what is in an object. The file is in a folder that nobody else can change.

use std::io::{Read, Write};
use std::path::Path;

use rustix::fs::{Mode, OFlags, openat, renameat};
use rustix::io::Errno;

use crate::beneath::Dir;
use crate::error::Error;
use crate::names::{PodUid, WANTED};
use crate::remove::{Stop, empty};

/// The file, and its name until it is whole.
const FILE: &str = "request";
const NEW: &str = ".request";
/// Largest file: a request with that many bytes could not have come.
const BYTES: u64 = 8 << 20;

/// Keeps a request. Returns whether it is another one than before.
pub(crate) fn keep(pods: &Path, uid: &PodUid, request: &[u8]) -> Result<bool, Error> {
    if read(pods, uid)?.as_deref() == Some(request) {
        return Ok(false);
    }
    let Some(pod) = Dir::trusted(pods)?.open(uid.as_str())? else {
        return Err(Error::NoPodDirectory { path: pods.join(uid.as_str()) });
    };
    let dir = pod.open_or_make_closed(WANTED)?;
    let write = || {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut file = std::fs::File::from(openat(&dir, NEW, flags, Mode::RUSR | Mode::WUSR)?);
        file.write_all(request).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
        renameat(&dir, NEW, &dir, FILE)
    };
    write().map_err(|source| Error::io("write", dir.path().join(FILE), source))?;
    Ok(true)
}

/// The request that was kept.
pub(crate) fn read(pods: &Path, uid: &PodUid) -> Result<Option<Vec<u8>>, Error> {
    let Some(pod) = Dir::trusted(pods)?.open(uid.as_str())? else { return Ok(None) };
    let Some(dir) = pod.open(WANTED)? else { return Ok(None) };
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let failed = |source| Error::io("read", dir.path().join(FILE), source);
    let file = match openat(&dir, FILE, flags, Mode::empty()) {
        Ok(fd) => std::fs::File::from(fd),
        Err(Errno::NOENT) => return Ok(None),
        Err(source) => return Err(failed(source)),
    };
    let mut request = Vec::new();
    let read = file.take(BYTES).read_to_end(&mut request);
    read.map_err(|error| failed(Errno::from_io_error(&error).unwrap_or(Errno::IO)))?;
    Ok(Some(request))
}

/// Forgets it. Returns whether there was anything.
pub(crate) fn forget(pod: &Dir, stop: Stop<'_>) -> Result<bool, Error> {
    let Some(dir) = pod.open(WANTED)? else { return Ok(false) };
    empty(&dir, stop)?;
    pod.rmdir(WANTED)?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;
    use crate::testing::Pods;

    #[test]
    fn what_is_kept_is_read_and_closed_to_others() {
        let pods = Pods::new();
        let uid = pods.add("u1");
        assert_eq!(read(pods.path(), &uid).unwrap(), None);
        assert!(keep(pods.path(), &uid, b"one").unwrap());
        assert!(!keep(pods.path(), &uid, b"one").unwrap());
        assert!(keep(pods.path(), &uid, b"two").unwrap());
        assert_eq!(read(pods.path(), &uid).unwrap().as_deref(), Some(&b"two"[..]));
        let folder = pods.path().join("u1").join(WANTED);
        assert_eq!(folder.metadata().unwrap().mode() & 0o077, 0);
        let pod = Dir::trusted(pods.path()).unwrap().open("u1").unwrap().unwrap();
        assert!(forget(&pod, &|| false).unwrap());
        assert!(!forget(&pod, &|| false).unwrap() && !folder.exists());
    }
}
