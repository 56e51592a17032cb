//! bulkhead.syncd.v1. Thin: everything served here is made elsewhere.

use std::sync::Arc;

use bulkhead_api::common::v1::WatchRequest;
use bulkhead_api::syncd::v1 as wire;
use bulkhead_ipc::publisher::BoxStream;
use bulkhead_ipc::status::to_status;
use k8s_openapi::api::core::v1::Pod;
use tokio::sync::watch;
use tonic::{Request, Response, Status};
use wire::list_pods_item::Item;

use crate::plan::full_name;
use crate::source::{Change, Desired, Submissions};
use crate::views::Views;

/// The service.
pub struct SyncdService {
    /// What is published.
    pub views: Views,
    /// What the sources ask for.
    pub desired: watch::Receiver<Option<Arc<Desired>>>,
}

#[tonic::async_trait]
impl wire::syncd_server::Syncd for SyncdService {
    type WatchStatusViewsStream = BoxStream<wire::StatusViewsUpdate>;
    async fn watch_status_views(
        &self,
        _: Request<WatchRequest>,
    ) -> Result<Response<Self::WatchStatusViewsStream>, Status> {
        Ok(Response::new(self.views.status.subscribe()))
    }

    type WatchProbeViewsStream = BoxStream<wire::ProbeViewsUpdate>;
    async fn watch_probe_views(
        &self,
        _: Request<WatchRequest>,
    ) -> Result<Response<Self::WatchProbeViewsStream>, Status> {
        Ok(Response::new(self.views.probes.subscribe()))
    }

    type WatchMirrorPodsStream = BoxStream<wire::MirrorPodsUpdate>;
    async fn watch_mirror_pods(
        &self,
        _: Request<WatchRequest>,
    ) -> Result<Response<Self::WatchMirrorPodsStream>, Status> {
        Ok(Response::new(self.views.mirrors.subscribe()))
    }

    type WatchStatsViewsStream = BoxStream<wire::StatsViewsUpdate>;
    async fn watch_stats_views(
        &self,
        _: Request<WatchRequest>,
    ) -> Result<Response<Self::WatchStatsViewsStream>, Status> {
        Ok(Response::new(self.views.stats.subscribe()))
    }

    type ListPodsStream = BoxStream<wire::ListPodsItem>;
    async fn list_pods(
        &self,
        _: Request<wire::ListPodsRequest>,
    ) -> Result<Response<Self::ListPodsStream>, Status> {
        let Some(desired) = self.desired.borrow().clone() else {
            return Err(Status::unavailable("the pod sources were not read yet"));
        };
        let mut pods = self.views.pods();
        pods.sort_by_key(|pod| full_name(pod));
        let refused = desired.refused.iter().map(|(place, reason)| {
            Item::Refused(wire::RefusedManifest { source: place.to_string(), reason: reason.clone() })
        });
        let refused: Vec<_> = refused.collect();
        // One pod is encoded at a time, as the reader takes them.
        let items =
            pods.into_iter().map(|pod| json(&pod).map(Item::PodJson)).chain(refused.into_iter().map(Ok));
        let items = items.map(|item| item.map(|item| wire::ListPodsItem { item: Some(item) }));
        Ok(Response::new(Box::pin(futures::stream::iter(items))))
    }
}

#[tonic::async_trait]
impl wire::submissions_server::Submissions for Submissions {
    async fn submit_pods(
        &self,
        request: Request<wire::SubmitPodsRequest>,
    ) -> Result<Response<wire::SubmitPodsResponse>, Status> {
        let pods = self.submit(&request.into_inner().manifest).await.map_err(|error| to_status(&error))?;
        let pods = pods.into_iter().map(|pod| wire::SubmittedPod {
            namespace: pod.namespace,
            name: pod.name,
            change: match pod.change {
                Change::Nothing => wire::SubmittedChange::Nothing,
                Change::Created => wire::SubmittedChange::Created,
                Change::Replaced => wire::SubmittedChange::Replaced,
            }
            .into(),
        });
        Ok(Response::new(wire::SubmitPodsResponse { pods: pods.collect() }))
    }

    async fn delete_pod(
        &self,
        request: Request<wire::DeletePodRequest>,
    ) -> Result<Response<wire::DeletePodResponse>, Status> {
        let wire::DeletePodRequest { namespace, name } = request.into_inner();
        let deleted = self.delete(&namespace, &name).await.map_err(|error| to_status(&error))?;
        Ok(Response::new(wire::DeletePodResponse { deleted }))
    }
}

fn json(pod: &Pod) -> Result<Vec<u8>, Status> {
    serde_json::to_vec(pod).map_err(|error| Status::internal(error.to_string()))
}
