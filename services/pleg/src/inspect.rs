//! Asks the runtime for what a plan lacks. Must never decide what to ask for.

use bulkhead_cri::{Observe, wire};
use bulkhead_model::runtime::{Container, Sandbox};
use futures::{StreamExt, TryStreamExt, stream};

use crate::cache::Reading;
use crate::convert::{self, Network};
use crate::error::ReadError;
use crate::plan::Plan;

/// Questions about one pod that run at once, of each kind.
const AT_ONCE: usize = 4;

/// Completes a plan. `None` when nothing of the pod is left.
///
/// A container that cannot be read fails the whole pod: without its exit code it must not be published. A sandbox that
/// cannot be read lacks its addresses only, and is asked again.
pub(crate) async fn inspect<O: Observe>(client: &O, plan: Plan) -> Result<Option<Reading>, ReadError> {
    let Plan { mut pod, sandboxes, containers } = plan;
    let sandboxes = sandboxes.into_iter().map(|sandbox| with_network(client.clone(), sandbox));
    let containers = containers.into_iter().map(|listed| container(client.clone(), listed));
    let (sandboxes, containers) = futures::future::join(
        stream::iter(sandboxes).buffer_unordered(AT_ONCE).collect::<Vec<_>>(),
        stream::iter(containers).buffer_unordered(AT_ONCE).try_collect::<Vec<_>>(),
    )
    .await;
    let mut awaiting_ip = Vec::new();
    for (sandbox, awaits_ip) in sandboxes.into_iter().flatten() {
        if awaits_ip {
            awaiting_ip.push(sandbox.id.clone());
        }
        pod.sandboxes.push(sandbox);
    }
    pod.containers.extend(containers?.into_iter().flatten());
    if pod.sandboxes.is_empty() && pod.containers.is_empty() {
        return Ok(None);
    }
    pod.sort();
    Ok(Some(Reading { pod, awaiting_ip }))
}

/// The sandbox, and whether to ask again; `None` when it went.
async fn with_network<O: Observe>(client: O, mut sandbox: Sandbox) -> Option<(Sandbox, bool)> {
    let network = match client.pod_sandbox_status(&sandbox.id).await {
        Ok(answer) => answer.status.as_ref().map(convert::network),
        Err(error) if error.is_not_found() => return None,
        Err(error) => {
            tracing::warn!(%error, "a sandbox's addresses are not known; asking again");
            None
        }
    };
    let unknown = Network { ready: sandbox.ready, ips: Vec::new(), awaits_ip: true };
    let Network { ready, ips, awaits_ip } = network.unwrap_or(unknown);
    (sandbox.ready, sandbox.ips) = (ready, ips);
    Some((sandbox, awaits_ip))
}

/// The container; `None` when it went.
async fn container<O: Observe>(client: O, listed: wire::Container) -> Result<Option<Container>, ReadError> {
    match client.container_status(&listed.id).await {
        Ok(wire::ContainerStatusResponse { status: Some(status), .. }) => {
            Ok(Some(convert::container(listed, status)))
        }
        Ok(_) => Err(ReadError::Empty { method: "ContainerStatus", id: listed.id }),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error.into()),
    }
}
