//! exec, attach and port-forward: finds the container or sandbox, asks the runtime where its streams are, and joins the
//! client's connection to that.
//!
//! Owns the sessions and their bounds. Must never look into what goes over a session, but for the errors of a port-forward's
//! connections, nor tell where the streams are: the address is a key.

mod forward;
mod join;
mod options;
mod spdy;
mod tunnel;

use std::sync::Arc;
use std::time::Duration;

use bulkhead_base::chain;
use bulkhead_cri::{CriError, Stream, StreamClient};
use bulkhead_ipc::Mirror;
use bulkhead_ipc::said::Said;
use bulkhead_model::runtime::{ContainerState, RuntimePod};
use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tonic::Code;

use crate::auth::Identity;
use crate::error::LogError;
use crate::http::requests::Counted;
use crate::logs::{find, names};
use crate::pods::source::Pods;
use crate::secured::answer::{text, too_many};
use crate::secured::body::Answer;
use crate::secured::query::Query;
use crate::secured::route::{Container, Pod, Streaming};
use options::BadOptions;
use tunnel::{Tunnel, TunnelError};

/// Sessions at a time.
const SESSIONS: usize = 256;
/// Errors of connections that are told of one port-forward.
const TOLD: usize = 16;

/// Opens sessions.
pub(crate) struct Streams {
    pods: Pods,
    runtime: Mirror<String, RuntimePod>,
    cri: StreamClient,
    idle: Duration,
    shutdown: CancellationToken,
    places: Arc<Semaphore>,
}

