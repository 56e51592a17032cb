//! Calls of other processes, each with its deadline. Owns no state; must never decide.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use bulkhead_api::convert::runtime_pod_from_wire;
use bulkhead_api::imaged::v1 as imaged;
use bulkhead_api::pleg::v1 as pleg;
use bulkhead_api::volumed::v1 as volumed;
use bulkhead_ipc::PeerChannel;
use bulkhead_ipc::status::with_deadline;
use bulkhead_model::runtime::RuntimePod;
use k8s_openapi::api::core::v1::{Pod, Volume};
use tonic::{Code, Status};

use crate::error::PodError;

const OBSERVE: Duration = Duration::from_secs(10);
const VOLUMES: Duration = Duration::from_secs(30);

/// Clients of the processes that syncd asks.
#[derive(Clone, Debug)]
pub struct Peers {
    pleg: pleg::pleg_client::PlegClient<PeerChannel>,
    volumed: volumed::volumed_client::VolumedClient<PeerChannel>,
    imaged: imaged::imaged_client::ImagedClient<PeerChannel>,
}

/// The image that a container will run.
#[derive(Clone, Debug, Default)]
pub struct ReadyImage {
    /// For `CreateContainer`.
    pub image_ref: String,
    /// Numeric user that the image names.
    pub uid: Option<i64>,
    /// User name that the image names.
    pub username: String,
}

/// What imaged said.
#[derive(Clone, Debug)]
pub enum ImageAnswer {
    /// It is on the node.
    Ready(ReadyImage),
    /// It is not yet.
    Waiting {
        /// The kubelet's reason.
        reason: String,
        /// For people.
        message: String,
        /// When to ask again.
        retry_after: Duration,
    },
    /// The deadline ended first: a pull may be going on.
    NotYet,
}

impl Peers {
    /// Over these channels.
    pub fn new(pleg: PeerChannel, volumed: PeerChannel, imaged: PeerChannel) -> Self {
        Self {
            pleg: pleg::pleg_client::PlegClient::new(pleg),
            volumed: volumed::volumed_client::VolumedClient::new(volumed),
            imaged: imaged::imaged_client::ImagedClient::new(imaged),
        }
    }

    /// Reads a pod from the runtime: newer than anything that was done before the call.
    pub async fn observe(&self, uid: &str) -> Result<RuntimePod, PodError> {
        let request = with_deadline(pleg::ObservePodRequest { pod_uid: uid.to_owned() }, OBSERVE);
        let failed = |status| PodError::Peer { peer: "pleg", uid: uid.to_owned(), status };
        let answer = self.pleg.clone().observe_pod(request).await.map_err(failed)?.into_inner();
        let Some(pod) = answer.pod else {
            return Ok(RuntimePod { uid: uid.to_owned(), ..Default::default() });
        };
        runtime_pod_from_wire(pod).map_err(|error| failed(Status::data_loss(error.to_string())))
    }

    /// Makes the pod's volumes ready; answers where each one is.
    pub async fn set_up_volumes(&self, uid: &str, pod: &Pod) -> Result<BTreeMap<String, PathBuf>, PodError> {
        let volumes: Vec<_> =
            pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten()).map(volume_to_wire).collect();
        if volumes.is_empty() {
            return Ok(BTreeMap::new());
        }
        let request = with_deadline(volumed::SetUpPodRequest { pod_uid: uid.to_owned(), volumes }, VOLUMES);
        let answer = self.volumed.clone().set_up_pod(request).await.map_err(|status| PodError::Peer {
            peer: "volumed",
            uid: uid.to_owned(),
            status,
        })?;
        Ok(answer.into_inner().volumes.into_iter().map(|v| (v.name, v.host_path.into())).collect())
    }

    /// Unmounts and removes the pod's volumes.
    pub async fn tear_down_volumes(&self, uid: &str) -> Result<(), PodError> {
        let request = with_deadline(volumed::TearDownPodRequest { pod_uid: uid.to_owned() }, VOLUMES);
        self.volumed.clone().tear_down_pod(request).await.map(drop).map_err(|status| PodError::Peer {
            peer: "volumed",
            uid: uid.to_owned(),
            status,
        })
    }

    /// Asks for a container's image.
    pub async fn ensure_image(
        &self,
        request: imaged::EnsureImageRequest,
        deadline: Duration,
    ) -> Result<ImageAnswer, PodError> {
        use imaged::ensure_image_response::Result as Answer;
        let uid = request.pod_uid.clone();
        let answer = match self.imaged.clone().ensure_image(with_deadline(request, deadline)).await {
            Ok(answer) => answer.into_inner().result,
            // tonic's client says CANCELLED when its own timer ends a call.
            Err(status) if matches!(status.code(), Code::DeadlineExceeded | Code::Cancelled) => {
                return Ok(ImageAnswer::NotYet);
            }
            Err(status) => return Err(PodError::Peer { peer: "imaged", uid, status }),
        };
        match answer {
            Some(Answer::Present(image)) => Ok(ImageAnswer::Ready(ReadyImage {
                image_ref: image.image_ref,
                uid: image.uid,
                username: image.username,
            })),
            Some(Answer::Waiting(waiting)) => Ok(ImageAnswer::Waiting {
                reason: waiting.reason,
                message: waiting.message,
                retry_after: waiting
                    .retry_after
                    .and_then(|d| Duration::try_from(d).ok())
                    .unwrap_or(Duration::from_secs(1)),
            }),
            None => {
                let status = Status::data_loss("an answer without a result");
                Err(PodError::Peer { peer: "imaged", uid, status })
            }
        }
    }
}

/// Kinds that are not built yet were refused with the manifest.
fn volume_to_wire(volume: &Volume) -> volumed::Volume {
    use volumed::volume::Source;
    let source = match (&volume.empty_dir, &volume.host_path) {
        (Some(dir), _) => {
            let limit = dir.size_limit.as_ref();
            let bytes =
                limit.and_then(|q| bulkhead_model::quantity::Quantity::parse(&q.0).ok()).map(|q| q.value());
            Some(Source::EmptyDir(volumed::EmptyDir {
                medium: dir.medium.clone().unwrap_or_default(),
                size_limit_bytes: bytes.and_then(|b| u64::try_from(b).ok()).unwrap_or(0),
            }))
        }
        (None, Some(host)) => Some(Source::HostPath(volumed::HostPath {
            path: host.path.clone(),
            r#type: host.type_.clone().unwrap_or_default(),
        })),
        (None, None) => None,
    };
    volumed::Volume { name: volume.name.clone(), source }
}
