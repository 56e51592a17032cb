//! Log lines on standard error, as text or JSON; each place in the code may write only so many a second, so that a pod or a
//! broken peer cannot fill a disk. The newest error is kept for `bulkhead status`.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bulkhead_base::Clock;
use bulkhead_config::Logging;
use bulkhead_ipc::spans::SpanRing;
use jiff::Timestamp;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tokio::time::Instant;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber, callsite::Identifier};
use tracing_subscriber::filter::{EnvFilter, FilterExt, filter_fn};
use tracing_subscriber::layer::{Context, Filter, Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;

use crate::flags::{CommonFlags, LogFormat};

/// Lines that one place in the code may write at once ...
const BURST: f64 = 50.0;
/// ... and each second on.
const PER_SECOND: f64 = 5.0;
/// Longest text of the newest error.
const ERROR_BYTES: usize = 1024;

/// What logging remembers. Clones share it.
#[derive(Clone, Default)]
pub(crate) struct LogBoard {
    suppressed: Arc<AtomicU64>,
    last_error: Arc<Mutex<Option<(Timestamp, String)>>>,
}

impl LogBoard {
    /// Lines held back since the start.
    pub(crate) fn suppressed(&self) -> u64 {
        self.suppressed.load(Ordering::Relaxed)
    }

    /// The newest line of level error.
    pub(crate) fn last_error(&self) -> Option<(Timestamp, String)> {
        self.last_error.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// A filter text that cannot be understood.
#[derive(Debug, thiserror::Error)]
#[error("--log {filter:?} is not a filter such as `info` or `syncd=debug,info`")]
pub(crate) struct BadFilter {
    filter: String,
    #[source]
    source: tracing_subscriber::filter::ParseError,
}

/// Sets logging and the trace ring up for the whole process. A second call changes nothing: tests run several processes
/// in one.
pub(crate) fn init(
    name: &'static str,
    flags: &CommonFlags,
    logging: &Logging,
    clock: Arc<dyn Clock>,
) -> Result<(LogBoard, SpanRing), BadFilter> {
    let board = LogBoard::default();
    let ring = SpanRing::default();
    let filter = flags.log.as_deref().unwrap_or_else(|| filter_of(logging.verbosity));
    let filter = EnvFilter::try_new(filter)
        .map_err(|source| BadFilter { filter: filter.to_owned(), source })?
        .and(RateLimit { board: board.clone(), buckets: Mutex::default() });
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_target(true);
    let configured = if logging.format == "json" { LogFormat::Json } else { LogFormat::Text };
    let lines = match flags.log_format.unwrap_or(configured) {
        LogFormat::Text => lines.with_ansi(false).boxed(),
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
    };
    let provider = SdkTracerProvider::builder().with_span_processor(ring.clone()).build();
    let traces = tracing_opentelemetry::layer()
        .with_tracer(provider.tracer(name))
        .with_location(false)
        .with_threads(false)
        .with_tracked_inactivity(false)
        .with_filter(filter_fn(|metadata| {
            metadata.is_span() && metadata.target() == bulkhead_ipc::trace::TARGET
        }));
    let errors =
        LastError { board: board.clone(), clock }.with_filter(filter_fn(|m| *m.level() == Level::ERROR));
    let _ =
        tracing_subscriber::registry().with(lines.with_filter(filter)).with(traces).with(errors).try_init();
    Ok((board, ring))
}

/// The filter for a verbosity: Kubernetes' levels from 4 on are for finding faults, from 6 on for reading every step.
/// Libraries stay quiet.
fn filter_of(verbosity: u32) -> &'static str {
    match verbosity {
        0..4 => "info",
        4..6 => "debug,h2=info,hyper=info,hyper_util=info,tonic=info,tower=info,rustls=info",
        _ => "trace,h2=info,hyper=info,hyper_util=info,tonic=info,tower=info,rustls=info",
    }
}

struct Bucket {
    tokens: f64,
    filled: Instant,
}

struct RateLimit {
    board: LogBoard,
    /// One per place in the code: bounded by the program's size.
    buckets: Mutex<HashMap<Identifier, Bucket>>,
}

impl RateLimit {
    fn take(&self, place: Identifier, now: Instant) -> bool {
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        let bucket = buckets.entry(place).or_insert(Bucket { tokens: BURST, filled: now });
        let passed = now.saturating_duration_since(bucket.filled).as_secs_f64();
        bucket.tokens = (bucket.tokens + passed * PER_SECOND).min(BURST);
        bucket.filled = now;
        let allowed = bucket.tokens >= 1.0;
        if allowed {
            bucket.tokens -= 1.0;
        }
        allowed
    }
}

impl<S: Subscriber> Filter<S> for RateLimit {
    fn enabled(&self, _: &Metadata<'_>, _: &Context<'_, S>) -> bool {
        true
    }

    fn event_enabled(&self, event: &Event<'_>, _: &Context<'_, S>) -> bool {
        let allowed = self.take(event.metadata().callsite(), Instant::now());
        if !allowed {
            self.board.suppressed.fetch_add(1, Ordering::Relaxed);
        }
        allowed
    }
}

struct LastError {
    board: LogBoard,
    clock: Arc<dyn Clock>,
}

impl<S: Subscriber> Layer<S> for LastError {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut text = Text(String::new());
        event.record(&mut text);
        let mut text = text.0;
        text.truncate(text.floor_char_boundary(ERROR_BYTES));
        *self.board.last_error.lock().unwrap_or_else(PoisonError::into_inner) =
            Some((self.clock.now(), text));
    }
}

/// An event's fields as one line, the message first.
struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        if self.0.len() > ERROR_BYTES {
            return;
        }
        let line = if field.name() == "message" {
            self.0.insert_str(0, &format!("{value:?}"));
            Ok(())
        } else {
            write!(self.0, " {}={value:?}", field.name())
        };
        // Writing into a String cannot fail.
        let _ = line;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tracing::Callsite;
    use tracing::callsite::DefaultCallsite;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_noisy_place_is_held_back_and_recovers() {
        static META: tracing::Metadata<'static> = tracing::metadata! {
            name: "x", target: "x", level: Level::INFO, fields: &[], callsite: &CALLSITE, kind: tracing::metadata::Kind::EVENT
        };
        static CALLSITE: DefaultCallsite = DefaultCallsite::new(&META);
        let limit = RateLimit { board: LogBoard::default(), buckets: Mutex::default() };
        let place = CALLSITE.metadata().callsite();
        let passed = (0..100).filter(|_| limit.take(place.clone(), Instant::now())).count();
        assert_eq!(passed, 50);
        tokio::time::advance(Duration::from_secs(2)).await;
        let passed = (0..100).filter(|_| limit.take(place.clone(), Instant::now())).count();
        assert_eq!(passed, 10);
    }
}
