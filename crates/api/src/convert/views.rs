//! syncd's views of pods on the wire.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bulkhead_model::decision::{Decision, Resize, ResizeStep, Stage, Waiting};
use bulkhead_model::phase::Phase;
use bulkhead_model::probe::{GrpcMode, Handler, HttpHeader, HttpScheme, ProbeKind, ProbeSpec};
use bulkhead_model::probe_view::{BrokenProbe, ProbeView, ProbedContainer};
use bulkhead_model::spec::{ContainerKind, RestartPolicy};
use bulkhead_model::status_view::{ContainerView, MountView, ProbePresence, ResourceView, StatusView};

use super::{WireError, timestamp_from_wire, timestamp_to_wire};
use crate::common::v1::Reason;
use crate::syncd::v1 as wire;

/// What statusd is told of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatusItem {
    /// The pod.
    pub view: StatusView,
    /// What its worker decided.
    pub decision: Decision,
    /// W3C trace context of its present start; empty if none.
    pub traceparent: String,
}

/// What prober is told of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProbeItem {
    /// The pod.
    pub view: ProbeView,
    /// Where it is in its life: only readiness goes on while it terminates.
    pub stage: Stage,
    /// Ids of containers whose postStart hook has not ended: not probed until it has.
    pub in_post_start: BTreeSet<String>,
    /// W3C trace context of its present start; empty if none.
    pub traceparent: String,
}

/// For statusd.
pub fn status_item_to_wire(item: &StatusItem) -> wire::StatusView {
    let view = &item.view;
    wire::StatusView {
        uid: view.uid.clone(),
        name: view.name.clone(),
        namespace: view.namespace.clone(),
        node_name: view.node_name.clone(),
        generation: view.generation,
        static_pod: view.static_pod,
        host_network: view.host_network,
        restart_policy: view.restart_policy.as_str().to_owned(),
        qos_class: view.qos_class.clone(),
        readiness_gates: view.readiness_gates.clone(),
        containers: view
            .containers
            .iter()
            .map(|c| wire::StatusContainer {
                name: c.name.clone(),
                image: c.image.clone(),
                kind: kind_to_wire(c.kind).into(),
                restart_policy: c.restart_policy.as_str().to_owned(),
                has_startup_probe: c.probes.startup,
                has_readiness_probe: c.probes.readiness,
                has_liveness_probe: c.probes.liveness,
                resources: Some(resources_to_wire(&c.resources)),
                mounts: c.mounts.iter().map(mount_to_wire).collect(),
                stop_signal: c.stop_signal.clone(),
            })
            .collect(),
        resources: Some(resources_to_wire(&view.resources)),
        decision: Some(decision_to_wire(&item.decision)),
        traceparent: item.traceparent.clone(),
        conditions: view.conditions.clone().into_iter().collect(),
        final_phase: view.final_phase.map(|phase| phase.as_str().to_owned()).unwrap_or_default(),
        deleting: view.deleting,
    }
}

/// At statusd.
///
/// # Errors
/// When the UID, a restart policy or the decision is missing.
pub fn status_item_from_wire(item: wire::StatusView) -> Result<StatusItem, WireError> {
    const MESSAGE: &str = "StatusView";
    let decision = item.decision.ok_or(WireError { message: MESSAGE, field: "decision" })?;
    let containers = item.containers.into_iter().map(|c| {
        Ok(ContainerView {
            kind: kind_from_wire(c.kind()),
            restart_policy: policy(&c.restart_policy, "StatusContainer")?,
            probes: ProbePresence {
                startup: c.has_startup_probe,
                liveness: c.has_liveness_probe,
                readiness: c.has_readiness_probe,
            },
            name: c.name,
            image: c.image,
            resources: resources_from_wire(c.resources),
            mounts: c.mounts.into_iter().map(mount_from_wire).collect(),
            stop_signal: c.stop_signal,
        })
    });
    let view = StatusView {
        uid: required(item.uid, MESSAGE, "uid")?,
        name: item.name,
        namespace: item.namespace,
        node_name: item.node_name,
        generation: item.generation,
        host_network: item.host_network,
        static_pod: item.static_pod,
        restart_policy: policy(&item.restart_policy, MESSAGE)?,
        qos_class: item.qos_class,
        containers: containers.collect::<Result<_, _>>()?,
        readiness_gates: item.readiness_gates,
        conditions: item.conditions.into_iter().collect(),
        final_phase: Phase::parse(&item.final_phase).filter(|phase| phase.is_final()),
        deleting: item.deleting,
        resources: resources_from_wire(item.resources),
    };
    Ok(StatusItem { view, decision: decision_from_wire(decision), traceparent: item.traceparent })
}

