//! Requests to answers. Whoever is missing is named, with 503 or, for health, 500.

use std::sync::Arc;
use std::time::Duration;

use bulkhead_api::evictd::v1::evictd_client::EvictdClient;
use bulkhead_api::evictd::v1::{GetSummaryRequest, ListCgroupsRequest, ListCgroupsResponse, Summary};
use bulkhead_base::chain;
use bulkhead_ipc::PeerChannel;
use bulkhead_ipc::status::with_deadline;
use bytes::Bytes;
use http::header::{ALLOW, CONTENT_TYPE, HeaderName, HeaderValue, LOCATION, X_CONTENT_TYPE_OPTIONS};
use http::{Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;
use tokio::time::timeout;

use super::requests::{Kind, Requests, path};
use super::route::{Of, Part, Route, route};
use super::server::Port;
use crate::error::{PeerError, why};
use crate::health::board::{Board, Peers};
use crate::health::report;
use crate::metrics::gather::Gatherer;
use crate::metrics::{self, cadvisor, resource};
use crate::pods::as_list_item;
use crate::pods::source::{Entry, PodList, Pods};
use crate::stats::{Extent, summary};

/// A body: whole, or made while it is sent.
pub(crate) type Body = UnsyncBoxBody<Bytes, PeerError>;

/// What the ports show.
pub(crate) struct Front {
    /// Health.
    pub(crate) health: Arc<Board<Peers>>,
    /// Pods.
    pub(crate) pods: Pods,
    /// Statistics.
    pub(crate) evictd: EvictdClient<PeerChannel>,
    /// Metrics of all processes.
    pub(crate) gatherer: Gatherer,
    /// What is counted of requests.
    pub(crate) requests: Requests,
}

/// Content type of text.
pub(crate) const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");
/// Content type of a page.
pub(crate) const HTML: HeaderValue = HeaderValue::from_static("text/html; charset=utf-8");
const METRICS: HeaderValue =
    HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8; escaping=underscores");
const JSON: HeaderValue = HeaderValue::from_static("application/json");
/// Deadline of evictd's answer.
const SUMMARY: Duration = Duration::from_secs(10);

/// Answers one request. Its body is never read.
pub(crate) async fn answer<B>(front: &Front, port: Port, request: &Request<B>) -> Response<Body> {
    let uri = request.uri();
    let route = route(port, request.method(), uri.path(), uri.query().unwrap_or_default());
    let kind = Kind { path: path(&route), long_running: false, server: "readonly" };
    let _counted = front.requests.begin(request.method(), kind);
    plain_route(front, route).await
}

/// Answers what the read-only port and the secured one have.
pub(crate) async fn plain_route(front: &Front, route: Route) -> Response<Body> {
    match route {
        Route::Health(part) => health(front, part).await,
        Route::Pods => pods(front).await,
        Route::Summary(extent) => statistics(front, extent).await,
        Route::Metrics(of) => measures(front, of).await,
        Route::Moved(to) => moved(to),
        Route::NotAllowed => {
            let text =
                "405: not offered here, or not for this method; what is only to be read is answered to GET\n";
            with_header(plain(StatusCode::METHOD_NOT_ALLOWED, text), ALLOW, HeaderValue::from_static("GET"))
        }
        Route::Missing => plain(StatusCode::NOT_FOUND, "404: there is no such path\n"),
    }
}

async fn health(front: &Front, part: Part) -> Response<Body> {
    let (name, verbose) = match part {
        Part::Ping => return plain(StatusCode::OK, "ok"),
        Part::Whole { verbose } => (None, verbose),
        Part::Process(name) => (Some(name), false),
    };
    let all = front.health.checks().await;
    let asked = match &name {
        None => report(&all),
        Some(name) => {
            let own: Vec<_> = all.iter().filter(|check| &check.process == name).cloned().collect();
            report(&own)
        }
    };
    match (asked.ok, verbose) {
        (true, false) => plain(StatusCode::OK, "ok"),
        (true, true) => plain(StatusCode::OK, format!("{}healthz check passed\n", asked.lines)),
        (false, _) => {
            plain(StatusCode::INTERNAL_SERVER_ERROR, format!("{}healthz check failed\n", asked.lines))
        }
    }
}

async fn pods(front: &Front) -> Response<Body> {
    match front.pods.list().await {
        Ok(list) => json(pod_list(list)),
        Err(error) => missing(&error),
    }
}

/// Where the body of a pod list stands.
enum Writing {
    Head(PodList),
    Items(PodList),
    Comma(PodList),
    End,
}

/// A `PodList` made while it is sent. A peer that is lost on the way cuts the answer off, so that it cannot be taken for whole.
fn pod_list(list: PodList) -> Body {
    let pieces = futures::stream::try_unfold(Writing::Head(list), |state| async move {
        let (mut list, comma) = match state {
            Writing::Head(list) => {
                let head =
                    Bytes::from_static(br#"{"kind":"PodList","apiVersion":"v1","metadata":{},"items":["#);
                return Ok(Some((Frame::data(head), Writing::Items(list))));
            }
            Writing::Items(list) => (list, false),
            Writing::Comma(list) => (list, true),
            Writing::End => return Ok(None),
        };
        let mut pod = loop {
            match list.next().await? {
                Some(Entry::Pod(pod)) => break pod,
                Some(Entry::Refused(_)) => {}
                None => return Ok(Some((Frame::data(Bytes::from_static(b"]}\n")), Writing::End))),
            }
        };
        as_list_item(&mut pod);
        let mut text = if comma { vec![b','] } else { Vec::new() };
        let malformed = |source| PeerError::Malformed { process: "syncd", what: "a pod".to_owned(), source };
        serde_json::to_writer(&mut text, &pod).map_err(malformed)?;
        Ok(Some((Frame::data(text.into()), Writing::Comma(list))))
    });
    BodyExt::boxed_unsync(StreamBody::new(pieces))
}

async fn statistics(front: &Front, extent: Extent) -> Response<Body> {
    let asked = ask_summary(front, extent).await.and_then(|answer| {
        serde_json::to_vec(&summary(answer, extent)).map_err(|source| PeerError::Malformed {
            process: "evictd",
            what: "statistics".to_owned(),
            source,
        })
    });
    match asked {
        Ok(text) => json(whole(text)),
        Err(error) => missing(&error),
    }
}

async fn ask_summary(front: &Front, extent: Extent) -> Result<Summary, PeerError> {
    let mut evictd = front.evictd.clone();
    let request = GetSummaryRequest { only_cpu_and_memory: extent == Extent::CpuAndMemory };
    of_evictd(evictd.get_summary(with_deadline(request, SUMMARY))).await
}

async fn ask_cgroups(front: &Front) -> Result<ListCgroupsResponse, PeerError> {
    let mut evictd = front.evictd.clone();
    of_evictd(evictd.list_cgroups(with_deadline(ListCgroupsRequest {}, SUMMARY))).await
}

async fn of_evictd<T>(
    answer: impl Future<Output = Result<tonic::Response<T>, tonic::Status>>,
) -> Result<T, PeerError> {
    match timeout(SUMMARY, answer).await {
        Ok(Ok(answer)) => Ok(answer.into_inner()),
        Ok(Err(status)) => Err(no_statistics(why(&status))),
        Err(_) => Err(no_statistics(format!("it took longer than {} s", SUMMARY.as_secs()))),
    }
}

async fn measures(front: &Front, of: Of) -> Response<Body> {
    let one = async |process: &'static str| {
        front.gatherer.one(process).await.map_err(|status| PeerError::Missing {
            process,
            what: "its metrics",
            why: why(&status),
        })
    };
    let families = match of {
        Of::Processes => Ok(metrics::all(front.gatherer.all().await)),
        Of::Probes => one("prober").await.map(metrics::probes),
        Of::Levels => one("syncd").await.map(metrics::start),
        Of::Resources => {
            let asked = ask_summary(front, Extent::CpuAndMemory).await;
            Ok(resource::families(asked.as_ref().ok()))
        }
        Of::Cgroups => {
            let asked = ask_cgroups(front).await;
            Ok(cadvisor::families(asked.as_ref().ok()))
        }
    };
    match families {
        Ok(families) => respond(StatusCode::OK, METRICS, whole(metrics::write(&families))),
        Err(error) => missing(&error),
    }
}

fn no_statistics(why: String) -> PeerError {
    PeerError::Missing { process: "evictd", what: "the statistics", why }
}

pub(crate) fn missing(error: &PeerError) -> Response<Body> {
    plain(StatusCode::SERVICE_UNAVAILABLE, format!("{}\n", chain(error)))
}

fn moved(to: &'static str) -> Response<Body> {
    let body = whole(format!("<a href=\"{to}\">{to}</a>\n"));
    let response = respond(StatusCode::TEMPORARY_REDIRECT, HTML, body);
    with_header(response, LOCATION, HeaderValue::from_static(to))
}

pub(crate) fn json(body: Body) -> Response<Body> {
    respond(StatusCode::OK, JSON, body)
}

pub(crate) fn plain(code: StatusCode, text: impl Into<Bytes>) -> Response<Body> {
    // What others wrote (reasons) must not be taken for a page.
    with_header(respond(code, TEXT, whole(text)), X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"))
}

pub(crate) fn whole(text: impl Into<Bytes>) -> Body {
    Full::new(text.into()).map_err(|never| match never {}).boxed_unsync()
}

pub(crate) fn respond(code: StatusCode, content: HeaderValue, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = code;
    with_header(response, CONTENT_TYPE, content)
}

pub(crate) fn with_header<B>(mut response: Response<B>, name: HeaderName, value: HeaderValue) -> Response<B> {
    response.headers_mut().insert(name, value);
    response
}
