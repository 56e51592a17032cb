//! Who a caller of the secured port is, and what he may.
//!
//! Owns both decisions, and how long they hold. Must never keep or tell a token, nor let anybody in because whoever should
//! decide is away.

pub(crate) mod attributes;
mod cache;
mod certificate;
mod reviews;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bulkhead_base::Clock;
use http::HeaderMap;
use http::header::AUTHORIZATION;
use rustls::pki_types::{CertificateDer, UnixTime};
use tokio::time::Instant;

use crate::config::AccessSettings;
use crate::tls::Authorities;
use attributes::Attributes;
use cache::{Cache, Keys};
pub(crate) use reviews::{ReviewError, Reviews};

/// Answers kept about tokens, and about rights.
const KEPT: usize = 4096;
/// Longest token looked at, in bytes. Those of service accounts have about one KiB.
const TOKEN_BYTES: usize = 32 * 1024;

/// Somebody.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Identity {
    /// The user's name.
    pub(crate) user: String,
    /// His id; empty: he has none.
    pub(crate) uid: String,
    /// His groups.
    pub(crate) groups: Vec<String>,
    /// What else is known of him.
    pub(crate) extra: BTreeMap<String, Vec<String>>,
}

/// What somebody may.
#[derive(Debug)]
pub(crate) enum Decision {
    /// This.
    Allowed,
    /// Not this.
    Denied,
    /// Nobody can tell now.
    Unknown(ReviewError),
}

/// The door.
pub(crate) struct Guard {
    settings: AccessSettings,
    /// Whether client certificates count.
    certificates: bool,
    authorities: Arc<Authorities>,
    reviews: Reviews,
    clock: Arc<dyn Clock>,
    keys: Keys,
    tokens: Cache<Option<Arc<Identity>>>,
    rights: Cache<bool>,
}

impl Guard {
    /// As the settings say; `certificates`: whether client certificates were asked for.
    pub(crate) fn new(
        settings: AccessSettings,
        certificates: bool,
        authorities: Arc<Authorities>,
        reviews: Reviews,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let keys = Keys::new();
        let (tokens, rights) = (Cache::new(KEPT), Cache::new(KEPT));
        Self { settings, certificates, authorities, reviews, clock, keys, tokens, rights }
    }

    /// Who calls, with this chain of certificates and these headers; `None`: nobody who may come in. Whoever shows something
    /// that does not count is not let in as somebody who showed nothing.
    pub(crate) async fn who(
        &self,
        chain: &[CertificateDer<'_>],
        headers: &HeaderMap,
    ) -> Option<Arc<Identity>> {
        let mut failed = false;
        if self.certificates && !chain.is_empty() {
            match self.by_certificate(chain) {
                Some(identity) => return Some(Arc::new(identity)),
                None => failed = true,
            }
        }
        if let (Some(life), Some(token)) = (self.settings.tokens, bearer(headers)) {
            match self.by_token(token, life).await {
                Some(identity) => return Some(identity),
                None => failed = true,
            }
        }
        (self.settings.anonymous && !failed).then(|| {
            let groups = vec!["system:unauthenticated".to_owned()];
            Arc::new(Identity { user: "system:anonymous".to_owned(), groups, ..Identity::default() })
        })
    }

    fn by_certificate(&self, chain: &[CertificateDer<'_>]) -> Option<Identity> {
        let now = u64::try_from(self.clock.now().as_second()).ok()?;
        if !self.authorities.trust(chain, UnixTime::since_unix_epoch(Duration::from_secs(now))) {
            return None;
        }
        certificate::identity(chain.first()?).map(Identity::authenticated)
    }

    async fn by_token(&self, token: &str, life: Duration) -> Option<Arc<Identity>> {
        let key = self.keys.of(&[token.as_bytes()]);
        if let Some(known) = self.tokens.get(&key, Instant::now()) {
            return known;
        }
        match self.reviews.token(token).await {
            Ok(found) => {
                let found = found.map(Identity::authenticated).map(Arc::new);
                self.tokens.put(key, found.clone(), Instant::now() + life);
                found
            }
            Err(error) => {
                tracing::warn!(error = %bulkhead_base::chain(&error), "a token could not be reviewed");
                None
            }
        }
    }

    /// Whether `identity` may do this.
    pub(crate) async fn may(&self, identity: &Identity, asked: &Attributes) -> Decision {
        let Some(lives) = self.settings.rights else { return Decision::Allowed };
        // One is enough; those that are narrower come first.
        let mut unknown = None;
        for subresource in asked.subresources {
            match self.right(identity, &asked.verb, subresource, lives).await {
                Ok(true) => return Decision::Allowed,
                Ok(false) => {}
                Err(error) => unknown = Some(error),
            }
        }
        unknown.map_or(Decision::Denied, Decision::Unknown)
    }

    async fn right(
        &self,
        identity: &Identity,
        verb: &str,
        subresource: &str,
        (yes, no): (Duration, Duration),
    ) -> Result<bool, ReviewError> {
        let of = serde_json::to_vec(&(&identity.user, &identity.uid, &identity.groups, &identity.extra));
        let key = self.keys.of(&[&of.unwrap_or_default(), verb.as_bytes(), subresource.as_bytes()]);
        if let Some(known) = self.rights.get(&key, Instant::now()) {
            return Ok(known);
        }
        let allowed = self.reviews.right(identity, &self.settings.node, verb, subresource).await?;
        self.rights.put(key, allowed, Instant::now() + if allowed { yes } else { no });
        Ok(allowed)
    }
}

impl Identity {
    /// He showed who he is.
    fn authenticated(mut self) -> Self {
        const GROUP: &str = "system:authenticated";
        if !self.groups.iter().any(|group| group == GROUP) {
            self.groups.push(GROUP.to_owned());
        }
        self
    }
}

/// The token that a request carries. A header that is none counts as none.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.trim().split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty() && token.len() <= TOKEN_BYTES)
        .then_some(token)
}
