//! Init containers, sidecars, and the order of the end.

use super::*;
use AfterKill::{Nothing, Restart};

fn init(name: &str) -> Option<Wait> {
    Some(Wait::InitContainer(name.into()))
}

fn sidecar(name: &str) -> Option<Wait> {
    Some(Wait::SidecarStart(name.into()))
}

fn next(wait: &Option<Wait>) -> Option<&str> {
    match wait.as_ref()? {
        Wait::InitContainer(name) | Wait::SidecarStart(name) => Some(name),
    }
}

#[test]
fn init_containers_run_one_after_the_other() {
    let c = |name: &str, attempt, state, code| container(name, attempt, 0, state, code);
    // containers -> starts, wait; the pod: init i, j; apps a, b; OnFailure
    let table: [(Vec<Container>, &[&str], Option<Wait>); 9] = [
        (vec![], &["i#0"], init("i")),
        (vec![c("i", 0, Created, 0)], &["i#0!"], init("i")),
        (vec![c("i", 0, Running, 0)], &[], init("i")),
        (vec![c("i", 0, Exited, 1)], &["i#1"], init("i")),
        (vec![c("i", 0, Exited, 0)], &["j#0"], init("j")),
        (vec![c("i", 0, Exited, 0), c("j", 0, Running, 0)], &[], init("j")),
        (vec![c("i", 0, Exited, 0), c("j", 0, Exited, 0)], &["a#0", "b#0"], None),
        // Whatever comes later proves the earlier ones, whose remains may have been collected.
        (vec![c("j", 0, Exited, 0)], &["a#0", "b#0"], None),
        (vec![c("a", 0, Running, 0)], &["b#0"], None),
    ];
    for (containers, expected, wait) in table {
        let world = World::ready(pod("OnFailure", &["i", "j"], &["a", "b"]), containers);
        let actions = world.actions();
        assert_eq!(starts(&actions), expected, "{:?}", world.runtime.containers);
        assert_eq!(actions.wait, wait);
        assert_eq!(actions.next_init.as_deref(), next(&wait));
        assert!(!actions.finished);
    }
}

#[test]
fn a_failed_init_container_ends_a_pod_that_restarts_nothing() {
    let failed = vec![container("i", 0, 0, Exited, 2)];
    let actions = World::ready(pod("Never", &["s*", "i"], &["a"]), failed.clone()).actions();
    let expected = PodActions { kill_pod: Some(KillPod::InitFailed), finished: true, ..Default::default() };
    assert_eq!(actions, expected);
    let actions = World::lost(pod("Never", &["i"], &["a"]), failed.clone()).actions();
    assert_eq!(actions, PodActions { finished: true, ..Default::default() }, "a new sandbox does not help");
    let actions = World::lost(pod("Always", &["i"], &["a"]), failed).actions();
    assert_eq!(starts(&actions), ["i#1"]);
    assert_eq!(actions.containers_to_start[0].last_finished_at, Some(at(5)));
}

#[test]
fn an_init_container_that_cannot_run_again_starts_no_sidecar_before_it() {
    let world = World::new(
        pod("Never", &["s?", "i"], &["a"]),
        vec![sandbox(0, false), sandbox(1, true)],
        vec![container("s", 0, 0, Exited, 137), container("i", 0, 0, Exited, 137)],
    );
    let expected = PodActions { kill_pod: Some(KillPod::InitFailed), finished: true, ..Default::default() };
    assert_eq!(world.actions(), expected);
}

#[test]
fn an_init_container_that_was_reported_and_forgotten_counts_under_never() {
    // policy, exit code -> what starts
    for (policy, code, expected) in
        [("Never", 2, None), ("Never", 0, Some("i#1")), ("OnFailure", 2, Some("i#1"))]
    {
        let mut world = World::ready(pod(policy, &["i"], &["a"]), vec![]);
        let status = recorded("Pending", "i", code, 0);
        world.pod.status = Some(PodStatus {
            init_container_statuses: status.container_statuses,
            container_statuses: None,
            ..status
        });
        let actions = world.actions();
        assert_eq!(starts(&actions), expected.into_iter().collect::<Vec<_>>(), "{policy} {code}");
        assert_eq!(actions.finished, expected.is_none());
    }
}

