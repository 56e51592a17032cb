//! Tokens of pods' service accounts: when one is due, and asking for it.
//!
//! Kept in memory only. Must never ask faster than its back-off allows, whatever clocks say.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use bulkhead_base::{Backoff, Clock};
use bulkhead_kubeapi::quiet;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::Client;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::text::Secret;
use crate::spec::{Identity, TokenKey};

/// The oldest that a token gets (the kubelet's).
const OLDEST: Duration = Duration::from_secs(24 * 3600);
/// Up to so much sooner a token is renewed, so that not all come at once (the kubelet's).
const JITTER: Duration = Duration::from_secs(10);
/// How far the API server's clock may be ahead of the node's before a token counts as not valid yet.
const SKEW: SignedDuration = SignedDuration::from_secs(120);
/// Requests at the same time: after a restart all tokens of the node are asked for.
const PARALLEL: usize = 4;
/// How long a request may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// First and longest wait after a request that failed, or whose token was due at once.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// A token. Its text is secret.
#[derive(Clone, Debug)]
pub(crate) struct Token {
    text: Secret,
    issued: Timestamp,
    expires: Timestamp,
    /// Renewed so much sooner.
    jitter: Duration,
}

impl Token {
    /// The token itself.
    pub(crate) fn reveal(&self) -> &[u8] {
        self.text.reveal()
    }

    /// From when on it is to be renewed: at 80 % of its life, and after a day at the latest.
    fn due_at(&self) -> Timestamp {
        let life = self.expires.duration_since(self.issued).max(SignedDuration::ZERO);
        let life = Duration::try_from(life).unwrap_or_default();
        let age = (life / 5 * 4).min(OLDEST);
        // Of a short life the jitter is a part.
        let age = age.saturating_sub(self.jitter.min(life / 20));
        self.issued.checked_add(age).unwrap_or(self.issued)
    }

    /// Whether it is to be renewed. A token of the future is: somebody's clock jumped, and it is not valid yet.
    fn is_due(&self, now: Timestamp) -> bool {
        now >= self.due_at() || self.issued.duration_since(now) > SKEW
    }

    fn is_expired(&self, now: Timestamp) -> bool {
        now >= self.expires
    }

    #[cfg(test)]
    pub(crate) fn new_for_test(text: &str) -> Self {
        let text = Secret::new(text.to_owned());
        Self { text, issued: Timestamp::UNIX_EPOCH, expires: Timestamp::MAX, jitter: Duration::ZERO }
    }
}

/// The tokens of one pod.
#[derive(Debug, Default)]
pub(crate) struct PodTokens {
    tokens: BTreeMap<TokenKey, Entry>,
}

#[derive(Debug)]
struct Entry {
    token: Option<Token>,
    /// Why the last request failed.
    problem: Option<String>,
    /// Not asked before.
    rests_until: Option<Instant>,
    backoff: Backoff,
}

/// Gets tokens for all pods.
#[derive(Clone)]
pub(crate) struct Tokens {
    clock: Arc<dyn Clock>,
    requests: Arc<Semaphore>,
}

impl Tokens {
    /// None yet.
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, requests: Arc::new(Semaphore::new(PARALLEL)) }
    }

    /// Sees to it that the pod has these tokens and no others, and renews those that are due. One that cannot be renewed stays
    /// as it is.
    pub(crate) async fn bring(
        &self,
        client: &Client,
        pod: &Identity,
        uid: &str,
        wanted: &[TokenKey],
        held: &mut PodTokens,
    ) {
        held.tokens.retain(|key, _| wanted.contains(key));
        for key in wanted {
            let entry = held.tokens.entry(key.clone()).or_insert_with(|| Entry {
                token: None,
                problem: None,
                rests_until: None,
                backoff: Backoff::new(RETRY.0, RETRY.1),
            });
            let rests = entry.rests_until.is_some_and(|until| Instant::now() < until);
            let due = entry.token.as_ref().is_none_or(|token| token.is_due(self.clock.now()));
            if !due || rests {
                continue;
            }
            let answer = self.request(client, pod, uid, key).await;
            let again = |entry: &mut Entry| Some(Instant::now() + entry.backoff.next_delay());
            match answer {
                Ok(token) if token.is_due(self.clock.now()) => {
                    entry.token = Some(token);
                    entry.problem = None;
                    entry.rests_until = again(entry);
                }
                Ok(token) => {
                    entry.token = Some(token);
                    entry.problem = None;
                    entry.backoff.reset();
                    entry.rests_until = None;
                }
                Err(reason) => {
                    entry.problem = Some(reason);
                    entry.rests_until = again(entry);
                }
            }
        }
    }

    async fn request(
        &self,
        client: &Client,
        pod: &Identity,
        uid: &str,
        key: &TokenKey,
    ) -> Result<Token, String> {
        let audiences = (!key.audience.is_empty()).then(|| vec![key.audience.clone()]);
        let body = TokenRequest {
            spec: Some(TokenRequestSpec {
                audiences,
                expiration_seconds: i64::try_from(key.expiration_seconds).ok(),
                bound_object_ref: Some(BoundObjectReference {
                    api_version: Some("v1".to_owned()),
                    kind: Some("Pod".to_owned()),
                    name: Some(pod.name.clone()),
                    uid: Some(uid.to_owned()),
                }),
                attestations: None,
            }),
            ..TokenRequest::default()
        };
        // Never closed.
        let _place = self.requests.acquire().await;
        let call = quiet::create_subresource::<ServiceAccount, _>(
            client,
            &pod.namespace,
            &pod.account,
            "token",
            &body,
        );
        let answer = match tokio::time::timeout(PATIENCE, call).await {
            Ok(answer) => answer.map_err(|error| quiet::reason(&error))?,
            Err(_) => return Err("the API server does not answer".to_owned()),
        };
        read(answer)
    }

    /// When the next one of these is due; `None`: none ever.
    pub(crate) fn next(&self, held: &PodTokens) -> Option<Instant> {
        let (wall, now) = (self.clock.now(), Instant::now());
        let each = held.tokens.values().map(|entry| {
            let due = match &entry.token {
                Some(token) if !token.is_due(wall) => {
                    now + Duration::try_from(token.due_at().duration_since(wall)).unwrap_or_default()
                }
                _ => now,
            };
            entry.rests_until.map_or(due, |until| due.max(until))
        });
        each.min()
    }

    /// The tokens as they are; with `valid`, none that is expired.
    pub(crate) fn tokens(&self, held: &PodTokens, valid: bool) -> BTreeMap<TokenKey, Token> {
        let now = self.clock.now();
        let each = held.tokens.iter().filter_map(|(key, entry)| Some((key.clone(), entry.token.clone()?)));
        each.filter(|(_, token)| !valid || !token.is_expired(now)).collect()
    }
}

