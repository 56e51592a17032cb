//! What to do next about a pod: the sandbox to make, the containers to stop and to start.
//!
//! Owns the decision that the kubelet calls computePodActions, as a function of the pod, of what the runtime was seen to
//! hold and of the probes. Must never decide about back-off (a start that is listed here may have to wait first) or act.
//! It is only as good as its observation: ask again with a newer one after every action, never act twice on one.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};

use crate::decision::Stage;
use crate::grace::StopReason;
use crate::phase::Phase;
use crate::probe::{Health, ProbeKind, ProbeResults};
use crate::runtime::{Container, RuntimePod, Sandbox};
use crate::spec::{self, ContainerKind, SpecContainer};

mod app;
mod ephemeral;
mod init;
mod termination;

pub use termination::{StopStep, compute_termination_order};

/// Everything that the decision depends on.
#[derive(Clone, Copy, Debug)]
pub struct ActionInput<'a> {
    /// The pod as it is wanted. Its `status`, if it has one, is what was last reported of this run of the pod: it tells
    /// what the runtime forgot. A static pod that was put back must come without.
    pub pod: &'a Pod,
    /// The pod as the runtime holds it, newer than the worker's last action.
    pub runtime: &'a RuntimePod,
    /// Where the pod is in its life.
    pub stage: Stage,
    /// What the probes say, by container id. An id that is missing is not known to be started, and is let live.
    pub probes: &'a BTreeMap<String, ProbeResults>,
    /// Ephemeral containers that have run, whatever the runtime still holds of them: they do not run again.
    pub ephemeral_ran: &'a BTreeSet<String>,
    /// Ids of containers that run and must be restarted for their resources to change.
    pub resized: &'a BTreeSet<String>,
    /// Fingerprint of each container's present spec, by name. A name that is missing is not compared.
    pub hashes: &'a BTreeMap<String, u32>,
    /// The present date.
    pub now: Timestamp,
}

/// What to do, in this order: `kill_pod`; else `containers_to_kill`, then `sandboxes_to_stop`; then `create_sandbox`;
/// then `containers_to_start`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodActions {
    /// Stop everything of the pod: containers in the order of [`compute_termination_order`], then every sandbox. No
    /// single container is listed to be killed then.
    pub kill_pod: Option<KillPod>,
    /// Make a sandbox.
    pub create_sandbox: Option<CreateSandbox>,
    /// The sandbox that is kept, and in which containers start. `None` when one is to be made, or none is wanted.
    pub sandbox_id: Option<String>,
    /// Sandboxes that stand beside the one that is kept.
    pub sandboxes_to_stop: Vec<String>,
    /// Containers to stop, all at once.
    pub containers_to_kill: Vec<ContainerKill>,
    /// Containers to start, each name at most once: init containers first, in order, then app containers, then ephemeral
    /// ones.
    pub containers_to_start: Vec<ContainerStart>,
    /// The init container or sidecar that the pod's start is at; `None` once it is past them all.
    pub next_init: Option<String>,
    /// Why the rest of the pod is not started yet.
    pub wait: Option<Wait>,
    /// No container of this pod runs again: it is over as soon as nothing runs.
    pub finished: bool,
}

/// Why the whole pod is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KillPod {
    /// The worker is ending the pod.
    Terminating,
    /// Its sandbox cannot be used any more: everything starts again in a new one.
    SandboxChanged,
    /// Its containers are done; what is left are sidecars and the sandbox.
    Finished,
    /// An init container failed and is not run again.
    InitFailed,
}

/// A sandbox to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CreateSandbox {
    /// One more than any sandbox before it; 0 for the first.
    pub attempt: u32,
}

/// A container to stop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerKill {
    /// The runtime's id.
    pub id: String,
    /// `name` in the pod's spec.
    pub name: String,
    /// Why; decides the grace period.
    pub reason: KillReason,
    /// For people, with what happens next.
    pub message: String,
    /// What happens next.
    pub then: AfterKill,
}

/// Why one container is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KillReason {
    /// Its liveness probe failed.
    LivenessProbe,
    /// Its startup probe failed.
    StartupProbe,
    /// Its spec changed since it was made.
    DefinitionChanged,
    /// Its resources change, and its `resizePolicy` says that it has to be restarted for that.
    Resized,
    /// The runtime cannot tell whether it runs.
    StateUnknown,
    /// A newer container with its name exists, or its sandbox is not the one that is kept.
    Surplus,
}

/// What follows a container's kill.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AfterKill {
    /// Its successor is in the list of containers to start, or comes once it has ended.
    Restart,
    /// Nothing: its policy does not run it again, or another one stands for it.
    Nothing,
}

