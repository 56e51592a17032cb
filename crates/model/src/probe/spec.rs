//! Reads the API's probe of a container: defaults applied, ports resolved, bounds kept.

use std::fmt;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, GRPCAction, HTTPGetAction, Probe};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::ProbeKind;

/// One probe, ready to be run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeSpec {
    /// Which of the container's probes.
    pub kind: ProbeKind,
    /// What to do.
    pub handler: Handler,
    /// Wait after the container's start; default 0.
    pub initial_delay: Duration,
    /// Time between runs; default 10 s, at least 1 s.
    pub period: Duration,
    /// How long one run may take; default 1 s, at least 1 s.
    pub timeout: Duration,
    /// Successes in a row that make a success; default 1, at least 1; always 1 for startup and liveness.
    pub success_threshold: u32,
    /// Failures in a row that make a failure; default 3, at least 1.
    pub failure_threshold: u32,
    /// Grace for the kill that a failed startup or liveness probe causes, in place of the pod's.
    pub termination_grace: Option<Duration>,
}

/// What a probe does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Handler {
    /// An HTTP GET; 200 to 399 is a success.
    Http {
        /// HTTP or HTTPS without checking the certificate.
        scheme: HttpScheme,
        /// Host to connect to; `None` means the pod's address.
        host: Option<String>,
        /// Port number, 1 to 65535.
        port: u16,
        /// Path with query; begins with `/`.
        path: String,
        /// Sent as they are; a `Host` entry sets the request's host.
        headers: Vec<HttpHeader>,
    },
    /// A TCP connection that is opened and closed.
    Tcp {
        /// Host to connect to; `None` means the pod's address.
        host: Option<String>,
        /// Port number, 1 to 65535.
        port: u16,
    },
    /// A command in the container; exit code 0 is a success.
    Exec {
        /// The command with its arguments; not run through a shell.
        command: Vec<String>,
    },
    /// A call of `grpc.health.v1.Health/Check`.
    Grpc {
        /// Port number, 1 to 65535.
        port: u16,
        /// `service` of the request; empty asks for the server as a whole.
        service: String,
        /// Plain text or TLS.
        mode: GrpcMode,
    },
}

/// Scheme of an HTTP probe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HttpScheme {
    /// Plain text.
    #[default]
    Http,
    /// TLS; the certificate is not checked.
    Https,
}

/// How a gRPC probe connects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GrpcMode {
    /// Without TLS.
    #[default]
    Plaintext,
    /// With TLS; the certificate is not checked.
    Tls,
}

/// One header of an HTTP probe. Its value may be a credential: `Debug` hides it.
#[derive(Clone, PartialEq, Eq)]
pub struct HttpHeader {
    /// Header name as the pod writes it.
    pub name: String,
    /// Header value; never shown.
    pub value: String,
}

/// Why a probe cannot be run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProbeError {
    /// None of `httpGet`, `tcpSocket`, `exec`, `grpc` is set.
    #[error("{} probe of container {container}: set one of httpGet, tcpSocket, exec, grpc", kind.as_str())]
    NoHandler {
        /// Which probe.
        kind: ProbeKind,
        /// Whose probe.
        container: String,
    },
    /// The port is neither a number from 1 to 65535 nor the name of one of the container's ports.
    #[error(
        "{} probe of container {container}: port {port:?} is neither 1 to 65535 nor a named port of the container",
        kind.as_str()
    )]
    Port {
        /// Which probe.
        kind: ProbeKind,
        /// Whose probe.
        container: String,
        /// The port as the pod writes it.
        port: String,
    },
    /// A field holds a value that is unknown or not supported.
    #[error("{} probe of container {container}: {field} {value:?} is not supported", kind.as_str())]
    Value {
        /// Which probe.
        kind: ProbeKind,
        /// Whose probe.
        container: String,
        /// Field beneath the probe, such as `httpGet.scheme`.
        field: &'static str,
        /// Its value.
        value: String,
    },
}

impl fmt::Debug for HttpHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpHeader").field("name", &self.name).finish_non_exhaustive()
    }
}

