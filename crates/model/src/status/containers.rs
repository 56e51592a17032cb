//! One container's status.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    ContainerState as ApiState, ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting,
    ContainerStatus, ContainerUser, LinuxContainerUser, ResourceRequirements, VolumeMountStatus,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::{Context, time};
use crate::decision::Stage;
use crate::runtime::{Container, ContainerState, User};
use crate::spec::{ContainerKind, RestartPolicy};
use crate::status_view::{ContainerView, MountView, ResourceView};
use crate::termination_message;

/// Exit code of a process that was killed, and of a container whose end nobody saw.
const KILLED: i32 = 137;

/// The reason for the latter.
const LOST: &str = "ContainerStatusUnknown";

/// The status of each container of the spec, in its order.
pub(super) fn container_statuses(context: &Context<'_>) -> Vec<ContainerStatus> {
    context.input.pod.containers.iter().map(|view| container_status(context, view)).collect()
}

fn container_status(context: &Context<'_>, view: &ContainerView) -> ContainerStatus {
    let previous = context.previous_container(&view.name);
    let status = match (context.runtime.newest(&view.name), previous) {
        (Some(newest), _) => observed(context, view, newest, previous),
        (None, Some(previous)) => forgotten(context, view, previous),
        (None, None) => waiting_status(context, view),
    };
    let volume_mounts = mounts(context, view, previous);
    if view.kind == ContainerKind::Ephemeral {
        // Nothing waits for it and nothing is set aside for it.
        return ContainerStatus { ready: false, started: None, volume_mounts, ..status };
    }
    let applied = context.input.decision.resize.applied.get(&view.name).unwrap_or(&view.resources);
    ContainerStatus {
        resources: Some(resources(applied)),
        allocated_resources: allocated(&view.resources),
        volume_mounts,
        ..status
    }
}

/// Where its volumes are. Whether a mount is read-only in all its depth follows from what the runtime can do; while that is
/// not known, what was published stands.
fn mounts(
    context: &Context<'_>,
    view: &ContainerView,
    previous: Option<&ContainerStatus>,
) -> Option<Vec<VolumeMountStatus>> {
    let published = |mount: &MountView| {
        let mut mounts = previous.and_then(|status| status.volume_mounts.as_ref()).into_iter().flatten();
        mounts.find(|known| known.mount_path == mount.path)?.recursive_read_only.clone()
    };
    let recursive = |mount: &MountView| match mount.recursive_read_only.as_str() {
        _ if !mount.read_only => None,
        "" | "Disabled" => Some("Disabled".to_owned()),
        _ => match context.input.node.recursive_read_only {
            Some(true) => Some("Enabled".to_owned()),
            Some(false) => Some("Disabled".to_owned()),
            None => published(mount),
        },
    };
    let status = |mount: &MountView| VolumeMountStatus {
        name: mount.volume.clone(),
        mount_path: mount.path.clone(),
        read_only: mount.read_only.then_some(true),
        recursive_read_only: recursive(mount),
        volume_status: None,
    };
    (!view.mounts.is_empty()).then(|| view.mounts.iter().map(status).collect())
}

/// The signal in effect, of a container whose pod names one: without the API's field a status has none.
fn stop_signal(view: &ContainerView, newest: &Container, same: Option<&ContainerStatus>) -> Option<String> {
    if view.stop_signal.is_empty() {
        return None;
    }
    let told = Some(newest.stop_signal.clone()).filter(|signal| !signal.is_empty());
    told.or_else(|| same.and_then(|status| status.stop_signal.clone()))
}

/// What the runtime told of the same container, else what was published of it.
fn user(newest: &Container, same: Option<&ContainerStatus>) -> Option<ContainerUser> {
    let Some(User { uid, gid, supplemental_groups }) = newest.user.clone() else {
        return same.and_then(|status| status.user.clone());
    };
    let supplemental_groups = (!supplemental_groups.is_empty()).then_some(supplemental_groups);
    Some(ContainerUser { linux: Some(LinuxContainerUser { uid, gid, supplemental_groups }) })
}

/// Requests and limits as they are.
pub(super) fn resources(view: &ResourceView) -> ResourceRequirements {
    ResourceRequirements {
        requests: quantities(&view.requests),
        limits: quantities(&view.limits),
        claims: None,
    }
}

/// What the node set aside.
pub(super) fn allocated(view: &ResourceView) -> Option<BTreeMap<String, Quantity>> {
    quantities(&view.requests)
}

fn quantities(list: &BTreeMap<String, String>) -> Option<BTreeMap<String, Quantity>> {
    let quantities = list.iter().map(|(name, amount)| (name.clone(), Quantity(amount.clone())));
    (!list.is_empty()).then(|| quantities.collect())
}

