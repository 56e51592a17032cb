//! bulkhead.crigate.v1: what was called and what was refused.

use std::sync::Arc;

use bulkhead_api::crigate::v1::crigate_server::Crigate;
use bulkhead_api::crigate::v1::{ListCallsRequest, ListCallsResponse};
use tonic::{Request, Response, Status};

use crate::gate::Gate;

/// The service.
pub struct Calls(Vec<Arc<Gate>>);

impl Calls {
    /// Of these gates, in the order of their processes.
    pub fn new(gates: Vec<Arc<Gate>>) -> Self {
        Self(gates)
    }
}

#[tonic::async_trait]
impl Crigate for Calls {
    async fn list_calls(&self, _: Request<ListCallsRequest>) -> Result<Response<ListCallsResponse>, Status> {
        let calls = self.0.iter().flat_map(|gate| gate.calls()).collect();
        Ok(Response::new(ListCallsResponse { calls }))
    }
}
