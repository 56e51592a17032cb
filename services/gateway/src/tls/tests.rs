use std::time::Duration;

use bulkhead_base::{Clock, SystemClock};
use bulkhead_config::{KubeletConfiguration, TLS_CIPHER_SUITES};
use bulkhead_testkit::TestNode;
use bulkhead_testkit::certificates::{Authority, Pem};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, UnixTime};

use super::*;
use crate::config::Settings;

const BOUND: Duration = Duration::from_secs(10);

fn settings(node: &TestNode) -> TlsSettings {
    let mut settings = Settings::new(&KubeletConfiguration::default(), "node-a", node.dir()).tls;
    settings.client_ca = Some(node.dir().join("ca.crt"));
    settings
}

async fn until(what: &str, done: impl Fn() -> bool) {
    let wait = async {
        while !done() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(BOUND, wait).await.unwrap_or_else(|_| panic!("{what}"));
}

fn write(settings: &TlsSettings, pem: &Pem) {
    std::fs::write(&settings.certificate, &pem.certificate).unwrap();
    std::fs::write(&settings.key, &pem.key).unwrap();
}

#[test]
fn suites_go_by_the_names_of_the_configuration() {
    let known = ring::default_provider().cipher_suites;
    for name in TLS_CIPHER_SUITES {
        assert!(suites(&[name.to_owned()], known.clone()).is_ok(), "{name}");
    }
    assert_eq!(suites(&[], known.clone()).unwrap().len(), known.len());
    let one = suites(&["TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256".to_owned()], known.clone()).unwrap();
    let of_12 = one.iter().filter(|suite| matches!(suite, SupportedCipherSuite::Tls12(_)));
    assert_eq!((of_12.count(), one.len()), (1, 4), "and those of TLS 1.3");
    assert!(suites(&["TLS_RSA_WITH_AES_128_CBC_SHA".to_owned()], known.clone()).is_err());
    assert!(known.iter().all(|suite| {
        let name = format!("{:?}", suite.suite()).replace("TLS13_", "TLS_");
        TLS_CIPHER_SUITES.contains(&name.as_str())
    }));
}

#[tokio::test]
async fn certificates_are_read_when_they_come_and_when_they_change() {
    let node = TestNode::new().await;
    let context = node.context("gateway");
    let settings = settings(&node);
    let tls = Tls::new(&settings).unwrap();
    tls.keep(settings.clone(), context.check("certificates"), node.shutdown.clone()).await;
    assert!(!tls.serving.is_set(), "without a certificate there is no connection");
    let authority = Authority::new();
    let first = authority.server(&["node-a"]);
    write(&settings, &first);
    until("the certificate is read", || tls.serving.is_set()).await;

    std::fs::write(node.dir().join("ca.crt"), authority.pem()).unwrap();
    let now = SystemClock.now();
    let day = Duration::from_secs(86_400);
    let client = authority.client("alice", "g", now - day, now + day);
    let der = CertificateDer::from_pem_slice(client.certificate.as_bytes()).unwrap();
    until("the authorities are read", || tls.authorities.trust(std::slice::from_ref(&der), UnixTime::now()))
        .await;
    // Past its end, and of an authority that is not there.
    let later =
        UnixTime::since_unix_epoch(Duration::from_secs(u64::try_from(now.as_second()).unwrap()) + 2 * day);
    assert!(!tls.authorities.trust(std::slice::from_ref(&der), later));
    let other = Authority::new().client("alice", "g", now - day, now + day);
    let other = CertificateDer::from_pem_slice(other.certificate.as_bytes()).unwrap();
    assert!(!tls.authorities.trust(&[other], UnixTime::now()));
    let server = CertificateDer::from_pem_slice(first.certificate.as_bytes()).unwrap();
    assert!(
        !tls.authorities.trust(&[server], UnixTime::now()),
        "a server's certificate makes nobody a client"
    );
    assert!(!tls.authorities.trust(&[], UnixTime::now()));
}

#[test]
fn pairs_that_are_none_are_refused_without_showing_a_key() {
    let authority = Authority::new();
    let (a, b) = (authority.server(&["a"]), authority.server(&["b"]));
    assert!(serving::pair(a.certificate.as_bytes(), a.key.as_bytes()).is_ok());
    let both = format!("{}{}", a.certificate, a.key);
    assert!(serving::pair(both.as_bytes(), both.as_bytes()).is_ok());
    for (certificate, key) in [
        (a.certificate.as_str(), b.key.as_str()),
        ("", a.key.as_str()),
        (a.certificate.as_str(), ""),
        (a.key.as_str(), a.key.as_str()),
        ("-----BEGIN CERTIFICATE-----\nx", a.key.as_str()),
    ] {
        let reason = serving::pair(certificate.as_bytes(), key.as_bytes()).unwrap_err();
        assert!(!reason.contains("BEGIN"), "{reason}");
    }
}
