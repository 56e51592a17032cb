//! A container's image: looked at, then taken, waited for, or refused.

use bulkhead_cri::{CriError, Images, wire};
use bulkhead_model::image::{ImageRef, PullPolicy};
use tokio::time::Instant;

use crate::answer::{Answer, Image, Waiting};
use crate::config::Settings;
use crate::credentials::{Access, Credentials, Owner};
use crate::error::{EnsureError, is_away};
use crate::policy::{Decision, Presence, decide};
use crate::promised::Promised;
use crate::pulls::Pulls;
use crate::records::Records;
use crate::reference;
use crate::table::{Asker, Outcome, Ticket};

/// Answers for images. Clones share the pulls.
#[derive(Clone)]
pub(crate) struct Keeper<R> {
    runtime: R,
    pulls: Pulls<R>,
    credentials: Credentials,
    records: Records,
    promised: Promised,
}

/// What a container needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Need {
    /// Who.
    pub(crate) asker: Asker,
    /// As in the pod's spec.
    pub(crate) image: String,
    /// When to pull.
    pub(crate) policy: PullPolicy,
    /// Whose credentials it may be pulled with.
    pub(crate) owner: Owner,
}

impl<R: Images> Keeper<R> {
    /// Keeps the images of `runtime`.
    pub(crate) fn new(runtime: R, credentials: Credentials, records: Records, settings: Settings) -> Self {
        let pulls = Pulls::new(runtime.clone(), records.clone(), &settings);
        Self { pulls, runtime, credentials, records, promised: Promised::default() }
    }

    /// The images that containers were told they could have.
    pub(crate) fn promised(&self) -> Promised {
        self.promised.clone()
    }

    /// All images of the node.
    ///
    /// # Errors
    /// When the runtime does not answer.
    pub(crate) async fn images(&self) -> Result<Vec<wire::Image>, EnsureError> {
        self.runtime.list_images().await.map_err(EnsureError::List)
    }

    /// Makes sure that the image is there, waiting for its pull until `deadline`. A pull goes on after that, and when
    /// this future is dropped.
    ///
    /// # Errors
    /// When the runtime does not answer.
    pub(crate) async fn ensure(&self, need: &Need, deadline: Instant) -> Result<Answer, EnsureError> {
        let answer = self.answer(need, deadline).await?;
        if let Answer::Present { image, .. } = &answer {
            self.promised.note(&image.id, Instant::now());
        }
        Ok(answer)
    }

    async fn answer(&self, need: &Need, deadline: Instant) -> Result<Answer, EnsureError> {
        let image = match reference::for_runtime(&need.image) {
            Ok(image) => image,
            Err(error) => return Ok(Answer::Waiting(Waiting::invalid(&error))),
        };
        let away = |source| EnsureError::Runtime { image: image.clone(), source };
        let present = match self.runtime.image_status(&image).await {
            Ok(present) => present.map(Image::from),
            Err(error) if is_away(&error) => return Err(away(error)),
            Err(error) => {
                return Ok(Answer::Waiting(Waiting::not_inspected(&need.image, &error.runtime_message())));
            }
        };
        let presence = if present.is_some() { Presence::Present } else { Presence::Absent };
        match (decide(need.policy, presence), present) {
            (Decision::Use, Some(present)) if !self.may_use(need, &present, deadline).await => {
                match need.policy {
                    PullPolicy::Never => Ok(Answer::Waiting(Waiting::not_theirs(&need.image))),
                    // The registry is asked whether the pod may have it.
                    _ => self.pull(need, &image, deadline).await.map_err(away),
                }
            }
            (Decision::Use, Some(present)) => {
                // A pull that outlived this container's last call may have brought it.
                let pulled = self.pulls.settle(&need.asker, &image);
                Ok(Answer::Present { image: present, pulled })
            }
            (Decision::Refuse, _) => Ok(Answer::Waiting(Waiting::never(&need.image))),
            (Decision::Pull | Decision::Use, _) => self.pull(need, &image, deadline).await.map_err(away),
        }
    }

    /// Whether a pod may have an image that is there.
    async fn may_use(&self, need: &Need, present: &Image, deadline: Instant) -> bool {
        let Ok(parsed) = ImageRef::parse(&need.image) else { return false };
        if self.records.is_open(&present.id, &parsed) {
            return true;
        }
        let found = tokio::time::timeout_at(deadline, self.credentials.find(&parsed, &need.owner)).await;
        self.records.allows(&present.id, &parsed, &found.unwrap_or_default())
    }

    async fn pull(&self, need: &Need, image: &str, deadline: Instant) -> Result<Answer, CriError> {
        let access = match ImageRef::parse(&need.image) {
            Ok(parsed) => {
                let found = self.credentials.find(&parsed, &need.owner);
                match tokio::time::timeout_at(deadline, found).await {
                    Ok(access) => access,
                    // A program that knows them takes its time: the next call gets its answer.
                    Err(_) => return Ok(Answer::Waiting(Waiting::pulling(&need.image))),
                }
            }
            // It was read before.
            Err(_) => Access::default(),
        };
        let mut outcome = match self.pulls.ask(&need.asker, image, &access) {
            Ticket::Wait(outcome) => outcome,
            Ticket::BackOff(failure, remaining) => {
                return Ok(Answer::Waiting(failure.in_back_off(&need.image, remaining)));
            }
            Ticket::Crowded => return Ok(Answer::Waiting(Waiting::crowded(&need.image))),
        };
        let ended = tokio::time::timeout_at(deadline, outcome.wait_for(Option::is_some)).await;
        let Some(ended) = ended.ok().and_then(Result::ok).and_then(|ended| ended.clone()) else {
            // Not settled: the next call is still owed the outcome.
            return Ok(Answer::Waiting(Waiting::pulling(&need.image)));
        };
        let pulled = self.pulls.settle(&need.asker, image);
        Ok(match ended {
            Outcome::Present(image) => Answer::Present { image, pulled },
            Outcome::Failed(failure, delay) => Answer::Waiting(failure.just_now(&need.image, delay)),
            Outcome::NotInspected(text) => Answer::Waiting(Waiting::not_inspected(&need.image, &text)),
            Outcome::NoAnswer(error) => return Err(error),
        })
    }
}

#[cfg(test)]
mod tests;
