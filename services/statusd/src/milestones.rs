//! The last spans of a pod's start: its status says Running, and Ready.

use bulkhead_ipc::{trace, traced};

use crate::record::Reached;

/// Adds a span for each step that was reached to the trace of the pod's start, if it has one.
pub(crate) fn trace(uid: &str, traceparent: &str, newly: Reached) {
    if traceparent.is_empty() {
        return;
    }
    if newly.running {
        trace::set_parent(&traced!("statusd Running", pod.uid = %uid), traceparent);
    }
    if newly.ready {
        trace::set_parent(&traced!("statusd Ready", pod.uid = %uid), traceparent);
    }
}

#[cfg(test)]
mod tests {
    use bulkhead_api::process::v1::ListSpansRequest;
    use bulkhead_ipc::spans::SpanRing;
    use opentelemetry::trace::TracerProvider as _;
    use opentelemetry_sdk::trace::SdkTracerProvider;
    use tracing_subscriber::layer::SubscriberExt;

    use super::*;
    use crate::fake::PARENT;

    fn spans(traceparent: &str, running: bool, ready: bool) -> Vec<String> {
        let ring = SpanRing::default();
        let provider = SdkTracerProvider::builder().with_span_processor(ring.clone()).build();
        let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("test"));
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
            trace("u", traceparent, Reached { running, ready });
        });
        let spans = ring.list(&ListSpansRequest { pod_uid: "u".to_owned(), ..ListSpansRequest::default() });
        let below = spans.iter().all(|span| span.parent_span_id == "b7ad6b7169203331");
        assert!(below, "{spans:?}");
        spans.into_iter().map(|span| span.name).collect()
    }

    #[test]
    fn steps_hang_below_the_start() {
        assert_eq!(spans(PARENT, true, false), ["statusd Running"]);
        assert_eq!(spans(PARENT, false, true), ["statusd Ready"]);
        assert_eq!(spans(PARENT, true, true), ["statusd Running", "statusd Ready"]);
        assert!(spans(PARENT, false, false).is_empty());
        assert!(spans("", true, true).is_empty(), "no start to hang below");
    }
}
