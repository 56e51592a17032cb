//! Following objects: what there is, then every change.
//!
//! Owns how the list is had: as a stream, which costs the API server least, or page by page from one that cannot do that.

use std::fmt::Debug;
use std::time::Duration;

use futures::stream::{BoxStream, Stream, StreamExt};
use kube::Api;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{Config, Error, Event, watcher};
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use crate::Retry;

/// What kube takes for an object that can be followed.
pub trait Followed:
    kube::Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static
{
}

impl<K: kube::Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static> Followed for K {}

/// How long nothing must go wrong after something did, until all is well again: longer than the longest wait between tries. A
/// watch that goes on where it was tells nothing itself.
const CALM: Duration = Duration::from_secs(8);

/// What following objects tells.
#[derive(Debug)]
pub enum News<K> {
    /// About objects.
    Event(Event<K>),
    /// They are not followed just now, and tried again.
    Trouble(Error),
    /// They are followed again.
    Calm,
}

/// The events of [`watcher`] for ever. Errors are told and tried again with [`Retry`]'s waits.
pub fn watch<K: Followed>(api: Api<K>, config: Config) -> impl Stream<Item = News<K>> + Send {
    let streamed = events(api.clone(), config.clone().streaming_lists());
    let begin = Watch { api, config, events: streamed, streamed: true, calm_at: None };
    futures::stream::unfold(begin, async |mut watch| {
        let news = watch.next().await?;
        Some((news, watch))
    })
}

struct Watch<K: Followed> {
    api: Api<K>,
    config: Config,
    events: BoxStream<'static, Result<Event<K>, Error>>,
    streamed: bool,
    /// Set while there is trouble.
    calm_at: Option<Instant>,
}

impl<K: Followed> Watch<K> {
    async fn next(&mut self) -> Option<News<K>> {
        loop {
            // Both are cancel-safe.
            let event = tokio::select! {
                event = self.events.next() => event?,
                () = at(self.calm_at) => {
                    self.calm_at = None;
                    return Some(News::Calm);
                }
            };
            match event {
                // An older API server, or one whose store cannot tell when a list is complete.
                Err(error) if self.streamed && is_refused(&error) => {
                    tracing::info!(%error, "no streamed lists here: they are read page by page");
                    self.streamed = false;
                    self.events = events(self.api.clone(), self.config.clone());
                }
                Err(error) => {
                    self.calm_at = Some(Instant::now() + CALM);
                    return Some(News::Trouble(error));
                }
                Ok(event) => return Some(News::Event(event)),
            }
        }
    }
}

/// Returns at this time; never for none.
async fn at(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}

fn events<K: Followed>(api: Api<K>, config: Config) -> BoxStream<'static, Result<Event<K>, Error>> {
    watcher(api, config).backoff(Retry::default()).boxed()
}

/// Whether the API server answered, and not that it is busy, or that the caller may not: it cannot do what was asked.
fn is_refused(error: &Error) -> bool {
    let code = match error {
        Error::WatchError(status) => status.code,
        Error::WatchStartFailed(kube::Error::Api(status)) => status.code,
        _ => return false,
    };
    matches!(code, 400 | 422 | 500)
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    #[test]
    fn only_who_cannot_do_it_is_not_asked_again() {
        let told = |code| Error::WatchError(Box::new(Status { code, ..Status::failure("no", "Reason") }));
        let started = |code| {
            Error::WatchStartFailed(kube::Error::Api(Box::new(Status {
                code,
                ..Status::failure("no", "Reason")
            })))
        };
        for (code, expected) in [
            (400, true),
            (422, true),
            (500, true),
            (401, false),
            (403, false),
            (410, false),
            (429, false),
            (503, false),
        ] {
            assert_eq!(is_refused(&told(code)), expected, "{code}");
            assert_eq!(is_refused(&started(code)), expected, "{code}");
        }
        assert!(!is_refused(&Error::NoResourceVersion));
    }
}
