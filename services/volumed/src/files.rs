//! Volumes of files that this process writes: a small tmpfs or a directory, and in it files that change all at once.

use std::num::NonZeroU64;

use jiff::Timestamp;

use crate::atomic;
use crate::beneath::Dir;
use crate::empty_dir::{self, Place};
use crate::error::Error;
use crate::mounts::{Cover, cover};
use crate::remove::Stop;
use crate::spec::{Medium, VolumeFile};

/// Old and new files together, each a page or more. Of the pod's own memory limit this must not depend: a limit of one byte
/// would leave no room (kubernetes/kubernetes#79950).
const SIZE: Option<NonZeroU64> = NonZeroU64::new(64 << 20);
/// The tmpfs of such a volume.
pub(crate) const MEMORY: Medium = Medium::Memory { size: SIZE };

/// Makes the volume hold these files. Returns whether anything changed.
pub(crate) fn set_up(
    place: &Place<'_>,
    medium: Medium,
    files: &[VolumeFile],
    now: Timestamp,
    stop: Stop<'_>,
) -> Result<bool, Error> {
    let made = empty_dir::set_up(place, medium)?;
    let top = open(place)?;
    Ok(atomic::write(&top, files, place.fs_group, now, stop)? || made)
}

/// As [`set_up`], of a volume that stands; `None`: it does not, and is left alone.
pub(crate) fn refresh(
    place: &Place<'_>,
    medium: Medium,
    files: &[VolumeFile],
    now: Timestamp,
    stop: Stop<'_>,
) -> Result<Option<bool>, Error> {
    let cover = cover(&place.folder()?, place.name.as_str())?;
    // After a reboot only the directory of a tmpfs is there: what belongs into memory must not be written to the disk.
    let stands = match medium {
        Medium::Memory { .. } => cover == Cover::Tmpfs,
        _ => cover == Cover::None,
    };
    if !stands {
        return Ok(None);
    }
    atomic::write(&open(place)?, files, place.fs_group, now, stop).map(Some)
}

fn open(place: &Place<'_>) -> Result<Dir, Error> {
    let folder = place.folder()?;
    let path = || folder.path().join(place.name.as_str());
    folder.open_mounted(place.name.as_str())?.ok_or_else(|| Error::NotADirectory { path: path() })
}
