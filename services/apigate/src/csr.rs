//! A request for one of the node's certificates: its key, its text, and the object that carries it to the API server. Pure but
//! for the key.

use bytes::Bytes;
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, PKCS_ECDSA_P256_SHA256};
use serde::Deserialize;
use serde_json::json;
use sha2::{Digest, Sha256};

use crate::base64;
use crate::secret::Secret;
use crate::serving::names::Names;

/// Where requests are.
pub const PATH: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
/// What they are.
const KIND: &str = "CertificateSigningRequest";
/// Who signs client certificates.
const SIGNER: &str = "kubernetes.io/kube-apiserver-client-kubelet";
/// Who signs serving certificates.
const SERVING_SIGNER: &str = "kubernetes.io/kubelet-serving";

/// A request that may be sent, and sent again: one key makes one request.
pub struct Csr {
    /// Its name on the API server.
    pub name: String,
    /// The object.
    pub object: Bytes,
}

/// A request cannot be made.
#[derive(Debug, thiserror::Error)]
#[error("a certificate request cannot be made")]
pub struct CsrError(#[from] rcgen::Error);

/// What became of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Nobody decided yet, or the certificate is not there yet.
    Pending,
    /// The certificate, in PEM.
    Issued(Vec<u8>),
    /// It was denied, or signing failed: what was said.
    Refused(String),
}

/// A new key, ECDSA P-256, in PEM.
///
/// # Errors
/// When the machine has no randomness.
pub fn new_key() -> Result<Secret, CsrError> {
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
    Ok(Secret::new(key.serialize_pem().into_bytes()))
}

impl Csr {
    /// For the node `node`, as the API server's node authorization knows nodes.
    ///
    /// # Errors
    /// When the key cannot be used.
    pub fn new(node: &str, key: &Secret) -> Result<Self, CsrError> {
        Self::of(node, key, &Names::default(), (SIGNER, "client auth"))
    }

    /// For what the node `node` shows to its clients, with these names and addresses of it.
    ///
    /// # Errors
    /// When the key or a name cannot be used.
    pub fn serving(node: &str, key: &Secret, names: &Names) -> Result<Self, CsrError> {
        Self::of(node, key, names, (SERVING_SIGNER, "server auth"))
    }

    fn of(node: &str, key: &Secret, names: &Names, (signer, usage): (&str, &str)) -> Result<Self, CsrError> {
        let key = KeyPair::from_pem(&String::from_utf8_lossy(key.reveal()))?;
        let mut params = CertificateParams::default();
        params.subject_alt_names = names.to_params()?;
        let mut subject = DistinguishedName::new();
        subject.push(DnType::OrganizationName, "system:nodes");
        subject.push(DnType::CommonName, format!("system:node:{node}"));
        params.distinguished_name = subject;
        let pem = params.serialize_request(&key)?.pem()?;
        let mut digest = Sha256::new().chain_update(key.public_key_raw()).chain_update(node);
        if !names.is_empty() {
            digest = digest.chain_update("\0").chain_update(names.to_string());
        }
        let digest = digest.finalize();
        let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        let name = if names.is_empty() { format!("node-csr-{digest}") } else { format!("csr-{digest}") };
        let object = json!({
            "apiVersion": "certificates.k8s.io/v1",
            "kind": KIND,
            "metadata": {"name": name},
            "spec": {
                "request": base64::encode(pem.as_bytes()),
                "signerName": signer,
                "usages": ["digital signature", usage],
            },
        });
        Ok(Self { name, object: object.to_string().into() })
    }
}

#[derive(Deserialize)]
struct Object {
    kind: String,
    #[serde(default)]
    status: Status,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Status {
    certificate: String,
    conditions: Vec<Condition>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Condition {
    #[serde(rename = "type")]
    kind: String,
    reason: String,
    message: String,
}

/// What an object of the API server says; `None`: it is none.
pub fn read(object: &[u8]) -> Option<Answer> {
    let Object { kind, status } = serde_json::from_slice(object).ok()?;
    if kind != KIND {
        return None;
    }
    // Denied and Failed stay for good, and a certificate never comes with them.
    if let Some(no) = status.conditions.iter().find(|c| c.kind == "Denied" || c.kind == "Failed") {
        return Some(Answer::Refused(format!("{}: {}: {}", no.kind, no.reason, no.message)));
    }
    if status.certificate.is_empty() {
        return Some(Answer::Pending);
    }
    base64::decode(&status.certificate).map(Answer::Issued)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_for_the_node_and_the_same_key_makes_the_same_one() {
        let key = new_key().unwrap();
        let csr = Csr::new("node-a", &key).unwrap();
        assert_eq!(Csr::new("node-a", &key).unwrap().name, csr.name);
        assert_ne!(Csr::new("node-b", &key).unwrap().name, csr.name);
        assert_ne!(Csr::new("node-a", &new_key().unwrap()).unwrap().name, csr.name);
        assert!(csr.name.len() < 100, "{}", csr.name);
        let object: serde_json::Value = serde_json::from_slice(&csr.object).unwrap();
        assert_eq!(object["spec"]["signerName"], SIGNER);
        assert_eq!(object["spec"]["usages"], serde_json::json!(["digital signature", "client auth"]));
        let pem = base64::decode(object["spec"]["request"].as_str().unwrap()).unwrap();
        let pem = String::from_utf8(pem).unwrap();
        let parsed = rcgen::CertificateSigningRequestParams::from_pem(&pem).unwrap().params;
        let name = |kind| parsed.distinguished_name.get(&kind).map(|value| format!("{value:?}")).unwrap();
        assert!(name(DnType::CommonName).contains("system:node:node-a"));
        assert!(name(DnType::OrganizationName).contains("system:nodes"));
        assert!(parsed.subject_alt_names.is_empty(), "the signer refuses any");
    }

    #[test]
    fn a_key_that_is_none_is_refused() {
        assert!(Csr::new("n", &Secret::new(b"x".to_vec())).is_err());
        assert!(Csr::new("n", &Secret::new(vec![0xff])).is_err());
    }

    #[test]
    fn answers() {
        let of = |status: &str| read(format!(r#"{{"kind":"{KIND}","status":{status}}}"#).as_bytes());
        assert_eq!(of("{}"), Some(Answer::Pending));
        assert_eq!(of(r#"{"conditions":[{"type":"Approved"}]}"#), Some(Answer::Pending));
        assert_eq!(of(r#"{"certificate":"Y3J0"}"#), Some(Answer::Issued(b"crt".to_vec())));
        let denied = r#"{"certificate":"Y3J0","conditions":[{"type":"Denied","reason":"No","message":"m"}]}"#;
        assert_eq!(of(denied), Some(Answer::Refused("Denied: No: m".to_owned())));
        assert_eq!(of("3"), None);
        assert_eq!(of(r#"{"certificate":"!"}"#), None);
        for text in ["", "[]", "{}", "{", r#"{"kind":"Status"}"#] {
            assert_eq!(read(text.as_bytes()), None, "{text}");
        }
    }
}
