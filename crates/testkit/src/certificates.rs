//! A certificate authority for tests.

#![expect(clippy::expect_used, reason = "a harness: what fails here fails the test that uses it")]

use std::time::Duration;

use jiff::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, CertifiedIssuer, DistinguishedName,
    DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair, KeyUsagePurpose,
};

/// An authority with a key of its own.
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate and its key in PEM.
#[derive(Clone, Debug)]
pub struct Pem {
    /// The certificate.
    pub certificate: String,
    /// Its key.
    pub key: String,
}

impl Default for Authority {
    fn default() -> Self {
        Self::new()
    }
}

impl Authority {
    /// A new one.
    ///
    /// # Panics
    /// When it cannot be made.
    pub fn new() -> Self {
        let mut params = named("test-authority", None);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let key = KeyPair::generate().expect("a key");
        Self(CertifiedIssuer::self_signed(params, key).expect("an authority"))
    }

    /// Its certificate.
    pub fn pem(&self) -> String {
        self.0.pem()
    }

    /// For a server with these names and addresses.
    ///
    /// # Panics
    /// When it cannot be made.
    pub fn server(&self, names: &[&str]) -> Pem {
        let mut params = named("server", None);
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        params.subject_alt_names = CertificateParams::new(names).expect("names").subject_alt_names;
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.issue(params)
    }

    /// For a client who is `user` of `group`, good between these dates.
    ///
    /// # Panics
    /// When it cannot be made.
    pub fn client(&self, user: &str, group: &str, from: Timestamp, until: Timestamp) -> Pem {
        let mut params = named(user, Some(group));
        bound(&mut params, from, until);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.issue(params)
    }

    /// The certificate that a request asks for, good between these dates, in PEM.
    ///
    /// # Panics
    /// When it is no request.
    pub fn sign(&self, request: &str, from: Timestamp, until: Timestamp) -> String {
        let mut request = CertificateSigningRequestParams::from_pem(request).expect("a request");
        bound(&mut request.params, from, until);
        // Who has names shows it to others.
        let serves = !request.params.subject_alt_names.is_empty();
        let usage =
            if serves { ExtendedKeyUsagePurpose::ServerAuth } else { ExtendedKeyUsagePurpose::ClientAuth };
        request.params.extended_key_usages = vec![usage];
        request.signed_by(&self.0).expect("a certificate").pem()
    }

    fn issue(&self, params: CertificateParams) -> Pem {
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.0).expect("a certificate");
        Pem { certificate: certificate.pem(), key: key.serialize_pem() }
    }
}

fn named(name: &str, group: Option<&str>) -> CertificateParams {
    let mut params = CertificateParams::default();
    let mut subject = DistinguishedName::new();
    if let Some(group) = group {
        subject.push(DnType::OrganizationName, group);
    }
    subject.push(DnType::CommonName, name);
    params.distinguished_name = subject;
    params
}

/// Sets from when to when a certificate is good.
fn bound(params: &mut CertificateParams, from: Timestamp, until: Timestamp) {
    let since = |at: Timestamp| {
        rcgen::date_time_ymd(1970, 1, 1)
            + Duration::from_secs(u64::try_from(at.as_second()).expect("after 1970"))
    };
    params.not_before = since(from);
    params.not_after = since(until);
}
