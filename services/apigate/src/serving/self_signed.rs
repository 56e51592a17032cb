//! The certificate that the node signs itself, under the kubelet's names: `kubelet.crt` and `kubelet.key`. Made when there is
//! none that can be used, and again before it is over or when the node's addresses are others. One that somebody else signed
//! and that can be used is never replaced.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bulkhead_base::{Clock, chain};
use bulkhead_reconcile::{Next, Reconciler, Trigger};
use bulkhead_service::Check;
use jiff::{SignedDuration, Timestamp};
use rcgen::{
    CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, KeyPair, KeyUsagePurpose,
    PKCS_ECDSA_P256_SHA256,
};
use rustls::crypto::ring;
use rustls::sign::CertifiedKey;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::names::Names;
use crate::pem::{Pair, Validity};
use crate::secret::Secret;
use crate::store::{SHOWN, write};
use crate::{credential, limits};

/// How long it is good: as the kubelet's.
const LIFE: SignedDuration = SignedDuration::from_hours(365 * 24);
/// How long before its end a new one is made.
const AHEAD: SignedDuration = SignedDuration::from_hours(30 * 24);
/// Clients' clocks may be behind.
const SKEW: SignedDuration = SignedDuration::from_hours(1);

/// The loop.
pub struct SelfSigned {
    /// Where it is.
    pub folder: PathBuf,
    /// What it must be good for.
    pub names: Names,
    /// The wall clock.
    pub clock: Arc<dyn Clock>,
    /// Whether there is one.
    pub check: Check,
}