/// A container that the runtime holds.
fn observed(
    context: &Context<'_>,
    view: &ContainerView,
    newest: &Container,
    previous: Option<&ContainerStatus>,
) -> ContainerStatus {
    let id = context.container_id(newest);
    let same = previous.filter(|status| status.container_id.as_deref() == Some(&id));
    let mut last_state = last_state(context, newest, previous);
    let state = match newest.state {
        // Its start is not over before its hook is.
        ContainerState::Running if context.in_post_start(newest) => waiting(context, view),
        ContainerState::Running => running(
            newest.started_at.map(|started_at| ContainerStateRunning { started_at: Some(time(started_at)) }),
        ),
        ContainerState::Created => waiting(context, view),
        ContainerState::Exited => {
            let ended = terminated(context, newest);
            // The worker's reason is about the next run: without one it is an old reason.
            let next_run = !context.over && view.restart_policy.restarts_after(newest.exit_code);
            if next_run && context.waiting(&view.name).is_some() {
                last_state = ended;
                waiting(context, view)
            } else {
                ended
            }
        }
        ContainerState::Unknown if newest.started_at.is_none() => waiting(context, view),
        ContainerState::Unknown => ended(ContainerStateTerminated {
            exit_code: KILLED,
            reason: Some(LOST.to_owned()),
            message: Some("The runtime cannot tell what became of this container.".to_owned()),
            container_id: Some(id.clone()),
            started_at: newest.started_at.map(time),
            ..Default::default()
        }),
    };
    let (started, ready) = started_and_ready(context, view, newest, same);
    let attempt = i32::try_from(newest.attempt).unwrap_or(i32::MAX);
    let image = if newest.image.is_empty() { &view.image } else { &newest.image };
    ContainerStatus {
        name: view.name.clone(),
        state: Some(state),
        last_state: Some(last_state),
        ready,
        started: Some(started),
        // The runtime may have lost count with its state; the number that people saw never falls.
        restart_count: previous.map_or(attempt, |previous| attempt.max(previous.restart_count)),
        image: image.clone(),
        image_id: newest.image_id.clone(),
        container_id: Some(id),
        user: user(newest, same),
        stop_signal: stop_signal(view, newest, same),
        ..same.cloned().unwrap_or_default()
    }
}

/// While the prober says nothing about this id (it was restarted, or has not probed yet), what was published of the same
/// id stands. Of a new id nothing was published: it is not started and not ready.
fn started_and_ready(
    context: &Context<'_>,
    view: &ContainerView,
    newest: &Container,
    same: Option<&ContainerStatus>,
) -> (bool, bool) {
    if newest.state != ContainerState::Running {
        let completed = view.kind == ContainerKind::Init
            && newest.state == ContainerState::Exited
            && newest.exit_code == 0;
        return (false, completed);
    }
    if context.in_post_start(newest) {
        return (false, false);
    }
    let results = context.input.probes.get(&newest.id);
    let was_started = || same.and_then(|status| status.started);
    let was_ready = || same.map(|status| status.ready);
    let started =
        !view.probes.startup || results.and_then(|r| r.started).or_else(was_started).unwrap_or(false);
    let ready = !view.probes.readiness || results.and_then(|r| r.ready).or_else(was_ready).unwrap_or(false);
    (started, started && ready && view.kind != ContainerKind::Init)
}

/// How the run before the newest one ended: from the runtime, else from what was published.
fn last_state(context: &Context<'_>, newest: &Container, previous: Option<&ContainerStatus>) -> ApiState {
    let older = context.runtime.containers.iter().filter(|c| c.name == newest.name && c.id != newest.id);
    if let Some(older) = older.into_iter().find(|c| c.state == ContainerState::Exited) {
        return terminated(context, older);
    }
    let id = context.container_id(newest);
    let is_older = |state: &&ApiState| {
        state.terminated.as_ref().is_some_and(|ended| ended.container_id.as_deref() != Some(id.as_str()))
    };
    let Some(previous) = previous else { return ApiState::default() };
    let states = [previous.state.as_ref(), previous.last_state.as_ref()];
    states.into_iter().flatten().find(is_older).cloned().unwrap_or_default()
}

