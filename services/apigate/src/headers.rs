//! Which headers pass. Towards the API server only those that are listed: whoever could say more (Authorization,
//! Impersonate-User, X-Remote-Group, ...) could be somebody else there. Pure.

use http::header::{
    ACCEPT, ACCEPT_ENCODING, CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, TE, TRAILER,
    TRANSFER_ENCODING, UPGRADE, USER_AGENT,
};
use http::{HeaderMap, HeaderName, HeaderValue};

use bulkhead_ipc::trace::TRACEPARENT;

/// Those that a process decides about. Only the last one of a name counts where one is meant.
const PASSED: [HeaderName; 5] = [ACCEPT, ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE];
/// Those of an answer that are about one connection.
const HOP_BY_HOP: [HeaderName; 5] = [CONNECTION, TE, TRAILER, TRANSFER_ENCODING, UPGRADE];

/// Headers of a request of `process`, as the API server gets them.
pub fn towards_server(asked: &HeaderMap, process: &str, bearer: Option<&HeaderValue>) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for name in PASSED {
        for value in asked.get_all(&name) {
            headers.append(&name, value.clone());
        }
    }
    if let Some(value) = asked.get(TRACEPARENT) {
        headers.insert(HeaderName::from_static(TRACEPARENT), value.clone());
    }
    let own = format!("bulkhead/{} {process}", env!("CARGO_PKG_VERSION"));
    let agent = match asked.get(USER_AGENT).and_then(|agent| agent.to_str().ok()) {
        Some(theirs) => format!("{own} {theirs}"),
        None => own,
    };
    if let Ok(agent) = HeaderValue::try_from(agent) {
        headers.insert(USER_AGENT, agent);
    }
    if let Some(bearer) = bearer {
        headers.insert(http::header::AUTHORIZATION, bearer.clone());
    }
    headers
}

/// Takes from an answer's headers what is about its connection alone.
pub fn towards_process(headers: &mut HeaderMap) {
    for name in HOP_BY_HOP {
        headers.remove(name);
    }
    for name in ["keep-alive", "proxy-authenticate", "proxy-connection", "alt-svc", "set-cookie"] {
        headers.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_passes_that_says_who_asks() {
        let mut asked = HeaderMap::new();
        for name in [
            "authorization",
            "proxy-authorization",
            "impersonate-user",
            "impersonate-group",
            "impersonate-uid",
            "impersonate-extra-scopes",
            "x-remote-user",
            "x-remote-group",
            "x-remote-extra-a",
            "x-forwarded-for",
            "cookie",
            "connection",
            "upgrade",
            "te",
            "transfer-encoding",
            "host",
            "expect",
            "sec-websocket-protocol",
        ] {
            asked.insert(HeaderName::from_static(name), HeaderValue::from_static("x"));
        }
        let passed = towards_server(&asked, "syncd", None);
        let names: Vec<_> = passed.keys().map(HeaderName::as_str).collect();
        assert_eq!(names, ["user-agent"]);
    }

    #[test]
    fn what_is_about_the_content_passes() {
        let mut asked = HeaderMap::new();
        for (name, value) in [
            ("accept", "application/json"),
            ("content-type", "application/merge-patch+json"),
            ("content-length", "5"),
            ("user-agent", "kube/1"),
            ("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
        ] {
            asked.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        let bearer = HeaderValue::from_static("Bearer t");
        let passed = towards_server(&asked, "syncd", Some(&bearer));
        for name in ["accept", "content-type", "content-length", "traceparent"] {
            assert_eq!(passed.get(name), asked.get(name), "{name}");
        }
        let agent = passed["user-agent"].to_str().unwrap();
        assert!(agent.starts_with("bulkhead/") && agent.ends_with(" syncd kube/1"), "{agent}");
        assert_eq!(passed["authorization"], "Bearer t");
    }
}
