//! What of the API server the node's presence needs, and its errors.

use std::collections::BTreeMap;
use std::time::Duration;

use bulkhead_api::syncd::v1::ListPodsRequest;
use bulkhead_api::syncd::v1::list_pods_item::Item;
use bulkhead_api::syncd::v1::syncd_client::SyncdClient;
use bulkhead_ipc::PeerChannel;
use bulkhead_ipc::status::with_deadline;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{DeleteParams, GetParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, Client};
use serde_json::Value;
use tokio::time::timeout;

use super::mirror::PodSource;

/// Namespace of all nodes' leases.
const LEASES: &str = "kube-node-lease";
/// Longest wait for one answer: the kubelet's for node status.
const PATIENCE: Duration = Duration::from_secs(10);

/// Why the API server did not do it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ApiError {
    /// The object is not there.
    #[error("{0} is not in the cluster")]
    NotFound(String),
    /// It was changed or made by somebody else meanwhile.
    #[error("{0} was changed by another")]
    Conflict(String),
    /// It said no, or whoever stands in front of it did.
    #[error("the API server did not {verb} {object}: {message} ({code})")]
    Refused {
        /// What was asked.
        verb: &'static str,
        /// Of what.
        object: String,
        /// As HTTP has it.
        code: u16,
        /// Its reason.
        message: String,
    },
    /// There was no answer that could be read.
    #[error("the API server did not {verb} {object}")]
    Failed {
        /// What was asked.
        verb: &'static str,
        /// Of what.
        object: String,
        /// Why.
        #[source]
        source: Box<kube::Error>,
    },
    /// Nothing came.
    #[error("the API server did not {verb} {object} within {PATIENCE:?}")]
    Late {
        /// What was asked.
        verb: &'static str,
        /// Of what.
        object: String,
    },
}

/// The node's own objects in the API server.
pub(crate) trait NodeApi: Send + Sync + 'static {
    /// The node as the API server remembers it; perhaps an older state.
    fn node(&self) -> impl Future<Output = Result<Option<Node>, ApiError>> + Send;
    /// Makes the node.
    fn create(&self, node: &Node) -> impl Future<Output = Result<Node, ApiError>> + Send;
    /// Changes its metadata by a merge patch.
    fn patch(&self, patch: &Value) -> impl Future<Output = Result<Node, ApiError>> + Send;
    /// Changes its status by a strategic merge patch.
    fn patch_status(&self, patch: &Value) -> impl Future<Output = Result<Node, ApiError>> + Send;
    /// The node's lease.
    fn lease(&self) -> impl Future<Output = Result<Option<Lease>, ApiError>> + Send;
    /// Makes it.
    fn create_lease(&self, lease: &Lease) -> impl Future<Output = Result<Lease, ApiError>> + Send;
    /// Writes it, if it is still the one that it was made from.
    fn replace_lease(&self, lease: &Lease) -> impl Future<Output = Result<Lease, ApiError>> + Send;
}

/// Pods in the API server.
pub(crate) trait PodApi: Send + Sync + 'static {
    /// A pod.
    fn get(&self, namespace: &str, name: &str) -> impl Future<Output = Result<Option<Pod>, ApiError>> + Send;
    /// Makes one.
    fn create(&self, pod: &Pod) -> impl Future<Output = Result<Pod, ApiError>> + Send;
    /// Removes the one with this UID at once; one that is not there is fine.
    fn delete(
        &self,
        namespace: &str,
        name: &str,
        uid: &str,
    ) -> impl Future<Output = Result<(), ApiError>> + Send;
    /// Changes its status by a strategic merge patch.
    fn patch_status(
        &self,
        namespace: &str,
        name: &str,
        patch: &Value,
    ) -> impl Future<Output = Result<(), ApiError>> + Send;
}

/// [`NodeApi`] over a client.
pub(crate) struct KubeNodes {
    name: String,
    nodes: Api<Node>,
    leases: Api<Lease>,
}

impl KubeNodes {
    /// Of the node with this name.
    pub(crate) fn new(client: Client, name: &str) -> Self {
        let (nodes, leases) = (Api::all(client.clone()), Api::namespaced(client, LEASES));
        Self { name: name.to_owned(), nodes, leases }
    }

    async fn ask<T>(
        &self,
        verb: &'static str,
        kind: &str,
        call: impl Future<Output = Result<T, kube::Error>>,
    ) -> Result<T, ApiError> {
        ask(verb, format!("{kind} {}", self.name), call).await
    }
}