/// A container that was published and that the runtime does not hold any more.
fn forgotten(context: &Context<'_>, view: &ContainerView, previous: &ContainerStatus) -> ContainerStatus {
    if context.was_final() {
        return previous.clone();
    }
    let ends = context.over || context.input.decision.stage != Stage::Syncing;
    let state = previous.state.clone().unwrap_or_default();
    let last = previous.last_state.clone().unwrap_or_default();
    if let Some(ended) = &state.terminated {
        if ends || !view.restart_policy.restarts_after(ended.exit_code) {
            return previous.clone();
        }
        return ContainerStatus { last_state: Some(state), ..again(context, view, previous) };
    }
    if let Some(run) = &state.running {
        let lost = ended(ContainerStateTerminated {
            exit_code: KILLED,
            reason: Some(LOST.to_owned()),
            message: Some(
                "The runtime does not hold this container any more; it ran when it was last seen.".to_owned(),
            ),
            container_id: previous.container_id.clone(),
            started_at: run.started_at.clone(),
            ..Default::default()
        });
        if ends || view.restart_policy == RestartPolicy::Never {
            return ContainerStatus {
                state: Some(lost),
                ready: false,
                started: Some(false),
                ..previous.clone()
            };
        }
        return ContainerStatus { last_state: Some(lost), ..again(context, view, previous) };
    }
    if context.over && last.terminated.is_some() {
        // It waited for a run that will not come: the last one is its end.
        return ContainerStatus {
            state: Some(last),
            last_state: Some(ApiState::default()),
            ..previous.clone()
        };
    }
    ContainerStatus { last_state: Some(last), ..again(context, view, previous) }
}

/// Waits for its next run.
fn again(context: &Context<'_>, view: &ContainerView, previous: &ContainerStatus) -> ContainerStatus {
    ContainerStatus { restart_count: previous.restart_count, ..waiting_status(context, view) }
}

/// Waits, and nothing is known of any run.
fn waiting_status(context: &Context<'_>, view: &ContainerView) -> ContainerStatus {
    ContainerStatus {
        name: view.name.clone(),
        image: view.image.clone(),
        state: Some(waiting(context, view)),
        last_state: Some(ApiState::default()),
        started: Some(false),
        ..Default::default()
    }
}

fn waiting(context: &Context<'_>, view: &ContainerView) -> ApiState {
    let published = context.previous_container(&view.name).and_then(|status| status.state.as_ref());
    if let Some(state) = published.filter(|state| context.was_final() && state.waiting.is_some()) {
        return state.clone();
    }
    let default = if context.has_init_containers { "PodInitializing" } else { "ContainerCreating" };
    let told = context.waiting(&view.name);
    let reason = told.map_or(default, |waiting| waiting.reason.as_str());
    let message = told.map(|waiting| waiting.message.clone()).filter(|message| !message.is_empty());
    let waiting = ContainerStateWaiting { reason: Some(reason.to_owned()), message };
    ApiState { waiting: Some(waiting), ..Default::default() }
}

fn running(running: Option<ContainerStateRunning>) -> ApiState {
    ApiState { running: Some(running.unwrap_or_default()), ..Default::default() }
}

fn ended(ended: ContainerStateTerminated) -> ApiState {
    ApiState { terminated: Some(ended), ..Default::default() }
}

fn terminated(context: &Context<'_>, container: &Container) -> ApiState {
    ended(ContainerStateTerminated {
        exit_code: container.exit_code,
        reason: Some(end_reason(container).to_owned()),
        message: Some(message(context, container)).filter(|message| !message.is_empty()),
        container_id: Some(context.container_id(container)),
        started_at: container.started_at.map(time),
        finished_at: container.finished_at.map(time),
        signal: None,
    })
}

/// The runtime says `OOMKilled` when any process of the container was; it is why the container ended only if its main
/// process died of it.
fn end_reason(container: &Container) -> &str {
    match (container.reason.as_str(), container.exit_code) {
        ("OOMKilled", KILLED) => "OOMKilled",
        ("" | "OOMKilled", 0) => "Completed",
        ("" | "OOMKilled", _) => "Error",
        (reason, _) => reason,
    }
}

/// What the runtime said of the end, and what the container did. Where the worker has not looked yet (it was restarted),
/// what was published of the same run stands.
fn message(context: &Context<'_>, container: &Container) -> String {
    let text = match context.input.decision.messages.get(&container.id) {
        Some(left) => termination_message::joined(&[&container.message, left]),
        None => published_message(context, container).unwrap_or_else(|| container.message.clone()),
    };
    let limit = termination_message::limit(context.input.pod.containers.len());
    termination_message::cut(&text, limit).to_owned()
}

fn published_message(context: &Context<'_>, container: &Container) -> Option<String> {
    let id = context.container_id(container);
    let previous = context.previous_container(&container.name)?;
    let states = [previous.state.as_ref(), previous.last_state.as_ref()].into_iter().flatten();
    let mut ended = states.filter_map(|state| state.terminated.as_ref());
    ended.find(|ended| ended.container_id.as_deref() == Some(id.as_str()))?.message.clone()
}