impl HttpScheme {
    /// As a URL begins.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }
}

impl ProbeSpec {
    /// Reads `probe`, the `kind` probe of `container`. Numbers below their bounds are raised to them.
    ///
    /// # Errors
    /// [`ProbeError`] when there is nothing to run, a port cannot be resolved or a value is unknown.
    pub fn new(kind: ProbeKind, probe: &Probe, container: &Container) -> Result<Self, ProbeError> {
        let reader = Reader { kind, container };
        let success_threshold = match kind {
            ProbeKind::Startup | ProbeKind::Liveness => 1,
            ProbeKind::Readiness => at_least_one(probe.success_threshold, 1),
        };
        Ok(Self {
            kind,
            handler: reader.handler(probe)?,
            initial_delay: Duration::from_secs(non_negative(probe.initial_delay_seconds.unwrap_or(0)).into()),
            period: Duration::from_secs(at_least_one(probe.period_seconds, 10).into()),
            timeout: Duration::from_secs(at_least_one(probe.timeout_seconds, 1).into()),
            success_threshold,
            failure_threshold: at_least_one(probe.failure_threshold, 3),
            // The API allows none on readiness probes: they kill nothing.
            termination_grace: match kind {
                ProbeKind::Readiness => None,
                ProbeKind::Startup | ProbeKind::Liveness => {
                    probe.termination_grace_period_seconds.map(crate::grace::seconds)
                }
            },
        })
    }

    /// The container's probe of this kind; `None` if it has none.
    ///
    /// # Errors
    /// As [`ProbeSpec::new`].
    pub fn of(kind: ProbeKind, container: &Container) -> Result<Option<Self>, ProbeError> {
        let probe = match kind {
            ProbeKind::Startup => &container.startup_probe,
            ProbeKind::Liveness => &container.liveness_probe,
            ProbeKind::Readiness => &container.readiness_probe,
        };
        probe.as_ref().map(|probe| Self::new(kind, probe, container)).transpose()
    }

    /// What is left of the initial delay for a container that has run for `running_for`.
    pub fn delay_left(&self, running_for: Duration) -> Duration {
        self.initial_delay.saturating_sub(running_for)
    }
}

struct Reader<'a> {
    kind: ProbeKind,
    container: &'a Container,
}

impl Reader<'_> {
    fn handler(&self, probe: &Probe) -> Result<Handler, ProbeError> {
        if let Some(exec) = &probe.exec {
            Ok(Handler::Exec { command: exec.command.clone().unwrap_or_default() })
        } else if let Some(http) = &probe.http_get {
            self.http(http)
        } else if let Some(tcp) = &probe.tcp_socket {
            Ok(Handler::Tcp { host: non_empty(&tcp.host), port: self.port(&tcp.port)? })
        } else if let Some(grpc) = &probe.grpc {
            self.grpc(grpc)
        } else {
            Err(ProbeError::NoHandler { kind: self.kind, container: self.container.name.clone() })
        }
    }

    fn http(&self, http: &HTTPGetAction) -> Result<Handler, ProbeError> {
        let scheme = match http.scheme.as_deref().unwrap_or("") {
            "" => HttpScheme::Http,
            text if text.eq_ignore_ascii_case("http") => HttpScheme::Http,
            text if text.eq_ignore_ascii_case("https") => HttpScheme::Https,
            other => return Err(self.value("httpGet.scheme", other)),
        };
        if let Some(protocol) = http.protocol.as_deref().filter(|text| !matches!(*text, "" | "HTTP/1.1")) {
            return Err(self.value("httpGet.protocol", protocol));
        }
        let path = http.path.as_deref().unwrap_or("");
        let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        let headers = http.http_headers.iter().flatten();
        let headers = headers.map(|h| HttpHeader { name: h.name.clone(), value: h.value.clone() }).collect();
        Ok(Handler::Http { scheme, host: non_empty(&http.host), port: self.port(&http.port)?, path, headers })
    }

    fn grpc(&self, grpc: &GRPCAction) -> Result<Handler, ProbeError> {
        let mode = match grpc.mode.as_deref().unwrap_or("") {
            "" | "Plaintext" => GrpcMode::Plaintext,
            "TLS" => GrpcMode::Tls,
            other => return Err(self.value("grpc.mode", other)),
        };
        let port = self.port(&IntOrString::Int(grpc.port))?;
        Ok(Handler::Grpc { port, service: grpc.service.clone().unwrap_or_default(), mode })
    }

    /// A number, a name among the container's ports, or a number in quotes; a name wins over a number in quotes.
    fn port(&self, port: &IntOrString) -> Result<u16, ProbeError> {
        let number = match port {
            IntOrString::Int(number) => Some(*number),
            IntOrString::String(text) => {
                let mut ports = self.container.ports.iter().flatten();
                let named = ports.find(|p| p.name.as_ref() == Some(text)).map(|p| p.container_port);
                named.or_else(|| text.parse().ok())
            }
        };
        let port_number = number.and_then(|number| u16::try_from(number).ok()).filter(|number| *number != 0);
        port_number.ok_or_else(|| ProbeError::Port {
            kind: self.kind,
            container: self.container.name.clone(),
            port: match port {
                IntOrString::Int(number) => number.to_string(),
                IntOrString::String(text) => text.clone(),
            },
        })
    }

    fn value(&self, field: &'static str, value: &str) -> ProbeError {
        let container = self.container.name.clone();
        ProbeError::Value { kind: self.kind, container, field, value: value.to_owned() }
    }
}

