//! The pod's conditions, in the kubelet's order and with its reasons.

use k8s_openapi::api::core::v1::{ContainerStatus, PodCondition};

use super::{Context, activity, time};
use crate::decision::ResizeStep;
use crate::phase::{Activity, Phase};
use crate::spec::ContainerKind;
use crate::status_view::{ContainerView, StatusView};

const READY_TO_START: &str = "PodReadyToStartContainers";
const INITIALIZED: &str = "Initialized";
const READY: &str = "Ready";
const CONTAINERS_READY: &str = "ContainersReady";
const SCHEDULED: &str = "PodScheduled";
/// KEP 1287: a change of resources that the node did not accept.
const RESIZE_PENDING: &str = "PodResizePending";
/// KEP 1287: one that it did, and that is being made.
const RESIZE_IN_PROGRESS: &str = "PodResizeInProgress";
/// KEP 3329.
const DISRUPTION: &str = "DisruptionTarget";

/// What a condition says, before it is compared with what it said last.
#[derive(Clone, Debug, Default)]
struct Finding {
    holds: bool,
    reason: &'static str,
    message: String,
}

impl Finding {
    fn yes() -> Self {
        Self { holds: true, ..Self::default() }
    }

    fn no(reason: &'static str, message: String) -> Self {
        Self { holds: false, reason, message }
    }
}

/// The conditions of others (readiness gates and the like) as they were, then ours.
pub(super) fn conditions(
    context: &Context<'_>,
    phase: Phase,
    statuses: &[ContainerStatus],
) -> Vec<PodCondition> {
    let previous = context.previous.and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let ours =
        [READY_TO_START, INITIALIZED, READY, CONTAINERS_READY, SCHEDULED, RESIZE_PENDING, RESIZE_IN_PROGRESS];
    let mut conditions: Vec<PodCondition> =
        previous.iter().filter(|condition| !ours.contains(&condition.type_.as_str())).cloned().collect();
    let containers: Vec<_> = context.input.pod.containers.iter().zip(statuses).collect();
    let containers_ready = containers_ready(phase, &containers);
    let ready = ready(context.input.pod, &conditions, &containers_ready);
    let findings = [
        (READY_TO_START, ready_to_start(context)),
        (INITIALIZED, initialized(phase, &containers)),
        (READY, ready),
        (CONTAINERS_READY, containers_ready),
        (SCHEDULED, Finding::yes()),
    ];
    conditions.extend(findings.map(|(type_, finding)| condition(context, previous, type_, finding)));
    let resize = &context.input.decision.resize;
    for (type_, step) in [(RESIZE_PENDING, &resize.pending), (RESIZE_IN_PROGRESS, &resize.progress)] {
        if let Some(step) = step.as_ref().filter(|_| !phase.is_final()) {
            conditions.push(resized(context, previous, type_, step));
        }
    }
    // Once told it stays, with those of others.
    let told = conditions.iter().any(|condition| condition.type_ == DISRUPTION);
    if let Some(why) = context.input.decision.failed.as_ref().filter(|_| context.input.decision.disrupted)
        && !told
    {
        let finding = Finding { holds: true, reason: "TerminationByKubelet", message: why.message.clone() };
        conditions.push(condition(context, previous, DISRUPTION, finding));
    }
    conditions
}

/// The date of the last change stays while the condition says the same as before, and a later one is never before it: a
/// clock that was set back must not make a change look old.
fn condition(
    context: &Context<'_>,
    previous: &[PodCondition],
    type_: &str,
    finding: Finding,
) -> PodCondition {
    let status = if finding.holds { "True" } else { "False" };
    let before = previous.iter().find(|condition| condition.type_ == type_);
    let unchanged = before.is_some_and(|condition| condition.status == status);
    let last = before.and_then(|condition| condition.last_transition_time.clone());
    let now = time(context.input.now);
    let since = match last {
        Some(last) if unchanged || last.0 > now.0 => last,
        _ => now,
    };
    PodCondition {
        type_: type_.to_owned(),
        status: status.to_owned(),
        reason: (!finding.reason.is_empty()).then(|| finding.reason.to_owned()),
        message: (!finding.message.is_empty()).then_some(finding.message),
        last_transition_time: Some(since),
        last_probe_time: None,
        observed_generation: context.observed_generation(),
    }
}

