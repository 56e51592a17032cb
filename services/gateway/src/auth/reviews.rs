//! Asking the API server: whose token this is, and what somebody may.

use std::sync::Arc;
use std::time::Duration;

use bulkhead_base::Backoff;
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::Client;
use kube::api::{Api, PostParams};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

use super::Identity;

/// Longest wait for an answer, with all tries.
const ANSWER: Duration = Duration::from_secs(10);
/// Tries of one question: the gate to the API server may be starting again.
const TRIES: usize = 4;
/// First and longest wait between them.
const PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(1));
/// Questions of each kind at a time; further ones wait. Strangers with tokens must not keep those waiting who are known.
const AT_A_TIME: usize = 32;

/// Asks. Clones share the connection.
#[derive(Clone)]
pub(crate) struct Reviews {
    client: Client,
    tokens: Arc<Semaphore>,
    rights: Arc<Semaphore>,
}

/// Nobody answered.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReviewError {
    /// The API server, or the gate to it, does not do it.
    #[error("the API server cannot be asked")]
    Asking(#[source] Box<kube::Error>),
    /// It says nothing.
    #[error("the API server does not answer within {ANSWER:?}")]
    Silent,
    /// It says something else.
    #[error("the API server answers without a status")]
    Nonsense,
}

impl Reviews {
    /// Over this client.
    pub(crate) fn new(client: Client) -> Self {
        let places = || Arc::new(Semaphore::new(AT_A_TIME));
        Self { client, tokens: places(), rights: places() }
    }

    /// Whose token this is; `None`: nobody's.
    pub(crate) async fn token(&self, token: &str) -> Result<Option<Identity>, ReviewError> {
        let spec = TokenReviewSpec { token: token.to_owned(), ..TokenReviewSpec::default() };
        let review = TokenReview { spec, ..TokenReview::default() };
        let status = ask(&Api::all(self.client.clone()), &self.tokens, &review).await?.status;
        let status = status.ok_or(ReviewError::Nonsense)?;
        if status.authenticated != Some(true) {
            return Ok(None);
        }
        let user = status.user.ok_or(ReviewError::Nonsense)?;
        Ok(Some(Identity {
            user: user.username.unwrap_or_default(),
            uid: user.uid.unwrap_or_default(),
            groups: user.groups.unwrap_or_default(),
            extra: user.extra.unwrap_or_default(),
        }))
    }

    /// Whether somebody may do this to a part of a node.
    pub(crate) async fn right(
        &self,
        who: &Identity,
        node: &str,
        verb: &str,
        subresource: &str,
    ) -> Result<bool, ReviewError> {
        let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let resource = ResourceAttributes {
            verb: some(verb),
            version: some("v1"),
            resource: some("nodes"),
            subresource: some(subresource),
            name: some(node),
            ..ResourceAttributes::default()
        };
        let spec = SubjectAccessReviewSpec {
            user: some(&who.user),
            uid: some(&who.uid),
            groups: Some(who.groups.clone()),
            extra: (!who.extra.is_empty()).then(|| who.extra.clone()),
            resource_attributes: Some(resource),
            ..SubjectAccessReviewSpec::default()
        };
        let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
        let status = ask(&Api::all(self.client.clone()), &self.rights, &review).await?.status;
        let status = status.ok_or(ReviewError::Nonsense)?;
        Ok(status.allowed && status.denied != Some(true))
    }
}

async fn ask<K>(api: &Api<K>, places: &Semaphore, review: &K) -> Result<K, ReviewError>
where
    K: Clone + std::fmt::Debug + Serialize + DeserializeOwned,
{
    let asking = async {
        // Never closed.
        let _place = places.acquire().await;
        let mut backoff = Backoff::new(PAUSE.0, PAUSE.1);
        for _ in 1..TRIES {
            match api.create(&PostParams::default(), review).await {
                Err(error) if passes(&error) => sleep(backoff.next_delay()).await,
                answer => return answer,
            }
        }
        api.create(&PostParams::default(), review).await
    };
    match timeout(ANSWER, asking).await {
        Ok(answer) => answer.map_err(|error| ReviewError::Asking(Box::new(error))),
        Err(_) => Err(ReviewError::Silent),
    }
}

/// Whether it is worth to ask again.
fn passes(error: &kube::Error) -> bool {
    match error {
        // 0: whoever answered is no API server, or none that is well.
        kube::Error::Api(status) => matches!(status.code, 0 | 429 | 500..),
        kube::Error::SerdeError(_) | kube::Error::FromUtf8(_) => false,
        _ => true,
    }
}
