//! An API server in memory that has one node and its lease.

use std::sync::{Mutex, MutexGuard};

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use serde_json::Value;

use super::api::{ApiError, NodeApi};

/// The server.
#[derive(Default)]
pub(crate) struct FakeApi(Mutex<State>);

#[derive(Default)]
struct State {
    node: Option<Node>,
    lease: Option<Lease>,
    versions: u64,
    made: u64,
    fails: bool,
    lease_writes: usize,
    lease_reads: usize,
    patches: Vec<Value>,
    status_patches: Vec<Value>,
}

impl State {
    fn version(&mut self) -> Option<String> {
        self.versions += 1;
        Some(self.versions.to_string())
    }

    fn works(&self) -> Result<(), ApiError> {
        if self.fails { Err(ApiError::Late { verb: "do", object: "anything".into() }) } else { Ok(()) }
    }
}

impl FakeApi {
    /// Every call fails, or works again.
    pub(crate) fn fail(&self, fails: bool) {
        self.state().fails = fails;
    }

    pub(crate) fn lease_writes(&self) -> usize {
        self.state().lease_writes
    }

    pub(crate) fn lease_reads(&self) -> usize {
        self.state().lease_reads
    }

    pub(crate) fn stored_lease(&self) -> Option<Lease> {
        self.state().lease.clone()
    }

    /// Somebody else writes the lease.
    pub(crate) fn touch_lease(&self) {
        let mut state = self.state();
        let version = state.version();
        state.lease.as_mut().unwrap().metadata.resource_version = version;
    }

    pub(crate) fn drop_lease(&self) {
        self.state().lease = None;
    }

    pub(crate) fn stored_node(&self) -> Option<Node> {
        self.state().node.clone()
    }

    /// Somebody else makes, changes or (with `None`) removes the node.
    pub(crate) fn put_node(&self, node: Option<Node>) {
        self.state().node = node;
    }

    /// How often a node was made, and all patches of its metadata and status.
    pub(crate) fn seen(&self) -> (u64, usize, usize) {
        let state = self.state();
        (state.made, state.patches.len(), state.status_patches.len())
    }

    /// The last patch of the status.
    pub(crate) fn last_status(&self) -> Value {
        self.state().status_patches.last().cloned().unwrap_or_default()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }
}

fn absent() -> ApiError {
    ApiError::NotFound("it".into())
}

impl NodeApi for FakeApi {
    async fn node(&self) -> Result<Option<Node>, ApiError> {
        let state = self.state();
        state.works()?;
        Ok(state.node.clone())
    }

    async fn create(&self, node: &Node) -> Result<Node, ApiError> {
        let mut state = self.state();
        state.works()?;
        if state.node.is_some() {
            return Err(ApiError::Conflict("node".into()));
        }
        state.made += 1;
        let mut node = node.clone();
        node.metadata.uid = Some(format!("uid-{}", state.made));
        state.node = Some(node.clone());
        Ok(node)
    }

    async fn patch(&self, patch: &Value) -> Result<Node, ApiError> {
        let mut state = self.state();
        state.works()?;
        state.patches.push(patch.clone());
        let node = state.node.as_mut().ok_or_else(absent)?;
        for field in ["labels", "annotations"] {
            let own = match field {
                "labels" => node.metadata.labels.get_or_insert_default(),
                _ => node.metadata.annotations.get_or_insert_default(),
            };
            for (key, value) in patch["metadata"][field].as_object().into_iter().flatten() {
                own.insert(key.clone(), value.as_str().unwrap().to_owned());
            }
        }
        Ok(node.clone())
    }

    async fn patch_status(&self, patch: &Value) -> Result<Node, ApiError> {
        let mut state = self.state();
        state.works()?;
        state.status_patches.push(patch.clone());
        let mut status = patch["status"].clone();
        if let Some(addresses) = status["addresses"].as_array_mut() {
            addresses.remove(0);
        }
        let node = state.node.as_mut().ok_or_else(absent)?;
        node.status = Some(serde_json::from_value(status).unwrap());
        Ok(node.clone())
    }

    async fn lease(&self) -> Result<Option<Lease>, ApiError> {
        let mut state = self.state();
        state.works()?;
        state.lease_reads += 1;
        Ok(state.lease.clone())
    }

    async fn create_lease(&self, lease: &Lease) -> Result<Lease, ApiError> {
        let mut state = self.state();
        state.works()?;
        if state.lease.is_some() {
            return Err(ApiError::Conflict("lease".into()));
        }
        let mut lease = lease.clone();
        lease.metadata.resource_version = state.version();
        state.lease_writes += 1;
        state.lease = Some(lease.clone());
        Ok(lease)
    }

    async fn replace_lease(&self, lease: &Lease) -> Result<Lease, ApiError> {
        let mut state = self.state();
        state.works()?;
        let there = state.lease.as_ref().ok_or_else(absent)?;
        if there.metadata.resource_version != lease.metadata.resource_version {
            return Err(ApiError::Conflict("lease".into()));
        }
        let mut lease = lease.clone();
        lease.metadata.resource_version = state.version();
        state.lease_writes += 1;
        state.lease = Some(lease.clone());
        Ok(lease)
    }
}
