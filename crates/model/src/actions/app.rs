//! App containers: which run on, which start, which are done.

use super::{AfterKill, ContainerKill, ContainerStart, Context, KillReason};
use crate::runtime::ContainerState;
use crate::spec::{ContainerKind, RestartPolicy, SpecContainer};

/// What the pod's app containers ask for.
#[derive(Debug, Default)]
pub(super) struct Work {
    pub(super) kill: Vec<ContainerKill>,
    pub(super) start: Vec<ContainerStart>,
    /// How many run on untouched.
    kept: usize,
}

impl Work {
    /// Whether no app container runs or will run.
    pub(super) fn is_done(&self) -> bool {
        self.kept == 0 && self.kill.is_empty() && self.start.is_empty()
    }
}

pub(super) fn plan(context: &Context<'_>) -> Work {
    let mut work = Work::default();
    for container in context.containers.iter().filter(|c| c.kind == ContainerKind::App) {
        one(context, container, &mut work);
    }
    work
}

fn one(context: &Context<'_>, container: &SpecContainer<'_>, work: &mut Work) {
    let name = container.name();
    let policy = container.restart_policy;
    // What may run in the kept sandbox is the one to judge. Else the last run counts, wherever it was.
    let running_here = context.newest_here(name).filter(|newest| newest.may_run());
    let Some(newest) = running_here.or_else(|| context.newest(name)) else {
        if !is_recorded_as_done(context, container) {
            work.start.push(context.start(container, None));
        }
        return;
    };
    let here = context.sandbox.is_some_and(|sandbox| sandbox.id == newest.sandbox_id);
    match newest.state {
        // Made and never started is no run (a node may die in between): it does not count against the policy.
        ContainerState::Created => work.start.push(context.start(container, context.last_finished_at(name))),
        ContainerState::Exited => {
            if policy.restarts_after(newest.exit_code) {
                work.start.push(context.start(container, context.last_finished_at(name)));
            }
        }
        ContainerState::Running if here => match context.reason_to_kill(newest) {
            None => work.kept += 1,
            Some((reason, since)) => {
                // A new definition is a new container, whatever the policy says about the old one's end.
                let renewed = matches!(reason, KillReason::DefinitionChanged | KillReason::Resized);
                let restart = policy != RestartPolicy::Never || renewed;
                let then = if restart { AfterKill::Restart } else { AfterKill::Nothing };
                work.kill.push(ContainerKill::new(newest, reason, then));
                if restart {
                    work.start.push(context.start(container, since));
                }
            }
        },
        // It runs in a sandbox that goes away, and goes with it.
        ContainerState::Running => {
            if policy != RestartPolicy::Never {
                work.start.push(context.start(container, None));
            }
        }
        ContainerState::Unknown => {
            let restart = policy != RestartPolicy::Never || newest.started_at.is_none();
            let then = if restart { AfterKill::Restart } else { AfterKill::Nothing };
            if here {
                work.kill.push(ContainerKill::new(newest, KillReason::StateUnknown, then));
            }
            if restart {
                work.start.push(context.start(container, context.last_finished_at(name)));
            }
        }
    }
}

/// Whether the container was reported to have ended for good, although the runtime holds nothing of it any more. What
/// was reported to run and is gone has ended, nobody knows how: only under Never is it not run again.
fn is_recorded_as_done(context: &Context<'_>, container: &SpecContainer<'_>) -> bool {
    let Some(state) = context.recorded(container.name()).and_then(|status| status.state.as_ref()) else {
        return false;
    };
    match &state.terminated {
        Some(ended) => !container.restart_policy.restarts_after(ended.exit_code),
        None => state.running.is_some() && container.restart_policy == RestartPolicy::Never,
    }
}
