//! What can be wrong with a configuration, and where.

use std::fmt;
use std::path::PathBuf;

use crate::{MAX_DROP_INS, MAX_FILE_BYTES};

/// How many problems are printed; the rest is counted.
const MAX_PRINTED: usize = 50;

/// Why there is no configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A file could not be read.
    #[error("cannot read configuration file {path}: check that it exists and that this process may read it")]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system says.
        #[source]
        source: std::io::Error,
    },
    /// The drop-in directory could not be listed.
    #[error("cannot list drop-in directory {path}: check that it exists and that this process may read it")]
    List {
        /// The directory.
        path: PathBuf,
        /// What the system says.
        #[source]
        source: std::io::Error,
    },
    /// A directory, pipe, socket or device where a file is wanted.
    #[error("configuration file {path} is not a regular file: name a file of YAML or JSON")]
    NotAFile {
        /// What was named.
        path: PathBuf,
    },
    /// A file beyond [`MAX_FILE_BYTES`].
    #[error(
        "configuration file {path} is larger than {MAX_FILE_BYTES} bytes: it cannot be a KubeletConfiguration"
    )]
    TooLarge {
        /// The file, or the name of the text.
        path: PathBuf,
    },
    /// A drop-in directory with more than [`MAX_DROP_INS`] files that count.
    #[error("drop-in directory {path} holds more than {MAX_DROP_INS} *.conf files: join some of them")]
    TooManyDropIns {
        /// The directory.
        path: PathBuf,
    },
    /// The texts were read, but what they say cannot be used.
    #[error("the kubelet configuration cannot be used: {problems}")]
    Invalid {
        /// Why not.
        problems: Problems,
        /// What the texts say that is no part of that: unknown names and names that come twice.
        ignored: Vec<Problem>,
    },
}

/// One or more problems; all that were found at one go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problems(pub Vec<Problem>);

/// One thing that is wrong, for a person to mend.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The field by its dotted path (`logging.format`). Empty when it is the file as a whole.
    pub field: String,
    /// Where it is said. None when no file says it.
    pub at: Option<Position>,
    /// What is wrong and what to do.
    pub message: String,
}

/// A place in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Position {
    /// The file's path, or the name of the text.
    pub file: String,
    /// The line, from 1. 0: the whole file.
    pub line: u64,
    /// The column in characters, from 1. 0: the whole line.
    pub column: u64,
}

impl Problem {
    /// A problem of a field whose place is not known here.
    pub(crate) fn of(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self { field: field.into(), at: None, message: message.into() }
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if self.line > 0 {
            write!(f, ":{}", self.line)?;
        }
        if self.line > 0 && self.column > 0 {
            write!(f, ":{}", self.column)?;
        }
        Ok(())
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(at) = &self.at {
            write!(f, "{at}: ")?;
        }
        if !self.field.is_empty() {
            write!(f, "field {}: ", self.field)?;
        }
        f.write_str(&self.message)
    }
}

/// One problem on the same line; several below each other.
impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let [only] = self.0.as_slice() {
            return only.fmt(f);
        }
        write!(f, "{} problems", self.0.len())?;
        for problem in self.0.iter().take(MAX_PRINTED) {
            write!(f, "\n  {problem}")?;
        }
        if self.0.len() > MAX_PRINTED {
            write!(f, "\n  and {} more", self.0.len() - MAX_PRINTED)?;
        }
        Ok(())
    }
}
