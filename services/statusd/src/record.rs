//! What is remembered of one pod, and the rule for its next status. Pure.
//!
//! Owns the question whether a remembered status belongs to the present run of the pod. Must never compute a status: that
//! is `bulkhead_model::status`.

use std::collections::BTreeMap;

use bulkhead_api::convert::StatusItem;
use bulkhead_model::decision::{Decision, Stage};
use bulkhead_model::probe::ProbeResults;
use bulkhead_model::runtime::{ContainerState, RuntimePod};
use bulkhead_model::status::{NodeFacts, StatusInput, compute_pod_status};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::PodStatus;
use serde::{Deserialize, Serialize};

/// One pod's last status, with what tells which run of the pod it belongs to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Record {
    /// When the run began, as syncd says.
    #[serde(default)]
    pub(crate) started_at: Option<Timestamp>,
    /// Whether syncd called the run terminated.
    #[serde(default)]
    pub(crate) terminated: bool,
    /// What the run has reached at any time.
    #[serde(default)]
    pub(crate) reached: Reached,
    /// As it was published.
    pub(crate) status: PodStatus,
}

/// Steps of a pod's start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Reached {
    /// Its phase was Running.
    #[serde(default)]
    pub(crate) running: bool,
    /// Its condition Ready was True.
    #[serde(default)]
    pub(crate) ready: bool,
}

/// A pod's next record.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Next {
    /// The record.
    pub(crate) record: Record,
    /// Steps that the run has reached with it for the first time.
    pub(crate) newly: Reached,
}

/// What is known of a pod now.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known<'a> {
    /// From syncd.
    pub(crate) item: &'a StatusItem,
    /// From pleg; `None` while it has not told, an empty pod when the runtime holds nothing.
    pub(crate) runtime: Option<&'a RuntimePod>,
    /// From prober, by container id.
    pub(crate) probes: &'a BTreeMap<String, ProbeResults>,
    /// The node.
    pub(crate) node: &'a NodeFacts,
    /// The present date.
    pub(crate) now: Timestamp,
}

impl Record {
    /// Whether the pod runs still as it did. A static pod that was put back has the same UID and is another run: syncd
    /// gives it another start, or takes it back from "terminated".
    pub(crate) fn is_of_same_run(&self, decision: &Decision) -> bool {
        let another_start =
            matches!((self.started_at, decision.started_at), (Some(before), Some(now)) if before != now);
        let back_from_the_end = self.terminated && decision.stage == Stage::Syncing;
        !another_start && !back_from_the_end
    }
}

impl Reached {
    fn of(status: &PodStatus) -> Self {
        let mut conditions = status.conditions.iter().flatten();
        Self {
            running: status.phase.as_deref() == Some("Running"),
            ready: conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True"),
        }
    }
}

/// The pod's next record; `None` while nothing can be said of it: neither what the runtime holds is known, nor was
/// anything published of this run.
pub(crate) fn next(record: Option<&Record>, known: &Known<'_>) -> Option<Next> {
    let decision = &known.item.decision;
    let same = record.filter(|record| record.is_of_same_run(decision));
    if same.is_none() && known.runtime.is_none() {
        return None;
    }
    let status = compute_pod_status(&StatusInput {
        pod: &known.item.view,
        decision,
        runtime: known.runtime,
        probes: known.probes,
        previous: same.map(|record| &record.status),
        node: known.node,
        now: known.now,
    });
    let before = same.map(|record| record.reached).unwrap_or_default();
    let now = Reached::of(&status);
    let record = Record {
        started_at: decision.started_at.or_else(|| same.and_then(|record| record.started_at)),
        terminated: decision.stage == Stage::Terminated,
        reached: Reached { running: before.running || now.running, ready: before.ready || now.ready },
        status,
    };
    let newly = Reached { running: now.running && !before.running, ready: now.ready && !before.ready };
    Some(Next { record, newly })
}

/// What the runtime holds of a run that has just begun. pleg's view can be a second older than syncd's: a container that
/// ended in the run before, and is removed by now, would make the new run look finished, for good.
pub(crate) fn without_earlier_runs(mut pod: RuntimePod, decision: &Decision) -> RuntimePod {
    if let (Some(start), Stage::Syncing) = (decision.started_at, decision.stage) {
        pod.containers.retain(|c| c.state != ContainerState::Exited || c.created_at >= start);
    }
    pod
}

#[cfg(test)]
mod tests;
