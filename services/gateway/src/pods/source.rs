//! Where pods come from: syncd's list, one pod at a time, and the mirror of statusd's statuses.

use std::sync::Arc;
use std::time::Duration;

use bulkhead_api::statusd::v1::PodStatus;
use bulkhead_api::syncd::v1::syncd_client::SyncdClient;
use bulkhead_api::syncd::v1::{ListPodsItem, ListPodsRequest, RefusedManifest, list_pods_item};
use bulkhead_ipc::status::with_deadline;
use bulkhead_ipc::{Mirror, PeerChannel};
use tokio::time::{Instant, timeout, timeout_at};
use tonic::{Status, Streaming};

use super::{Object, join};
use crate::error::{PeerError, why};

/// Deadline of a whole list.
const LIST: Duration = Duration::from_secs(10);
/// How long statuses are waited for when none arrived since the start of this process.
const FIRST_STATUSES: Duration = Duration::from_secs(1);
/// What syncd is asked for, in messages.
const PODS: &str = "the pods";

/// Lists pods. Clones share the connection and the statuses.
#[derive(Clone)]
pub(crate) struct Pods {
    syncd: SyncdClient<PeerChannel>,
    statuses: Mirror<String, PodStatus>,
}

/// A list being read: one pod is in memory at a time.
pub(crate) struct PodList {
    raw: RawList,
    statuses: Mirror<String, PodStatus>,
}

/// One entry of a list.
pub(crate) enum Entry {
    /// A pod with its status.
    Pod(Object),
    /// A manifest that was refused.
    Refused(RefusedManifest),
}

/// syncd's list as it comes.
pub(crate) struct RawList {
    first: Option<ListPodsItem>,
    stream: Streaming<ListPodsItem>,
    deadline: Instant,
}

impl Pods {
    /// Pods of `syncd` with `statuses` of statusd.
    pub(crate) fn new(syncd: SyncdClient<PeerChannel>, statuses: Mirror<String, PodStatus>) -> Self {
        Self { syncd, statuses }
    }

    /// Begins a list. When it begins, both peers were there.
    pub(crate) async fn list(&self) -> Result<PodList, PeerError> {
        let synced = self.statuses.wait_until(|status, _| status.synced);
        if timeout(FIRST_STATUSES, synced).await.is_err() {
            let why = "none arrived since gateway started".to_owned();
            return Err(PeerError::Missing { process: "statusd", what: "the pods' statuses", why });
        }
        Ok(PodList { raw: self.raw().await?, statuses: self.statuses.clone() })
    }

    /// Begins a list of what syncd has, without statuses.
    pub(crate) async fn raw(&self) -> Result<RawList, PeerError> {
        let deadline = Instant::now() + LIST;
        let mut syncd = self.syncd.clone();
        let open = async {
            let mut stream = syncd.list_pods(with_deadline(ListPodsRequest {}, LIST)).await?.into_inner();
            let first = stream.message().await?;
            Ok(RawList { first, stream, deadline })
        };
        timeout_at(deadline, open).await.unwrap_or_else(|_| Err(late())).map_err(|status| no_pods(&status))
    }

    /// The statuses, however old; `None` when none ever arrived.
    pub(crate) fn statuses(&self) -> Option<Vec<Arc<PodStatus>>> {
        self.statuses.status().synced.then(|| self.statuses.snapshot().into_values().collect())
    }
}

impl RawList {
    /// The next entry; `None` at the end.
    pub(crate) async fn next(&mut self) -> Result<Option<list_pods_item::Item>, PeerError> {
        loop {
            let item = match self.first.take() {
                Some(item) => item,
                None => {
                    let next = timeout_at(self.deadline, self.stream.message()).await;
                    match next.unwrap_or_else(|_| Err(late())).map_err(|status| no_pods(&status))? {
                        Some(item) => item,
                        None => return Ok(None),
                    }
                }
            };
            // An entry of a kind that a newer syncd knows is passed over.
            if let Some(item) = item.item {
                return Ok(Some(item));
            }
        }
    }
}

impl PodList {
    /// The next entry; `None` at the end.
    pub(crate) async fn next(&mut self) -> Result<Option<Entry>, PeerError> {
        Ok(match self.raw.next().await? {
            None => None,
            Some(list_pods_item::Item::Refused(refused)) => Some(Entry::Refused(refused)),
            Some(list_pods_item::Item::PodJson(json)) => Some(Entry::Pod(self.pod(&json)?)),
        })
    }

    fn pod(&self, json: &[u8]) -> Result<Object, PeerError> {
        let malformed = |process, what| move |source| PeerError::Malformed { process, what, source };
        let mut pod: Object = serde_json::from_slice(json).map_err(malformed("syncd", "a pod".to_owned()))?;
        let uid =
            pod.get("metadata").and_then(|meta| meta.get("uid")?.as_str()).unwrap_or_default().to_owned();
        let status = match self.statuses.get(&uid) {
            Some(status) => {
                let what = format!("the status of pod {}/{} ({uid})", status.namespace, status.name);
                Some(serde_json::from_slice(&status.status_json).map_err(malformed("statusd", what))?)
            }
            None => None,
        };
        join(&mut pod, status);
        Ok(pod)
    }
}

fn late() -> Status {
    Status::deadline_exceeded(format!("it took longer than {} s", LIST.as_secs()))
}

fn no_pods(status: &Status) -> PeerError {
    PeerError::Missing { process: "syncd", what: PODS, why: why(status) }
}
