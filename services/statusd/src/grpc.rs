//! The service's methods: ask, answer.

use std::sync::Arc;
use std::time::Duration;

use bulkhead_api::common::v1::WatchRequest;
use bulkhead_api::statusd::v1 as wire;
use bulkhead_api::statusd::v1::statusd_server::Statusd;
use bulkhead_ipc::Publisher;
use bulkhead_ipc::publisher::BoxStream;
use bulkhead_ipc::status::to_status;
use bulkhead_model::status::NodeFacts;
use k8s_openapi::api::core::v1::{ContainerImage, Node};
use tokio::sync::{Mutex, watch};
use tokio::time::timeout;
use tonic::{Request, Response, Status};

use crate::cluster::NodeSource;
use crate::config::Settings;
use crate::error::NodeError;
use crate::health::Health;
use crate::host::{self, HostFacts, Roots};
use crate::node::{NodeInput, node};
use crate::runtime::RuntimeState;

/// How long the machine's facts may take; the call's own deadline is 5 s.
const HOST: Duration = Duration::from_secs(3);

/// Answers calls.
pub(crate) struct Handlers {
    pub(crate) publisher: Publisher<String, wire::PodStatus>,
    pub(crate) node: Arc<NodeReader>,
}

/// Puts the node object together.
pub(crate) struct NodeReader {
    pub(crate) settings: Settings,
    pub(crate) roots: Roots,
    pub(crate) runtime: watch::Receiver<RuntimeState>,
    pub(crate) facts: watch::Receiver<NodeFacts>,
    pub(crate) health: Health,
    /// Its images, in a cluster.
    pub(crate) images: watch::Receiver<Vec<ContainerImage>>,
    /// Held by the one reader: a file system that hangs must not use up the threads.
    pub(crate) reading: Arc<Mutex<()>>,
}

impl NodeReader {
    async fn read(&self) -> Result<Node, NodeError> {
        let host = self.host().await?;
        let conditions = self.health.conditions();
        let runtime = self.runtime.borrow().clone();
        let ips = self.facts.borrow().host_ips.clone();
        let images = self.images.borrow().clone();
        let input = NodeInput {
            settings: &self.settings,
            host: &host,
            runtime: &runtime,
            ips: &ips,
            conditions: &conditions,
            images: &images,
        };
        Ok(node(&input))
    }

    async fn host(&self) -> Result<HostFacts, NodeError> {
        let roots = self.roots.clone();
        let read = async {
            let reading = self.reading.clone().lock_owned().await;
            let task = tokio::task::spawn_blocking(move || {
                let facts = host::read(&roots);
                drop(reading);
                facts
            });
            task.await.map_err(NodeError::Task)
        };
        let slow = |_| NodeError::Slow { disk: self.roots.disk.clone(), bound: HOST };
        timeout(HOST, read).await.map_err(slow)?
    }
}

impl NodeSource for NodeReader {
    async fn node(&self) -> Result<Node, NodeError> {
        self.read().await
    }
}

#[tonic::async_trait]
impl Statusd for Handlers {
    type WatchStatusesStream = BoxStream<wire::StatusesUpdate>;

    async fn watch_statuses(
        &self,
        _: Request<WatchRequest>,
    ) -> Result<Response<Self::WatchStatusesStream>, Status> {
        Ok(Response::new(self.publisher.subscribe()))
    }

    async fn get_node(
        &self,
        _: Request<wire::GetNodeRequest>,
    ) -> Result<Response<wire::GetNodeResponse>, Status> {
        let node = self.node.read().await.map_err(|error| to_status(&error))?;
        let node_json = serde_json::to_vec(&node).map_err(|error| to_status(&NodeError::Encode(error)))?;
        Ok(Response::new(wire::GetNodeResponse { node_json }))
    }
}
