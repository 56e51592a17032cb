//! Pods for tests.

use bulkhead_api::convert::StatusItem;
use bulkhead_api::prober::v1::ContainerResult;
use bulkhead_model::decision::Decision;
use bulkhead_model::runtime::{Container, ContainerState, RuntimePod, Sandbox};
use bulkhead_model::status_view::{ContainerView, ProbePresence, StatusView};
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
    RuntimePod {
        uid: uid.into(),
        name: format!("pod-{uid}"),
        namespace: "default".into(),
        sandboxes: vec![Sandbox {
            id: format!("{uid}-s"),
            attempt: 0,
            ready: true,
            created_at: at(1),
            ips: vec!["10.0.0.7".into()],
            traceparent: PARENT.to_owned(),
        }],
        containers: vec![Container {
            id: format!("{uid}-c"),
            name: "app".into(),
            sandbox_id: format!("{uid}-s"),
            attempt: 0,
            state,
            created_at: at(2),
            started_at: Some(at(3)),
            finished_at: (state == ContainerState::Exited).then(|| at(9)),
            exit_code,
            reason: String::new(),
            message: String::new(),
            image: "bb:1".into(),
            image_id: "sha256:1".into(),
            log_path: String::new(),
            hash: None,
            annotations: [].into(),
        }],
    }
}
