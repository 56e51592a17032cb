//! A pod's status as the API server sees it, from what everybody knows of the pod.
//!
//! Owns `status` of the API's pod: phase, conditions, container statuses, addresses. Must never guess: what is not known
//! just now (a peer was restarted, the runtime was not listed yet) stays what was last published. Computing twice from
//! the same inputs gives the same, so a status that did not change is not sent.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerStatus, HostIP, PodIP, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::decision::{Decision, Stage, Waiting};
use crate::phase::{Activity, Phase, PhaseContainer, PhaseInput, Verdict, compute_phase};
use crate::probe::ProbeResults;
use crate::runtime::{Container, RuntimePod};
use crate::spec::ContainerKind;
use crate::status_view::StatusView;

mod addresses;
mod conditions;
mod containers;

pub use addresses::one_per_family;

/// Everything that a pod's status depends on.
#[derive(Clone, Copy, Debug)]
pub struct StatusInput<'a> {
    /// The pod as it is wanted.
    pub pod: &'a StatusView,
    /// What the pod's worker decided.
    pub decision: &'a Decision,
    /// The pod as the runtime holds it; an empty one if the runtime holds nothing of it. `None` while that is not known.
    pub runtime: Option<&'a RuntimePod>,
    /// What the probes say, by container id. What is missing keeps what was published of the same id.
    pub probes: &'a BTreeMap<String, ProbeResults>,
    /// What was last published of this run of the pod. A static pod that was put back begins with `None`.
    pub previous: Option<&'a PodStatus>,
    /// The node.
    pub node: &'a NodeFacts,
    /// The present date.
    pub now: Timestamp,
}

/// What a pod's status tells of its node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeFacts {
    /// The node's addresses, of its primary family first. Empty while they are not known.
    pub host_ips: Vec<String>,
    /// The runtime's name, as container ids begin: `containerd`.
    pub runtime_name: String,
    /// Whether the runtime makes mounts read-only in all their depth. `None` while that is not known.
    pub recursive_read_only: Option<bool>,
}

/// The status now.
///
/// While the runtime is not known, the previous status stands as it is. If there is none either, the status is that of a
/// pod that was just accepted: better not published before the runtime is known.
pub fn compute_pod_status(input: &StatusInput<'_>) -> PodStatus {
    let nothing = RuntimePod::default();
    let runtime = match (input.runtime, input.previous) {
        (None, Some(previous)) => return previous.clone(),
        (None, None) => &nothing,
        (Some(runtime), _) => runtime,
    };
    let mut context = Context::new(input, runtime);
    let mut of_containers = containers::container_statuses(&context);
    let phase = phase(&context, &of_containers);
    if phase.is_final() && !context.over {
        // With this the pod is over: what seemed to wait for its next run has ended.
        context.over = true;
        of_containers = containers::container_statuses(&context);
    }
    let conditions = conditions::conditions(&context, phase, &of_containers);
    let (reason, message) = reason_and_message(&context, phase);
    let statuses = |kinds: &[ContainerKind]| {
        let all = input.pod.containers.iter().zip(&of_containers);
        let of: Vec<_> = all.filter(|(view, _)| kinds.contains(&view.kind)).map(|(_, s)| s.clone()).collect();
        (!of.is_empty()).then_some(of)
    };
    let host_ips = context.host_ips();
    let pod_ips = context.pod_ips(&host_ips);
    let previous = context.previous.cloned().unwrap_or_default();
    let applied_total = input.decision.resize.applied_total.as_ref().unwrap_or(&input.pod.resources);
    PodStatus {
        phase: Some(phase.as_str().to_owned()),
        conditions: Some(conditions),
        reason,
        message,
        host_ip: host_ips.first().cloned(),
        host_ips: (!host_ips.is_empty()).then(|| host_ips.into_iter().map(|ip| HostIP { ip }).collect()),
        pod_ip: pod_ips.first().cloned(),
        pod_ips: (!pod_ips.is_empty()).then(|| pod_ips.into_iter().map(|ip| PodIP { ip }).collect()),
        start_time: previous.start_time.clone().or_else(|| input.decision.started_at.map(time)),
        init_container_statuses: statuses(&[ContainerKind::Init, ContainerKind::Sidecar]),
        container_statuses: statuses(&[ContainerKind::App]),
        ephemeral_container_statuses: statuses(&[ContainerKind::Ephemeral]),
        qos_class: (!input.pod.qos_class.is_empty()).then(|| input.pod.qos_class.clone()),
        observed_generation: context.observed_generation(),
        resources: Some(containers::resources(applied_total)),
        allocated_resources: containers::allocated(&input.pod.resources),
        // What others own stays: claims, nominations.
        ..previous
    }
}

/// The input with what was derived from it once.
struct Context<'a> {
    input: &'a StatusInput<'a>,
    runtime: &'a RuntimePod,
    previous: Option<&'a PodStatus>,
    previous_phase: Option<Phase>,
    has_init_containers: bool,
    /// No container of the pod runs again.
    over: bool,
}

