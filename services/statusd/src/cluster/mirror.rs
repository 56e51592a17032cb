//! Mirror pods: what the cluster sees of pods that do not come from it.
//!
//! Each static pod has a copy in the API server, with the static pod's status. A copy that somebody deletes is made again; one
//! of an older manifest, or of a pod that is gone, is deleted. Must never touch a pod of that name that is no mirror.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bulkhead_api::convert::StatusItem;
use bulkhead_api::statusd::v1::PodStatus;
use bulkhead_api::syncd::v1::MirrorPod;
use bulkhead_base::chain;
use bulkhead_ipc::said::Said;
use bulkhead_ipc::{Mirror, Publisher};
use bulkhead_model::names;
use bulkhead_reconcile::{Next, Reconciler, Trigger};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::Instant;

use super::api::{ApiError, PodApi};

/// How often copies are looked at when nothing changes: somebody may have deleted one.
const LOOK: Duration = Duration::from_secs(10);
/// How old the last look at one copy may be.
const TRUST: Duration = Duration::from_secs(60);
/// How long a copy that was just looked at may be missing from what syncd tells of the API server.
const YOUNG: Duration = Duration::from_secs(5);
/// How often the same thing is said again.
const SAY_AGAIN: Duration = Duration::from_secs(300);

/// Tells whole pods.
pub(crate) trait PodSource: Send + Sync + 'static {
    /// All pods of the node by UID.
    fn pods(&self) -> impl Future<Output = Result<BTreeMap<String, Pod>, tonic::Status>> + Send;
}

/// What the loop works with.
pub(crate) struct Parts<A, S> {
    /// The API server.
    pub(crate) api: Arc<A>,
    /// Whole pods, asked for only when a copy is to be made.
    pub(crate) source: S,
    /// Which pods there are.
    pub(crate) views: Mirror<String, StatusItem>,
    /// Copies that the API server has, by their own UIDs.
    pub(crate) existing: Mirror<String, MirrorPod>,
    /// Their statuses.
    pub(crate) statuses: Publisher<String, PodStatus>,
    /// The node's name.
    pub(crate) node: String,
    /// UID of the registered node.
    pub(crate) registered: watch::Receiver<Option<String>>,
}

/// The loop's body.
pub(crate) struct Mirrors<A, S> {
    parts: Parts<A, S>,
    /// Copies that are known to be there, by the static pod's UID.
    copies: BTreeMap<String, Copy>,
    said: Said,
}

struct Copy {
    namespace: String,
    name: String,
    /// Its own, which the API server gave.
    uid: String,
    /// Version of the status that it was last given.
    told: Option<u64>,
    looked: Instant,
}

/// A static pod of this node.
struct Wanted {
    namespace: String,
    name: String,
}

impl Wanted {
    fn taken(&self) -> Trouble {
        Trouble::Taken { namespace: self.namespace.clone(), name: self.name.clone() }
    }
}

#[derive(Debug, thiserror::Error)]
enum Trouble {
    #[error(transparent)]
    Api(#[from] ApiError),
    #[error("whole pods are not known, so no copy can be made")]
    Pods(#[source] tonic::Status),
    #[error(
        "pod {namespace}/{name} of the cluster has the name of a static pod here, which cannot be shown there"
    )]
    Taken { namespace: String, name: String },
    #[error("the status of pod {uid} is no JSON")]
    Status {
        uid: String,
        #[source]
        source: serde_json::Error,
    },
}

impl<A: PodApi, S: PodSource> Mirrors<A, S> {
    /// No copy is known yet.
    pub(crate) fn new(parts: Parts<A, S>) -> Self {
        Self { parts, copies: BTreeMap::new(), said: Said::every(SAY_AGAIN) }
    }

    async fn pass(&mut self, node_uid: &str) -> Result<(), Trouble> {
        let wanted = self.wanted();
        self.end_others(&wanted).await?;
        self.end_strays().await?;
        let mut whole = None;
        let mut worst = Ok(());
        for (uid, pod) in &wanted {
            let done = self.keep(uid, pod, node_uid, &mut whole).await;
            // One that cannot be shown keeps no other.
            worst = worst.and(done);
        }
        worst
    }

