//! What was called: one entry per call, in the order of arrival. Never forgets, never filters.

use std::fmt;
use std::time::Duration;

use bulkhead_api::cri::v1;
use tokio::sync::watch;
use tonic::Code;

/// A method of the container runtime interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "each is the CRI method of its name")]
pub enum Method {
    Version,
    RunPodSandbox,
    StopPodSandbox,
    RemovePodSandbox,
    PodSandboxStatus,
    ListPodSandbox,
    StreamPodSandboxes,
    CreateContainer,
    StartContainer,
    StopContainer,
    RemoveContainer,
    ListContainers,
    StreamContainers,
    ContainerStatus,
    UpdateContainerResources,
    ReopenContainerLog,
    ExecSync,
    Exec,
    Attach,
    PortForward,
    ContainerStats,
    ListContainerStats,
    StreamContainerStats,
    PodSandboxStats,
    ListPodSandboxStats,
    StreamPodSandboxStats,
    UpdateRuntimeConfig,
    Status,
    CheckpointContainer,
    CheckpointPod,
    RestorePod,
    GetContainerEvents,
    ListMetricDescriptors,
    ListPodSandboxMetrics,
    StreamPodSandboxMetrics,
    RuntimeConfig,
    UpdatePodSandboxResources,
    ListImages,
    StreamImages,
    ImageStatus,
    PullImage,
    RemoveImage,
    ImageFsInfo,
}

/// The request, where the ids of a [`Call`] do not say it all.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "each is the request of the CRI method of its name")]
pub enum Detail {
    /// The ids say it all.
    Plain,
    RunPodSandbox(Box<v1::RunPodSandboxRequest>),
    CreateContainer(Box<v1::CreateContainerRequest>),
    StopContainer {
        /// Seconds.
        timeout: i64,
    },
    UpdateContainerResources(Box<v1::UpdateContainerResourcesRequest>),
    UpdatePodSandboxResources(Box<v1::UpdatePodSandboxResourcesRequest>),
    ExecSync {
        command: Vec<String>,
        /// Seconds; 0: no limit.
        timeout: i64,
    },
    PullImage(Box<v1::PullImageRequest>),
    Exec(Box<v1::ExecRequest>),
    Attach(Box<v1::AttachRequest>),
    PortForward(v1::PortForwardRequest),
}

/// One call that arrived.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// The method.
    pub method: Method,
    /// The sandbox that it named or made; else empty.
    pub sandbox_id: String,
    /// The container that it named or made; else empty.
    pub container_id: String,
    /// The image reference that it named; else empty.
    pub image: String,
    /// What else it asked.
    pub detail: Detail,
    /// The W3C trace context that came with it.
    pub traceparent: Option<String>,
    /// When it arrived, by the injected clock, in nanoseconds since the Unix epoch.
    pub at: i64,
    /// How it was answered; `None` while it runs, and for ever when the caller gave up.
    pub outcome: Option<Code>,
}

impl Call {
    /// A call of `method` that names nothing yet.
    pub(super) fn new(method: Method) -> Self {
        Self {
            method,
            sandbox_id: String::new(),
            container_id: String::new(),
            image: String::new(),
            detail: Detail::Plain,
            traceparent: None,
            at: 0,
            outcome: None,
        }
    }

    pub(super) fn sandbox(self, id: &str) -> Self {
        Self { sandbox_id: id.to_owned(), ..self }
    }

    pub(super) fn container(self, id: &str) -> Self {
        Self { container_id: id.to_owned(), ..self }
    }

    pub(super) fn image(self, spec: Option<&v1::ImageSpec>) -> Self {
        Self { image: spec.map(|spec| spec.image.clone()).unwrap_or_default(), ..self }
    }

    pub(super) fn detail(self, detail: Detail) -> Self {
        Self { detail, ..self }
    }
}

/// All calls since the fake's start, or since [`CallLog::clear`].
#[derive(Clone, Debug)]
pub struct CallLog(watch::Sender<Entries>);

#[derive(Clone, Debug, Default)]
struct Entries {
    /// Number of the first call: grows when the log is cleared, so that running calls find their entry or none.
    first: usize,
    calls: Vec<Call>,
}

/// What was waited for did not come in time.
#[derive(Clone, Debug)]
pub struct NotSeen {
    /// How long it was waited for.
    pub bound: Duration,
    /// The calls that came, or the present state.
    pub seen: String,
}

