//! Ephemeral containers: once, and in nobody's way.

use k8s_openapi::api::core::v1::EphemeralContainer;

use super::*;

fn debugged(policy: &str, init: &[&str], names: &[&str]) -> Pod {
    let mut pod = pod(policy, init, &["a"]);
    let asked = names.iter().map(|name| EphemeralContainer { name: (*name).into(), ..Default::default() });
    pod.spec.as_mut().unwrap().ephemeral_containers = Some(asked.collect());
    pod
}

fn running(more: Vec<Container>) -> Vec<Container> {
    std::iter::once(container("a", 0, 0, Running, 0)).chain(more).collect()
}

#[test]
fn each_is_started_once_whatever_became_of_it() {
    let e = |state, code| vec![container("e", 0, 0, state, code)];
    let table = [
        ("new", vec![], false, vec!["e#0"]),
        ("made and not started", e(Created, 0), false, vec!["e#0!"]),
        ("runs", e(Running, 0), true, vec![]),
        ("ended well", e(Exited, 0), true, vec![]),
        ("failed", e(Exited, 1), false, vec![]),
        ("cannot be told", e(Unknown, 0), false, vec![]),
        // Lead kubernetes/kubernetes#124176.
        ("removed behind our back", vec![], true, vec![]),
    ];
    for (what, containers, ran, expected) in table {
        let mut world = World::ready(debugged("Always", &[], &["e"]), running(containers));
        if ran {
            world.ephemeral_ran.insert("e".into());
        }
        let actions = world.actions();
        assert_eq!(starts(&actions), expected, "{what}");
        assert_eq!(kills(&actions), [], "{what}");
        assert!(!actions.finished && actions.kill_pod.is_none(), "{what}");
    }
}

#[test]
fn it_needs_a_sandbox_and_nothing_else() {
    let world = World::new(debugged("Always", &[], &["e"]), vec![], vec![]);
    assert_eq!(starts(&world.actions()), ["a#0"], "no sandbox yet");
    let waiting = vec![container("i", 0, 0, Running, 0)];
    let world = World::ready(debugged("Always", &["i"], &["e", "f"]), waiting);
    assert_eq!(starts(&world.actions()), ["e#0", "f#0"], "beside an init container");
    let actions = world.actions();
    assert!(matches!(&actions.containers_to_start[0].kind, ContainerKind::Ephemeral));
    let lost = World::lost(debugged("Always", &[], &["e"]), running(vec![container("e", 0, 0, Running, 0)]));
    assert_eq!(lost.actions().kill_pod, Some(KillPod::SandboxChanged));
    assert_eq!(starts(&lost.actions()), ["a#1"], "it is not started again in the next sandbox");
    let next = vec![container("a", 1, 1, Running, 0), container("e", 0, 0, Exited, 137)];
    let next = World::new(debugged("Always", &[], &["e"]), vec![sandbox(1, true), sandbox(0, false)], next);
    assert_eq!(starts(&next.actions()), [""; 0]);
}

#[test]
fn a_pod_is_over_without_it() {
    for init in [vec![], vec!["s*"]] {
        let ended = vec![container("a", 0, 0, Exited, 0), container("e", 0, 0, Running, 0)];
        let world = World::ready(debugged("Never", &init, &["e", "late"]), ended);
        let actions = world.actions();
        assert!(actions.finished);
        assert_eq!(actions.kill_pod, Some(KillPod::Finished));
        assert_eq!(starts(&actions), [""; 0]);
        let order = compute_termination_order(&world.pod, &world.runtime);
        assert_eq!(order, [StopStep { containers: vec![("e-0".into(), "e".into())] }], "{init:?}");
    }
}
