//! The loop that keeps the node object there and true.

use std::sync::Arc;
use std::time::Duration;

use bulkhead_base::{Clock, chain};
use bulkhead_model::event;
use bulkhead_reconcile::{Next, Reconciler, Trigger};
use k8s_openapi::api::core::v1::{Node, NodeStatus};
use tokio::sync::watch;
use tokio::time::Instant;

use super::api::{ApiError, NodeApi};
use super::register::{Registration, amend};
use super::report::{self, Timing};
use crate::error::NodeError;
use crate::events::Events;

/// How soon a node that is not ready yet is looked at again after its start, so that it is ready in the cluster soon.
const STARTING: Duration = Duration::from_secs(1);
/// For how long that is done, and a node that was ready is believed to be.
const START: Duration = Duration::from_secs(30);

/// Tells the node as this process sees it.
pub(crate) trait NodeSource: Send + Sync + 'static {
    /// The node now.
    fn node(&self) -> impl Future<Output = Result<Node, NodeError>> + Send;
}

/// Takes whether all is well, or why not.
pub(crate) type Verdict = Box<dyn Fn(Result<(), String>) + Send>;

/// What the loop works with.
pub(crate) struct Parts<A, N> {
    /// The API server.
    pub(crate) api: Arc<A>,
    /// The node as it is.
    pub(crate) node: Arc<N>,
    /// Its name.
    pub(crate) name: String,
    /// How it enters the cluster.
    pub(crate) registration: Registration,
    /// How often it is told.
    pub(crate) timing: Timing,
    /// Whether it is in the cluster.
    pub(crate) check: Verdict,
    /// UID of the registered node, for the lease; `None`: there is none.
    pub(crate) known: watch::Sender<Option<String>>,
    /// Takes what changes.
    pub(crate) events: Events,
    /// Tells when.
    pub(crate) clock: Arc<dyn Clock>,
}

/// The loop's body.
pub(crate) struct Presence<A, N> {
    parts: Parts<A, N>,
    began: Instant,
    /// Whether the node was ready at some time since then.
    was_ready: bool,
    /// When the status was reported last, by this process.
    reported: Option<Instant>,
    /// Whether it was looked whether the machine was started anew.
    boot_seen: bool,
    said: Option<Trouble>,
}

/// Why the node is not in the cluster, as it should be.
#[derive(Debug, thiserror::Error)]
enum Trouble {
    #[error("the node is not in the cluster, and registerNode is false: it waits for somebody to make it")]
    Unregistered,
    #[error(transparent)]
    Api(#[from] ApiError),
    #[error(transparent)]
    Node(#[from] NodeError),
    #[error("the node's status cannot be written as JSON")]
    Encode(#[from] serde_json::Error),
}

impl<A: NodeApi, N: NodeSource> Presence<A, N> {
    /// Nothing is known of the cluster yet.
    pub(crate) fn new(parts: Parts<A, N>) -> Self {
        Self { parts, began: Instant::now(), was_ready: false, reported: None, boot_seen: false, said: None }
    }

    /// Whether the node is ready.
    async fn pass(&mut self) -> Result<bool, Trouble> {
        let own = self.parts.node.node().await?;
        let ready = is_ready(own.status.as_ref());
        self.was_ready |= ready;
        let found = self.parts.api.node().await?;
        let before = found.as_ref().and_then(|found| found.status.clone());
        let existing = match found {
            Some(existing) => existing,
            None => {
                // Never half: without a node object no lease either (kubernetes/kubernetes#116485).
                self.know(None);
                if !self.parts.registration.wanted {
                    return Err(Trouble::Unregistered);
                }
                let made = self.parts.api.create(&self.parts.registration.object(own.clone())).await?;
                tracing::info!(node = made.metadata.name, "the node is registered");
                self.reported = Some(Instant::now());
                self.tell(None, own.status.as_ref());
                made
            }
        };
        let existing = match amend(&existing, &own) {
            Some(patch) => self.parts.api.patch(&patch).await?,
            None => existing,
        };
        self.know(existing.metadata.uid.clone());
        self.look_for_boot(before.as_ref(), own.status.as_ref());
        // A process that just started does not know its peers yet: that makes no ready node unready.
        if !self.was_ready && self.began.elapsed() < START && is_ready(existing.status.as_ref()) {
            return Ok(ready);
        }
        let status = report::settle(existing.status.as_ref(), own.status.unwrap_or_default());
        let due = self.reported.is_none_or(|at| at.elapsed() >= self.parts.timing.report);
        if due || report::differs(existing.status.as_ref(), &status) {
            self.parts.api.patch_status(&report::patch(&status)?).await?;
            self.reported = Some(Instant::now());
            self.tell(existing.status.as_ref(), Some(&status));
        }
        Ok(ready)
    }

    /// Each condition that turned out or changed.
    fn tell(&self, before: Option<&NodeStatus>, now: Option<&NodeStatus>) {
        let Some(now) = now else { return };
        for reason in report::turned(before, now) {
            self.parts.events.node(event::node_status(&self.parts.name, reason), self.parts.clock.now());
        }
    }

    /// Once in a life: the node object may remember another start of the machine.
    fn look_for_boot(&mut self, before: Option<&NodeStatus>, now: Option<&NodeStatus>) {
        if std::mem::replace(&mut self.boot_seen, true) {
            return;
        }
        let boot = |status: Option<&NodeStatus>| {
            let boot = status.and_then(|status| status.node_info.as_ref()).map(|info| info.boot_id.clone());
            boot.filter(|boot| !boot.is_empty())
        };
        if let (Some(before), Some(now)) = (boot(before), boot(now))
            && before != now
        {
            self.parts.events.node(event::rebooted(&self.parts.name, &now), self.parts.clock.now());
        }
    }

    fn know(&self, uid: Option<String>) {
        self.parts.known.send_if_modified(|known| {
            let changed = *known != uid;
            *known = uid;
            changed
        });
    }

    fn say(&mut self, trouble: Trouble) -> String {
        let text = chain(&trouble).to_string();
        (self.parts.check)(Err(text.clone()));
        let news = self.said.as_ref().map(std::mem::discriminant) != Some(std::mem::discriminant(&trouble));
        if news {
            tracing::warn!(error = text, "the node in the cluster");
        }
        self.said = Some(trouble);
        text
    }
}

impl<A: NodeApi, N: NodeSource> Reconciler for Presence<A, N> {
    const NAME: &'static str = "node in the cluster";

    fn interval(&self) -> Duration {
        self.parts.timing.look
    }

    async fn reconcile(&mut self, _: Trigger) -> Next {
        match self.pass().await {
            Ok(ready) => {
                (self.parts.check)(Ok(()));
                if self.said.take().is_some() {
                    tracing::info!("the node is in the cluster again");
                }
                if ready || self.began.elapsed() > START { Next::Wait } else { Next::After(STARTING) }
            }
            Err(Trouble::Unregistered) => {
                self.say(Trouble::Unregistered);
                Next::Wait
            }
            Err(trouble) => Next::Failed(self.say(trouble)),
        }
    }
}

fn is_ready(status: Option<&NodeStatus>) -> bool {
    let conditions = status.and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

#[cfg(test)]
mod tests;
