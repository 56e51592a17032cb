//! What the API server is spoken to with: its address, whom to trust, and who we are. Made of a kubeconfig and the files that
//! it names.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bulkhead_base::chain;
use http::uri::Authority;
use http::{HeaderValue, Uri};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tokio_rustls::TlsConnector;

use crate::error::CredentialError;
use crate::kubeconfig::{Kubeconfig, Material, Trust};
use crate::limits;
use crate::pem::{self, Pair, Validity};

/// Where distributions keep the bundle of certificates that the machine trusts; the first one that is there counts.
const BUNDLES: [&str; 5] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// Ready for use.
pub struct Credential {
    /// Where.
    pub server: Server,
    /// Name in the server's certificate.
    pub name: ServerName<'static>,
    /// TLS with our certificate, if there is one.
    pub tls: TlsConnector,
    /// `Authorization`, if there is a token.
    pub bearer: Option<HeaderValue>,
    /// How long our certificate is good, if there is one.
    pub validity: Option<Validity>,
}

/// An API server's address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// Name or address, without brackets.
    pub host: String,
    /// Port.
    pub port: u16,
    /// `HOST:PORT` as it stands in requests.
    pub authority: Authority,
    /// What stands before every path; without a slash at its end.
    pub base: String,
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credential")
            .field("server", &self.server)
            .field("validity", &self.validity)
            .finish_non_exhaustive()
    }
}

impl Server {
    /// # Errors
    /// When it is not `https://HOST[:PORT][/PATH]`.
    pub fn parse(text: &str) -> Result<Self, CredentialError> {
        let error = |reason| CredentialError::Server { server: text.to_owned(), reason };
        let uri: Uri = text.parse().map_err(|_| error("write https://HOST:PORT"))?;
        if uri.scheme_str() != Some("https") {
            return Err(error(
                "write https://HOST:PORT: without TLS the credential could be read on the way",
            ));
        }
        let authority = uri.authority().ok_or_else(|| error("it has no host"))?;
        if authority.as_str().contains('@') || uri.query().is_some() || authority.host().is_empty() {
            return Err(error("write https://HOST:PORT and perhaps a path"));
        }
        let port = uri.port_u16().unwrap_or(443);
        let full =
            format!("{}:{port}", authority.host()).parse().map_err(|_| error("write https://HOST:PORT"))?;
        Ok(Self {
            host: authority.host().trim_start_matches('[').trim_end_matches(']').to_owned(),
            port,
            authority: full,
            base: uri.path().trim_end_matches('/').to_owned(),
        })
    }
}

impl Credential {
    /// Of a kubeconfig; `pair` takes the place of the one that it names. Blocks for files.
    ///
    /// # Errors
    /// When something of it cannot be read or used.
    pub fn new(kubeconfig: &Kubeconfig, pair: Option<Pair>) -> Result<Self, CredentialError> {
        let server = Server::parse(&kubeconfig.server)?;
        let name = kubeconfig.tls_server_name.clone().unwrap_or_else(|| server.host.clone());
        let name = ServerName::try_from(name).map_err(|_| CredentialError::Server {
            server: kubeconfig.server.clone(),
            reason: "its name (or tls-server-name) can be in no certificate",
        })?;
        let pair = match pair {
            Some(pair) => Some(pair),
            None => pair_of(kubeconfig)?,
        };
        let validity = pair.as_ref().map(|pair| pair.validity);
        Ok(Self {
            server,
            name,
            tls: TlsConnector::from(Arc::new(client_config(kubeconfig, pair)?)),
            bearer: kubeconfig.token.as_ref().map(bearer).transpose()?,
            validity,
        })
    }
}

/// The certificate and key that a kubeconfig names.
///
/// # Errors
/// When they cannot be read or used.
pub fn pair_of(kubeconfig: &Kubeconfig) -> Result<Option<Pair>, CredentialError> {
    let Some((certificate, key)) = &kubeconfig.identity else { return Ok(None) };
    let chain = bytes_of(certificate)?;
    let pair = Pair::from_pem(&chain, &bytes_of(key)?);
    pair.map(Some).map_err(|reason| unusable("client certificate", certificate, reason))
}

/// Reads a small file.
///
/// # Errors
/// When it cannot be read, or is too large.
pub fn read(path: &Path) -> Result<Vec<u8>, CredentialError> {
    let error = |source| CredentialError::Read { path: path.to_owned(), source };
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(error)?;
    file.take(limits::FILE + 1).read_to_end(&mut bytes).map_err(error)?;
    if bytes.len() as u64 > limits::FILE {
        return Err(error(io::Error::other(format!("it is larger than {} bytes", limits::FILE))));
    }
    Ok(bytes)
}

fn bytes_of(material: &Material) -> Result<Vec<u8>, CredentialError> {
    match material {
        Material::Inline(secret) => Ok(secret.reveal().to_vec()),
        Material::File(path) => read(path),
    }
}

fn unusable(what: &'static str, material: &Material, reason: impl Into<String>) -> CredentialError {
    let place = match material {
        Material::Inline(_) => "of the kubeconfig".to_owned(),
        Material::File(path) => format!("in {}", path.display()),
    };
    CredentialError::Material { what, place, reason: reason.into() }
}

