//! The socket's methods: thin.

use bulkhead_api::common::v1::WatchRequest;
use bulkhead_api::prober::v1::prober_server::Prober;
use bulkhead_api::prober::v1::{ContainerResult, ResultsUpdate};
use bulkhead_ipc::Publisher;
use bulkhead_ipc::publisher::BoxStream;
use tonic::{Request, Response, Status};

/// Serves `bulkhead.prober.v1.Prober`.
pub struct Handlers {
    results: Publisher<String, ContainerResult>,
}

impl Handlers {
    /// Of these results.
    pub fn new(results: Publisher<String, ContainerResult>) -> Self {
        Self { results }
    }
}

#[tonic::async_trait]
impl Prober for Handlers {
    type WatchResultsStream = BoxStream<ResultsUpdate>;

    async fn watch_results(
        &self,
        _: Request<WatchRequest>,
    ) -> Result<Response<Self::WatchResultsStream>, Status> {
        Ok(Response::new(self.results.subscribe()))
    }
}
