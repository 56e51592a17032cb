//! Names, addresses and TCP connections.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
use std::sync::Arc;

use tokio::net::TcpStream;
use tokio::sync::Semaphore;

use crate::error::NetError;

/// Lookups at once. Each holds one of the process' few blocking threads, for as long as the resolver likes.
const LOOKUPS: usize = 2;
/// Addresses of one name that are tried.
const ADDRESSES: usize = 4;

/// Connects. Clones share the bound on lookups.
#[derive(Clone, Debug)]
pub struct Dialer {
    lookups: Arc<Semaphore>,
}

impl Default for Dialer {
    fn default() -> Self {
        Self { lookups: Arc::new(Semaphore::new(LOOKUPS)) }
    }
}

impl Dialer {
    /// A connection to the first address of `host` that takes it.
    ///
    /// # Errors
    /// When the name has no address or none takes a connection; the last one's reason.
    pub async fn connect(&self, host: &str, port: u16) -> Result<TcpStream, NetError> {
        let mut last = NetError::Lookup { host: host.to_owned(), source: None };
        for address in self.addresses(host, port).await? {
            match TcpStream::connect(address).await {
                Ok(stream) => return Ok(stream),
                Err(source) => last = NetError::Connect { address, source },
            }
        }
        Err(last)
    }

    async fn addresses(&self, host: &str, port: u16) -> Result<Vec<SocketAddr>, NetError> {
        if let Some(address) = ip(host) {
            return Ok(vec![SocketAddr::new(address, port)]);
        }
        let failed = |source| NetError::Lookup { host: host.to_owned(), source };
        let permit = self.lookups.clone().acquire_owned().await.map_err(|_| failed(None))?;
        let name = host.to_owned();
        let lookup = tokio::task::spawn_blocking(move || {
            // Held by the thread, not by who waits: a probe that gave up has not freed it yet.
            let _permit = permit;
            (name.as_str(), port).to_socket_addrs().map(|found| found.take(ADDRESSES).collect())
        });
        let found = lookup.await.map_err(|error| failed(Some(std::io::Error::other(error))))?;
        found.map_err(|error| failed(Some(error)))
    }
}

/// An address, written with or without brackets.
pub fn ip(host: &str) -> Option<IpAddr> {
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    bare.parse().ok()
}

/// `host:port` as URLs write it.
pub fn authority(host: &str, port: u16) -> String {
    format!("{}:{port}", bracketed(host))
}

/// An IPv6 address in brackets; anything else as it is.
pub fn bracketed(host: &str) -> String {
    if host.contains(':') && !host.starts_with('[') { format!("[{host}]") } else { host.to_owned() }
}
