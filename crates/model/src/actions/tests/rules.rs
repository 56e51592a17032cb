//! Sandboxes, restart policies, kills.

use super::*;
use AfterKill::{Nothing, Restart};

#[test]
fn a_new_pod_gets_a_sandbox_and_its_app_containers() {
    let actions = World::new(pod("Always", &[], &["a", "b"]), vec![], vec![]).actions();
    let expected = PodActions {
        create_sandbox: Some(CreateSandbox { attempt: 0 }),
        containers_to_start: ["a", "b"]
            .map(|name| ContainerStart {
                name: name.into(),
                kind: ContainerKind::App,
                attempt: 0,
                resume: None,
                last_finished_at: None,
            })
            .to_vec(),
        ..Default::default()
    };
    assert_eq!(actions, expected);
}

#[test]
fn a_pod_that_runs_is_left_alone() {
    let world = World::ready(pod("Always", &[], &["a"]), vec![container("a", 0, 0, Running, 0)]);
    assert_eq!(world.actions(), PodActions { sandbox_id: Some("sandbox-0".into()), ..Default::default() });
}

#[test]
fn a_container_that_must_be_restarted_for_its_resources_is() {
    for policy in ["Always", "OnFailure", "Never"] {
        let mut world = World::ready(
            pod(policy, &["s*"], &["a"]),
            vec![container("s", 0, 0, Running, 0), container("a", 0, 0, Running, 0)],
        );
        world.resized = ["a-0".to_owned()].into();
        let actions = world.actions();
        assert_eq!(kills(&actions), [("a-0", KillReason::Resized, Restart)], "{policy}");
        assert_eq!(
            actions.containers_to_kill[0].message,
            "Container a resize requires restart, will be restarted"
        );
        assert_eq!(starts(&actions), ["a#1"], "{policy}");
        assert_eq!(actions.containers_to_start[0].last_finished_at, None, "without back-off");
    }
}

#[test]
fn containers_of_every_state_follow_their_policy() {
    let (started, killed) = (vec!["a#1".to_owned()], vec![("a-0", KillReason::StateUnknown, Restart)]);
    let killed_for_good = vec![("a-0", KillReason::StateUnknown, Nothing)];
    let resumed = vec!["a#0!".to_owned()];
    // state, exit code, policy -> starts, kills, finished
    let table = [
        (Exited, 0, "Always", started.clone(), vec![], false),
        (Exited, 1, "Always", started.clone(), vec![], false),
        (Exited, 0, "OnFailure", vec![], vec![], true),
        (Exited, 1, "OnFailure", started.clone(), vec![], false),
        (Exited, 0, "Never", vec![], vec![], true),
        (Exited, 1, "Never", vec![], vec![], true),
        (Created, 0, "Always", resumed.clone(), vec![], false),
        (Created, 0, "Never", resumed, vec![], false),
        (Unknown, 0, "Always", started.clone(), killed.clone(), false),
        (Unknown, 0, "OnFailure", started, killed, false),
        (Unknown, 0, "Never", vec![], killed_for_good, false),
    ];
    for (state, exit_code, policy, expected_starts, expected_kills, finished) in table {
        let world = World::ready(pod(policy, &[], &["a"]), vec![container("a", 0, 0, state, exit_code)]);
        let actions = world.actions();
        assert_eq!(starts(&actions), expected_starts, "{state:?} {exit_code} {policy}");
        assert_eq!(kills(&actions), expected_kills, "{state:?} {exit_code} {policy}");
        assert_eq!(actions.finished, finished, "{state:?} {exit_code} {policy}");
        assert_eq!(actions.kill_pod, finished.then_some(KillPod::Finished), "its sandbox still stands");
        assert_eq!(actions.create_sandbox, None);
    }
}

#[test]
fn a_start_tells_when_the_last_run_ended() {
    let world = World::ready(
        pod("Always", &[], &["a"]),
        vec![container("a", 0, 0, Exited, 1), container("a", 1, 0, Exited, 1)],
    );
    let actions = world.actions();
    assert_eq!(starts(&actions), ["a#2"]);
    assert_eq!(actions.containers_to_start[0].last_finished_at, Some(at(15)));
}

