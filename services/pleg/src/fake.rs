//! A runtime in memory for tests under a paused clock: state, faults and delays by method or id, a log of calls.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bulkhead_cri::{CriError, Observe, wire};
use bulkhead_model::names;
use bytes::Bytes;
use http_body_util::StreamBody;
use prost::Message;
use tokio::sync::mpsc;
use tonic::codec::BufferSettings;
use tonic::codegen::http::StatusCode;
use tonic::{Code, Status, Streaming};
use tonic_prost::ProstDecoder;

/// A date in nanoseconds: things are made a second apart, in the order of the numbers in their ids.
const EPOCH: i64 = 1_700_000_000_000_000_000;

fn labels(uid: &str, container: Option<&str>) -> std::collections::HashMap<String, String> {
    let pod = [(names::POD_UID, uid), (names::POD_NAME, "pod"), (names::POD_NAMESPACE, "ns")];
    let all = pod.into_iter().chain(container.map(|name| (names::CONTAINER_NAME, name)));
    all.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

fn age(id: &str) -> i64 {
    let digits: String = id.chars().filter(char::is_ascii_digit).collect();
    EPOCH + digits.parse::<i64>().unwrap_or(0) * 1_000_000_000
}

/// A ready sandbox in a list.
pub(crate) fn sandbox(uid: &str, id: &str) -> wire::PodSandbox {
    wire::PodSandbox {
        id: id.to_owned(),
        metadata: Some(wire::PodSandboxMetadata { uid: uid.to_owned(), ..Default::default() }),
        created_at: age(id),
        labels: labels(uid, None),
        ..Default::default()
    }
}

/// A running container in a list, in the sandbox `s-UID`.
pub(crate) fn container(uid: &str, id: &str, name: &str) -> wire::Container {
    wire::Container {
        id: id.to_owned(),
        pod_sandbox_id: format!("s-{uid}"),
        metadata: Some(wire::ContainerMetadata { name: name.to_owned(), attempt: 0 }),
        state: wire::ContainerState::ContainerRunning.into(),
        created_at: age(id),
        labels: labels(uid, Some(name)),
        ..Default::default()
    }
}

/// The status that goes with a listed container.
pub(crate) fn status(listed: &wire::Container) -> wire::ContainerStatus {
    wire::ContainerStatus {
        id: listed.id.clone(),
        metadata: listed.metadata.clone(),
        state: listed.state,
        created_at: listed.created_at,
        labels: listed.labels.clone(),
        annotations: listed.annotations.clone(),
        ..Default::default()
    }
}

/// The status that goes with a listed sandbox.
pub(crate) fn sandbox_status(listed: &wire::PodSandbox) -> wire::PodSandboxStatus {
    wire::PodSandboxStatus {
        id: listed.id.clone(),
        metadata: listed.metadata.clone(),
        state: listed.state,
        created_at: listed.created_at,
        network: Some(wire::PodSandboxNetworkStatus {
            ip: "10.0.0.1".to_owned(),
            additional_ips: Vec::new(),
        }),
        ..Default::default()
    }
}

/// The fake. Clones share it. A method's name or a thing's id is what faults and delays go by.
#[derive(Clone, Default)]
pub(crate) struct FakeRuntime(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    sandboxes: BTreeMap<String, wire::PodSandbox>,
    containers: BTreeMap<String, wire::ContainerStatus>,
    in_sandbox: BTreeMap<String, String>,
    without_ip: Vec<String>,
    faults: BTreeMap<String, Code>,
    delays: BTreeMap<String, Duration>,
    calls: Vec<(&'static str, String)>,
    events: Option<mpsc::UnboundedSender<Result<Bytes, Status>>>,
}

impl FakeRuntime {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    /// A ready sandbox `s-UID` and a running container `c-UID`, name `app`.
    pub(crate) fn add_pod(&self, uid: &str) {
        let sandbox = sandbox(uid, &format!("s-{uid}"));
        self.state().sandboxes.insert(sandbox.id.clone(), sandbox);
        self.add_container(uid, &format!("c-{uid}"));
    }

    /// A running container in the sandbox `s-UID`.
    pub(crate) fn add_container(&self, uid: &str, id: &str) {
        let listed = container(uid, id, "app");
        let mut state = self.state();
        state.in_sandbox.insert(id.to_owned(), listed.pod_sandbox_id.clone());
        state.containers.insert(id.to_owned(), status(&listed));
    }

    /// A sandbox as it stands here.
    pub(crate) fn add_foreign(&self, sandbox: wire::PodSandbox) {
        self.state().sandboxes.insert(sandbox.id.clone(), sandbox);
    }

    /// The container ends.
    pub(crate) fn exit(&self, id: &str, code: i32) {
        let mut state = self.state();
        let container = state.containers.get_mut(id).unwrap();
        container.set_state(wire::ContainerState::ContainerExited);
        container.exit_code = code;
    }

    /// Removes a sandbox or a container.
    pub(crate) fn remove(&self, id: &str) {
        let mut state = self.state();
        state.sandboxes.remove(id);
        state.containers.remove(id);
    }

    /// Removes sandbox and container of [`FakeRuntime::add_pod`].
    pub(crate) fn remove_pod(&self, uid: &str) {
        self.remove(&format!("c-{uid}"));
        self.remove(&format!("s-{uid}"));
    }

    /// Whether the sandbox has an address.
    pub(crate) fn set_ip(&self, sandbox: &str, has: bool) {
        let mut state = self.state();
        state.without_ip.retain(|id| id != sandbox);
        if !has {
            state.without_ip.push(sandbox.to_owned());
        }
    }

    /// Calls of this method, or about this id, fail from now on.
    pub(crate) fn fail(&self, what: &str, code: Code) {
        self.state().faults.insert(what.to_owned(), code);
    }

    /// Calls of this method, or about this id, look at the state at once but answer after this time.
    pub(crate) fn slow(&self, what: &str, delay: Duration) {
        self.state().delays.insert(what.to_owned(), delay);
    }

    /// No fault and no delay any more.
    pub(crate) fn heal(&self, what: &str) {
        let mut state = self.state();
        state.faults.remove(what);
        state.delays.remove(what);
    }

    /// What `method` was called about so far: ids, pod UIDs, or empty.
    pub(crate) fn calls(&self, method: &str) -> Vec<String> {
        self.state()
            .calls
            .iter()
            .filter(|(called, _)| *called == method)
            .map(|(_, about)| about.clone())
            .collect()
    }

    /// Forgets all calls.
    pub(crate) fn clear_calls(&self) {
        self.state().calls.clear();
    }

    /// Sends an event on the open stream; `None`: the stream breaks.
    pub(crate) fn event(&self, event: Option<&wire::ContainerEventResponse>) {
        let mut state = self.state();
        let Some(event) = event else {
            state.events = None;
            return;
        };
        let message = event.encode_to_vec();
        let mut frame = vec![0];
        frame.extend(u32::try_from(message.len()).unwrap().to_be_bytes());
        frame.extend(message);
        state.events.as_ref().unwrap().send(Ok(frame.into())).unwrap();
    }

    async fn call<T>(
        &self,
        method: &'static str,
        about: &str,
        answer: impl FnOnce(&mut State) -> Result<T, Status>,
    ) -> Result<T, CriError> {
        let (result, delay) = {
            let mut state = self.state();
            state.calls.push((method, about.to_owned()));
            let fault = state.faults.get(about).or_else(|| state.faults.get(method)).copied();
            let result = match fault {
                Some(code) => Err(Status::new(code, "a fault")),
                None => answer(&mut state),
            };
            (result, state.delays.get(about).or_else(|| state.delays.get(method)).copied())
        };
        if let Some(delay) = delay {
            tokio::time::sleep(delay).await;
        }
        result.map_err(|status| CriError { method, subject: about.to_owned(), status })
    }
}

fn is_of(labels: &std::collections::HashMap<String, String>, uid: Option<&str>) -> bool {
    uid.is_none_or(|uid| labels.get(names::POD_UID).is_some_and(|label| label == uid))
}

impl Observe for FakeRuntime {
    async fn version(&self) -> Result<wire::VersionResponse, CriError> {
        let answer = wire::VersionResponse { runtime_name: "fake".to_owned(), ..Default::default() };
        self.call("Version", "", |_| Ok(answer)).await
    }

    async fn status(&self) -> Result<wire::StatusResponse, CriError> {
        self.call("Status", "", |_| Ok(wire::StatusResponse::default())).await
    }

    async fn pod_sandboxes(&self, pod_uid: Option<&str>) -> Result<Vec<wire::PodSandbox>, CriError> {
        self.call("ListPodSandbox", pod_uid.unwrap_or_default(), |state| {
            Ok(state.sandboxes.values().filter(|sandbox| is_of(&sandbox.labels, pod_uid)).cloned().collect())
        })
        .await
    }

    async fn pod_sandbox_status(&self, id: &str) -> Result<wire::PodSandboxStatusResponse, CriError> {
        self.call("PodSandboxStatus", id, |state| {
            let sandbox = state.sandboxes.get(id).ok_or_else(|| Status::not_found("no such sandbox"))?;
            let mut status = sandbox_status(sandbox);
            if state.without_ip.iter().any(|without| without == id) {
                status.network = None;
            }
            Ok(wire::PodSandboxStatusResponse { status: Some(status), ..Default::default() })
        })
        .await
    }

    async fn containers(&self, pod_uid: Option<&str>) -> Result<Vec<wire::Container>, CriError> {
        self.call("ListContainers", pod_uid.unwrap_or_default(), |state| {
            let listed = state.containers.values().filter(|container| is_of(&container.labels, pod_uid));
            let listed = listed.map(|container| wire::Container {
                id: container.id.clone(),
                pod_sandbox_id: state.in_sandbox.get(&container.id).cloned().unwrap_or_default(),
                metadata: container.metadata.clone(),
                state: container.state,
                created_at: container.created_at,
                labels: container.labels.clone(),
                ..Default::default()
            });
            Ok(listed.collect())
        })
        .await
    }

    async fn container_status(&self, id: &str) -> Result<wire::ContainerStatusResponse, CriError> {
        self.call("ContainerStatus", id, |state| {
            let status = state.containers.get(id).ok_or_else(|| Status::not_found("no such container"))?;
            Ok(wire::ContainerStatusResponse { status: Some(status.clone()), ..Default::default() })
        })
        .await
    }

    async fn container_events(&self) -> Result<Streaming<wire::ContainerEventResponse>, CriError> {
        self.call("GetContainerEvents", "", |state| {
            let (send, mut receive) = mpsc::unbounded_channel::<Result<Bytes, Status>>();
            state.events = Some(send);
            let frames = futures::stream::poll_fn(move |context| receive.poll_recv(context));
            let frames = futures::StreamExt::map(frames, |bytes| bytes.map(hyper::body::Frame::data));
            let body = StreamBody::new(frames);
            Ok(Streaming::new_response(
                ProstDecoder::new(BufferSettings::default()),
                body,
                StatusCode::OK,
                None,
                None,
            ))
        })
        .await
    }
}