/// A container to start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerStart {
    /// `name` in the pod's spec.
    pub name: String,
    /// What it is for.
    pub kind: ContainerKind,
    /// Its restart count: one more than any container with this name before it.
    pub attempt: u32,
    /// A container that was made in this sandbox from this spec and never started: start it, don't make another.
    /// `attempt` is its own then. `None`: make one.
    pub resume: Option<String>,
    /// When the last run ended, for the back-off; the present for one that is killed first because of a probe. `None`
    /// when it starts without delay: it never ran, or its definition changed.
    pub last_finished_at: Option<Timestamp>,
}

/// What the start of a pod waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wait {
    /// This init container has to end well.
    InitContainer(String),
    /// This sidecar has to be started, its startup probe included.
    SidecarStart(String),
}

impl KillReason {
    /// As [`crate::grace`] asks for it.
    pub fn stop_reason(self) -> StopReason {
        match self {
            Self::LivenessProbe => StopReason::Probe(ProbeKind::Liveness),
            Self::StartupProbe => StopReason::Probe(ProbeKind::Startup),
            Self::DefinitionChanged | Self::Resized | Self::StateUnknown | Self::Surplus => StopReason::Other,
        }
    }

    /// What people are told, after `Container NAME `.
    fn text(self) -> &'static str {
        match self {
            Self::LivenessProbe => "failed liveness probe",
            Self::StartupProbe => "failed startup probe",
            Self::DefinitionChanged => "definition changed",
            Self::Resized => "resize requires restart",
            Self::StateUnknown => "is in unknown state",
            Self::Surplus => "was replaced by a newer one",
        }
    }
}

impl ContainerKill {
    fn new(container: &Container, reason: KillReason, then: AfterKill) -> Self {
        let ending = match then {
            AfterKill::Restart => ", will be restarted",
            AfterKill::Nothing => "",
        };
        let message = format!("Container {} {}{ending}", container.name, reason.text());
        Self { id: container.id.clone(), name: container.name.clone(), reason, message, then }
    }
}

/// Decides what to do next. Doing it and asking again comes to rest: nothing left to kill, make or start.
pub fn compute_pod_actions(input: &ActionInput<'_>) -> PodActions {
    let over = recorded_phase(input.pod).is_some_and(Phase::is_final);
    if input.stage >= Stage::Terminating || over {
        let why =
            if over && input.stage == Stage::Syncing { KillPod::Finished } else { KillPod::Terminating };
        let kill_pod = input.runtime.is_active().then_some(why);
        return PodActions { kill_pod, finished: true, ..Default::default() };
    }
    let sandbox = usable_sandbox(input);
    let context = Context { input, sandbox, containers: spec::containers(input.pod) };

    let mut actions = PodActions { sandbox_id: sandbox.map(|s| s.id.clone()), ..Default::default() };
    let progress = init::plan(&context, &mut actions);
    if progress == init::Progress::Failed {
        return finish(input, KillPod::InitFailed);
    }
    let work = app::plan(&context);
    if work.is_done() {
        return finish(input, KillPod::Finished);
    }
    if progress == init::Progress::Done {
        actions.containers_to_kill.extend(work.kill);
        actions.containers_to_start.extend(work.start);
    }
    if sandbox.is_some() {
        actions.containers_to_start.extend(ephemeral::plan(&context));
        remove_surplus(&context, &mut actions);
    } else {
        // Whatever still runs does so in a sandbox that is lost: it is stopped with it.
        let left_over = !input.runtime.sandboxes.is_empty() || input.runtime.is_active();
        actions.kill_pod = left_over.then_some(KillPod::SandboxChanged);
        actions.create_sandbox = Some(CreateSandbox { attempt: next_sandbox_attempt(input.runtime) });
    }
    actions
}

fn finish(input: &ActionInput<'_>, why: KillPod) -> PodActions {
    PodActions { kill_pod: input.runtime.is_active().then_some(why), finished: true, ..Default::default() }
}

/// The newest ready sandbox, if a pod can live in it: one without an address lost its network namespace, unless the pod
/// uses the node's.
fn usable_sandbox<'a>(input: &ActionInput<'a>) -> Option<&'a Sandbox> {
    let ready = input.runtime.sandboxes.iter().find(|sandbox| sandbox.ready)?;
    (spec::host_network(input.pod) || !ready.ips.is_empty()).then_some(ready)
}

fn next_sandbox_attempt(runtime: &RuntimePod) -> u32 {
    runtime.sandboxes.iter().map(|sandbox| sandbox.attempt.saturating_add(1)).max().unwrap_or(0)
}

