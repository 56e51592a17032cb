//! Container states, phase, conditions, addresses.

use k8s_openapi::api::core::v1::PodCondition;

use super::*;
use RestartPolicy::{Always, Never, OnFailure};

#[test]
fn a_pod_that_waits_shows_why() {
    let mut world = World::new(view(Always, &["a", "b"]), vec![]);
    world.runtime = Some(RuntimePod::default());
    world.wait("b", "ErrImagePull");
    let status = world.status();
    assert_eq!(text(&of(&status, "a").state), "waiting ContainerCreating");
    assert_eq!(text(&of(&status, "b").state), "waiting ErrImagePull");
    let waiting = of(&status, "b").state.clone().unwrap().waiting.unwrap();
    assert_eq!(waiting.message.as_deref(), Some("told"));
    let a = of(&status, "a");
    assert_eq!((a.image.as_str(), a.image_id.as_str(), a.container_id.as_ref()), ("bb:1", "", None));
    assert_eq!((a.started, a.ready, a.restart_count), (Some(false), false, 0));
    assert_eq!(phase_of(&status), "Pending");
    assert_eq!((status.pod_ip, status.host_ip.as_deref()), (None, Some("192.0.2.10")));
    let world = World::new(view(Always, &["i", "a"]), vec![]);
    assert_eq!(text(&of(&world.status(), "i").state), "waiting PodInitializing");
    assert_eq!(text(&of(&world.status(), "a").state), "waiting PodInitializing");
}

#[test]
fn states_come_from_the_newest_container_and_the_one_before() {
    type Row<'a> = (Vec<Container>, Option<&'a str>, &'a str, &'a str, i32);
    let table: [Row<'_>; 8] = [
        (vec![container("a", 0, Running, 0)], None, "running", "", 0),
        (vec![container("a", 0, Running, 0)], Some("CrashLoopBackOff"), "running", "", 0),
        (vec![container("a", 0, Created, 0)], None, "waiting ContainerCreating", "", 0),
        (vec![container("a", 0, Exited, 3)], None, "Error 3", "", 0),
        (
            vec![container("a", 0, Exited, 3)],
            Some("CrashLoopBackOff"),
            "waiting CrashLoopBackOff",
            "Error 3",
            0,
        ),
        (vec![container("a", 0, Exited, 3), container("a", 1, Running, 0)], None, "running", "Error 3", 1),
        (vec![container("a", 0, Exited, 3), container("a", 1, Exited, 0)], None, "Completed 0", "Error 3", 1),
        (vec![container("a", 4, Unknown, 0)], None, "ContainerStatusUnknown 137", "", 4),
    ];
    for (containers, waiting, state, last_state, restarts) in table {
        let mut world = World::new(view(Always, &["a"]), containers);
        if let Some(reason) = waiting {
            world.wait("a", reason);
        }
        let status = world.status();
        let a = of(&status, "a");
        let seen = (text(&a.state), text(&a.last_state), a.restart_count);
        assert_eq!(seen, (state.into(), last_state.into(), restarts), "{waiting:?} {:?}", world.runtime);
    }
}

#[test]
fn a_terminated_state_has_all_its_fields() {
    let exited = Container { message: "x".repeat(5000), ..container("a", 1, Exited, 3) };
    let status = World::new(view(Never, &["a"]), vec![exited]).status();
    let ended = of(&status, "a").state.clone().unwrap().terminated.unwrap();
    assert_eq!(ended.message.as_ref().map(String::len), Some(4096));
    assert_eq!(ended.container_id.as_deref(), Some("containerd://a-1"));
    assert_eq!((ended.started_at, ended.finished_at), (Some(Time(at(100))), Some(Time(at(150)))));
    let wide = Container { message: "é".repeat(3000) + "x", ..container("a", 1, Exited, 3) };
    let status =
        World::new(view(Never, &["a"]), vec![Container { message: format!("x{}", wide.message), ..wide }]);
    let ended = of(&status.status(), "a").state.clone().unwrap().terminated.unwrap();
    assert_eq!(ended.message.map(|message| message.len()), Some(4095), "cut between characters");
}

