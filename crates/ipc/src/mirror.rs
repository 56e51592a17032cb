//! The receiving side of a stream: keeps the publisher's state here, and keeps it through the publisher's absence.
//!
//! When a stream breaks the last state stays, marked stale, until the next epoch's first whole snapshot. Only a whole
//! snapshot or a change of a live stream may say that something is gone.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bulkhead_api::common::v1::Part;
use bulkhead_base::Backoff;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tonic::{Response, Status, Streaming};

use crate::peers::PeerHandle;
use crate::publisher::HEARTBEAT;
use crate::table::{Since, Table};
use crate::update::{Update, UpdateMessage};

/// First and longest wait before a broken stream is opened again. Short, because peers are on this machine and everything
/// must be consistent within 10 s of a restart.
const RECONNECT: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));

/// A copy of a peer's state. Clones share it.
#[derive(Debug)]
pub struct Mirror<K, V> {
    inner: Arc<Inner<K, V>>,
}

#[derive(Debug)]
struct Inner<K, V> {
    table: Mutex<Table<K, V>>,
    status: watch::Sender<MirrorStatus>,
}

/// How good the copy is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MirrorStatus {
    /// A whole snapshot arrived at some time: what is not here does not exist (as of `updated`).
    pub synced: bool,
    /// The stream is open and its snapshot is whole: the copy is current.
    pub live: bool,
    /// Of the publisher's present life.
    pub epoch: String,
    /// The publisher's generation that this copy has reached.
    pub generation: u64,
    /// Generation of the copy itself, for [`Mirror::changes`].
    pub local: u64,
    /// When the last message arrived; `None` if never.
    pub updated: Option<Instant>,
}

impl<K, V> Clone for Mirror<K, V> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone() }
    }
}

/// Where one reader of a mirror stands.
#[derive(Debug)]
pub struct Changes<K, V> {
    mirror: Mirror<K, V>,
    status: watch::Receiver<MirrorStatus>,
    seen: Option<u64>,
}

impl<K, V> Default for Mirror<K, V>
where
    K: Ord + Clone + Send + Sync + 'static,
    V: PartialEq + Send + Sync + 'static,
{
    fn default() -> Self {
        Self::detached()
    }
}

