//! Counts requests under the kubelet's names. Paths are those that there are, never what a client wrote.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use bulkhead_service::{Counter, Desc, Histogram, Metrics, SECONDS};
use http::Method;
use tokio::time::Instant;

use super::route::{Of, Part, Route};

/// A request, as it is counted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kind {
    /// Its path: one of those that there are.
    pub(crate) path: &'static str,
    /// Whether it may take as long as it likes.
    pub(crate) long_running: bool,
    /// The kubelet's word for the port.
    pub(crate) server: &'static str,
}

const LABELS: &[&str] = &["long_running", "method", "path", "server_type"];

/// Values of [`LABELS`].
type Labels = [&'static str; 4];

/// The counters of all ports. Clones share them.
#[derive(Clone)]
pub(crate) struct Requests {
    total: Counter,
    seconds: Histogram,
    in_flight: Arc<Mutex<BTreeMap<Labels, u32>>>,
}

/// A request that is being answered, until this goes.
pub(crate) struct Counted {
    requests: Requests,
    labels: Labels,
    began: Instant,
}

impl Requests {
    /// In this registry.
    pub(crate) fn new(metrics: &Metrics) -> Self {
        let desc = |name, help| Desc { name, help, labels: LABELS };
        let total =
            desc("kubelet_http_requests_total", "HTTP requests received since the server was started.");
        let seconds =
            desc("kubelet_http_requests_duration_seconds", "Time to answer HTTP requests, in seconds.");
        let in_flight: Arc<Mutex<BTreeMap<Labels, u32>>> = Arc::default();
        let shown = in_flight.clone();
        metrics.read_with(move || {
            let desc = desc("kubelet_http_inflight_requests", "HTTP requests, and sessions, under way.");
            let shown = shown.lock().unwrap_or_else(PoisonError::into_inner);
            let value = |(labels, number): (&Labels, &u32)| {
                (labels.iter().map(|&label| label.to_owned()).collect(), f64::from(*number))
            };
            vec![desc.gauge(shown.iter().map(value).collect::<Vec<_>>())]
        });
        Self { total: metrics.counter(total), seconds: metrics.histogram(seconds, SECONDS), in_flight }
    }

    /// A request begins.
    pub(crate) fn begin(&self, method: &Method, kind: Kind) -> Counted {
        let Kind { path, long_running, server } = kind;
        let labels = [if long_running { "true" } else { "false" }, name(method), path, server];
        self.total.add_one(&labels);
        self.change(labels, |number| number.saturating_add(1));
        Counted { requests: self.clone(), labels, began: Instant::now() }
    }

    fn change(&self, labels: Labels, change: impl FnOnce(u32) -> u32) {
        let mut in_flight = self.in_flight.lock().unwrap_or_else(PoisonError::into_inner);
        let number = in_flight.entry(labels).or_default();
        *number = change(*number);
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.requests.change(self.labels, |number| number.saturating_sub(1));
        self.requests.seconds.observe(&self.labels, self.began.elapsed().as_secs_f64());
    }
}

fn name(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::DELETE => "DELETE",
        Method::HEAD => "HEAD",
        _ => "other",
    }
}

/// What a route is counted as.
pub(crate) fn path(route: &Route) -> &'static str {
    match route {
        Route::Health(Part::Whole { .. }) => "healthz",
        Route::Health(Part::Ping) => "healthz/ping",
        Route::Health(Part::Process(_)) => "healthz/process",
        Route::Pods => "pods",
        Route::Summary(_) | Route::Moved(_) => "stats",
        Route::Metrics(Of::Processes) => "metrics",
        Route::Metrics(Of::Probes) => "metrics/probes",
        Route::Metrics(Of::Resources) => "metrics/resource",
        Route::Metrics(Of::Cgroups) => "metrics/cadvisor",
        Route::Metrics(Of::Levels) => "metrics/slis",
        Route::NotAllowed | Route::Missing => "other",
    }
}
