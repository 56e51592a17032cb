//! The manifest URL: asked every `httpCheckFrequency`, with what it last said kept for the next life.
//!
//! Must never tell the values of its headers, nor a query of the URL, which may be a credential too.

mod address;
mod fetch;
#[cfg(test)]
mod testing;
mod tls;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bulkhead_base::{Clock, chain};
use bulkhead_model::manifest;
use bulkhead_model::static_pod::{Origin, StaticSource};
use bulkhead_reconcile::{LoopStatus, Next, Reconciler, Trigger, drive, wake};
use bulkhead_service::{Check, StateFile};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::Board;
use super::plan::{Item, Kind, Place, Reading, keep, take};

pub use address::ManifestUrl;
use fetch::Fetcher;

/// Where the last good answer is kept, in the process' own folder.
const FILE: &str = "manifest-url.json";
const VERSION: u32 = 1;

/// What to follow.
pub struct FollowUrl {
    /// `staticPodURL` and `staticPodURLHeader`.
    pub url: ManifestUrl,
    /// `httpCheckFrequency`.
    pub period: Duration,
    /// Name of the node, for names and UIDs.
    pub node_name: String,
    /// Where it is told.
    pub board: Board,
    /// The wall clock.
    pub clock: Arc<dyn Clock>,
    /// Says whether the last answer could be had and used.
    pub check: Check,
}

/// The last good answer.
#[derive(Serialize, Deserialize)]
struct Kept {
    url: String,
    body: String,
}

struct Follow {
    source: FollowUrl,
    fetcher: Fetcher,
    file: StateFile<Kept>,
    /// The last good answer.
    body: Option<String>,
}

impl FollowUrl {
    /// Follows it until `shutdown`. What it said in an earlier life, kept in `dir`, counts until it says otherwise: a server
    /// that is away must not look like one that has no pods.
    pub fn spawn(self, dir: &Path, shutdown: CancellationToken) {
        let file: StateFile<Kept> = StateFile::new(dir, FILE, VERSION);
        let kept = file.load_or_log("pods by URL that run are left alone until it answers");
        let mut follow = Follow { source: self, fetcher: Fetcher::default(), file, body: None };
        let kept = kept.filter(|kept| kept.url == follow.source.url.text());
        let said = kept.map(|kept| (follow.reading(kept.body.as_bytes()), kept.body));
        match said {
            Some((Ok(reading), body)) => follow.take(reading, body),
            _ => follow.source.board.unread(Kind::Url),
        }
        let (_waker, waiting) = wake();
        let (status, _) = watch::channel(LoopStatus::default());
        tokio::spawn(drive(follow, waiting, status, shutdown.cancelled_owned()));
    }
}

impl Reconciler for Follow {
    const NAME: &'static str = "manifest URL";

    fn interval(&self) -> Duration {
        self.source.period
    }

    async fn reconcile(&mut self, _: Trigger) -> Next {
        let answer = match self.fetcher.get(&self.source.url).await {
            Ok(body) => body,
            Err(error) => return self.failed(chain(&error).to_string()),
        };
        if self.body.as_deref().is_some_and(|body| body.as_bytes() == answer) {
            // A fault that is over goes as well.
            self.source.board.read(Kind::Url, self.source.board.found(Kind::Url));
            self.source.check.good();
            return Next::Wait;
        }
        let reading = match self.reading(&answer) {
            Ok(reading) => reading,
            Err(reason) => return self.failed(reason),
        };
        let body = String::from_utf8_lossy(&answer).into_owned();
        // First on disk: a pod that starts must be known to the next life, whether or not the server is there then.
        self.save(body.clone()).await;
        self.take(reading, body);
        self.source.check.good();
        Next::Wait
    }
}

impl Follow {
    /// The pods that an answer holds.
    fn reading(&self, body: &[u8]) -> Result<Reading, String> {
        let url = &self.source.url;
        let items =
            manifest::parse_all(body).map_err(|refusal| format!("the answer is no pod: {refusal}"))?;
        let complete = items.iter().all(|item| item.name.is_some());
        let item = |(index, item): (usize, manifest::Item)| {
            let name = match &item.name {
                Some((namespace, name)) => format!("{}, pod {namespace}/{name}", url.shown()),
                None => format!("{}, item {}", url.shown(), index + 1),
            };
            let source = StaticSource { origin: Origin::Url(url.text()), node_name: &self.source.node_name };
            let pod = take(item.manifest, &source, self.source.clock.now());
            Item { place: Place { kind: Kind::Url, name }, pod }
        };
        Ok(Reading { items: items.into_iter().enumerate().map(item).collect(), complete })
    }

    fn take(&mut self, reading: Reading, body: String) {
        let board = &self.source.board;
        board.read(Kind::Url, keep(reading, &board.found(Kind::Url)));
        self.body = Some(body);
    }

    fn failed(&mut self, reason: String) -> Next {
        let name = self.source.url.shown();
        self.source.check.bad(format!("{name}: {reason}"));
        let kept = if self.body.is_some() { " (its pods go on as it last described them)" } else { "" };
        self.source.board.failed(Place { kind: Kind::Url, name }, format!("{reason}{kept}"));
        // Without any pods of it, it is missed: soon again, as at a start where the network comes late.
        if self.body.is_none() { Next::Failed(reason) } else { Next::Wait }
    }

    async fn save(&self, body: String) {
        let file = self.file.clone();
        let kept = Kept { url: self.source.url.text().to_owned(), body };
        let saved = tokio::task::spawn_blocking(move || file.save(&kept)).await;
        if let Ok(Err(error)) = saved {
            tracing::error!(error = %chain(&error), "pods by URL are not known after a restart until it answers");
        }
    }
}

#[cfg(test)]
mod tests;
