//! One request's way on the secured port: who, what, may he, and only then the answer.

use std::sync::Arc;
use std::time::Duration;

use bulkhead_base::{Clock, chain};
use bulkhead_config::KubeletConfiguration;
use bulkhead_ipc::Mirror;
use bulkhead_model::runtime::RuntimePod;
use bytes::Bytes;
use http::header::{ALLOW, HeaderValue, RETRY_AFTER};
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use rustls::pki_types::CertificateDer;

use super::body::{Answer, Held};
use super::query::{BadQuery, Query};
use super::route::{Route, route};
use super::{container_logs, pages, path, system_logs};
use crate::auth::{Decision, Guard, Identity, attributes};
use crate::config::Offers;
use crate::http::answer::{Body, Front, plain, plain_route, with_header};
use crate::http::requests::Kind;
use crate::logs::Logs;
use crate::stream::Streams;

/// What the secured port shows.
pub(crate) struct Site {
    /// Who may come in.
    pub(crate) guard: Guard,
    /// What the read-only port shows, too.
    pub(crate) front: Arc<Front>,
    /// Container logs.
    pub(crate) logs: Logs,
    /// Exec, attach, port-forward.
    pub(crate) streams: Streams,
    /// What the runtime holds.
    pub(crate) runtime: Mirror<String, RuntimePod>,
    /// What is switched on.
    pub(crate) offers: Offers,
    /// `/configz`.
    pub(crate) config: Arc<KubeletConfiguration>,
    /// `/flagz`: names and values.
    pub(crate) flags: Vec<(&'static str, String)>,
    /// When this process started.
    pub(crate) started: jiff::Timestamp,
    /// The wall clock.
    pub(crate) clock: Arc<dyn Clock>,
    /// How long somebody who may come in may take nothing of what is sent.
    pub(crate) patience: Duration,
}

/// Whose connection a request came on.
pub(crate) struct Caller<'a> {
    /// The certificates that were shown.
    pub(crate) chain: &'a [CertificateDer<'static>],
    /// Told when he is let in, with how long he may take nothing.
    pub(crate) let_in: &'a (dyn Fn(Duration) + Send + Sync),
}

impl Site {
    /// Answers one request. Its body is never read.
    pub(crate) async fn answer(&self, request: Request<Incoming>, caller: Caller<'_>) -> Response<Answer> {
        let Some(who) = self.guard.who(caller.chain, request.headers()).await else {
            return text(StatusCode::UNAUTHORIZED, "Unauthorized\n");
        };
        let path = path::read(request.uri().path());
        let asked = attributes::attributes(request.method(), path.as_ref());
        match self.guard.may(&who, &asked).await {
            Decision::Allowed => {}
            Decision::Denied => {
                return text(StatusCode::FORBIDDEN, format!("Forbidden (user={}, {asked})\n", shown(&who)));
            }
            Decision::Unknown(error) => {
                tracing::warn!(error = %chain(&error), "nobody can tell what a caller may");
                let words = format!("Authorization error (user={}, {asked})\n", shown(&who));
                return text(StatusCode::INTERNAL_SERVER_ERROR, words);
            }
        }
        (caller.let_in)(self.patience);
        let Some(path) = path else {
            let words =
                "400: the path is not written in the usual way (no //, ., .., \\ or encoded / in it)\n";
            return text(StatusCode::BAD_REQUEST, words);
        };
        let query = request.uri().query().unwrap_or_default();
        let route = route(&self.offers, request.method(), &path, query);
        let (label, long_running) = route.label();
        let kind = Kind { path: label, long_running, server: "readwrite" };
        let counted = self.front.requests.begin(request.method(), kind);
        let query = match Query::read(query) {
            Ok(query) => query,
            Err(error @ BadQuery) => return text(StatusCode::BAD_REQUEST, format!("{error}\n")),
        };
        if let Route::Stream(streaming) = route {
            return self.streams.answer(streaming, &query, &who, request, counted).await;
        }
        let answer = self.route(route, &query).await;
        answer.map(|body| Held::new(body, counted).boxed_unsync())
    }

    async fn route(&self, route: Route, query: &Query) -> Response<Answer> {
        match route {
            Route::Plain(route) => boxed(plain_route(&self.front, route).await),
            Route::RunningPods => boxed(pages::running_pods(&self.runtime)),
            Route::Config => boxed(pages::config(&self.config)),
            Route::Status => boxed(pages::status(self.started, self.clock.now())),
            Route::Flags => boxed(pages::flags(&self.flags)),
            Route::ContainerLogs(container) => container_logs::answer(&self.logs, container, query).await,
            Route::SystemLogs(below) => system_logs::answer(self.offers.system_logs_dir.clone(), below).await,
            // Answered before.
            Route::Stream(_) => text(StatusCode::INTERNAL_SERVER_ERROR, ""),
            Route::NotAllowed(methods) => {
                let words = "405: switched off in the configuration, or not offered for this method\n";
                let answer = text(StatusCode::METHOD_NOT_ALLOWED, words);
                match methods {
                    "" => answer,
                    methods => with_header(answer, ALLOW, HeaderValue::from_static(methods)),
                }
            }
            Route::NotBuilt(instead) => text(StatusCode::INTERNAL_SERVER_ERROR, format!("{instead}\n")),
            Route::NotAcceptable => {
                let answer = text(StatusCode::NOT_ACCEPTABLE, "406: Not Acceptable\n");
                with_header(answer, http::header::CONTENT_TYPE, HeaderValue::from_static("text/plain"))
            }
        }
    }
}

/// A user's name for a refusal: it goes back to that user alone, cut to what a line can bear.
fn shown(who: &Identity) -> String {
    who.user.chars().filter(|letter| !letter.is_control()).take(256).collect()
}

/// A short text.
pub(crate) fn text(code: StatusCode, words: impl Into<Bytes>) -> Response<Answer> {
    boxed(plain(code, words))
}

/// That there are too many already.
pub(crate) fn too_many(words: String) -> Response<Answer> {
    with_header(text(StatusCode::TOO_MANY_REQUESTS, words), RETRY_AFTER, HeaderValue::from_static("1"))
}

/// An answer of the read-only port's form.
fn boxed(answer: Response<Body>) -> Response<Answer> {
    answer.map(|body| body.map_err(Into::into).boxed_unsync())
}
