use super::*;
use Activity::{Ended, New, Running as Runs};
use ContainerKind::{App, Init, Sidecar};
use Phase::{Failed, Pending, Running, Succeeded};
use RestartPolicy::{Always, Never, OnFailure};

const UP: Activity = Runs { started: true };
const STARTING: Activity = Runs { started: false };
const WELL: Activity = Ended { exit_code: 0 };
const BADLY: Activity = Ended { exit_code: 3 };

fn container((kind, restart_policy, activity): (ContainerKind, RestartPolicy, Activity)) -> PhaseContainer {
    PhaseContainer { kind, restart_policy, activity }
}

fn phase(containers: &[(ContainerKind, RestartPolicy, Activity)]) -> Phase {
    let containers: Vec<_> = containers.iter().copied().map(container).collect();
    let active = containers.iter().any(|c| matches!(c.activity, Runs { .. }));
    compute_phase(&PhaseInput {
        containers: &containers,
        previous: None,
        stage: Stage::Syncing,
        verdict: Verdict::ByPolicy,
        active,
    })
}

#[test]
fn app_containers_decide_by_policy() {
    // two app containers -> phase under Always, OnFailure, Never
    let table = [
        (New, New, [Pending, Pending, Pending]),
        (UP, New, [Pending, Pending, Pending]),
        (WELL, New, [Pending, Pending, Pending]),
        (UP, UP, [Running, Running, Running]),
        (UP, STARTING, [Running, Running, Running]),
        (UP, WELL, [Running, Running, Running]),
        (UP, BADLY, [Running, Running, Running]),
        (WELL, WELL, [Running, Succeeded, Succeeded]),
        (WELL, BADLY, [Running, Running, Failed]),
        (BADLY, BADLY, [Running, Running, Failed]),
    ];
    for (a, b, expected) in table {
        let seen = [Always, OnFailure, Never].map(|policy| phase(&[(App, policy, a), (App, policy, b)]));
        assert_eq!(seen, expected, "{a:?} {b:?}");
    }
    assert_eq!(phase(&[(App, OnFailure, WELL), (App, Never, BADLY)]), Failed, "policies of their own");
    assert_eq!(phase(&[]), Pending);
}

#[test]
fn init_containers_hold_the_phase_until_the_apps_ran() {
    let table = [
        (vec![(Init, OnFailure, New), (App, Always, New)], Pending),
        (vec![(Init, OnFailure, UP), (App, Always, New)], Pending),
        (vec![(Init, OnFailure, BADLY), (App, Always, New)], Pending),
        (vec![(Init, Never, BADLY), (App, Never, New)], Failed),
        (vec![(Init, Never, WELL), (Init, Never, UP), (App, Never, New)], Pending),
        (vec![(Init, OnFailure, WELL), (App, Always, New)], Pending),
        (vec![(Init, OnFailure, WELL), (App, Always, UP)], Running),
        // The remains of an init container may be collected once the apps run.
        (vec![(Init, OnFailure, New), (App, Always, UP)], Running),
        (vec![(Init, Never, New), (App, Never, WELL)], Succeeded),
    ];
    for (containers, expected) in table {
        assert_eq!(phase(&containers), expected, "{containers:?}");
    }
}

#[test]
fn a_sidecar_delays_the_start_and_the_end_but_not_the_verdict() {
    let table = [
        (vec![(Sidecar, Always, STARTING), (App, Always, New)], Pending),
        (vec![(Sidecar, Always, UP), (App, Always, UP)], Running),
        (vec![(Sidecar, Always, BADLY), (App, Always, UP)], Running),
        (vec![(Sidecar, Always, UP), (App, Never, WELL)], Running),
        (vec![(Sidecar, Always, BADLY), (App, Never, WELL)], Succeeded),
        (vec![(Sidecar, Always, WELL), (App, Never, BADLY)], Failed),
    ];
    for (containers, expected) in table {
        assert_eq!(phase(&containers), expected, "{containers:?}");
    }
}

#[test]
fn a_pod_that_was_stopped_ends_by_its_exit_codes() {
    let table = [
        (vec![(App, Always, WELL), (App, Always, WELL)], Succeeded),
        (vec![(App, Always, WELL), (App, Always, BADLY)], Failed),
        (vec![(App, Always, New)], Failed),
        (vec![(Sidecar, Always, BADLY), (App, Always, WELL)], Succeeded),
    ];
    for (containers, expected) in table {
        let containers: Vec<_> = containers.into_iter().map(container).collect();
        let mut input = PhaseInput {
            containers: &containers,
            previous: Some(Pending),
            stage: Stage::Terminated,
            verdict: Verdict::ByPolicy,
            active: false,
        };
        assert_eq!(compute_phase(&input), expected, "{containers:?}");
        input.stage = Stage::Terminating;
        assert!(!compute_phase(&input).is_final(), "not before the runtime was seen to hold nothing");
    }
}

#[test]
fn a_pod_that_failed_as_a_whole_is_failed_once_nothing_runs() {
    let containers = [container((App, Always, UP))];
    let mut input = PhaseInput {
        containers: &containers,
        previous: Some(Running),
        stage: Stage::Terminating,
        verdict: Verdict::Failed,
        active: true,
    };
    assert_eq!(compute_phase(&input), Running);
    input.active = false;
    assert_eq!(compute_phase(&input), Failed);
    let refused = PhaseInput { containers: &[container((App, Always, New))], previous: None, ..input };
    assert_eq!(compute_phase(&refused), Failed);
}

/// Every pod of up to three containers with every activity, against every earlier phase.
#[test]
fn a_phase_never_goes_backwards_and_the_last_ones_are_final() {
    let activities = [New, STARTING, UP, WELL, BADLY];
    let kinds =
        [(Init, OnFailure), (Init, Never), (Sidecar, Always), (App, Always), (App, OnFailure), (App, Never)];
    let mut all = Vec::new();
    for (kind, policy) in kinds {
        all.extend(activities.map(|activity| container((kind, policy, activity))));
    }
    let mut seen = std::collections::BTreeSet::new();
    for a in &all {
        for b in &all {
            for previous in [None, Some(Pending), Some(Running), Some(Succeeded), Some(Failed)] {
                for stage in [Stage::Syncing, Stage::Terminating, Stage::Terminated] {
                    for verdict in [Verdict::ByPolicy, Verdict::Failed] {
                        for active in [false, true] {
                            let containers = [*a, *b];
                            let input =
                                PhaseInput { containers: &containers, previous, stage, verdict, active };
                            let phase = compute_phase(&input);
                            let before = previous.unwrap_or_default();
                            assert!(phase >= before, "{input:?} gave {phase:?}");
                            assert!(!before.is_final() || phase == before, "{input:?} gave {phase:?}");
                            assert!(
                                !phase.is_final() || before.is_final() || !active,
                                "{input:?} gave {phase:?}"
                            );
                            let again = compute_phase(&PhaseInput { previous: Some(phase), ..input.clone() });
                            assert_eq!(again, phase, "a fixed point: {input:?}");
                            seen.insert(phase);
                        }
                    }
                }
            }
        }
    }
    assert_eq!(seen.len(), 4);
}

#[test]
fn phases_keep_their_names() {
    for (phase, text) in
        [(Pending, "Pending"), (Running, "Running"), (Succeeded, "Succeeded"), (Failed, "Failed")]
    {
        assert_eq!(phase.as_str(), text);
        assert_eq!(Phase::parse(text), Some(phase));
    }
    assert_eq!(Phase::parse("Unknown"), None);
}
