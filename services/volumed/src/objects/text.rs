//! Bytes that must not be seen.

use std::fmt;

/// A token. Its `Debug` shows nothing of it.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Secret(String);

impl Secret {
    /// Keeps `text`.
    pub(crate) fn new(text: String) -> Self {
        Self(text)
    }

    /// For the file that it goes into.
    pub(crate) fn reveal(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}