impl PodTokens {
    /// Why tokens are not renewed, if that is so.
    pub(crate) fn problem(&self) -> Option<String> {
        let problem = self.tokens.values().find_map(|entry| entry.problem.as_ref())?;
        Some(format!("failed to fetch token: {problem}"))
    }
}

fn read(answer: TokenRequest) -> Result<Token, String> {
    let broken = || "the API server's answer holds no token".to_owned();
    let status = answer.status.ok_or_else(broken)?;
    let expires = status.expiration_timestamp.ok_or_else(broken)?.0;
    let seconds = answer.spec.and_then(|spec| spec.expiration_seconds).filter(|seconds| *seconds > 0);
    // By the API server's clock, not by ours.
    let life = SignedDuration::from_secs(seconds.ok_or_else(broken)?);
    let issued = expires.checked_sub(life).map_err(|_| broken())?;
    let text = status.token.filter(|token| !token.is_empty()).ok_or_else(broken)?;
    let spread = RandomState::new().hash_one(&text) % JITTER.as_secs().saturating_mul(1000);
    Ok(Token { text: Secret::new(text), issued, expires, jitter: Duration::from_millis(spread) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(issued: i64, life: i64, jitter: u64) -> Token {
        let at = |second| Timestamp::from_second(second).unwrap();
        Token {
            text: Secret::new("t".to_owned()),
            issued: at(issued),
            expires: at(issued + life),
            jitter: Duration::from_secs(jitter),
        }
    }

    #[test]
    fn due_at_four_fifths_of_the_life_or_after_a_day() {
        for (life, jitter, after) in [
            (600, 0, 480),
            (600, 10, 470),
            (3607, 0, 2885),
            (100, 10, 75),
            (10 * 86_400, 0, 86_400),
            (10 * 86_400, 10, 86_390),
            (0, 10, 0),
        ] {
            let token = token(1_000_000, life, jitter);
            let at = |seconds: i64| Timestamp::from_second(1_000_000 + seconds).unwrap();
            assert!(token.is_due(at(after + 1)), "{life} {jitter}");
            assert!(after == 0 || !token.is_due(at(after - 1)), "{life} {jitter}");
        }
    }

    #[test]
    fn a_token_of_the_future_is_due_and_a_little_skew_is_not_the_future() {
        // Known fault V6.
        let now = Timestamp::from_second(1_000_000).unwrap();
        assert!(token(1_007_200, 600, 0).is_due(now));
        assert!(!token(1_000_030, 600, 0).is_due(now));
    }

    #[test]
    fn nothing_of_a_token_is_shown() {
        let token = Token::new_for_test("eyJhbGciOi");
        assert!(!format!("{token:?}").contains("eyJ"));
    }

    #[test]
    fn an_answer_without_a_token_is_none() {
        assert!(read(TokenRequest::default()).is_err());
        let answer: TokenRequest = serde_json::from_value(serde_json::json!({
            "spec": {"audiences": [], "expirationSeconds": 600},
            "status": {"token": "t", "expirationTimestamp": "2026-01-01T00:10:00Z"}
        }))
        .unwrap();
        let token = read(answer).unwrap();
        assert_eq!(token.issued, "2026-01-01T00:00:00Z".parse().unwrap());
    }
}
