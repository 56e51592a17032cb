//! Where a request goes, and where a redirect leads. Pure.

use bulkhead_model::probe::HttpScheme;

use super::super::net::{bracketed, ip};

/// An absolute URL, without user and fragment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    scheme: HttpScheme,
    /// Without brackets.
    host: String,
    /// `None`: the scheme's own.
    port: Option<u16>,
    /// Path and query, ready to be sent.
    target: String,
}

/// What a `Location` means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Redirect {
    /// Another request.
    To {
        /// Where to.
        url: Url,
        /// Whether it left the server unnamed.
        relative: bool,
    },
    /// It cannot be followed.
    Bad(String),
}

impl Url {
    /// `path` begins with `/` and may hold a query. It is asked for as it is, but without a fragment, and what URLs may not
    /// hold is escaped.
    pub fn new(scheme: HttpScheme, host: &str, port: u16, path: &str) -> Self {
        let path = path.split('#').next().unwrap_or_default();
        Self { scheme, host: unbracketed(host), port: Some(port), target: escaped(path) }
    }

    /// Its scheme.
    pub fn scheme(&self) -> HttpScheme {
        self.scheme
    }

    /// Its host, without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.port.unwrap_or(match self.scheme {
            HttpScheme::Http => 80,
            HttpScheme::Https => 443,
        })
    }

    /// Host and port as the URL has them.
    pub fn authority(&self) -> String {
        let host = bracketed(&self.host);
        self.port.map_or(host.clone(), |port| format!("{host}:{port}"))
    }

    /// Path and query.
    pub fn target(&self) -> &str {
        &self.target
    }

    /// For messages: without the query, which may hold what is nobody's business.
    pub fn shown(&self) -> String {
        let path = self.target.split('?').next().unwrap_or_default();
        format!("{}://{}{path}", self.scheme.as_str(), self.authority())
    }

    /// Whether both name the same host; ports and schemes do not count.
    pub fn same_host(&self, other: &Self) -> bool {
        match (ip(&self.host), ip(&other.host)) {
            (Some(a), Some(b)) => a == b,
            _ => self.host.eq_ignore_ascii_case(&other.host),
        }
    }

    /// Reads a `Location` that this URL answered with (RFC 3986, section 5.2).
    pub fn redirect(&self, location: &str) -> Redirect {
        let location = location.trim();
        let location = location.split('#').next().unwrap_or_default();
        let relative = |target: String| Redirect::To { url: Self { target, ..self.clone() }, relative: true };
        if let Some((scheme, rest)) = split_scheme(location) {
            let scheme = match scheme.to_ascii_lowercase().as_str() {
                "http" => HttpScheme::Http,
                "https" => HttpScheme::Https,
                _ => return Redirect::Bad(format!("scheme {scheme:?} is not HTTP")),
            };
            match rest.strip_prefix("//") {
                Some(rest) => absolute(scheme, rest),
                None => Redirect::Bad(format!("{location:?} names no host")),
            }
        } else if let Some(rest) = location.strip_prefix("//") {
            absolute(self.scheme, rest)
        } else if location.starts_with('/') {
            relative(target(location))
        } else if location.is_empty() {
            relative(self.target.clone())
        } else {
            let path = self.target.split('?').next().unwrap_or_default();
            if location.starts_with('?') {
                return relative(target(&format!("{path}{location}")));
            }
            let folder = path.rfind('/').and_then(|end| path.get(..=end)).unwrap_or("/");
            relative(target(&format!("{folder}{location}")))
        }
    }
}

/// A scheme, and what follows its colon.
fn split_scheme(text: &str) -> Option<(&str, &str)> {
    let (scheme, rest) = text.split_once(':')?;
    let is_scheme = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'));
    is_scheme.then_some((scheme, rest))
}

/// Reads `host:port/path?query`.
fn absolute(scheme: HttpScheme, text: &str) -> Redirect {
    let end = text.find(['/', '?']).unwrap_or(text.len());
    let (authority, path) = text.split_at_checked(end).unwrap_or((text, ""));
    let authority = authority.rsplit_once('@').map_or(authority, |(_user, host)| host);
    let bad = || Redirect::Bad(format!("{authority:?} is no host with a port"));
    let (host, port) = match authority.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, port)) if ip(host).is_some() => (host, port),
        Some(_) => return bad(),
        None => authority
            .split_at_checked(authority.find(':').unwrap_or(authority.len()))
            .unwrap_or((authority, "")),
    };
    let port = match port.strip_prefix(':') {
        None if port.is_empty() => None,
        Some("") => None,
        Some(digits) => match digits.parse::<u16>() {
            Ok(port) if port != 0 && digits.bytes().all(|b| b.is_ascii_digit()) => Some(port),
            _ => return bad(),
        },
        None => return bad(),
    };
    // The host is sent and shown: only what names are made of.
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    if host.is_empty() || !(ip(host).is_some() || host.chars().all(is_name)) {
        return bad();
    }
    Redirect::To { url: Url { scheme, host: host.to_owned(), port, target: target(path) }, relative: false }
}

fn unbracketed(host: &str) -> String {
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host).to_owned()
}

/// Path and query of a redirect as a request sends them: rooted, without `.` and `..`, escaped.
fn target(text: &str) -> String {
    match text.split_once('?') {
        Some((path, query)) => escaped(&format!("{}?{query}", without_dots(path))),
        None => escaped(&without_dots(text)),
    }
}