#[test]
fn failed_probes_kill_and_the_policy_decides_about_the_restart() {
    let table = [
        (Health::LivenessFailed, "Always", KillReason::LivenessProbe, Restart),
        (Health::LivenessFailed, "OnFailure", KillReason::LivenessProbe, Restart),
        (Health::LivenessFailed, "Never", KillReason::LivenessProbe, Nothing),
        (Health::StartupFailed, "Always", KillReason::StartupProbe, Restart),
        (Health::StartupFailed, "Never", KillReason::StartupProbe, Nothing),
    ];
    for (health, policy, reason, then) in table {
        let world = World::ready(
            pod(policy, &[], &["a", "b"]),
            vec![container("a", 0, 0, Running, 0), container("b", 0, 0, Running, 0)],
        );
        let world = world.probe("a-0", true, health);
        let actions = world.actions();
        assert_eq!(kills(&actions), [("a-0", reason, then)]);
        let restarts: &[&str] = if then == Restart { &["a#1"] } else { &[] };
        assert_eq!(starts(&actions), restarts, "{health:?} {policy}");
        let waits = actions.containers_to_start.iter().all(|s| s.last_finished_at == Some(world.now));
        assert!(waits, "a kill by a probe counts for the back-off");
        assert!(!actions.finished);
    }
    let world = World::ready(pod("Always", &[], &["a"]), vec![container("a", 1, 0, Running, 0)]);
    let old_news = world.probe("a-0", true, Health::LivenessFailed).actions();
    assert_eq!(kills(&old_news), [], "a result is about one container id");
}

#[test]
fn a_changed_definition_replaces_the_container_whatever_its_policy() {
    for policy in ["Always", "OnFailure", "Never"] {
        let mut world = World::ready(
            pod(policy, &[], &["a", "b"]),
            vec![container("a", 0, 0, Running, 0), container("b", 0, 0, Running, 0)],
        );
        world.hashes.insert("a".into(), 2);
        let actions = world.actions();
        assert_eq!(kills(&actions), [("a-0", KillReason::DefinitionChanged, Restart)], "{policy}");
        assert_eq!(starts(&actions), ["a#1"]);
        assert_eq!(actions.containers_to_start[0].last_finished_at, None, "another image starts afresh");
        assert_eq!(
            actions.containers_to_kill[0].message,
            "Container a definition changed, will be restarted"
        );
        world.hashes.clear();
        assert_eq!(kills(&world.actions()), [], "nothing to compare with");
        world.hashes.insert("a".into(), 2);
        world.runtime.containers.iter_mut().for_each(|c| c.hash = None);
        assert_eq!(kills(&world.actions()), [], "a container without a fingerprint is adopted as it is");
    }
}

#[test]
fn a_created_container_of_an_older_definition_is_not_resumed() {
    let mut world = World::ready(pod("Never", &[], &["a"]), vec![container("a", 0, 0, Created, 0)]);
    world.hashes.insert("a".into(), 2);
    assert_eq!(starts(&world.actions()), ["a#1"]);
}

