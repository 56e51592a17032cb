//! Objects of the API that volumes show, as long as a pod needs them.
//!
//! Owns one watch for each object that some pod refers to, and what it said last; nothing of an object is kept once no pod
//! refers to it. Must never write what it knows to a disk or a log, nor call an object gone because the API server is away.

mod render;
mod text;
mod tokens;
mod trust;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use bulkhead_ipc::said::Said;
use bulkhead_kubeapi::{Followed, News, quiet, watch as watch_objects};
use futures::StreamExt;
use k8s_openapi::api::certificates::v1::ClusterTrustBundle;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client, Resource, ResourceExt};
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::error::Error;

pub(crate) use render::{Known, render};
pub(crate) use tokens::{PodTokens, Token, Tokens};

/// How often the same trouble is said again.
const SAY_AGAIN: Duration = Duration::from_secs(60);

/// An object, or several that are wanted together.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Key {
    ConfigMap { namespace: String, name: String },
    Secret { namespace: String, name: String },
    TrustBundle { name: String },
    TrustBundles { signer: String, labels: String },
}

/// What an object holds: values by their keys; of ClusterTrustBundles each one's certificates by its name. May be secret.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct Content(pub(crate) BTreeMap<String, Vec<u8>>);

/// What is known of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// Nothing, perhaps with the reason.
    Nothing(Option<String>),
    /// The API server has no such object.
    Missing,
    /// It is so, or was when it was last seen.
    There(Arc<Content>),
}

/// All objects that are needed. Clones share them.
#[derive(Clone)]
pub(crate) struct Objects {
    client: Option<Client>,
    entries: Entries,
}

type Entries = Arc<Mutex<HashMap<Key, Weak<Entry>>>>;

/// An object that is followed as long as this, or a clone, lives.
#[derive(Clone)]
pub(crate) struct Held(Arc<Entry>);

struct Entry {
    key: Key,
    seen: watch::Sender<Seen>,
    entries: Entries,
    task: Mutex<Option<AbortHandle>>,
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ConfigMap { name, .. } => write!(f, "configmap {name:?}"),
            Self::Secret { name, .. } => write!(f, "secret {name:?}"),
            Self::TrustBundle { name } => write!(f, "clustertrustbundle {name:?}"),
            Self::TrustBundles { signer, .. } => write!(f, "clustertrustbundles of signer {signer:?}"),
        }
    }
}

impl fmt::Debug for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sizes = self.0.iter().map(|(key, value)| (key, value.len()));
        f.debug_map().entries(sizes).finish()
    }
}

impl Objects {
    /// Over `client`; without one there is no API server.
    pub(crate) fn new(client: Option<Client>) -> Self {
        Self { client, entries: Entries::default() }
    }

    /// The way to the API server.
    ///
    /// # Errors
    /// When the node has none.
    pub(crate) fn client(&self) -> Result<&Client, Error> {
        self.client.as_ref().ok_or_else(|| {
            Error::Unsupported(
                "it needs an object of the API server, and this node has none (--kubeconfig)".to_owned(),
            )
        })
    }

    /// Follows an object from now on, if nobody does yet.
    pub(crate) fn hold(&self, key: &Key) -> Result<Held, Error> {
        let client = self.client()?;
        let mut entries = lock(&self.entries);
        if let Some(entry) = entries.get(key).and_then(Weak::upgrade) {
            return Ok(Held(entry));
        }
        let (key, entries_) = (key.clone(), self.entries.clone());
        let seen = watch::Sender::new(Seen::Nothing(None));
        let task = tokio::spawn(follow(client.clone(), key.clone(), seen.clone())).abort_handle();
        let entry =
            Arc::new(Entry { key: key.clone(), seen, entries: entries_, task: Mutex::new(Some(task)) });
        entries.insert(key, Arc::downgrade(&entry));
        Ok(Held(entry))
    }
}

impl Held {
    /// What is known of it by now.
    pub(crate) fn seen(&self) -> Seen {
        self.0.seen.borrow().clone()
    }

    /// What is known of it, and a way to wait for more.
    pub(crate) fn subscribe(&self) -> watch::Receiver<Seen> {
        self.0.seen.subscribe()
    }

