//! Names and addresses that a serving certificate is good for. Pure.

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;

use rcgen::SanType;
use rustls::pki_types::CertificateDer;
use serde::Deserialize;
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

/// Names and addresses of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    names: BTreeSet<String>,
    addresses: BTreeSet<IpAddr>,
}

#[derive(Deserialize)]
struct Node {
    kind: String,
    #[serde(default)]
    status: Status,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Status {
    addresses: Vec<Address>,
}

#[derive(Deserialize)]
struct Address {
    #[serde(rename = "type")]
    kind: String,
    address: String,
}

impl Names {
    /// One name, and these addresses.
    pub fn new(name: &str, addresses: impl IntoIterator<Item = IpAddr>) -> Self {
        Self { names: [name.to_owned()].into(), addresses: addresses.into_iter().collect() }
    }

    /// All that a node object says of itself; `None`: it is no node. What is no address is left out.
    pub fn of_node(object: &[u8]) -> Option<Self> {
        let Node { kind, status } = serde_json::from_slice(object).ok()?;
        if kind != "Node" {
            return None;
        }
        let mut names = Self::default();
        for Address { kind, address } in status.addresses {
            match kind.as_str() {
                "Hostname" | "InternalDNS" | "ExternalDNS" => drop(names.names.insert(address)),
                _ => names.addresses.extend(address.parse::<IpAddr>()),
            }
        }
        Some(names)
    }

    /// Those of a certificate; `None`: it is none.
    pub fn of_certificate(certificate: &CertificateDer<'_>) -> Option<Self> {
        let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
        let mut names = Self::default();
        let listed = certificate.subject_alternative_name().ok()?;
        for name in listed.iter().flat_map(|listed| &listed.value.general_names) {
            match name {
                GeneralName::DNSName(name) => drop(names.names.insert((*name).to_owned())),
                GeneralName::IPAddress(bytes) => names.addresses.extend(ip(bytes)),
                _ => {}
            }
        }
        Some(names)
    }

    /// Whether there is neither a name nor an address.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty() && self.addresses.is_empty()
    }

    /// Whether there is an address: without one nobody reaches the node.
    pub fn has_address(&self) -> bool {
        !self.addresses.is_empty()
    }

    /// As a certificate has them.
    ///
    /// # Errors
    /// When a name is none that a certificate may have.
    pub fn to_params(&self) -> Result<Vec<SanType>, rcgen::Error> {
        let names = self.names.iter().map(|name| Ok(SanType::DnsName(name.as_str().try_into()?)));
        names.chain(self.addresses.iter().map(|address| Ok(SanType::IpAddress(*address)))).collect()
    }
}

impl fmt::Display for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = self.names.iter().cloned().chain(self.addresses.iter().map(IpAddr::to_string));
        f.write_str(&all.collect::<Vec<_>>().join(", "))
    }
}

fn ip(bytes: &[u8]) -> Option<IpAddr> {
    match bytes.len() {
        4 => <[u8; 4]>::try_from(bytes).ok().map(IpAddr::from),
        _ => <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_says_its_names_and_addresses() {
        let node = br#"{"kind":"Node","status":{"addresses":[
            {"type":"InternalIP","address":"192.0.2.10"},{"type":"InternalIP","address":"2001:db8::1"},
            {"type":"ExternalIP","address":"nonsense"},{"type":"Hostname","address":"node-a"},
            {"type":"ExternalDNS","address":"a.example"}]}}"#;
        let names = Names::of_node(node).unwrap();
        assert_eq!(names.to_string(), "a.example, node-a, 192.0.2.10, 2001:db8::1");
        assert!(names.has_address());
        assert!(!Names::of_node(br#"{"kind":"Node"}"#).unwrap().has_address());
        for text in ["", "{}", r#"{"kind":"Status"}"#, "[]"] {
            assert_eq!(Names::of_node(text.as_bytes()), None, "{text}");
        }
    }
}
