//! What earlier lives left: after a restart the disk and the mount table say which pods have volumes.

use std::path::Path;

use bulkhead_api::volumed::v1::{MountedVolume, PodVolumes};
use rustix::fs::FileType;

use crate::beneath::Dir;
use crate::error::Error;
use crate::mounts;
use crate::names::{PLUGINS, PodUid, VOLUMES, plugin_name, volume_path};

/// A pod's directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) uid: PodUid,
    /// Whether anything is mounted in it.
    pub(crate) mounted: bool,
}

/// Whether the folder of all pods can be worked in.
pub(crate) fn probe(pods: &Path) -> Result<(), Error> {
    Dir::trusted(pods).map(|_| ())
}

/// All pods' directories. Other names in the folder are left alone.
pub(crate) fn pods(pods: &Path) -> Result<Vec<Found>, Error> {
    let all = Dir::trusted(pods)?;
    let mounted = match all.real_path()? {
        Some(real) => mounts::below(&mounts::table()?, &real),
        None => Vec::new(),
    };
    let mut found = Vec::new();
    all.each(|name, kind| {
        let uid = name.to_str().ok().and_then(|name| PodUid::parse(name).ok());
        if let (Some(uid), FileType::Directory | FileType::Unknown) = (uid, kind) {
            let mounted = mounted.iter().any(|point| point.starts_with(uid.as_str()));
            found.push(Found { uid, mounted });
        }
        Ok(())
    })?;
    Ok(found)
}

/// The volumes that stand of one pod; `None` when it has none. Whatever is left of its volumes counts, so that the pod is
/// not taken for finished: then the list is empty. hostPath leaves no trace, and is known again after the next set-up.
pub(crate) fn pod(pods: &str, found: &Found) -> Result<Option<PodVolumes>, Error> {
    let uid = &found.uid;
    let Some(pod) = Dir::trusted(Path::new(pods))?.open(uid.as_str())? else { return Ok(None) };
    let mut volumes = Vec::new();
    match pod.open(VOLUMES) {
        Ok(None) if !found.mounted => return Ok(None),
        Ok(Some(dir)) => {
            for folder in PLUGINS {
                let Some(dir) = dir.open(folder)? else { continue };
                dir.each(|name, kind| {
                    let name = name.to_str().ok().filter(|name| !name.starts_with('.'));
                    if let (Some(name), FileType::Directory | FileType::Unknown) = (name, kind) {
                        let host_path = volume_path(pods, uid, folder, name);
                        let (name, plugin) = (name.to_owned(), plugin_name(folder));
                        volumes.push(MountedVolume {
                            name,
                            host_path,
                            plugin,
                            usage: None,
                            problem: String::new(),
                        });
                    }
                    Ok(())
                })?;
            }
        }
        Ok(None) | Err(Error::NotADirectory { .. }) => {}
        Err(error) => return Err(error),
    }
    volumes.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(Some(PodVolumes { pod_uid: uid.to_string(), volumes }))
}

/// Opens a volume in a pod's directory, with what is mounted on it. `None` when it is not there.
pub(crate) fn open_volume(pods: &Path, uid: &PodUid, volume: &MountedVolume) -> Result<Option<Dir>, Error> {
    let Some(folder) = PLUGINS.into_iter().find(|folder| plugin_name(folder) == volume.plugin) else {
        return Ok(None);
    };
    let mut at = Dir::trusted(pods)?;
    for name in [uid.as_str(), VOLUMES, folder] {
        match at.open(name)? {
            Some(dir) => at = dir,
            None => return Ok(None),
        }
    }
    at.open_mounted(&volume.name)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::testing::{Pods, may_mount};

    fn names(pods: &Pods, uid: &str, mounted: bool) -> Option<Vec<String>> {
        let found = Found { uid: PodUid::parse(uid).unwrap(), mounted };
        pod(pods.text(), &found)
            .unwrap()
            .map(|pod| pod.volumes.into_iter().map(|volume| volume.name).collect())
    }

    #[test]
    fn what_stands_is_found_and_what_is_odd_harms_nothing() {
        let pods = Pods::new();
        for uid in ["bare", "full", "left", "link", "file"] {
            pods.add(uid);
        }
        for name in ["b", "a", ".new-c"] {
            std::fs::create_dir_all(pods.empty_dir("full", name)).unwrap();
        }
        std::fs::write(pods.empty_dir("full", "file"), "").unwrap();
        std::fs::create_dir_all(pods.path().join("left/volumes/.gone-0/x")).unwrap();
        symlink("/", pods.path().join("link/volumes")).unwrap();
        std::fs::write(pods.path().join("file/volumes"), "").unwrap();
        std::fs::create_dir(pods.path().join(".hidden")).unwrap();
        std::fs::write(pods.path().join("stray"), "").unwrap();
        symlink("full", pods.path().join("alias")).unwrap();

        let mut found: Vec<_> = super::pods(pods.path()).unwrap();
        found.sort_by(|a, b| a.uid.cmp(&b.uid));
        let uids: Vec<_> = found.iter().map(|found| found.uid.as_str()).collect();
        assert_eq!(uids, ["bare", "file", "full", "left", "link"]);
        assert!(found.iter().all(|found| !found.mounted));
        for (uid, expected) in [
            ("bare", None),
            ("full", Some(vec!["a".to_owned(), "b".to_owned()])),
            ("left", Some(vec![])),
            ("link", Some(vec![])),
            ("file", Some(vec![])),
            ("missing", None),
        ] {
            assert_eq!(names(&pods, uid, false), expected, "{uid}");
        }
        assert_eq!(names(&pods, "bare", true), Some(vec![]));
    }

    #[test]
    fn a_mount_alone_is_seen() {
        if !may_mount() {
            return;
        }
        let pods = Pods::new();
        pods.add("u1");
        pods.add("u2");
        let outside = tempfile::tempdir().unwrap();
        let inside = pods.path().join("u1/moved/here");
        std::fs::create_dir_all(&inside).unwrap();
        rustix::mount::mount_bind(outside.path(), &inside).unwrap();
        for found in super::pods(pods.path()).unwrap() {
            assert_eq!(found.mounted, found.uid.as_str() == "u1");
        }
    }

    #[test]
    fn without_the_folder_nothing_is_known() {
        assert!(matches!(super::pods(Path::new("/nonexistent/pods")), Err(Error::Root { .. })));
    }
}
