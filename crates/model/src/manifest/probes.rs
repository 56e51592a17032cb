//! Probes and lifecycle hooks of a manifest.

use k8s_openapi::api::core::v1::{
    Container, ExecAction, GRPCAction, HTTPGetAction, LifecycleHandler, PodSpec, Probe, TCPSocketAction,
};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::path::{At, Fault};
use super::text::{at_most, is_header_name, is_port_name, one_of};
use crate::signal;

/// Most headers of one request.
const MAX_HEADERS: usize = 100;
/// Longest path of a request in bytes.
const MAX_PATH: usize = 4096;

/// What a handler may be; each of its actions stands alone.
struct Actions<'a> {
    exec: Option<&'a ExecAction>,
    http: Option<&'a HTTPGetAction>,
    tcp: Option<&'a TCPSocketAction>,
    grpc: Option<&'a GRPCAction>,
    sleep_seconds: Option<i64>,
}

/// The probes and hooks of one container.
pub(super) fn check(at: &At<'_>, spec: &PodSpec, container: &Container) -> Result<(), Fault> {
    for (field, probe) in probes(container) {
        if let Some(probe) = probe {
            check_probe(&at.field(field), field, probe)?;
        }
    }
    let lifecycle = container.lifecycle.as_ref();
    let at = at.field("lifecycle");
    for (field, hook) in [
        ("postStart", lifecycle.and_then(|l| l.post_start.as_ref())),
        ("preStop", lifecycle.and_then(|l| l.pre_stop.as_ref())),
    ] {
        if let Some(hook) = hook {
            check_hook(&at.field(field), hook)?;
        }
    }
    match signal::of(container) {
        Some(name) => check_stop_signal(&at.field("stopSignal"), spec, name),
        None => Ok(()),
    }
}

/// Which signals there are depends on the system, so it must be named (the API's rule).
fn check_stop_signal(at: &At<'_>, spec: &PodSpec, name: &str) -> Result<(), Fault> {
    let system = spec.os.as_ref().map(|os| os.name.as_str());
    at.require(system.is_some(), "can be set only together with spec.os.name")?;
    match system {
        Some("windows") => at.require(
            matches!(name, "SIGTERM" | "SIGKILL"),
            "must be SIGTERM or SIGKILL for the operating system windows",
        ),
        _ => at.require(
            signal::is_known(name),
            "must be the name of a signal, such as SIGTERM, SIGUSR1 or SIGRTMIN+1",
        ),
    }
}

/// An init container that ends has nothing to probe and no life to hook into.
pub(super) fn none(at: &At<'_>, container: &Container) -> Result<(), Fault> {
    let rule = "cannot be set on an init container, unless its restartPolicy is Always";
    for (field, probe) in probes(container) {
        at.field(field).require(probe.is_none(), rule)?;
    }
    at.field("lifecycle").require(container.lifecycle.is_none(), rule)
}

fn probes(container: &Container) -> [(&'static str, Option<&Probe>); 3] {
    [
        ("startupProbe", container.startup_probe.as_ref()),
        ("livenessProbe", container.liveness_probe.as_ref()),
        ("readinessProbe", container.readiness_probe.as_ref()),
    ]
}

fn check_probe(at: &At<'_>, kind: &str, probe: &Probe) -> Result<(), Fault> {
    let actions = Actions {
        exec: probe.exec.as_ref(),
        http: probe.http_get.as_ref(),
        tcp: probe.tcp_socket.as_ref(),
        grpc: probe.grpc.as_ref(),
        sleep_seconds: None,
    };
    check_actions(at, &actions, "must name exactly one of exec, httpGet, tcpSocket, grpc")?;
    for (field, number) in [
        ("initialDelaySeconds", probe.initial_delay_seconds),
        ("timeoutSeconds", probe.timeout_seconds),
        ("periodSeconds", probe.period_seconds),
        ("successThreshold", probe.success_threshold),
        ("failureThreshold", probe.failure_threshold),
    ] {
        at.field(field).require(number.unwrap_or(0) >= 0, "must not be negative")?;
    }
    let readiness = kind == "readinessProbe";
    let once = readiness || matches!(probe.success_threshold, None | Some(0 | 1));
    at.field("successThreshold").require(once, "must be 1 for this probe")?;
    if let Some(seconds) = probe.termination_grace_period_seconds {
        let at = at.field("terminationGracePeriodSeconds");
        at.require(!readiness, "cannot be set on a readiness probe: it ends nothing")?;
        at.require(seconds > 0, "must be greater than 0")?;
    }
    Ok(())
}

fn check_hook(at: &At<'_>, hook: &LifecycleHandler) -> Result<(), Fault> {
    let actions = Actions {
        exec: hook.exec.as_ref(),
        http: hook.http_get.as_ref(),
        tcp: hook.tcp_socket.as_ref(),
        grpc: None,
        sleep_seconds: hook.sleep.as_ref().map(|sleep| sleep.seconds),
    };
    check_actions(at, &actions, "must name exactly one of exec, httpGet, tcpSocket, sleep")
}

fn check_actions(at: &At<'_>, actions: &Actions<'_>, rule: &str) -> Result<(), Fault> {
    let Actions { exec, http, tcp, grpc, sleep_seconds } = actions;
    let count = [exec.is_some(), http.is_some(), tcp.is_some(), grpc.is_some(), sleep_seconds.is_some()];
    at.require(count.into_iter().filter(|set| *set).count() == 1, rule)?;
    if let Some(exec) = exec {
        let at = at.field("exec");
        let at = at.field("command");
        at.require(exec.command.as_ref().is_some_and(|words| !words.is_empty()), "is missing")?;
        let clean = exec.command.iter().flatten().all(|word| !word.contains('\0'));
        at.require(clean, "must not hold a NUL byte")?;
    }
    if let Some(http) = http {
        check_http(&at.field("httpGet"), http)?;
    }
    if let Some(tcp) = tcp {
        check_port(&at.field("tcpSocket").field("port"), &tcp.port)?;
    }
    if let Some(grpc) = grpc {
        check_port(&at.field("grpc").field("port"), &IntOrString::Int(grpc.port))?;
    }
    if let Some(seconds) = sleep_seconds {
        at.field("sleep").field("seconds").require(*seconds >= 0, "must not be negative")?;
    }
    Ok(())
}

fn check_http(at: &At<'_>, http: &HTTPGetAction) -> Result<(), Fault> {
    check_port(&at.field("port"), &http.port)?;
    one_of(&at.field("scheme"), http.scheme.as_deref(), &["HTTP", "HTTPS"])?;
    let path = http.path.as_deref().unwrap_or("/");
    at.field("path").require(path.len() <= MAX_PATH, "must have at most 4096 bytes")?;
    let clean = |text: &str| !text.contains(['\0', '\r', '\n']);
    at.field("path").require(clean(path), "must be one line")?;
    at.field("host").require(http.host.as_deref().is_none_or(clean), "must be one line")?;
    let list = at.field("httpHeaders");
    at_most(&list, http.http_headers.as_ref(), MAX_HEADERS)?;
    for (index, header) in http.http_headers.iter().flatten().enumerate() {
        let at = list.index(index);
        at.field("name").require(is_header_name(&header.name), "is not the name of an HTTP header")?;
        at.field("value").require(clean(&header.value), "must be one line")?;
    }
    Ok(())
}

fn check_port(at: &At<'_>, port: &IntOrString) -> Result<(), Fault> {
    let right = match port {
        IntOrString::Int(number) => (1..=65535).contains(number),
        IntOrString::String(name) => is_port_name(name),
    };
    at.require(right, "must be a number between 1 and 65535, or the name of a port")
}