fn mount_to_wire(mount: &MountView) -> wire::StatusMount {
    wire::StatusMount {
        volume: mount.volume.clone(),
        path: mount.path.clone(),
        read_only: mount.read_only,
        recursive_read_only: mount.recursive_read_only.clone(),
    }
}

fn mount_from_wire(mount: wire::StatusMount) -> MountView {
    MountView {
        volume: mount.volume,
        path: mount.path,
        read_only: mount.read_only,
        recursive_read_only: mount.recursive_read_only,
    }
}

/// For prober.
pub fn probe_item_to_wire(item: &ProbeItem) -> wire::ProbeView {
    let view = &item.view;
    wire::ProbeView {
        uid: view.uid.clone(),
        name: view.name.clone(),
        namespace: view.namespace.clone(),
        host_network: view.host_network,
        restart_policy: view.restart_policy.as_str().to_owned(),
        grace_seconds: view.grace.as_secs(),
        stage: stage_to_wire(item.stage).into(),
        containers: view
            .containers
            .iter()
            .map(|c| wire::ProbeContainer {
                name: c.name.clone(),
                kind: kind_to_wire(c.kind).into(),
                restart_policy: c.restart_policy.as_str().to_owned(),
                probes: c.probes.iter().map(probe_to_wire).collect(),
                broken: c
                    .broken
                    .iter()
                    .map(|b| wire::BrokenProbe {
                        kind: probe_kind_to_wire(b.kind).into(),
                        reason: b.reason.clone(),
                    })
                    .collect(),
            })
            .collect(),
        traceparent: item.traceparent.clone(),
        in_post_start: item.in_post_start.iter().cloned().collect(),
    }
}

/// At prober.
///
/// # Errors
/// When the UID, a restart policy, a handler or a port is missing.
pub fn probe_item_from_wire(item: wire::ProbeView) -> Result<ProbeItem, WireError> {
    let stage = stage_from_wire(item.stage());
    let containers = item.containers.into_iter().map(|c| {
        Ok(ProbedContainer {
            kind: kind_from_wire(c.kind()),
            restart_policy: policy(&c.restart_policy, "ProbeContainer")?,
            broken: c
                .broken
                .iter()
                .map(|b| BrokenProbe { kind: probe_kind_from_wire(b.kind()), reason: b.reason.clone() })
                .collect(),
            name: c.name,
            probes: c.probes.into_iter().map(probe_from_wire).collect::<Result<_, _>>()?,
        })
    });
    let view = ProbeView {
        uid: required(item.uid, "ProbeView", "uid")?,
        name: item.name,
        namespace: item.namespace,
        host_network: item.host_network,
        restart_policy: policy(&item.restart_policy, "ProbeView")?,
        grace: Duration::from_secs(item.grace_seconds),
        containers: containers.collect::<Result<_, _>>()?,
    };
    let in_post_start = item.in_post_start.into_iter().collect();
    Ok(ProbeItem { view, stage, in_post_start, traceparent: item.traceparent })
}

fn probe_to_wire(probe: &ProbeSpec) -> wire::Probe {
    use wire::probe::Handler as Wire;
    let text = |host: &Option<String>| host.clone().unwrap_or_default();
    let handler = match &probe.handler {
        Handler::Http { scheme, host, port, path, headers } => {
            Wire::HttpGet(http_get(*scheme, text(host), *port, path, headers))
        }
        Handler::Tcp { host, port } => {
            Wire::TcpSocket(wire::TcpSocket { host: text(host), port: (*port).into() })
        }
        Handler::Exec { command } => Wire::Exec(wire::Exec { command: command.clone() }),
        Handler::Grpc { port, service, mode } => Wire::Grpc(wire::Grpc {
            port: (*port).into(),
            service: service.clone(),
            tls: *mode == GrpcMode::Tls,
        }),
    };
    wire::Probe {
        kind: probe_kind_to_wire(probe.kind).into(),
        handler: Some(handler),
        initial_delay_seconds: probe.initial_delay.as_secs(),
        timeout_seconds: probe.timeout.as_secs(),
        period_seconds: probe.period.as_secs(),
        success_threshold: probe.success_threshold,
        failure_threshold: probe.failure_threshold,
        termination_grace_seconds: probe.termination_grace.map(|grace| grace.as_secs()),
    }
}