fn bearer(token: &Material) -> Result<HeaderValue, CredentialError> {
    let bytes = bytes_of(token)?;
    let text = bytes.trim_ascii();
    let header = HeaderValue::from_bytes(&[b"Bearer ".as_slice(), text].concat());
    match header {
        Ok(mut header) if !text.is_empty() => {
            header.set_sensitive(true);
            Ok(header)
        }
        _ => Err(unusable("token", token, "it is empty, or no text for a header")),
    }
}

fn client_config(kubeconfig: &Kubeconfig, pair: Option<Pair>) -> Result<ClientConfig, CredentialError> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(CredentialError::Tls)?;
    let builder = match &kubeconfig.trust {
        Trust::Anybody => {
            builder.dangerous().with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)))
        }
        Trust::Authorities(material) => builder.with_root_certificates(authorities(material)?),
        Trust::Machine => builder.with_root_certificates(machine()?),
    };
    let mut config = match pair {
        Some(pair) => builder.with_client_auth_cert(pair.chain, pair.key).map_err(CredentialError::Tls)?,
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(config)
}

fn authorities(material: &Material) -> Result<RootCertStore, CredentialError> {
    let unusable = |reason: String| unusable("certificate authority", material, reason);
    let mut roots = RootCertStore::empty();
    for certificate in pem::certificates(&bytes_of(material)?).map_err(unusable)? {
        roots.add(certificate).map_err(|error| unusable(chain(&error).to_string()))?;
    }
    if roots.is_empty() {
        return Err(unusable("it holds no certificate".to_owned()));
    }
    Ok(roots)
}

fn machine() -> Result<RootCertStore, CredentialError> {
    let bundle = BUNDLES.iter().map(PathBuf::from).find(|path| path.is_file());
    let bundle = bundle.ok_or(CredentialError::Material {
        what: "certificate authority",
        place: "of this machine".to_owned(),
        reason: "there is none; write certificate-authority into the kubeconfig".to_owned(),
    })?;
    let mut roots = RootCertStore::empty();
    // One that cannot be read harms no other, as with every reader of such bundles.
    roots.add_parsable_certificates(pem::certificates(&read(&bundle)?).unwrap_or_default());
    Ok(roots)
}

/// Trusts whoever answers: `insecure-skip-tls-verify`.
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
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Issued;

    #[test]
    fn servers() {
        let server = Server::parse("https://api.example:6443/k8s/c1/").unwrap();
        assert_eq!(
            (server.host.as_str(), server.port, server.base.as_str()),
            ("api.example", 6443, "/k8s/c1")
        );
        let server = Server::parse("https://[2001:db8::1]").unwrap();
        assert_eq!((server.host.as_str(), server.authority.as_str()), ("2001:db8::1", "[2001:db8::1]:443"));
        assert_eq!(Server::parse("https://192.0.2.1/").unwrap().base, "");
        for text in
            ["", "api", "http://api:8080", "https://", "https://u:p@api", "https://api?x", "unix:///x"]
        {
            assert!(Server::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn files_are_read_and_their_faults_named() {
        let dir = tempfile::tempdir().unwrap();
        let issued = Issued::client("2026-01-01T00:00:00Z", "2027-01-01T00:00:00Z");
        let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
        write("ca", &issued.authority_pem());
        write("crt", &issued.certificate_pem());
        write("key", &issued.key_pem());
        write("token", " t0ken\n");
        let text = "current-context: x\ncontexts: [{name: x, context: {cluster: c, user: u}}]\n\
                    clusters: [{name: c, cluster: {server: 'https://h', certificate-authority: ca}}]\n\
                    users: [{name: u, user: {client-certificate: crt, client-key: key, tokenFile: token}}]\n";
        let kubeconfig = Kubeconfig::parse(text.as_bytes(), dir.path()).unwrap();
        let made = || Credential::new(&kubeconfig, None);
        let credential = made().unwrap();
        assert_eq!(credential.bearer.as_ref().unwrap(), "Bearer t0ken");
        assert_eq!(credential.validity.unwrap().until, "2027-01-01T00:00:00Z".parse().unwrap());
        assert!(!format!("{credential:?}").contains("t0ken"));
        let fault = |name: &str, text: &str| {
            let before = std::fs::read(dir.path().join(name)).unwrap();
            write(name, text);
            let error = made().unwrap_err();
            std::fs::write(dir.path().join(name), before).unwrap();
            chain(&error).to_string()
        };
        assert!(fault("ca", "").contains("it holds no certificate"));
        assert!(fault("ca", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n").contains("ca"));
        assert!(fault("crt", "").contains("it holds no certificate"));
        assert!(fault("key", "hunter2").contains("no private key"));
        let other = Issued::client("2026-01-01T00:00:00Z", "2027-01-01T00:00:00Z");
        assert!(fault("key", &other.key_pem()).contains("TLS cannot be set up"), "another certificate's key");
        assert!(fault("token", "\n").contains("it is empty"));
        std::fs::remove_file(dir.path().join("crt")).unwrap();
        let error = chain(&made().unwrap_err()).to_string();
        assert!(error.contains("crt: No such file"), "{error}");
    }
}
