//! A URL that pods come from, and what a redirect makes of it. Pure. Keeps its secrets out of everything that is shown.

use std::fmt;

use bulkhead_config::Headers;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use http::uri::{Scheme, Uri};

/// `staticPodURL` with `staticPodURLHeader`.
#[derive(Clone)]
pub struct ManifestUrl {
    text: String,
    target: Target,
    headers: HeaderMap,
}

/// Why it cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum UrlError {
    /// Not a URL.
    #[error("it is no http:// or https:// URL with a host")]
    Url,
    /// A user name or password in it: they would be shown with it.
    #[error("it holds a user name or password: give them as a header in staticPodURLHeader")]
    Credentials,
    /// A header that HTTP does not allow.
    #[error("header {name} has a name or value that HTTP does not allow")]
    Header {
        /// Its name. Its value is nobody's business.
        name: String,
    },
}

/// One place that is asked.
#[derive(Clone, PartialEq, Eq)]
pub struct Target {
    /// Whether over TLS.
    pub tls: bool,
    /// A name or an address, without brackets.
    pub host: String,
    /// The port.
    pub port: u16,
    /// Host and port as they were written, for the request.
    pub authority: String,
    /// Path and query, for the request.
    pub path: String,
}

/// What a redirect leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Redirect {
    /// There.
    To(Target),
    /// Nowhere that is followed, and why.
    Refused(String),
}

impl ManifestUrl {
    /// Of what the configuration says.
    ///
    /// # Errors
    /// When it cannot be asked.
    pub fn new(url: &str, headers: &Headers) -> Result<Self, UrlError> {
        let target = Target::parse(url)?;
        let mut map = HeaderMap::new();
        for (name, values) in &headers.0 {
            for value in values {
                let bad = || UrlError::Header { name: name.clone() };
                let key = HeaderName::from_bytes(name.as_bytes()).map_err(|_| bad())?;
                let mut value = HeaderValue::from_str(value).map_err(|_| bad())?;
                value.set_sensitive(true);
                map.append(key, value);
            }
        }
        Ok(Self { text: url.to_owned(), target, headers: map })
    }

    /// The whole URL. Not to be shown.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The URL for people.
    pub fn shown(&self) -> String {
        self.target.shown()
    }

    /// What is asked first.
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// The configured headers. Not to be shown.
    pub fn headers(&self) -> &HeaderMap {
        &self.headers
    }
}

impl fmt::Debug for ManifestUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ManifestUrl({})", self.shown())
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown())
    }
}

impl Target {
    /// Of an absolute URL.
    ///
    /// # Errors
    /// When it is none, or not one of HTTP.
    pub fn parse(url: &str) -> Result<Self, UrlError> {
        // What follows is for the reader of the answer.
        let url = url.split('#').next().unwrap_or_default();
        let uri: Uri = url.parse().map_err(|_| UrlError::Url)?;
        let tls = match uri.scheme() {
            Some(scheme) if *scheme == Scheme::HTTP => false,
            Some(scheme) if *scheme == Scheme::HTTPS => true,
            _ => return Err(UrlError::Url),
        };
        let authority = uri.authority().ok_or(UrlError::Url)?;
        if authority.as_str().contains('@') {
            return Err(UrlError::Credentials);
        }
        let host = authority.host().trim_start_matches('[').trim_end_matches(']');
        if host.is_empty() {
            return Err(UrlError::Url);
        }
        Ok(Self {
            tls,
            host: host.to_owned(),
            port: authority.port_u16().unwrap_or(if tls { 443 } else { 80 }),
            authority: authority.as_str().to_owned(),
            path: uri.path_and_query().map_or_else(|| "/".to_owned(), ToString::to_string),
        })
    }

    /// For people: without the query.
    pub fn shown(&self) -> String {
        let path = self.path.split('?').next().unwrap_or_default();
        format!("{}{}{path}", self.scheme(), self.authority)
    }

    /// Same scheme, host and port.
    pub fn same_server(&self, other: &Self) -> bool {
        let host = self.host.eq_ignore_ascii_case(&other.host);
        host && (self.tls, self.port) == (other.tls, other.port)
    }

