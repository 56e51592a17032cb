//! Counts requests under the kubelet's names. Paths are those that there are, never what a client wrote.

use bulkhead_service::{Counter, Desc, Histogram, Metrics, SECONDS};
use http::Method;
use tokio::time::Instant;

use super::route::{Of, Part, Route};

const LABELS: &[&str] = &["long_running", "method", "path", "server_type"];

/// The counters of both ports.
#[derive(Clone)]
pub(crate) struct Requests {
    total: Counter,
    seconds: Histogram,
}

/// A request that is being answered; it is counted when this goes.
pub(crate) struct Counted<'a> {
    requests: &'a Requests,
    method: &'static str,
    path: &'static str,
    began: Instant,
}

impl Requests {
    /// In this registry.
    pub(crate) fn new(metrics: &Metrics) -> Self {
        let total = Desc {
            name: "kubelet_http_requests_total",
            help: "HTTP requests received since the server was started.",
            labels: LABELS,
        };
        let seconds = Desc {
            name: "kubelet_http_requests_duration_seconds",
            help: "Time to answer HTTP requests, in seconds.",
            labels: LABELS,
        };
        Self { total: metrics.counter(total), seconds: metrics.histogram(seconds, SECONDS) }
    }

    /// A request begins.
    pub(crate) fn begin(&self, method: &Method, route: &Route) -> Counted<'_> {
        Counted { requests: self, method: name(method), path: path(route), began: Instant::now() }
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        let labels = ["false", self.method, self.path, "readonly"];
        self.requests.total.add_one(&labels);
        self.requests.seconds.observe(&labels, self.began.elapsed().as_secs_f64());
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

fn path(route: &Route) -> &'static str {
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
