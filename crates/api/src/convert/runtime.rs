//! `RuntimePod` on the wire.

use bulkhead_model::runtime::{Container, ContainerState, RuntimePod, Sandbox, User};
use bulkhead_model::runtime_features::RuntimeFeatures;

use super::{WireError, timestamp_from_wire, timestamp_to_wire};
use crate::cri::v1 as cri;
use crate::pleg::v1 as wire;

/// Most handlers of a runtime that are told.
const MAX_HANDLERS: usize = 64;

/// For pleg's streams and answers.
pub fn runtime_pod_to_wire(pod: &RuntimePod) -> wire::RuntimePod {
    wire::RuntimePod {
        uid: pod.uid.clone(),
        name: pod.name.clone(),
        namespace: pod.namespace.clone(),
        sandboxes: pod.sandboxes.iter().map(sandbox_to_wire).collect(),
        containers: pod.containers.iter().map(container_to_wire).collect(),
    }
}

/// From pleg's streams and answers.
///
/// # Errors
/// When an id or a creation date is missing.
pub fn runtime_pod_from_wire(pod: wire::RuntimePod) -> Result<RuntimePod, WireError> {
    if pod.uid.is_empty() {
        return Err(WireError { message: "RuntimePod", field: "uid" });
    }
    Ok(RuntimePod {
        uid: pod.uid,
        name: pod.name,
        namespace: pod.namespace,
        sandboxes: pod.sandboxes.into_iter().map(sandbox_from_wire).collect::<Result<_, _>>()?,
        containers: pod.containers.into_iter().map(container_from_wire).collect::<Result<_, _>>()?,
    })
}

/// From the runtime's answer to `Status`. What it does not tell it cannot do.
pub fn runtime_features_from_cri(status: &cri::StatusResponse) -> RuntimeFeatures {
    let handlers = status.runtime_handlers.iter().take(MAX_HANDLERS);
    let recursive = |one: &cri::RuntimeHandler| {
        one.features.as_ref().is_some_and(|features| features.recursive_read_only_mounts)
    };
    RuntimeFeatures {
        supplemental_groups_policy: status
            .features
            .as_ref()
            .is_some_and(|features| features.supplemental_groups_policy),
        recursive_read_only: handlers.map(|one| (one.name.clone(), recursive(one))).collect(),
    }
}

/// For pleg's answers.
pub fn runtime_features_to_wire(features: &RuntimeFeatures) -> wire::GetRuntimeFeaturesResponse {
    let handler = |(name, can): (&String, &bool)| wire::RuntimeHandler {
        name: name.clone(),
        recursive_read_only_mounts: *can,
    };
    wire::GetRuntimeFeaturesResponse {
        supplemental_groups_policy: features.supplemental_groups_policy,
        handlers: features.recursive_read_only.iter().map(handler).collect(),
    }
}

/// From pleg's answers.
pub fn runtime_features_from_wire(answer: wire::GetRuntimeFeaturesResponse) -> RuntimeFeatures {
    let handlers = answer.handlers.into_iter();
    RuntimeFeatures {
        supplemental_groups_policy: answer.supplemental_groups_policy,
        recursive_read_only: handlers.map(|one| (one.name, one.recursive_read_only_mounts)).collect(),
    }
}

fn sandbox_to_wire(sandbox: &Sandbox) -> wire::Sandbox {
    wire::Sandbox {
        id: sandbox.id.clone(),
        attempt: sandbox.attempt,
        ready: sandbox.ready,
        created_at: Some(timestamp_to_wire(sandbox.created_at)),
        ips: sandbox.ips.clone(),
        traceparent: sandbox.traceparent.clone(),
    }
}

fn sandbox_from_wire(sandbox: wire::Sandbox) -> Result<Sandbox, WireError> {
    Ok(Sandbox {
        created_at: required_time(sandbox.created_at.as_ref(), "Sandbox")?,
        id: sandbox.id,
        attempt: sandbox.attempt,
        ready: sandbox.ready,
        ips: sandbox.ips,
        traceparent: sandbox.traceparent,
    })
}

