//! The gRPC probe: one call of `grpc.health.v1.Health/Check`.

use bulkhead_base::chain;
use bulkhead_model::probe::GrpcMode;
use http::Uri;
use hyper::rt::{Read, Write};
use hyper_util::rt::TokioIo;
use tonic::Code;
use tonic::transport::{Channel, Endpoint};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use super::USER_AGENT;
use super::net::{Dialer, authority};
use super::tls::{Inside, Tls};
use crate::report::Report;

/// Largest answer taken; a real one has two bytes.
const ANSWER_BYTES: usize = 64 * 1024;

/// Whom to ask.
#[derive(Clone, Copy, Debug)]
pub struct Server<'a> {
    /// Address.
    pub host: &'a str,
    /// Port.
    pub port: u16,
    /// With or without TLS.
    pub mode: GrpcMode,
}

/// SERVING is a success; every other answer, and none, is a failure.
pub async fn check(dialer: &Dialer, tls: &Tls, server: Server<'_>, service: &str) -> Report {
    match connect(dialer, tls, server).await {
        Ok(channel) => ask(channel, service).await,
        Err(report) => report,
    }
}

/// What a probe makes of the answer over `stream`: for fuzzing.
#[cfg(any(test, fuzzing))]
pub(super) async fn answer_over(stream: tokio::io::DuplexStream) -> Report {
    match speak("http", "10.0.0.1", 80, stream).await {
        Ok(channel) => ask(channel, "a").await,
        Err(report) => report,
    }
}

async fn ask(channel: Channel, service: &str) -> Report {
    let mut client = HealthClient::new(channel).max_decoding_message_size(ANSWER_BYTES);
    let status = match client.check(HealthCheckRequest { service: service.to_owned() }).await {
        Ok(answer) => answer.into_inner().status,
        Err(status) => {
            return Report::failure(match status.code() {
                Code::Unimplemented => {
                    "the server has no gRPC health service (grpc.health.v1.Health)".to_owned()
                }
                Code::NotFound => format!("the server's health service does not know service {service:?}"),
                code => format!("the health check failed with {code:?}: {}", status.message()),
            });
        }
    };
    match ServingStatus::try_from(status) {
        Ok(ServingStatus::Serving) => Report::success(),
        Ok(other) => Report::failure(format!("service unhealthy (responded with {:?})", other.as_str_name())),
        Err(_) => Report::failure(format!("service unhealthy (responded with status {status})")),
    }
}

async fn connect(dialer: &Dialer, tls: &Tls, server: Server<'_>) -> Result<Channel, Report> {
    let Server { host, port, mode } = server;
    let failed = |error: &(dyn std::error::Error + 'static)| Report::failure(chain(error).to_string());
    let stream = dialer.connect(host, port).await.map_err(|error| failed(&error))?;
    match mode {
        GrpcMode::Plaintext => speak("http", host, port, stream).await,
        GrpcMode::Tls => {
            let stream = tls.wrap(host, stream, Inside::Grpc).await.map_err(|error| failed(&error))?;
            speak("https", host, port, stream).await
        }
    }
}

/// HTTP/2 over a connection that is there already, and that is never made again.
async fn speak<S>(scheme: &str, host: &str, port: u16, stream: S) -> Result<Channel, Report>
where
    TokioIo<S>: Read + Write + Unpin + Send + 'static,
    S: Send + 'static,
{
    let failed = |error: &(dyn std::error::Error + 'static)| Report::failure(chain(error).to_string());
    let authority = authority(host, port);
    // What the server sees; the endpoint's own scheme would ask tonic for TLS of its own.
    let seen: Uri =
        format!("{scheme}://{authority}").parse().map_err(|error: http::uri::InvalidUri| failed(&error))?;
    let endpoint = Endpoint::from_shared(format!("http://{authority}"))
        .and_then(|endpoint| endpoint.user_agent(USER_AGENT))
        .map_err(|error| failed(&error))?;
    let mut stream = Some(TokioIo::new(stream));
    let connector = tower::service_fn(move |_: Uri| {
        let stream = stream.take();
        async move { stream.ok_or_else(|| std::io::Error::other("the server closed the connection")) }
    });
    endpoint.origin(seen).connect_with_connector(connector).await.map_err(|error| failed(&error))
}
