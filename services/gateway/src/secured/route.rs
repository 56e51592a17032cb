//! Which path means what on the secured port. Pure. The codes are those that a kubelet 1.37.2 gives to whoever may do all.

use http::Method;

use super::path::Path;
use crate::config::Offers;
use crate::http::route::{Route as Plain, health, plain};

/// What a request asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// What the read-only port has, too.
    Plain(Plain),
    /// What the runtime runs.
    RunningPods,
    /// The configuration.
    Config,
    /// A container's log.
    ContainerLogs(Container),
    /// The folder of the system's logs, or a file in it: the path below it, with a `/` at its end or not.
    SystemLogs(String),
    /// Streams.
    Stream(Streaming),
    /// Which version this is and how long it runs.
    Status,
    /// Which flags it was started with.
    Flags,
    /// There is such a path, but not for this method, or it is switched off; which methods there are.
    NotAllowed(&'static str),
    /// What is asked for is not in this release; with what to do instead.
    NotBuilt(&'static str),
    /// The log level is written, never read.
    NotAcceptable,
}

/// A container by its names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Container {
    /// Its pod.
    pub(crate) pod: Pod,
    /// `name` in the pod's spec.
    pub(crate) name: String,
}

/// A pod by its names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pod {
    /// Its namespace.
    pub(crate) namespace: String,
    /// Its name.
    pub(crate) name: String,
    /// Its UID, when it must be that very pod.
    pub(crate) uid: Option<String>,
}

/// Which streams.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Streaming {
    /// Of a command.
    Exec(Container),
    /// Of the container's own first process.
    Attach(Container),
    /// Of ports.
    PortForward(Pod),
}

/// What a request means.
pub(crate) fn route(offers: &Offers, method: &Method, path: &Path, query: &str) -> Route {
    let whole = path.as_str();
    if let Some(part) = health(whole, query) {
        return Route::Plain(Plain::Health(part));
    }
    let reads = method == Method::GET;
    let parts: Vec<&str> = path.segments().collect();
    match parts.as_slice() {
        ["configz"] => Route::Config,
        ["statusz"] => Route::Status,
        ["flagz"] => Route::Flags,
        ["runningpods"] if !offers.debugging => Route::NotAllowed(""),
        ["runningpods"] if whole.ends_with('/') => only(reads, "GET", || Route::RunningPods),
        ["logs", ..] if !offers.system_logs || !offers.debugging => Route::NotAllowed(""),
        ["logs", ..] => only(reads, "GET", || {
            let below = whole.strip_prefix("/logs").unwrap_or_default();
            Route::SystemLogs(below.strip_prefix('/').unwrap_or_default().to_owned())
        }),
        ["debug", "pprof", ..] if !offers.profiling || !offers.debugging => Route::NotAllowed(""),
        ["debug", "flags", "v"] if !offers.debug_flags || !offers.debugging => Route::NotAllowed(""),
        ["debug", "flags", "v"] if method == Method::PUT => Route::NotBuilt(
            "the level of logs cannot be changed while it runs: set logging.verbosity, or --log, and restart",
        ),
        ["debug", "flags", "v"] => Route::NotAcceptable,
        ["containerLogs" | "exec" | "attach" | "portForward" | "run", ..] if !offers.debugging => {
            Route::NotAllowed("")
        }
        ["containerLogs", namespace, pod, name] => {
            only(reads, "GET", || Route::ContainerLogs(container(namespace, pod, None, name)))
        }
        ["exec", rest @ ..] => streaming(method, rest, Streaming::Exec),
        ["attach", rest @ ..] => streaming(method, rest, Streaming::Attach),
        ["portForward", namespace, name, rest @ ..] if rest.len() < 2 => either(method, || {
            Route::Stream(Streaming::PortForward(pod(namespace, name, rest.first().copied())))
        }),
        ["run", _, _, _] | ["run", _, _, _, _] => {
            only(method == Method::POST, "POST", || Route::NotBuilt("commands are run by exec alone"))
        }
        ["checkpoint", _, _, _] => only(method == Method::POST, "POST", || {
            Route::NotBuilt("checkpoints of containers are not in this release")
        }),
        _ => Route::Plain(plain(method, whole, query)),
    }
}

fn streaming(method: &Method, rest: &[&str], make: impl FnOnce(Container) -> Streaming) -> Route {
    match rest {
        [namespace, pod, name] => {
            either(method, || Route::Stream(make(container(namespace, pod, None, name))))
        }
        [namespace, pod, uid, name] => {
            either(method, || Route::Stream(make(container(namespace, pod, Some(uid), name))))
        }
        _ => Route::Plain(Plain::Missing),
    }
}

fn either(method: &Method, route: impl FnOnce() -> Route) -> Route {
    only(matches!(*method, Method::GET | Method::POST), "GET, POST", route)
}

fn only(fits: bool, methods: &'static str, route: impl FnOnce() -> Route) -> Route {
    if fits { route() } else { Route::NotAllowed(methods) }
}

fn container(namespace: &str, pod_: &str, uid: Option<&str>, name: &str) -> Container {
    Container { pod: pod(namespace, pod_, uid), name: name.to_owned() }
}

fn pod(namespace: &str, name: &str, uid: Option<&str>) -> Pod {
    Pod { namespace: namespace.to_owned(), name: name.to_owned(), uid: uid.map(ToOwned::to_owned) }
}