fn container_to_wire(c: &Container) -> wire::Container {
    let state = match c.state {
        ContainerState::Created => wire::ContainerState::Created,
        ContainerState::Running => wire::ContainerState::Running,
        ContainerState::Exited => wire::ContainerState::Exited,
        ContainerState::Unknown => wire::ContainerState::Unknown,
    };
    wire::Container {
        id: c.id.clone(),
        name: c.name.clone(),
        sandbox_id: c.sandbox_id.clone(),
        attempt: c.attempt,
        state: state.into(),
        created_at: Some(timestamp_to_wire(c.created_at)),
        started_at: c.started_at.map(timestamp_to_wire),
        finished_at: c.finished_at.map(timestamp_to_wire),
        exit_code: c.exit_code,
        reason: c.reason.clone(),
        message: c.message.clone(),
        image: c.image.clone(),
        image_id: c.image_id.clone(),
        log_path: c.log_path.clone(),
        hash: c.hash,
        annotations: c.annotations.clone().into_iter().collect(),
        user: c.user.clone().map(|User { uid, gid, supplemental_groups }| wire::User {
            uid,
            gid,
            supplemental_groups,
        }),
        stop_signal: c.stop_signal.clone(),
    }
}

fn container_from_wire(c: wire::Container) -> Result<Container, WireError> {
    let state = match c.state() {
        wire::ContainerState::Created => ContainerState::Created,
        wire::ContainerState::Running => ContainerState::Running,
        wire::ContainerState::Exited => ContainerState::Exited,
        wire::ContainerState::Unknown => ContainerState::Unknown,
    };
    if c.id.is_empty() {
        return Err(WireError { message: "Container", field: "id" });
    }
    Ok(Container {
        created_at: required_time(c.created_at.as_ref(), "Container")?,
        started_at: c.started_at.as_ref().and_then(timestamp_from_wire),
        finished_at: c.finished_at.as_ref().and_then(timestamp_from_wire),
        id: c.id,
        name: c.name,
        sandbox_id: c.sandbox_id,
        attempt: c.attempt,
        state,
        exit_code: c.exit_code,
        reason: c.reason,
        message: c.message,
        image: c.image,
        image_id: c.image_id,
        log_path: c.log_path,
        hash: c.hash,
        annotations: c.annotations.into_iter().collect(),
        user: c.user.map(|wire::User { uid, gid, supplemental_groups }| User {
            uid,
            gid,
            supplemental_groups,
        }),
        stop_signal: c.stop_signal,
    })
}

fn required_time(
    at: Option<&prost_types::Timestamp>,
    message: &'static str,
) -> Result<jiff::Timestamp, WireError> {
    at.and_then(timestamp_from_wire).ok_or(WireError { message, field: "created_at" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_survive_the_wire_and_what_is_not_told_is_not_there() {
        assert_eq!(runtime_features_from_cri(&cri::StatusResponse::default()), RuntimeFeatures::default());
        let handler = |name: &str, told: Option<bool>| cri::RuntimeHandler {
            name: name.to_owned(),
            features: told.map(|recursive_read_only_mounts| cri::RuntimeHandlerFeatures {
                recursive_read_only_mounts,
                ..Default::default()
            }),
        };
        let status = cri::StatusResponse {
            runtime_handlers: vec![handler("", Some(true)), handler("a", Some(false)), handler("b", None)],
            features: Some(cri::RuntimeFeatures { supplemental_groups_policy: true, ..Default::default() }),
            ..Default::default()
        };
        let features = runtime_features_from_cri(&status);
        assert!(features.supplemental_groups_policy && features.recursive_read_only(""));
        assert_eq!(features.recursive_read_only.values().copied().collect::<Vec<_>>(), [true, false, false]);
        let told = runtime_features_from_wire(runtime_features_to_wire(&features));
        assert_eq!(told, features);
    }
}
