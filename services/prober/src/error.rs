//! What goes wrong here. What a probe finds is no error: that is a [`crate::report::Report`].

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
