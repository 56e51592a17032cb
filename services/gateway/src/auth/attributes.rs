//! What a request is to the API server's authorization: a verb on a part of the node. Pure.
//!
//! Decides on the very path that is served (`secured::path`); what is no such path is the widest part there is.

use std::borrow::Cow;
use std::fmt;

use http::Method;

use crate::secured::path::Path;

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Attributes {
    /// The verb.
    pub(crate) verb: Cow<'static, str>,
    /// Subresources of the node, the narrowest first; a right to one is enough.
    pub(crate) subresources: &'static [&'static str],
}

/// Of a request with this method for this path; `None`: it is none that can be served.
pub(crate) fn attributes(method: &Method, path: Option<&Path>) -> Attributes {
    let first = path.and_then(|path| path.segments().next()).unwrap_or_default();
    let subresources: &[_] = match first {
        "stats" => &["stats"],
        "metrics" => &["metrics"],
        "logs" => &["log"],
        "checkpoint" => &["checkpoint"],
        "pods" | "runningpods" => &["pods", "proxy"],
        "healthz" => &["healthz", "proxy"],
        "configz" => &["configz", "proxy"],
        "statusz" => &["statusz", "proxy"],
        "flagz" => &["flagz", "proxy"],
        _ => &["proxy"],
    };
    // The kubelet goes by the method alone, and a right to read then runs commands, since a WebSocket begins with GET.
    let verb = match first {
        "exec" | "attach" | "portForward" | "run" => "create".into(),
        _ => verb(method),
    };
    Attributes { verb, subresources }
}

fn verb(method: &Method) -> Cow<'static, str> {
    match *method {
        Method::GET | Method::HEAD => "get".into(),
        Method::POST => "create".into(),
        Method::PUT => "update".into(),
        Method::PATCH => "patch".into(),
        Method::DELETE => "delete".into(),
        _ => method.as_str().to_ascii_lowercase().into(),
    }
}

/// As the kubelet writes them into its refusals.
impl fmt::Display for Attributes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let subresources = self.subresources.join(" ");
        write!(f, "verb={}, resource=nodes, subresource(s)=[{subresources}]", self.verb)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secured::path;

    fn of(method: &Method, path: &str) -> String {
        attributes(method, path::read(path).as_ref()).to_string()
    }

    #[test]
    fn paths_and_methods_are_the_kubelets() {
        let table = [
            (Method::GET, "/stats/summary", "get", "stats"),
            (Method::POST, "/stats/summary", "create", "stats"),
            (Method::GET, "/stats", "get", "stats"),
            (Method::GET, "/metrics", "get", "metrics"),
            (Method::GET, "/metrics/cadvisor", "get", "metrics"),
            (Method::GET, "/logs/", "get", "log"),
            (Method::GET, "/logs/syslog", "get", "log"),
            (Method::GET, "/logs/query", "get", "log"),
            (Method::POST, "/checkpoint/a/b/c", "create", "checkpoint"),
            (Method::GET, "/pods", "get", "pods proxy"),
            (Method::GET, "/pods/", "get", "pods proxy"),
            (Method::GET, "/runningpods/", "get", "pods proxy"),
            (Method::GET, "/healthz", "get", "healthz proxy"),
            (Method::GET, "/healthz/syncloop", "get", "healthz proxy"),
            (Method::GET, "/configz", "get", "configz proxy"),
            (Method::GET, "/statusz", "get", "statusz proxy"),
            (Method::GET, "/flagz", "get", "flagz proxy"),
            (Method::GET, "/containerLogs/a/b/c", "get", "proxy"),
            (Method::PUT, "/debug/flags/v", "update", "proxy"),
            (Method::PATCH, "/x", "patch", "proxy"),
            (Method::DELETE, "/x", "delete", "proxy"),
            (Method::HEAD, "/pods", "get", "pods proxy"),
            (Method::OPTIONS, "/pods", "options", "pods proxy"),
            (Method::GET, "/", "get", "proxy"),
            // Whatever the method is.
            (Method::GET, "/exec/a/b/c", "create", "proxy"),
            (Method::POST, "/attach/a/b/c", "create", "proxy"),
            (Method::GET, "/portForward/a/b", "create", "proxy"),
            (Method::PUT, "/run/a/b/c", "create", "proxy"),
            (Method::GET, "/exec", "create", "proxy"),
            // What only looks like a part that less is needed for.
            (Method::GET, "/metricsx", "get", "proxy"),
            (Method::GET, "/Metrics", "get", "proxy"),
            (Method::GET, "/stats/../exec/a/b/c", "get", "proxy"),
            (Method::GET, "/metrics%2f..%2fexec/a/b/c", "get", "proxy"),
            (Method::GET, "//exec/a/b/c", "get", "proxy"),
            (Method::GET, "/%65xec/a/b/c", "create", "proxy"),
        ];
        for (method, path, verb, subresources) in table {
            let wanted = format!("verb={verb}, resource=nodes, subresource(s)=[{subresources}]");
            assert_eq!(of(&method, path), wanted, "{method} {path}");
        }
    }
}
