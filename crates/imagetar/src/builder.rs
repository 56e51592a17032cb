//! The description of an image, and the checks on what was described.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::archive::{self, RunConfig};
use crate::error::Error;
use crate::layer::{Entry, Tree};

const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Where a file's content comes from.
pub enum Source {
    /// A local file, read when the image is written. Links are followed.
    Path(PathBuf),
    /// The content itself.
    Bytes(Vec<u8>),
}

impl From<PathBuf> for Source {
    fn from(path: PathBuf) -> Self {
        Self::Path(path)
    }
}

impl From<&Path> for Source {
    fn from(path: &Path) -> Self {
        Self::Path(path.to_owned())
    }
}

impl From<Vec<u8>> for Source {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Bytes(bytes)
    }
}

impl From<&[u8]> for Source {
    fn from(bytes: &[u8]) -> Self {
        Self::Bytes(bytes.to_vec())
    }
}

/// What was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// The image id, `sha256:` and 64 hex digits: the digest of the image's configuration, as the runtime reports it.
    pub id: String,
    /// The digest of the only layer's tar, in the same form.
    pub layer: String,
    /// The references as given, in order.
    pub references: Vec<String>,
}

/// Describes an image of one layer; [`ImageBuilder::write_to`] checks and writes it.
///
/// Paths inside the image are written from its root, with or without the first `/`. All entries belong to root.
/// Missing parent directories are made with mode 0755. A later entry replaces an earlier one at the same path.
/// The image is put together in memory, so it suits images of some tens of megabytes.
pub struct ImageBuilder {
    references: Vec<String>,
    entrypoint: Vec<String>,
    cmd: Vec<String>,
    user: String,
    env: BTreeMap<String, String>,
    entries: Vec<(String, Described)>,
}

enum Described {
    Directory { mode: u32 },
    File { mode: u32, source: Source },
    Symlink { target: String },
}

impl ImageBuilder {
    /// An empty image with these references (`NAME:TAG`, at least one). It runs as root in `/` with a usual `PATH`.
    pub fn new<R: Into<String>>(references: impl IntoIterator<Item = R>) -> Self {
        Self {
            references: references.into_iter().map(Into::into).collect(),
            entrypoint: Vec::new(),
            cmd: Vec::new(),
            user: String::new(),
            env: BTreeMap::from([("PATH".to_owned(), DEFAULT_PATH.to_owned())]),
            entries: Vec::new(),
        }
    }

    /// The program that a container runs unless its pod gives a `command`.
    #[must_use]
    pub fn entrypoint<A: Into<String>>(mut self, words: impl IntoIterator<Item = A>) -> Self {
        self.entrypoint = words.into_iter().map(Into::into).collect();
        self
    }

    /// The arguments of the entrypoint (or, without one, the program) unless the pod gives `args`.
    #[must_use]
    pub fn cmd<A: Into<String>>(mut self, words: impl IntoIterator<Item = A>) -> Self {
        self.cmd = words.into_iter().map(Into::into).collect();
        self
    }

    /// The user that containers run as: `UID`, `UID:GID` or a name in the image's `/etc/passwd`. Empty means root.
    #[must_use]
    pub fn user(mut self, user: impl Into<String>) -> Self {
        self.user = user.into();
        self
    }

    /// Sets an environment variable. Variables are written sorted by name.
    #[must_use]
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.env.insert(name.into(), value.into());
        self
    }

    /// Adds a file with these permission bits (at most 07777).
    #[must_use]
    pub fn file(self, path: impl Into<String>, mode: u32, source: impl Into<Source>) -> Self {
        self.entry(path, Described::File { mode, source: source.into() })
    }

    /// Adds a directory with these permission bits (at most 07777).
    #[must_use]
    pub fn directory(self, path: impl Into<String>, mode: u32) -> Self {
        self.entry(path, Described::Directory { mode })
    }

    /// Adds a symbolic link. The target is written as it is.
    #[must_use]
    pub fn symlink(self, path: impl Into<String>, target: impl Into<String>) -> Self {
        self.entry(path, Described::Symlink { target: target.into() })
    }

    /// Checks the description, reads the local files and writes the archive. Nothing is written when the
    /// description is wrong or a file cannot be read.
    pub fn write_to(&self, out: impl Write) -> Result<Image, Error> {
        if self.references.is_empty() {
            return Err(Error::NoReference);
        }
        if let Some(bad) = self.references.iter().find(|reference| !is_reference(reference)) {
            return Err(Error::BadReference { reference: bad.clone() });
        }
        let mut env = Vec::new();
        for (name, value) in &self.env {
            if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
                return Err(Error::BadEnv { name: name.clone() });
            }
            env.push(format!("{name}={value}"));
        }
        let layer = self.tree()?.into_tar()?;
        let run = RunConfig {
            user: self.user.clone(),
            env,
            entrypoint: self.entrypoint.clone(),
            cmd: self.cmd.clone(),
            working_dir: "/".to_owned(),
        };
        archive::write(out, &self.references, run, &layer)
    }

    fn entry(mut self, path: impl Into<String>, described: Described) -> Self {
        self.entries.push((path.into(), described));
        self
    }

    fn tree(&self) -> Result<Tree, Error> {
        let mut tree = Tree::default();
        for (path, described) in &self.entries {
            let entry = match described {
                Described::Directory { mode } => Entry::Directory { mode: *mode },
                Described::File { mode, source } => Entry::File { mode: *mode, content: read(source)? },
                Described::Symlink { target } => Entry::Symlink { target: target.clone() },
            };
            tree.insert(path, entry)?;
        }
        Ok(tree)
    }
}

fn read(source: &Source) -> Result<Vec<u8>, Error> {
    match source {
        Source::Bytes(bytes) => Ok(bytes.clone()),
        Source::Path(path) => {
            std::fs::read(path).map_err(|source| Error::Read { path: path.clone(), source })
        }
    }
}

/// Narrower than the runtime's own rule, which also allows digests: an archive names its images by tag.
fn is_reference(reference: &str) -> bool {
    let Some((name, tag)) = reference.rsplit_once(':') else { return false };
    let tag_ok = (1..=128).contains(&tag.len())
        && !tag.starts_with(['.', '-'])
        && tag.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-'));
    // The first part may be a registry with a port; a tag has no slash, so the last colon is the tag's.
    let part_ok = |part: &str| {
        part.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit())
            && part
                .chars()
                .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '_' | '.' | '-' | ':'))
    };
    let (host, rest) = name.split_once('/').unwrap_or(("", name));
    tag_ok
        && (host.is_empty() && !name.starts_with('/') || part_ok(host))
        && rest.split('/').all(|part| part_ok(part) && !part.contains(':'))
}