/// Stops what stands beside the kept sandbox, and older containers whose name runs again.
fn remove_surplus(context: &Context<'_>, actions: &mut PodActions) {
    let runtime = context.input.runtime;
    let Some(kept) = context.sandbox else { return };
    for sandbox in runtime.sandboxes.iter().filter(|sandbox| sandbox.ready && sandbox.id != kept.id) {
        actions.sandboxes_to_stop.push(sandbox.id.clone());
    }
    for container in runtime.containers.iter().filter(|container| container.may_run()) {
        let ours = context.containers.iter().any(|c| c.name() == container.name);
        let is_newest = context.newest_here(&container.name).is_some_and(|newest| newest.id == container.id);
        let listed = actions.containers_to_kill.iter().any(|kill| kill.id == container.id);
        // A name that is not one of these is left alone in its sandbox: it is an ephemeral container's.
        if !listed && !is_newest && (ours || container.sandbox_id != kept.id) {
            actions.containers_to_kill.push(ContainerKill::new(
                container,
                KillReason::Surplus,
                AfterKill::Nothing,
            ));
        }
    }
}

fn recorded_phase(pod: &Pod) -> Option<Phase> {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).and_then(Phase::parse)
}

/// The input with what was derived from it once.
struct Context<'a> {
    input: &'a ActionInput<'a>,
    /// The sandbox that is kept; `None` when a new one is needed.
    sandbox: Option<&'a Sandbox>,
    containers: Vec<SpecContainer<'a>>,
}

impl<'a> Context<'a> {
    /// The newest container with this name, in whatever sandbox.
    fn newest(&self, name: &str) -> Option<&'a Container> {
        self.input.runtime.newest(name)
    }

    /// The newest container with this name in the sandbox that is kept.
    fn newest_here(&self, name: &str) -> Option<&'a Container> {
        let sandbox = self.sandbox?;
        self.input.runtime.containers.iter().find(|c| c.name == name && c.sandbox_id == sandbox.id)
    }

    /// Whether the container was made from another spec than the present one.
    fn is_outdated(&self, container: &Container) -> bool {
        let wanted = self.input.hashes.get(&container.name);
        matches!((wanted, container.hash), (Some(wanted), Some(made)) if *wanted != made)
    }

    /// What was last reported of a container with this name, in this run of the pod.
    fn recorded(&self, name: &str) -> Option<&'a ContainerStatus> {
        let status = self.input.pod.status.as_ref()?;
        let mut all =
            status.init_container_statuses.iter().flatten().chain(status.container_statuses.iter().flatten());
        all.find(|status| status.name == name)
    }

    /// A start of `container`, back-off counted from `last_finished_at`.
    fn start(&self, container: &SpecContainer<'_>, last_finished_at: Option<Timestamp>) -> ContainerStart {
        let name = container.name();
        let newest = self.newest(name).map(|newest| &newest.id);
        let resumable =
            |made: &&Container| Some(&made.id) == newest && made.is_unstarted() && !self.is_outdated(made);
        let made = self.newest_here(name).filter(resumable);
        let attempt = made.map_or_else(|| self.next_attempt(name), |made| made.attempt);
        ContainerStart {
            name: name.to_owned(),
            kind: container.kind,
            attempt,
            resume: made.map(|made| made.id.clone()),
            last_finished_at,
        }
    }

    /// Counts on from what the runtime holds, or from what was reported if the runtime holds less.
    fn next_attempt(&self, name: &str) -> u32 {
        let of_name = self.input.runtime.containers.iter().filter(|c| c.name == name);
        let held = of_name.map(|c| c.attempt.saturating_add(1)).max().unwrap_or(0);
        let recorded = self.recorded(name).filter(|status| has_run(status));
        let reported = recorded.and_then(|status| u32::try_from(status.restart_count).ok());
        held.max(reported.map_or(0, |count| count.saturating_add(1)))
    }

    /// When the last run of this name ended, as the runtime knows it.
    fn last_finished_at(&self, name: &str) -> Option<Timestamp> {
        self.input.runtime.containers.iter().filter(|c| c.name == name).find_map(|c| c.finished_at)
    }

    /// The reason to kill a container that runs, and from when its successor's back-off counts.
    fn reason_to_kill(&self, container: &Container) -> Option<(KillReason, Option<Timestamp>)> {
        if self.is_outdated(container) {
            return Some((KillReason::DefinitionChanged, None));
        }
        if self.input.resized.contains(&container.id) {
            return Some((KillReason::Resized, None));
        }
        match self.input.probes.get(&container.id).map_or(Health::Live, |results| results.health) {
            Health::Live => None,
            Health::LivenessFailed => Some((KillReason::LivenessProbe, Some(self.input.now))),
            Health::StartupFailed => Some((KillReason::StartupProbe, Some(self.input.now))),
        }
    }
}

/// Whether the status tells of a run of the container.
fn has_run(status: &ContainerStatus) -> bool {
    status.container_id.as_ref().is_some_and(|id| !id.is_empty())
        || status.restart_count > 0
        || status.state.as_ref().is_some_and(|state| state.running.is_some() || state.terminated.is_some())
}

#[cfg(test)]
mod tests;