/// Asks, and reads the answer's error.
pub(crate) async fn ask<T>(
    verb: &'static str,
    object: String,
    call: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, ApiError> {
    let answer = match timeout(PATIENCE, call).await {
        Ok(answer) => answer,
        Err(_) => return Err(ApiError::Late { verb, object }),
    };
    answer.map_err(|error| match error {
        kube::Error::Api(status) => match status.code {
            404 => ApiError::NotFound(object),
            409 => ApiError::Conflict(object),
            code => ApiError::Refused { verb, object, code, message: status.message },
        },
        error => ApiError::Failed { verb, object, source: Box::new(error) },
    })
}

fn maybe<T>(answer: Result<T, ApiError>) -> Result<Option<T>, ApiError> {
    match answer {
        Ok(found) => Ok(Some(found)),
        Err(ApiError::NotFound(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

impl NodeApi for KubeNodes {
    async fn node(&self) -> Result<Option<Node>, ApiError> {
        // From the API server's memory: this is asked all the time.
        let remembered = GetParams { resource_version: Some("0".to_owned()) };
        maybe(self.ask("get", "node", self.nodes.get_with(&self.name, &remembered)).await)
    }

    async fn create(&self, node: &Node) -> Result<Node, ApiError> {
        self.ask("create", "node", self.nodes.create(&PostParams::default(), node)).await
    }

    async fn patch(&self, patch: &Value) -> Result<Node, ApiError> {
        let patch = Patch::Merge(patch);
        self.ask("patch", "node", self.nodes.patch(&self.name, &PatchParams::default(), &patch)).await
    }

    async fn patch_status(&self, patch: &Value) -> Result<Node, ApiError> {
        let patch = Patch::Strategic(patch);
        let params = PatchParams::default();
        let call = self.nodes.patch_status(&self.name, &params, &patch);
        self.ask("patch the status of", "node", call).await
    }

    async fn lease(&self) -> Result<Option<Lease>, ApiError> {
        maybe(self.ask("get", "lease", self.leases.get(&self.name)).await)
    }

    async fn create_lease(&self, lease: &Lease) -> Result<Lease, ApiError> {
        self.ask("create", "lease", self.leases.create(&PostParams::default(), lease)).await
    }

    async fn replace_lease(&self, lease: &Lease) -> Result<Lease, ApiError> {
        self.ask("update", "lease", self.leases.replace(&self.name, &PostParams::default(), lease)).await
    }
}

/// [`PodApi`] over a client.
pub(crate) struct KubePods(pub(crate) Client);

impl KubePods {
    fn of(&self, namespace: &str) -> Api<Pod> {
        Api::namespaced(self.0.clone(), namespace)
    }
}

fn pod(namespace: &str, name: &str) -> String {
    format!("pod {namespace}/{name}")
}

impl PodApi for KubePods {
    async fn get(&self, namespace: &str, name: &str) -> Result<Option<Pod>, ApiError> {
        maybe(ask("get", pod(namespace, name), self.of(namespace).get(name)).await)
    }

    async fn create(&self, new: &Pod) -> Result<Pod, ApiError> {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let (namespace, name) = (text(&new.metadata.namespace), text(&new.metadata.name));
        let (pods, params) = (self.of(&namespace), PostParams::default());
        ask("create", pod(&namespace, &name), pods.create(&params, new)).await
    }

    async fn delete(&self, namespace: &str, name: &str, uid: &str) -> Result<(), ApiError> {
        let preconditions = Preconditions { uid: Some(uid.to_owned()), ..Preconditions::default() };
        let params = DeleteParams {
            grace_period_seconds: Some(0),
            preconditions: Some(preconditions),
            ..DeleteParams::default()
        };
        let deleted = ask("delete", pod(namespace, name), self.of(namespace).delete(name, &params)).await;
        match deleted {
            // A conflict: another one has its name by now.
            Ok(_) | Err(ApiError::NotFound(_) | ApiError::Conflict(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    async fn patch_status(&self, namespace: &str, name: &str, patch: &Value) -> Result<(), ApiError> {
        let (pods, params, patch) = (self.of(namespace), PatchParams::default(), Patch::Strategic(patch));
        let call = pods.patch_status(name, &params, &patch);
        ask("patch the status of", pod(namespace, name), call).await.map(drop)
    }
}

/// syncd, which alone has whole pods.
pub(crate) struct Syncd(pub(crate) SyncdClient<PeerChannel>);

impl PodSource for Syncd {
    async fn pods(&self) -> Result<BTreeMap<String, Pod>, tonic::Status> {
        let request = with_deadline(ListPodsRequest {}, PATIENCE);
        let mut stream = self.0.clone().list_pods(request).await?.into_inner();
        let mut pods = BTreeMap::new();
        while let Some(item) = stream.message().await? {
            let Some(Item::PodJson(json)) = item.item else { continue };
            let pod: Pod = serde_json::from_slice(&json)
                .map_err(|error| tonic::Status::data_loss(format!("syncd's pod is no JSON: {error}")))?;
            if let Some(uid) = pod.metadata.uid.clone() {
                pods.insert(uid, pod);
            }
        }
        Ok(pods)
    }
}
