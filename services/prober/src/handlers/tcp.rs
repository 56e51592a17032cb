//! The TCP probe: a connection is opened and closed.

use bulkhead_base::chain;

use super::net::Dialer;
use crate::report::Report;

/// A server that takes the connection is well.
pub async fn connect(dialer: &Dialer, host: &str, port: u16) -> Report {
    match dialer.connect(host, port).await {
        Ok(_) => Report::success(),
        Err(error) => Report::failure(chain(&error).to_string()),
    }
}
