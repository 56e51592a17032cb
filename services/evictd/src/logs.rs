//! What the logs of a container take on disk. Blocks. Looks at names and sizes, never at what is in a log.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use bulkhead_model::names;

/// Files of one container that are counted: rotation keeps a few for each of its instances.
const FILES: usize = 1000;
/// Unit of `st_blocks`.
const BLOCK: u64 = 512;

/// What some files take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Taken {
    /// Bytes on disk.
    pub(crate) bytes: u64,
    /// Files.
    pub(crate) inodes: u64,
}

/// The folder of a pod's logs. `None` for names that can be no folder.
pub(crate) fn folder(logs: &Path, namespace: &str, name: &str, uid: &str) -> Option<PathBuf> {
    let name = names::pod_log_folder(namespace, name, uid);
    (!name.contains('/')).then(|| logs.join(name))
}

/// The logs of all instances of one container; `None` when its folder cannot be looked at.
pub(crate) fn taken(pod: &Path, container: &str) -> Option<Taken> {
    if container.is_empty() || container.starts_with('.') || container.contains('/') {
        return None;
    }
    let files = std::fs::read_dir(pod.join(container)).ok()?.flatten().take(FILES);
    let figures = files.filter_map(|file| file.metadata().ok()).filter(std::fs::Metadata::is_file);
    Some(figures.fold(Taken::default(), |sum, file| Taken {
        bytes: sum.bytes.saturating_add(file.blocks().saturating_mul(BLOCK)),
        inodes: sum.inodes.saturating_add(1),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_counted_and_nothing_else() {
        let logs = tempfile::tempdir().unwrap();
        let pod = folder(logs.path(), "ns", "p", "u").unwrap();
        assert!(pod.ends_with("ns_p_u"));
        assert_eq!(taken(&pod, "c"), None, "there are none yet");
        std::fs::create_dir_all(pod.join("c/dir")).unwrap();
        assert_eq!(taken(&pod, "c"), Some(Taken::default()));
        std::fs::write(pod.join("c/0.log"), vec![b'x'; 10_000]).unwrap();
        std::fs::write(pod.join("c/1.log"), "").unwrap();
        std::os::unix::fs::symlink("/bin/sh", pod.join("c/link")).unwrap();
        let found = taken(&pod, "c").unwrap();
        assert_eq!(found.inodes, 2);
        assert!((10_000..100_000).contains(&found.bytes), "{found:?}");
        assert_eq!(
            (taken(&pod, "../p"), taken(&pod, ""), folder(logs.path(), "..", "/x", "")),
            (None, None, None)
        );
    }
}