    fn wanted(&self) -> BTreeMap<String, Wanted> {
        let views = self.parts.views.snapshot().into_iter().filter(|(_, item)| item.view.static_pod);
        let wanted = |(uid, item): (String, Arc<StatusItem>)| {
            (uid, Wanted { namespace: item.view.namespace.clone(), name: item.view.name.clone() })
        };
        let mut all: BTreeMap<String, Wanted> = views.map(wanted).collect();
        // While a changed manifest's old pod ends, two have one name: the copy is the old one's until it is gone.
        let names: Vec<_> = self.copies.iter().filter(|(uid, _)| all.contains_key(*uid)).collect();
        all.retain(|uid, pod| {
            let other = |(other, copy): &(&String, &Copy)| {
                *other != uid && (&copy.namespace, &copy.name) == (&pod.namespace, &pod.name)
            };
            !names.iter().any(other)
        });
        all
    }

    /// Deletes the copies of pods that are gone. Only a live list of pods says so.
    async fn end_others(&mut self, wanted: &BTreeMap<String, Wanted>) -> Result<(), Trouble> {
        if !self.parts.views.status().live {
            return Ok(());
        }
        let gone: Vec<_> = self.copies.keys().filter(|uid| !wanted.contains_key(*uid)).cloned().collect();
        for uid in gone {
            if let Some(copy) = self.copies.get(&uid) {
                self.parts.api.delete(&copy.namespace, &copy.name, &copy.uid).await?;
            }
            self.copies.remove(&uid);
        }
        Ok(())
    }

    /// Lets go copies that somebody deleted, and deletes those of pods that an earlier life knew.
    async fn end_strays(&mut self) -> Result<(), Trouble> {
        if !self.parts.existing.status().live {
            return Ok(());
        }
        let views_live = self.parts.views.status().live;
        for (uid, mirror) in self.parts.existing.snapshot() {
            let stray = views_live && self.parts.views.get(&mirror.static_uid).is_none();
            if mirror.deleting || stray {
                self.parts.api.delete(&mirror.namespace, &mirror.name, &uid).await?;
                self.copies.remove(&mirror.static_uid);
            }
        }
        // What the API server does not have any more is looked at at once, unless it was just made.
        let existing = &self.parts.existing;
        self.copies.retain(|_, copy| copy.looked.elapsed() < YOUNG || existing.get(&copy.uid).is_some());
        Ok(())
    }

    async fn keep(
        &mut self,
        uid: &str,
        pod: &Wanted,
        node_uid: &str,
        whole: &mut Option<BTreeMap<String, Pod>>,
    ) -> Result<(), Trouble> {
        let trusted = self.copies.get(uid).is_some_and(|copy| copy.looked.elapsed() < TRUST);
        if !trusted && !self.look(uid, pod, node_uid, whole).await? {
            return Ok(());
        }
        self.tell(uid).await
    }

    /// Sees to it that there is a copy. Whether there is.
    async fn look(
        &mut self,
        uid: &str,
        pod: &Wanted,
        node_uid: &str,
        whole: &mut Option<BTreeMap<String, Pod>>,
    ) -> Result<bool, Trouble> {
        let Wanted { namespace, name } = pod;
        let known = match self.copies.contains_key(uid) {
            true => self.parts.api.get(namespace, name).await.or_else(nothing_here)?,
            false => None,
        };
        let existing = match known {
            Some(existing) => existing,
            None => {
                self.copies.remove(uid);
                let pods = match whole {
                    Some(pods) => pods,
                    None => whole.insert(self.parts.source.pods().await.map_err(Trouble::Pods)?),
                };
                // It went meanwhile.
                let Some(whole) = pods.get(uid) else { return Ok(false) };
                match self.parts.api.create(&copy_of(whole, uid, &self.parts.node, node_uid)).await {
                    Ok(made) => made,
                    // A node may read only pods that are its own (the API server's Node authorization), so whether there is
                    // one is found out by making it.
                    Err(ApiError::Conflict(_)) => match self.parts.api.get(namespace, name).await {
                        Ok(Some(existing)) => existing,
                        Ok(None) => return Ok(false),
                        Err(ApiError::Refused { code: 403, .. }) => return Err(pod.taken()),
                        Err(error) => return Err(error.into()),
                    },
                    Err(error) => return Err(error.into()),
                }
            }
        };
        let there = existing.metadata.uid.clone().unwrap_or_default();
        match mirrored(&existing) {
            Some(hash) if hash == uid => {}
            Some(_) => {
                // Of an older manifest.
                self.parts.api.delete(namespace, name, &there).await?;
                self.copies.remove(uid);
                return Ok(false);
            }
            None => return Err(pod.taken()),
        }
        let before = self.copies.get(uid).filter(|copy| copy.uid == there);
        let told = before.and_then(|copy| copy.told);
        let (namespace, name) = (namespace.clone(), name.clone());
        self.copies
            .insert(uid.to_owned(), Copy { namespace, name, uid: there, told, looked: Instant::now() });
        Ok(true)
    }

