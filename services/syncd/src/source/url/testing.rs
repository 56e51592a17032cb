//! A web server for tests: one answer for each request, by its head.

use std::sync::{Arc, Mutex};

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

/// The certificate of `localhost` that [`Web::tls`] shows; it trusts itself.
pub const CERTIFICATE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/source/url/testdata/localhost.pem");

/// The server. It goes with the test's runtime.
pub struct Web {
    pub port: u16,
    heads: Arc<Mutex<Vec<String>>>,
}

impl Web {
    /// Without TLS.
    pub async fn plain(answer: impl Fn(&str) -> Vec<u8> + Send + Sync + 'static) -> Self {
        Self::serve(None, answer).await
    }

    /// With TLS.
    pub async fn tls(answer: impl Fn(&str) -> Vec<u8> + Send + Sync + 'static) -> Self {
        let certificate = CertificateDer::from_pem_file(CERTIFICATE).unwrap();
        let key = include_bytes!("testdata/localhost-key.der").to_vec();
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key));
        let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key)
            .unwrap();
        Self::serve(Some(TlsAcceptor::from(Arc::new(config))), answer).await
    }

    async fn serve(
        tls: Option<TlsAcceptor>,
        answer: impl Fn(&str) -> Vec<u8> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let heads = Arc::new(Mutex::new(Vec::new()));
        let seen = heads.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                match &tls {
                    None => one(stream, &answer, &seen).await,
                    Some(tls) => {
                        if let Ok(stream) = tls.accept(stream).await {
                            one(stream, &answer, &seen).await;
                        }
                    }
                }
            }
        });
        Self { port, heads }
    }

    /// Heads of the requests so far.
    pub fn heads(&self) -> Vec<String> {
        self.heads.lock().unwrap().clone()
    }
}

async fn one(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    answer: &impl Fn(&str) -> Vec<u8>,
    seen: &Mutex<Vec<String>>,
) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => return,
        }
    }
    let head = String::from_utf8(head).unwrap();
    let answer = answer(&head);
    seen.lock().unwrap().push(head);
    // The reader may have had enough.
    let _ = stream.write_all(&answer).await;
    let _ = stream.shutdown().await;
}

/// An answer with a body.
pub fn ok(body: impl AsRef<[u8]>) -> Vec<u8> {
    let body = body.as_ref();
    let mut answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len()).into_bytes();
    answer.extend_from_slice(body);
    answer
}

/// A redirect.
pub fn moved(location: &str) -> Vec<u8> {
    format!("HTTP/1.1 302 Found\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n").into_bytes()
}
