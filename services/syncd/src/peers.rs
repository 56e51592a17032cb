//! Calls of other processes, each with its deadline. Owns no state; must never decide.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use bulkhead_api::common::v1::{Part, WatchRequest};
use bulkhead_api::convert::{HookCall, hook_call_to_wire, runtime_features_from_wire, runtime_pod_from_wire};
use bulkhead_api::imaged::v1 as imaged;
use bulkhead_api::pleg::v1 as pleg;
use bulkhead_api::prober::v1 as prober;
use bulkhead_api::statusd::v1 as statusd;
use bulkhead_api::volumed::v1 as volumed;
use bulkhead_ipc::PeerChannel;
use bulkhead_ipc::status::{Reaction, reaction, with_deadline};
use bulkhead_model::phase::Phase;
use bulkhead_model::runtime::RuntimePod;
use bulkhead_model::runtime_features::RuntimeFeatures;
use k8s_openapi::api::core::v1::PodStatus;
use tonic::{Code, Status};

use crate::cri_config::SubPath;
use crate::error::PodError;

const OBSERVE: Duration = Duration::from_secs(10);
const FEATURES: Duration = Duration::from_secs(5);
/// Largest message of statusd. One holds up to 128 statuses.
const MESSAGE_BYTES: usize = 16 * 1024 * 1024;
const STATUSES: Duration = Duration::from_secs(10);
const VOLUMES: Duration = Duration::from_secs(30);
/// How much longer than a hook its answer is waited for.
const HOOK_MARGIN: Duration = Duration::from_secs(10);

/// Clients of the processes that syncd asks.
#[derive(Clone, Debug)]
pub struct Peers {
    pleg: pleg::pleg_client::PlegClient<PeerChannel>,
    volumed: volumed::volumed_client::VolumedClient<PeerChannel>,
    imaged: imaged::imaged_client::ImagedClient<PeerChannel>,
    hooks: prober::hooks_client::HooksClient<PeerChannel>,
    statusd: statusd::statusd_client::StatusdClient<PeerChannel>,
}

/// Channels to them.
#[derive(Clone, Debug)]
pub struct PeerChannels {
    /// To pleg.
    pub pleg: PeerChannel,
    /// To volumed.
    pub volumed: PeerChannel,
    /// To imaged.
    pub imaged: PeerChannel,
    /// To prober.
    pub prober: PeerChannel,
    /// To statusd.
    pub statusd: PeerChannel,
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
    /// Whether it was pulled for this container.
    pub pulled: bool,
    /// Size in bytes.
    pub size: u64,
}

/// What prober said of a hook.
#[derive(Clone, Debug)]
pub enum HookAnswer {
    /// It ended well.
    Done,
    /// It failed, and why.
    Failed(String),
    /// It could not be run: the runtime refused, or was away.
    Refused(String),
    /// prober was away, or went.
    Away(String),
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
    pub fn new(to: PeerChannels) -> Self {
        Self {
            pleg: pleg::pleg_client::PlegClient::new(to.pleg),
            volumed: volumed::volumed_client::VolumedClient::new(to.volumed),
            imaged: imaged::imaged_client::ImagedClient::new(to.imaged),
            hooks: prober::hooks_client::HooksClient::new(to.prober),
            statusd: statusd::statusd_client::StatusdClient::new(to.statusd)
                .max_decoding_message_size(MESSAGE_BYTES),
        }
    }

