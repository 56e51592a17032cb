//! Lifecycle hooks of a container, ready to be run.
//!
//! Owns what `lifecycle.postStart` and `lifecycle.preStop` of the API mean. Must never run one.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, LifecycleHandler, Probe};

use crate::probe::{Handler, HttpHeader, ProbeError, ProbeKind, ProbeSpec};

/// How HTTP hooks name themselves (the kubelet's form).
const USER_AGENT: &str = "kube-lifecycle/1.37";

/// Which of a container's hooks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HookKind {
    /// After the container's start; until it has ended well nothing counts the container as started.
    PostStart,
    /// Before the signal to end; shares the grace period with it.
    PreStop,
}

/// What a hook does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hook {
    /// A command or an HTTP GET.
    Run(Handler),
    /// Waits.
    Sleep(Duration),
}

/// Why a hook cannot be run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HookError {
    /// None of `exec`, `httpGet`, `sleep` is set. `tcpSocket` never was a hook: the API keeps it for old objects.
    #[error("set one of exec, httpGet, sleep")]
    NoHandler,
    /// The port is neither a number from 1 to 65535 nor the name of one of the container's ports.
    #[error("port {0:?} is neither 1 to 65535 nor a named port of the container")]
    Port(String),
    /// A field holds a value that is unknown or not supported.
    #[error("{field} {value:?} is not supported")]
    Value {
        /// Field beneath the hook, such as `httpGet.scheme`.
        field: &'static str,
        /// Its value.
        value: String,
    },
}

impl HookKind {
    /// As the API names it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::PostStart => "postStart",
            Self::PreStop => "preStop",
        }
    }

    /// The kubelet's reason for one that failed.
    pub fn failure(self) -> &'static str {
        match self {
            Self::PostStart => "FailedPostStartHook",
            Self::PreStop => "FailedPreStopHook",
        }
    }
}

/// Whether the container has this hook.
pub fn has(container: &Container, kind: HookKind) -> bool {
    written(container, kind).is_some()
}

/// The container's hook of this kind; `None` if it has none.
///
/// # Errors
/// [`HookError`] when there is nothing to run, a port cannot be resolved or a value is unknown.
pub fn of(container: &Container, kind: HookKind) -> Result<Option<Hook>, HookError> {
    let Some(hook) = written(container, kind) else { return Ok(None) };
    if let Some(sleep) = &hook.sleep {
        return Ok(Some(Hook::Sleep(Duration::from_secs(u64::try_from(sleep.seconds).unwrap_or(0)))));
    }
    // The actions of hooks are those of probes.
    let probe = Probe { exec: hook.exec.clone(), http_get: hook.http_get.clone(), ..Default::default() };
    let mut handler = ProbeSpec::new(ProbeKind::Startup, &probe, container)?.handler;
    if let Handler::Http { headers, .. } = &mut handler
        && !headers.iter().any(|header| header.name.eq_ignore_ascii_case("user-agent"))
    {
        headers.push(HttpHeader { name: "User-Agent".to_owned(), value: USER_AGENT.to_owned() });
    }
    Ok(Some(Hook::Run(handler)))
}

fn written(container: &Container, kind: HookKind) -> Option<&LifecycleHandler> {
    let lifecycle = container.lifecycle.as_ref()?;
    match kind {
        HookKind::PostStart => lifecycle.post_start.as_ref(),
        HookKind::PreStop => lifecycle.pre_stop.as_ref(),
    }
}

impl From<ProbeError> for HookError {
    fn from(error: ProbeError) -> Self {
        match error {
            ProbeError::NoHandler { .. } => Self::NoHandler,
            ProbeError::Port { port, .. } => Self::Port(port),
            ProbeError::Value { field, value, .. } => Self::Value { field, value },
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::probe::HttpScheme;

    fn container(hook: Value) -> Container {
        let json = json!({
            "name": "c", "ports": [{"name": "web", "containerPort": 8443}],
            "lifecycle": {"preStop": hook}
        });
        serde_json::from_value(json).unwrap()
    }

    fn pre_stop(hook: Value) -> Result<Option<Hook>, HookError> {
        of(&container(hook), HookKind::PreStop)
    }

    #[test]
    fn hooks_are_what_the_api_says() {
        let exec = Hook::Run(Handler::Exec { command: vec!["true".into()] });
        assert_eq!(pre_stop(json!({"exec": {"command": ["true"]}})), Ok(Some(exec)));
        assert_eq!(pre_stop(json!({"sleep": {"seconds": 3}})), Ok(Some(Hook::Sleep(Duration::from_secs(3)))));
        assert_eq!(of(&container(json!({})), HookKind::PostStart), Ok(None));
        assert!(has(&container(json!({})), HookKind::PreStop));
        assert_eq!(pre_stop(json!({})), Err(HookError::NoHandler));
        assert_eq!(pre_stop(json!({"tcpSocket": {"port": 80}})), Err(HookError::NoHandler));
        assert_eq!(pre_stop(json!({"httpGet": {"port": "none"}})), Err(HookError::Port("none".into())));
        let scheme = HookError::Value { field: "httpGet.scheme", value: "FTP".into() };
        assert_eq!(pre_stop(json!({"httpGet": {"port": 1, "scheme": "FTP"}})), Err(scheme));
    }

    #[test]
    fn scheme_host_and_headers_are_kept_and_the_sender_is_named() {
        let header = |name: &str, value: &str| HttpHeader { name: name.into(), value: value.into() };
        let http = |headers: Value| {
            pre_stop(json!({"httpGet": {
                "scheme": "HTTPS", "host": "h", "port": "web", "path": "bye", "httpHeaders": headers
            }}))
        };
        let expected = |headers| {
            Ok(Some(Hook::Run(Handler::Http {
                scheme: HttpScheme::Https,
                host: Some("h".into()),
                port: 8443,
                path: "/bye".into(),
                headers,
            })))
        };
        let named = header("User-Agent", "kube-lifecycle/1.37");
        assert_eq!(http(json!([])), expected(vec![named.clone()]));
        assert_eq!(http(json!([{"name": "Host", "value": "x"}])), expected(vec![header("Host", "x"), named]));
        assert_eq!(
            http(json!([{"name": "user-agent", "value": "me"}])),
            expected(vec![header("user-agent", "me")])
        );
    }
}
