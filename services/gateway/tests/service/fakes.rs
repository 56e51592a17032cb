//! Peers with as much state as gateway can see.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bulkhead_api::common::v1::WatchRequest;
use bulkhead_api::process::v1::{self as process, Check, ProcessStatus, process_server};
use bulkhead_api::syncd::v1::{self as syncd, ListPodsItem, list_pods_item::Item, syncd_server};
use bulkhead_api::{evictd, pleg, statusd};
use bulkhead_ipc::Publisher;
use bulkhead_ipc::publisher::BoxStream;
use bulkhead_model::runtime::RuntimePod;
use tonic::{Request, Response, Status};

/// What a peer says of itself. Clones share it.
#[derive(Clone, Default)]
pub struct Process(Arc<Mutex<ProcessStatus>>);

impl Process {
    pub fn well() -> Self {
        Self(Arc::new(Mutex::new(ProcessStatus { ready: true, ..Default::default() })))
    }

    /// Sets its one check; an empty reason is good.
    pub fn check(&self, name: &str, reason: &str) {
        let check =
            Check { name: name.to_owned(), ok: reason.is_empty(), reason: reason.to_owned(), since: None };
        self.0.lock().unwrap().checks = vec![check];
    }
}

#[tonic::async_trait]
impl process_server::Process for Process {
    async fn get_status(
        &self,
        _: Request<process::GetStatusRequest>,
    ) -> Result<Response<ProcessStatus>, Status> {
        Ok(Response::new(self.0.lock().unwrap().clone()))
    }

    async fn list_spans(
        &self,
        _: Request<process::ListSpansRequest>,
    ) -> Result<Response<process::ListSpansResponse>, Status> {
        Err(Status::unimplemented("fake"))
    }

    async fn get_metrics(
        &self,
        _: Request<process::GetMetricsRequest>,
    ) -> Result<Response<process::Metrics>, Status> {
        let series = process::MetricSeries { value: 1.5, ..Default::default() };
        let family = process::MetricFamily {
            name: "process_cpu_seconds_total".to_owned(),
            kind: process::MetricKind::Counter.into(),
            series: vec![series],
            ..Default::default()
        };
        Ok(Response::new(process::Metrics { families: vec![family] }))
    }
}

/// How a list of pods ends.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub enum End {
    #[default]
    Whole,
    /// After the first entry.
    Broken,
    /// Before any.
    NotRead,
}

#[derive(Clone, Default)]
pub struct Syncd {
    pub items: Arc<Mutex<Vec<Item>>>,
    pub end: Arc<Mutex<End>>,
}

#[tonic::async_trait]
impl syncd_server::Syncd for Syncd {
    type WatchStatusViewsStream = BoxStream<syncd::StatusViewsUpdate>;
    type WatchProbeViewsStream = BoxStream<syncd::ProbeViewsUpdate>;
    type WatchStatsViewsStream = BoxStream<syncd::StatsViewsUpdate>;
    type WatchMirrorPodsStream = BoxStream<syncd::MirrorPodsUpdate>;
    type ListPodsStream = BoxStream<ListPodsItem>;

    async fn watch_status_views(
        &self,
        _: Request<WatchRequest>,
    ) -> Result<Response<Self::WatchStatusViewsStream>, Status> {
        Err(Status::unimplemented("fake"))
    }

    async fn watch_probe_views(
        &self,
        _: Request<WatchRequest>,
    ) -> Result<Response<Self::WatchProbeViewsStream>, Status> {
        Err(Status::unimplemented("fake"))
    }

    async fn watch_mirror_pods(
        &self,
        _: Request<WatchRequest>,
    ) -> Result<Response<Self::WatchMirrorPodsStream>, Status> {
        Err(Status::unimplemented("fake"))
    }

    async fn watch_stats_views(
        &self,
        _: Request<WatchRequest>,
    ) -> Result<Response<Self::WatchStatsViewsStream>, Status> {
        Err(Status::unimplemented("fake"))
    }

