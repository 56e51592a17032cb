//! The socket's methods: thin.

use std::sync::Arc;
use std::time::Duration;

use bulkhead_api::evictd::v1::evictd_server::Evictd;
use bulkhead_api::evictd::v1::{GetSummaryRequest, Summary};
use bulkhead_ipc::status::to_status;
use bulkhead_reconcile::{LoopStatus, Waker};
use tokio::sync::watch;
use tonic::{Request, Response, Status};

use crate::collect::{Collection, FRESH, Latest};
use crate::error::NotYet;

/// How long a call waits for newer figures before it takes what there is. Longer than the first collection waits for
/// peers, shorter than the callers' deadline.
const WAIT: Duration = Duration::from_secs(3);

/// Serves `bulkhead.evictd.v1.Evictd`.
pub(crate) struct Handlers {
    /// The newest collection.
    pub(crate) latest: watch::Receiver<Latest>,
    /// How the loop is doing.
    pub(crate) status: watch::Receiver<LoopStatus>,
    /// Asks for a collection.
    pub(crate) waker: Waker,
}

impl Handlers {
    /// The newest figures, after a new collection if they are older than a second. However many call, the one loop
    /// collects once for all of them.
    pub(crate) async fn newest(&self) -> Result<Arc<Collection>, NotYet> {
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

#[tonic::async_trait]
impl Evictd for Handlers {
    async fn get_summary(&self, _: Request<GetSummaryRequest>) -> Result<Response<Summary>, Status> {
        match self.newest().await {
            Ok(collection) => Ok(Response::new(collection.summary.clone())),
            Err(error) => Err(to_status(&error)),
        }
    }
}
