//! bulkhead.gateway.v1.Gateway: parse, call, answer.

use std::sync::Arc;

use bulkhead_api::gateway::v1 as wire;
use bulkhead_ipc::publisher::BoxStream;
use bulkhead_ipc::status::to_status;
use tonic::{Request, Response, Status};

use crate::error::PeerError;
use crate::health::board::{Board, Peers};
use crate::logs::{Logs, Since, Wanted};
use crate::pods::source::{Entry, Pods};
use crate::pods::without_values;

/// The handlers.
pub(crate) struct Handlers {
    /// Pods.
    pub(crate) pods: Pods,
    /// Logs.
    pub(crate) logs: Logs,
    /// Health.
    pub(crate) health: Arc<Board<Peers>>,
}

#[tonic::async_trait]
impl wire::gateway_server::Gateway for Handlers {
    type ListPodsStream = BoxStream<wire::PodItem>;
    type ReadLogsStream = BoxStream<wire::LogChunk>;

    async fn list_pods(
        &self,
        _: Request<wire::ListPodsRequest>,
    ) -> Result<Response<Self::ListPodsStream>, Status> {
        let list = self.pods.list().await.map_err(|error| to_status(&error))?;
        let items = futures::stream::try_unfold(list, |mut list| async move {
            let entry = list.next().await.map_err(|error| to_status(&error))?;
            let item = entry.map(item).transpose().map_err(|error| to_status(&error))?;
            Ok(item.map(|item| (item, list)))
        });
        Ok(Response::new(Box::pin(items)))
    }

    async fn read_logs(
        &self,
        request: Request<wire::ReadLogsRequest>,
    ) -> Result<Response<Self::ReadLogsStream>, Status> {
        let chunks = self.logs.read(wanted(request.into_inner())).await.map_err(|error| to_status(&error))?;
        Ok(Response::new(Box::pin(chunks)))
    }

    async fn get_health(
        &self,
        _: Request<wire::GetHealthRequest>,
    ) -> Result<Response<wire::GetHealthResponse>, Status> {
        Ok(Response::new(wire::GetHealthResponse { checks: self.health.checks().await.to_vec() }))
    }
}

fn wanted(request: wire::ReadLogsRequest) -> Wanted {
    let since = match request.since_seconds {
        0 => Since::Beginning,
        seconds => Since::Seconds(seconds),
    };
    Wanted {
        namespace: request.namespace,
        pod: request.pod,
        container: request.container,
        follow: request.follow,
        previous: request.previous,
        tail: request.tail_lines,
        timestamps: request.timestamps,
        since,
        only: None,
    }
}

fn item(entry: Entry) -> Result<wire::PodItem, PeerError> {
    use wire::pod_item::Item;
    let item = match entry {
        Entry::Pod(mut pod) => {
            without_values(&mut pod);
            let malformed =
                |source| PeerError::Malformed { process: "syncd", what: "a pod".to_owned(), source };
            Item::PodJson(serde_json::to_vec(&pod).map_err(malformed)?)
        }
        Entry::Refused(refused) => {
            Item::Refused(wire::RefusedPod { source: refused.source, reason: refused.reason })
        }
    };
    Ok(wire::PodItem { item: Some(item) })
}