#[test]
fn a_termination_message_is_what_the_runtime_and_the_container_said() {
    let exited = || Container { message: "runtime".into(), ..container("a", 1, Exited, 3) };
    let mut world = World::new(view(Always, &["a"]), vec![exited()]);
    let message = |status: &PodStatus, last: bool| {
        let a = of(status, "a");
        let state = if last { &a.last_state } else { &a.state };
        state.clone().unwrap().terminated.and_then(|ended| ended.message)
    };
    assert_eq!(message(&world.step(), false).as_deref(), Some("runtime"));
    world.decision.messages.insert("a-1".into(), "file".into());
    assert_eq!(message(&world.step(), false).as_deref(), Some("runtime: file"));
    // It moves with its run, and stays while a restarted worker has not looked yet.
    world.set_containers(vec![exited(), container("a", 2, Running, 0)]);
    assert_eq!(message(&world.step(), true).as_deref(), Some("runtime: file"));
    world.decision.messages.clear();
    assert_eq!(message(&world.step(), true).as_deref(), Some("runtime: file"));
    world.decision.messages.insert("a-1".into(), String::new());
    assert_eq!(message(&world.step(), true).as_deref(), Some("runtime"));
    // All of a pod share 12 KiB.
    let mut crowd = World::new(view(Always, &["a", "b", "c", "d", "e", "f"]), vec![exited()]);
    crowd.decision.messages.insert("a-1".into(), "x".repeat(4096));
    assert_eq!(message(&crowd.step(), false).map(|text| text.len()), Some(2048));
}

/// Known fault L5.
#[test]
fn a_container_does_not_run_before_its_post_start_hook_ended() {
    let mut world = World::new(view(Always, &["a"]), vec![container("a", 0, Running, 0)]);
    world.decision.in_post_start.insert("a-0".into());
    let status = world.step();
    assert_eq!(
        (phase_of(&status), text(&of(&status, "a").state)),
        ("Pending", "waiting ContainerCreating".into())
    );
    assert_eq!((of(&status, "a").ready, of(&status, "a").started), (false, Some(false)));
    world.decision.in_post_start.clear();
    let status = world.step();
    assert_eq!((phase_of(&status), text(&of(&status, "a").state)), ("Running", "running".into()));
    assert!(of(&status, "a").ready);
}

/// Known fault L4.
#[test]
fn oom_killed_is_said_of_the_main_process_only() {
    let table = [
        ("OOMKilled", 137, "OOMKilled 137"),
        ("OOMKilled", 143, "Error 143"),
        ("OOMKilled", 0, "Completed 0"),
        ("StartError", 128, "StartError 128"),
        ("", 0, "Completed 0"),
        ("", 1, "Error 1"),
    ];
    for (reason, exit_code, expected) in table {
        let exited = Container { reason: reason.into(), ..container("a", 0, Exited, exit_code) };
        let status = World::new(view(Never, &["a"]), vec![exited]).status();
        assert_eq!(text(&of(&status, "a").state), expected, "{reason} {exit_code}");
    }
}

#[test]
fn an_old_reason_does_not_hide_how_a_container_ended() {
    for (policy, exit_code) in [(Never, 3), (Never, 0), (OnFailure, 0)] {
        let mut world = World::new(view(policy, &["a"]), vec![container("a", 0, Exited, exit_code)]);
        world.wait("a", "ContainerCreating");
        assert!(
            of(&world.status(), "a").state.as_ref().unwrap().terminated.is_some(),
            "{policy:?} {exit_code}"
        );
    }
    let mut world = World::new(view(Always, &["a"]), vec![container("a", 0, Exited, 3)]);
    world.wait("a", "CrashLoopBackOff");
    world.decision.stage = Stage::Terminating;
    assert_eq!(text(&of(&world.status(), "a").state), "Error 3", "nothing is waited for any more");
}

#[test]
fn the_last_state_outlives_the_containers_remains() {
    let mut world = World::new(view(Always, &["a"]), vec![container("a", 0, Exited, 3)]);
    world.wait("a", "CrashLoopBackOff");
    world.step();
    world.set_containers(vec![container("a", 1, Running, 0)]);
    let status = world.step();
    assert_eq!(text(&of(&status, "a").last_state), "Error 3");
    assert_eq!(text(&of(&world.step(), "a").last_state), "Error 3");
    // The newest end replaces it, and is never shown twice.
    world.decision.waiting.clear();
    world.set_containers(vec![container("a", 1, Exited, 4)]);
    let status = world.step();
    assert_eq!(
        (text(&of(&status, "a").state), text(&of(&status, "a").last_state)),
        ("Error 4".into(), "Error 3".into())
    );
    world.wait("a", "CrashLoopBackOff");
    assert_eq!(text(&of(&world.step(), "a").last_state), "Error 4");
    world.decision.waiting.clear();
    let status = world.step();
    assert_eq!(
        (text(&of(&status, "a").state), text(&of(&status, "a").last_state)),
        ("Error 4".into(), String::new())
    );
}

