//! Parameters of exec, attach and port-forward. Pure.

use bulkhead_cri::Streams;

use crate::secured::query::Query;

/// Most ports of one request.
const PORTS: usize = 64;

/// Why parameters cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum BadOptions {
    /// No stream at all.
    #[error("you must specify at least 1 of stdin, stdout, stderr")]
    NoStream,
    /// Not a port.
    #[error("port {0:?} is none: 1 to 65535")]
    Port(String),
    /// Too many of them.
    #[error("at most {PORTS} ports")]
    Ports,
    /// Over a WebSocket they must be said beforehand.
    #[error("query parameter \"port\" is required")]
    NoPort,
}

/// The command of exec, word by word.
pub(super) fn command(query: &Query) -> Vec<String> {
    query.all("command").map(ToOwned::to_owned).collect()
}

/// The streams that are wanted. A terminal has one output.
pub(super) fn streams(query: &Query) -> Result<Streams, BadOptions> {
    let is_set = |name| query.get(name).is_some_and(|value| matches!(value, "1" | "true"));
    let tty = is_set("tty");
    let streams =
        Streams { stdin: is_set("input"), stdout: is_set("output"), stderr: is_set("error") && !tty, tty };
    if streams.stdin || streams.stdout || streams.stderr { Ok(streams) } else { Err(BadOptions::NoStream) }
}

/// The ports that are wanted; none: the client says them later.
pub(super) fn ports(query: &Query) -> Result<Vec<i32>, BadOptions> {
    let mut ports = Vec::new();
    for text in query.all("port").flat_map(|value| value.split(',')) {
        let port: u16 = text
            .parse()
            .ok()
            .filter(|port| *port > 0)
            .ok_or_else(|| BadOptions::Port(text.chars().take(16).collect()))?;
        ports.push(port.into());
    }
    if ports.len() > PORTS { Err(BadOptions::Ports) } else { Ok(ports) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_those_that_are_asked_for() {
        let of = |query: &str| streams(&Query::read(query).unwrap());
        let all = Streams { stdin: true, stdout: true, stderr: true, tty: false };
        assert_eq!(of("input=1&output=1&error=1"), Ok(all));
        assert_eq!(of("output=true"), Ok(Streams { stdin: false, stderr: false, ..all }));
        assert_eq!(of("input=1&output=1&error=1&tty=1"), Ok(Streams { stderr: false, tty: true, ..all }));
        for nothing in ["", "tty=1", "output=0", "output=", "error=1&tty=1", "stdin=1"] {
            assert_eq!(of(nothing), Err(BadOptions::NoStream), "{nothing}");
        }
        let query = Query::read("command=sh&command=-c&command=echo%20%22a%22&output=1").unwrap();
        assert_eq!(command(&query), ["sh", "-c", "echo \"a\""]);
    }

    #[test]
    fn ports_are_numbers() {
        let of = |query: &str| ports(&Query::read(query).unwrap());
        assert_eq!(of("port=80&port=443,8080"), Ok(vec![80, 443, 8080]));
        assert_eq!(of(""), Ok(Vec::new()));
        for bad in ["port=0", "port=65536", "port=-1", "port=http", "port="] {
            assert!(matches!(of(bad), Err(BadOptions::Port(_))), "{bad}");
        }
        assert_eq!(of(&"port=1&".repeat(PORTS + 1)), Err(BadOptions::Ports));
    }
}
