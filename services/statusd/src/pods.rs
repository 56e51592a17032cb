//! The loop that keeps every pod's published status up to date.
//!
//! Owns what is published. Must never remove or change a status because a peer is away: mirrors keep their last state, and
//! only a synced view of syncd's says that a pod is gone.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bulkhead_api::convert::{StatusItem, probe_results_from_wire};
use bulkhead_api::prober::v1::ContainerResult;
use bulkhead_api::statusd::v1::PodStatus;
use bulkhead_base::Clock;
use bulkhead_ipc::{Mirror, Publisher};
use bulkhead_model::probe::ProbeResults;
use bulkhead_model::runtime::RuntimePod;
use bulkhead_model::status::NodeFacts;
use bulkhead_reconcile::{Next, Reconciler, Trigger};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::marks::Marks;
use crate::milestones;
use crate::record::{self, Known, Record, Run};
use crate::records::Records;

/// Longest time between two looks at all pods.
const FULL: Duration = Duration::from_secs(60);
/// How long pleg's view may still hold what an earlier run of a pod left: ten of its lists.
const YOUNG: Duration = Duration::from_secs(10);

/// How long the disk may take for final phases before they are published all the same.
const PATIENCE: Duration = Duration::from_secs(5);

/// What others know.
#[derive(Clone, Debug, Default)]
pub(crate) struct Inputs {
    /// Of syncd.
    pub(crate) views: Mirror<String, StatusItem>,
    /// Of pleg.
    pub(crate) pods: Mirror<String, RuntimePod>,
    /// Of prober.
    pub(crate) results: Mirror<String, ContainerResult>,
}

/// What the loop is made from.
pub(crate) struct Parts {
    pub(crate) inputs: Inputs,
    /// Pods to look at.
    pub(crate) marks: Marks,
    /// `runtime_name` is empty while it is not known.
    pub(crate) node: watch::Receiver<NodeFacts>,
    pub(crate) records: Records,
    pub(crate) publisher: Publisher<String, PodStatus>,
    pub(crate) clock: Arc<dyn Clock>,
    /// Set when the publisher opens.
    pub(crate) opened: watch::Sender<bool>,
}

/// The loop.
pub(crate) struct Pods {
    parts: Parts,
    /// Of the newest published status of any pod.
    version: u64,
    last_full: Option<Instant>,
    /// Pods whose run began only now, as seen from here, and when.
    young: BTreeMap<String, Instant>,
}

/// A pod that has just come to its end.
struct Ended {
    item: Arc<StatusItem>,
    before: Option<Arc<Record>>,
    record: Record,
}

impl Reconciler for Pods {
    const NAME: &'static str = "pod statuses";

    fn interval(&self) -> Duration {
        FULL
    }

    async fn reconcile(&mut self, trigger: Trigger) -> Next {
        let marked = self.parts.marks.take();
        if !self.parts.inputs.views.status().synced {
            // Its first snapshot marks all pods.
            return Next::Wait;
        }
        let node = self.parts.node.borrow_and_update().clone();
        let runtime_known = self.parts.inputs.pods.status().synced && !node.runtime_name.is_empty();
        // Constant wakes must not put off the full look.
        let due = self.last_full.is_none_or(|at| at.elapsed() >= FULL);
        let full = marked.all || due || trigger != Trigger::Woken;
        let uids = if full { self.all() } else { marked.uids };
        let ended: Vec<_> = uids.iter().filter_map(|uid| self.look_at(uid, &node, runtime_known)).collect();
        self.publish_ended(ended).await;
        if full {
            self.last_full = Some(Instant::now());
            if runtime_known && !self.parts.publisher.is_open() {
                self.parts.publisher.open();
                self.parts.opened.send_replace(true);
            }
        }
        Next::Wait
    }
}

impl Pods {
    /// Nothing is published yet.
    pub(crate) fn new(parts: Parts) -> Self {
        Self { parts, version: 0, last_full: None, young: BTreeMap::new() }
    }

