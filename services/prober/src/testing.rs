//! Pods for tests.

use std::time::Duration;

use bulkhead_api::convert::ProbeItem;
use bulkhead_model::probe::{Handler, ProbeKind, ProbeSpec};
use bulkhead_model::probe_view::{ProbeView, ProbedContainer};
use bulkhead_model::runtime::{Container, ContainerState, RuntimePod};
use bulkhead_testkit::peers;
use jiff::Timestamp;

/// When every test's containers were made and started.
pub const START: Timestamp = Timestamp::constant(1_700_000_000, 0);

/// Every 10 s, from the start on, 1 s long; one success or three failures decide.
pub fn exec_spec(kind: ProbeKind) -> ProbeSpec {
    ProbeSpec {
        kind,
        handler: Handler::Exec { command: vec!["check".to_owned()] },
        initial_delay: Duration::ZERO,
        period: Duration::from_secs(10),
        timeout: Duration::from_secs(1),
        success_threshold: 1,
        failure_threshold: 3,
        termination_grace: None,
    }
}

/// A pod with one container that has these probes.
pub fn item(uid: &str, container: &str, probes: Vec<ProbeSpec>) -> ProbeItem {
    let container = ProbedContainer { name: container.to_owned(), probes, ..ProbedContainer::default() };
    let view = ProbeView {
        uid: uid.to_owned(),
        name: format!("pod-{uid}"),
        namespace: "default".to_owned(),
        containers: vec![container],
        ..ProbeView::default()
    };
    ProbeItem { view, ..ProbeItem::default() }
}

/// A pod with one sandbox at 10.0.0.5 and containers given by name, id and state, newest first.
pub fn runtime_pod(uid: &str, containers: &[(&str, &str, ContainerState)]) -> RuntimePod {
    let container = |&(name, id, state): &(&str, &str, ContainerState)| Container {
        started_at: (state != ContainerState::Created).then_some(START),
        ..peers::container(id, name, state, START)
    };
    let sandbox = peers::sandbox("sandbox", START, &["10.0.0.5"]);
    let containers = containers.iter().map(container).collect();
    peers::runtime_pod(uid, &format!("pod-{uid}"), sandbox, containers)
}
