//! What holds for every pod in every state.

use proptest::prelude::*;

use super::*;

fn any_container() -> impl Strategy<Value = Container> {
    let name = prop::sample::select(vec!["i", "s", "a", "b", "other"]);
    let state = prop::sample::select(vec![Created, Running, Exited, Unknown]);
    let reason = prop::sample::select(vec!["", "OOMKilled", "Error"]);
    (name, 0..3_u32, state, 0..2_i32, reason).prop_map(|(name, attempt, state, exit_code, reason)| {
        Container { reason: reason.into(), ..container(name, attempt, state, exit_code) }
    })
}

/// One change of the world: what the runtime holds, what the worker decided, what the prober says.
#[derive(Clone, Debug)]
struct Change {
    containers: Option<Vec<Container>>,
    ready_sandbox: bool,
    waiting: Option<&'static str>,
    failed: bool,
    stage: Stage,
    probes: Vec<(Container, Option<bool>, Option<bool>)>,
}

fn any_change() -> impl Strategy<Value = Change> {
    let probe = (any_container(), any::<Option<bool>>(), any::<Option<bool>>());
    let stage =
        prop::sample::select(vec![Stage::Syncing, Stage::Syncing, Stage::Terminating, Stage::Terminated]);
    (
        prop::option::weighted(0.8, prop::collection::vec(any_container(), 0..6)),
        any::<bool>(),
        prop::option::of(prop::sample::select(vec!["i", "a", "b"])),
        prop::bool::weighted(0.1),
        stage,
        prop::collection::vec(probe, 0..4),
    )
        .prop_map(|(containers, ready_sandbox, waiting, failed, stage, probes)| Change {
            containers,
            ready_sandbox,
            waiting,
            failed,
            stage,
            probes,
        })
}

fn any_pod() -> impl Strategy<Value = StatusView> {
    let names =
        prop::sample::select(vec![vec!["a"], vec!["a", "b"], vec!["i", "a"], vec!["i", "s*", "a", "b"]]);
    let policy =
        prop::sample::select(vec![RestartPolicy::Always, RestartPolicy::OnFailure, RestartPolicy::Never]);
    (names, policy, any::<bool>(), any::<bool>()).prop_map(|(names, policy, startup, readiness)| {
        let mut pod = view(policy, &names);
        for container in pod.containers.iter_mut().filter(|c| c.kind != ContainerKind::Init) {
            container.probes = ProbePresence { startup, liveness: false, readiness };
        }
        pod
    })
}

fn apply(world: &mut World, change: Change) {
    let mut ids = std::collections::BTreeSet::new();
    world.runtime = change.containers.map(|containers| {
        let containers = containers.into_iter().filter(|c| ids.insert(c.id.clone())).collect();
        let sandboxes = vec![Sandbox { ready: change.ready_sandbox, ..sandbox() }];
        let mut runtime = RuntimePod { sandboxes, containers, ..Default::default() };
        runtime.sort();
        runtime
    });
    world.decision.waiting.clear();
    if let Some(name) = change.waiting {
        world.wait(name, "CrashLoopBackOff");
    }
    world.decision.failed =
        change.failed.then(|| Waiting { reason: "Evicted".into(), message: String::new() });
    world.decision.stage = world.decision.stage.max(change.stage);
    let results = |started, ready| ProbeResults { started, ready, health: Health::Live };
    world.probes =
        change.probes.into_iter().map(|(c, started, ready)| (c.id, results(started, ready))).collect();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn every_status_is_sound_and_a_fixed_point(
        pod in any_pod(),
        changes in prop::collection::vec(any_change(), 1..8),
    ) {
        let mut world = World::new(pod, vec![]);
        let mut before: Option<PodStatus> = None;
        for change in changes {
            apply(&mut world, change);
            let status = world.step();
            prop_assert_eq!(&world.step(), &status, "the same inputs give the same status");

            let phase = Phase::parse(phase_of(&status)).unwrap();
            if let Some(before) = &before {
                let earlier = Phase::parse(phase_of(before)).unwrap();
                prop_assert!(phase >= earlier && (!earlier.is_final() || phase == earlier), "{earlier:?} {phase:?}");
                prop_assert_eq!(&before.start_time, &status.start_time);
                for old in before.container_statuses.iter().flatten() {
                    prop_assert!(of(&status, &old.name).restart_count >= old.restart_count);
                }
            }
            let named: Vec<&str> = status.init_container_statuses.iter().flatten()
                .chain(status.container_statuses.iter().flatten()).map(|c| c.name.as_str()).collect();
            let wanted: Vec<&str> = world.pod.containers.iter().map(|c| c.name.as_str()).collect();
            prop_assert_eq!(named, wanted, "spec order");
            for one in status.container_statuses.iter().flatten() {
                let state = one.state.clone().unwrap();
                let set = [state.running.is_some(), state.waiting.is_some(), state.terminated.is_some()];
                prop_assert_eq!(set.iter().filter(|set| **set).count(), 1, "{:?}", state);
                prop_assert!(!one.ready || (one.started == Some(true) && state.running.is_some()));
                let (ended, last) = (state.terminated, one.last_state.clone().unwrap().terminated);
                prop_assert!(ended.is_none() || ended != last, "an end is shown once");
            }
            let (ready, containers_ready) = (condition(&status, "Ready").0, condition(&status, "ContainersReady").0);
            prop_assert!(ready == "False" || containers_ready == "True");
            prop_assert!(!phase.is_final() || ready == "False");
            before = Some(status);
        }
    }
}
