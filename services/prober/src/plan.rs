//! Which probes should run, from what syncd wants and pleg sees. Pure.
//!
//! Owns the rules about which container counts and when each of its probes may run. Must never start one.

use bulkhead_api::convert::ProbeItem;
use bulkhead_model::decision::Stage;
use bulkhead_model::probe::{Handler, ProbeKind, ProbeOutcome, ProbeSpec};
use bulkhead_model::probe_view::ProbedContainer;
use bulkhead_model::runtime::{Container, RuntimePod};

use crate::container::Probes;

/// A container id that has probes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Planned<'a> {
    /// What syncd wants of it.
    pub probed: &'a ProbedContainer,
    /// What pleg sees of it.
    pub container: &'a Container,
    /// Where it is reached.
    pub address: Address,
    /// Its postStart hook has not ended: not probed yet.
    pub held: bool,
}

/// Where a container is reached unless its probe names a host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Address {
    /// The pod's own address.
    Pod(String),
    /// The node's: the pod is in the host's network.
    Node,
    /// Not known yet.
    #[default]
    Missing,
}

/// One probe to run again and again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// The container that it is about.
    pub container_id: String,
    /// What to do and when.
    pub spec: ProbeSpec,
    /// Where, unless the handler names a host.
    pub address: Address,
}

/// The containers to speak about: of each name that has probes the newest, running or not. Older ones of the same name
/// are remains or about to be stopped.
pub fn containers<'a>(item: &'a ProbeItem, runtime: &'a RuntimePod) -> Vec<Planned<'a>> {
    let planned = item.view.containers.iter().filter_map(|probed| {
        let container = runtime.newest(&probed.name)?;
        let held = item.in_post_start.contains(&container.id);
        Some(Planned { probed, container, address: address(item, runtime, container), held })
    });
    planned.collect()
}

fn address(item: &ProbeItem, runtime: &RuntimePod, container: &Container) -> Address {
    if item.view.host_network {
        return Address::Node;
    }
    let sandbox = runtime.sandboxes.iter().find(|sandbox| sandbox.id == container.sandbox_id);
    sandbox.and_then(|sandbox| sandbox.ips.first()).cloned().map_or(Address::Missing, Address::Pod)
}

/// The probes of a container that should run now.
pub fn jobs(planned: &Planned<'_>, stage: Stage, probes: &Probes) -> Vec<Job> {
    if !planned.container.may_run() || planned.held {
        return Vec::new();
    }
    let wanted = planned.probed.probes.iter().filter(|spec| {
        in_stage(spec.kind, stage)
            && gate_is_open(spec.kind, probes)
            && probes.state(spec.kind).is_some_and(|state| state.wants_probing())
            // It runs as soon as the address is known, not a period later.
            && !(planned.address == Address::Missing && needs_address(&spec.handler))
    });
    let job = |spec: &ProbeSpec| Job {
        container_id: planned.container.id.clone(),
        spec: spec.clone(),
        address: planned.address.clone(),
    };
    wanted.map(job).collect()
}

/// A pod that is being stopped is still taken out of traffic by its readiness, but nothing may ask for its death any more.
fn in_stage(kind: ProbeKind, stage: Stage) -> bool {
    match stage {
        Stage::Syncing => true,
        Stage::Terminating => kind == ProbeKind::Readiness,
        Stage::Terminated => false,
    }
}

/// Liveness and readiness wait for the startup probe's success, if there is one.
fn gate_is_open(kind: ProbeKind, probes: &Probes) -> bool {
    match probes.state(ProbeKind::Startup) {
        Some(startup) if kind != ProbeKind::Startup => startup.settled() == Some(ProbeOutcome::Success),
        _ => true,
    }
}

fn needs_address(handler: &Handler) -> bool {
    match handler {
        Handler::Http { host, .. } | Handler::Tcp { host, .. } => host.is_none(),
        Handler::Grpc { .. } => true,
        Handler::Exec { .. } => false,
    }
}

#[cfg(test)]
mod tests {
    use ProbeKind::{Liveness, Readiness, Startup};
    use ProbeOutcome::{Failure, Success};
    use bulkhead_model::runtime::ContainerState;

    use super::*;
    use crate::report::Report;
    use crate::testing::{exec_spec, item, runtime_pod};

    fn wanted(stage: Stage, kinds: &[ProbeKind], settled: &[(ProbeKind, ProbeOutcome)]) -> Vec<ProbeKind> {
        let specs = kinds.iter().map(|kind| ProbeSpec { failure_threshold: 1, ..exec_spec(*kind) }).collect();
        let item = item("u", "a", specs);
        let runtime = runtime_pod("u", &[("a", "id-1", ContainerState::Running)]);
        let planned = containers(&item, &runtime);
        let mut probes = Probes::new(planned[0].probed, "id-1", None);
        for (kind, outcome) in settled {
            probes.record(*kind, &Report { outcome: *outcome, message: String::new() });
        }
        jobs(&planned[0], stage, &probes).iter().map(|job| job.spec.kind).collect()
    }

