//! The runtime's statistics: evictd's role.

use bulkhead_ipc::PeerChannel;
use wire::runtime_service_client::RuntimeServiceClient;

use crate::{CriError, MESSAGE_BYTES, READ, call, wire};

/// Reads statistics.
pub trait Stats: Clone + Send + Sync + 'static {
    /// Of all containers.
    fn container_stats(&self) -> impl Future<Output = Result<Vec<wire::ContainerStats>, CriError>> + Send;
    /// Of all sandboxes.
    fn pod_sandbox_stats(&self) -> impl Future<Output = Result<Vec<wire::PodSandboxStats>, CriError>> + Send;
}

/// [`Stats`] over a socket.
#[derive(Clone, Debug)]
pub struct StatsClient(RuntimeServiceClient<PeerChannel>);

impl StatsClient {
    /// Over this channel.
    pub fn new(channel: PeerChannel) -> Self {
        Self(RuntimeServiceClient::new(channel).max_decoding_message_size(MESSAGE_BYTES))
    }
}

impl Stats for StatsClient {
    async fn container_stats(&self) -> Result<Vec<wire::ContainerStats>, CriError> {
        let request = wire::ListContainerStatsRequest::default();
        call!(self.0, list_container_stats, "ListContainerStats", "all containers", READ, request)
            .map(|a| a.stats)
    }

    async fn pod_sandbox_stats(&self) -> Result<Vec<wire::PodSandboxStats>, CriError> {
        let request = wire::ListPodSandboxStatsRequest::default();
        call!(self.0, list_pod_sandbox_stats, "ListPodSandboxStats", "all pods", READ, request)
            .map(|a| a.stats)
    }
}
