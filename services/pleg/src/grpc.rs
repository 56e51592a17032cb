//! The service's methods: parse, ask, answer.

use bulkhead_api::common::v1::WatchRequest;
use bulkhead_api::convert::{runtime_features_from_cri, runtime_features_to_wire, runtime_pod_to_wire};
use bulkhead_api::pleg::v1 as wire;
use bulkhead_api::pleg::v1::pleg_server::Pleg;
use bulkhead_cri::{Observe, wire as cri};
use bulkhead_ipc::Publisher;
use bulkhead_ipc::publisher::BoxStream;
use bulkhead_ipc::status::to_status;
use bulkhead_model::runtime::RuntimePod;
use tokio::sync::watch;
use tonic::{Request, Response, Status};

use crate::error::ReadError;
use crate::reader::Reader;

/// Longest UID taken: the kubelet's file-name bound for them.
const UID_BYTES: usize = 253;

/// Answers calls.
#[derive(Debug)]
pub(crate) struct Handlers<O> {
    pub(crate) client: O,
    pub(crate) reader: Reader<O>,
    pub(crate) publisher: Publisher<String, RuntimePod>,
    pub(crate) version: watch::Receiver<Option<cri::VersionResponse>>,
}

#[tonic::async_trait]
impl<O: Observe> Pleg for Handlers<O> {
    type WatchPodsStream = BoxStream<wire::RuntimePodsUpdate>;

    async fn watch_pods(&self, _: Request<WatchRequest>) -> Result<Response<Self::WatchPodsStream>, Status> {
        Ok(Response::new(self.publisher.subscribe()))
    }

    async fn observe_pod(
        &self,
        request: Request<wire::ObservePodRequest>,
    ) -> Result<Response<wire::ObservePodResponse>, Status> {
        let uid = request.into_inner().pod_uid;
        if uid.is_empty() || uid.len() > UID_BYTES {
            return Err(to_status(&ReadError::InvalidUid { found: uid.len(), longest: UID_BYTES }));
        }
        let pod = self.reader.observe(&uid).await.map_err(|error| to_status(&error))?;
        Ok(Response::new(wire::ObservePodResponse { pod: pod.as_deref().map(runtime_pod_to_wire) }))
    }

    async fn get_runtime(
        &self,
        _: Request<wire::GetRuntimeRequest>,
    ) -> Result<Response<wire::GetRuntimeResponse>, Status> {
        let version = self.version.borrow().clone();
        let version = version.ok_or_else(|| to_status(&ReadError::NeverAnswered))?;
        Ok(Response::new(wire::GetRuntimeResponse {
            name: version.runtime_name,
            version: version.runtime_version,
            api_version: version.runtime_api_version,
        }))
    }

    async fn get_runtime_features(
        &self,
        _: Request<wire::GetRuntimeFeaturesRequest>,
    ) -> Result<Response<wire::GetRuntimeFeaturesResponse>, Status> {
        let status = self.client.status().await.map_err(|error| to_status(&ReadError::from(error)))?;
        Ok(Response::new(runtime_features_to_wire(&runtime_features_from_cri(&status))))
    }
}
