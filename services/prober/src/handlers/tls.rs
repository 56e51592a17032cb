//! TLS without checking the certificate, as probes have it: the pod's address is known, its certificate is not.

use std::sync::Arc;

use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, Error, SignatureScheme};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::net::ip;
use crate::error::NetError;

/// Makes TLS sessions. Clones share the set-up.
#[derive(Clone)]
pub struct Tls {
    http: TlsConnector,
    grpc: TlsConnector,
}

/// What is spoken inside.
#[derive(Clone, Copy, Debug)]
pub enum Inside {
    /// HTTP/1.1.
    Http,
    /// HTTP/2.
    Grpc,
}

impl Tls {
    /// With the protocol versions and ciphers that are thought safe.
    ///
    /// # Errors
    /// When the cryptography at hand fits no protocol version.
    pub fn new() -> Result<Self, Error> {
        let provider = Arc::new(ring::default_provider());
        let connector = |protocol: &[u8]| -> Result<TlsConnector, Error> {
            let mut config = ClientConfig::builder_with_provider(provider.clone())
                .with_safe_default_protocol_versions()?
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(AnyCertificate(provider.clone())))
                .with_no_client_auth();
            config.alpn_protocols = vec![protocol.to_vec()];
            // Each run is a connection of its own; nothing is remembered between them.
            config.resumption = Resumption::disabled();
            Ok(TlsConnector::from(Arc::new(config)))
        };
        Ok(Self { http: connector(b"http/1.1")?, grpc: connector(b"h2")? })
    }

    /// A session with `host` over `stream`.
    ///
    /// # Errors
    /// [`NetError::Tls`] when the host is no name or the handshake fails.
    pub async fn wrap(
        &self,
        host: &str,
        stream: TcpStream,
        inside: Inside,
    ) -> Result<TlsStream<TcpStream>, NetError> {
        let failed = |source| NetError::Tls { host: host.to_owned(), source };
        let name = match ip(host) {
            Some(address) => ServerName::from(address),
            None => {
                ServerName::try_from(host.to_owned()).map_err(|error| failed(std::io::Error::other(error)))?
            }
        };
        let connector = match inside {
            Inside::Http => &self.http,
            Inside::Grpc => &self.grpc,
        };
        connector.connect(name, stream).await.map_err(failed)
    }
}

/// Takes every certificate. Its signatures are not looked at either: of an unknown key they say nothing, and the checker
/// would refuse old forms of certificates that servers still show.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
