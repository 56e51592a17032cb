//! `started` and `ready` over restarts of containers and of peers.

use super::*;

fn probed(startup: bool, readiness: bool) -> StatusView {
    let mut pod = view(RestartPolicy::Always, &["a"]);
    pod.containers[0].probes = ProbePresence { startup, liveness: false, readiness };
    pod
}

fn says(started: Option<bool>, ready: Option<bool>) -> ProbeResults {
    ProbeResults { started, ready, health: Health::Live }
}

fn seen(status: &PodStatus) -> (bool, bool, String) {
    let a = of(status, "a");
    (a.started.unwrap(), a.ready, condition(status, "Ready").0)
}

#[test]
fn probes_decide_and_what_has_none_is_ready_when_it_runs() {
    let (yes, no) = (Some(true), Some(false));
    // has startup, has readiness, what the prober says -> started, ready
    let table = [
        (false, false, None, (true, true)),
        (false, false, Some(says(no, no)), (true, true)),
        (false, true, None, (true, false)),
        (false, true, Some(says(yes, None)), (true, false)),
        (false, true, Some(says(yes, yes)), (true, true)),
        (false, true, Some(says(yes, no)), (true, false)),
        (true, false, None, (false, false)),
        (true, false, Some(says(no, no)), (false, false)),
        (true, false, Some(says(yes, yes)), (true, true)),
        (true, true, Some(says(yes, no)), (true, false)),
        (true, true, Some(says(no, yes)), (false, false)),
        (true, true, Some(says(yes, yes)), (true, true)),
    ];
    for (startup, readiness, results, expected) in table {
        let mut world = World::new(probed(startup, readiness), vec![container("a", 0, Running, 0)]);
        world.probes = results.into_iter().map(|results| ("a-0".to_owned(), results)).collect();
        let status = world.status();
        let a = of(&status, "a");
        assert_eq!((a.started.unwrap(), a.ready), expected, "{startup} {readiness} {results:?}");
    }
}

#[test]
fn a_clock_that_was_set_back_makes_no_change_look_old() {
    let mut world = World::new(probed(false, true), vec![container("a", 0, Running, 0)]);
    let mut becomes = |ready: bool, now: i64| {
        world.probes.insert("a-0".into(), says(Some(true), Some(ready)));
        world.now = at(now);
        let status = world.step();
        assert_eq!(seen(&status).1, ready);
        since(&status, "Ready")
    };
    assert_eq!(becomes(true, 5000), at(5000));
    assert_eq!(becomes(true, 1400), at(5000));
    assert_eq!(becomes(false, 1401), at(5000), "an hour back");
    assert_eq!(becomes(true, 8600), at(8600), "and forth");
}

/// Known fault P1: with and without an entry for the container, in both directions.
#[test]
fn a_restarted_prober_flips_nothing_until_a_probe_says_so() {
    for (before, after) in [(true, false), (false, true)] {
        let mut world = World::new(probed(true, true), vec![container("a", 0, Running, 0)]);
        world.probes.insert("a-0".into(), says(Some(true), Some(before)));
        let published = world.step();
        for silent in [None, Some(says(None, None)), Some(says(Some(true), None))] {
            world.probes = silent.into_iter().map(|results| ("a-0".to_owned(), results)).collect();
            assert_eq!(world.step(), published, "{before} {silent:?}");
        }
        world.probes.insert("a-0".into(), says(Some(true), Some(after)));
        assert_eq!(seen(&world.step()).1, after);
    }
}

#[test]
fn a_new_container_is_not_ready_because_the_last_one_was() {
    let mut world = World::new(probed(true, true), vec![container("a", 0, Running, 0)]);
    world.probes.insert("a-0".into(), says(Some(true), Some(true)));
    assert_eq!(seen(&world.step()), (true, true, "True".into()));
    world.set_containers(vec![container("a", 0, Exited, 1), container("a", 1, Running, 0)]);
    assert_eq!(seen(&world.step()), (false, false, "False".into()));
    world.probes.insert("a-1".into(), says(Some(true), Some(true)));
    assert_eq!(seen(&world.step()), (true, true, "True".into()));
}

#[test]
fn what_does_not_run_is_not_ready_whatever_the_prober_says() {
    for state in [Created, Exited, Unknown] {
        let mut world = World::new(probed(true, true), vec![container("a", 0, Running, 0)]);
        world.probes.insert("a-0".into(), says(Some(true), Some(true)));
        world.step();
        world.set_containers(vec![container("a", 0, state, 0)]);
        assert_eq!(seen(&world.step()), (false, false, "False".into()), "{state:?}");
    }
}