#[test]
fn a_wanted_container_that_vanished_waits_for_its_next_run() {
    let mut world = World::new(view(Always, &["a"]), vec![container("a", 2, Running, 0)]);
    world.step();
    world.set_containers(vec![]);
    let status = world.step();
    let a = of(&status, "a");
    assert_eq!(text(&a.state), "waiting ContainerCreating");
    assert_eq!(text(&a.last_state), "ContainerStatusUnknown 137");
    assert_eq!((a.restart_count, a.ready, a.container_id.as_ref()), (2, false, None));
    assert_eq!(phase_of(&status), "Running");
    assert_eq!(world.step().container_statuses, status.container_statuses);
    // The runtime starts to count afresh; the number that was shown stays.
    world.set_containers(vec![container("a", 0, Running, 0)]);
    assert_eq!(of(&world.step(), "a").restart_count, 2);
}

#[test]
fn what_is_not_known_of_the_runtime_changes_nothing() {
    let mut world = World::new(view(Always, &["a"]), vec![container("a", 0, Running, 0)]);
    let status = world.step();
    world.runtime = None;
    world.decision.stage = Stage::Terminating;
    assert_eq!(world.status(), status);
    world.previous = None;
    assert_eq!(phase_of(&world.status()), "Pending");
}

/// Known fault T1.
#[test]
fn a_finished_pod_keeps_its_end_although_the_runtime_forgot_it() {
    for (policy, exit_code, phase, state) in [
        (Never, 0, "Succeeded", "Completed 0"),
        (Never, 3, "Failed", "Error 3"),
        (OnFailure, 0, "Succeeded", "Completed 0"),
    ] {
        let mut world = World::new(
            view(policy, &["i", "a"]),
            vec![container("i", 0, Exited, 0), container("a", 0, Exited, exit_code)],
        );
        let status = world.step();
        assert_eq!(phase_of(&status), phase);
        for stage in [Stage::Syncing, Stage::Terminating, Stage::Terminated] {
            world.forget();
            world.decision.stage = stage;
            world.wait("a", "ContainerCreating");
            let later = world.step();
            assert_eq!(phase_of(&later), phase, "{stage:?}");
            assert_eq!(text(&of(&later, "a").state), state, "{stage:?}");
            assert_eq!(later.container_statuses, status.container_statuses);
            assert_eq!(later.init_container_statuses, status.init_container_statuses);
            assert_eq!(later.pod_ips, status.pod_ips, "its address is asked for later");
        }
    }
}

#[test]
fn a_stopped_pod_ends_and_what_was_lost_is_said_to_be() {
    let mut world = World::new(
        view(Always, &["a", "b"]),
        vec![container("a", 0, Running, 0), container("b", 0, Exited, 0)],
    );
    world.wait("b", "CrashLoopBackOff");
    world.step();
    world.decision.stage = Stage::Terminating;
    assert_eq!(phase_of(&world.step()), "Running");
    world.forget();
    world.decision.stage = Stage::Terminated;
    let status = world.step();
    assert_eq!(phase_of(&status), "Failed");
    assert_eq!(text(&of(&status, "a").state), "ContainerStatusUnknown 137");
    assert_eq!(text(&of(&status, "b").state), "Completed 0");
    assert_eq!(condition(&status, "Ready"), ("False".into(), "PodFailed".into(), String::new()));
    assert_eq!(world.step().container_statuses, status.container_statuses);
    // It waited for a run that does not come.
    let mut world = World::new(view(Always, &["a"]), vec![container("a", 0, Exited, 0)]);
    world.wait("a", "CrashLoopBackOff");
    world.step();
    world.forget();
    world.decision.stage = Stage::Terminated;
    let status = world.step();
    assert_eq!((phase_of(&status), text(&of(&status, "a").state)), ("Succeeded", "Completed 0".into()));
}

