//! Actions of arbitrary pods in arbitrary states, carried out against a small runtime.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

const NAMES: [&str; 5] = ["i", "s", "t", "a", "b"];

fn any_pod() -> impl Strategy<Value = Pod> {
    let inits =
        prop::sample::select(vec![vec![], vec!["i"], vec!["s*"], vec!["s?", "i"], vec!["i", "s*", "t?"]]);
    let apps = prop::sample::select(vec![vec!["a"], vec!["a", "b"]]);
    let policy = prop::sample::select(vec!["Always", "OnFailure", "Never"]);
    (policy, inits, apps).prop_map(|(policy, inits, apps)| pod(policy, &inits, &apps))
}

fn any_container() -> impl Strategy<Value = Container> {
    let state = prop::sample::select(vec![Created, Running, Exited, Unknown]);
    (prop::sample::select(&NAMES[..]), 0..3_u32, 0..3_u32, state, 0..2_i32)
        .prop_map(|(name, attempt, sandbox, state, code)| container(name, attempt, sandbox, state, code))
}

fn any_world() -> impl Strategy<Value = World> {
    let sandboxes = prop::collection::vec((0..3_u32, any::<bool>(), any::<bool>()), 0..3);
    let containers = prop::collection::vec(any_container(), 0..6);
    let health = prop::sample::select(vec![Health::Live, Health::LivenessFailed, Health::StartupFailed]);
    let probes = prop::collection::vec((any_container(), any::<bool>(), health), 0..4);
    let outdated = prop::collection::vec(prop::sample::select(&NAMES[..]), 0..2);
    let stage =
        prop::sample::select(vec![Stage::Syncing, Stage::Syncing, Stage::Terminating, Stage::Terminated]);
    (any_pod(), sandboxes, containers, probes, outdated, stage).prop_map(
        |(pod, sandboxes, containers, probes, outdated, stage)| {
            let unique = |ids: &mut BTreeSet<String>, id: &str| ids.insert(id.to_owned());
            let mut ids = BTreeSet::new();
            let sandboxes = sandboxes
                .into_iter()
                .map(|(attempt, ready, has_ip)| {
                    let made = sandbox(attempt, ready);
                    Sandbox { ips: if has_ip { made.ips.clone() } else { Vec::new() }, ..made }
                })
                .filter(|s| unique(&mut ids, &s.id))
                .collect();
            let mut ids = BTreeSet::new();
            let containers = containers.into_iter().filter(|c| unique(&mut ids, &c.id)).collect();
            let mut world = World::new(pod, sandboxes, containers);
            world.stage = stage;
            for (container, started, health) in probes {
                world = world.probe(&container.id, started, health);
            }
            for name in outdated {
                world.hashes.insert(name.into(), 2);
            }
            world
        },
    )
}

/// Does what the actions say. Containers that start come up and stay; those that are killed exit with 137.
fn carry_out(world: &mut World, actions: &PodActions) {
    let now = world.now;
    let stop = |container: &mut Container| {
        if container.may_run() {
            (container.state, container.exit_code, container.finished_at) = (Exited, 137, Some(now));
        }
    };
    let runtime = &mut world.runtime;
    if actions.kill_pod.is_some() {
        runtime.containers.iter_mut().for_each(stop);
        runtime.sandboxes.iter_mut().for_each(|sandbox| sandbox.ready = false);
    }
    for kill in &actions.containers_to_kill {
        runtime.containers.iter_mut().filter(|c| c.id == kill.id).for_each(stop);
    }
    for id in &actions.sandboxes_to_stop {
        runtime.sandboxes.iter_mut().filter(|s| s.id == *id).for_each(|s| s.ready = false);
        runtime.containers.iter_mut().filter(|c| c.sandbox_id == *id).for_each(stop);
    }
    let mut into = actions.sandbox_id.clone();
    if let Some(wanted) = actions.create_sandbox {
        let made = Sandbox { created_at: now, ..sandbox(wanted.attempt, true) };
        assert!(runtime.sandboxes.iter().all(|s| s.id != made.id), "a sandbox attempt is used once");
        into = Some(made.id.clone());
        runtime.sandboxes.push(made);
    }
    for start in &actions.containers_to_start {
        let sandbox_id = into.clone().expect("a start has a sandbox");
        if let Some(id) = &start.resume {
            let made =
                runtime.containers.iter_mut().find(|c| c.id == *id).expect("a resumed container exists");
            assert_eq!((made.state, &made.sandbox_id), (Created, &sandbox_id));
            made.state = Running;
            made.started_at = Some(now);
            continue;
        }
        let made = container(&start.name, start.attempt, 0, Running, 0);
        assert!(runtime.containers.iter().all(|c| c.id != made.id), "an attempt is used once");
        let hash = world.hashes.get(&start.name).copied();
        runtime.containers.push(Container {
            sandbox_id,
            created_at: now,
            started_at: Some(now),
            hash,
            ..made
        });
    }
    runtime.sort();
    // Every start succeeds, and its probe says so.
    for container in &world.runtime.containers {
        if actions.containers_to_start.iter().any(|s| s.name == container.name) && container.state == Running
        {
            let fine = ProbeResults { started: Some(true), ready: None, health: Health::Live };
            world.probes.insert(container.id.clone(), fine);
        }
    }
    world.now += jiff::SignedDuration::from_secs(60);
}

