//! Files that are written into a volume. Pure.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Component, Path};

use bulkhead_api::volumed::v1 as wire;

use super::cut;
use crate::error::Error;

/// Files of one volume.
const FILES: usize = 4096;
/// Names of one's path.
const DEPTH: usize = 32;
/// Longest path of one.
const PATH_BYTES: usize = 1024;
/// All of them together; a message has at most 4 MiB.
const CONTENT_BYTES: usize = 4 << 20;

/// One file. Its content may be secret: `Debug` does not show it.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct VolumeFile {
    /// Relative to the volume: one or more plain names.
    pub(crate) path: String,
    pub(crate) content: Vec<u8>,
    /// Permission bits.
    pub(crate) mode: u32,
    /// Its user; `None`: root.
    pub(crate) owner: Option<u32>,
}

impl fmt::Debug for VolumeFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {:o} <{} bytes>", self.path, self.mode, self.content.len())
    }
}

/// Checks the files, and puts them in order. Of two with one path the later counts.
pub(super) fn parse(files: Vec<wire::VolumeFile>) -> Result<Vec<VolumeFile>, Error> {
    let file = |file: wire::VolumeFile| VolumeFile {
        path: file.path,
        content: file.content,
        mode: file.mode,
        owner: None,
    };
    arrange(files.into_iter().map(file).collect(), CONTENT_BYTES)
}

/// Checks the files, which have at most `bytes` together, and puts them in order. Of two with one path the later counts.
pub(crate) fn arrange(files: Vec<VolumeFile>, bytes: usize) -> Result<Vec<VolumeFile>, Error> {
    if files.len() > FILES {
        return Err(Error::Invalid(format!("it has {} files: {FILES} are possible", files.len())));
    }
    if files.iter().map(|file| file.content.len()).sum::<usize>() > bytes {
        return Err(Error::Invalid(format!("its files have more than {bytes} bytes")));
    }
    let mut all: BTreeMap<String, VolumeFile> = BTreeMap::new();
    for file in files {
        let path = checked(&file.path, file.mode)?;
        all.insert(path.clone(), VolumeFile { path, ..file });
    }
    let is_above = |path: &str| {
        let below = format!("{path}/");
        all.range(below.clone()..).next().is_some_and(|(next, _)| next.starts_with(&below))
    };
    if let Some(both) = all.keys().find(|path| is_above(path)) {
        return Err(Error::Invalid(format!("{:?} is both a file and a directory", cut(both))));
    }
    Ok(all.into_values().collect())
}

/// The path of a file in a volume, written in the one usual way.
pub(super) fn checked(path: &str, mode: u32) -> Result<String, Error> {
    let refused = |why: &str| Err(Error::Invalid(format!("file {:?} {why}", cut(path))));
    if let Some(why) = wrong(path) {
        return refused(why);
    }
    if mode > 0o777 {
        return refused("has a mode above 0777");
    }
    Ok(path.split('/').filter(|part| !matches!(*part, "" | ".")).collect::<Vec<_>>().join("/"))
}

fn wrong(path: &str) -> Option<&'static str> {
    let mut components = Path::new(path).components().filter(|part| *part != Component::CurDir);
    if path.len() > PATH_BYTES {
        return Some("has a path of more than 1024 bytes");
    }
    if path.contains('\0') {
        return Some("holds a NUL byte");
    }
    match components.next() {
        None => return Some("has no name"),
        // Such names are the writer's own.
        Some(Component::Normal(name)) if name.as_encoded_bytes().starts_with(b"..") => {
            return Some("begins with `..`");
        }
        Some(Component::Normal(_)) => {}
        Some(_) => return Some("is not relative to the volume, or holds `..`"),
    }
    let plain = components.all(|part| matches!(part, Component::Normal(_)));
    let short = path.split('/').all(|name| name.len() <= 255);
    if !plain {
        Some("holds `..`")
    } else if path.split('/').count() > DEPTH {
        Some("has a path of more than 32 names")
    } else if !short {
        Some("has a name of more than 255 bytes")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn file(path: &str) -> wire::VolumeFile {
        wire::VolumeFile { path: path.to_owned(), content: b"s3cret".to_vec(), mode: 0o644 }
    }

    #[test]
    fn plain_paths_in_order_and_the_later_of_two() {
        let mut later = file("b/./c");
        later.mode = 0o400;
        let files = parse(vec![file("b/c"), file("a-b"), file("a"), file("b/.d"), later]).unwrap();
        let seen: Vec<_> = files.iter().map(|file| (file.path.as_str(), file.mode)).collect();
        assert_eq!(seen, [("a", 0o644), ("a-b", 0o644), ("b/.d", 0o644), ("b/c", 0o400)]);
        assert!(!format!("{files:?}").contains("s3cret"));
    }

    #[test]
    fn what_is_refused() {
        let long = "a".repeat(256);
        for path in ["", ".", "/", "/a", "..", "../a", "a/../b", "a/..", "..data", "./..data/x", "a\0", &long]
        {
            assert!(parse(vec![file(path)]).is_err(), "{path:?}");
        }
        assert!(parse(vec![file("a"), file("a-b"), file("a/b")]).is_err());
        assert!(parse(vec![wire::VolumeFile { mode: 0o1000, ..file("a") }]).is_err());
        assert!(parse(vec![file("a"); FILES + 1]).is_err());
    }

    proptest! {
        #[test]
        fn what_passes_stays_inside(path in "[/.a]{0,8}|\\PC{0,30}") {
            if let Ok(files) = parse(vec![file(&path)]) {
                let path = &files.first().ok_or(TestCaseError::fail("one file"))?.path;
                prop_assert!(path.split('/').all(|part| !matches!(part, "" | "." | "..")), "{path:?}");
                prop_assert!(!path.starts_with(".."));
            }
        }
    }
}