#[test]
fn a_pod_that_failed_as_a_whole_says_why_once_nothing_runs() {
    let mut world = World::new(view(Always, &["a"]), vec![container("a", 0, Running, 0)]);
    world.step();
    world.decision.failed = Some(Waiting { reason: "Evicted".into(), message: "low on memory".into() });
    let status = world.step();
    assert_eq!((phase_of(&status), status.reason.as_ref()), ("Running", None));
    let disruptions = |status: &PodStatus| {
        status.conditions.iter().flatten().filter(|c| c.type_ == "DisruptionTarget").count()
    };
    assert_eq!(disruptions(&status), 0, "it broke a limit of its own");
    world.decision.disrupted = true;
    let told = ("True".to_owned(), "TerminationByKubelet".to_owned(), "low on memory".to_owned());
    assert_eq!(condition(&world.step(), "DisruptionTarget"), told);
    world.set_containers(vec![container("a", 0, Exited, 137)]);
    let status = world.step();
    assert_eq!((phase_of(&status), disruptions(&status)), ("Failed", 1));
    assert_eq!(
        (status.reason.as_deref(), status.message.as_deref()),
        (Some("Evicted"), Some("low on memory"))
    );
    world.decision = Decision::default();
    let later = world.step();
    assert_eq!(disruptions(&later), 1);
    assert_eq!((later.reason, later.start_time), (status.reason, Some(Time(at(0)))), "it stays");
}

#[test]
fn conditions_say_what_is_missing() {
    let (yes, no) = (("True".to_owned(), String::new(), String::new()), "False".to_owned());
    let mut world = World::new(view(Always, &["i", "s*", "a", "b"]), vec![container("i", 0, Running, 0)]);
    let status = world.step();
    let types: Vec<_> = status.conditions.iter().flatten().map(|c| c.type_.as_str()).collect();
    let order = ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"];
    assert_eq!(types, order);
    assert_eq!(condition(&status, "PodReadyToStartContainers"), yes);
    let incomplete = "containers with incomplete status: [i s]".to_owned();
    assert_eq!(
        condition(&status, "Initialized"),
        (no.clone(), "ContainersNotInitialized".into(), incomplete)
    );
    let unready =
        (no.clone(), "ContainersNotReady".to_owned(), "containers with unready status: [s a b]".to_owned());
    assert_eq!(condition(&status, "Ready"), unready);
    assert_eq!(condition(&status, "ContainersReady"), unready);
    assert_eq!(condition(&status, "PodScheduled"), yes);

    world.set_containers(vec![
        container("i", 0, Exited, 0),
        container("s", 0, Running, 0),
        container("a", 0, Running, 0),
    ]);
    let status = world.step();
    assert!(of(&status, "i").ready);
    assert_eq!(condition(&status, "Initialized"), yes);
    let unready =
        (no.clone(), "ContainersNotReady".to_owned(), "containers with unready status: [b]".to_owned());
    assert_eq!(condition(&status, "Ready"), unready);

    world.set_containers(["s", "a", "b"].map(|name| container(name, 0, Running, 0)).to_vec());
    let status = world.step();
    assert_eq!((condition(&status, "Initialized"), condition(&status, "Ready")), (yes.clone(), yes));
    assert_eq!(phase_of(&status), "Running");
    world.runtime.as_mut().unwrap().sandboxes.clear();
    assert_eq!(condition(&world.step(), "PodReadyToStartContainers").0, no);

    let done = vec![container("a", 0, Exited, 0)];
    let status = World::new(view(Never, &["a"]), done).status();
    assert_eq!(condition(&status, "Ready"), (no, "PodCompleted".into(), String::new()));
    assert_eq!(condition(&status, "Initialized"), ("True".into(), "PodCompleted".into(), String::new()));
}

#[test]
fn a_condition_dates_from_its_last_change() {
    let mut world = World::new(view(Always, &["a"]), vec![container("a", 0, Running, 0)]);
    let first = world.now;
    world.step();
    let second = world.now;
    world.set_containers(vec![container("a", 0, Exited, 1)]);
    let status = world.step();
    assert_eq!((since(&status, "Ready"), since(&status, "PodScheduled")), (second, first));
    world.set_containers(vec![container("a", 1, Created, 0)]);
    assert_eq!(since(&world.step(), "Ready"), second, "the message may change, the status did not");
}

