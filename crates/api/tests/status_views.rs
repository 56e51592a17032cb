//! What statusd is told of a pod arrives as it was sent.
#![cfg(test)]

use bulkhead_api::convert::{StatusItem, status_item_from_wire, status_item_to_wire};
use bulkhead_model::decision::{Decision, Resize, ResizeStep, Stage};
use bulkhead_model::spec::{ContainerKind, RestartPolicy};
use bulkhead_model::status_view::{ContainerView, ResourceView, StatusView};

fn resources(cpu: &str) -> ResourceView {
    ResourceView { requests: [("cpu".to_owned(), cpu.to_owned())].into(), limits: [].into() }
}

fn item(decision: Decision) -> StatusItem {
    use ContainerKind::{App, Ephemeral, Init, Sidecar};
    let container = |(kind, restart_policy)| ContainerView {
        name: format!("{kind:?}"),
        kind,
        restart_policy,
        resources: resources("2"),
        ..Default::default()
    };
    let kinds = [
        (Init, RestartPolicy::OnFailure),
        (Sidecar, RestartPolicy::Always),
        (App, RestartPolicy::Always),
        (Ephemeral, RestartPolicy::Never),
    ];
    let view = StatusView {
        uid: "u".into(),
        containers: kinds.map(container).into(),
        generation: 7,
        ..Default::default()
    };
    StatusItem { view, decision, traceparent: String::new() }
}

#[test]
fn kinds_and_changes_of_resources_survive_the_way() {
    let step = |reason: &str| {
        Some(ResizeStep { reason: reason.to_owned(), message: "why".to_owned(), generation: 7 })
    };
    let resize = Resize {
        pending: step("Deferred"),
        progress: step(""),
        applied: [("App".to_owned(), resources("1"))].into(),
        applied_total: Some(resources("3")),
    };
    let changing = Decision { stage: Stage::Terminating, cleared: true, resize, ..Default::default() };
    for decision in [Decision::default(), changing] {
        let item = item(decision);
        assert_eq!(status_item_from_wire(status_item_to_wire(&item)).unwrap(), item);
    }
}