fn probe_from_wire(probe: wire::Probe) -> Result<ProbeSpec, WireError> {
    use wire::probe::Handler as Wire;
    const MESSAGE: &str = "Probe";
    let port = |port: u32| u16::try_from(port).map_err(|_| WireError { message: MESSAGE, field: "port" });
    let host = |host: String| (!host.is_empty()).then_some(host);
    let kind = probe_kind_from_wire(probe.kind());
    let handler = match probe.handler.ok_or(WireError { message: MESSAGE, field: "handler" })? {
        Wire::HttpGet(http) => http_from_wire(http, MESSAGE)?,
        Wire::TcpSocket(tcp) => Handler::Tcp { host: host(tcp.host), port: port(tcp.port)? },
        Wire::Exec(exec) => Handler::Exec { command: exec.command },
        Wire::Grpc(grpc) => Handler::Grpc {
            port: port(grpc.port)?,
            service: grpc.service,
            mode: if grpc.tls { GrpcMode::Tls } else { GrpcMode::Plaintext },
        },
    };
    Ok(ProbeSpec {
        kind,
        handler,
        initial_delay: Duration::from_secs(probe.initial_delay_seconds),
        period: Duration::from_secs(probe.period_seconds.max(1)),
        timeout: Duration::from_secs(probe.timeout_seconds.max(1)),
        success_threshold: probe.success_threshold.max(1),
        failure_threshold: probe.failure_threshold.max(1),
        termination_grace: probe.termination_grace_seconds.map(Duration::from_secs),
    })
}

/// `None` for a handler that is no HTTP GET.
pub(super) fn http_to_wire(handler: &Handler) -> Option<wire::HttpGet> {
    let Handler::Http { scheme, host, port, path, headers } = handler else { return None };
    Some(http_get(*scheme, host.clone().unwrap_or_default(), *port, path, headers))
}

fn http_get(
    scheme: HttpScheme,
    host: String,
    port: u16,
    path: &str,
    headers: &[HttpHeader],
) -> wire::HttpGet {
    wire::HttpGet {
        host,
        port: port.into(),
        tls: scheme == HttpScheme::Https,
        path: path.to_owned(),
        headers: headers
            .iter()
            .map(|h| wire::HttpHeader { name: h.name.clone(), value: h.value.clone() })
            .collect(),
    }
}

pub(super) fn http_from_wire(http: wire::HttpGet, message: &'static str) -> Result<Handler, WireError> {
    Ok(Handler::Http {
        scheme: if http.tls { HttpScheme::Https } else { HttpScheme::Http },
        host: (!http.host.is_empty()).then_some(http.host),
        port: u16::try_from(http.port).map_err(|_| WireError { message, field: "port" })?,
        path: http.path,
        headers: http.headers.into_iter().map(|h| HttpHeader { name: h.name, value: h.value }).collect(),
    })
}

fn decision_to_wire(decision: &Decision) -> wire::Decision {
    let reason = |w: &Waiting| Reason { reason: w.reason.clone(), message: w.message.clone() };
    wire::Decision {
        stage: stage_to_wire(decision.stage).into(),
        waiting: decision.waiting.iter().map(|(name, w)| (name.clone(), reason(w))).collect(),
        failed: decision.failed.as_ref().map(reason),
        started_at: decision.started_at.map(timestamp_to_wire),
        generation: decision.generation,
        messages: decision.messages.clone().into_iter().collect(),
        in_post_start: decision.in_post_start.iter().cloned().collect(),
        disrupted: decision.disrupted,
        cleared: decision.cleared,
        resize: resize_to_wire(&decision.resize),
    }
}

fn decision_from_wire(decision: wire::Decision) -> Decision {
    let waiting = |r: Reason| Waiting { reason: r.reason, message: r.message };
    Decision {
        stage: stage_from_wire(decision.stage()),
        waiting: decision.waiting.into_iter().map(|(name, r)| (name, waiting(r))).collect(),
        failed: decision.failed.map(waiting),
        started_at: decision.started_at.as_ref().and_then(timestamp_from_wire),
        generation: decision.generation,
        messages: decision.messages.into_iter().collect(),
        in_post_start: decision.in_post_start.into_iter().collect(),
        disrupted: decision.disrupted,
        cleared: decision.cleared,
        resize: decision.resize.map(resize_from_wire).unwrap_or_default(),
    }
}