    async fn list_pods(
        &self,
        _: Request<syncd::ListPodsRequest>,
    ) -> Result<Response<Self::ListPodsStream>, Status> {
        let mut items: Vec<Result<ListPodsItem, Status>> = Vec::new();
        items.extend(
            self.items.lock().unwrap().iter().cloned().map(|item| Ok(ListPodsItem { item: Some(item) })),
        );
        match *self.end.lock().unwrap() {
            End::Whole => {}
            End::Broken => {
                items.truncate(1);
                items.push(Err(Status::unavailable("going down")));
            }
            End::NotRead => return Err(Status::unavailable("the manifest folder was not read yet")),
        }
        Ok(Response::new(Box::pin(futures::stream::iter(items))))
    }
}

#[derive(Clone)]
pub struct Statusd(pub Publisher<String, statusd::v1::PodStatus>);

#[tonic::async_trait]
impl statusd::v1::statusd_server::Statusd for Statusd {
    type WatchStatusesStream = BoxStream<statusd::v1::StatusesUpdate>;

    async fn watch_statuses(
        &self,
        _: Request<WatchRequest>,
    ) -> Result<Response<Self::WatchStatusesStream>, Status> {
        Ok(Response::new(self.0.subscribe()))
    }

    async fn get_node(
        &self,
        _: Request<statusd::v1::GetNodeRequest>,
    ) -> Result<Response<statusd::v1::GetNodeResponse>, Status> {
        Err(Status::unimplemented("fake"))
    }
}

#[derive(Clone)]
pub struct Pleg(pub Publisher<String, RuntimePod>);

#[tonic::async_trait]
impl pleg::v1::pleg_server::Pleg for Pleg {
    type WatchPodsStream = BoxStream<pleg::v1::RuntimePodsUpdate>;

    async fn watch_pods(&self, _: Request<WatchRequest>) -> Result<Response<Self::WatchPodsStream>, Status> {
        Ok(Response::new(self.0.subscribe()))
    }

    async fn observe_pod(
        &self,
        _: Request<pleg::v1::ObservePodRequest>,
    ) -> Result<Response<pleg::v1::ObservePodResponse>, Status> {
        Err(Status::unimplemented("fake"))
    }

    async fn get_runtime(
        &self,
        _: Request<pleg::v1::GetRuntimeRequest>,
    ) -> Result<Response<pleg::v1::GetRuntimeResponse>, Status> {
        Err(Status::unimplemented("fake"))
    }

    async fn get_runtime_features(
        &self,
        _: Request<pleg::v1::GetRuntimeFeaturesRequest>,
    ) -> Result<Response<pleg::v1::GetRuntimeFeaturesResponse>, Status> {
        Err(Status::unimplemented("fake"))
    }
}

/// Answers after the delay.
#[derive(Clone, Default)]
pub struct Evictd(pub Arc<Mutex<Duration>>);

#[tonic::async_trait]
impl evictd::v1::evictd_server::Evictd for Evictd {
    async fn get_summary(
        &self,
        _: Request<evictd::v1::GetSummaryRequest>,
    ) -> Result<Response<evictd::v1::Summary>, Status> {
        let delay = *self.0.lock().unwrap();
        tokio::time::sleep(delay).await;
        let node = evictd::v1::NodeStats {
            node_name: "node-a".to_owned(),
            process_count: 287,
            max_pid: 32768,
            ..Default::default()
        };
        Ok(Response::new(evictd::v1::Summary { node: Some(node), pods: Vec::new() }))
    }

    async fn list_cgroups(
        &self,
        _: Request<evictd::v1::ListCgroupsRequest>,
    ) -> Result<Response<evictd::v1::ListCgroupsResponse>, Status> {
        Ok(Response::new(evictd::v1::ListCgroupsResponse::default()))
    }
}