#[test]
fn an_init_container_in_unknown_state_is_killed_first() {
    for (policy, then, expected) in [("Always", Restart, vec!["i#1"]), ("Never", Nothing, vec![])] {
        let world = World::ready(pod(policy, &["i"], &["a"]), vec![container("i", 0, 0, Unknown, 0)]);
        let actions = world.actions();
        assert_eq!(kills(&actions), [("i-0", KillReason::StateUnknown, then)]);
        assert_eq!(starts(&actions), expected);
        assert_eq!(actions.wait, init("i"));
    }
}

#[test]
fn a_new_sandbox_runs_the_init_containers_again() {
    let done = vec![container("i", 0, 0, Exited, 0), container("a", 0, 0, Exited, 1)];
    for (policy, expected) in [("Always", vec!["i#1"]), ("OnFailure", vec!["i#1"]), ("Never", vec![])] {
        let actions = World::lost(pod(policy, &["i"], &["a"]), done.clone()).actions();
        assert_eq!(starts(&actions), expected, "{policy}");
        assert_eq!(actions.create_sandbox.is_some(), !expected.is_empty());
    }
    // Known fault L2 behind an init container.
    let unstarted = vec![container("i", 0, 0, Exited, 0), container("a", 0, 0, Created, 0)];
    let actions = World::lost(pod("Never", &["i"], &["a"]), unstarted).actions();
    assert_eq!(starts(&actions), ["i#1"]);
    // The new sandbox stands, the init container ran in it: only what is not done follows.
    let world = World::new(
        pod("OnFailure", &["i"], &["a", "b"]),
        vec![sandbox(0, false), sandbox(1, true)],
        vec![
            container("i", 0, 0, Exited, 0),
            container("a", 0, 0, Exited, 0),
            container("b", 0, 0, Exited, 1),
            container("i", 1, 1, Exited, 0),
        ],
    );
    assert_eq!(starts(&world.actions()), ["b#1"]);
}

#[test]
fn a_sidecar_opens_the_way_when_it_is_started() {
    let c = |name: &str, state| container(name, 0, 0, state, 0);
    let plain = || pod("Always", &["s*", "i"], &["a"]);
    let probed = || pod("Always", &["s?", "i"], &["a"]);
    let table: [(World, &[&str], Option<Wait>); 7] = [
        (World::ready(plain(), vec![]), &["s#0"], sidecar("s")),
        (World::ready(plain(), vec![c("s", Created)]), &["s#0!"], sidecar("s")),
        (World::ready(plain(), vec![c("s", Running)]), &["i#0"], init("i")),
        (World::ready(probed(), vec![c("s", Running)]), &[], sidecar("s")),
        (World::ready(probed(), vec![c("s", Running)]).probe("s-0", false, Health::Live), &[], sidecar("s")),
        (World::ready(probed(), vec![c("s", Running)]).probe("s-0", true, Health::Live), &["i#0"], init("i")),
        (World::ready(plain(), vec![c("s", Running), c("i", Exited)]), &["a#0"], None),
    ];
    for (world, expected, wait) in table {
        let actions = world.actions();
        assert_eq!(starts(&actions), expected, "{:?}", world.runtime.containers);
        assert_eq!(actions.wait, wait, "{:?}", world.runtime.containers);
    }
}