/// Known fault L2, with its three pods and the neighbours of each.
#[test]
fn a_sandbox_lost_before_the_start_is_replaced_unless_every_run_is_over() {
    let one = |state, code| vec![container("a", 0, 0, state, code)];
    let two = |a: (ContainerState, i32), b: (ContainerState, i32)| {
        vec![container("a", 0, 0, a.0, a.1), container("b", 0, 0, b.0, b.1)]
    };
    // policy, app names, containers -> what starts; `None`: over, no new sandbox
    type Row<'a> = (&'a str, &'a [&'a str], Vec<Container>, Option<&'a [&'a str]>);
    let table: [Row<'_>; 11] = [
        ("Never", &["a"], one(Created, 0), Some(&["a#1"])),
        ("Never", &["a"], one(Exited, 3), None),
        ("Never", &["a", "b"], two((Exited, 0), (Created, 0)), Some(&["b#1"])),
        ("Never", &["a", "b"], one(Exited, 0), Some(&["b#0"])),
        ("Never", &["a", "b"], two((Exited, 0), (Exited, 1)), None),
        ("Never", &["a"], vec![], Some(&["a#0"])),
        ("OnFailure", &["a"], one(Exited, 0), None),
        ("OnFailure", &["a"], one(Exited, 3), Some(&["a#1"])),
        ("OnFailure", &["a", "b"], two((Exited, 0), (Exited, 3)), Some(&["b#1"])),
        ("OnFailure", &["a", "b"], two((Exited, 0), (Created, 0)), Some(&["b#1"])),
        ("Always", &["a"], one(Exited, 0), Some(&["a#1"])),
    ];
    for (policy, apps, containers, expected) in table {
        let world = World::lost(pod(policy, &[], apps), containers);
        let actions = world.actions();
        let text = format!("{policy} {:?}", world.runtime.containers);
        match expected {
            None => assert_eq!(actions, PodActions { finished: true, ..Default::default() }, "{text}"),
            Some(expected) => {
                assert_eq!(starts(&actions), expected, "{text}");
                assert_eq!(actions.create_sandbox, Some(CreateSandbox { attempt: 1 }), "{text}");
                assert_eq!(
                    actions.kill_pod,
                    Some(KillPod::SandboxChanged),
                    "the old one is cleared away: {text}"
                );
                assert_eq!(kills(&actions), [], "{text}");
            }
        }
    }
}

#[test]
fn containers_that_outlived_their_sandbox_go_with_it() {
    for (policy, expected) in [("Always", Some("a#1")), ("OnFailure", Some("a#1")), ("Never", None)] {
        let actions = World::lost(pod(policy, &[], &["a"]), vec![container("a", 0, 0, Running, 0)]).actions();
        let why = if expected.is_some() { KillPod::SandboxChanged } else { KillPod::Finished };
        assert_eq!(actions.kill_pod, Some(why), "{policy}");
        assert_eq!(
            starts(&actions),
            expected.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "{policy}"
        );
        assert_eq!(actions.create_sandbox.is_some(), expected.is_some());
    }
}

#[test]
fn a_sandbox_without_an_address_lost_its_network() {
    let mut world = World::ready(pod("Always", &[], &["a"]), vec![container("a", 0, 0, Running, 0)]);
    world.runtime.sandboxes[0].ips.clear();
    let actions = world.actions();
    assert_eq!(actions.kill_pod, Some(KillPod::SandboxChanged));
    assert_eq!(actions.create_sandbox, Some(CreateSandbox { attempt: 1 }));
    assert_eq!(starts(&actions), ["a#1"]);
    world.pod.spec.as_mut().unwrap().host_network = Some(true);
    assert_eq!(world.actions().kill_pod, None, "a host-network pod has none");
}

#[test]
fn of_several_ready_sandboxes_the_newest_is_kept() {
    let world = World::new(
        pod("Always", &[], &["a", "b"]),
        vec![sandbox(0, true), sandbox(1, true), sandbox(2, false)],
        vec![
            container("a", 0, 0, Running, 0),
            container("b", 0, 0, Running, 0),
            container("a", 1, 1, Running, 0),
        ],
    );
    let actions = world.actions();
    assert_eq!(actions.sandbox_id.as_deref(), Some("sandbox-1"));
    assert_eq!(actions.sandboxes_to_stop, ["sandbox-0"]);
    assert_eq!(
        kills(&actions),
        [("a-0", KillReason::Surplus, Nothing), ("b-0", KillReason::Surplus, Nothing)]
    );
    assert_eq!(starts(&actions), ["b#1"]);
    assert_eq!((actions.kill_pod, actions.create_sandbox), (None, None));
}

#[test]
fn a_container_left_unstarted_here_is_not_resumed_after_a_later_run_elsewhere() {
    for (policy, expected) in [("Always", vec!["a#2"]), ("Never", vec![])] {
        let world = World::new(
            pod(policy, &[], &["a", "b"]),
            vec![sandbox(0, true), sandbox(1, false)],
            vec![
                container("a", 0, 0, Created, 0),
                container("b", 0, 0, Running, 0),
                container("a", 1, 1, Exited, 1),
            ],
        );
        assert_eq!(starts(&world.actions()), expected, "{policy}");
    }
}

