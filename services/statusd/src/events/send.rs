//! The task that writes Events, one after the other.

use std::time::Duration;

use bulkhead_base::{Backoff, chain};
use bulkhead_config::KubeletConfiguration;
use bulkhead_ipc::said::Said;
use bulkhead_service::{Counter, Desc, Metrics};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::Happened;
use super::api::EventApi;
use super::correlate::{Correlator, Entry};
use super::object::{Author, namespace_of, patch};
use super::tokens::{Rate, Tokens};
use crate::cluster::ApiError;

/// Between two tries of one Event; it doubles.
const PAUSE: Duration = Duration::from_millis(500);
/// The longest of them.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// Tries of an Event that the API server answers with an error of its own: the kubelet's number.
const TRIES: u32 = 12;

const SENT: Desc = Desc {
    name: "bulkhead_events_total",
    help: "Events by what became of them: created, counted (added to one that says the same), spam (left out) or refused.",
    labels: &["result"],
};

/// What the task works with.
pub(super) struct Parts<'a, A> {
    pub(super) api: A,
    pub(super) waiting: mpsc::Receiver<Happened>,
    pub(super) author: Author,
    /// `None`: no limit.
    pub(super) rate: Option<Rate>,
    pub(super) metrics: &'a Metrics,
}

/// The task.
pub(super) struct Sender<A> {
    api: A,
    waiting: mpsc::Receiver<Happened>,
    author: Author,
    rate: Option<Rate>,
    sent: Counter,
    said: Said,
}

/// `eventRecordQPS` and `eventBurst`; a rate of 0 is no limit.
pub(super) fn rate(config: &KubeletConfiguration) -> Option<Rate> {
    let burst = u32::try_from(config.event_burst).unwrap_or_default().max(1);
    (config.event_record_qps > 0).then(|| Rate { per_second: config.event_record_qps.into(), burst })
}

impl<A: EventApi> Sender<A> {
    /// Of these parts.
    pub(super) fn new(parts: Parts<'_, A>) -> Self {
        let Parts { api, waiting, author, rate, metrics } = parts;
        Self { api, waiting, author, rate, sent: metrics.counter(SENT), said: Said::default() }
    }

    /// Until nobody can tell any more.
    pub(super) async fn run(mut self) {
        let began = Instant::now();
        let mut correlator = Correlator::default();
        let mut tokens = self.rate.map(|rate| Tokens::full(rate, Duration::ZERO));
        while let Some(happened) = self.waiting.recv().await {
            let object = self.author.name_of(&happened.regarding).to_owned();
            let Some(entry) = correlator.take(happened, &object, began.elapsed()) else {
                self.sent.add_one(&["spam"]);
                continue;
            };
            if let (Some(tokens), Some(rate)) = (&mut tokens, self.rate) {
                while let Err(wait) = tokens.take(rate, began.elapsed()) {
                    tokio::time::sleep(wait).await;
                }
            }
            let result = self.write(&entry).await;
            self.sent.add_one(&[result]);
        }
    }

    /// Until it is written, or hopeless. An API server that is away is waited for.
    async fn write(&self, entry: &Entry) -> &'static str {
        let mut pauses = Backoff::new(PAUSE, LONGEST_PAUSE);
        let mut tries = 0;
        loop {
            match self.try_write(entry).await {
                Ok(result) => return result,
                Err(error) if is_final(&error, &mut tries) => {
                    let text = chain(&error).to_string();
                    if self.said.is_news(&text, Instant::now()) {
                        tracing::warn!(error = text, "an event is left out");
                    }
                    return "refused";
                }
                Err(_) => tokio::time::sleep(pauses.next_delay()).await,
            }
        }
    }

    async fn try_write(&self, entry: &Entry) -> Result<&'static str, ApiError> {
        if entry.count > 1 {
            let namespace = namespace_of(&entry.happened.regarding);
            match self.api.patch(namespace, &entry.name, &patch(entry)).await {
                Ok(()) => return Ok("counted"),
                // Events do not live long, or the first one was never written.
                Err(ApiError::NotFound(_)) => {}
                Err(error) => return Err(error),
            }
        }
        match self.api.create(&self.author.object(entry)).await {
            // An earlier try got through.
            Ok(()) | Err(ApiError::Conflict(_)) => Ok("created"),
            Err(error) => Err(error),
        }
    }
}

/// Whether it is no use to try again.
fn is_final(error: &ApiError, tries: &mut u32) -> bool {
    match error {
        // Nobody is there, as apigate or a balancer says.
        ApiError::Refused { code: 502..=504, .. } => false,
        ApiError::Refused { code: 429 | 500.., .. } => {
            *tries += 1;
            *tries >= TRIES
        }
        // The namespace is gone or going, or the Event is not as it should be.
        ApiError::Refused { .. } | ApiError::NotFound(_) | ApiError::Conflict(_) => true,
        ApiError::Failed { .. } | ApiError::Late { .. } => false,
    }
}