/// It is there as long as it holds.
fn resized(context: &Context<'_>, previous: &[PodCondition], type_: &str, step: &ResizeStep) -> PodCondition {
    let text = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
    PodCondition {
        reason: text(&step.reason),
        message: text(&step.message),
        observed_generation: Some(step.generation).filter(|generation| *generation > 0),
        ..condition(context, previous, type_, Finding::yes())
    }
}

/// KEP 3085: the sandbox stands and has its network.
fn ready_to_start(context: &Context<'_>) -> Finding {
    let host_network = context.input.pod.host_network;
    let stands = context.runtime.sandboxes.iter().find(|sandbox| sandbox.ready);
    Finding {
        holds: stands.is_some_and(|sandbox| host_network || !sandbox.ips.is_empty()),
        ..Finding::default()
    }
}

fn initialized(phase: Phase, containers: &[(&ContainerView, &ContainerStatus)]) -> Finding {
    if phase == Phase::Succeeded {
        return Finding { reason: "PodCompleted", ..Finding::yes() };
    }
    // An app container that ran is the proof, although the init containers' remains may be gone.
    let app_ran = |(view, status): &(&ContainerView, &ContainerStatus)| {
        view.kind == ContainerKind::App && activity(status) != Activity::New
    };
    if containers.iter().any(app_ran) {
        return Finding::yes();
    }
    let incomplete: Vec<&str> = containers
        .iter()
        .filter(|(view, status)| match view.kind {
            ContainerKind::Init => !status.ready,
            ContainerKind::Sidecar => status.started != Some(true),
            ContainerKind::App | ContainerKind::Ephemeral => false,
        })
        .map(|(view, _)| view.name.as_str())
        .collect();
    if incomplete.is_empty() {
        return Finding::yes();
    }
    Finding::no(
        "ContainersNotInitialized",
        format!("containers with incomplete status: [{}]", incomplete.join(" ")),
    )
}

fn containers_ready(phase: Phase, containers: &[(&ContainerView, &ContainerStatus)]) -> Finding {
    match phase {
        Phase::Succeeded => return Finding::no("PodCompleted", String::new()),
        Phase::Failed => return Finding::no("PodFailed", String::new()),
        Phase::Pending | Phase::Running => {}
    }
    let unready: Vec<&str> = containers
        .iter()
        .filter(|(view, status)| counts_for_readiness(view.kind) && !status.ready)
        .map(|(view, _)| view.name.as_str())
        .collect();
    if unready.is_empty() {
        return Finding::yes();
    }
    Finding::no("ContainersNotReady", format!("containers with unready status: [{}]", unready.join(" ")))
}

fn counts_for_readiness(kind: ContainerKind) -> bool {
    matches!(kind, ContainerKind::App | ContainerKind::Sidecar)
}

/// KEP 580: every gate's condition has to be True as well.
fn ready(pod: &StatusView, conditions: &[PodCondition], containers_ready: &Finding) -> Finding {
    if !containers_ready.holds {
        return containers_ready.clone();
    }
    let told = |gate: &String| {
        let published =
            || Some(conditions.iter().find(|condition| condition.type_ == *gate)?.status.as_str());
        pod.conditions.get(gate).map(String::as_str).or_else(published)
    };
    let closed = pod.readiness_gates.iter().filter_map(|gate| match told(gate) {
        None => Some(format!("corresponding condition of pod readiness gate \"{gate}\" does not exist.")),
        Some("True") => None,
        Some(status) => {
            Some(format!("the status of pod readiness gate \"{gate}\" is not \"True\", but {status}"))
        }
    });
    let closed: Vec<String> = closed.collect();
    if closed.is_empty() { Finding::yes() } else { Finding::no("ReadinessGatesNotReady", closed.join(", ")) }
}
