//! W3C trace context: out of the current span into a header, and back into a span's parent.

use opentelemetry::Context;
use opentelemetry::trace::{SpanContext, SpanId, TraceContextExt, TraceFlags, TraceId, TraceState};
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;

/// The header's name, in gRPC metadata and in a sandbox's annotation alike.
pub const TRACEPARENT: &str = "traceparent";
/// Spans with this target go into the ring; all others are only context for log lines.
pub const TARGET: &str = "bulkhead::trace";

/// A span that becomes part of a trace. Takes a name and fields as `tracing::info_span!` does. Never put environment values,
/// headers or file contents into a field.
#[macro_export]
macro_rules! traced {
    ($name:expr $(, $($fields:tt)*)?) => {
        ::tracing::info_span!(target: "bulkhead::trace", $name, otel.status_description = ::tracing::field::Empty $(, $($fields)*)?)
    };
}

/// The trace context of a span as a `traceparent` value; `None` when the span is not part of a trace.
pub fn traceparent(span: &Span) -> Option<String> {
    let context = span.context();
    let span = context.span();
    let context = span.span_context();
    context.is_valid().then(|| {
        format!("00-{}-{}-{:02x}", context.trace_id(), context.span_id(), context.trace_flags().to_u8())
    })
}

/// Makes the span of `traceparent` the parent of `span`; a value that is not valid changes nothing.
pub fn set_parent(span: &Span, traceparent: &str) {
    if let Some(context) = parse(traceparent) {
        // Fails only for a span that is already in a trace or disabled; it then stays as it is.
        let _ = span.set_parent(Context::new().with_remote_span_context(context));
    }
}

/// Notes on a span that its work failed. `error` must hold no secret.
pub fn fail(span: &Span, error: &dyn std::fmt::Display) {
    span.record("otel.status_description", tracing::field::display(error));
}

/// The 32 hex digits of a `traceparent` value's trace.
pub fn trace_id(traceparent: &str) -> Option<String> {
    parse(traceparent).map(|context| context.trace_id().to_string())
}

fn parse(traceparent: &str) -> Option<SpanContext> {
    let mut parts = traceparent.trim().split('-');
    let (version, trace, span, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    if version.len() != 2 || version == "ff" || trace.len() != 32 || span.len() != 16 || flags.len() != 2 {
        return None;
    }
    let trace = TraceId::from_hex(trace).ok()?;
    let span = SpanId::from_hex(span).ok()?;
    let flags = TraceFlags::new(u8::from_str_radix(flags, 16).ok()?);
    let context = SpanContext::new(trace, span, flags, true, TraceState::default());
    context.is_valid().then_some(context)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn only_valid_contexts_are_taken() {
        let good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        assert_eq!(trace_id(good).as_deref(), Some("0af7651916cd43dd8448eb211c80319c"));
        for bad in [
            "",
            "00",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b716920333g-01",
        ] {
            assert_eq!(trace_id(bad), None, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_survived(text in ".{0,80}") {
            let _ = trace_id(&text);
        }
    }
}