/// Why there is no session.
#[derive(Debug, thiserror::Error)]
enum StreamError {
    #[error(transparent)]
    Options(#[from] BadOptions),
    #[error(transparent)]
    Find(#[from] LogError),
    #[error("pod {pod} does not have the UID {uid}")]
    OtherPod { pod: String, uid: String },
    #[error("what runs cannot be told: nothing came from pleg since gateway started")]
    Untold,
    #[error("container not found ({name:?}): pod {pod} has it, and the runtime does not (yet)")]
    NoContainer { pod: String, name: String },
    #[error("container not running ({name}): it belongs to pod {pod}")]
    NotRunning { pod: String, name: String },
    #[error("pod {pod} has no sandbox that runs")]
    NoSandbox { pod: String },
    #[error("Upgrade request required")]
    NoUpgrade,
    #[error("{SESSIONS} sessions are open already: end one of them first")]
    Full,
    #[error(transparent)]
    Runtime(#[from] CriError),
    #[error(transparent)]
    Tunnel(#[from] TunnelError),
}

impl Streams {
    /// Of `pods`, as `runtime` holds them; a session on which nothing goes on for `idle` ends.
    pub(crate) fn new(
        pods: Pods,
        runtime: Mirror<String, RuntimePod>,
        cri: StreamClient,
        idle: Duration,
        shutdown: CancellationToken,
    ) -> Self {
        Self { pods, runtime, cri, idle, shutdown, places: Arc::new(Semaphore::new(SESSIONS)) }
    }

    /// Answers a request for streams: with 101, and a session after that, or with what is wrong.
    pub(crate) async fn answer(
        &self,
        streaming: Streaming,
        query: &Query,
        who: &Identity,
        mut request: Request<Incoming>,
        counted: Counted,
    ) -> Response<Answer> {
        let (kind, pod, container) = names_of(&streaming);
        let is_forward = matches!(streaming, Streaming::PortForward(_));
        let is_spdy = tunnel::Upgrade::of(request.headers()).is_some_and(|upgrade| upgrade.is_spdy());
        let opened = self.open(streaming, query, &request).await;
        let (tunnel, place) = match opened {
            Ok(opened) => opened,
            Err(error) => {
                let words = format!("{}\n", chain(&error));
                return match error.code() {
                    StatusCode::TOO_MANY_REQUESTS => too_many(words),
                    code => text(code, words),
                };
            }
        };
        let (answer, runtime) = match tunnel {
            Tunnel::Refused(answer) => return answer,
            Tunnel::Open { answer, stream } => (answer, stream),
        };
        // No commands: they may hold secrets.
        tracing::info!(user = who.user, kind, pod, container, "a session begins");
        let client = hyper::upgrade::on(&mut request);
        let (idle, shutdown) = (self.idle, self.shutdown.clone());
        tokio::spawn(async move {
            let _held: (OwnedSemaphorePermit, Counted) = (place, counted);
            let session = async {
                let client = match client.await {
                    Ok(client) => TokioIo::new(client),
                    Err(error) => return tracing::debug!(%error, "the client left before its session began"),
                };
                let runtime = TokioIo::new(runtime);
                let ended = if is_forward && is_spdy {
                    let streams = forward::ErrorStreams::default();
                    let back = forward::Back::new(&streams, teller(pod.clone()));
                    join::join(client, runtime, idle, (forward::Towards::new(&streams), back)).await
                } else {
                    join::join(client, runtime, idle, (join::AsIs, join::AsIs)).await
                };
                tracing::debug!(kind, pod, container, ?ended, "a session ends");
            };
            shutdown.run_until_cancelled(session).await;
        });
        answer
    }

    async fn open(
        &self,
        streaming: Streaming,
        query: &Query,
        request: &Request<Incoming>,
    ) -> Result<(Tunnel, OwnedSemaphorePermit), StreamError> {
        let upgrade = tunnel::Upgrade::of(request.headers());
        let needs = || upgrade.as_ref().ok_or(StreamError::NoUpgrade);
        let place = || self.places.clone().try_acquire_owned().map_err(|_| StreamError::Full);
        let (url, upgrade, place) = match streaming {
            Streaming::Exec(of) => {
                let (command, streams) = (options::command(query), options::streams(query)?);
                let (_, id) = self.container(&of).await?;
                let (upgrade, place) = (needs()?, place()?);
                (self.cri.exec(&id, &command, streams).await?, upgrade, place)
            }
            Streaming::Attach(of) => {
                let mut streams = options::streams(query)?;
                let (facts, id) = self.container(&of).await?;
                // What the container was made with cannot be changed, whatever the client says.
                streams.tty = facts.terminals.contains(&of.name);
                streams.stderr &= !streams.tty;
                let (upgrade, place) = (needs()?, place()?);
                (self.cri.attach(&id, streams).await?, upgrade, place)
            }
            Streaming::PortForward(of) => {
                let ports = options::ports(query)?;
                let id = self.sandbox(&of).await?;
                let upgrade = needs()?;
                if upgrade.is_websocket() && ports.is_empty() {
                    return Err(BadOptions::NoPort.into());
                }
                let place = place()?;
                (self.cri.port_forward(&id, &ports).await?, upgrade, place)
            }
        };
        Ok((tunnel::open(&url, request.method(), upgrade).await?, place))
    }

    /// The pod, and the id of its container.
    async fn container(&self, of: &Container) -> Result<(find::PodFacts, String), StreamError> {
        names::check("container", &of.name)?;
        let facts = self.pod(&of.pod).await?;
        find::container(&facts, &of.name)?;
        let held = self.held(&facts)?;
        let (pod, name) = (facts.title(), of.name.clone());
        match held.as_ref().and_then(|held| held.newest(&of.name)) {
            None => Err(StreamError::NoContainer { pod, name }),
            Some(container) if container.state == ContainerState::Running => {
                Ok((facts, container.id.clone()))
            }
            Some(_) => Err(StreamError::NotRunning { pod, name }),
        }
    }

    async fn sandbox(&self, of: &Pod) -> Result<String, StreamError> {
        let facts = self.pod(of).await?;
        let held = self.held(&facts)?;
        let sandbox = held.as_ref().and_then(|held| held.newest_sandbox().filter(|sandbox| sandbox.ready));
        match sandbox {
            Some(sandbox) => Ok(sandbox.id.clone()),
            None => Err(StreamError::NoSandbox { pod: facts.title() }),
        }
    }

    async fn pod(&self, of: &Pod) -> Result<find::PodFacts, StreamError> {
        names::check("namespace", &of.namespace)?;
        names::check("pod", &of.name)?;
        let facts = find::pod(&self.pods, &of.namespace, &of.name).await?;
        match &of.uid {
            Some(uid) if *uid != facts.uid => {
                let uid = uid.chars().take(64).collect();
                Err(StreamError::OtherPod { pod: facts.title(), uid })
            }
            _ => Ok(facts),
        }
    }

    fn held(&self, pod: &find::PodFacts) -> Result<Option<Arc<RuntimePod>>, StreamError> {
        if !self.runtime.status().synced {
            return Err(StreamError::Untold);
        }
        Ok(self.runtime.get(&pod.uid))
    }
}

impl StreamError {
    fn code(&self) -> StatusCode {
        match self {
            Self::Options(_) | Self::NotRunning { .. } => StatusCode::BAD_REQUEST,
            Self::Find(LogError::Peer(_)) | Self::Untold => StatusCode::SERVICE_UNAVAILABLE,
            Self::Find(_) | Self::OtherPod { .. } | Self::NoContainer { .. } | Self::NoSandbox { .. } => {
                StatusCode::NOT_FOUND
            }
            // As the kubelet has it.
            Self::NoUpgrade => StatusCode::INTERNAL_SERVER_ERROR,
            Self::Full => StatusCode::TOO_MANY_REQUESTS,
            Self::Runtime(error) => match error.code() {
                Code::NotFound => StatusCode::NOT_FOUND,
                Code::ResourceExhausted => StatusCode::TOO_MANY_REQUESTS,
                Code::Unavailable | Code::DeadlineExceeded => StatusCode::SERVICE_UNAVAILABLE,
                _ => StatusCode::INTERNAL_SERVER_ERROR,
            },
            Self::Tunnel(_) => StatusCode::BAD_GATEWAY,
        }
    }
}

/// Tells what became of connections through a port-forward to `pod`: each text once, and not too many of them.
fn teller(pod: String) -> impl FnMut(&[u8]) {
    let (said, mut left) = (Said::every(Duration::MAX), TOLD);
    move |text| {
        let text = String::from_utf8_lossy(text);
        if left > 0 && said.is_news(&text, Instant::now()) {
            left -= 1;
            tracing::info!(pod, ?text, "a connection through a port-forward broke; the others go on");
        }
    }
}

/// For the log.
fn names_of(streaming: &Streaming) -> (&'static str, String, String) {
    let title = |pod: &Pod| format!("{}/{}", pod.namespace, pod.name);
    match streaming {
        Streaming::Exec(of) => ("exec", title(&of.pod), of.name.clone()),
        Streaming::Attach(of) => ("attach", title(&of.pod), of.name.clone()),
        Streaming::PortForward(pod) => ("port-forward", title(pod), String::new()),
    }
}
