//! Certificates for tests.

use bulkhead_testkit::certificates::{Authority, Pem};
use jiff::Timestamp;

/// A client certificate and who signed it.
pub struct Issued {
    authority: Authority,
    pem: Pem,
}

impl Issued {
    /// Of `system:node:node-a`, good between these dates.
    pub fn client(from: &str, until: &str) -> Self {
        let authority = Authority::new();
        let time = |text: &str| -> Timestamp { text.parse().unwrap() };
        let pem = authority.client("system:node:node-a", "system:nodes", time(from), time(until));
        Self { authority, pem }
    }

    pub fn authority_pem(&self) -> String {
        self.authority.pem()
    }

    pub fn certificate_pem(&self) -> String {
        self.pem.certificate.clone()
    }

    pub fn key_pem(&self) -> String {
        self.pem.key.clone()
    }
}
