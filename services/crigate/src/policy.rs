//! Where a dangerous method's arguments are judged, after the method itself was found to be allowed.
//!
//! Owns the decision about a request's message, and nothing else: identity and method lists are `table`'s, the rules are
//! bulkhead-policy's. Without a policy file, and for every method but RunPodSandbox and CreateContainer, the body is
//! streamed through untouched.

mod message;
mod wishes;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bulkhead_api::cri::v1::{CreateContainerRequest, RunPodSandboxRequest};
use bulkhead_policy::{Host, Policy, PolicyError, Wish, summary};
use bytes::Bytes;
use http::{Request, header};
use http_body_util::Either;
use hyper::body::Incoming;
use prost::Message;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::error::Refusal;
use crate::limits;
use crate::methods::Method;
use crate::upstream::{Held, RequestBody};
use wishes::Wishes;

/// Judges requests. Clones share everything.
#[derive(Clone, Default)]
pub struct Judge(Option<Arc<Inner>>);

struct Inner {
    file: PathBuf,
    policy: Policy,
    host: Host,
    /// Places for messages that are held in memory.
    places: Arc<Semaphore>,
}

impl Judge {
    /// By the policy file, if there is one, for a node with these folders: the kubelet's and `podLogsDir`.
    ///
    /// # Errors
    /// When the file cannot be used.
    pub fn load(file: Option<&Path>, root: &Path, logs: &Path) -> Result<Self, PolicyError> {
        let Some(file) = file else { return Ok(Self(None)) };
        let policy = Policy::read(file)?;
        let places = Arc::new(Semaphore::new(limits::JUDGED));
        Ok(Self(Some(Arc::new(Inner { file: file.to_owned(), policy, host: Host::new(root, logs), places }))))
    }

    /// Decides whether `process` may send this request of `method`, and hands on what goes to the runtime.
    ///
    /// What was judged is sent, encoded anew: fields that this release does not know cannot reach a runtime that does. Runs
    /// before anything reaches the runtime, and counts as in flight.
    ///
    /// # Errors
    /// With the reason for the caller when a rule refuses the arguments, or they cannot be read.
    pub async fn screen(
        &self,
        process: &str,
        method: &Method,
        request: Request<Incoming>,
    ) -> Result<Request<RequestBody>, Refusal> {
        let Some(inner) = &self.0 else { return Ok(request.map(Either::Left)) };
        match method.label.as_str() {
            "RuntimeService/RunPodSandbox" => {
                inner.judge::<RunPodSandboxRequest>(process, method, request).await
            }
            "RuntimeService/CreateContainer" => {
                inner.judge::<CreateContainerRequest>(process, method, request).await
            }
            _ => Ok(request.map(Either::Left)),
        }
    }
}

impl Inner {
    async fn judge<M: Message + Default + Wishes + 'static>(
        self: &Arc<Self>,
        process: &str,
        method: &Method,
        request: Request<Incoming>,
    ) -> Result<Request<RequestBody>, Refusal> {
        let unreadable = |reason: String| Refusal::Unreadable {
            process: process.to_owned(),
            method: method.label.clone(),
            reason,
        };
        // Never closed.
        let place =
            self.places.clone().acquire_owned().await.map_err(|error| unreadable(error.to_string()))?;
        let (mut head, body) = request.into_parts();
        let received = timeout(limits::RECEIVE, message::receive(body)).await;
        let received =
            received.map_err(|_| unreadable(format!("it did not come within {:?}", limits::RECEIVE)))?;
        let message = M::decode(message::payload(&received.map_err(unreadable)?).map_err(unreadable)?);
        let message =
            message.map_err(|error| unreadable(format!("it is no message of this method: {error}")))?;

        let wishes = if self.policy.looks_at_paths() {
            // The file system may take its time, or hang: this thread must not.
            let inner = self.clone();
            let look = tokio::task::spawn_blocking(move || (message.wishes(&inner.host.look()), message));
            let looked = timeout(limits::LOOK, look).await;
            let looked = looked.map_err(|_| {
                unreadable(format!("its paths could not be looked up within {:?}", limits::LOOK))
            })?;
            looked.map_err(|error| unreadable(error.to_string()))?
        } else {
            (message.wishes(&self.host.look()), message)
        };
        let (wishes, message) = wishes;
        self.grant(process, method, &wishes)?;
        head.headers.remove(header::CONTENT_LENGTH);
        let bytes: Bytes = message::frame(&message).map_err(unreadable)?;
        Ok(Request::from_parts(head, Either::Right(Held::with(bytes, place))))
    }

    fn grant(&self, process: &str, method: &Method, wishes: &[Wish]) -> Result<(), Refusal> {
        let refusals: Vec<_> =
            wishes.iter().flat_map(|wish| self.policy.judge(self.host.node(), wish)).collect();
        let (Some(wish), false) = (wishes.first(), refusals.is_empty()) else { return Ok(()) };
        Err(Refusal::Policy {
            process: process.to_owned(),
            method: method.label.clone(),
            pod: format!("{}/{}", wish.pod.namespace, wish.pod.name),
            reason: summary(&refusals),
            file: self.file.clone(),
        })
    }
}