/// How long the waits without an explicit bound wait. Long enough for a loaded machine; a test that passes never
/// gets near it.
pub const BOUND: Duration = Duration::from_secs(20);

impl fmt::Display for NotSeen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not seen within {:?}; what was seen instead: {}", self.bound, self.seen)
    }
}

impl std::error::Error for NotSeen {}

impl Default for CallLog {
    fn default() -> Self {
        Self(watch::Sender::new(Entries::default()))
    }
}

impl CallLog {
    /// Every call so far.
    pub fn calls(&self) -> Vec<Call> {
        self.0.borrow().calls.clone()
    }

    /// The calls of `method` so far.
    pub fn of(&self, method: Method) -> Vec<Call> {
        self.0.borrow().calls.iter().filter(|call| call.method == method).cloned().collect()
    }

    /// How often `method` was called so far.
    pub fn count(&self, method: Method) -> usize {
        self.0.borrow().calls.iter().filter(|call| call.method == method).count()
    }

    /// The methods called so far that change something, in order: what a test of a worker compares.
    pub fn changes(&self) -> Vec<Method> {
        self.0.borrow().calls.iter().map(|call| call.method).filter(Method::changes).collect()
    }

    /// Forgets all calls.
    pub fn clear(&self) {
        self.0.send_modify(|entries| {
            entries.first += entries.calls.len();
            entries.calls.clear();
        });
    }

    /// Waits until the log satisfies `wanted`, at most [`BOUND`]; returns the log that did.
    ///
    /// # Errors
    /// [`NotSeen`] when the time is over.
    pub async fn wait_for(&self, wanted: impl FnMut(&[Call]) -> bool) -> Result<Vec<Call>, NotSeen> {
        self.wait_within(BOUND, wanted).await
    }

    /// As [`CallLog::wait_for`] with a bound of the caller's, on tokio's clock.
    ///
    /// # Errors
    /// [`NotSeen`] when the time is over.
    pub async fn wait_within(
        &self,
        bound: Duration,
        mut wanted: impl FnMut(&[Call]) -> bool,
    ) -> Result<Vec<Call>, NotSeen> {
        let mut entries = self.0.subscribe();
        let found = tokio::time::timeout(bound, entries.wait_for(|entries| wanted(&entries.calls))).await;
        match found {
            Ok(Ok(entries)) => Ok(entries.calls.clone()),
            _ => Err(NotSeen { bound, seen: self.to_string() }),
        }
    }

    /// Writes down a call; returns its number.
    pub(super) fn begin(&self, call: Call) -> usize {
        let mut number = 0;
        self.0.send_modify(|entries| {
            number = entries.first + entries.calls.len();
            entries.calls.push(call);
        });
        number
    }

    /// Completes the entry of a call.
    pub(super) fn amend(&self, number: usize, amend: impl FnOnce(&mut Call)) {
        self.0.send_modify(|entries| {
            let at = number.checked_sub(entries.first);
            if let Some(call) = at.and_then(|at| entries.calls.get_mut(at)) {
                amend(call);
            }
        });
    }
}

impl fmt::Display for CallLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let entries = self.0.borrow();
        if entries.calls.is_empty() {
            return write!(f, "no calls");
        }
        for (at, call) in entries.calls.iter().enumerate() {
            let comma = if at == 0 { "" } else { ", " };
            write!(f, "{comma}{:?}", call.method)?;
            let named = [&call.sandbox_id, &call.container_id, &call.image];
            if let Some(name) = named.into_iter().find(|name| !name.is_empty()) {
                write!(f, "({})", name.get(..10).unwrap_or(name))?;
            }
            match call.outcome {
                None => write!(f, " runs")?,
                Some(Code::Ok) => {}
                Some(code) => write!(f, " {code:?}")?,
            }
        }
        Ok(())
    }
}

impl Method {
    /// Whether it changes sandboxes, containers or images.
    pub fn changes(&self) -> bool {
        use Method::*;
        matches!(
            self,
            RunPodSandbox
                | StopPodSandbox
                | RemovePodSandbox
                | CreateContainer
                | StartContainer
                | StopContainer
                | RemoveContainer
                | UpdateContainerResources
                | UpdatePodSandboxResources
                | PullImage
                | RemoveImage
        )
    }
}
