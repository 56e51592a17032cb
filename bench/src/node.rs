//! The same pods through bulkhead, driven by files and seen as `bulkhead get pods` sees them.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use bulkhead_api::crigate::v1 as crigate;
use bulkhead_api::gateway::v1 as gateway;
use bulkhead_api::process::v1 as process;
use bulkhead_base::SystemClock;
use bulkhead_e2e::pods;
use bulkhead_e2e::real_node::RealNode;
use bulkhead_ipc::status::with_deadline;
use bulkhead_ipc::{Channels, Identities, PeerBoard, PeerChannel};
use crigate::crigate_client::CrigateClient;
use gateway::gateway_client::GatewayClient;
use gateway::pod_item::Item;
use k8s_openapi::api::core::v1::Pod;
use process::process_client::ProcessClient;
use tokio::time::Instant;

use crate::measure::Starts;
use crate::report;

/// How often the pods are looked at: seldom enough to cost little, often enough for a ratio.
const LOOK: Duration = Duration::from_millis(200);
const ANSWER: Duration = Duration::from_secs(10);
/// How long pods may take to come or go before the run is given up.
const BOUND: Duration = Duration::from_secs(600);

fn channel(node: &RealNode, process: &str) -> anyhow::Result<PeerChannel> {
    let identities = Identities::read(&node.state().join("identities.json"))?;
    let board = PeerBoard::new(Arc::new(SystemClock));
    Ok(Channels::new(&node.state().join("run"), Arc::new(identities), board).peer(process))
}

/// Drops the manifests of the pods with these numbers at once and waits until as many pods run as the last number says.
pub async fn start(node: &RealNode, numbers: Range<usize>) -> anyhow::Result<Starts> {
    let count = numbers.end;
    let mut gateway = GatewayClient::new(channel(node, "gateway")?);
    pods_of(&mut gateway).await?;
    let manifests: Vec<_> = numbers.map(|n| (format!("p{n}.yaml"), pods::simple(&format!("p{n}")))).collect();
    let began = Instant::now();
    for (file, manifest) in &manifests {
        node.put(file, manifest);
    }
    let mut waits = BTreeMap::new();
    while waits.len() < count {
        if began.elapsed() > BOUND {
            bail!("after {BOUND:?} only {} of {count} pods run: {}", waits.len(), node.said());
        }
        tokio::time::sleep(LOOK).await;
        for pod in pods_of(&mut gateway).await?.into_iter().filter(is_running) {
            waits.entry(pod.metadata.name.unwrap_or_default()).or_insert_with(|| began.elapsed());
        }
    }
    Ok(Starts::new(waits.into_values().collect()))
}

/// Takes the manifests of the pods from the first of these numbers on away and waits until no more pods are left than
/// that; returns the seconds.
pub async fn stop(node: &RealNode, numbers: Range<usize>) -> anyhow::Result<f64> {
    let mut gateway = GatewayClient::new(channel(node, "gateway")?);
    let began = Instant::now();
    let left = numbers.start;
    numbers.for_each(|n| node.take(&format!("p{n}.yaml")));
    while pods_of(&mut gateway).await?.len() > left {
        if began.elapsed() > BOUND {
            bail!("pods are left after {BOUND:?}: {}", node.said());
        }
        tokio::time::sleep(LOOK).await;
    }
    Ok(began.elapsed().as_secs_f64())
}

async fn pods_of(gateway: &mut GatewayClient<PeerChannel>) -> anyhow::Result<Vec<Pod>> {
    let request = with_deadline(gateway::ListPodsRequest {}, ANSWER);
    let mut stream = gateway.list_pods(request).await.context("the gateway")?.into_inner();
    let mut pods = Vec::new();
    while let Some(item) = stream.message().await? {
        match item.item {
            Some(Item::PodJson(json)) => pods.push(serde_json::from_slice(&json)?),
            Some(Item::Refused(refused)) => bail!("refused: {}: {}", refused.source, refused.reason),
            None => {}
        }
    }
    Ok(pods)
}

/// Seconds that pleg's lists of the runtime took since its start, each on the average.
pub async fn relist(node: &RealNode) -> anyhow::Result<f64> {
    let mut pleg = ProcessClient::new(channel(node, "pleg")?);
    let request = with_deadline(process::GetMetricsRequest {}, ANSWER);
    let families = pleg.get_metrics(request).await.context("pleg")?.into_inner().families;
    let relists = families.iter().find(|family| family.name == "kubelet_pleg_relist_duration_seconds");
    let series = relists.and_then(|family| family.series.first()).context("pleg has listed nothing")?;
    let lists: u64 = series.buckets.iter().sum();
    Ok(series.value / report::float(lists.max(1)))
}

/// Whether every container of a pod runs.
pub fn is_running(pod: &Pod) -> bool {
    let status = pod.status.as_ref();
    let phase = status.and_then(|status| status.phase.as_deref());
    let containers = status.and_then(|status| status.container_statuses.as_deref()).unwrap_or_default();
    let runs = |state: &k8s_openapi::api::core::v1::ContainerState| state.running.is_some();
    phase == Some("Running")
        && !containers.is_empty()
        && containers.iter().all(|c| c.state.as_ref().is_some_and(runs))
}

/// crigate's counts.
pub struct Gate(CrigateClient<PeerChannel>);

/// CRI calls by `process method`.
pub type Calls = BTreeMap<String, u64>;

impl Gate {
    /// Of this node.
    pub fn of(node: &RealNode) -> anyhow::Result<Self> {
        Ok(Self(CrigateClient::new(channel(node, "crigate")?)))
    }

    /// Calls since crigate's start.
    pub async fn calls(&self) -> anyhow::Result<Calls> {
        let request = with_deadline(crigate::ListCallsRequest {}, ANSWER);
        let answer = self.0.clone().list_calls(request).await.context("crigate")?.into_inner();
        let name = |method: &str| method.rsplit('/').next().unwrap_or(method).to_owned();
        let calls = answer.calls.into_iter();
        Ok(calls.map(|call| (format!("{} {}", call.process, name(&call.method)), call.passed)).collect())
    }
}

/// Calls between two counts, for each of `pods` pods.
pub fn per_pod(before: &Calls, after: &Calls, pods: usize) -> BTreeMap<String, f64> {
    let pods = u32::try_from(pods).unwrap_or(u32::MAX);
    let more = |name: &String, count: u64| count.saturating_sub(before.get(name).copied().unwrap_or(0));
    let each = |count: u64| f64::from(u32::try_from(count).unwrap_or(u32::MAX)) / f64::from(pods);
    let all = after.iter().map(|(name, count)| (name.clone(), each(more(name, *count))));
    all.filter(|(_, count)| *count > 0.0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_shared_out_among_pods() {
        let before = Calls::from([("a".to_owned(), 5), ("b".to_owned(), 1)]);
        let after = Calls::from([("a".to_owned(), 25), ("b".to_owned(), 1), ("c".to_owned(), 5)]);
        let wanted = BTreeMap::from([("a".to_owned(), 2.0), ("c".to_owned(), 0.5)]);
        assert_eq!(per_pod(&before, &after, 10), wanted);
    }
}
