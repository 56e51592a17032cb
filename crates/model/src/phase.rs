//! The phase of a pod, from what its containers do.
//!
//! Owns the kubelet's rule with two more promises: a phase never goes backwards (a finished pod stays finished although
//! the runtime forgot it), and a pod is not called finished while something of it may run. Must never look at conditions.

use crate::decision::Stage;
use crate::spec::{ContainerKind, RestartPolicy};

/// `status.phase`. The order is the only direction in which a pod moves, except that the last two are both final.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// Accepted; not every container was started yet.
    #[default]
    Pending,
    /// Every container was started; one runs or will run again.
    Running,
    /// Every container ended well, and none runs again.
    Succeeded,
    /// No container runs again, and one ended badly or the pod failed as a whole.
    Failed,
}

/// What one container does, as far as the phase depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activity {
    /// Never ran as far as anybody knows.
    New,
    /// Runs. `started`: its startup probe, if it has one, succeeded.
    Running {
        /// Whether the start is complete.
        started: bool,
    },
    /// Ended, whether or not it will run again.
    Ended {
        /// Exit code of its last run.
        exit_code: i32,
    },
}

/// One container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PhaseContainer {
    /// What it is for.
    pub kind: ContainerKind,
    /// When it runs again.
    pub restart_policy: RestartPolicy,
    /// What it does.
    pub activity: Activity,
}

/// What decides about whether the pod is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Restart policies decide.
    ByPolicy,
    /// The pod failed as a whole: evicted, past its deadline, refused.
    Failed,
}

/// Everything that the phase depends on.
#[derive(Clone, Debug)]
pub struct PhaseInput<'a> {
    /// Every container of the spec.
    pub containers: &'a [PhaseContainer],
    /// The phase that was last published for this run of the pod; `None` if none was.
    pub previous: Option<Phase>,
    /// Where the pod is in its life.
    pub stage: Stage,
    /// Whether the pod failed as a whole.
    pub verdict: Verdict,
    /// Whether the runtime may still run something of the pod, listed above or not.
    pub active: bool,
}

impl Phase {
    /// The API's text.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Running => "Running",
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
        }
    }

    /// Reads the API's text; `None` for `Unknown` and for text that the API does not know.
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Pending, Self::Running, Self::Succeeded, Self::Failed].into_iter().find(|p| p.as_str() == text)
    }

    /// Whether the pod is over for good.
    pub fn is_final(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }
}

/// The phase now.
pub fn compute_phase(input: &PhaseInput<'_>) -> Phase {
    let previous = input.previous.unwrap_or_default();
    if previous.is_final() {
        return previous;
    }
    let present = present_phase(input);
    if present.is_final() && input.active {
        // Called finished too early, a Job would start its next pod beside this one. Something ran: not Pending either.
        let was_running = input.containers.iter().any(|c| c.kind == ContainerKind::App && ran(c.activity));
        return previous.max(if was_running { Phase::Running } else { Phase::Pending });
    }
    previous.max(present)
}

fn present_phase(input: &PhaseInput<'_>) -> Phase {
    if input.verdict == Verdict::Failed {
        return Phase::Failed;
    }
    let of_kind = |kind| input.containers.iter().filter(move |c| c.kind == kind);
    let apps = || of_kind(ContainerKind::App);
    if input.stage == Stage::Terminated {
        let all_well = apps().all(|c| c.activity == Activity::Ended { exit_code: 0 });
        return if all_well { Phase::Succeeded } else { Phase::Failed };
    }
    // Once an app container ran, the init containers have done their work, whatever became of their remains.
    let initialized = apps().any(|c| ran(c.activity));
    if !initialized {
        let failed = of_kind(ContainerKind::Init).any(|c| is_over(c) && !ended_well(c));
        let pending = of_kind(ContainerKind::Init).any(|c| !ended_well(c))
            || of_kind(ContainerKind::Sidecar).any(|c| c.activity != Activity::Running { started: true });
        if failed {
            return Phase::Failed;
        }
        if pending {
            return Phase::Pending;
        }
    }
    if apps().any(|c| c.activity == Activity::New) || apps().next().is_none() {
        Phase::Pending
    } else if apps().all(is_over) {
        if apps().all(ended_well) { Phase::Succeeded } else { Phase::Failed }
    } else {
        Phase::Running
    }
}

fn ran(activity: Activity) -> bool {
    activity != Activity::New
}

fn ended_well(container: &PhaseContainer) -> bool {
    container.activity == Activity::Ended { exit_code: 0 }
}

/// Whether the container ended and its policy does not run it again.
fn is_over(container: &PhaseContainer) -> bool {
    match container.activity {
        Activity::Ended { exit_code } => !container.restart_policy.restarts_after(exit_code),
        Activity::New | Activity::Running { .. } => false,
    }
}

#[cfg(test)]
mod tests;