fn resize_to_wire(resize: &Resize) -> Option<wire::Resize> {
    if *resize == Resize::default() {
        return None;
    }
    let step = |step: &ResizeStep| wire::ResizeStep {
        reason: step.reason.clone(),
        message: step.message.clone(),
        generation: step.generation,
    };
    Some(wire::Resize {
        pending: resize.pending.as_ref().map(step),
        progress: resize.progress.as_ref().map(step),
        applied: resize.applied.iter().map(|(name, own)| (name.clone(), resources_to_wire(own))).collect(),
        applied_total: resize.applied_total.as_ref().map(resources_to_wire),
    })
}

fn resize_from_wire(resize: wire::Resize) -> Resize {
    let step = |step: wire::ResizeStep| ResizeStep {
        reason: step.reason,
        message: step.message,
        generation: step.generation,
    };
    let applied = resize.applied.into_iter();
    Resize {
        pending: resize.pending.map(step),
        progress: resize.progress.map(step),
        applied: applied.map(|(name, own)| (name, resources_from_wire(Some(own)))).collect(),
        applied_total: resize.applied_total.map(|total| resources_from_wire(Some(total))),
    }
}

fn resources_to_wire(resources: &ResourceView) -> wire::Resources {
    let list = |list: &BTreeMap<String, String>| list.clone().into_iter().collect();
    wire::Resources { requests: list(&resources.requests), limits: list(&resources.limits) }
}

fn resources_from_wire(resources: Option<wire::Resources>) -> ResourceView {
    let resources = resources.unwrap_or_default();
    ResourceView {
        requests: resources.requests.into_iter().collect(),
        limits: resources.limits.into_iter().collect(),
    }
}

fn stage_to_wire(stage: Stage) -> wire::Stage {
    match stage {
        Stage::Syncing => wire::Stage::Syncing,
        Stage::Terminating => wire::Stage::Terminating,
        Stage::Terminated => wire::Stage::Terminated,
    }
}

fn stage_from_wire(stage: wire::Stage) -> Stage {
    match stage {
        wire::Stage::Syncing => Stage::Syncing,
        wire::Stage::Terminating => Stage::Terminating,
        wire::Stage::Terminated => Stage::Terminated,
    }
}

fn kind_to_wire(kind: ContainerKind) -> wire::ContainerKind {
    match kind {
        ContainerKind::App => wire::ContainerKind::App,
        ContainerKind::Init => wire::ContainerKind::Init,
        ContainerKind::Sidecar => wire::ContainerKind::Sidecar,
        ContainerKind::Ephemeral => wire::ContainerKind::Ephemeral,
    }
}

fn kind_from_wire(kind: wire::ContainerKind) -> ContainerKind {
    match kind {
        wire::ContainerKind::App => ContainerKind::App,
        wire::ContainerKind::Init => ContainerKind::Init,
        wire::ContainerKind::Sidecar => ContainerKind::Sidecar,
        wire::ContainerKind::Ephemeral => ContainerKind::Ephemeral,
    }
}

fn probe_kind_to_wire(kind: ProbeKind) -> wire::ProbeKind {
    match kind {
        ProbeKind::Startup => wire::ProbeKind::Startup,
        ProbeKind::Liveness => wire::ProbeKind::Liveness,
        ProbeKind::Readiness => wire::ProbeKind::Readiness,
    }
}

fn probe_kind_from_wire(kind: wire::ProbeKind) -> ProbeKind {
    match kind {
        wire::ProbeKind::Startup => ProbeKind::Startup,
        wire::ProbeKind::Liveness => ProbeKind::Liveness,
        wire::ProbeKind::Readiness => ProbeKind::Readiness,
    }
}

fn policy(text: &str, message: &'static str) -> Result<RestartPolicy, WireError> {
    RestartPolicy::parse(text).ok_or(WireError { message, field: "restart_policy" })
}

fn required(text: String, message: &'static str, field: &'static str) -> Result<String, WireError> {
    if text.is_empty() { Err(WireError { message, field }) } else { Ok(text) }
}
