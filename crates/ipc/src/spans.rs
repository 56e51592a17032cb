//! The ring of finished spans that every process keeps, so that a pod's start can be drawn without a collector.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bulkhead_api::process::v1 as wire;
use opentelemetry::trace::{SpanId, Status};
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{Span, SpanData, SpanProcessor};

/// Spans kept. A pod start is about 10 spans in the busiest process, so this is the last 400 starts, in about 1 MB at most.
pub const RING: usize = 4096;
/// Longest attribute value kept.
const ATTRIBUTE_BYTES: usize = 256;
/// Attributes kept of one span.
const ATTRIBUTES: usize = 16;

/// The newest finished spans. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct SpanRing(Arc<Mutex<VecDeque<wire::Span>>>);

impl SpanRing {
    /// Spans that `request` asks for, by end time.
    pub fn list(&self, request: &wire::ListSpansRequest) -> Vec<wire::Span> {
        let ring = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        ring.iter()
            .filter(|span| {
                if !request.trace_id.is_empty() {
                    span.trace_id == request.trace_id
                } else if !request.pod_uid.is_empty() {
                    span.attributes.get("pod.uid") == Some(&request.pod_uid)
                } else {
                    true
                }
            })
            .cloned()
            .collect()
    }

    fn push(&self, span: wire::Span) {
        let mut ring = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if ring.len() >= RING {
            ring.pop_front();
        }
        ring.push_back(span);
    }
}

impl SpanProcessor for SpanRing {
    fn on_start(&self, _: &mut Span, _: &opentelemetry::Context) {}

    fn on_end(&self, span: SpanData) {
        let mut attributes = BTreeMap::new();
        for attribute in span.attributes.iter().take(ATTRIBUTES) {
            let mut value = attribute.value.to_string();
            value.truncate(value.floor_char_boundary(ATTRIBUTE_BYTES));
            attributes.insert(attribute.key.to_string(), value);
        }
        let error = match span.status {
            Status::Error { description } => description.into_owned(),
            Status::Unset | Status::Ok => String::new(),
        };
        let parent = (span.parent_span_id != SpanId::INVALID).then(|| span.parent_span_id.to_string());
        self.push(wire::Span {
            trace_id: span.span_context.trace_id().to_string(),
            span_id: span.span_context.span_id().to_string(),
            parent_span_id: parent.unwrap_or_default(),
            name: span.name.into_owned(),
            start_unix_nano: nanos(span.start_time),
            end_unix_nano: nanos(span.end_time),
            attributes: attributes.into_iter().collect(),
            error,
        });
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
        Ok(())
    }
}

fn nanos(at: SystemTime) -> u64 {
    let nanos = at.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    u64::try_from(nanos).unwrap_or(u64::MAX)
}