impl Route {
    /// What it is counted as, and whether it may take as long as it likes. Never what a client wrote.
    pub(crate) fn label(&self) -> (&'static str, bool) {
        match self {
            Self::Plain(plain) => (crate::http::requests::path(plain), false),
            Self::RunningPods => ("runningpods", false),
            Self::Config => ("configz", false),
            Self::ContainerLogs(_) => ("containerLogs", true),
            Self::SystemLogs(_) => ("logs", false),
            Self::Stream(Streaming::Exec(_)) => ("exec", true),
            Self::Stream(Streaming::Attach(_)) => ("attach", true),
            Self::Stream(Streaming::PortForward(_)) => ("portForward", true),
            Self::Status => ("statusz", false),
            Self::Flags => ("flagz", false),
            Self::NotAllowed(_) | Self::NotBuilt(_) | Self::NotAcceptable => ("other", false),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::route::{Of, Part};
    use crate::secured::path;
    use crate::stats::Extent;

    const ALL: Offers = Offers {
        debugging: true,
        profiling: true,
        debug_flags: true,
        system_logs: true,
        system_logs_dir: std::path::PathBuf::new(),
    };

    fn at(offers: &Offers, method: &Method, raw: &str) -> Route {
        let (path, query) = raw.split_once('?').unwrap_or((raw, ""));
        route(offers, method, &path::read(path).unwrap(), query)
    }

    #[test]
    fn paths() {
        let get = |path| at(&ALL, &Method::GET, path);
        let post = |path| at(&ALL, &Method::POST, path);
        let c = |uid: Option<&str>| container("ns", "p", uid, "c");
        assert_eq!(get("/pods"), Route::Plain(Plain::Pods));
        assert_eq!(post("/pods/"), Route::Plain(Plain::NotAllowed));
        assert_eq!(get("/healthz/ping"), Route::Plain(Plain::Health(Part::Ping)));
        assert_eq!(post("/metrics/slis"), Route::Plain(Plain::Metrics(Of::Levels)));
        assert_eq!(
            get("/stats/summary?only_cpu_and_memory=true"),
            Route::Plain(Plain::Summary(Extent::CpuAndMemory))
        );
        assert_eq!(get("/runningpods/"), Route::RunningPods);
        assert_eq!(get("/runningpods"), Route::Plain(Plain::Missing));
        assert_eq!(get("/logs/a/b.log"), Route::SystemLogs("a/b.log".to_owned()));
        assert_eq!(get("/logs/"), Route::SystemLogs(String::new()));
        assert_eq!(get("/containerLogs/ns/p/c"), Route::ContainerLogs(c(None)));
        assert_eq!(post("/containerLogs/ns/p/c"), Route::NotAllowed("GET"));
        assert_eq!(get("/containerLogs/ns/p"), Route::Plain(Plain::Missing));
        for method in [&Method::GET, &Method::POST] {
            assert_eq!(at(&ALL, method, "/exec/ns/p/c"), Route::Stream(Streaming::Exec(c(None))));
            assert_eq!(at(&ALL, method, "/exec/ns/p/u/c"), Route::Stream(Streaming::Exec(c(Some("u")))));
            assert_eq!(at(&ALL, method, "/attach/ns/p/c"), Route::Stream(Streaming::Attach(c(None))));
            let forward = |uid| Route::Stream(Streaming::PortForward(pod("ns", "p", uid)));
            assert_eq!(at(&ALL, method, "/portForward/ns/p"), forward(None));
            assert_eq!(at(&ALL, method, "/portForward/ns/p/u"), forward(Some("u")));
        }
        assert_eq!(at(&ALL, &Method::PUT, "/exec/ns/p/c"), Route::NotAllowed("GET, POST"));
        assert_eq!(get("/exec/ns/p"), Route::Plain(Plain::Missing));
        assert_eq!(get("/portForward/ns/p/u/x"), Route::Plain(Plain::Missing));
        assert_eq!(get("/cri/exec/x"), Route::Plain(Plain::Missing));
    }

    #[test]
    fn what_is_switched_off_is_not_there() {
        let off = Offers { debugging: false, ..ALL };
        for path in [
            "/exec/a/b/c",
            "/attach/a/b/c",
            "/portForward/a/b",
            "/run/a/b/c",
            "/containerLogs/a/b/c",
            "/logs/x",
            "/runningpods/",
            "/debug/pprof/heap",
            "/debug/flags/v",
        ] {
            assert_eq!(at(&off, &Method::GET, path), Route::NotAllowed(""), "{path}");
        }
        for path in ["/pods", "/healthz", "/metrics", "/stats/summary", "/configz"] {
            assert!(!matches!(at(&off, &Method::GET, path), Route::NotAllowed(_)), "{path}");
        }
        let off = Offers { system_logs: false, ..ALL };
        assert_eq!(at(&off, &Method::GET, "/logs/"), Route::NotAllowed(""));
        let off = Offers { profiling: false, ..ALL };
        assert_eq!(at(&off, &Method::GET, "/debug/pprof/"), Route::NotAllowed(""));
        let off = Offers { debug_flags: false, ..ALL };
        assert_eq!(at(&off, &Method::PUT, "/debug/flags/v"), Route::NotAllowed(""));
    }
}
