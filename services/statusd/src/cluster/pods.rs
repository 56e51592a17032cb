//! Statuses of the API server's own pods, and the last step of their end.
//!
//! Owns `status` of every pod that the API server gave this node. A pod that is being deleted there is gone from there only once
//! its final status was taken and nothing of it is left here. Must never tell a status of one pod to another of its name.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bulkhead_api::convert::StatusItem;
use bulkhead_api::statusd::v1::PodStatus;
use bulkhead_base::chain;
use bulkhead_ipc::said::Said;
use bulkhead_ipc::{Mirror, Publisher};
use bulkhead_reconcile::{Next, Reconciler, Trigger};
use futures::StreamExt;
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::api::{ApiError, PodApi};

/// How often all pods are looked at when nothing changes: others may have written what is this node's to say.
const LOOK: Duration = Duration::from_secs(10);
/// How long what was told may take to come back, before it is told again because something else stands there.
const ECHO: Duration = Duration::from_secs(5);
/// Wait after a failure: an API server that is back must have every status within seconds.
const AGAIN: Duration = Duration::from_secs(2);
/// Pods that are told at once.
const PARALLEL: usize = 8;
/// How often the same thing is said again.
const SAY_AGAIN: Duration = Duration::from_secs(60);
/// Conditions that a node owns, as [`bulkhead_model::status`] computes them.
const OWN: [&str; 5] =
    ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"];
/// Conditions of a node that are there only while they hold.
const PASSING: [&str; 2] = ["PodResizePending", "PodResizeInProgress"];
/// Fields of a status that go when they are not told; what is missing in a patch would stay.
const CLEARED: [&str; 4] = ["reason", "message", "podIP", "podIPs"];

/// What the loop works with.
pub(crate) struct Parts<A> {
    /// The API server.
    pub(crate) api: Arc<A>,
    /// Which pods there are.
    pub(crate) views: Mirror<String, StatusItem>,
    /// Their statuses.
    pub(crate) statuses: Publisher<String, PodStatus>,
}

/// The loop's body.
pub(crate) struct Pods<A> {
    parts: Parts<A>,
    /// By UID.
    told: BTreeMap<String, Told>,
    said: Said,
}

/// What the API server has of a pod, as far as this process told it.
#[derive(Clone, Copy, Debug)]
struct Told {
    /// Of the status.
    version: u64,
    at: Instant,
    /// It has no such pod any more.
    gone: bool,
}

/// What is to be done about one pod.
#[derive(Debug)]
struct Due {
    uid: String,
    namespace: String,
    name: String,
    version: u64,
    /// A strategic merge patch; `None`: what was told stands.
    patch: Option<Value>,
    /// After that the pod may go.
    delete: bool,
}

#[derive(Debug, thiserror::Error)]
enum Trouble {
    #[error(transparent)]
    Api(#[from] ApiError),
    #[error("the status of pod {uid} is no JSON")]
    Status {
        uid: String,
        #[source]
        source: serde_json::Error,
    },
}

impl<A: PodApi> Pods<A> {
    /// Nothing was told yet.
    pub(crate) fn new(parts: Parts<A>) -> Self {
        Self { parts, told: BTreeMap::new(), said: Said::every(SAY_AGAIN) }
    }

    async fn pass(&mut self) -> Result<(), Trouble> {
        if !self.parts.views.status().synced {
            return Ok(());
        }
        let views = self.parts.views.snapshot();
        self.told.retain(|uid, _| views.contains_key(uid));
        let mut worst = Ok(());
        let mut all = Vec::new();
        for (uid, item) in views.iter().filter(|(_, item)| !item.view.static_pod) {
            let status = self.parts.statuses.get(uid);
            match status.map(|status| due(item, &status, self.told.get(uid), Instant::now())) {
                Some(Ok(Some(due))) => all.push(due),
                Some(Err(error)) => worst = Err(error),
                Some(Ok(None)) | None => {}
            }
        }
        let api = &self.parts.api;
        let mut done = futures::stream::iter(all).map(|due| act(&**api, due)).buffer_unordered(PARALLEL);
        while let Some((due, done)) = done.next().await {
            match done {
                Ok(gone) => {
                    self.told.insert(due.uid, Told { version: due.version, at: Instant::now(), gone });
                }
                // One that cannot be told keeps no other.
                Err(error) => worst = Err(error.into()),
            }
        }
        worst
    }
}

impl<A: PodApi> Reconciler for Pods<A> {
    const NAME: &'static str = "pods of the API server";

    fn interval(&self) -> Duration {
        LOOK
    }

