//! Pods for tests.

use bulkhead_api::convert::StatusItem;
use bulkhead_api::prober::v1::ContainerResult;
use bulkhead_model::decision::Decision;
use bulkhead_model::runtime::{ContainerState, RuntimePod};
use bulkhead_model::status_view::{ContainerView, ProbePresence, StatusView};
use bulkhead_testkit::peers;
use jiff::Timestamp;

/// The trace that fake pods start in.
pub(crate) const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

/// Seconds since a fixed start.
pub(crate) fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + second).unwrap()
}

/// A pod with one container `app`, accepted at second 0.
pub(crate) fn item(uid: &str) -> StatusItem {
    let app = ContainerView { name: "app".into(), image: "bb:1".into(), ..ContainerView::default() };
    StatusItem {
        view: StatusView {
            uid: uid.into(),
            name: format!("pod-{uid}"),
            namespace: "default".into(),
            containers: vec![app],
            ..StatusView::default()
        },
        decision: Decision { started_at: Some(at(0)), ..Decision::default() },
        traceparent: PARENT.to_owned(),
    }
}

/// The same, with a readiness probe.
pub(crate) fn probed(uid: &str) -> StatusItem {
    let mut item = item(uid);
    item.view.containers[0].probes = ProbePresence { readiness: true, ..ProbePresence::default() };
    item
}

/// Its container runs.
pub(crate) fn running(uid: &str) -> RuntimePod {
    with(uid, ContainerState::Running, 0)
}

/// Its container ended.
pub(crate) fn exited(uid: &str, exit_code: i32) -> RuntimePod {
    with(uid, ContainerState::Exited, exit_code)
}

/// What prober says of that container.
pub(crate) fn ready(uid: &str, ready: bool) -> ContainerResult {
    ContainerResult {
        container_id: format!("{uid}-c"),
        pod_uid: uid.to_owned(),
        container_name: "app".to_owned(),
        started: Some(true),
        ready: Some(ready),
        ..ContainerResult::default()
    }
}

fn with(uid: &str, state: ContainerState, exit_code: i32) -> RuntimePod {
    let mut sandbox = peers::sandbox(&format!("{uid}-s"), at(1), &["10.0.0.7"]);
    sandbox.traceparent = PARENT.to_owned();
    let mut container = peers::container(&format!("{uid}-c"), "app", state, at(3));
    container.created_at = at(2);
    container.finished_at = (state == ContainerState::Exited).then(|| at(9));
    container.exit_code = exit_code;
    peers::runtime_pod(uid, &format!("pod-{uid}"), sandbox, vec![container])
}
