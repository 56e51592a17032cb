//! What goes wrong here. What a probe finds is no error: that is a [`crate::report::Report`].

use std::path::PathBuf;

/// The results on disk could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// A file operation failed.
    #[error("cannot {action} {}", path.display())]
    Io {
        /// What was tried, such as `write`.
        action: &'static str,
        /// On which file or folder.
        path: PathBuf,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
    /// The file is no JSON of the expected shape.
    #[error("{} is damaged; set aside as {}", path.display(), aside.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where it is now.
        aside: PathBuf,
        /// What is wrong with it.
        #[source]
        source: serde_json::Error,
    },
    /// The file is of another release, or too large to be one of ours.
    #[error("{} cannot be used ({reason}); set aside as {}", path.display(), aside.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// Where it is now.
        aside: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The thread that does file work ended.
    #[error("file work was cut off")]
    CutOff(#[source] tokio::task::JoinError),
}

/// A server could not be reached. Its text is shown to users behind the name of what was tried.
#[derive(Debug, thiserror::Error)]
pub enum NetError {
    /// The name has no address.
    #[error("no address is known for host {host:?}")]
    Lookup {
        /// The name.
        host: String,
        /// What the resolver said; `None` when it had an empty answer.
        #[source]
        source: Option<std::io::Error>,
    },
    /// No TCP connection.
    #[error("cannot connect to {address}")]
    Connect {
        /// Address and port.
        address: std::net::SocketAddr,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
    /// No TLS session.
    #[error("TLS handshake with {host} failed")]
    Tls {
        /// Host as asked for.
        host: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
}
