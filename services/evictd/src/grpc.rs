//! The socket's methods: thin.

use std::sync::Arc;
use std::time::Duration;

use bulkhead_api::common::v1::WatchRequest;
use bulkhead_api::evictd::v1::evictd_server::Evictd;
use bulkhead_api::evictd::v1::pressures_server::Pressures;
use bulkhead_api::evictd::v1::{
    GetSummaryRequest, ListCgroupsRequest, ListCgroupsResponse, NodePressure, PressureUpdate, Summary,
};
use bulkhead_ipc::Publisher;
use bulkhead_ipc::publisher::BoxStream;
use bulkhead_ipc::status::to_status;
use bulkhead_reconcile::{LoopStatus, Waker};
use tokio::sync::{Mutex, watch};
use tonic::{Request, Response, Status};

use crate::cgroups::{Listed, wanted};
use crate::collect::{Asked, Collection, FRESH, Latest};
use crate::error::{CollectError, NotYet};
use crate::extra::Extras;
use crate::machine::Machine;
use crate::whole::whole;

/// How long a call waits for newer figures before it takes what there is. Longer than the first collection waits for
/// peers, shorter than the callers' deadline.
const WAIT: Duration = Duration::from_secs(3);

/// Serves `bulkhead.evictd.v1.Pressures`.
pub(crate) struct PressureHandlers(pub(crate) Publisher<String, NodePressure>);

/// Serves `bulkhead.evictd.v1.Evictd`.
pub(crate) struct Handlers {
    /// The newest collection.
    pub(crate) newest: Arc<Newest>,
    /// What else may be asked for.
    pub(crate) extras: Arc<Extras>,
    /// Where details come from.
    pub(crate) machine: Arc<Machine>,
    /// Held by the one who reads details.
    pub(crate) reading: Mutex<()>,
}

/// The newest collection, for who asks.
pub(crate) struct Newest {
    /// The newest collection.
    pub(crate) latest: watch::Receiver<Latest>,
    /// How the loop is doing.
    pub(crate) status: watch::Receiver<LoopStatus>,
    /// Asks for a collection.
    pub(crate) waker: Waker,
    /// Tells the loop that somebody asks.
    pub(crate) asked: Asked,
}

impl Newest {
    /// The newest figures, after a new collection if they are older than a second. However many call, the one loop
    /// collects once for all of them.
    pub(crate) async fn get(&self) -> Result<Arc<Collection>, NotYet> {
        self.asked.note();
        let known = self.latest.borrow().clone();
        if let Some(known) = known.filter(|known| known.at.elapsed() <= FRESH) {
            return Ok(known);
        }
        let mut status = self.status.clone();
        let passes = status.borrow().passes;
        self.waker.wake();
        // Too slow or failed: the older figures carry their times.
        let _ = tokio::time::timeout(WAIT, status.wait_for(|now| now.passes != passes)).await;
        let newest = self.latest.borrow().clone();
        newest.ok_or_else(|| NotYet { last_error: status.borrow().last_error.clone() })
    }
}

impl Handlers {
    async fn cgroups(&self, collection: &Collection) -> Result<ListCgroupsResponse, CollectError> {
        let extra = self.extras.get(&collection.plan).await;
        let _one = self.reading.lock().await;
        let (machine, cgroups) = (self.machine.clone(), wanted(&collection.plan));
        let read = move || Ok((machine.details(&cgroups)?, machine.hardware().clone()));
        let (details, hardware) = tokio::task::spawn_blocking(read).await.map_err(CollectError::CutOff)??;
        let listed = Listed {
            plan: &collection.plan,
            details: &details,
            extra: &extra,
            summary: &collection.summary,
            hardware: &hardware,
            memory: collection.memory,
        };
        Ok(listed.response())
    }
}

#[tonic::async_trait]
impl Evictd for Handlers {
    async fn get_summary(&self, request: Request<GetSummaryRequest>) -> Result<Response<Summary>, Status> {
        let collection = self.newest.get().await.map_err(|error| to_status(&error))?;
        let summary = collection.summary.clone();
        if request.get_ref().only_cpu_and_memory {
            return Ok(Response::new(summary));
        }
        let extra = self.extras.get(&collection.plan).await;
        Ok(Response::new(whole(summary, &collection.plan, &extra)))
    }

    async fn list_cgroups(
        &self,
        _: Request<ListCgroupsRequest>,
    ) -> Result<Response<ListCgroupsResponse>, Status> {
        let collection = self.newest.get().await.map_err(|error| to_status(&error))?;
        self.cgroups(&collection).await.map(Response::new).map_err(|error| to_status(&error))
    }
}

#[tonic::async_trait]
impl Pressures for PressureHandlers {
    type WatchPressureStream = BoxStream<PressureUpdate>;

    async fn watch_pressure(
        &self,
        _: Request<WatchRequest>,
    ) -> Result<Response<Self::WatchPressureStream>, Status> {
        Ok(Response::new(self.0.subscribe()))
    }
}
