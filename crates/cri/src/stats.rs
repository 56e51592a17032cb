//! The runtime's statistics: evictd's role.

use bulkhead_ipc::PeerChannel;
use wire::image_service_client::ImageServiceClient;
use wire::runtime_service_client::RuntimeServiceClient;

use crate::{CriError, MESSAGE_BYTES, READ, call, wire};

/// Reads statistics.
pub trait Stats: Clone + Send + Sync + 'static {
    /// Of all containers.
    fn container_stats(&self) -> impl Future<Output = Result<Vec<wire::ContainerStats>, CriError>> + Send;
    /// Of the file systems that hold images and writable layers.
    fn image_fs_info(&self) -> impl Future<Output = Result<wire::ImageFsInfoResponse, CriError>> + Send;
}

/// [`Stats`] over a socket.
#[derive(Clone, Debug)]
pub struct StatsClient {
    runtime: RuntimeServiceClient<PeerChannel>,
    images: ImageServiceClient<PeerChannel>,
}

impl StatsClient {
    /// Over this channel.
    pub fn new(channel: PeerChannel) -> Self {
        Self {
            runtime: RuntimeServiceClient::new(channel.clone()).max_decoding_message_size(MESSAGE_BYTES),
            images: ImageServiceClient::new(channel).max_decoding_message_size(MESSAGE_BYTES),
        }
    }
}

impl Stats for StatsClient {
    async fn container_stats(&self) -> Result<Vec<wire::ContainerStats>, CriError> {
        let request = wire::ListContainerStatsRequest::default();
        call!(self.runtime, list_container_stats, "ListContainerStats", "all containers", READ, request)
            .map(|a| a.stats)
    }

    async fn image_fs_info(&self) -> Result<wire::ImageFsInfoResponse, CriError> {
        let request = wire::ImageFsInfoRequest::default();
        call!(self.images, image_fs_info, "ImageFsInfo", "the image store", READ, request)
    }
}