impl<'a> Context<'a> {
    fn new(input: &'a StatusInput<'a>, runtime: &'a RuntimePod) -> Self {
        let published = input.previous.and_then(|status| status.phase.as_deref()).and_then(Phase::parse);
        // What the API server has as final was told by an earlier life that nothing is remembered of.
        let previous_phase = input.pod.final_phase.or(published);
        let is_init = |kind| matches!(kind, ContainerKind::Init | ContainerKind::Sidecar);
        let has_init_containers = input.pod.containers.iter().any(|view| is_init(view.kind));
        let over = previous_phase.is_some_and(Phase::is_final)
            || input.decision.stage == Stage::Terminated
            || input.decision.failed.is_some();
        Self { input, runtime, previous: input.previous, previous_phase, has_init_containers, over }
    }

    /// Whether the pod was published as over.
    fn was_final(&self) -> bool {
        self.previous_phase.is_some_and(Phase::is_final)
    }

    /// The worker's reason why this container does not run; none once the pod ends.
    fn waiting(&self, name: &str) -> Option<&'a Waiting> {
        let decision = self.input.decision;
        decision.waiting.get(name).filter(|_| decision.stage == Stage::Syncing)
    }

    /// Whether the container's postStart hook has not ended. Once the pod ends, what runs is what it is.
    fn in_post_start(&self, container: &Container) -> bool {
        let decision = self.input.decision;
        decision.stage == Stage::Syncing && decision.in_post_start.contains(&container.id)
    }

    fn previous_container(&self, name: &str) -> Option<&'a ContainerStatus> {
        let previous = self.previous?;
        let lists = [
            &previous.init_container_statuses,
            &previous.container_statuses,
            &previous.ephemeral_container_statuses,
        ];
        lists.into_iter().flatten().flatten().find(|status| status.name == name)
    }

    fn container_id(&self, container: &Container) -> String {
        format!("{}://{}", self.input.node.runtime_name, container.id)
    }

    fn observed_generation(&self) -> Option<i64> {
        Some(self.input.pod.generation).filter(|generation| *generation > 0)
    }

    fn host_ips(&self) -> Vec<String> {
        let present = addresses::one_per_family(&self.input.node.host_ips, None);
        if !present.is_empty() {
            return present;
        }
        let previous = self.previous.and_then(|status| status.host_ips.as_ref());
        previous.into_iter().flatten().map(|host| host.ip.clone()).collect()
    }

    /// A sandbox that is gone takes its addresses with it only when the next one brings new ones: a finished pod's
    /// address is asked for later.
    fn pod_ips(&self, host_ips: &[String]) -> Vec<String> {
        if self.input.pod.host_network {
            return host_ips.to_vec();
        }
        let sandbox = self.runtime.sandboxes.iter().find(|sandbox| sandbox.ready && !sandbox.ips.is_empty());
        match sandbox {
            Some(sandbox) => addresses::one_per_family(&sandbox.ips, host_ips.first()),
            None => {
                let previous = self.previous.and_then(|status| status.pod_ips.as_ref());
                previous.into_iter().flatten().map(|pod| pod.ip.clone()).collect()
            }
        }
    }
}

fn phase(context: &Context<'_>, statuses: &[ContainerStatus]) -> Phase {
    let views = context.input.pod.containers.iter();
    let containers: Vec<PhaseContainer> = views
        .zip(statuses)
        .map(|(view, status)| PhaseContainer {
            kind: view.kind,
            restart_policy: view.restart_policy,
            activity: activity(status),
        })
        .collect();
    let failed = context.input.decision.failed.is_some();
    compute_phase(&PhaseInput {
        containers: &containers,
        previous: context.previous_phase,
        stage: context.input.decision.stage,
        verdict: if failed { Verdict::Failed } else { Verdict::ByPolicy },
        active: context.runtime.containers.iter().any(Container::may_run),
    })
}

/// What a container does, read off its status: one that waits to be restarted has ended.
fn activity(status: &ContainerStatus) -> Activity {
    let state = status.state.as_ref();
    if state.is_some_and(|state| state.running.is_some()) {
        return Activity::Running { started: status.started == Some(true) };
    }
    let last = status.last_state.as_ref().and_then(|state| state.terminated.as_ref());
    let ended = state.and_then(|state| state.terminated.as_ref()).or(last);
    ended.map_or(Activity::New, |ended| Activity::Ended { exit_code: ended.exit_code })
}

/// The worker's reason, from the moment that the pod is shown to have failed. It never changes after that.
fn reason_and_message(context: &Context<'_>, phase: Phase) -> (Option<String>, Option<String>) {
    let previous = context.previous.filter(|_| context.was_final());
    if let Some(previous) = previous {
        return (previous.reason.clone(), previous.message.clone());
    }
    let failed = context.input.decision.failed.as_ref().filter(|_| phase == Phase::Failed);
    let text = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
    (failed.and_then(|why| text(&why.reason)), failed.and_then(|why| text(&why.message)))
}

/// The API's dates have whole seconds. Cut here, so that a status is the same before and after it was sent.
fn time(date: Timestamp) -> Time {
    Time(Timestamp::from_second(date.as_second()).unwrap_or(date))
}

#[cfg(test)]
mod tests;