    /// Waits until something is known of it, but not past `until`.
    pub(crate) async fn wait(&self, until: Instant) {
        let mut seen = self.0.seen.subscribe();
        let known = seen.wait_for(|seen| !matches!(seen, Seen::Nothing(_)));
        // Not in time: the caller sees for itself.
        let _ = tokio::time::timeout_at(until, known).await;
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        if let Some(task) = lock(&self.task).take() {
            task.abort();
        }
        let mut entries = lock(&self.entries);
        // Somebody may have begun anew meanwhile.
        if entries.get(&self.key).is_some_and(|entry| entry.strong_count() == 0) {
            entries.remove(&self.key);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One object as it came.
struct Read {
    values: BTreeMap<String, Vec<u8>>,
    /// It never changes.
    immutable: bool,
}

async fn follow(client: Client, key: Key, seen: watch::Sender<Seen>) {
    let one = |name: &str| watcher::Config::default().fields(&format!("metadata.name={name}"));
    match &key {
        Key::ConfigMap { namespace, name } => {
            follow_kind(in_namespace(client, namespace), one(name), config_map, &key, &seen).await;
        }
        Key::Secret { namespace, name } => {
            follow_kind(in_namespace(client, namespace), one(name), secret, &key, &seen).await;
        }
        Key::TrustBundle { name } => follow_kind(Api::all(client), one(name), bundle, &key, &seen).await,
        Key::TrustBundles { signer, labels } => {
            let config = watcher::Config::default().fields(&format!("spec.signerName={signer}"));
            let config = if labels.is_empty() { config } else { config.labels(labels) };
            follow_kind(Api::all(client), config, bundle, &key, &seen).await;
        }
    }
}

fn in_namespace<K>(client: Client, namespace: &str) -> Api<K>
where
    K: Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>,
{
    Api::namespaced(client, namespace)
}

/// Returns only when the object is there and will never change.
async fn follow_kind<K: Followed>(
    api: Api<K>,
    config: watcher::Config,
    read: fn(K) -> Read,
    key: &Key,
    seen: &watch::Sender<Seen>,
) {
    let events = watch_objects(api, config);
    let mut events = std::pin::pin!(events);
    let mut known = Told::default();
    let said = Said::every(SAY_AGAIN);
    while let Some(news) = events.next().await {
        let event = match news {
            News::Event(event) => event,
            News::Calm => continue,
            News::Trouble(error) => {
                let reason = quiet::watch_reason(&error);
                if said.is_news(&reason, Instant::now()) {
                    tracing::warn!(object = %key, reason, "an object of the API is not followed");
                }
                // What was known stands.
                seen.send_if_modified(|seen| match seen {
                    Seen::Nothing(before) => before.replace(reason).is_none(),
                    _ => false,
                });
                continue;
            }
        };
        if !known.take(event, read) {
            continue;
        }
        let now = known.seen();
        let there = matches!(now, Seen::There(_));
        seen.send_if_modified(|seen| {
            let changed = *seen != now;
            *seen = now;
            changed
        });
        if there && known.is_immutable() {
            return;
        }
    }
}

/// What a watch has told.
#[derive(Default)]
struct Told {
    objects: BTreeMap<String, Read>,
    /// While a list comes: what it has told so far.
    listed: Option<BTreeMap<String, Read>>,
}

impl Told {
    /// Whether there is anything new.
    fn take<K: Resource>(&mut self, event: Event<K>, read: fn(K) -> Read) -> bool {
        match event {
            Event::Init => self.listed = Some(BTreeMap::new()),
            Event::InitApply(object) => {
                if let Some(listed) = &mut self.listed {
                    listed.insert(object.name_any(), read(object));
                }
            }
            Event::InitDone => {
                self.objects = self.listed.take().unwrap_or_default();
                return true;
            }
            Event::Apply(object) => {
                self.objects.insert(object.name_any(), read(object));
                return true;
            }
            Event::Delete(object) => return self.objects.remove(&object.name_any()).is_some(),
        }
        false
    }

    fn seen(&self) -> Seen {
        if self.objects.is_empty() {
            return Seen::Missing;
        }
        let values = self.objects.values().flat_map(|object| object.values.clone());
        Seen::There(Arc::new(Content(values.collect())))
    }

    fn is_immutable(&self) -> bool {
        self.objects.values().all(|object| object.immutable)
    }
}

fn config_map(object: ConfigMap) -> Read {
    let text = object.data.into_iter().flatten().map(|(key, value)| (key, value.into_bytes()));
    let binary = object.binary_data.into_iter().flatten().map(|(key, value)| (key, value.0));
    Read { values: text.chain(binary).collect(), immutable: object.immutable == Some(true) }
}

fn secret(object: Secret) -> Read {
    let values = object.data.into_iter().flatten().map(|(key, value)| (key, value.0));
    Read { values: values.collect(), immutable: object.immutable == Some(true) }
}

fn bundle(object: ClusterTrustBundle) -> Read {
    let name = object.name_any();
    Read { values: BTreeMap::from([(name, object.spec.trust_bundle.into_bytes())]), immutable: false }
}