/// Why there is none.
#[derive(Debug, thiserror::Error)]
pub enum SelfSignedError {
    /// It cannot be made.
    #[error("a certificate for {names} cannot be made")]
    Make {
        /// What it should be good for.
        names: String,
        /// Why.
        #[source]
        source: rcgen::Error,
    },
    /// It cannot be written.
    #[error("cannot write to {}", folder.display())]
    Disk {
        /// Where.
        folder: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

impl Reconciler for SelfSigned {
    const NAME: &'static str = "serving certificate";

    fn interval(&self) -> Duration {
        limits::SELF_SIGNED
    }

    async fn reconcile(&mut self, _: Trigger) -> Next {
        let (folder, names, now) = (self.folder.clone(), self.names.clone(), self.clock.now());
        match tokio::task::spawn_blocking(move || keep(&folder, &names, now)).await {
            Ok(Ok(())) => {
                self.check.good();
                Next::Wait
            }
            Ok(Err(error)) => {
                let reason = chain(&error).to_string();
                self.check.bad(reason.clone());
                Next::Failed(reason)
            }
            // The runtime stops.
            Err(_) => Next::Wait,
        }
    }
}

/// Makes sure of a certificate. Blocks for files.
///
/// # Errors
/// When there is none, and none can be made.
pub fn keep(folder: &Path, names: &Names, now: Timestamp) -> Result<(), SelfSignedError> {
    let (certificate, key) = (folder.join("kubelet.crt"), folder.join("kubelet.key"));
    match found(&certificate, &key) {
        Some(Found { own: false, .. }) => return Ok(()),
        Some(Found { names: has, validity, .. }) if has == *names && !ends_soon(validity, now) => {
            return Ok(());
        }
        _ => {}
    }
    let (pem, secret) =
        make(names, now).map_err(|source| SelfSignedError::Make { names: names.to_string(), source })?;
    let disk = |source| SelfSignedError::Disk { folder: folder.to_owned(), source };
    for path in [&certificate, &key] {
        set_aside(path).map_err(disk)?;
    }
    // The key first: whoever reads between finds two that do not go together, and reads again.
    write(&key, secret.reveal(), SHOWN).map_err(disk)?;
    write(&certificate, pem.as_bytes(), 0o644).map_err(disk)?;
    tracing::info!(names = %names, "a new serving certificate, signed by the node itself");
    Ok(())
}

struct Found {
    /// Whether it was signed with its own key.
    own: bool,
    names: Names,
    validity: Validity,
}

/// A pair that can be used.
fn found(certificate: &Path, key: &Path) -> Option<Found> {
    let (certificate, key) = (credential::read(certificate).ok()?, credential::read(key).ok()?);
    let Pair { chain, key, validity } = Pair::from_pem(&certificate, &key).ok()?;
    let first = chain.first()?.clone();
    CertifiedKey::from_der(chain, key, &ring::default_provider()).ok()?;
    let (_, parsed) = X509Certificate::from_der(&first).ok()?;
    let own = parsed.issuer() == parsed.subject();
    Some(Found { own, names: Names::of_certificate(&first)?, validity })
}

fn ends_soon(validity: Validity, now: Timestamp) -> bool {
    validity.until.duration_since(now) < AHEAD
}

fn make(names: &Names, now: Timestamp) -> Result<(String, Secret), rcgen::Error> {
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
    let mut params = CertificateParams::default();
    let mut subject = DistinguishedName::new();
    subject.push(DnType::CommonName, format!("kubelet-serving@{}", now.as_second()));
    params.distinguished_name = subject;
    params.subject_alt_names = names.to_params()?;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let date = |at: Timestamp| {
        rcgen::date_time_ymd(1970, 1, 1)
            + Duration::from_secs(u64::try_from(at.as_second()).unwrap_or_default())
    };
    params.not_before = date(now.saturating_sub(SKEW).unwrap_or(now));
    params.not_after = date(now.saturating_add(LIFE).unwrap_or(now));
    let certificate = params.self_signed(&key)?;
    Ok((certificate.pem(), Secret::new(key.serialize_pem().into_bytes())))
}

/// What stands there and cannot be used here may be of use to somebody else.
fn set_aside(path: &Path) -> io::Result<()> {
    let mut aside = path.to_owned().into_os_string();
    aside.push(".before");
    match fs::rename(path, PathBuf::from(aside)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use bulkhead_testkit::certificates::Authority;

    use super::*;

    fn names(ips: &[&str]) -> Names {
        Names::new("node-a", ips.iter().map(|ip| ip.parse().unwrap()))
    }

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn shown(folder: &Path) -> Vec<u8> {
        fs::read(folder.join("kubelet.crt")).unwrap()
    }

    #[test]
    fn one_is_made_kept_and_made_again_in_time() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path();
        let own = names(&["192.0.2.10", "2001:db8::1"]);
        keep(folder, &own, at("2026-01-01T00:00:00Z")).unwrap();
        let mode = |name: &str| fs::metadata(folder.join(name)).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode("kubelet.key"), mode("kubelet.crt")), (0o640, 0o644));
        let pair = found(&folder.join("kubelet.crt"), &folder.join("kubelet.key")).unwrap();
        assert_eq!((pair.own, &pair.names), (true, &own));
        assert_eq!(pair.validity.until, at("2027-01-01T00:00:00Z"));
        let first = shown(folder);
        keep(folder, &own, at("2026-12-01T00:00:00Z")).unwrap();
        assert_eq!(shown(folder), first, "still good");
        keep(folder, &own, at("2026-12-03T00:00:00Z")).unwrap();
        let second = shown(folder);
        assert_ne!(second, first, "over in less than 30 days");
        keep(folder, &names(&["192.0.2.11"]), at("2026-12-03T00:00:00Z")).unwrap();
        assert_ne!(shown(folder), second, "another address");
        fs::write(folder.join("kubelet.key"), "x").unwrap();
        keep(folder, &own, at("2026-12-03T00:00:00Z")).unwrap();
        assert!(found(&folder.join("kubelet.crt"), &folder.join("kubelet.key")).is_some());
        assert_eq!(fs::read(folder.join("kubelet.key.before")).unwrap(), b"x");
    }

    #[test]
    fn what_somebody_else_signed_stays() {
        let dir = tempfile::tempdir().unwrap();
        let pem = Authority::new().server(&["elsewhere"]);
        fs::write(dir.path().join("kubelet.crt"), &pem.certificate).unwrap();
        fs::write(dir.path().join("kubelet.key"), &pem.key).unwrap();
        keep(dir.path(), &names(&["192.0.2.10"]), at("2026-01-01T00:00:00Z")).unwrap();
        assert_eq!(shown(dir.path()), pem.certificate.as_bytes());
    }
}
