//! Lifecycle hooks on the wire.

use std::time::Duration;

use bulkhead_model::probe::Handler;

use super::WireError;
use super::views::{http_from_wire, http_to_wire};
use crate::prober::v1 as wire;
use crate::syncd::v1 as syncd;

const MESSAGE: &str = "RunHookRequest";

/// A hook that prober is asked to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookCall {
    /// The container.
    pub container_id: String,
    /// A command, or an HTTP GET with its host.
    pub handler: Handler,
    /// How long it may take; at least 1 s, whole seconds.
    pub timeout: Duration,
}

/// For prober.
pub fn hook_call_to_wire(call: &HookCall) -> wire::RunHookRequest {
    use wire::run_hook_request::Handler as Wire;
    let handler = match &call.handler {
        Handler::Exec { command } => Some(Wire::Exec(syncd::Exec { command: command.clone() })),
        Handler::Http { .. } => http_to_wire(&call.handler).map(Wire::HttpGet),
        // No hook is one of these.
        Handler::Tcp { .. } | Handler::Grpc { .. } => None,
    };
    wire::RunHookRequest {
        container_id: call.container_id.clone(),
        handler,
        timeout_seconds: call.timeout.as_secs(),
    }
}

/// At prober.
///
/// # Errors
/// When the container, the handler or its port is missing.
pub fn hook_call_from_wire(call: wire::RunHookRequest) -> Result<HookCall, WireError> {
    use wire::run_hook_request::Handler as Wire;
    let missing = |field| WireError { message: MESSAGE, field };
    if call.container_id.is_empty() {
        return Err(missing("container_id"));
    }
    let handler = match call.handler.ok_or_else(|| missing("handler"))? {
        Wire::Exec(exec) => Handler::Exec { command: exec.command },
        Wire::HttpGet(http) => http_from_wire(http, MESSAGE)?,
    };
    let timeout = Duration::from_secs(call.timeout_seconds.max(1));
    Ok(HookCall { container_id: call.container_id, handler, timeout })
}

#[cfg(test)]
mod tests {
    use bulkhead_model::probe::{HttpHeader, HttpScheme};

    use super::*;

    #[test]
    fn hooks_survive_the_way() {
        let handlers = [
            Handler::Exec { command: vec!["a".into(), "b".into()] },
            Handler::Http {
                scheme: HttpScheme::Https,
                host: Some("10.0.0.1".into()),
                port: 8443,
                path: "/x".into(),
                headers: vec![HttpHeader { name: "A".into(), value: "b".into() }],
            },
        ];
        for handler in handlers {
            let call = HookCall { container_id: "c".into(), handler, timeout: Duration::from_secs(7) };
            assert_eq!(hook_call_from_wire(hook_call_to_wire(&call)).unwrap(), call);
        }
    }

    #[test]
    fn what_is_missing_is_an_error() {
        let call = wire::RunHookRequest { container_id: "c".into(), ..Default::default() };
        assert_eq!(hook_call_from_wire(call).unwrap_err().field, "handler");
        assert_eq!(hook_call_from_wire(wire::RunHookRequest::default()).unwrap_err().field, "container_id");
    }
}
