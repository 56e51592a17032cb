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
    /// When the run began, as syncd said last.
    #[serde(default)]
    pub(crate) started_at: Option<Timestamp>,
    /// When it began, as syncd said first: a syncd that has lost its records gives a later date.
    #[serde(default)]
    pub(crate) began_at: Option<Timestamp>,
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
    /// Its phase is final only now.
    pub(crate) newly_over: bool,
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

/// What a pod's record and the world say of its present run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Run<'a> {
    /// Nothing is remembered of it: the pod is new, or was put back.
    Another,
    /// The remembered one goes on.
    Same(&'a Record),
    /// syncd names another start, and what the runtime holds is not known yet. Until then the record stands.
    Unclear(&'a Record),
}

impl<'a> Run<'a> {
    /// A static pod that was put back has the same UID and is another run. syncd then takes it back from Terminated, or, if
    /// that was missed, gives it another start. syncd gives another start also when it has lost its records; but a run is
    /// over only when nothing of it runs, so a container that was published as running, and runs, is proof that it goes on.
    pub(crate) fn of(record: Option<&'a Record>, decision: &Decision, runtime: Option<&RuntimePod>) -> Self {
        let Some(record) = record else { return Self::Another };
        if record.terminated && decision.stage == Stage::Syncing {
            return Self::Another;
        }
        let another_start =
            matches!((record.started_at, decision.started_at), (Some(before), Some(now)) if before != now);
        match runtime {
            _ if !another_start => Self::Same(record),
            None => Self::Unclear(record),
            Some(runtime) if record.runs_still(runtime) => Self::Same(record),
            Some(_) => Self::Another,
        }
    }

    /// When it began. Later starts that syncd gave the same run do not count.
    pub(crate) fn began_at(&self, decision: &Decision) -> Option<Timestamp> {
        match self {
            Self::Another => decision.started_at,
            Self::Same(record) | Self::Unclear(record) => {
                record.began_at.or(record.started_at).or(decision.started_at)
            }
        }
    }
}

impl Record {
    /// Whether a container that was published as running may run now.
    fn runs_still(&self, runtime: &RuntimePod) -> bool {
        let init = self.status.init_container_statuses.iter().flatten();
        let mut statuses = init.chain(self.status.container_statuses.iter().flatten());
        statuses.any(|status| {
            let was_running = status.state.as_ref().is_some_and(|state| state.running.is_some());
            // As published it begins with the runtime's name: `containerd://`.
            let id = status.container_id.as_deref().and_then(|id| id.split_once("://"));
            let runs = |id| runtime.containers.iter().any(|found| found.id == id && found.may_run());
            was_running && id.is_some_and(|(_, id)| runs(id))
        })
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

/// Whether the phase is final.
fn is_over(status: &PodStatus) -> bool {
    matches!(status.phase.as_deref(), Some("Succeeded" | "Failed"))
}

/// The pod's next record; `None` while nothing can be said of it: neither what the runtime holds is known, nor was
/// anything published of this run. While it is unclear whether the run is another one, the record stays as it is.
pub(crate) fn next(record: Option<&Record>, known: &Known<'_>) -> Option<Next> {
    let decision = &known.item.decision;
    let run = Run::of(record, decision, known.runtime);
    let same = match run {
        Run::Unclear(record) => {
            return Some(Next { record: record.clone(), newly: Reached::default(), newly_over: false });
        }
        Run::Another if known.runtime.is_none() => return None,
        Run::Another => None,
        Run::Same(record) => Some(record),
    };
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
        began_at: run.began_at(decision),
        terminated: decision.stage == Stage::Terminated,
        reached: Reached { running: before.running || now.running, ready: before.ready || now.ready },
        status,
    };
    let newly = Reached { running: now.running && !before.running, ready: now.ready && !before.ready };
    let newly_over = is_over(&record.status) && !same.is_some_and(|same| is_over(&same.status));
    Some(Next { record, newly, newly_over })
}

/// What the runtime holds of a run that has just begun, at `began_at`. pleg's view can be a second older than syncd's: a
/// container that ended in the run before, and is removed by now, would make the new run look finished, for good.
pub(crate) fn without_earlier_runs(
    mut pod: RuntimePod,
    began_at: Option<Timestamp>,
    stage: Stage,
) -> RuntimePod {
    if let (Some(start), Stage::Syncing) = (began_at, stage) {
        pod.containers.retain(|c| c.state != ContainerState::Exited || c.created_at >= start);
    }
    pod
}

#[cfg(test)]
mod tests;
