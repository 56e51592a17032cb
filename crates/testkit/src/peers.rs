//! Fakes of the processes that publish levels, and what the runtime holds for them to tell.
//!
//! A fake tells what its test puts into its publisher. One that goes and comes back is served again from the same publisher,
//! or from a new one, which is a new life.

use bulkhead_api::common::v1::WatchRequest;
use bulkhead_api::convert::{ProbeItem, StatusItem};
use bulkhead_api::{pleg, prober, syncd, volumed};
use bulkhead_ipc::Publisher;
use bulkhead_ipc::publisher::BoxStream;
use bulkhead_model::runtime::{Container, ContainerState, RuntimePod, Sandbox};
use jiff::Timestamp;
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;
use tonic::{Request, Response, Status};

use crate::TestNode;

/// syncd. A view without a publisher is refused, as it is for who may not see it.
#[derive(Clone, Default)]
pub struct FakeSyncd {
    /// For statusd.
    pub status: Option<Publisher<String, StatusItem>>,
    /// For prober.
    pub probe: Option<Publisher<String, ProbeItem>>,
    /// For evictd.
    pub stats: Option<Publisher<String, syncd::v1::StatsView>>,
}

/// pleg, as far as its stream goes.
#[derive(Clone)]
pub struct FakePleg(pub Publisher<String, RuntimePod>);

/// prober.
#[derive(Clone)]
pub struct FakeProber(pub Publisher<String, prober::v1::ContainerResult>);

/// volumed, as far as its stream goes.
#[derive(Clone)]
pub struct FakeVolumed(pub Publisher<String, volumed::v1::PodVolumes>);

impl FakeSyncd {
    /// Serves it until the token is cancelled.
    pub async fn serve(self, node: &TestNode) -> CancellationToken {
        node.fake_peer("syncd", Routes::new(syncd::v1::syncd_server::SyncdServer::new(self))).await
    }
}

impl FakePleg {
    /// Serves it until the token is cancelled.
    pub async fn serve(self, node: &TestNode) -> CancellationToken {
        node.fake_peer("pleg", Routes::new(pleg::v1::pleg_server::PlegServer::new(self))).await
    }
}

impl FakeProber {
    /// Serves it until the token is cancelled.
    pub async fn serve(self, node: &TestNode) -> CancellationToken {
        node.fake_peer("prober", Routes::new(prober::v1::prober_server::ProberServer::new(self))).await
    }
}

impl FakeVolumed {
    /// Serves it until the token is cancelled.
    pub async fn serve(self, node: &TestNode) -> CancellationToken {
        node.fake_peer("volumed", Routes::new(volumed::v1::volumed_server::VolumedServer::new(self))).await
    }
}

/// A ready sandbox.
pub fn sandbox(id: &str, made: Timestamp, ips: &[&str]) -> Sandbox {
    Sandbox {
        id: id.to_owned(),
        attempt: 0,
        ready: true,
        created_at: made,
        ips: ips.iter().map(|&ip| ip.to_owned()).collect(),
        traceparent: String::new(),
    }
}

/// A container that was made and started then, of the image `bb:1`.
pub fn container(id: &str, name: &str, state: ContainerState, started: Timestamp) -> Container {
    Container {
        id: id.to_owned(),
        name: name.to_owned(),
        sandbox_id: String::new(),
        attempt: 0,
        state,
        created_at: started,
        started_at: Some(started),
        finished_at: None,
        exit_code: 0,
        reason: String::new(),
        message: String::new(),
        image: "bb:1".to_owned(),
        image_id: "sha256:1".to_owned(),
        log_path: String::new(),
        hash: None,
        user: None,
        stop_signal: String::new(),
        annotations: [].into(),
    }
}

/// What the runtime holds of a pod in `default`: one sandbox, and containers in it.
pub fn runtime_pod(uid: &str, name: &str, sandbox: Sandbox, mut containers: Vec<Container>) -> RuntimePod {
    for container in &mut containers {
        container.sandbox_id.clone_from(&sandbox.id);
    }
    RuntimePod {
        uid: uid.to_owned(),
        name: name.to_owned(),
        namespace: "default".to_owned(),
        sandboxes: vec![sandbox],
        containers,
    }
}

fn told<K, V, M>(publisher: Option<&Publisher<K, V>>) -> Result<Response<BoxStream<M>>, Status>
where
    M: bulkhead_ipc::UpdateMessage<Key = K, Value = V>,
    K: Ord + Clone + Send + Sync + 'static,
    V: PartialEq + Send + Sync + 'static,
{
    let publisher = publisher.ok_or_else(|| Status::permission_denied("not for this process"))?;
    Ok(Response::new(publisher.subscribe()))
}