    /// Pods that are there, and those that were.
    fn all(&self) -> BTreeSet<String> {
        let mut uids: BTreeSet<String> = self.parts.inputs.views.snapshot().into_keys().collect();
        uids.extend(self.parts.records.uids());
        uids
    }

    /// Publishes a pod's status. One that has just come to its end is returned instead.
    fn look_at(&mut self, uid: &String, node: &NodeFacts, runtime_known: bool) -> Option<Ended> {
        let Some(item) = self.parts.inputs.views.get(uid) else {
            self.parts.publisher.remove(uid);
            self.parts.records.remove(uid);
            self.young.remove(uid);
            return None;
        };
        let before = self.parts.records.get(uid);
        let held = runtime_known.then(|| self.parts.inputs.pods.get(uid).unwrap_or_default());
        let run = Run::of(before.as_deref(), &item.decision, held.as_deref());
        // It may have been put back just before statusd was restarted.
        if run == Run::Another || self.parts.publisher.get(uid).is_none() {
            self.young.insert(uid.clone(), Instant::now());
        }
        let runtime = held.map(|pod| self.of_run(pod, run, &item));
        let probes = runtime.as_ref().map(|pod| self.probes(pod)).unwrap_or_default();
        let now = self.parts.clock.now();
        let known = Known { item: &item, runtime: runtime.as_deref(), probes: &probes, node, now };
        let next = record::next(before.as_deref(), &known)?;
        milestones::trace(uid, &item.traceparent, next.newly);
        self.parts.records.set(uid, next.record.clone());
        if next.newly_over {
            return Some(Ended { item, before, record: next.record });
        }
        self.publish(&item, before.as_deref(), &next.record);
        None
    }

    /// A final phase is on disk before anybody sees it: what holds the proof of it, the pod's containers, may go at any time.
    async fn publish_ended(&mut self, ended: Vec<Ended>) {
        if ended.is_empty() {
            return;
        }
        // A disk that hangs must not hold up what is known.
        let _ = tokio::time::timeout(PATIENCE, self.parts.records.kept()).await;
        for Ended { item, before, record } in ended {
            self.publish(&item, before.as_deref(), &record);
        }
    }

    /// What the runtime holds of the pod's present run.
    fn of_run(&mut self, pod: Arc<RuntimePod>, run: Run<'_>, item: &StatusItem) -> Arc<RuntimePod> {
        if !self.is_young(&item.view.uid) {
            return pod;
        }
        let (pod, began_at) = (RuntimePod::clone(&pod), run.began_at(&item.decision));
        Arc::new(record::without_earlier_runs(pod, began_at, item.decision.stage))
    }

    fn is_young(&mut self, uid: &str) -> bool {
        let Some(since) = self.young.get(uid) else { return false };
        let young = since.elapsed() < YOUNG || !self.parts.inputs.pods.status().live;
        if !young {
            self.young.remove(uid);
        }
        young
    }

    /// What the prober says of the pod's containers.
    fn probes(&self, pod: &RuntimePod) -> BTreeMap<String, ProbeResults> {
        let results = &self.parts.inputs.results;
        let of = |id: &String| Some((id.clone(), probe_results_from_wire(&*results.get(id)?)));
        pod.containers.iter().filter_map(|container| of(&container.id)).collect()
    }

    fn publish(&mut self, item: &StatusItem, before: Option<&Record>, now: &Record) {
        let publisher = &self.parts.publisher;
        let uid = &item.view.uid;
        if before.is_some_and(|before| before.status == now.status) && publisher.get(uid).is_some() {
            return;
        }
        let status_json = match serde_json::to_vec(&now.status) {
            Ok(json) => json,
            Err(error) => {
                tracing::error!(pod.uid = %uid, %error, "status cannot be written as JSON");
                return;
            }
        };
        self.version += 1;
        let status = PodStatus {
            pod_uid: uid.clone(),
            name: item.view.name.clone(),
            namespace: item.view.namespace.clone(),
            version: self.version,
            status_json,
        };
        publisher.upsert(uid.clone(), status);
    }
}

#[cfg(test)]
mod tests;
