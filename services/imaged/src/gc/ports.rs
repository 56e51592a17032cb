//! What the collector asks others: how full a disk is, and which images are used.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bulkhead_api::common::v1::WatchRequest;
use bulkhead_api::pleg::v1::pleg_client::PlegClient;
use bulkhead_ipc::{PeerChannel, whole};

use super::plan::Space;
use crate::error::GcError;

/// Longest wait for pleg's whole state.
const PATIENCE: Duration = Duration::from_secs(10);
/// Largest message taken of a stream. One holds up to 128 pods, whose containers' annotations may be long.
const MESSAGE_BYTES: usize = 16 * 1024 * 1024;

/// Measures disks.
pub(crate) trait Disk: Send + Sync + 'static {
    /// How full the file system of `folder` is; `None` when it cannot be asked.
    fn space(&self, folder: &str) -> impl Future<Output = Option<Space>> + Send;
}

/// Knows which images containers have.
pub(crate) trait Users: Send + Sync + 'static {
    /// Names and ids of images that a container has, whatever it does.
    ///
    /// # Errors
    /// When they are not known.
    fn used(&self) -> impl Future<Output = Result<BTreeSet<String>, GcError>> + Send;
}

/// This machine's disks.
pub(crate) struct Statvfs;

impl Disk for Statvfs {
    async fn space(&self, folder: &str) -> Option<Space> {
        let folder = PathBuf::from(folder);
        // A disk that hangs must not hang the process.
        let figures = tokio::task::spawn_blocking(move || {
            let mounts = std::fs::read_to_string(Path::new("/proc/self/mountinfo")).ok()?;
            bulkhead_disk::read_closed(&mounts, &folder)
        });
        let figures = figures.await.ok()??;
        Some(Space { capacity: figures.capacity_bytes, available: figures.available_bytes })
    }
}

/// As pleg tells it. Its stream is open only while somebody asks: images are looked at every few minutes, and pods would
/// take memory all the time.
pub(crate) struct UsersOfPods(PlegClient<PeerChannel>);

impl UsersOfPods {
    /// By the channel to pleg.
    pub(crate) fn new(pleg: PeerChannel) -> Self {
        Self(PlegClient::new(pleg).max_decoding_message_size(MESSAGE_BYTES))
    }
}

impl Users for UsersOfPods {
    async fn used(&self) -> Result<BTreeSet<String>, GcError> {
        let mut client = self.0.clone();
        let pods = async { whole(client.watch_pods(WatchRequest {}).await?.into_inner()).await };
        let late = |_| Err(tonic::Status::deadline_exceeded("it did not tell its pods in time"));
        let pods = tokio::time::timeout(PATIENCE, pods).await.unwrap_or_else(late).map_err(GcError::Pods)?;
        let containers = pods.values().flat_map(|pod| &pod.containers);
        Ok(containers.flat_map(|container| [container.image.clone(), container.image_id.clone()]).collect())
    }
}
