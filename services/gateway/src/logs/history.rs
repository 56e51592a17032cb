//! One instance's log as a row of files: those that rotation put aside and that are still readable, then the one being
//! written. Told by file identity, since names change hands while they are read.

use std::path::Path;
use std::sync::Arc;

use super::choose::{self, Choice, PodFacts};
use super::folder::{FileId, Folder, LogFile};
use super::names::{LogName, live};
use crate::error::LogError;

/// Most files of one instance kept open at a time.
const FILES: usize = 16;

/// An instance's log.
#[derive(Debug)]
pub(super) struct History {
    spot: Arc<Spot>,
    files: Vec<Arc<LogFile>>,
    mark: Mark,
}

/// Where an instance's files are.
#[derive(Debug)]
pub(super) struct Spot {
    folder: Folder,
    attempt: u32,
}

/// Where the newest file known stands among the rotated ones: the first stamp greater than this is, or will be, its own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Mark(Option<String>);

impl History {
    /// Opens what `choice` means of `pod`.
    pub(super) fn open(root: &Path, pod: &PodFacts, choice: &Choice) -> Result<Self, LogError> {
        let none = || LogError::NoLog { pod: pod.title(), container: choice.container.clone() };
        let folder = Folder::open(root, &pod.folder(), &choice.container)?.ok_or_else(none)?;
        let attempts: Vec<u32> =
            folder.logs()?.iter().filter(|log| !log.compressed).map(|log| log.attempt).collect();
        let attempt = choose::attempt(pod, choice, &attempts)?;
        let spot = Spot { folder, attempt };
        let (files, mark) = spot.files()?;
        if files.is_empty() {
            return Err(none());
        }
        Ok(Self { spot: Arc::new(spot), files, mark })
    }

    /// Which instance it is.
    pub(super) fn attempt(&self) -> u32 {
        self.spot.attempt
    }

    /// Its files, oldest first, never none; where to look for more; and where the last of them stands.
    pub(super) fn into_parts(self) -> (Arc<Spot>, Vec<Arc<LogFile>>, Mark) {
        (self.spot, self.files, self.mark)
    }
}

impl Spot {
    /// What can be read without a gap up to now, oldest first.
    fn files(&self) -> Result<(Vec<Arc<LogFile>>, Mark), LogError> {
        // The live one first: whatever is rotated from here on is found from it.
        let newest = self.folder.file(&live(self.attempt))?;
        let rotated = self.rotated()?;
        // Youngest first, up to the first that cannot be read.
        let mut files = Vec::new();
        for log in rotated.iter().rev().take_while(|log| !log.compressed).take(FILES) {
            let Some(file) = self.folder.file(&log.file_name())? else { break };
            files.push(Arc::new(file));
        }
        let own = |newest: &LogFile| files.iter().position(|file| file.id() == newest.id());
        // How many of the rotated ones are older than the newest of the row.
        let older = match newest {
            // Between renaming and reopening there is no live one.
            None => rotated.len().saturating_sub(1),
            Some(newest) => match own(&newest) {
                // It was rotated between the two looks. What is younger is found when it is read to its end.
                Some(at) => {
                    files.drain(..at);
                    rotated.len().saturating_sub(at + 1)
                }
                None => {
                    files.insert(0, Arc::new(newest));
                    rotated.len()
                }
            },
        };
        files.reverse();
        let below = older.checked_sub(1).and_then(|at| rotated.get(at));
        Ok((files, Mark(below.and_then(|log| log.stamp.clone()))))
    }

    /// The file that comes after `current`; `None` while that is the one being written. Once there is one, nothing more is
    /// written to `current`: what it holds then is the whole of it.
    pub(super) fn after(&self, current: FileId, mark: &Mark) -> Result<Option<(LogFile, Mark)>, LogError> {
        let newest = match self.folder.file(&live(self.attempt))? {
            Some(newest) if newest.id() != current => newest,
            // Not rotated, or not reopened yet.
            _ => return Ok(None),
        };
        let mut mark = mark.clone();
        for log in self.rotated()? {
            if log.stamp <= mark.0 {
                continue;
            }
            // A compressed one was `current`, or was rotated twice within one look and is lost to a reader.
            if !log.compressed
                && let Some(file) = self.folder.file(&log.file_name())?
                && file.id() != current
            {
                return Ok(Some((file, mark)));
            }
            mark = Mark(log.stamp);
        }
        // The runtime makes the new file before it turns to it: until something is in it, more may come to `current`.
        Ok((newest.size()? > 0).then_some((newest, mark)))
    }

    /// Rotated files of this instance, oldest first.
    fn rotated(&self) -> Result<Vec<LogName>, LogError> {
        let mut logs = self.folder.logs()?;
        logs.retain(|log| log.attempt == self.attempt && log.stamp.is_some());
        logs.sort();
        Ok(logs)
    }
}

#[cfg(test)]
mod tests;
