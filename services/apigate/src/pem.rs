//! Certificates and keys in PEM, and how long they are good. Blocks for nothing: whoever calls brings the bytes.

use std::fmt;

use jiff::Timestamp;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use x509_parser::prelude::{FromDer, X509Certificate};

/// Certificates in one file. A chain has two or three; a bundle of authorities some.
const CERTIFICATES: usize = 512;

/// A client certificate with what it was signed by, and its key.
pub struct Pair {
    /// The certificate first.
    pub chain: Vec<CertificateDer<'static>>,
    /// Its key.
    pub key: PrivateKeyDer<'static>,
    /// How long it is good.
    pub validity: Validity,
}

/// From when to when a certificate is good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// Not before.
    pub from: Timestamp,
    /// Not after.
    pub until: Timestamp,
}

impl Validity {
    /// Whether it is over.
    pub fn is_over(&self, now: Timestamp) -> bool {
        now >= self.until
    }
}

impl fmt::Debug for Pair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pair").field("validity", &self.validity).finish_non_exhaustive()
    }
}

impl Clone for Pair {
    fn clone(&self) -> Self {
        Self { chain: self.chain.clone(), key: self.key.clone_key(), validity: self.validity }
    }
}

impl Pair {
    /// From PEM: a certificate and perhaps what it was signed by, and one key. Both may be the same text.
    ///
    /// # Errors
    /// With what is wrong, as the end of a sentence. Never shows a key.
    pub fn from_pem(chain: &[u8], key: &[u8]) -> Result<Self, String> {
        let chain = certificates(chain)?;
        let first = chain.first().ok_or("it holds no certificate")?;
        let validity = validity(first).ok_or("it is no X.509 certificate")?;
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| "its key is no private key in PEM")?;
        Ok(Self { chain, key, validity })
    }
}

/// All certificates of a text.
///
/// # Errors
/// When one cannot be read, or there are too many.
pub fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).take(CERTIFICATES + 1).collect();
    let found = found.map_err(|_| "it is no PEM")?;
    if found.len() > CERTIFICATES {
        return Err(format!("it holds more than {CERTIFICATES} certificates"));
    }
    Ok(found)
}

/// How long a certificate is good; `None`: it is none.
pub fn validity(certificate: &CertificateDer<'_>) -> Option<Validity> {
    let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
    let validity = parsed.validity();
    let time = |seconds| Timestamp::from_second(seconds).ok();
    Some(Validity {
        from: time(validity.not_before.timestamp())?,
        until: time(validity.not_after.timestamp())?,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::Issued;

    #[test]
    fn a_pair_is_read_from_one_text_or_two() {
        let issued = Issued::client("2026-01-01T00:00:00Z", "2027-01-01T00:00:00Z");
        let (certificate, key) = (issued.certificate_pem(), issued.key_pem());
        let both = format!("{certificate}{key}");
        for (chain, key) in [(&certificate, &key), (&both, &both)] {
            let pair = Pair::from_pem(chain.as_bytes(), key.as_bytes()).unwrap();
            assert_eq!(pair.chain.len(), 1);
            assert_eq!(pair.validity.until, "2027-01-01T00:00:00Z".parse().unwrap());
            assert!(!pair.validity.is_over("2026-12-31T23:59:59Z".parse().unwrap()));
            assert!(pair.validity.is_over("2027-01-01T00:00:00Z".parse().unwrap()));
            assert!(!format!("{pair:?}").contains("key"), "{pair:?}");
        }
    }

    #[test]
    fn halves_are_none() {
        let issued = Issued::client("2026-01-01T00:00:00Z", "2027-01-01T00:00:00Z");
        let (certificate, key) = (issued.certificate_pem(), issued.key_pem());
        let cut = |text: &str| text[..text.len() / 2].to_owned();
        for (chain, key) in [
            (String::new(), key.clone()),
            (certificate.clone(), String::new()),
            (cut(&certificate), key.clone()),
            (certificate.clone(), cut(&key)),
            (key.clone(), key.clone()),
        ] {
            assert!(Pair::from_pem(chain.as_bytes(), key.as_bytes()).is_err());
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = Pair::from_pem(&bytes, &bytes);
            let _ = validity(&CertificateDer::from(bytes));
        }
    }
}