#[test]
fn an_older_container_with_the_same_name_is_stopped() {
    let containers = vec![container("a", 0, 0, Running, 0), container("a", 1, 0, Running, 0)];
    let actions = World::ready(pod("Always", &[], &["a"]), containers).actions();
    assert_eq!(kills(&actions), [("a-0", KillReason::Surplus, Nothing)]);
    assert_eq!(starts(&actions), [""; 0]);
}

#[test]
fn a_name_that_the_spec_does_not_know_is_left_alone() {
    let containers = vec![container("a", 0, 0, Running, 0), container("debugger", 0, 0, Running, 0)];
    let actions = World::ready(pod("Always", &[], &["a"]), containers).actions();
    assert_eq!(kills(&actions), []);
}

#[test]
fn a_pod_that_ends_starts_nothing() {
    for stage in [Stage::Terminating, Stage::Terminated] {
        let mut world = World::ready(pod("Always", &[], &["a", "b"]), vec![container("a", 0, 0, Running, 0)]);
        world.stage = stage;
        let expected =
            PodActions { kill_pod: Some(KillPod::Terminating), finished: true, ..Default::default() };
        assert_eq!(world.actions(), expected);
        world.runtime = RuntimePod::default();
        assert_eq!(world.actions(), PodActions { finished: true, ..Default::default() });
    }
}

/// Known fault T1: containers of finished pods are not run again although the runtime forgot them.
#[test]
fn what_was_reported_to_be_over_is_not_run_again() {
    for phase in ["Succeeded", "Failed"] {
        let mut world = World::new(pod("Always", &[], &["a"]), vec![], vec![]);
        world.pod.status = Some(recorded(phase, "a", 0, 0));
        assert_eq!(world.actions(), PodActions { finished: true, ..Default::default() });
        world.runtime.sandboxes = vec![sandbox(0, true)];
        assert_eq!(world.actions().kill_pod, Some(KillPod::Finished));
    }
    // One container of a pod that still runs: policy, exit code -> what starts
    for (policy, code, expected) in [
        ("Never", 3, vec![]),
        ("OnFailure", 0, vec![]),
        ("OnFailure", 3, vec!["a#3"]),
        ("Always", 0, vec!["a#3"]),
    ] {
        let mut world = World::ready(pod(policy, &[], &["a", "b"]), vec![container("b", 0, 0, Running, 0)]);
        world.pod.status = Some(recorded("Running", "a", code, 2));
        assert_eq!(starts(&world.actions()), expected, "{policy} {code}: the restart count goes on");
    }
}

#[test]
fn what_was_reported_to_run_and_is_gone_is_not_run_again_under_never() {
    for (policy, expected) in [("Never", vec![]), ("OnFailure", vec!["a#3"]), ("Always", vec!["a#3"])] {
        let mut world = World::ready(pod(policy, &[], &["a", "b"]), vec![container("b", 0, 0, Running, 0)]);
        let mut status = recorded("Running", "a", 0, 2);
        let running = ApiState { running: Some(Default::default()), ..Default::default() };
        status.container_statuses.as_mut().unwrap()[0].state = Some(running);
        world.pod.status = Some(status);
        assert_eq!(starts(&world.actions()), expected, "{policy}");
    }
}

#[test]
fn each_reason_asks_for_its_grace_and_has_its_text() {
    let made = container("a", 0, 0, Running, 0);
    for (reason, grace, text) in [
        (
            KillReason::LivenessProbe,
            StopReason::Probe(ProbeKind::Liveness),
            "Container a failed liveness probe",
        ),
        (KillReason::StartupProbe, StopReason::Probe(ProbeKind::Startup), "Container a failed startup probe"),
        (KillReason::StateUnknown, StopReason::Other, "Container a is in unknown state"),
        (KillReason::Surplus, StopReason::Other, "Container a was replaced by a newer one"),
    ] {
        assert_eq!(reason.stop_reason(), grace);
        assert_eq!(ContainerKill::new(&made, reason, Nothing).message, text);
    }
}
