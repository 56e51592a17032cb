//! What any process answers about itself.

use std::time::Duration;

use bulkhead_api::process::v1 as wire;
use bulkhead_ipc::PeerChannel;
use bulkhead_ipc::status::with_deadline;
use tonic::Status;
use tonic_health::pb::health_client::HealthClient;
use tonic_health::pb::{HealthCheckRequest, health_check_response::ServingStatus};
use wire::process_client::ProcessClient;

/// Deadline of a question.
const ASK: Duration = Duration::from_secs(2);
/// Deadline of a list of spans.
const SPANS: Duration = Duration::from_secs(5);
/// A full ring is about 1 MB.
const MESSAGE_BYTES: usize = 16 * 1024 * 1024;

/// Whether a process serves (grpc.health.v1).
pub async fn serving(channel: &PeerChannel) -> bool {
    let request = with_deadline(HealthCheckRequest::default(), ASK);
    let answer = HealthClient::new(channel.clone()).check(request).await;
    answer.is_ok_and(|answer| answer.into_inner().status() == ServingStatus::Serving)
}

/// What a process that does not serve says it is missing, in one line.
pub async fn missing(channel: &PeerChannel) -> String {
    let Ok(status) = status(channel).await else { return "it does not answer".to_owned() };
    let bad = status.checks.iter().filter(|check| !check.ok);
    let bad: Vec<_> = bad.map(|check| format!("{}: {}", check.name, check.reason)).collect();
    if bad.is_empty() { "it does not say why".to_owned() } else { bad.join("; ") }
}

/// A process' own words.
pub async fn status(channel: &PeerChannel) -> Result<wire::ProcessStatus, Status> {
    let request = with_deadline(wire::GetStatusRequest {}, ASK);
    Ok(ProcessClient::new(channel.clone()).get_status(request).await?.into_inner())
}

/// Spans that a process kept.
pub async fn spans(
    channel: &PeerChannel,
    request: wire::ListSpansRequest,
) -> Result<Vec<wire::Span>, Status> {
    let request = with_deadline(request, SPANS);
    let mut client = ProcessClient::new(channel.clone()).max_decoding_message_size(MESSAGE_BYTES);
    Ok(client.list_spans(request).await?.into_inner().spans)
}

/// The cause behind a failed call, which tonic hides below `transport error`.
pub fn why(status: &Status) -> String {
    let mut cause = std::error::Error::source(status);
    let mut text = status.message().to_owned();
    while let Some(error) = cause {
        text = error.to_string();
        cause = error.source();
    }
    text
}
