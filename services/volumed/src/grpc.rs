//! The gRPC face: reads the request, calls, answers.

use bulkhead_api::common::v1::WatchRequest;
use bulkhead_api::volumed::v1::volumed_server::Volumed;
use bulkhead_api::volumed::v1::{
    MeasurePodRequest, PodVolumes, PodVolumesUpdate, SetUpPodRequest, SetUpPodResponse, SetUpSubPathsRequest,
    SetUpSubPathsResponse, TearDownPodRequest, TearDownPodResponse,
};
use bulkhead_ipc::publisher::BoxStream;
use bulkhead_ipc::status::to_status;
use tonic::{Request, Response, Status};

use crate::names::PodUid;
use crate::spec;
use crate::volumes::Volumes;

/// Answers `bulkhead.volumed.v1.Volumed`.
pub(crate) struct Grpc {
    volumes: Volumes,
}

impl Grpc {
    pub(crate) fn new(volumes: Volumes) -> Self {
        Self { volumes }
    }
}

#[tonic::async_trait]
impl Volumed for Grpc {
    type WatchVolumesStream = BoxStream<PodVolumesUpdate>;

    async fn set_up_pod(
        &self,
        request: Request<SetUpPodRequest>,
    ) -> Result<Response<SetUpPodResponse>, Status> {
        let pod = spec::parse(request.into_inner()).map_err(|error| to_status(&error))?;
        let answer = self.volumes.set_up(pod).await.map_err(|error| to_status(&error))?;
        Ok(Response::new(answer))
    }

    async fn set_up_sub_paths(
        &self,
        request: Request<SetUpSubPathsRequest>,
    ) -> Result<Response<SetUpSubPathsResponse>, Status> {
        let asked = spec::parse_sub_paths(request.into_inner()).map_err(|error| to_status(&error))?;
        let answer = self.volumes.set_up_sub_paths(asked).await.map_err(|error| to_status(&error))?;
        Ok(Response::new(answer))
    }

    async fn tear_down_pod(
        &self,
        request: Request<TearDownPodRequest>,
    ) -> Result<Response<TearDownPodResponse>, Status> {
        let uid = PodUid::parse(&request.into_inner().pod_uid).map_err(|error| to_status(&error))?;
        let answer = self.volumes.tear_down(uid).await.map_err(|error| to_status(&error))?;
        Ok(Response::new(answer))
    }

    async fn measure_pod(&self, request: Request<MeasurePodRequest>) -> Result<Response<PodVolumes>, Status> {
        let uid = PodUid::parse(&request.into_inner().pod_uid).map_err(|error| to_status(&error))?;
        let answer = self.volumes.measure_pod(&uid).await.map_err(|error| to_status(&error))?;
        answer.map(Response::new).ok_or_else(|| Status::not_found("the pod has no volumes here"))
    }

    async fn watch_volumes(
        &self,
        _: Request<WatchRequest>,
    ) -> Result<Response<Self::WatchVolumesStream>, Status> {
        Ok(Response::new(self.volumes.subscribe()))
    }
}
