//! `/containerLogs/`: parameters as the API's `PodLogOptions` has them, and the log as it is read.

use bulkhead_base::chain;
use bytes::Bytes;
use futures::StreamExt;
use http::{Response, StatusCode};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use jiff::Timestamp;

use super::answer::{text, too_many};
use super::body::{Answer, Failure};
use super::query::Query;
use super::route::Container;
use crate::error::LogError;
use crate::logs::{Chunks, Logs, Since, Stream, Wanted};

/// What is wanted, and how many bytes of it at most.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Asked {
    wanted: Wanted,
    limit: Option<u64>,
}

/// Why parameters cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
enum BadOptions {
    /// It is not of the kind that it must be.
    #[error("{name} is {value:?}: it must be {kind}")]
    Kind { name: &'static str, value: String, kind: &'static str },
    /// It is, and makes no sense.
    #[error("{0}")]
    Sense(&'static str),
}

/// Answers with the log of a container.
pub(super) async fn answer(logs: &Logs, container: Container, query: &Query) -> Response<Answer> {
    let Asked { wanted, limit } = match options(container, query) {
        Ok(asked) => asked,
        Err(error @ BadOptions::Kind { .. }) => return text(StatusCode::BAD_REQUEST, format!("{error}\n")),
        Err(error) => return text(StatusCode::UNPROCESSABLE_ENTITY, format!("{error}\n")),
    };
    match logs.read(wanted).await {
        Ok(chunks) => Response::new(body(chunks, limit)),
        Err(error) => {
            let words = format!("{}\n", chain(&error));
            match code(&error) {
                StatusCode::TOO_MANY_REQUESTS => too_many(words),
                code => text(code, words),
            }
        }
    }
}

fn code(error: &LogError) -> StatusCode {
    match error {
        LogError::NoPod { .. } | LogError::NoContainer { .. } => StatusCode::NOT_FOUND,
        LogError::Name { .. } | LogError::Several { .. } => StatusCode::BAD_REQUEST,
        // As the kubelet says of a container that waits, or has no instance before this one.
        LogError::NoLog { .. } | LogError::NoPrevious { .. } => StatusCode::BAD_REQUEST,
        LogError::Busy { .. } => StatusCode::TOO_MANY_REQUESTS,
        LogError::Peer(_) => StatusCode::SERVICE_UNAVAILABLE,
        LogError::NotPlain { .. } | LogError::Io { .. } | LogError::Denied { .. } | LogError::Interrupted => {
            StatusCode::INTERNAL_SERVER_ERROR
        }
    }
}

/// The lines, up to the limit. A log that cannot be read to its end is cut off, so that it cannot be taken for whole.
fn body(chunks: Chunks, limit: Option<u64>) -> Answer {
    let pieces = chunks.scan(limit.unwrap_or(u64::MAX), |left, chunk| {
        let piece = match chunk {
            // All that was wanted is there.
            _ if *left == 0 => None,
            Err(status) => Some(Err(Failure::from(status))),
            Ok(chunk) => {
                let mut data = Bytes::from(chunk.data);
                data.truncate(usize::try_from(*left).unwrap_or(usize::MAX));
                *left = left.saturating_sub(u64::try_from(data.len()).unwrap_or(u64::MAX));
                Some(Ok(Frame::data(data)))
            }
        };
        std::future::ready(piece)
    });
    BodyExt::boxed_unsync(StreamBody::new(pieces))
}

fn options(container: Container, query: &Query) -> Result<Asked, BadOptions> {
    let seconds = number(query, "sinceSeconds")?;
    let date = match query.get("sinceTime").filter(|value| !value.is_empty()) {
        None => None,
        Some(value) => Some(value.parse::<Timestamp>().map_err(|_| BadOptions::Kind {
            name: "sinceTime",
            value: value.chars().take(64).collect(),
            kind: "a date such as 2026-01-31T12:00:00Z",
        })?),
    };
    let since = match (seconds, date) {
        (Some(_), Some(_)) => return Err(BadOptions::Sense("sinceSeconds and sinceTime exclude each other")),
        (Some(seconds), None) => match u64::try_from(seconds) {
            Ok(seconds) if seconds > 0 => Since::Seconds(seconds),
            _ => return Err(BadOptions::Sense("sinceSeconds must be greater than 0")),
        },
        (None, Some(date)) => Since::Date(date),
        (None, None) => Since::Beginning,
    };
    let tail = match number(query, "tailLines")? {
        None => None,
        Some(lines) => {
            Some(u64::try_from(lines).map_err(|_| BadOptions::Sense("tailLines must be 0 or greater"))?)
        }
    };
    let limit = match number(query, "limitBytes")? {
        None => None,
        Some(bytes) => match u64::try_from(bytes) {
            Ok(bytes) if bytes > 0 => Some(bytes),
            _ => return Err(BadOptions::Sense("limitBytes must be greater than 0")),
        },
    };
    let only = match query.get("stream").unwrap_or_default() {
        "" | "All" => None,
        "Stdout" => Some(Stream::Out),
        "Stderr" => Some(Stream::Err),
        _ => return Err(BadOptions::Sense("stream must be All, Stdout or Stderr")),
    };
    if only.is_some() && tail.is_some() {
        return Err(BadOptions::Sense("tailLines and one stream exclude each other"));
    }
    let wanted = Wanted {
        namespace: container.pod.namespace,
        pod: container.pod.name,
        container: container.name,
        follow: query.is_set("follow"),
        previous: query.is_set("previous"),
        timestamps: query.is_set("timestamps"),
        tail,
        since,
        only,
    };
    Ok(Asked { wanted, limit })
}

fn number(query: &Query, name: &'static str) -> Result<Option<i64>, BadOptions> {
    let Some(value) = query.get(name).filter(|value| !value.is_empty()) else { return Ok(None) };
    let kind = |_| BadOptions::Kind { name, value: value.chars().take(64).collect(), kind: "a whole number" };
    value.parse().map(Some).map_err(kind)
}

#[cfg(test)]
mod tests {
    use bulkhead_api::gateway::v1::LogChunk;
    use tonic::Status;

