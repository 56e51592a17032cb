//! Images: imaged's role.

use std::time::Duration;

use bulkhead_ipc::PeerChannel;
use wire::image_service_client::ImageServiceClient;

use crate::{CriError, MESSAGE_BYTES, READ, call, wire};

/// Longest pull. A slow registry is not an error; a dead one is found by the runtime.
const PULL: Duration = Duration::from_secs(60 * 60);

/// Lists, pulls and removes images.
pub trait Images: Clone + Send + Sync + 'static {
    /// One image; `None` when it is not on the node.
    fn image_status(&self, image: &str)
    -> impl Future<Output = Result<Option<wire::Image>, CriError>> + Send;
    /// All images.
    fn list_images(&self) -> impl Future<Output = Result<Vec<wire::Image>, CriError>> + Send;
    /// Pulls; returns what to give CreateContainer.
    fn pull_image(
        &self,
        image: &str,
        auth: Option<wire::AuthConfig>,
    ) -> impl Future<Output = Result<String, CriError>> + Send;
    /// Removes; an image that is not there is fine.
    fn remove_image(&self, image: &str) -> impl Future<Output = Result<(), CriError>> + Send;
    /// Where images are stored and how full that is.
    fn image_fs_info(&self) -> impl Future<Output = Result<wire::ImageFsInfoResponse, CriError>> + Send;
}

/// [`Images`] over a socket.
#[derive(Clone, Debug)]
pub struct ImagesClient(ImageServiceClient<PeerChannel>);

impl ImagesClient {
    /// Over this channel.
    pub fn new(channel: PeerChannel) -> Self {
        Self(ImageServiceClient::new(channel).max_decoding_message_size(MESSAGE_BYTES))
    }
}

fn spec(image: &str) -> Option<wire::ImageSpec> {
    Some(wire::ImageSpec { image: image.to_owned(), ..Default::default() })
}

impl Images for ImagesClient {
    async fn image_status(&self, image: &str) -> Result<Option<wire::Image>, CriError> {
        let request = wire::ImageStatusRequest { image: spec(image), verbose: false };
        call!(self.0, image_status, "ImageStatus", image, READ, request).map(|answer| answer.image)
    }

    async fn list_images(&self) -> Result<Vec<wire::Image>, CriError> {
        let request = wire::ListImagesRequest::default();
        call!(self.0, list_images, "ListImages", "all images", READ, request).map(|answer| answer.images)
    }

    async fn pull_image(&self, image: &str, auth: Option<wire::AuthConfig>) -> Result<String, CriError> {
        let request = wire::PullImageRequest { image: spec(image), auth, ..Default::default() };
        call!(self.0, pull_image, "PullImage", image, PULL, request).map(|answer| answer.image_ref)
    }

    async fn remove_image(&self, image: &str) -> Result<(), CriError> {
        let request = wire::RemoveImageRequest { image: spec(image) };
        call!(self.0, remove_image, "RemoveImage", image, READ, request).map(drop)
    }

    async fn image_fs_info(&self) -> Result<wire::ImageFsInfoResponse, CriError> {
        call!(
            self.0,
            image_fs_info,
            "ImageFsInfo",
            "the image store",
            READ,
            wire::ImageFsInfoRequest::default()
        )
    }
}
