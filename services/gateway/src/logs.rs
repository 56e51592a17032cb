//! Container logs: finding them, reading them within bounds, following them.
//!
//! Owns how a log becomes lines for a reader. Must never write or remove anything, nor follow a link out of the pods' log
//! folder.

mod choose;
pub(crate) mod find;
mod folder;
mod follow;
#[cfg(any(test, fuzzing))]
mod fuzz;
mod history;
mod line;
pub(crate) mod names;
mod parser;
mod read;
mod tail;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bulkhead_api::gateway::v1::LogChunk;
use bulkhead_base::Clock;
use bulkhead_ipc::Mirror;
use bulkhead_model::runtime::RuntimePod;
use jiff::{SignedDuration, Timestamp};
use tokio::sync::{Semaphore, mpsc};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::Status;

use crate::error::LogError;
use crate::pods::source::Pods;
use choose::Choice;
use follow::Life;
use history::History;
use line::LineOptions;
use read::{Reading, Until};

#[cfg(any(test, fuzzing))]
pub use fuzz::log as fuzz_log;

/// Logs that may be read at a time.
pub(crate) const READERS: usize = 32;
/// Chunks made ahead of a slow client.
const AHEAD: usize = 4;
/// Deadline of a reading that does not follow.
const WHOLE: Duration = Duration::from_secs(60);

pub(crate) use parser::Stream;

/// Which lines of which log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// Namespace of the pod.
    pub(crate) namespace: String,
    /// Its name.
    pub(crate) pod: String,
    /// The container; empty when the pod has just one.
    pub(crate) container: String,
    /// Whether to go on until the instance is over.
    pub(crate) follow: bool,
    /// Whether the instance before the newest is meant.
    pub(crate) previous: bool,
    /// Last lines to begin with; `None`: all.
    pub(crate) tail: Option<u64>,
    /// Whether each line begins with its time.
    pub(crate) timestamps: bool,
    /// From when on.
    pub(crate) since: Since,
    /// Of which stream; `None`: both.
    pub(crate) only: Option<Stream>,
}

/// From when on lines are wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Since {
    /// From the beginning.
    #[default]
    Beginning,
    /// Of the last so many seconds.
    Seconds(u64),
    /// From this date.
    Date(Timestamp),
}

/// Chunks of lines.
pub(crate) type Chunks = ReceiverStream<Result<LogChunk, Status>>;

/// Reads logs.
pub(crate) struct Logs {
    root: PathBuf,
    pods: Pods,
    runtime: Mirror<String, RuntimePod>,
    clock: Arc<dyn Clock>,
    shutdown: CancellationToken,
    readers: usize,
    places: Arc<Semaphore>,
}

impl Logs {
    /// Reads beneath `root`; `pods` says what exists and `runtime` what still runs.
    pub(crate) fn new(
        root: PathBuf,
        pods: Pods,
        runtime: Mirror<String, RuntimePod>,
        clock: Arc<dyn Clock>,
        shutdown: CancellationToken,
    ) -> Self {
        Self {
            root,
            pods,
            runtime,
            clock,
            shutdown,
            readers: READERS,
            places: Arc::new(Semaphore::new(READERS)),
        }
    }

    /// The same logs with places of their own: readers of one kind must not take those of another.
    pub(crate) fn with_places(&self, readers: usize) -> Self {
        Self {
            root: self.root.clone(),
            pods: self.pods.clone(),
            runtime: self.runtime.clone(),
            clock: self.clock.clone(),
            shutdown: self.shutdown.clone(),
            readers,
            places: Arc::new(Semaphore::new(readers)),
        }
    }

    /// Begins to read what `request` asks for. The log is opened and its first line found before this returns.
    pub(crate) async fn read(&self, request: Wanted) -> Result<Chunks, LogError> {
        let place =
            self.places.clone().try_acquire_owned().map_err(|_| LogError::Busy { limit: self.readers })?;
        names::check("namespace", &request.namespace)?;
        names::check("pod", &request.pod)?;
        if !request.container.is_empty() {
            names::check("container", &request.container)?;
        }
        let pod = find::pod(&self.pods, &request.namespace, &request.pod).await?;
        let container = choose::container(&pod, &request.container)?.to_owned();
        let (root, facts, choice) =
            (self.root.clone(), pod.clone(), Choice { container, previous: request.previous });
        let (choice, history) = blocking(move || {
            let history = History::open(&root, &facts, &choice)?;
            Ok((choice, history))
        })
        .await?;

        let until = match request.follow {
            false => Until::End,
            true => {
                let (runtime, uid) = (self.runtime.clone(), pod.uid);
                let (container, attempt) = (choice.container, history.attempt());
                Until::Over(Box::new(move || Life::of(&runtime, &uid, &container, attempt)))
            }
        };
        let Wanted { timestamps, since, only, tail, .. } = request;
        let options = LineOptions { timestamps, since: self.since(since), only };
        let (to, receiver) = mpsc::channel(AHEAD);
        let reading = Reading::begin(history, tail, options, to.clone()).await?;
        let bound = if request.follow { None } else { Some(WHOLE) };
        let shutdown = self.shutdown.clone();
        tokio::spawn(async move {
            // Whatever ends this task, the place is free again and the client's stream ends.
            let _place = place;
            let run = async {
                match bound {
                    None => reading.run(until).await,
                    Some(bound) => {
                        tokio::time::timeout(bound, reading.run(until)).await.unwrap_or_else(|_| {
                            Err(Status::deadline_exceeded(format!(
                                "the log was not taken within {} s",
                                bound.as_secs()
                            )))
                        })
                    }
                }
            };
            let ended = tokio::select! {
                ended = run => ended,
                () = to.closed() => Ok(()),
                () = shutdown.cancelled() => Err(Status::unavailable("gateway is stopping")),
            };
            if let Err(status) = ended {
                // A client that takes nothing must not keep this task alive for the sake of a last word.
                let _ = tokio::time::timeout(Duration::from_secs(1), to.send(Err(status))).await;
            }
        });
        Ok(ReceiverStream::new(receiver))
    }

    fn since(&self, since: Since) -> Option<Timestamp> {
        let seconds = match since {
            Since::Beginning => return None,
            Since::Date(date) => return Some(date),
            Since::Seconds(seconds) => seconds,
        };
        // So long ago that no date is left means all lines.
        let seconds = i64::try_from(seconds).ok()?;
        self.clock.now().checked_sub(SignedDuration::from_secs(seconds)).ok()
    }
}

/// File work off the one thread that everything else runs on.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, LogError> + Send + 'static,
) -> Result<T, LogError> {
    tokio::task::spawn_blocking(work).await.unwrap_or(Err(LogError::Interrupted))
}
