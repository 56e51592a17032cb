//! The node's images, as imaged tells them now and then.

use std::time::Duration;

use bulkhead_api::imaged::v1::ListNodeImagesRequest;
use bulkhead_api::imaged::v1::imaged_client::ImagedClient;
use bulkhead_ipc::PeerChannel;
use bulkhead_ipc::status::with_deadline;
use k8s_openapi::api::core::v1::ContainerImage;
use tokio::sync::watch;

/// How often they are asked for: what the scheduler knows of them may be this old.
const EVERY: Duration = Duration::from_secs(30);
/// How soon again while imaged does not answer.
const AGAIN: Duration = Duration::from_secs(5);
/// Longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Follows them until this future is dropped. What is not known just now stays as it was. `most` is `nodeStatusMaxImages`:
/// -1 for all of them.
pub(crate) async fn follow(imaged: PeerChannel, most: i32, images: watch::Sender<Vec<ContainerImage>>) {
    if most == 0 {
        return;
    }
    let most = u32::try_from(most).unwrap_or_default();
    let client = ImagedClient::new(imaged);
    loop {
        let request = with_deadline(ListNodeImagesRequest { most }, PATIENCE);
        let pause = match client.clone().list_node_images(request).await {
            Ok(answer) => {
                let listed = answer.into_inner().images.into_iter().map(|image| ContainerImage {
                    names: Some(image.names),
                    size_bytes: Some(i64::try_from(image.size_bytes).unwrap_or(i64::MAX)),
                });
                let listed: Vec<_> = listed.collect();
                images.send_if_modified(|known| {
                    let changed = *known != listed;
                    *known = listed;
                    changed
                });
                EVERY
            }
            Err(_) => AGAIN,
        };
        tokio::time::sleep(pause).await;
    }
}