    /// Where `location` leads from here. Never to another scheme: neither off TLS nor to what is no HTTP.
    pub fn redirect(&self, location: &str) -> Redirect {
        let base = format!("{}{}", self.scheme(), self.authority);
        let path = self.path.split('?').next().unwrap_or_default();
        let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
        let has_scheme = location.split(['/', '?']).next().is_some_and(|first| first.contains(':'));
        let url = if has_scheme {
            location.to_owned()
        } else if location.starts_with("//") {
            format!("{}{}", self.scheme(), location.trim_start_matches('/'))
        } else if location.starts_with('/') {
            format!("{base}{location}")
        } else if location.starts_with('?') {
            format!("{base}{path}{location}")
        } else {
            format!("{base}{folder}/{location}")
        };
        match Self::parse(&url) {
            Ok(target) if target.tls == self.tls => Redirect::To(target),
            Ok(target) => Redirect::Refused(format!("to {}, another scheme", target.shown())),
            Err(_) => Redirect::Refused("to what is no http:// or https:// URL".to_owned()),
        }
    }

    fn scheme(&self) -> &'static str {
        if self.tls { "https://" } else { "http://" }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_taken_apart() {
        for (url, tls, host, port, path) in [
            ("http://h", false, "h", 80, "/"),
            ("https://h/", true, "h", 443, "/"),
            ("https://H:8443/a/b?c=d#e", true, "H", 8443, "/a/b?c=d"),
            ("http://[::1]:8080/x", false, "::1", 8080, "/x"),
        ] {
            let target = Target::parse(url).unwrap();
            assert_eq!(
                (target.tls, target.host.as_str(), target.port, target.path.as_str()),
                (tls, host, port, path)
            );
        }
        for url in ["", "h", "/x", "ftp://h/", "http://", "file:///etc/x", "http://a b/", "https:h"] {
            assert!(matches!(Target::parse(url), Err(UrlError::Url)), "{url}");
        }
        assert!(matches!(Target::parse("http://u:p@h/"), Err(UrlError::Credentials)));
    }

    #[test]
    fn nothing_secret_is_shown() {
        let headers = Headers([("Authorization".to_owned(), vec!["s3cret".to_owned()])].into());
        let url = ManifestUrl::new("https://h/pods?token=s3cret", &headers).unwrap();
        let shown = format!("{} {url:?} {:?} {:?}", url.shown(), url.target(), url.headers());
        assert!(!shown.contains("s3cret") && shown.contains("https://h/pods"), "{shown}");
        assert_eq!(url.headers()["authorization"], "s3cret");
        let bad = Headers([("X-A".to_owned(), vec!["s3cret\n".to_owned()])].into());
        let error = ManifestUrl::new("https://h/", &bad).unwrap_err().to_string();
        assert!(error.contains("X-A") && !error.contains("s3cret"), "{error}");
    }

    #[test]
    fn redirects_stay_with_their_scheme() {
        let at = Target::parse("https://h:8443/a/b?c").unwrap();
        for (location, wanted) in [
            ("/x", Some("https://h:8443/x")),
            ("x?y", Some("https://h:8443/a/x?y")),
            ("?y", Some("https://h:8443/a/b?y")),
            ("//g/x", Some("https://g/x")),
            ("https://g:1/x", Some("https://g:1/x")),
            ("http://h:8443/x", None),
            ("file:///etc/passwd", None),
            ("https://u:p@h/", None),
            ("gopher:x", None),
        ] {
            let wanted = wanted.map(|url| Redirect::To(Target::parse(url).unwrap()));
            let found = at.redirect(location);
            assert_eq!(matches!(found, Redirect::Refused(_)), wanted.is_none(), "{location}: {found:?}");
            assert!(wanted.is_none_or(|wanted| wanted == found), "{location}");
        }
        let plain = Target::parse("http://h/").unwrap();
        assert!(matches!(plain.redirect("https://h/"), Redirect::Refused(why) if why.contains("https://h/")));
        assert!(plain.same_server(&Target::parse("http://H:80/x").unwrap()));
        assert!(!plain.same_server(&Target::parse("http://h:81/").unwrap()));
    }
}
