//! Whom a client's certificate names: its common name is the user, its organizations are the groups. Pure.

use rustls::pki_types::CertificateDer;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::Identity;

/// Whom it names; `None`: nobody, or more than one.
pub(super) fn identity(certificate: &CertificateDer<'_>) -> Option<Identity> {
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    let subject = certificate.subject();
    let mut users = subject.iter_common_name();
    let user = users.next()?.as_str().ok().filter(|user| !user.is_empty())?;
    if users.next().is_some() {
        return None;
    }
    // A group that cannot be read could be one that takes rights away.
    let groups: Result<Vec<_>, _> =
        subject.iter_organization().map(|group| group.as_str().map(ToOwned::to_owned)).collect();
    Some(Identity { user: user.to_owned(), groups: groups.ok()?, ..Identity::default() })
}