fn not_here<T>() -> Result<Response<T>, Status> {
    Err(Status::unimplemented("not of this fake"))
}

#[tonic::async_trait]
impl syncd::v1::syncd_server::Syncd for FakeSyncd {
    type WatchStatusViewsStream = BoxStream<syncd::v1::StatusViewsUpdate>;
    type WatchProbeViewsStream = BoxStream<syncd::v1::ProbeViewsUpdate>;
    type WatchStatsViewsStream = BoxStream<syncd::v1::StatsViewsUpdate>;
    type WatchMirrorPodsStream = BoxStream<syncd::v1::MirrorPodsUpdate>;
    type ListPodsStream = BoxStream<syncd::v1::ListPodsItem>;

    async fn watch_status_views(
        &self,
        _: Request<WatchRequest>,
    ) -> Result<Response<Self::WatchStatusViewsStream>, Status> {
        told(self.status.as_ref())
    }

    async fn watch_probe_views(
        &self,
        _: Request<WatchRequest>,
    ) -> Result<Response<Self::WatchProbeViewsStream>, Status> {
        told(self.probe.as_ref())
    }

    async fn watch_mirror_pods(
        &self,
        _: Request<WatchRequest>,
    ) -> Result<Response<Self::WatchMirrorPodsStream>, Status> {
        Err(Status::unimplemented("there is no API server"))
    }

    async fn watch_stats_views(
        &self,
        _: Request<WatchRequest>,
    ) -> Result<Response<Self::WatchStatsViewsStream>, Status> {
        told(self.stats.as_ref())
    }

    async fn list_pods(
        &self,
        _: Request<syncd::v1::ListPodsRequest>,
    ) -> Result<Response<Self::ListPodsStream>, Status> {
        not_here()
    }
}

#[tonic::async_trait]
impl pleg::v1::pleg_server::Pleg for FakePleg {
    type WatchPodsStream = BoxStream<pleg::v1::RuntimePodsUpdate>;

    async fn watch_pods(&self, _: Request<WatchRequest>) -> Result<Response<Self::WatchPodsStream>, Status> {
        told(Some(&self.0))
    }

    async fn observe_pod(
        &self,
        _: Request<pleg::v1::ObservePodRequest>,
    ) -> Result<Response<pleg::v1::ObservePodResponse>, Status> {
        not_here()
    }

    async fn get_runtime(
        &self,
        _: Request<pleg::v1::GetRuntimeRequest>,
    ) -> Result<Response<pleg::v1::GetRuntimeResponse>, Status> {
        not_here()
    }

    async fn get_runtime_features(
        &self,
        _: Request<pleg::v1::GetRuntimeFeaturesRequest>,
    ) -> Result<Response<pleg::v1::GetRuntimeFeaturesResponse>, Status> {
        not_here()
    }
}

#[tonic::async_trait]
impl prober::v1::prober_server::Prober for FakeProber {
    type WatchResultsStream = BoxStream<prober::v1::ResultsUpdate>;

    async fn watch_results(
        &self,
        _: Request<WatchRequest>,
    ) -> Result<Response<Self::WatchResultsStream>, Status> {
        told(Some(&self.0))
    }
}

#[tonic::async_trait]
impl volumed::v1::volumed_server::Volumed for FakeVolumed {
    type WatchVolumesStream = BoxStream<volumed::v1::PodVolumesUpdate>;

    async fn set_up_pod(
        &self,
        _: Request<volumed::v1::SetUpPodRequest>,
    ) -> Result<Response<volumed::v1::SetUpPodResponse>, Status> {
        not_here()
    }

    async fn set_up_sub_paths(
        &self,
        _: Request<volumed::v1::SetUpSubPathsRequest>,
    ) -> Result<Response<volumed::v1::SetUpSubPathsResponse>, Status> {
        not_here()
    }

    async fn tear_down_pod(
        &self,
        _: Request<volumed::v1::TearDownPodRequest>,
    ) -> Result<Response<volumed::v1::TearDownPodResponse>, Status> {
        not_here()
    }

    async fn measure_pod(
        &self,
        request: Request<volumed::v1::MeasurePodRequest>,
    ) -> Result<Response<volumed::v1::PodVolumes>, Status> {
        let pod = self.0.get(&request.into_inner().pod_uid);
        pod.map(|pod| Response::new((*pod).clone())).ok_or_else(|| Status::not_found("no such pod"))
    }

    async fn watch_volumes(
        &self,
        _: Request<WatchRequest>,
    ) -> Result<Response<Self::WatchVolumesStream>, Status> {
        told(Some(&self.0))
    }
}
