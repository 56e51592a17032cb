//! How requests went: under the kubelet's names what the API server answered, under our own what was refused.

use std::collections::BTreeSet;
use std::time::Duration;

use bulkhead_api::access::Access;
use bulkhead_service::{Counter, Desc, Histogram, Metrics};

/// Upper bounds in seconds, as the kubelet's client has them.
const BOUNDS: &[f64] = &[0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0];
/// How a resource is called that no process may use: others' texts are no labels.
const OTHER: &str = "other";
/// The code of a request without an answer, as the kubelet's client has it.
pub const NO_ANSWER: &str = "<error>";

/// The counters. Clones share them.
#[derive(Clone)]
pub struct Counts {
    requests: Counter,
    durations: Histogram,
    refused: Counter,
    known: std::sync::Arc<BTreeSet<String>>,
}

impl Counts {
    /// Told in `metrics`; `access` says which resources have names.
    pub fn new(metrics: &Metrics, access: &Access) -> Self {
        let rules = access.process.values().flat_map(|row| &row.api);
        Self {
            requests: metrics.counter(Desc {
                name: "rest_client_requests_total",
                help: "Requests to the API server, by status code, method and host.",
                labels: &["code", "host", "method"],
            }),
            durations: metrics.histogram(
                Desc {
                    name: "rest_client_request_duration_seconds",
                    help: "Time until the API server answered, in seconds.",
                    labels: &["host", "verb"],
                },
                BOUNDS,
            ),
            refused: metrics.counter(Desc {
                name: "bulkhead_apigate_refused_requests_total",
                help: "Requests that were refused here, by process, verb and resource.",
                labels: &["process", "verb", "resource"],
            }),
            known: rules.map(bulkhead_api::access::ApiRule::target).collect::<BTreeSet<_>>().into(),
        }
    }

    /// The API server answered, or did not ([`NO_ANSWER`]).
    pub fn answered(&self, code: &str, host: &str, method: &http::Method, took: Duration) {
        self.requests.add_one(&[code, host, method.as_str()]);
        self.durations.observe(&[host, method.as_str()], took.as_secs_f64());
    }

    /// One was refused; `verb` and `target` are empty when it could not be read.
    pub fn refused(&self, process: &str, verb: &str, target: &str) {
        let target = if self.known.contains(target) { target } else { OTHER };
        let verb = if verb.is_empty() { OTHER } else { verb };
        self.refused.add_one(&[process, verb, target]);
    }
}
