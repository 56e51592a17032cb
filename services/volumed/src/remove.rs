//! Removal of whole trees that containers made: of any depth and width, in little memory, with few descriptors.
//!
//! Must never follow a link and never enter a mount. Names are read and used in one open directory; what was swapped in
//! between is noticed by the call that uses it.

use std::ffi::{CStr, CString, OsStr};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use rustix::fs::{AtFlags, FileType, RawDir, renameat, unlinkat};
use rustix::io::Errno;

use crate::beneath::{Crossing, Dir, is_dots, open_directory, rewind};
use crate::error::Error;

/// Directories that are open at once. What is deeper is moved up and gets its turn later, so that depth costs neither
/// descriptors nor stack.
const OPEN: usize = 32;
/// Bytes of directory entries read at once: about 300 names.
const BATCH: usize = 8 * 1024;
/// Names of what was moved away in order to be removed begin so. No plug-in and no volume has such a name.
const GONE: &str = ".gone-";

/// Says whether to stop soon. Asked between steps that are short, whatever the size of the tree.
pub(crate) type Stop<'a> = &'a dyn Fn() -> bool;

/// Fails when it is time to stop.
pub(crate) fn check(stop: Stop<'_>) -> Result<(), Error> {
    if stop() { Err(Error::Interrupted) } else { Ok(()) }
}

/// Takes everything in `top` from its name, so that no volume is ever half empty where somebody may look for it.
/// Only for a `top` that nobody else can change. Done again after an interruption, it leaves alone what is moved already.
pub(crate) fn set_aside(top: &Dir) -> Result<(), Error> {
    let mut aside = Aside::default();
    top.each(|name, _| {
        if name.to_bytes().starts_with(GONE.as_bytes()) {
            return Ok(());
        }
        match aside.take(top, top, name) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(refused(top, name, error)),
        }
    })
}

/// Removes everything in `top`. What is done when it fails or is stopped stays done.
pub(crate) fn empty(top: &Dir, stop: Stop<'_>) -> Result<(), Error> {
    let fd = open_directory(top, c".", Crossing::Refused).map_err(|error| refused(top, c".", error))?;
    let mut buffer = [const { MaybeUninit::uninit() }; BATCH];
    let mut aside = Aside::default();
    // The first level is `top` itself.
    let mut levels = vec![Level::new(fd, c".")];
    loop {
        check(stop)?;
        let room = levels.len() < OPEN;
        let Some(level) = levels.last_mut() else { return Ok(()) };
        if let Some(name) = level.directories.pop() {
            match level.enter(&name) {
                Ok(Some(fd)) if room => levels.push(Level::new(fd, &name)),
                Ok(Some(_)) => {
                    aside.take(level.fd.as_fd(), top, &name).map_err(|error| refused(top, &name, error))?;
                    level.progress = true;
                    if let Some(first) = levels.first_mut() {
                        first.progress = true;
                    }
                }
                Ok(None) => {}
                Err(error) => return Err(refused(top, &name, error)),
            }
            continue;
        }
        let more = level.read(&mut buffer).map_err(|(name, error)| refused(top, &name, error))?;
        if more || level.again().map_err(|error| refused(top, &level.name, error))? {
            continue;
        }
        let done = levels.pop();
        if let (Some(done), Some(parent)) = (done, levels.last_mut()) {
            parent.remove_directory(&done).map_err(|error| refused(top, &done.name, error))?;
        }
    }
}

/// One open directory on the way down.
struct Level {
    fd: OwnedFd,
    name: CString,
    /// Subdirectories that were read and have not had their turn: at most one batch.
    directories: Vec<CString>,
    /// Whether this pass over the directory removed anything.
    progress: bool,
}

impl Level {
    fn new(fd: OwnedFd, name: &CStr) -> Self {
        Self { fd, name: name.to_owned(), directories: Vec::new(), progress: false }
    }

    /// Opens a subdirectory. What is no directory by now is removed, and there is nothing to enter.
    fn enter(&mut self, name: &CStr) -> Result<Option<OwnedFd>, Errno> {
        match open_directory(&self.fd, name, Crossing::Refused) {
            Ok(fd) => Ok(Some(fd)),
            Err(Errno::NOENT) => Ok(None),
            Err(Errno::LOOP | Errno::NOTDIR) => {
                ignore_missing(unlinkat(&self.fd, name, AtFlags::empty()))?;
                self.progress = true;
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Reads one batch: files and links go at once, directories are remembered. Returns whether there may be more.
    fn read(&mut self, buffer: &mut [MaybeUninit<u8>]) -> Result<bool, (CString, Errno)> {
        let mut entries = RawDir::new(&self.fd, buffer);
        loop {
            let entry = match entries.next() {
                None => return Ok(false),
                // The directory itself is gone.
                Some(Err(Errno::NOENT)) => return Ok(false),
                Some(Err(error)) => return Err((self.name.clone(), error)),
                Some(Ok(entry)) => entry,
            };
            let name = entry.file_name();
            if entry.file_type() == FileType::Directory {
                if !is_dots(name) {
                    self.directories.push(name.to_owned());
                }
            } else if !is_dots(name) {
                match unlinkat(&self.fd, name, AtFlags::empty()) {
                    Ok(()) => self.progress = true,
                    Err(Errno::NOENT) => {}
                    Err(Errno::ISDIR) => self.directories.push(name.to_owned()),
                    Err(error) => return Err((name.to_owned(), error)),
                }
            }
            if entries.is_buffer_empty() {
                return Ok(true);
            }
        }
    }

    /// At the end of a pass: starts another one if this one removed anything, since some file systems skip entries
    /// while others are removed.
    fn again(&mut self) -> Result<bool, Errno> {
        let again = std::mem::take(&mut self.progress);
        if again {
            rewind(&self.fd)?;
        }
        Ok(again)
    }

    fn remove_directory(&mut self, child: &Level) -> Result<(), Errno> {
        ignore_missing(unlinkat(&self.fd, &child.name, AtFlags::REMOVEDIR))?;
        self.progress = true;
        Ok(())
    }
}

/// Gives names to what is moved away.
#[derive(Default)]
struct Aside {
    next: u64,
}

impl Aside {
    /// Moves `name` of `from` to `top`, under a name of its own. An empty directory that has that name already is
    /// replaced, which is as good as removed.
    fn take(&mut self, from: impl AsFd, top: &Dir, name: &CStr) -> Result<(), Errno> {
        loop {
            let number = self.next;
            self.next = self.next.checked_add(1).ok_or(Errno::OVERFLOW)?;
            match renameat(&from, name, top, format!("{GONE}{number}")) {
                // The name is taken, by what an interrupted removal left.
                Err(Errno::NOTEMPTY | Errno::EXIST | Errno::NOTDIR | Errno::ISDIR) => {}
                result => return result,
            }
        }
    }
}

fn ignore_missing(result: Result<(), Errno>) -> Result<(), Errno> {
    match result {
        Err(Errno::NOENT) => Ok(()),
        result => result,
    }
}

/// The full path may be longer than a message can be: the top and the name have to do.
fn refused(top: &Dir, name: &CStr, error: Errno) -> Error {
    let path = top.path().join(OsStr::from_bytes(name.to_bytes()));
    match error {
        Errno::XDEV | Errno::BUSY => Error::StillMounted { path },
        Errno::NOTEMPTY | Errno::EXIST | Errno::NOTDIR => Error::StillWritten { path },
        source => Error::io("remove", path, source),
    }
}

#[cfg(test)]
mod tests;