fn non_empty(text: &Option<String>) -> Option<String> {
    text.clone().filter(|text| !text.is_empty())
}

fn non_negative(number: i32) -> u32 {
    u32::try_from(number).unwrap_or(0)
}

/// `None` and 0 mean "not set" in the API.
fn at_least_one(number: Option<i32>, default: u32) -> u32 {
    match number {
        None | Some(0) => default,
        Some(number) => non_negative(number).max(1),
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{ContainerPort, ExecAction, HTTPHeader, TCPSocketAction};

    use super::*;

    fn container() -> Container {
        let port = |name: &str, number| ContainerPort {
            name: Some(name.into()),
            container_port: number,
            ..Default::default()
        };
        Container {
            name: "c".into(),
            ports: Some(vec![port("web", 8080), port("bad", 70000)]),
            ..Default::default()
        }
    }

    fn tcp(port: IntOrString) -> Probe {
        Probe { tcp_socket: Some(TCPSocketAction { host: None, port }), ..Default::default() }
    }

    #[test]
    fn defaults_are_the_apis() {
        let probe =
            Probe { exec: Some(ExecAction { command: Some(vec!["true".into()]) }), ..Default::default() };
        let spec = ProbeSpec::new(ProbeKind::Liveness, &probe, &container()).unwrap();
        let expected = ProbeSpec {
            kind: ProbeKind::Liveness,
            handler: Handler::Exec { command: vec!["true".into()] },
            initial_delay: Duration::ZERO,
            period: Duration::from_secs(10),
            timeout: Duration::from_secs(1),
            success_threshold: 1,
            failure_threshold: 3,
            termination_grace: None,
        };
        assert_eq!(spec, expected);
    }

    #[test]
    fn numbers_are_kept_within_their_bounds() {
        let probe = Probe {
            initial_delay_seconds: Some(-5),
            period_seconds: Some(-1),
            timeout_seconds: Some(0),
            success_threshold: Some(4),
            failure_threshold: Some(i32::MIN),
            termination_grace_period_seconds: Some(7),
            ..tcp(IntOrString::Int(80))
        };
        let readiness = ProbeSpec::new(ProbeKind::Readiness, &probe, &container()).unwrap();
        assert_eq!(readiness.initial_delay, Duration::ZERO);
        assert_eq!((readiness.period, readiness.timeout), (Duration::from_secs(1), Duration::from_secs(1)));
        assert_eq!((readiness.success_threshold, readiness.failure_threshold), (4, 1));
        assert_eq!(readiness.termination_grace, None, "a readiness probe kills nothing");
        let startup = ProbeSpec::new(ProbeKind::Startup, &probe, &container()).unwrap();
        assert_eq!(startup.success_threshold, 1);
        assert_eq!(startup.termination_grace, Some(Duration::from_secs(7)));
        let late = ProbeSpec { initial_delay: Duration::from_secs(9), ..startup };
        assert_eq!(late.delay_left(Duration::from_secs(4)), Duration::from_secs(5));
        assert_eq!(late.delay_left(Duration::from_secs(40)), Duration::ZERO);
    }

    #[test]
    fn ports_are_numbers_names_or_quoted_numbers() {
        let text = |text: &str| IntOrString::String(text.into());
        let table = [
            (IntOrString::Int(1), Some(1)),
            (IntOrString::Int(65535), Some(65535)),
            (text("web"), Some(8080)),
            (text("9090"), Some(9090)),
            (IntOrString::Int(0), None),
            (IntOrString::Int(65536), None),
            (IntOrString::Int(-1), None),
            (text("bad"), None),
            (text("other"), None),
            (text(""), None),
        ];
        for (port, expected) in table {
            let spec = ProbeSpec::new(ProbeKind::Readiness, &tcp(port.clone()), &container());
            match expected {
                Some(port) => assert_eq!(spec.unwrap().handler, Handler::Tcp { host: None, port }),
                None => assert!(matches!(spec, Err(ProbeError::Port { .. })), "{port:?}"),
            }
        }
    }

    #[test]
    fn http_and_grpc_fields_are_read_and_unknown_values_refused() {
        let http = |scheme: Option<&str>, path: Option<&str>, protocol: Option<&str>| Probe {
            http_get: Some(HTTPGetAction {
                scheme: scheme.map(Into::into),
                path: path.map(Into::into),
                protocol: protocol.map(Into::into),
                host: Some(String::new()),
                port: IntOrString::Int(80),
                http_headers: Some(vec![HTTPHeader { name: "Authorization".into(), value: "s3cret".into() }]),
            }),
            ..Default::default()
        };
        for (scheme, path, expected_scheme, expected_path) in [
            (None, None, HttpScheme::Http, "/"),
            (Some("HTTP"), Some("ok?a=b"), HttpScheme::Http, "/ok?a=b"),
            (Some("https"), Some("/x"), HttpScheme::Https, "/x"),
        ] {
            let spec = ProbeSpec::new(ProbeKind::Readiness, &http(scheme, path, None), &container()).unwrap();
            assert!(!format!("{spec:?}").contains("s3cret"), "header values stay out of Debug");
            let Handler::Http { scheme, host, path, .. } = spec.handler else { panic!("not http") };
            assert_eq!((scheme, host, path.as_str()), (expected_scheme, None, expected_path));
        }
        for probe in [http(Some("ftp"), None, None), http(None, None, Some("HTTP/9"))] {
            let refused = ProbeSpec::new(ProbeKind::Readiness, &probe, &container());
            assert!(matches!(refused, Err(ProbeError::Value { .. })));
        }
        let grpc = |mode: Option<&str>| Probe {
            grpc: Some(GRPCAction { port: 5000, mode: mode.map(Into::into), service: None }),
            ..Default::default()
        };
        for (mode, expected) in
            [(None, Some(GrpcMode::Plaintext)), (Some("TLS"), Some(GrpcMode::Tls)), (Some("ssl"), None)]
        {
            let spec = ProbeSpec::new(ProbeKind::Startup, &grpc(mode), &container()).ok();
            let expected = expected.map(|mode| Handler::Grpc { port: 5000, service: String::new(), mode });
            assert_eq!(spec.map(|spec| spec.handler), expected);
        }
    }

    #[test]
    fn a_probe_without_a_handler_is_refused_by_name() {
        let error = ProbeSpec::new(ProbeKind::Startup, &Probe::default(), &container()).unwrap_err();
        let text = "Startup probe of container c: set one of httpGet, tcpSocket, exec, grpc";
        assert_eq!(error.to_string(), text);
        assert_eq!(ProbeSpec::of(ProbeKind::Startup, &container()), Ok(None));
    }
}
