//! Evictions that evictd asks for: kept, then told to the pod's worker, which ends the pod.
//!
//! Owns which pod may be evicted at all, whoever asks. Must never stop anything itself.

use bulkhead_api::syncd::v1 as wire;
use bulkhead_ipc::status::{Coded, to_status};
use bulkhead_model::eviction;
use k8s_openapi::api::core::v1::Pod;
use tokio::sync::mpsc;
use tonic::{Code, Request, Response, Status};

use crate::state::{Eviction, Failure, PodRecord, Records};
use crate::views::Views;

/// Longest message that is kept, in bytes.
const MESSAGE: usize = 1024;
/// Evictions whose workers were not told yet. evictd asks for one after the other.
const WAITING: usize = 16;

/// The service.
#[derive(Debug)]
pub struct Evictions {
    views: Views,
    records: Records,
    told: mpsc::Sender<String>,
}

/// Why a pod is not evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// There is none.
    #[error("there is no such pod on this node")]
    Unknown,
    /// It is the node's own, or critical.
    #[error("the pod is static, or critical by its priority: such pods are never evicted")]
    Critical,
}

impl Coded for Refusal {
    fn code(&self) -> Code {
        match self {
            Self::Unknown => Code::NotFound,
            Self::Critical => Code::FailedPrecondition,
        }
    }
}

impl Evictions {
    /// With the UIDs of pods whose workers have to look again.
    pub fn new(views: Views, records: Records) -> (Self, mpsc::Receiver<String>) {
        let (told, evicted) = mpsc::channel(WAITING);
        (Self { views, records, told }, evicted)
    }

    /// Keeps it; whether the pod was not over before.
    async fn evict(&self, request: wire::EvictPodRequest) -> Result<bool, Refusal> {
        let uid = request.pod_uid.clone();
        let pod = self.views.pod(&uid);
        let record = self.records.get(&uid);
        let changed = is_evicted_by(pod.as_deref(), record.as_ref())?;
        if changed {
            self.records.update(&uid, |record| record.failed = Some(failure(request)));
        }
        // Asked for again, it may not be on disk yet.
        self.records.kept().await;
        // The manager lives as long as the process.
        let _ = self.told.send(uid).await;
        Ok(changed)
    }
}

#[tonic::async_trait]
impl wire::eviction_server::Eviction for Evictions {
    async fn evict_pod(
        &self,
        request: Request<wire::EvictPodRequest>,
    ) -> Result<Response<wire::EvictPodResponse>, Status> {
        let changed = self.evict(request.into_inner()).await.map_err(|error| to_status(&error))?;
        Ok(Response::new(wire::EvictPodResponse { changed }))
    }
}

/// Whether an eviction changes anything for the pod.
fn is_evicted_by(pod: Option<&Pod>, record: Option<&PodRecord>) -> Result<bool, Refusal> {
    let pod = pod.ok_or(Refusal::Unknown)?;
    if eviction::is_critical(pod) {
        return Err(Refusal::Critical);
    }
    // One without a record is known to the runtime alone, and is being ended.
    Ok(record.is_some_and(|record| !record.finished && record.failed.is_none()))
}

fn failure(request: wire::EvictPodRequest) -> Failure {
    let wire::EvictPodRequest { mut message, grace_seconds, disruption, .. } = request;
    message.truncate(message.floor_char_boundary(MESSAGE));
    let eviction = Some(Eviction { grace_seconds, disruption });
    Failure { eviction, ..Failure::new(eviction::REASON, message) }
}

#[cfg(test)]
mod tests {
    use bulkhead_model::names;
    use jiff::Timestamp;

    use super::*;

    fn pod(source: &str) -> Pod {
        let json =
            serde_json::json!({"metadata": {"uid": "u", "annotations": {names::CONFIG_SOURCE: source}}});
        serde_json::from_value(json).unwrap()
    }

    #[test]
    fn static_pods_stay_and_what_is_over_is_not_evicted_again() {
        let running = PodRecord::new(Timestamp::UNIX_EPOCH);
        let failed = PodRecord { failed: Some(Failure::new("x", "y")), ..running.clone() };
        let finished = PodRecord { finished: true, ..running.clone() };
        let table = [
            (None, None, Err(Refusal::Unknown)),
            (Some(pod("file")), Some(&running), Err(Refusal::Critical)),
            (Some(pod("api")), Some(&running), Ok(true)),
            (Some(pod("api")), Some(&failed), Ok(false)),
            (Some(pod("api")), Some(&finished), Ok(false)),
            (Some(pod("api")), None, Ok(false)),
        ];
        for (pod, record, expected) in table {
            assert_eq!(is_evicted_by(pod.as_ref(), record), expected, "{pod:?} {record:?}");
        }
    }

    #[test]
    fn a_message_without_end_is_cut() {
        let request = wire::EvictPodRequest {
            message: "ü".repeat(2000),
            grace_seconds: 1,
            disruption: true,
            ..Default::default()
        };
        let failure = failure(request);
        assert_eq!((failure.reason.as_str(), failure.message.len()), ("Evicted", 1024));
        assert_eq!(failure.eviction, Some(Eviction { grace_seconds: 1, disruption: true }));
    }
}
