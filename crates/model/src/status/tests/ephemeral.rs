//! Ephemeral containers have a status, and none but their own depends on it.

use super::*;
use RestartPolicy::{Always, Never};

#[test]
fn it_has_a_status_of_its_own_and_the_pod_is_as_without_it() {
    let table = [
        (vec![], "waiting ContainerCreating"),
        (vec![container("debug", 0, Created, 0)], "waiting ContainerCreating"),
        (vec![container("debug", 0, Running, 0)], "running"),
        (vec![container("debug", 0, Exited, 0)], "Completed 0"),
        (vec![container("debug", 0, Exited, 7)], "Error 7"),
    ];
    for (more, state) in table {
        let app = || vec![container("a", 0, Running, 0)];
        let without = World::new(view(Always, &["a"]), app()).status();
        let world = World::new(view(Always, &["a", "debug"]), app().into_iter().chain(more).collect());
        let status = world.status();
        let debug = of(&status, "debug");
        assert_eq!(text(&debug.state), state);
        assert_eq!((debug.ready, debug.started, debug.restart_count), (false, None, 0), "{state}");
        assert!(debug.resources.is_none() && debug.allocated_resources.is_none());
        assert_eq!(PodStatus { ephemeral_container_statuses: None, ..status }, without, "{state}");
    }
}

#[test]
fn what_was_removed_behind_our_back_is_known_to_have_ended_and_stays_so() {
    let mut world = World::new(
        view(Always, &["a", "debug"]),
        vec![container("a", 0, Running, 0), container("debug", 0, Running, 0)],
    );
    world.step();
    world.set_containers(vec![container("a", 0, Running, 0)]);
    let status = world.step();
    assert_eq!(text(&of(&status, "debug").state), "ContainerStatusUnknown 137");
    assert_eq!(phase_of(&status), "Running");
    assert_eq!(world.step(), status);
}

#[test]
fn a_pod_is_over_once_its_own_containers_are_and_nothing_runs() {
    let mut world = World::new(
        view(Never, &["a", "debug"]),
        vec![container("a", 0, Exited, 0), container("debug", 0, Running, 0)],
    );
    assert_eq!(phase_of(&world.step()), "Running", "it is being stopped");
    world.decision.stage = Stage::Terminated;
    world.set_containers(vec![container("a", 0, Exited, 0), container("debug", 0, Exited, 137)]);
    let status = world.step();
    assert_eq!(phase_of(&status), "Succeeded", "whatever the exit code of the other");
    assert_eq!(text(&of(&status, "debug").state), "Error 137");
}