    async fn tell(&mut self, uid: &str) -> Result<(), Trouble> {
        let Some(status) = self.parts.statuses.get(&uid.to_owned()) else { return Ok(()) };
        let Some(copy) = self.copies.get_mut(uid).filter(|copy| copy.told != Some(status.version)) else {
            return Ok(());
        };
        let own: Value = serde_json::from_slice(&status.status_json)
            .map_err(|source| Trouble::Status { uid: uid.to_owned(), source })?;
        let patch = super::pods::patch(&copy.uid, own, &BTreeMap::new());
        match self.parts.api.patch_status(&copy.namespace, &copy.name, &patch).await {
            Ok(()) => copy.told = Some(status.version),
            // Somebody deleted it, or another one has its name: looked at anew the next time.
            Err(ApiError::NotFound(_) | ApiError::Conflict(_)) => {
                self.copies.remove(uid);
            }
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }
}

impl<A: PodApi, S: PodSource> Reconciler for Mirrors<A, S> {
    const NAME: &'static str = "mirror pods";

    fn interval(&self) -> Duration {
        LOOK
    }

    async fn reconcile(&mut self, _: Trigger) -> Next {
        let node_uid = self.parts.registered.borrow().clone();
        let Some(node_uid) = node_uid else { return Next::After(Duration::from_secs(1)) };
        match self.pass(&node_uid).await {
            Ok(()) => Next::Wait,
            Err(error) => {
                let text = chain(&error).to_string();
                if self.said.is_news(&text, Instant::now()) {
                    tracing::warn!(error = text, "mirror pods");
                }
                Next::Failed(text)
            }
        }
    }
}

/// A node that may not read a pod has none of that name.
fn nothing_here(error: ApiError) -> Result<Option<Pod>, ApiError> {
    match error {
        ApiError::Refused { code: 403, .. } => Ok(None),
        error => Err(error),
    }
}

/// The static pod's UID that a mirror pod names; `None`: it is no mirror.
fn mirrored(pod: &Pod) -> Option<&str> {
    pod.metadata.annotations.as_ref()?.get(names::CONFIG_MIRROR).map(String::as_str)
}

/// The copy of a static pod, owned by the node.
fn copy_of(pod: &Pod, uid: &str, node: &str, node_uid: &str) -> Pod {
    let meta = &pod.metadata;
    let mut annotations = meta.annotations.clone().unwrap_or_default();
    annotations.insert(names::CONFIG_MIRROR.to_owned(), uid.to_owned());
    let owner = OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Node".to_owned(),
        name: node.to_owned(),
        uid: node_uid.to_owned(),
        controller: Some(true),
        ..OwnerReference::default()
    };
    Pod {
        metadata: ObjectMeta {
            name: meta.name.clone(),
            namespace: meta.namespace.clone(),
            labels: meta.labels.clone(),
            annotations: Some(annotations),
            owner_references: Some(vec![owner]),
            ..ObjectMeta::default()
        },
        spec: pod.spec.clone(),
        status: None,
    }
}

#[cfg(test)]
mod tests;
