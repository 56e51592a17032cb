//! What this process holds at the moment: the credential, or why there is none.

use std::sync::Arc;

use tokio::sync::watch;

use crate::credential::Credential;
use crate::error::Unavailable;

/// The present credential.
#[derive(Clone, Debug)]
pub enum Held {
    /// The node runs without a cluster.
    Standalone,
    /// There is none, for this reason.
    Missing(Arc<str>),
    /// This one.
    Usable(Arc<Credential>),
}

/// Whoever uses it.
pub type Holder = watch::Receiver<Held>;

impl Held {
    /// The credential.
    ///
    /// # Errors
    /// When there is none.
    pub fn credential(&self) -> Result<Arc<Credential>, Unavailable> {
        match self {
            Self::Standalone => Err(Unavailable::Standalone),
            Self::Missing(reason) => Err(Unavailable::NoCredential(reason.clone())),
            Self::Usable(credential) => Ok(credential.clone()),
        }
    }
}
