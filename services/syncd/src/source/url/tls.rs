//! TLS to the manifest URL, its certificate checked against the certificates that this machine trusts.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::ring;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use tokio_rustls::TlsConnector;

use super::fetch::FetchError;

/// Where distributions keep the bundle of certificates that the machine trusts; the first one that is there counts.
const BUNDLES: [&str; 6] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/pki/tls/cacert.pem",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// The machine's bundles.
pub fn bundles() -> Vec<PathBuf> {
    BUNDLES.iter().map(PathBuf::from).collect()
}

/// A connector that trusts what the first of `bundles` that is there names. Blocks for a file.
///
/// # Errors
/// When there is none, or none with a certificate in it.
pub fn connector(bundles: &[PathBuf]) -> Result<TlsConnector, FetchError> {
    let roots = roots(bundles)?;
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|source| FetchError::Cryptography { source })?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

fn roots(bundles: &[PathBuf]) -> Result<RootCertStore, FetchError> {
    let bundle = bundles.iter().find(|path| path.is_file());
    let path: &Path = bundle.ok_or(FetchError::NoRoots)?;
    let text = std::fs::read(path).map_err(|source| FetchError::Roots { path: path.to_owned(), source })?;
    let mut roots = RootCertStore::empty();
    // One that cannot be read harms no other, as with every reader of such bundles.
    let certificates = CertificateDer::pem_slice_iter(&text).filter_map(Result::ok);
    let (taken, _) = roots.add_parsable_certificates(certificates);
    if taken == 0 {
        let source = std::io::Error::other("it holds no certificate");
        return Err(FetchError::Roots { path: path.to_owned(), source });
    }
    Ok(roots)
}