#[test]
fn readiness_gates_hold_ready_back_and_foreign_conditions_stay() {
    let mut pod = view(Always, &["a"]);
    pod.readiness_gates = vec!["example.com/x".into(), "example.com/y".into()];
    let mut world = World::new(pod, vec![container("a", 0, Running, 0)]);
    let missing =
        |gate: &str| format!("corresponding condition of pod readiness gate \"{gate}\" does not exist.");
    let message = format!("{}, {}", missing("example.com/x"), missing("example.com/y"));
    let status = world.step();
    assert_eq!(condition(&status, "Ready"), ("False".into(), "ReadinessGatesNotReady".into(), message));
    assert_eq!(condition(&status, "ContainersReady").0, "True");
    let gate = |type_: &str, status: &str| PodCondition {
        type_: type_.into(),
        status: status.into(),
        ..Default::default()
    };
    let previous = world.previous.as_mut().unwrap();
    let conditions = previous.conditions.as_mut().unwrap();
    conditions.extend([gate("example.com/x", "True"), gate("example.com/y", "False")]);
    let status = world.step();
    let message = "the status of pod readiness gate \"example.com/y\" is not \"True\", but False";
    assert_eq!(condition(&status, "Ready").2, message);
    assert_eq!(condition(&status, "example.com/x").0, "True");
    for condition in world.previous.as_mut().unwrap().conditions.iter_mut().flatten() {
        condition.status = "True".into();
    }
    assert_eq!(condition(&world.step(), "Ready").0, "True");
}

/// Known fault T2.
#[test]
fn addresses_follow_the_nodes_primary_family() {
    let ips = |status: &PodStatus| -> Vec<String> {
        status.pod_ips.iter().flatten().map(|pod| pod.ip.clone()).collect()
    };
    let mut world = World::new(view(Always, &["a"]), vec![]);
    world.node.host_ips = vec!["192.0.2.10".into(), "fd00::10".into(), "192.0.2.11".into()];
    world.runtime.as_mut().unwrap().sandboxes[0].ips = vec!["fd00::5".into(), "10.1.0.5".into()];
    let status = world.step();
    assert_eq!(ips(&status), ["10.1.0.5", "fd00::5"]);
    assert_eq!(status.pod_ip.as_deref(), Some("10.1.0.5"));
    let hosts: Vec<_> = status.host_ips.iter().flatten().map(|host| host.ip.as_str()).collect();
    assert_eq!(hosts, ["192.0.2.10", "fd00::10"]);
    world.pod.host_network = true;
    assert_eq!(ips(&world.step()), ["192.0.2.10", "fd00::10"]);
    world.node.host_ips.clear();
    assert_eq!(ips(&world.step()), ["192.0.2.10", "fd00::10"], "not known just now");
    world.pod.host_network = false;
    world.runtime.as_mut().unwrap().sandboxes[0] =
        Sandbox { ips: vec!["10.1.0.9".into()], attempt: 1, ..sandbox() };
    assert_eq!(ips(&world.step()), ["10.1.0.9"], "a new sandbox brings its own");
}

#[test]
fn the_reason_of_a_container_that_never_ran_stays_when_the_pod_has_failed() {
    let mut world = World::new(view(Never, &["i", "a"]), vec![container("i", 0, Exited, 1)]);
    world.wait("a", "ImagePullBackOff");
    let status = world.step();
    assert_eq!(
        (phase_of(&status), text(&of(&status, "a").state)),
        ("Failed", "waiting ImagePullBackOff".into())
    );
    world.decision.waiting.clear();
    assert_eq!(world.step(), status);
}

#[test]
fn a_sidecar_that_waits_for_its_restart_has_ended_when_the_pod_has() {
    let mut world = World::new(
        view(Never, &["s*", "a"]),
        vec![container("s", 0, Exited, 1), container("a", 0, Running, 0)],
    );
    world.wait("s", "CrashLoopBackOff");
    assert_eq!(text(&of(&world.step(), "s").state), "waiting CrashLoopBackOff");
    world.set_containers(vec![container("s", 0, Exited, 1), container("a", 0, Exited, 0)]);
    let status = world.step();
    assert_eq!((phase_of(&status), text(&of(&status, "s").state)), ("Succeeded", "Error 1".into()));
    assert_eq!(world.step(), status);
}