fn check_one_step(world: &World, actions: &PodActions) {
    let mut names = BTreeSet::new();
    for start in &actions.containers_to_start {
        assert!(names.insert(&start.name), "{} starts twice", start.name);
        let spec = spec::containers(&world.pod);
        let found = spec.iter().find(|c| c.name() == start.name).expect("only what the spec knows starts");
        assert_eq!(found.kind, start.kind);
        let killed =
            |id: &str| actions.kill_pod.is_some() || actions.containers_to_kill.iter().any(|k| k.id == id);
        assert!(!start.resume.as_deref().is_some_and(killed), "{start:?} is killed as well");
        // A name that runs on in the kept sandbox must not get a second container.
        let twin = world.runtime.containers.iter().find(|c| c.name == start.name && c.may_run());
        assert!(twin.is_none_or(|twin| killed(&twin.id)), "{start:?} beside {twin:?}");
    }
    let mut ids = BTreeSet::new();
    for kill in &actions.containers_to_kill {
        assert!(ids.insert(&kill.id), "{} is killed twice", kill.id);
        assert!(
            world.runtime.containers.iter().any(|c| c.id == kill.id && c.may_run()),
            "{kill:?} does not run"
        );
    }
    assert!(!actions.sandboxes_to_stop.iter().any(|id| Some(id) == actions.sandbox_id.as_ref()));
    assert!(actions.create_sandbox.is_none() || actions.sandbox_id.is_none());
    assert!(
        actions.kill_pod.is_none() || (actions.containers_to_kill.is_empty() && actions.sandbox_id.is_none())
    );
    if actions.finished || world.stage != Stage::Syncing {
        assert!(actions.containers_to_start.is_empty() && actions.create_sandbox.is_none());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn each_step_is_sound_and_the_pod_comes_to_rest(mut world in any_world()) {
        for _ in 0..12 {
            let actions = world.actions();
            check_one_step(&world, &actions);
            let is_at_rest = actions.kill_pod.is_none()
                && actions.create_sandbox.is_none()
                && actions.sandboxes_to_stop.is_empty()
                && actions.containers_to_kill.is_empty()
                && actions.containers_to_start.is_empty();
            if is_at_rest {
                let waits_for_init = matches!(actions.wait, Some(Wait::InitContainer(_)));
                if !actions.finished && !waits_for_init {
                    let runs = |name: &str| {
                        world.runtime.containers.iter().any(|c| c.name == name && c.state == Running)
                    };
                    let spec = spec::containers(&world.pod);
                    let app_runs = spec.iter().any(|c| c.kind == ContainerKind::App && runs(c.name()));
                    prop_assert!(app_runs || actions.wait.is_some(), "idle: {:?}", world.runtime);
                }
                if actions.finished {
                    prop_assert!(!world.runtime.is_active());
                }
                // The init container that everything waits for ends well; then it goes on.
                let Some(Wait::InitContainer(name)) = &actions.wait else { return Ok(()) };
                let ended = world.runtime.containers.iter_mut().filter(|c| c.name == *name && c.may_run());
                ended.for_each(|c| (c.state, c.exit_code, c.finished_at) = (Exited, 0, Some(world.now)));
            } else {
                carry_out(&mut world, &actions);
            }
        }
        prop_assert!(false, "never comes to rest: {:?} {:?}", world.runtime, world.actions());
    }

    #[test]
    fn a_container_that_ran_is_not_run_again_under_never(mut world in any_world()) {
        world.pod.spec.as_mut().unwrap().restart_policy = Some("Never".into());
        world.hashes.values_mut().for_each(|hash| *hash = 1);
        let spec: Vec<(String, ContainerKind)> =
            spec::containers(&world.pod).iter().map(|c| (c.name().to_owned(), c.kind)).collect();
        let ran: BTreeSet<String> = world
            .runtime
            .containers
            .iter()
            .filter(|c| world.runtime.newest(&c.name).is_some_and(|newest| newest.state != Created))
            .map(|c| c.name.clone())
            .collect();
        for start in world.actions().containers_to_start {
            let kind = spec.iter().find(|(name, _)| *name == start.name).map(|(_, kind)| *kind);
            if kind == Some(ContainerKind::App) {
                prop_assert!(!ran.contains(&start.name), "{start:?} in {:?}", world.runtime);
            }
        }
    }
}
