//! The headers of an HTTP probe: as given, with defaults for what is missing.

use bulkhead_model::probe::HttpHeader;
use http::header::{ACCEPT, CONNECTION, CONTENT_LENGTH, HOST, TRAILER, TRANSFER_ENCODING, USER_AGENT};
use http::{HeaderMap, HeaderName, HeaderValue};

/// Checked headers.
#[derive(Clone)]
pub struct Headers {
    map: HeaderMap,
    host: Option<String>,
}

/// A header that cannot be sent. Names it; its value is never shown.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("header {name:?} of the probe cannot be sent: {what}")]
pub struct HeaderError {
    name: String,
    what: &'static str,
}

impl Headers {
    /// `given`, with the probe's own `User-Agent` and `Accept` unless they are given; given empty, they are left out. What
    /// describes a body is left out as well, since there is none.
    ///
    /// # Errors
    /// When a name or value is not allowed in HTTP.
    pub fn new(given: &[HttpHeader]) -> Result<Self, HeaderError> {
        let mut map = HeaderMap::new();
        let mut host = None;
        for header in given {
            let error = |what| HeaderError { name: header.name.clone(), what };
            let name =
                HeaderName::from_bytes(header.name.as_bytes()).map_err(|_| error("its name is not valid"))?;
            let mut value = HeaderValue::from_bytes(header.value.trim().as_bytes())
                .map_err(|_| error("its value is not valid"))?;
            value.set_sensitive(true);
            if name == HOST {
                host = Some(header.value.trim().to_owned()).filter(|host| !host.is_empty());
            } else if ![CONTENT_LENGTH, TRANSFER_ENCODING, TRAILER].contains(&name) {
                // Fails only past 32,768 different names.
                map.try_append(name, value).map_err(|_| error("there are too many"))?;
            }
        }
        for (name, default) in [(USER_AGENT, super::super::USER_AGENT), (ACCEPT, "*/*")] {
            match map.get(&name) {
                None => drop(map.insert(name, HeaderValue::from_static(default))),
                Some(value) if value.is_empty() => drop(map.remove(name)),
                Some(_) => {}
            }
        }
        map.entry(CONNECTION).or_insert(HeaderValue::from_static("close"));
        Ok(Self { map, host })
    }

    /// The host that the probe wants to be named, if it says so.
    pub fn host(&self) -> Option<&str> {
        self.host.as_deref()
    }

    /// All headers of a request to `host`.
    pub fn with_host(&self, host: &str) -> HeaderMap {
        let mut map = self.map.clone();
        // A redirect's host was checked to be of a URL, a given one above.
        if let Ok(host) = HeaderValue::from_str(host) {
            map.insert(HOST, host);
        }
        map
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(given: &[(&str, &str)]) -> Result<Vec<String>, HeaderError> {
        let header = |&(name, value): &(&str, &str)| HttpHeader { name: name.into(), value: value.into() };
        let given: Vec<_> = given.iter().map(header).collect();
        let headers = Headers::new(&given)?;
        let map = headers.with_host(headers.host().unwrap_or("10.0.0.1:80"));
        let mut lines: Vec<_> = map.iter().map(|(n, v)| format!("{n}: {}", v.to_str().unwrap())).collect();
        lines.sort();
        Ok(lines)
    }

    #[test]
    fn headers_are_as_given_with_defaults() {
        let (accept, agent) = ("accept: */*", "user-agent: kube-probe/1.37");
        let (close, host) = ("connection: close", "host: 10.0.0.1:80");
        type Row<'a> = (&'a [(&'a str, &'a str)], &'a [&'a str]);
        let table: [Row<'_>; 6] = [
            (&[], &[accept, close, host, agent]),
            (&[("X-A", "1"), ("x-a", " 2 ")], &[accept, close, host, agent, "x-a: 1", "x-a: 2"]),
            (&[("host", "a.test")], &[accept, close, "host: a.test", agent]),
            (&[("User-Agent", ""), ("Accept", "")], &[close, host]),
            (
                &[("user-agent", "me"), ("ACCEPT", "text/html")],
                &["accept: text/html", close, host, "user-agent: me"],
            ),
            (&[("Content-Length", "5"), ("Transfer-Encoding", "chunked")], &[accept, close, host, agent]),
        ];
        for (given, expected) in table {
            assert_eq!(lines(given).unwrap(), expected, "{given:?}");
        }
    }

    #[test]
    fn a_header_that_cannot_be_sent_is_named_without_its_value() {
        for (name, value) in
            [("X Y", "s3cret"), ("", "s3cret"), ("X-Y", "s3cret\r\nX: 1"), ("Host", "s3cret\0")]
        {
            let error = lines(&[(name, value)]).unwrap_err();
            assert_eq!(error.name, name);
            assert!(!error.to_string().contains("s3cret") && !format!("{error:?}").contains("s3cret"));
        }
    }
}