#[test]
fn a_sidecar_is_restarted_always_and_never_sends_the_pod_back() {
    for policy in ["Always", "OnFailure", "Never"] {
        let apps = pod(policy, &["s?", "i"], &["a"]);
        // While a later init container runs, and while the app runs.
        for later in ["i", "a"] {
            let beside = container(later, 0, 0, Running, 0);
            let exited = vec![container("s", 0, 0, Exited, 0), beside.clone()];
            let actions = World::ready(apps.clone(), exited).actions();
            assert_eq!(starts(&actions), ["s#1"], "{policy} {later}");
            assert_eq!(kills(&actions), []);
            let running = vec![container("s", 0, 0, Running, 0), beside.clone()];
            let failed =
                World::ready(apps.clone(), running).probe("s-0", true, Health::LivenessFailed).actions();
            assert_eq!(kills(&failed), [("s-0", KillReason::LivenessProbe, Restart)]);
            assert_eq!(starts(&failed), ["s#1"]);
            let unknown = vec![container("s", 0, 0, Unknown, 0), beside];
            let unknown = World::ready(apps.clone(), unknown).actions();
            assert_eq!(kills(&unknown), [("s-0", KillReason::StateUnknown, Restart)]);
            assert_eq!(starts(&unknown), ["s#1"]);
        }
    }
}

/// Known fault P4: the prober has just been restarted and knows nothing of the sidecar's start.
#[test]
fn an_app_is_restarted_although_nobody_remembers_the_sidecars_start() {
    let containers = vec![container("s", 0, 0, Running, 0), container("a", 0, 0, Exited, 1)];
    let actions = World::ready(pod("Always", &["s?"], &["a"]), containers).actions();
    assert_eq!(starts(&actions), ["a#1"]);
    assert_eq!(actions.wait, None);
    // The variant: two sidecars, policy Never, the first failed its first start and came back.
    let containers = vec![container("s", 0, 0, Exited, 1), container("s", 1, 0, Running, 0)];
    let world =
        World::ready(pod("Never", &["s?", "t*"], &["a"]), containers).probe("s-1", true, Health::Live);
    assert_eq!(starts(&world.actions()), ["t#0"]);
}

#[test]
fn sidecars_do_not_keep_a_finished_pod() {
    let containers = vec![container("s", 0, 0, Running, 0), container("a", 0, 0, Exited, 0)];
    let actions = World::ready(pod("Never", &["s*"], &["a"]), containers).actions();
    let expected = PodActions { kill_pod: Some(KillPod::Finished), finished: true, ..Default::default() };
    assert_eq!(actions, expected);
}

#[test]
fn a_pod_stops_apps_first_and_sidecars_in_reverse() {
    let world = World::ready(
        pod("Always", &["s*", "i", "t*"], &["a", "b"]),
        vec![
            container("s", 0, 0, Running, 0),
            container("i", 0, 0, Exited, 0),
            container("t", 0, 0, Unknown, 0),
            container("a", 0, 0, Running, 0),
            container("b", 0, 0, Created, 0),
            container("debugger", 0, 0, Running, 0),
        ],
    );
    let order = compute_termination_order(&world.pod, &world.runtime);
    let mut names: Vec<Vec<&str>> =
        order.iter().map(|step| step.containers.iter().map(|(_, name)| name.as_str()).collect()).collect();
    names.iter_mut().for_each(|step| step.sort_unstable());
    assert_eq!(names, [vec!["a", "debugger"], vec!["t"], vec!["s"]]);
    assert_eq!(order[2].containers[0].0, "s-0");
    // Before the pod was initialised.
    let world = World::ready(
        pod("Always", &["s*", "i"], &["a"]),
        vec![container("s", 0, 0, Running, 0), container("i", 0, 0, Running, 0)],
    );
    let order = compute_termination_order(&world.pod, &world.runtime);
    let ids: Vec<_> = order.iter().map(|step| step.containers[0].0.as_str()).collect();
    assert_eq!(ids, ["i-0", "s-0"]);
    assert_eq!(compute_termination_order(&world.pod, &RuntimePod::default()), []);
}