impl<K, V> Mirror<K, V>
where
    K: Ord + Clone + Send + Sync + 'static,
    V: PartialEq + Send + Sync + 'static,
{
    /// A mirror without a stream; tests feed it with [`Mirror::apply`].
    pub fn detached() -> Self {
        let status = MirrorStatus {
            synced: false,
            live: false,
            epoch: String::new(),
            generation: 0,
            local: 0,
            updated: None,
        };
        Self { inner: Arc::new(Inner { table: Mutex::new(Table::new()), status: watch::channel(status).0 }) }
    }

    /// Follows the stream that `open` opens, until `shutdown`. Opens it again with back-off whenever it breaks, or when
    /// nothing, not even a heartbeat, came for three heartbeats.
    pub fn follow<M, F, O>(peer: PeerHandle, shutdown: CancellationToken, open: F) -> Self
    where
        M: UpdateMessage<Key = K, Value = V>,
        F: Fn() -> O + Send + 'static,
        O: Future<Output = Result<Response<Streaming<M>>, Status>> + Send,
    {
        let mirror = Self::detached();
        let task = mirror.clone();
        tokio::spawn(async move {
            tokio::select! {
                () = shutdown.cancelled() => {}
                () = task.run(peer, open) => {}
            }
        });
        mirror
    }

    async fn run<M, F, O>(self, peer: PeerHandle, open: F)
    where
        M: UpdateMessage<Key = K, Value = V>,
        F: Fn() -> O,
        O: Future<Output = Result<Response<Streaming<M>>, Status>>,
    {
        let mut backoff = Backoff::new(RECONNECT.0, RECONNECT.1);
        loop {
            // A server that is starting answers nothing until its state is whole: no deadline here, the heartbeat's below.
            let error = match open().await {
                Ok(response) => self.read(response.into_inner(), &peer, &mut backoff).await,
                Err(status) => status,
            };
            self.inner.status.send_modify(|status| status.live = false);
            peer.stream_down(&error);
            tokio::time::sleep(backoff.next_delay()).await;
        }
    }

    async fn read<M>(&self, mut stream: Streaming<M>, peer: &PeerHandle, backoff: &mut Backoff) -> Status
    where
        M: UpdateMessage<Key = K, Value = V>,
    {
        let mut snapshot = Some(BTreeMap::new());
        loop {
            // Before the first snapshot the publisher may be silent for as long as its own start takes.
            let message = if snapshot.is_some() {
                stream.message().await
            } else {
                match tokio::time::timeout(HEARTBEAT * 3, stream.message()).await {
                    Ok(message) => message,
                    Err(_) => return Status::deadline_exceeded("no heartbeat for 30 s"),
                }
            };
            let update = match message {
                Ok(Some(message)) => message.into_update(),
                Ok(None) => return Status::unavailable("the peer ended the stream"),
                Err(status) => return status,
            };
            match update {
                Ok(update) => {
                    self.apply_part(update, &mut snapshot);
                    if snapshot.is_none() {
                        backoff.reset();
                        peer.stream_up();
                    }
                }
                Err(error) => return Status::data_loss(error.to_string()),
            }
        }
    }

    /// Takes one update, as the stream's task does.
    pub fn apply(&self, update: Update<K, V>) {
        let mut snapshot = (update.part != Part::Delta).then(BTreeMap::new);
        self.apply_part(update, &mut snapshot);
    }

    /// `snapshot` collects the pieces of a whole state; it is `None` while changes are expected.
    fn apply_part(&self, update: Update<K, V>, snapshot: &mut Option<BTreeMap<K, V>>) {
        match update.part {
            Part::Snapshot => snapshot.get_or_insert_default().extend(update.upserts),
            Part::SnapshotEnd => {
                let mut items = snapshot.take().unwrap_or_default();
                items.extend(update.upserts);
                self.table().replace(items);
            }
            Part::Delta => {
                let mut table = self.table();
                for key in &update.removed {
                    table.remove(key);
                }
                for (key, value) in update.upserts {
                    table.upsert(key, value);
                }
            }
        }
        let local = self.table().generation();
        let whole = snapshot.is_none();
        self.inner.status.send_modify(|status| {
            status.updated = Some(Instant::now());
            if whole {
                status.synced = true;
                status.live = true;
                status.epoch = update.epoch;
                status.generation = update.generation;
                status.local = local;
            }
        });
    }

    /// The entry under `key`.
    pub fn get(&self, key: &K) -> Option<Arc<V>> {
        self.table().get(key)
    }

    /// A copy of all entries (values shared).
    pub fn snapshot(&self) -> BTreeMap<K, Arc<V>> {
        self.table().iter().map(|(key, value)| (key.clone(), value.clone())).collect()
    }

    /// How good the copy is.
    pub fn status(&self) -> MirrorStatus {
        self.inner.status.borrow().clone()
    }

    /// Starts a reader that is told everything from the first snapshot on.
    pub fn changes(&self) -> Changes<K, V> {
        Changes { mirror: self.clone(), status: self.inner.status.subscribe(), seen: None }
    }

    /// Waits until `condition` holds. Bound it with `tokio::time::timeout`.
    pub async fn wait_until(&self, mut condition: impl FnMut(&MirrorStatus, &Table<K, V>) -> bool) {
        let mut status = self.inner.status.subscribe();
        // The sender lives as long as `self`, so waiting cannot fail.
        let _ = status.wait_for(|now| condition(now, &self.table())).await;
    }

    fn table(&self) -> MutexGuard<'_, Table<K, V>> {
        self.inner.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K, V> Changes<K, V>
where
    K: Ord + Clone + Send + Sync + 'static,
    V: PartialEq + Send + Sync + 'static,
{
    /// Waits for changes and returns them all together; the first call waits for the first whole snapshot.
    /// Cancel-safe. Never returns an empty set, except that the first one may be an empty snapshot.
    pub async fn next(&mut self) -> Since<K, V> {
        let seen = self.seen;
        // The sender lives as long as `self.mirror`, so waiting cannot fail.
        let _ = self.status.wait_for(|now| now.synced && seen != Some(now.local)).await;
        let since = self.mirror.table().since(self.seen);
        self.seen = Some(since.generation);
        since
    }
}