    /// Whether statusd has told that the pod is over. What is told is kept on disk before.
    pub async fn is_told_over(&self, uid: &str) -> Result<bool, PodError> {
        let told = async {
            let mut stream = self.statusd.clone().watch_statuses(WatchRequest {}).await?.into_inner();
            while let Some(message) = stream.message().await? {
                let part = message.part();
                if let Some(found) = message.upserts.into_iter().find(|status| status.pod_uid == uid) {
                    return Ok(is_final(&found.status_json));
                }
                if part == Part::SnapshotEnd {
                    break;
                }
            }
            Ok(false)
        };
        let told = tokio::time::timeout(STATUSES, told).await;
        told.unwrap_or_else(|_| Err(Status::deadline_exceeded("it did not tell all statuses in time")))
            .map_err(|status| PodError::Peer { peer: "statusd", uid: uid.to_owned(), status })
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

    /// Asks the runtime, for this pod, what it can do.
    pub async fn runtime_features(&self, uid: &str) -> Result<RuntimeFeatures, PodError> {
        let request = with_deadline(pleg::GetRuntimeFeaturesRequest {}, FEATURES);
        match self.pleg.clone().get_runtime_features(request).await {
            Ok(answer) => Ok(runtime_features_from_wire(answer.into_inner())),
            Err(status) => Err(PodError::Peer { peer: "pleg", uid: uid.to_owned(), status }),
        }
    }

    /// Makes the pod's volumes ready; answers where each one is.
    pub async fn set_up_volumes(
        &self,
        request: volumed::SetUpPodRequest,
    ) -> Result<BTreeMap<String, PathBuf>, PodError> {
        let uid = request.pod_uid.clone();
        let answer = self.volumed.clone().set_up_pod(with_deadline(request, VOLUMES)).await;
        let answer = answer.map_err(|status| PodError::Peer { peer: "volumed", uid, status })?;
        Ok(answer.into_inner().volumes.into_iter().map(|v| (v.name, v.host_path.into())).collect())
    }

    /// Binds the parts of volumes that a container mounts; answers, by place in its mounts, where each one is. The error is
    /// a text for people.
    pub async fn set_up_sub_paths(
        &self,
        uid: &str,
        container: &str,
        paths: &[SubPath],
    ) -> Result<BTreeMap<usize, String>, String> {
        let part = |part: &SubPath| volumed::SubPath {
            index: u32::try_from(part.index).unwrap_or(u32::MAX),
            volume: part.volume.clone(),
            path: part.path.clone(),
        };
        let request = volumed::SetUpSubPathsRequest {
            pod_uid: uid.to_owned(),
            container_name: container.to_owned(),
            sub_paths: paths.iter().map(part).collect(),
        };
        let answer = self.volumed.clone().set_up_sub_paths(with_deadline(request, VOLUMES)).await;
        let answer = answer.map_err(|status| {
            format!("failed to prepare subPath of container {container}: {}", status.message())
        })?;
        let bound = answer.into_inner().sub_paths;
        Ok(bound.into_iter().filter_map(|b| Some((usize::try_from(b.index).ok()?, b.host_path))).collect())
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

    /// Has a hook run. It ends when the returned future is dropped.
    pub async fn run_hook(&self, call: &HookCall) -> HookAnswer {
        let deadline = call.timeout.saturating_add(HOOK_MARGIN);
        let request = with_deadline(hook_call_to_wire(call), deadline);
        match self.hooks.clone().run_hook(request).await.map(tonic::Response::into_inner) {
            Ok(answer) => match answer.outcome() {
                prober::HookOutcome::Done => HookAnswer::Done,
                prober::HookOutcome::Failed => HookAnswer::Failed(answer.message),
                prober::HookOutcome::Unknown => HookAnswer::Refused(answer.message),
            },
            Err(status) => {
                let text = format!("prober: {}", status.message());
                match reaction(&status) {
                    Reaction::Retry => HookAnswer::Away(text),
                    _ => HookAnswer::Failed(text),
                }
            }
        }
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
                pulled: image.pulled,
                size: image.size_bytes,
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

/// Whether this status, as the API's JSON, is that of a pod that is over.
fn is_final(status: &[u8]) -> bool {
    let phase = serde_json::from_slice::<PodStatus>(status).ok().and_then(|status| status.phase);
    phase.and_then(|phase| Phase::parse(&phase)).is_some_and(Phase::is_final)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_phases_are_final() {
        for (json, expected) in [
            (r#"{"phase":"Failed"}"#, true),
            (r#"{"phase":"Succeeded"}"#, true),
            (r#"{"phase":"Running"}"#, false),
            ("{}", false),
            ("no JSON", false),
        ] {
            assert_eq!(is_final(json.as_bytes()), expected, "{json}");
        }
    }
}
