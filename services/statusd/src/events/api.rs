//! Events in the API server.

use k8s_openapi::api::core::v1::Event;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::Value;

use crate::cluster::{ApiError, ask};

/// Writes Events.
pub(super) trait EventApi: Send + Sync + 'static {
    /// Makes one.
    fn create(&self, event: &Event) -> impl Future<Output = Result<(), ApiError>> + Send;
    /// Changes one by a merge patch.
    fn patch(
        &self,
        namespace: &str,
        name: &str,
        patch: &Value,
    ) -> impl Future<Output = Result<(), ApiError>> + Send;
}

/// [`EventApi`] over a client.
pub(super) struct KubeEvents(Client);

impl KubeEvents {
    /// Over this client.
    pub(super) fn new(client: Client) -> Self {
        Self(client)
    }

    fn of(&self, namespace: &str) -> Api<Event> {
        Api::namespaced(self.0.clone(), namespace)
    }
}

impl EventApi for KubeEvents {
    async fn create(&self, event: &Event) -> Result<(), ApiError> {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let (namespace, name) = (text(&event.metadata.namespace), text(&event.metadata.name));
        let (events, params) = (self.of(&namespace), PostParams::default());
        ask("create", format!("event {namespace}/{name}"), events.create(&params, event)).await.map(drop)
    }

    async fn patch(&self, namespace: &str, name: &str, patch: &Value) -> Result<(), ApiError> {
        let (events, params, patch) = (self.of(namespace), PatchParams::default(), Patch::Merge(patch));
        let call = events.patch(name, &params, &patch);
        ask("patch", format!("event {namespace}/{name}"), call).await.map(drop)
    }
}
