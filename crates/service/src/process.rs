//! bulkhead.process.v1: what a process answers about itself.

use std::sync::Arc;

use bulkhead_api::convert::timestamp_to_wire;
use bulkhead_api::process::v1 as wire;
use bulkhead_ipc::PeerBoard;
use bulkhead_ipc::server::Guard;
use bulkhead_ipc::spans::SpanRing;
use jiff::Timestamp;
use tonic::{Request, Response, Status};

use crate::health::Checks;
use crate::logs::LogBoard;
use crate::metrics::{Metrics, process_metrics};

/// Everything that the methods read.
pub(crate) struct ProcessService {
    pub(crate) name: &'static str,
    pub(crate) uid: u32,
    pub(crate) started_at: Timestamp,
    pub(crate) checks: Checks,
    pub(crate) peers: PeerBoard,
    pub(crate) logs: LogBoard,
    pub(crate) spans: SpanRing,
    pub(crate) metrics: Metrics,
    pub(crate) guard: Arc<Guard>,
}

#[tonic::async_trait]
impl wire::process_server::Process for ProcessService {
    async fn get_status(
        &self,
        _: Request<wire::GetStatusRequest>,
    ) -> Result<Response<wire::ProcessStatus>, Status> {
        let checks = self.checks.snapshot().into_iter().map(|(name, state)| wire::Check {
            name: name.to_owned(),
            ok: state.reason.is_empty(),
            reason: state.reason,
            since: Some(timestamp_to_wire(state.since)),
        });
        let peers = self.peers.snapshot().into_iter().map(|(name, state)| wire::Peer {
            name,
            connected: state.connected,
            since: Some(timestamp_to_wire(state.since)),
            last_error: state.last_error,
            last_error_at: state.last_error_at.map(timestamp_to_wire),
        });
        let (last_error_at, last_error) = self.logs.last_error().unzip();
        Ok(Response::new(wire::ProcessStatus {
            name: self.name.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            uid: self.uid,
            started_at: Some(timestamp_to_wire(self.started_at)),
            ready: self.checks.is_ready(),
            checks: checks.collect(),
            peers: peers.collect(),
            last_error: last_error.unwrap_or_default(),
            last_error_at: last_error_at.map(timestamp_to_wire),
            suppressed_log_lines: self.logs.suppressed(),
            refused_calls: self.guard.refused(),
        }))
    }

    async fn list_spans(
        &self,
        request: Request<wire::ListSpansRequest>,
    ) -> Result<Response<wire::ListSpansResponse>, Status> {
        Ok(Response::new(wire::ListSpansResponse { spans: self.spans.list(request.get_ref()) }))
    }

    async fn get_metrics(
        &self,
        _: Request<wire::GetMetricsRequest>,
    ) -> Result<Response<wire::Metrics>, Status> {
        let started = self.started_at.as_millisecond();
        #[expect(clippy::cast_precision_loss, reason = "Prometheus knows no other numbers")]
        let mut families = process_metrics(started as f64 / 1000.0);
        families.extend(self.metrics.gather());
        Ok(Response::new(wire::Metrics { families }))
    }
}
