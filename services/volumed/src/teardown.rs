//! Taking a pod's volumes down: unmount, set aside, remove.

use std::path::Path;

use crate::beneath::Dir;
use crate::error::Error;
use crate::mounts::unmount_below;
use crate::names::{PodUid, SUB_PATHS, VOLUMES};
use crate::remove::{Stop, empty, set_aside};
use crate::wanted;

/// Unmounts everything in the pod's directory and removes its volumes, of every plug-in. The pod's directory itself
/// stays: it is not ours. Returns whether there was anything. Interrupted, it goes on where it stopped when called again.
pub(crate) fn tear_down(pods: &Path, uid: &PodUid, stop: Stop<'_>) -> Result<bool, Error> {
    let Some(pod) = Dir::trusted(pods)?.open(uid.as_str())? else { return Ok(false) };
    // Everything in the pod's directory, not only in its volumes: its owner could have moved them.
    let unmounted = unmount_below(&pod, stop)?;
    // Places of sub-paths first: volumes are what tells a later life that something is left.
    let mut changed = unmounted | wanted::forget(&pod, stop)?;
    for folder in [SUB_PATHS, VOLUMES] {
        changed |= remove(&pod, folder, stop)?;
    }
    Ok(changed)
}

fn remove(pod: &Dir, folder: &str, stop: Stop<'_>) -> Result<bool, Error> {
    match pod.open(folder) {
        Ok(None) => Ok(false),
        Ok(Some(dir)) => {
            set_aside(&dir)?;
            empty(&dir, stop)?;
            pod.rmdir(folder)?;
            Ok(true)
        }
        Err(Error::NotADirectory { path }) => {
            tracing::warn!(path = %path.display(), "not a directory where a pod's volumes belong: removed");
            pod.unlink(folder)?;
            Ok(true)
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests;
