//! The sending side of a stream: a table, and a subscription that turns what changed in it into messages.
//!
//! Nothing is queued per subscriber: it carries a generation and is told what changed since. A slow one gets fewer, larger
//! steps, and none can make memory grow.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bulkhead_api::common::v1::Part;
use futures::Stream;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tonic::Status;

use crate::table::{Since, Table};
use crate::update::{Update, UpdateMessage};

/// Items in one message: bounds the size of a message, whatever the size of the state.
pub const ITEMS_PER_MESSAGE: usize = 128;
/// An empty change is sent after this much silence, so that a consumer can tell quiet from dead.
pub const HEARTBEAT: Duration = Duration::from_secs(10);

/// What a stream method returns.
pub type BoxStream<M> = Pin<Box<dyn Stream<Item = Result<M, Status>> + Send>>;

/// Owns one kind of state and publishes it. Clones share it.
#[derive(Debug)]
pub struct Publisher<K, V> {
    inner: Arc<Inner<K, V>>,
}

#[derive(Debug)]
struct Inner<K, V> {
    epoch: String,
    table: Mutex<Table<K, V>>,
    /// `None` until the state is whole for the first time.
    generation: watch::Sender<Option<u64>>,
    shutdown: CancellationToken,
}

impl<K, V> Clone for Publisher<K, V> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone() }
    }
}

impl<K, V> Publisher<K, V>
where
    K: Ord + Clone + Send + Sync + 'static,
    V: PartialEq + Send + Sync + 'static,
{
    /// An empty state of a new epoch. Subscribers wait until [`Publisher::open`]: an empty table before the first look at
    /// the world must not be taken for "everything is gone". Their streams end at `shutdown`.
    pub fn new(shutdown: CancellationToken) -> Self {
        let epoch = uuid::Uuid::new_v4().to_string();
        let (generation, _) = watch::channel(None);
        Self { inner: Arc::new(Inner { epoch, table: Mutex::new(Table::new()), generation, shutdown }) }
    }

    /// Says that the state is whole: subscribers get their snapshot from now on.
    pub fn open(&self) {
        let generation = self.table().generation();
        self.inner.generation.send_replace(Some(generation));
    }

    /// Whether [`Publisher::open`] was called.
    pub fn is_open(&self) -> bool {
        self.inner.generation.borrow().is_some()
    }

    /// Sets an entry; returns whether that changed anything.
    pub fn upsert(&self, key: K, value: V) -> bool {
        self.change(|table| table.upsert(key, value))
    }

    /// Removes an entry; returns whether there was one.
    pub fn remove(&self, key: &K) -> bool {
        self.change(|table| table.remove(key))
    }

    /// Makes the state exactly `items`; returns whether that changed anything.
    pub fn replace(&self, items: BTreeMap<K, V>) -> bool {
        self.change(|table| table.replace(items))
    }

    /// The entry under `key`.
    pub fn get(&self, key: &K) -> Option<Arc<V>> {
        self.table().get(key)
    }

    /// A copy of all entries (values shared).
    pub fn snapshot(&self) -> BTreeMap<K, Arc<V>> {
        self.table().iter().map(|(key, value)| (key.clone(), value.clone())).collect()
    }

    /// Its generation, which grows with every change; `None` until it is open. For who reads it in the same process.
    pub fn generations(&self) -> watch::Receiver<Option<u64>> {
        self.inner.generation.subscribe()
    }

    /// The stream of one subscriber: snapshot, then changes, heartbeats in between; it ends with the process.
    pub fn subscribe<M>(&self) -> BoxStream<M>
    where
        M: UpdateMessage<Key = K, Value = V>,
    {
        let inner = self.inner.clone();
        let generation = inner.generation.subscribe();
        let state = Subscriber { inner, generation, seen: None, ready: Vec::new() };
        Box::pin(futures::stream::unfold(state, |mut subscriber| async move {
            let shutdown = subscriber.inner.shutdown.clone();
            let update = shutdown.run_until_cancelled(subscriber.next()).await??;
            Some((Ok(M::from_update(update)), subscriber))
        }))
    }

    fn change(&self, f: impl FnOnce(&mut Table<K, V>) -> bool) -> bool {
        let mut table = self.table();
        let changed = f(&mut table);
        if changed {
            let generation = table.generation();
            self.inner.generation.send_if_modified(|current| match current {
                Some(current) => {
                    *current = generation;
                    true
                }
                None => false,
            });
        }
        changed
    }

    fn table(&self) -> MutexGuard<'_, Table<K, V>> {
        self.inner.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Subscriber<K, V> {
    inner: Arc<Inner<K, V>>,
    generation: watch::Receiver<Option<u64>>,
    seen: Option<u64>,
    /// Messages of the present step, last one first.
    ready: Vec<Update<K, Arc<V>>>,
}

impl<K: Ord + Clone, V: PartialEq> Subscriber<K, V> {
    async fn next(&mut self) -> Option<Update<K, Arc<V>>> {
        if let Some(update) = self.ready.pop() {
            return Some(update);
        }
        // Cancel-safe: a dropped wait loses nothing, since the table is asked again from `seen`.
        if self.seen.is_none() {
            self.generation.wait_for(Option::is_some).await.ok()?;
        } else {
            let seen = self.seen;
            let changed = self.generation.wait_for(|now| *now != seen);
            let quiet = match tokio::time::timeout(HEARTBEAT, changed).await {
                Ok(result) => result.map(|_| false).ok()?,
                Err(_) => true,
            };
            if quiet {
                return Some(self.message(Part::Delta, seen.unwrap_or_default(), Vec::new(), Vec::new()));
            }
        }
        let since = self.inner.table.lock().unwrap_or_else(PoisonError::into_inner).since(self.seen);
        self.seen = Some(since.generation);
        self.fill(since);
        self.ready.pop()
    }

    fn fill(&mut self, since: Since<K, V>) {
        let Since { generation, full, mut upserts, removed } = since;
        let mut messages = Vec::new();
        let (part, last) =
            if full { (Part::Snapshot, Part::SnapshotEnd) } else { (Part::Delta, Part::Delta) };
        while upserts.len() > ITEMS_PER_MESSAGE {
            let rest = upserts.split_off(ITEMS_PER_MESSAGE);
            messages.push(self.message(part, generation, upserts, Vec::new()));
            upserts = rest;
        }
        messages.push(self.message(last, generation, upserts, removed));
        messages.reverse();
        self.ready = messages;
    }

    fn message(
        &self,
        part: Part,
        generation: u64,
        upserts: Vec<(K, Arc<V>)>,
        removed: Vec<K>,
    ) -> Update<K, Arc<V>> {
        Update { epoch: self.inner.epoch.clone(), generation, part, upserts, removed }
    }
}