    #[test]
    fn probes_run_by_stage_gate_and_what_is_decided() {
        let all = ProbeKind::ALL;
        let (sync, end, over) = (Stage::Syncing, Stage::Terminating, Stage::Terminated);
        type Row<'a> = (Stage, &'a [ProbeKind], &'a [(ProbeKind, ProbeOutcome)], &'a [ProbeKind]);
        let table: [Row<'_>; 13] = [
            (sync, &all, &[], &[Startup]),
            (sync, &all, &[(Startup, Success)], &[Liveness, Readiness]),
            (sync, &all, &[(Startup, Failure)], &[]),
            (sync, &all, &[(Startup, Success), (Liveness, Failure)], &[Readiness]),
            (sync, &all, &[(Startup, Success), (Readiness, Failure)], &[Liveness, Readiness]),
            (sync, &[Liveness, Readiness], &[], &[Liveness, Readiness]),
            (sync, &[Liveness], &[(Liveness, Success)], &[Liveness]),
            (sync, &[Startup], &[(Startup, Success)], &[]),
            (end, &all, &[], &[]),
            (end, &all, &[(Startup, Success)], &[Readiness]),
            (end, &[Liveness, Readiness], &[], &[Readiness]),
            (over, &all, &[(Startup, Success)], &[]),
            (over, &[Readiness], &[], &[]),
        ];
        for (stage, kinds, settled, expected) in table {
            assert_eq!(wanted(stage, kinds, settled), expected, "{stage:?} {kinds:?} {settled:?}");
        }
    }

    #[test]
    fn only_the_newest_container_counts_and_only_while_it_may_run() {
        let item = item("u", "a", vec![exec_spec(Liveness)]);
        use ContainerState::{Created, Exited, Running, Unknown};
        for (state, runs) in [(Created, false), (Running, true), (Exited, false), (Unknown, true)] {
            let runtime =
                runtime_pod("u", &[("b", "id-9", Running), ("a", "id-2", state), ("a", "id-1", Running)]);
            let planned = containers(&item, &runtime);
            let ids: Vec<_> = planned.iter().map(|planned| planned.container.id.as_str()).collect();
            assert_eq!(ids, ["id-2"], "{state:?}");
            let probes = Probes::new(planned[0].probed, "id-2", None);
            assert_eq!(jobs(&planned[0], Stage::Syncing, &probes).len(), usize::from(runs), "{state:?}");
        }
        let nothing = runtime_pod("u", &[]);
        assert_eq!(containers(&item, &nothing), []);
    }

    #[test]
    fn a_container_is_not_probed_before_its_post_start_hook_ended() {
        let mut item = item("u", "a", vec![exec_spec(Readiness)]);
        let runtime = runtime_pod("u", &[("a", "id-2", ContainerState::Running)]);
        for (held, runs) in [("id-2", 0), ("id-1", 1)] {
            item.in_post_start = [held.to_owned()].into();
            let planned = containers(&item, &runtime);
            let probes = Probes::new(planned[0].probed, "id-2", None);
            assert_eq!(jobs(&planned[0], Stage::Syncing, &probes).len(), runs, "{held}");
        }
    }

    #[test]
    fn addresses_are_the_containers_own_sandboxes() {
        let mut item = item("u", "a", vec![exec_spec(Liveness)]);
        let mut runtime = runtime_pod("u", &[("a", "id-1", ContainerState::Running)]);
        let found = |item: &ProbeItem, runtime: &RuntimePod| containers(item, runtime)[0].address.clone();
        assert_eq!(found(&item, &runtime), Address::Pod("10.0.0.5".into()));
        let mut newer = runtime.sandboxes[0].clone();
        newer.id = "newer".into();
        newer.ips = vec!["10.0.0.6".into()];
        runtime.sandboxes.insert(0, newer);
        assert_eq!(
            found(&item, &runtime),
            Address::Pod("10.0.0.5".into()),
            "not the newest sandbox, but its own"
        );
        runtime.sandboxes[1].ips.clear();
        assert_eq!(found(&item, &runtime), Address::Missing);
        item.view.host_network = true;
        assert_eq!(found(&item, &runtime), Address::Node);
    }

    #[test]
    fn without_an_address_only_what_needs_none_runs() {
        let host = Some("127.0.0.1".to_owned());
        let table = [
            (Handler::Tcp { host: None, port: 1 }, false),
            (Handler::Tcp { host, port: 1 }, true),
            (Handler::Exec { command: Vec::new() }, true),
            (Handler::Grpc { port: 1, service: String::new(), mode: Default::default() }, false),
        ];
        for (handler, runs) in table {
            let item = item("u", "a", vec![ProbeSpec { handler, ..exec_spec(Readiness) }]);
            let mut runtime = runtime_pod("u", &[("a", "id-1", ContainerState::Running)]);
            runtime.sandboxes.clear();
            let planned = containers(&item, &runtime);
            let probes = Probes::new(planned[0].probed, "id-1", None);
            assert_eq!(jobs(&planned[0], Stage::Syncing, &probes).len(), usize::from(runs), "{item:?}");
        }
    }
}
