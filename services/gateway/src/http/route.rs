//! Which path means what, on which port. Pure.

use bulkhead_api::access::ACCESS;
use http::Method;

use super::server::Port;
use crate::stats::Extent;

/// What a request asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// Whether something is well.
    Health(Part),
    /// The pods.
    Pods,
    /// The statistics.
    Summary(Extent),
    /// Metrics.
    Metrics(Of),
    /// It stands elsewhere.
    Moved(&'static str),
    /// There is such a path, but not for this method or on this port.
    NotAllowed,
    /// There is no such path.
    Missing,
}

/// What health is asked about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// All of the node agent, with a line for each process or, when all is well, only with `ok`.
    Whole {
        /// Whether to tell the lines when all is well, too (`?verbose`).
        verbose: bool,
    },
    /// Whether anybody answers at all.
    Ping,
    /// One process.
    Process(String),
}

/// Which metrics are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Of {
    /// Of all processes.
    Processes,
    /// Of probes.
    Probes,
    /// Of what node, pods and containers use.
    Resources,
    /// Of what the kernel tells of cgroups.
    Cgroups,
    /// Of service levels.
    Levels,
}

/// Paths of the kubelet's secured port that its read-only port knows and refuses, whatever follows them.
const SECURED: [&str; 8] = [
    "/runningpods/",
    "/logs/",
    "/containerLogs/",
    "/run/",
    "/exec/",
    "/attach/",
    "/portForward/",
    "/debug/pprof/",
];

/// What a request means.
pub(crate) fn route(port: Port, method: &Method, path: &str, query: &str) -> Route {
    if let Some(part) = health(path, query) {
        return Route::Health(part);
    }
    match port {
        Port::Healthz => Route::Missing,
        Port::ReadOnly if SECURED.iter().any(|prefix| path.starts_with(prefix)) => Route::NotAllowed,
        Port::ReadOnly => plain(method, path, query),
    }
}

/// What both the read-only and the secured port have, health aside.
pub(crate) fn plain(method: &Method, path: &str, query: &str) -> Route {
    match path {
        "/pods" | "/pods/" if method == Method::GET => Route::Pods,
        "/pods" | "/pods/" => Route::NotAllowed,
        "/stats/summary" => Route::Summary(extent(query)),
        "/metrics" => Route::Metrics(Of::Processes),
        "/metrics/probes" => Route::Metrics(Of::Probes),
        "/metrics/resource" => Route::Metrics(Of::Resources),
        "/metrics/cadvisor" => Route::Metrics(Of::Cgroups),
        "/metrics/slis" => Route::Metrics(Of::Levels),
        "/stats" => Route::Moved("/stats/"),
        _ => Route::Missing,
    }
}

/// What is asked of health, if it is that.
pub(crate) fn health(path: &str, query: &str) -> Option<Part> {
    let verbose = query.split('&').any(|pair| pair == "verbose" || pair.starts_with("verbose="));
    Some(match path {
        "/healthz" => Part::Whole { verbose },
        // Both say that the process that answers is at work.
        "/healthz/ping" | "/healthz/log" => Part::Ping,
        // The loop that the kubelet means is syncd's.
        "/healthz/syncloop" => Part::Process("syncd".to_owned()),
        path => {
            let name = path.strip_prefix("/healthz/")?;
            Part::Process(ACCESS.process.get_key_value(name)?.0.clone())
        }
    })
}

/// The kubelet takes this one spelling and no other.
fn extent(query: &str) -> Extent {
    match query.split('&').any(|pair| pair == "only_cpu_and_memory=true") {
        true => Extent::CpuAndMemory,
        false => Extent::Whole,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_path_has_its_meaning() {
        let whole = |verbose| Route::Health(Part::Whole { verbose });
        let process = |name: &str| Route::Health(Part::Process(name.to_owned()));
        let both = [
            ("/healthz", "", whole(false)),
            ("/healthz", "verbose", whole(true)),
            ("/healthz", "a=b&verbose=1", whole(true)),
            ("/healthz", "verbosely", whole(false)),
            ("/healthz/ping", "", Route::Health(Part::Ping)),
            ("/healthz/log", "", Route::Health(Part::Ping)),
            ("/healthz/syncloop", "", process("syncd")),
            ("/healthz/prober", "", process("prober")),
            ("/healthz/nobody", "", Route::Missing),
            ("/healthz/", "", Route::Missing),
            ("/healthzz", "", Route::Missing),
            ("", "", Route::Missing),
        ];
        for (path, query, wanted) in both {
            for port in [Port::Healthz, Port::ReadOnly] {
                assert_eq!(route(port, &Method::GET, path, query), wanted, "{port:?} {path}?{query}");
            }
        }
        let get = |path, query| route(Port::ReadOnly, &Method::GET, path, query);
        assert_eq!(get("/pods/", ""), Route::Pods);
        assert_eq!(get("/pods/x", ""), Route::Missing);
        assert_eq!(get("/stats/summary", "only_cpu_and_memory=true"), Route::Summary(Extent::CpuAndMemory));
        assert_eq!(get("/stats/summary", "only_cpu_and_memory=1"), Route::Summary(Extent::Whole));
        assert_eq!(route(Port::ReadOnly, &Method::POST, "/pods", ""), Route::NotAllowed);
        assert_eq!(route(Port::ReadOnly, &Method::POST, "/stats/summary", ""), Route::Summary(Extent::Whole));
        assert_eq!(route(Port::Healthz, &Method::GET, "/pods", ""), Route::Missing, "not on the health port");
        assert_eq!(get("/metrics", ""), Route::Metrics(Of::Processes));
        assert_eq!(get("/metrics/resource", "x"), Route::Metrics(Of::Resources));
        assert_eq!(get("/metrics/cadvisor", ""), Route::Metrics(Of::Cgroups));
        assert_eq!(route(Port::Healthz, &Method::GET, "/metrics", ""), Route::Missing);
    }
}
