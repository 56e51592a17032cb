//! Removing pods when the node is stopped: straight over CRI, when the process that owns them is gone already and cannot
//! start them again.

use std::collections::HashMap;
use std::time::Duration;

use anyhow::Context;
use bulkhead_api::cri::v1 as wire;
use bulkhead_ipc::PeerChannel;
use bulkhead_ipc::status::with_deadline;
use bulkhead_model::names::POD_GRACE;
use futures::StreamExt;
use wire::runtime_service_client::RuntimeServiceClient;

/// The kubelet's `terminationGracePeriodSeconds` when a container does not say.
const GRACE: i64 = 30;
/// Longest grace that is granted, in seconds: whoever stops a development node waits for it.
const LONGEST_GRACE: i64 = 120;
/// Deadline of a call beyond the grace.
const CALL: Duration = Duration::from_secs(30);
/// Calls at once.
const PARALLEL: usize = 8;
/// A runtime of a node with the most pods answers in less.
const MESSAGE_BYTES: usize = 16 * 1024 * 1024;

/// The runtime, with root's power over it.
#[derive(Clone)]
pub struct Runtime {
    client: RuntimeServiceClient<PeerChannel>,
}

impl Runtime {
    /// Over the runtime's own socket.
    pub fn new(channel: PeerChannel) -> Self {
        Self { client: RuntimeServiceClient::new(channel).max_decoding_message_size(MESSAGE_BYTES) }
    }

    /// Whether it answers.
    pub async fn answers(&self) -> Result<(), String> {
        let request = with_deadline(wire::VersionRequest::default(), Duration::from_secs(2));
        let answer = self.client.clone().version(request).await;
        answer.map(drop).map_err(|status| status.message().to_owned())
    }

    /// Stops every container of the sandboxes that `ours` picks by pod UID, each with its grace, and removes them.
    /// Returns how many pods that were.
    pub async fn remove_pods(&self, ours: impl Fn(&str) -> bool) -> anyhow::Result<usize> {
        let sandboxes = with_deadline(wire::ListPodSandboxRequest { filter: None }, CALL);
        let sandboxes = self.client.clone().list_pod_sandbox(sandboxes).await;
        let sandboxes = sandboxes.context("cannot list pods at the container runtime")?.into_inner().items;
        let containers = with_deadline(wire::ListContainersRequest { filter: None }, CALL);
        let containers = self.client.clone().list_containers(containers).await;
        let containers =
            containers.context("cannot list containers at the container runtime")?.into_inner().containers;
        let mine: Vec<&str> = sandboxes
            .iter()
            .filter(|sandbox| ours(sandbox.metadata.as_ref().map_or("", |metadata| &metadata.uid)))
            .map(|sandbox| sandbox.id.as_str())
            .collect();
        let running = containers.iter().filter(|container| {
            mine.contains(&container.pod_sandbox_id.as_str())
                && container.state == i32::from(wire::ContainerState::ContainerRunning)
        });
        let stops = running.map(|container| self.stop(&container.id, grace(&container.annotations)));
        let stops: Vec<_> = stops.collect();
        futures::stream::iter(stops).for_each_concurrent(None, |stop| stop).await;
        let removals: Vec<_> = mine.iter().map(|id| self.remove(id)).collect();
        let results: Vec<_> = futures::stream::iter(removals).buffer_unordered(PARALLEL).collect().await;
        results.into_iter().collect::<anyhow::Result<Vec<()>>>()?;
        Ok(mine.len())
    }

    async fn stop(&self, id: &str, grace: i64) {
        let deadline = CALL + Duration::from_secs(u64::try_from(grace).unwrap_or(0));
        let request = wire::StopContainerRequest { container_id: id.to_owned(), timeout: grace };
        // One that does not stop goes with its sandbox.
        let _ = self.client.clone().stop_container(with_deadline(request, deadline)).await;
    }

    async fn remove(&self, id: &str) -> anyhow::Result<()> {
        let stop = wire::StopPodSandboxRequest { pod_sandbox_id: id.to_owned() };
        let stopped = self.client.clone().stop_pod_sandbox(with_deadline(stop, CALL)).await;
        stopped.with_context(|| format!("cannot stop pod sandbox {id}"))?;
        let remove = wire::RemovePodSandboxRequest { pod_sandbox_id: id.to_owned() };
        let removed = self.client.clone().remove_pod_sandbox(with_deadline(remove, CALL)).await;
        removed.map(drop).with_context(|| format!("cannot remove pod sandbox {id}"))
    }
}

/// The grace of a container in seconds, as its pod said when it was made.
fn grace(annotations: &HashMap<String, String>) -> i64 {
    let said = annotations.get(POD_GRACE).and_then(|text| text.parse::<i64>().ok());
    said.unwrap_or(GRACE).clamp(0, LONGEST_GRACE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grace_is_what_the_pod_said_within_reason() {
        let of = |text: &str| grace(&HashMap::from([(POD_GRACE.to_owned(), text.to_owned())]));
        assert_eq!(of("5"), 5);
        assert_eq!(of("-1"), 0);
        assert_eq!(of("99999"), LONGEST_GRACE);
        assert_eq!(of("soon"), GRACE);
        assert_eq!(grace(&HashMap::new()), GRACE);
    }
}