    async fn reconcile(&mut self, _: Trigger) -> Next {
        let Err(error) = self.pass().await else { return Next::Wait };
        let text = chain(&error).to_string();
        if self.said.is_news(&text, Instant::now()) {
            tracing::warn!(error = text, "statuses of pods");
        }
        Next::After(AGAIN)
    }
}

/// Whether the pod is gone from the API server.
async fn act<A: PodApi>(api: &A, due: Due) -> (Due, Result<bool, ApiError>) {
    let done = async {
        if let Some(patch) = &due.patch {
            match api.patch_status(&due.namespace, &due.name, patch).await {
                Ok(()) => {}
                // Deleted, perhaps with another one of its name by now.
                Err(ApiError::NotFound(_) | ApiError::Conflict(_)) => return Ok(true),
                Err(error) => return Err(error),
            }
        }
        if due.delete {
            api.delete(&due.namespace, &due.name, &due.uid).await?;
            tracing::info!(
                pod.uid = due.uid,
                pod.name = due.name,
                "the API server was told that the pod is gone"
            );
        }
        Ok(due.delete)
    };
    let done = done.await;
    (due, done)
}

/// What is to be done about a pod by now. Pure.
fn due(
    item: &StatusItem,
    status: &PodStatus,
    told: Option<&Told>,
    now: Instant,
) -> Result<Option<Due>, Trouble> {
    if told.is_some_and(|told| told.gone) {
        return Ok(None);
    }
    let unclear = |source| Trouble::Status { uid: status.pod_uid.clone(), source };
    let current: Value = serde_json::from_slice(&status.status_json).map_err(unclear)?;
    let is_final = matches!(current.get("phase").and_then(Value::as_str), Some("Succeeded" | "Failed"));
    let news = match told {
        Some(told) if told.version == status.version => {
            now.duration_since(told.at) >= ECHO && differs(&item.view.conditions, &current)
        }
        _ => true,
    };
    let delete = item.view.deleting && item.decision.cleared && is_final;
    if !news && !delete {
        return Ok(None);
    }
    Ok(Some(Due {
        uid: status.pod_uid.clone(),
        namespace: status.namespace.clone(),
        name: status.name.clone(),
        version: status.version,
        patch: news.then(|| patch(&status.pod_uid, current, &item.view.conditions)),
        delete,
    }))
}

/// Whether what the API server has of the node's own conditions is not what the status says.
fn differs(there: &BTreeMap<String, String>, status: &Value) -> bool {
    if over(there, status).into_iter().any(|type_| there.contains_key(type_)) {
        return true;
    }
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let mut own = conditions.filter(|condition| OWN.iter().any(|own| condition["type"] == **own));
    own.any(|condition| {
        let type_ = condition["type"].as_str().unwrap_or_default();
        there.get(type_).map(String::as_str) != condition["status"].as_str()
    })
}

/// Passing conditions that do not hold. One that was told just now may not have come back from the API server yet; only where
/// it has no conditions at all there is nothing to take away.
fn over(there: &BTreeMap<String, String>, status: &Value) -> Vec<&'static str> {
    let told = status["conditions"].as_array();
    let holds = |type_: &&str| told.into_iter().flatten().any(|condition| condition["type"] == **type_);
    PASSING.into_iter().filter(|type_| !there.is_empty() && !holds(type_)).collect()
}

/// Sets what is not there to null.
fn clear(fields: &mut Map<String, Value>, names: &[&str]) {
    for name in names {
        fields.entry(*name).or_insert(Value::Null);
    }
}

/// A strategic merge patch that makes a status this one. Conditions of others stay: they are merged by their type.
pub(super) fn patch(uid: &str, status: Value, there: &BTreeMap<String, String>) -> Value {
    let over = over(there, &status);
    let mut fields = match status {
        Value::Object(fields) => fields,
        _ => Map::new(),
    };
    clear(&mut fields, &CLEARED);
    let conditions = fields.get_mut("conditions").and_then(Value::as_array_mut);
    for condition in conditions.into_iter().flatten().filter_map(Value::as_object_mut) {
        clear(condition, &["reason", "message"]);
    }
    if let Some(Value::Array(conditions)) = fields.get_mut("conditions") {
        conditions.extend(over.into_iter().map(|type_| json!({"$patch": "delete", "type": type_})));
    }
    // Addresses are merged, too: old ones would stay.
    for name in ["podIPs", "hostIPs"] {
        if let Some(Value::Array(list)) = fields.get_mut(name) {
            list.insert(0, json!({"$patch": "replace"}));
        }
    }
    json!({"metadata": {"uid": uid}, "status": fields})
}

#[cfg(test)]
mod tests;