    use super::*;
    use crate::secured::route::Pod;

    fn container() -> Container {
        let pod = Pod { namespace: "ns".to_owned(), name: "p".to_owned(), uid: None };
        Container { pod, name: "c".to_owned() }
    }

    fn of(query: &str) -> Result<Asked, BadOptions> {
        options(container(), &Query::read(query).unwrap())
    }

    #[test]
    fn parameters_are_those_of_the_api() {
        let wanted = |query: &str| of(query).unwrap().wanted;
        let nothing = wanted("");
        assert_eq!(
            (nothing.namespace.as_str(), nothing.pod.as_str(), nothing.container.as_str()),
            ("ns", "p", "c")
        );
        assert_eq!((nothing.follow, nothing.tail, nothing.since), (false, None, Since::Beginning));
        let all = wanted("follow=true&previous=1&timestamps&tailLines=0&sinceSeconds=3");
        assert!(all.follow && all.previous && all.timestamps);
        assert_eq!((all.tail, all.since), (Some(0), Since::Seconds(3)));
        assert!(!wanted("follow=false").follow);
        let date = wanted("sinceTime=2026-01-31T12:00:00%2B02:00").since;
        assert_eq!(date, Since::Date("2026-01-31T10:00:00Z".parse().unwrap()));
        assert_eq!(wanted("stream=Stderr").only, Some(Stream::Err));
        assert_eq!(wanted("stream=All&tailLines=1").only, None);
        assert_eq!(of("limitBytes=7").unwrap().limit, Some(7));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for query in
            ["tailLines=x", "sinceTime=yesterday", "sinceSeconds=1.5", "limitBytes=9999999999999999999999"]
        {
            assert!(matches!(of(query), Err(BadOptions::Kind { .. })), "{query}");
        }
        for query in [
            "tailLines=-1",
            "sinceSeconds=0",
            "sinceSeconds=-1",
            "limitBytes=0",
            "stream=stdout",
            "stream=Stdout&tailLines=1",
            "sinceSeconds=1&sinceTime=2026-01-31T12:00:00Z",
        ] {
            assert!(matches!(of(query), Err(BadOptions::Sense(_))), "{query}");
        }
    }

    async fn sent(limit: Option<u64>, chunks: Vec<Result<LogChunk, Status>>) -> Result<Bytes, Failure> {
        let (to, from) = tokio::sync::mpsc::channel(8);
        for chunk in chunks {
            to.send(chunk).await.unwrap();
        }
        drop(to);
        Ok(body(from.into(), limit).collect().await?.to_bytes())
    }

    #[tokio::test]
    async fn a_limit_is_kept_to_the_byte_and_a_broken_log_is_cut_off() {
        let chunk = |text: &str| Ok(LogChunk { data: text.as_bytes().to_vec() });
        let whole = || vec![chunk("abc\n"), chunk("def\n")];
        assert_eq!(sent(None, whole()).await.unwrap(), "abc\ndef\n");
        assert_eq!(sent(Some(6), whole()).await.unwrap(), "abc\nde");
        assert_eq!(sent(Some(4), whole()).await.unwrap(), "abc\n");
        assert_eq!(sent(Some(99), whole()).await.unwrap(), "abc\ndef\n");
        let broken = vec![chunk("abc\n"), Err(Status::internal("no"))];
        assert!(sent(None, broken).await.is_err());
    }
}
