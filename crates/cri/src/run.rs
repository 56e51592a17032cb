//! Changing containers: syncd's role, and nobody else's.

use std::time::Duration;

use bulkhead_ipc::PeerChannel;
use wire::runtime_service_client::RuntimeServiceClient;

use crate::{CriError, MESSAGE_BYTES, READ, call, wire};

/// Makes, starts, stops and removes. Every call but the two that make something may be sent twice.
pub trait Run: Clone + Send + Sync + 'static {
    /// Name and versions of the runtime.
    fn version(&self) -> impl Future<Output = Result<wire::VersionResponse, CriError>> + Send;
    /// Makes a sandbox and its network; returns its id.
    fn run_pod_sandbox(
        &self,
        config: wire::PodSandboxConfig,
        runtime_handler: &str,
    ) -> impl Future<Output = Result<String, CriError>> + Send;
    /// Kills what runs in a sandbox and takes its network down.
    fn stop_pod_sandbox(&self, id: &str) -> impl Future<Output = Result<(), CriError>> + Send;
    /// Removes a sandbox and its containers.
    fn remove_pod_sandbox(&self, id: &str) -> impl Future<Output = Result<(), CriError>> + Send;
    /// Makes a container; returns its id.
    fn create_container(
        &self,
        request: wire::CreateContainerRequest,
    ) -> impl Future<Output = Result<String, CriError>> + Send;
    /// Starts a made container.
    fn start_container(&self, id: &str) -> impl Future<Output = Result<(), CriError>> + Send;
    /// Signals a container and kills it after `grace`.
    fn stop_container(&self, id: &str, grace: Duration) -> impl Future<Output = Result<(), CriError>> + Send;
    /// Changes the resources of a container that runs.
    fn update_container_resources(
        &self,
        request: wire::UpdateContainerResourcesRequest,
    ) -> impl Future<Output = Result<(), CriError>> + Send;
    /// Removes a container, running or not.
    fn remove_container(&self, id: &str) -> impl Future<Output = Result<(), CriError>> + Send;
}

/// [`Run`] over a socket.
#[derive(Clone, Debug)]
pub struct RunClient {
    client: RuntimeServiceClient<PeerChannel>,
    timeout: Duration,
}

impl RunClient {
    /// Over this channel; `timeout` is `runtimeRequestTimeout` (the kubelet's default is 2 min).
    pub fn new(channel: PeerChannel, timeout: Duration) -> Self {
        Self { client: RuntimeServiceClient::new(channel).max_decoding_message_size(MESSAGE_BYTES), timeout }
    }
}

impl Run for RunClient {
    async fn version(&self) -> Result<wire::VersionResponse, CriError> {
        let request = wire::VersionRequest { version: "0.1.0".to_owned() };
        call!(self.client, version, "Version", "the runtime", READ, request)
    }

    async fn run_pod_sandbox(
        &self,
        config: wire::PodSandboxConfig,
        runtime_handler: &str,
    ) -> Result<String, CriError> {
        let subject = config.metadata.as_ref().map(|metadata| metadata.uid.clone()).unwrap_or_default();
        let request =
            wire::RunPodSandboxRequest { config: Some(config), runtime_handler: runtime_handler.to_owned() };
        // The kubelet gives sandboxes twice the usual time: images and network plug-ins are slow.
        call!(self.client, run_pod_sandbox, "RunPodSandbox", subject, self.timeout * 2, request)
            .map(|answer| answer.pod_sandbox_id)
    }

    async fn stop_pod_sandbox(&self, id: &str) -> Result<(), CriError> {
        let request = wire::StopPodSandboxRequest { pod_sandbox_id: id.to_owned() };
        call!(self.client, stop_pod_sandbox, "StopPodSandbox", id, self.timeout, request).map(drop)
    }

    async fn remove_pod_sandbox(&self, id: &str) -> Result<(), CriError> {
        let request = wire::RemovePodSandboxRequest { pod_sandbox_id: id.to_owned() };
        call!(self.client, remove_pod_sandbox, "RemovePodSandbox", id, self.timeout, request).map(drop)
    }

    async fn create_container(&self, request: wire::CreateContainerRequest) -> Result<String, CriError> {
        let metadata = request.config.as_ref().and_then(|config| config.metadata.as_ref());
        let subject = metadata.map(|metadata| metadata.name.clone()).unwrap_or_default();
        call!(self.client, create_container, "CreateContainer", subject, self.timeout, request)
            .map(|answer| answer.container_id)
    }

    async fn start_container(&self, id: &str) -> Result<(), CriError> {
        let request = wire::StartContainerRequest { container_id: id.to_owned() };
        call!(self.client, start_container, "StartContainer", id, self.timeout, request).map(drop)
    }

    async fn stop_container(&self, id: &str, grace: Duration) -> Result<(), CriError> {
        let seconds = i64::try_from(grace.as_secs()).unwrap_or(i64::MAX);
        let request = wire::StopContainerRequest { container_id: id.to_owned(), timeout: seconds };
        let deadline = self.timeout.saturating_add(grace);
        call!(self.client, stop_container, "StopContainer", id, deadline, request).map(drop)
    }

    async fn update_container_resources(
        &self,
        request: wire::UpdateContainerResourcesRequest,
    ) -> Result<(), CriError> {
        let id = request.container_id.clone();
        call!(self.client, update_container_resources, "UpdateContainerResources", id, self.timeout, request)
            .map(drop)
    }

    async fn remove_container(&self, id: &str) -> Result<(), CriError> {
        let request = wire::RemoveContainerRequest { container_id: id.to_owned() };
        call!(self.client, remove_container, "RemoveContainer", id, self.timeout, request).map(drop)
    }
}
