//! TLS of the secured port: which certificate is shown, and whose certificates are asked for.
//!
//! Owns the serving certificate and the authorities of clients, and reads both again when their files change; connections
//! that stand are not touched. Must never show a certificate that cannot be used, nor let a handshake decide who somebody
//! is: that is decided for each request, by the authorities as they are then.

mod clients;
mod keeper;
mod serving;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use bulkhead_service::Check;
use rustls::crypto::{CryptoProvider, ring};
use rustls::{ServerConfig, SupportedCipherSuite};
use tokio_util::sync::CancellationToken;

use crate::config::TlsSettings;

use clients::AnyClient;
pub(crate) use clients::Authorities;
use keeper::Keeper;
use serving::Serving;

/// TLS as it is at the moment.
pub(crate) struct Tls {
    /// For new connections.
    pub(crate) config: Arc<ServerConfig>,
    /// Who signs clients' certificates.
    pub(crate) authorities: Arc<Authorities>,
    serving: Arc<Serving>,
}

/// TLS cannot be set up as the configuration says.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TlsError {
    /// A name that the library does not have.
    #[error("tlsCipherSuites holds {0:?}, which the TLS library does not have")]
    Suite(String),
    /// No suite is left for the versions that are wanted.
    #[error("TLS cannot be set up with tlsMinVersion and tlsCipherSuites as they are")]
    Setup(#[source] rustls::Error),
}

impl Tls {
    /// As the settings say; no file is read yet.
    ///
    /// # Errors
    /// When the library cannot do what they say.
    pub(crate) fn new(settings: &TlsSettings) -> Result<Self, TlsError> {
        let mut provider = ring::default_provider();
        provider.cipher_suites = suites(&settings.cipher_suites, provider.cipher_suites)?;
        let provider = Arc::new(provider);
        let versions: &[_] = if settings.only_13 { &[&rustls::version::TLS13] } else { rustls::ALL_VERSIONS };
        let builder = ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(versions)
            .map_err(TlsError::Setup)?;
        let builder = match settings.client_ca {
            Some(_) => builder.with_client_cert_verifier(Arc::new(AnyClient::new(&provider))),
            None => builder.with_no_client_auth(),
        };
        let serving = Arc::new(Serving::default());
        let mut config = builder.with_cert_resolver(serving.clone());
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Self { config: Arc::new(config), authorities: Arc::new(Authorities::new(provider)), serving })
    }

    /// Reads the files, and again whenever they change, until shutdown. Returns when they were read once.
    pub(crate) async fn keep(&self, settings: TlsSettings, check: Check, shutdown: CancellationToken) {
        let (serving, authorities) = (self.serving.clone(), self.authorities.clone());
        let mut keeper = Keeper::new(settings, serving, authorities, check);
        keeper.look().await;
        tokio::spawn(async move { shutdown.run_until_cancelled(keeper.run()).await });
    }
}

/// Those of `known` that are wanted. TLS 1.3 has few and good ones, which are never left out, as in Go.
fn suites(
    wanted: &[String],
    known: Vec<SupportedCipherSuite>,
) -> Result<Vec<SupportedCipherSuite>, TlsError> {
    let is_13 = |suite: &SupportedCipherSuite| matches!(suite, SupportedCipherSuite::Tls13(_));
    let named = |suite: &SupportedCipherSuite, name: &str| {
        let own = format!("{:?}", suite.suite()).replace("TLS13_", "TLS_");
        // Go had this family before its names were settled.
        own == name || own.strip_suffix("_SHA256") == Some(name) && own.contains("CHACHA20")
    };
    if let Some(name) = wanted.iter().find(|name| !known.iter().any(|suite| named(suite, name))) {
        return Err(TlsError::Suite((*name).clone()));
    }
    let kept = |suite: &SupportedCipherSuite| {
        wanted.is_empty() || is_13(suite) || wanted.iter().any(|name| named(suite, name))
    };
    Ok(known.into_iter().filter(kept).collect())
}

/// The library, for checks of certificates.
type Provider = Arc<CryptoProvider>;
