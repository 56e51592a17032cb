//! Clients' certificates: any is taken in the handshake, as long as the client has its key; whether it counts is decided
//! for each request.

use std::sync::{Arc, PoisonError, RwLock};

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::WebPkiSupportedAlgorithms;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, Error, RootCertStore, SignatureScheme};

use super::Provider;

/// Asks for a certificate and takes any. A client without one, or with an unknown one, gets an answer in HTTP.
#[derive(Debug)]
pub(super) struct AnyClient(WebPkiSupportedAlgorithms);

impl AnyClient {
    pub(super) fn new(provider: &Provider) -> Self {
        Self(provider.signature_verification_algorithms)
    }
}

impl ClientCertVerifier for AnyClient {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        // None: clients then send what they have.
        &[]
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        rustls::crypto::verify_tls12_signature(message, certificate, signature, &self.0)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        rustls::crypto::verify_tls13_signature(message, certificate, signature, &self.0)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_schemes()
    }
}

/// Who signs clients' certificates, at the moment.
#[derive(Debug)]
pub(crate) struct Authorities {
    provider: Provider,
    present: RwLock<Option<Arc<dyn ClientCertVerifier>>>,
}

impl Authorities {
    /// None yet.
    pub(super) fn new(provider: Provider) -> Self {
        Self { provider, present: RwLock::default() }
    }

    /// Takes those of a bundle in PEM from now on.
    ///
    /// # Errors
    /// With what is wrong, as the end of a sentence; those from before then stay.
    pub(super) fn set(&self, bundle: &[u8]) -> Result<(), String> {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(bundle) {
            let certificate = certificate.map_err(|_| "it is no PEM")?;
            roots
                .add(certificate)
                .map_err(|error| format!("it holds a certificate that is none: {error}"))?;
        }
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), self.provider.clone())
            .build()
            .map_err(|error| error.to_string())?;
        *self.present.write().unwrap_or_else(PoisonError::into_inner) = Some(verifier);
        Ok(())
    }

    /// Whether there are any.
    pub(super) fn is_set(&self) -> bool {
        self.present.read().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Whether the first of `chain` is a client's certificate that they signed and that is good at `now`.
    pub(crate) fn trust(&self, chain: &[CertificateDer<'_>], now: UnixTime) -> bool {
        let present = self.present.read().unwrap_or_else(PoisonError::into_inner).clone();
        match (present, chain) {
            (Some(verifier), [first, others @ ..]) => verifier.verify_client_cert(first, others, now).is_ok(),
            _ => false,
        }
    }
}
