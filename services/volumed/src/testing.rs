//! Pods' folders for tests.

use std::path::{Path, PathBuf};

use crate::mounts;
use crate::names::{EMPTY_DIR, PodUid, volume_path};

/// A folder of pods. What tests mount in it goes with it.
pub(crate) struct Pods {
    dir: tempfile::TempDir,
    text: String,
}

impl Pods {
    pub(crate) fn new() -> Self {
        let dir = tempfile::Builder::new().prefix("bh-pods").tempdir().unwrap();
        let text = dir.path().canonicalize().unwrap().to_str().unwrap().to_owned();
        Self { dir, text }
    }

    pub(crate) fn path(&self) -> &Path {
        Path::new(&self.text)
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Makes a pod's directory, as its owner would.
    pub(crate) fn add(&self, uid: &str) -> PodUid {
        std::fs::create_dir(self.path().join(uid)).unwrap();
        PodUid::parse(uid).unwrap()
    }

    pub(crate) fn empty_dir(&self, uid: &str, name: &str) -> PathBuf {
        volume_path(&self.text, &PodUid::parse(uid).unwrap(), EMPTY_DIR, name).into()
    }

    /// Mount points in the folder.
    pub(crate) fn mounts(&self) -> Vec<PathBuf> {
        mounts::below(&mounts::table().unwrap(), self.path())
    }
}

impl Drop for Pods {
    fn drop(&mut self) {
        for point in self.mounts() {
            let _ = rustix::mount::unmount(self.dir.path().join(point), rustix::mount::UnmountFlags::DETACH);
        }
    }
}

/// Whether this test may mount; says so when not.
pub(crate) fn may_mount() -> bool {
    let may = rustix::mount::fsopen("tmpfs", rustix::mount::FsOpenFlags::FSOPEN_CLOEXEC).is_ok();
    if !may {
        eprintln!("skipped: mounting takes CAP_SYS_ADMIN");
    }
    may
}
