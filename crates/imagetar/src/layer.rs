//! The image's only layer: its entries, and their tar.

use std::collections::BTreeMap;

use tar::{Builder, EntryType, Header};

use crate::error::Error;

/// The mode of a directory that is only there because something lies in it.
const PARENT_MODE: u32 = 0o755;
const MODE_BITS: u32 = 0o7777;

pub(crate) enum Entry {
    Directory { mode: u32 },
    File { mode: u32, content: Vec<u8> },
    Symlink { target: String },
}

/// Entries by path from the image's root, without the first `/`. Sorted, so a directory comes before what is in it.
#[derive(Default)]
pub(crate) struct Tree(BTreeMap<String, Entry>);

impl Tree {
    pub(crate) fn insert(&mut self, path: &str, entry: Entry) -> Result<(), Error> {
        let inside = path.strip_prefix('/').unwrap_or(path);
        if inside.contains('\0') || inside.split('/').any(|part| matches!(part, "" | "." | "..")) {
            return Err(Error::BadPath { path: path.to_owned() });
        }
        match &entry {
            Entry::Directory { mode } | Entry::File { mode, .. } if mode & !MODE_BITS != 0 => {
                return Err(Error::BadMode { path: inside.to_owned(), mode: *mode });
            }
            Entry::Symlink { target } if target.is_empty() || target.contains('\0') => {
                return Err(Error::BadTarget { link: inside.to_owned(), target: target.clone() });
            }
            _ => {}
        }
        self.0.insert(inside.to_owned(), entry);
        Ok(())
    }

    /// The layer's tar. Same entries, same bytes.
    pub(crate) fn into_tar(mut self) -> Result<Vec<u8>, Error> {
        self.add_parents()?;
        let mut tar = Builder::new(Vec::new());
        for (path, entry) in &self.0 {
            append(&mut tar, path, entry)
                .map_err(|source| Error::Write { entry: format!("layer entry {path}"), source })?;
        }
        tar.into_inner().map_err(|source| Error::Write { entry: "the layer".to_owned(), source })
    }

    fn add_parents(&mut self) -> Result<(), Error> {
        let paths: Vec<String> = self.0.keys().cloned().collect();
        for path in &paths {
            for (end, _) in path.match_indices('/') {
                let Some(parent) = path.get(..end) else { continue };
                let found = self.0.entry(parent.to_owned()).or_insert(Entry::Directory { mode: PARENT_MODE });
                if !matches!(found, Entry::Directory { .. }) {
                    return Err(Error::ParentNotDirectory { path: path.clone(), parent: parent.to_owned() });
                }
            }
        }
        Ok(())
    }
}

fn append(tar: &mut Builder<Vec<u8>>, path: &str, entry: &Entry) -> std::io::Result<()> {
    let (kind, mode, content) = match entry {
        Entry::Directory { mode } => (EntryType::Directory, *mode, [].as_slice()),
        Entry::File { mode, content } => (EntryType::Regular, *mode, content.as_slice()),
        Entry::Symlink { .. } => (EntryType::Symlink, 0o777, [].as_slice()),
    };
    let mut header = header(kind, mode, content);
    match entry {
        Entry::Symlink { target } => tar.append_link(&mut header, path, target),
        Entry::Directory { .. } | Entry::File { .. } => tar.append_data(&mut header, path, content),
    }
}

/// A header that says nothing of the machine: root's, at the epoch.
pub(crate) fn header(kind: EntryType, mode: u32, content: &[u8]) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_size(content.len() as u64);
    header
}
