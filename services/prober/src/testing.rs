//! Pods for tests.

use std::time::Duration;

use bulkhead_api::convert::ProbeItem;
use bulkhead_model::probe::{Handler, ProbeKind, ProbeSpec};
use bulkhead_model::probe_view::{ProbeView, ProbedContainer};
use bulkhead_model::runtime::{Container, ContainerState, RuntimePod, Sandbox};
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
    let sandbox = Sandbox {
        id: "sandbox".to_owned(),
        attempt: 0,
        ready: true,
        created_at: START,
        ips: vec!["10.0.0.5".to_owned()],
        traceparent: String::new(),
    };
    let container = |&(name, id, state): &(&str, &str, ContainerState)| Container {
        id: id.to_owned(),
        name: name.to_owned(),
        sandbox_id: "sandbox".to_owned(),
        attempt: 0,
        state,
        created_at: START,
        started_at: (state != ContainerState::Created).then_some(START),
        finished_at: None,
        exit_code: 0,
        reason: String::new(),
        message: String::new(),
        image: String::new(),
        image_id: String::new(),
        log_path: String::new(),
        hash: None,
        annotations: Default::default(),
    };
    RuntimePod {
        uid: uid.to_owned(),
        name: format!("pod-{uid}"),
        namespace: "default".to_owned(),
        sandboxes: vec![sandbox],
        containers: containers.iter().map(container).collect(),
    }
}
