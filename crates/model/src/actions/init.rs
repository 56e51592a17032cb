//! Init containers and sidecars: one after the other until the app containers may start, then only the sidecars.
//!
//! How far a pod has come is read off the kept sandbox, not remembered: whatever stands there proves that everything
//! before it was passed. So a sidecar that is restarted later, or an init container whose remains were collected, never
//! sends the pod back. In a new sandbox all of it runs again.

use super::{AfterKill, ContainerKill, Context, KillReason, PodActions, Wait};
use crate::runtime::{Container, ContainerState};
use crate::spec::{ContainerKind, RestartPolicy, SpecContainer};

/// How far the pod's start has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// An init container failed for good.
    Failed,
    /// App containers have to wait.
    NotDone,
    /// App containers may run.
    Done,
}

/// What one init container or sidecar means for those after it.
enum Gate {
    Open,
    Closed(Wait),
}

pub(super) fn plan(context: &Context<'_>, actions: &mut PodActions) -> Progress {
    let passed = passed(context);
    let ahead = context.containers.iter().skip(passed);
    // Asked first of all: a pod that can never start must not start its sidecars over and over.
    if ahead.filter(|c| c.kind == ContainerKind::Init).any(|c| failed_for_good(context, c)) {
        return Progress::Failed;
    }
    for (index, container) in context.containers.iter().enumerate() {
        let is_passed = index < passed;
        let gate = match container.kind {
            ContainerKind::App | ContainerKind::Ephemeral => break,
            ContainerKind::Init if is_passed => Gate::Open,
            ContainerKind::Init => init(context, container, actions),
            ContainerKind::Sidecar => sidecar(context, container, actions),
        };
        match gate {
            Gate::Open => {}
            Gate::Closed(_) if is_passed => {}
            Gate::Closed(wait) => {
                actions.next_init = Some(container.name().to_owned());
                actions.wait = Some(wait);
                return Progress::NotDone;
            }
        }
    }
    Progress::Done
}

/// How many containers, counted from the first, have something that comes after them in the kept sandbox.
fn passed(context: &Context<'_>) -> usize {
    context.containers.iter().rposition(|c| context.newest_here(c.name()).is_some()).unwrap_or(0)
}

/// Whether an init container ran, did not end well, and is not run again. A run that the loss of its sandbox cut short
/// was a run as well, and so is one that was reported and that the runtime forgot.
fn failed_for_good(context: &Context<'_>, container: &SpecContainer<'_>) -> bool {
    if container.restart_policy != RestartPolicy::Never {
        return false;
    }
    let here = context.newest_here(container.name());
    let Some(newest) = here.or_else(|| context.newest(container.name())) else {
        let state = context.recorded(container.name()).and_then(|status| status.state.as_ref());
        return state.is_some_and(|state| match &state.terminated {
            Some(ended) => ended.exit_code != 0,
            None => state.running.is_some(),
        });
    };
    match newest.state {
        ContainerState::Created => false,
        ContainerState::Exited => newest.exit_code != 0,
        ContainerState::Running => here.is_none(),
        ContainerState::Unknown => here.is_none() && newest.started_at.is_some(),
    }
}

/// Comes after [`failed_for_good`].
fn init(context: &Context<'_>, container: &SpecContainer<'_>, actions: &mut PodActions) -> Gate {
    let name = container.name();
    let start = || context.start(container, context.last_finished_at(name));
    match context.newest_here(name) {
        Some(newest) if newest.state == ContainerState::Exited && newest.exit_code == 0 => return Gate::Open,
        Some(newest) if newest.state == ContainerState::Running => {}
        Some(newest) if newest.state == ContainerState::Unknown => {
            let restart = container.restart_policy != RestartPolicy::Never || newest.started_at.is_none();
            let then = if restart { AfterKill::Restart } else { AfterKill::Nothing };
            actions.containers_to_kill.push(ContainerKill::new(newest, KillReason::StateUnknown, then));
            if restart {
                actions.containers_to_start.push(start());
            }
        }
        _ => actions.containers_to_start.push(start()),
    }
    Gate::Closed(Wait::InitContainer(name.to_owned()))
}

fn sidecar(context: &Context<'_>, container: &SpecContainer<'_>, actions: &mut PodActions) -> Gate {
    let name = container.name();
    let wait = || Gate::Closed(Wait::SidecarStart(name.to_owned()));
    let Some(newest) = context.newest_here(name) else {
        actions.containers_to_start.push(context.start(container, context.last_finished_at(name)));
        return wait();
    };
    match newest.state {
        ContainerState::Created | ContainerState::Exited => {
            actions.containers_to_start.push(context.start(container, context.last_finished_at(name)));
            wait()
        }
        ContainerState::Unknown => {
            let kill = ContainerKill::new(newest, KillReason::StateUnknown, AfterKill::Restart);
            actions.containers_to_kill.push(kill);
            actions.containers_to_start.push(context.start(container, context.last_finished_at(name)));
            wait()
        }
        ContainerState::Running => {
            if let Some((reason, since)) = context.reason_to_kill(newest) {
                actions.containers_to_kill.push(ContainerKill::new(newest, reason, AfterKill::Restart));
                actions.containers_to_start.push(context.start(container, since));
                return wait();
            }
            if is_started(context, container, newest) { Gate::Open } else { wait() }
        }
    }
}

/// A sidecar without a startup probe is started when it runs.
fn is_started(context: &Context<'_>, container: &SpecContainer<'_>, running: &Container) -> bool {
    container.container.startup_probe.is_none()
        || context.input.probes.get(&running.id).is_some_and(|results| results.started == Some(true))
}
