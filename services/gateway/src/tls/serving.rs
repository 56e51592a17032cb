//! The certificate that is shown. Without one, no connection comes about.

use std::sync::{Arc, PoisonError, RwLock};

use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

/// The present certificate.
#[derive(Debug, Default)]
pub(super) struct Serving(RwLock<Option<Arc<CertifiedKey>>>);

impl Serving {
    /// Shows `pair` from now on.
    pub(super) fn set(&self, pair: CertifiedKey) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(pair));
    }

    /// Whether there is one.
    pub(super) fn is_set(&self) -> bool {
        self.0.read().unwrap_or_else(PoisonError::into_inner).is_some()
    }
}

impl ResolvesServerCert for Serving {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// A certificate with its chain, and its key. Both may be the same text.
///
/// # Errors
/// With what is wrong, as the end of a sentence. Never shows a key.
pub(super) fn pair(certificate: &[u8], key: &[u8]) -> Result<CertifiedKey, String> {
    let chain: Result<Vec<CertificateDer<'static>>, _> =
        CertificateDer::pem_slice_iter(certificate).collect();
    let chain = chain.map_err(|_| "the certificate is no PEM")?;
    if chain.is_empty() {
        return Err("it holds no certificate".to_owned());
    }
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| "the key is no private key in PEM")?;
    CertifiedKey::from_der(chain, key, &ring::default_provider())
        .map_err(|error| format!("certificate and key do not go together: {error}"))
}