/// RFC 3986, section 5.2.4, for a path that begins with `/` or is empty.
fn without_dots(path: &str) -> String {
    let mut kept: Vec<&str> = Vec::new();
    let mut ends_in_folder = false;
    for segment in path.strip_prefix('/').unwrap_or(path).split('/') {
        ends_in_folder = matches!(segment, "." | "..");
        match segment {
            "." => {}
            ".." => drop(kept.pop()),
            _ => kept.push(segment),
        }
    }
    let mut out = format!("/{}", kept.join("/"));
    if ends_in_folder && !out.ends_with('/') {
        out.push('/');
    }
    out
}

/// Escapes every byte that a request's target may not hold, and a `%` that begins no escape.
fn escaped(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = String::with_capacity(bytes.len());
    for (at, byte) in bytes.iter().enumerate() {
        let begins_escape = || {
            bytes.get(at + 1).is_some_and(u8::is_ascii_hexdigit)
                && bytes.get(at + 2).is_some_and(u8::is_ascii_hexdigit)
        };
        let plain = match byte {
            b'%' => begins_escape(),
            b'"' | b'<' | b'>' | b'\\' | b'^' | b'`' | b'{' | b'|' | b'}' => false,
            byte => byte.is_ascii_graphic(),
        };
        if plain {
            out.push(char::from(*byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use HttpScheme::{Http, Https};
    use proptest::prelude::*;

    use super::*;

    fn base() -> Url {
        Url::new(Http, "10.0.0.1", 8080, "/a/b?q=1")
    }

    /// The URL as text, with its query, and whether it was relative; or the reason.
    fn led(location: &str) -> String {
        match base().redirect(location) {
            Redirect::To { url, relative } => {
                let mark = if relative { "rel" } else { "abs" };
                format!("{mark} {}://{}{}", url.scheme.as_str(), url.authority(), url.target())
            }
            Redirect::Bad(_) => "bad".to_owned(),
        }
    }

    #[test]
    fn locations_lead_where_the_rfc_says() {
        let table = [
            ("/ok", "rel http://10.0.0.1:8080/ok"),
            ("ok", "rel http://10.0.0.1:8080/a/ok"),
            ("../ok/.", "rel http://10.0.0.1:8080/ok/"),
            ("/x/../../y?z#f", "rel http://10.0.0.1:8080/y?z"),
            ("?z=2", "rel http://10.0.0.1:8080/a/b?z=2"),
            ("", "rel http://10.0.0.1:8080/a/b?q=1"),
            (" /sp ace\u{e9} ", "rel http://10.0.0.1:8080/sp%20ace%C3%A9"),
            ("/a%2Fb%zz", "rel http://10.0.0.1:8080/a%2Fb%25zz"),
            ("x:y", "bad"),
            ("./x:y", "rel http://10.0.0.1:8080/a/x:y"),
            ("http://other/", "abs http://other/"),
            ("HTTPS://10.0.0.1", "abs https://10.0.0.1/"),
            ("https://u:p@10.0.0.1:8443?x", "abs https://10.0.0.1:8443/?x"),
            ("//h:81/p", "abs http://h:81/p"),
            ("http://[::1]:80/", "abs http://[::1]:80/"),
            ("http://h:/", "abs http://h/"),
            ("http:///p", "bad"),
            ("http:/p", "bad"),
            ("http://h:99999/", "bad"),
            ("http://h:+1/", "bad"),
            ("http://h:0/", "bad"),
            ("http://[::1/", "bad"),
            ("http://[h]/", "bad"),
            ("http://a b/", "bad"),
            ("ftp://10.0.0.1/", "bad"),
        ];
        for (location, expected) in table {
            assert_eq!(led(location), expected, "{location:?}");
        }
    }

    #[test]
    fn hosts_are_compared_as_names_and_addresses() {
        let url = |host: &str| Url::new(Https, host, 1, "/");
        for (a, b, same) in [
            ("10.0.0.1", "10.0.0.1", true),
            ("10.0.0.1", "10.0.0.2", false),
            ("Web.Test", "web.test", true),
            ("web.test", "www.web.test", false),
            ("::1", "[0:0::1]", true),
        ] {
            assert_eq!(url(a).same_host(&url(b)), same, "{a} {b}");
        }
    }

    #[test]
    fn messages_show_no_query_and_no_user() {
        assert_eq!(base().shown(), "http://10.0.0.1:8080/a/b");
        let Redirect::To { url, .. } = base().redirect("http://user:s3cret@h/p?token=s3cret") else {
            panic!()
        };
        assert_eq!(url.shown(), "http://h/p");
        assert_eq!(Url::new(Http, "fd00::1", 80, "/").shown(), "http://[fd00::1]:80/");
    }

    proptest! {
        #[test]
        fn any_path_can_be_sent(path in ".{0,60}") {
            let url = Url::new(Http, "h", 80, &format!("/{path}"));
            let uri: http::Uri = url.target().parse().unwrap();
            prop_assert!(uri.path().starts_with('/'));
        }

        #[test]
        fn any_location_is_survived(location in ".{0,60}") {
            if let Redirect::To { url, .. } = base().redirect(&location) {
                prop_assert!(url.target().parse::<http::Uri>().is_ok());
            }
        }
    }
}
