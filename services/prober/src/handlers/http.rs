//! The HTTP probe: a GET whose answer of 200 to 399 is a success.
//!
//! Redirects to the same host name are followed. One to another host is not: it counts as the success that its status is,
//! with a warning that names where it led.

mod headers;
mod url;

use bulkhead_base::chain;
use bulkhead_model::probe::{HttpHeader, HttpScheme};
use bytes::Bytes;
use http::header::LOCATION;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::rt::{Read, Write};
use hyper_util::rt::TokioIo;
use tokio_util::task::AbortOnDropHandle;

use super::net::Dialer;
use super::tls::{Inside, Tls};
use crate::report::Report;
use headers::Headers;
use url::Redirect;

pub use url::Url;

/// Redirects followed.
const REDIRECTS: usize = 10;
/// Read of an answer's body; the rest is not fetched.
const BODY_BYTES: usize = 10 * 1024;
/// Bound on an answer's head.
const HEAD_BYTES: usize = 64 * 1024;

/// Asks for `url` with `headers` added. The connection is closed when this returns or is dropped.
pub async fn get(dialer: &Dialer, tls: &Tls, url: Url, headers: &[HttpHeader]) -> Report {
    let headers = match Headers::new(headers) {
        Ok(headers) => headers,
        Err(error) => return Report::failure(error.to_string()),
    };
    let mut at = url.clone();
    let mut host = headers.host().map_or_else(|| url.authority(), str::to_owned);
    for _ in 0..=REDIRECTS {
        let answer = ask(dialer, tls, &at, headers.with_host(&host)).await;
        let (next, relative) = match step(&url, &at, answer).await {
            Step::Done(report) => return report,
            Step::Again { url, relative } => (url, relative),
        };
        // A relative redirect stays with the server that was named; an absolute one names it anew.
        host = match headers.host() {
            Some(given) if relative => given.to_owned(),
            _ => next.authority(),
        };
        at = next;
    }
    Report::failure(format!("GET {}: stopped after {REDIRECTS} redirects", url.shown()))
}

/// What an answer means for the probe.
enum Step {
    Done(Report),
    Again { url: Url, relative: bool },
}

/// Reads what `at` answered; the probe began at `first`.
async fn step(first: &Url, at: &Url, answer: Result<Answer, String>) -> Step {
    let answer = match answer {
        Ok(answer) => answer,
        Err(error) => return Step::Done(Report::failure(format!("GET {}: {error}", at.shown()))),
    };
    let Some(location) = location(&answer) else { return Step::Done(verdict(at, answer).await) };
    let status = answer.response.status();
    Step::Done(match at.redirect(&location) {
        Redirect::To { url, relative } if url.same_host(first) => return Step::Again { url, relative },
        Redirect::To { url, .. } => Report::warning(left_alone(status, &url)),
        Redirect::Bad(reason) => Report::failure(format!("GET {}: bad redirect: {reason}", at.shown())),
    })
}

/// That a redirect to another host was not followed. The kubelet shows the answer's body, for which HTTP suggests a link; here it
/// is always that link, so that something is said of an empty body too, and nothing of a URL that may be a secret.
fn left_alone(status: StatusCode, to: &Url) -> String {
    let reason = status.canonical_reason().unwrap_or_default();
    format!("Probe terminated redirects, Response body: <a href=\"{}\">{reason}</a>.", to.shown())
}

/// What a probe makes of the first answer over `stream`: for fuzzing. `None`: it would ask again.
#[cfg(any(test, fuzzing))]
pub(super) async fn answer_over(stream: tokio::io::DuplexStream) -> Option<Report> {
    let url = Url::new(HttpScheme::Http, "10.0.0.1", 80, "/health?x");
    let answer = send(stream, Request::new(Empty::new())).await;
    match step(&url, &url, answer.map_err(|error| chain(&error).to_string())).await {
        Step::Done(report) => Some(report),
        Step::Again { .. } => None,
    }
}

/// Where the answer sends its reader; `None` when it is the last one.
fn location(answer: &Answer) -> Option<String> {
    use StatusCode as S;
    let redirects =
        [S::MOVED_PERMANENTLY, S::FOUND, S::SEE_OTHER, S::TEMPORARY_REDIRECT, S::PERMANENT_REDIRECT];
    if !redirects.contains(&answer.response.status()) {
        return None;
    }
    let location = answer.response.headers().get(LOCATION)?;
    Some(String::from_utf8_lossy(location.as_bytes()).into_owned())
}

async fn verdict(url: &Url, answer: Answer) -> Report {
    let Answer { response, connection: _connection } = answer;
    let status = response.status();
    if let Err(error) = drain(response.into_body()).await {
        return Report::failure(format!("GET {}: the body broke off: {}", url.shown(), chain(&error)));
    }
    if (200..400).contains(&status.as_u16()) {
        Report::success()
    } else {
        Report::failure(format!("HTTP probe failed with statuscode: {}", status.as_u16()))
    }
}

/// Reads as far as anybody cares.
async fn drain(mut body: Incoming) -> Result<(), hyper::Error> {
    let mut read = 0;
    while read < BODY_BYTES {
        let Some(frame) = body.frame().await else { break };
        read += frame?.data_ref().map_or(0, Bytes::len);
    }
    Ok(())
}

struct Answer {
    response: Response<Incoming>,
    connection: AbortOnDropHandle<()>,
}

/// One request over one connection; errors are for people.
async fn ask(dialer: &Dialer, tls: &Tls, url: &Url, headers: HeaderMap) -> Result<Answer, String> {
    let told = |error: &(dyn std::error::Error + 'static)| chain(error).to_string();
    let mut request = Request::new(Empty::<Bytes>::new());
    *request.uri_mut() = url.target().parse().map_err(|error: http::uri::InvalidUri| told(&error))?;
    *request.headers_mut() = headers;
    let stream = dialer.connect(url.host(), url.port()).await.map_err(|error| told(&error))?;
    match url.scheme() {
        HttpScheme::Http => send(stream, request).await,
        HttpScheme::Https => {
            let stream = tls.wrap(url.host(), stream, Inside::Http).await.map_err(|error| told(&error))?;
            send(stream, request).await
        }
    }
    .map_err(|error| told(&error))
}

async fn send<S>(stream: S, request: Request<Empty<Bytes>>) -> Result<Answer, hyper::Error>
where
    TokioIo<S>: Read + Write + Unpin + Send + 'static,
    S: Send + 'static,
{
    let mut builder = http1::Builder::new();
    builder.title_case_headers(true).max_buf_size(HEAD_BYTES);
    let (mut sender, connection) = builder.handshake(TokioIo::new(stream)).await?;
    // Its error, if any, reaches the sender as well.
    let connection = AbortOnDropHandle::new(tokio::spawn(async move { drop(connection.await) }));
    let response = sender.send_request(request).await?;
    Ok(Answer { response, connection })
}
