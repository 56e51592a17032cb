//! Reading what the runtime holds: pleg's role.

use bulkhead_ipc::PeerChannel;
use tonic::Streaming;
use wire::runtime_service_client::RuntimeServiceClient;

use crate::{CriError, MESSAGE_BYTES, READ, call, wire};

/// Reads; changes nothing.
pub trait Observe: Clone + Send + Sync + 'static {
    /// Name and versions of the runtime.
    fn version(&self) -> impl Future<Output = Result<wire::VersionResponse, CriError>> + Send;
    /// The runtime's own conditions (`RuntimeReady`, `NetworkReady`).
    fn status(&self) -> impl Future<Output = Result<wire::StatusResponse, CriError>> + Send;
    /// Sandboxes; of one pod when `pod_uid` is given.
    fn pod_sandboxes(
        &self,
        pod_uid: Option<&str>,
    ) -> impl Future<Output = Result<Vec<wire::PodSandbox>, CriError>> + Send;
    /// One sandbox with its addresses.
    fn pod_sandbox_status(
        &self,
        id: &str,
    ) -> impl Future<Output = Result<wire::PodSandboxStatusResponse, CriError>> + Send;
    /// Containers in every state; of one pod when `pod_uid` is given.
    fn containers(
        &self,
        pod_uid: Option<&str>,
    ) -> impl Future<Output = Result<Vec<wire::Container>, CriError>> + Send;
    /// One container with times, exit code and log path.
    fn container_status(
        &self,
        id: &str,
    ) -> impl Future<Output = Result<wire::ContainerStatusResponse, CriError>> + Send;
    /// The runtime's events from now on. UNIMPLEMENTED when it has none.
    fn container_events(
        &self,
    ) -> impl Future<Output = Result<Streaming<wire::ContainerEventResponse>, CriError>> + Send;
}

/// [`Observe`] over a socket.
#[derive(Clone, Debug)]
pub struct ObserveClient(RuntimeServiceClient<PeerChannel>);

impl ObserveClient {
    /// Over this channel.
    pub fn new(channel: PeerChannel) -> Self {
        Self(RuntimeServiceClient::new(channel).max_decoding_message_size(MESSAGE_BYTES))
    }
}

fn uid_selector(pod_uid: &str) -> std::collections::HashMap<String, String> {
    [(bulkhead_model::names::POD_UID.to_owned(), pod_uid.to_owned())].into()
}

impl Observe for ObserveClient {
    async fn version(&self) -> Result<wire::VersionResponse, CriError> {
        let request = wire::VersionRequest { version: "0.1.0".to_owned() };
        call!(self.0, version, "Version", "the runtime", READ, request)
    }

    async fn status(&self) -> Result<wire::StatusResponse, CriError> {
        call!(self.0, status, "Status", "the runtime", READ, wire::StatusRequest { verbose: false })
    }

    async fn pod_sandboxes(&self, pod_uid: Option<&str>) -> Result<Vec<wire::PodSandbox>, CriError> {
        let filter = pod_uid
            .map(|uid| wire::PodSandboxFilter { label_selector: uid_selector(uid), ..Default::default() });
        let subject = pod_uid.unwrap_or("all pods");
        let request = wire::ListPodSandboxRequest { filter };
        call!(self.0, list_pod_sandbox, "ListPodSandbox", subject, READ, request).map(|answer| answer.items)
    }

    async fn pod_sandbox_status(&self, id: &str) -> Result<wire::PodSandboxStatusResponse, CriError> {
        let request = wire::PodSandboxStatusRequest { pod_sandbox_id: id.to_owned(), verbose: false };
        call!(self.0, pod_sandbox_status, "PodSandboxStatus", id, READ, request)
    }

    async fn containers(&self, pod_uid: Option<&str>) -> Result<Vec<wire::Container>, CriError> {
        let filter = pod_uid
            .map(|uid| wire::ContainerFilter { label_selector: uid_selector(uid), ..Default::default() });
        let subject = pod_uid.unwrap_or("all pods");
        let request = wire::ListContainersRequest { filter };
        call!(self.0, list_containers, "ListContainers", subject, READ, request)
            .map(|answer| answer.containers)
    }

    async fn container_status(&self, id: &str) -> Result<wire::ContainerStatusResponse, CriError> {
        let request = wire::ContainerStatusRequest { container_id: id.to_owned(), verbose: false };
        call!(self.0, container_status, "ContainerStatus", id, READ, request)
    }

    async fn container_events(&self) -> Result<Streaming<wire::ContainerEventResponse>, CriError> {
        // A stream has no deadline.
        let answer = self.0.clone().get_container_events(wire::GetEventsRequest::default()).await;
        answer
            .map(tonic::Response::into_inner)
            .map_err(|s| CriError::new("GetContainerEvents", "the runtime", s))
    }
}
