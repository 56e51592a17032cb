//! The node in the cluster: its object, what that says of it, the lease that shows it alive, and copies of its static pods.
//!
//! Owns these objects in the API server. Must never change what others own of the node object, nor renew a lease for a
//! node that is not registered: others would take it for a node that is there.

mod api;
mod lease;
mod mirror;
mod presence;
mod register;
mod report;

#[cfg(test)]
mod fake;

use std::sync::Arc;

use bulkhead_api::convert::StatusItem;
use bulkhead_api::statusd::v1::PodStatus;
use bulkhead_api::syncd::v1::syncd_client::SyncdClient;
use bulkhead_ipc::{Mirror, Publisher};
use bulkhead_reconcile::{LoopStatus, drive, wake};
use bulkhead_service::{Check, Context};
use tokio::sync::watch;

use crate::grpc::NodeReader;
use api::{KubeNodes, KubePods, Syncd};
use lease::Renewal;
use mirror::Mirrors;
pub(crate) use presence::NodeSource;
use presence::Presence;
use register::Registration;

/// Keeps the node in the cluster until the shutdown, if there is a cluster.
pub(crate) fn start(
    context: &Arc<Context>,
    node: Arc<NodeReader>,
    views: Mirror<String, StatusItem>,
    statuses: Publisher<String, PodStatus>,
) {
    if context.flags.kubeconfig().is_none() {
        return;
    }
    let owner = context.identities.uid_of("apigate");
    let client = bulkhead_kubeapi::over_socket(&context.api_socket(), owner);
    let name = context.flags.node_name();
    let api = Arc::new(KubeNodes::new(client.clone(), &name));
    let config = &context.config;
    let (known, registered) = watch::channel(None);
    let presence = Presence::new(presence::Parts {
        api: api.clone(),
        node,
        registration: Registration::new(config),
        timing: report::Timing::new(config),
        check: verdict(context.check("node in the cluster")),
        known,
    });
    let seconds = config.node_lease_duration_seconds;
    let syncd = SyncdClient::new(context.peer("syncd")).max_decoding_message_size(crate::MESSAGE_BYTES);
    let mirrors = Mirrors::new(mirror::Parts {
        api: Arc::new(KubePods(client)),
        source: Syncd(syncd),
        views,
        statuses: statuses.clone(),
        node: name.clone(),
        registered: registered.clone(),
    });
    let renewal = Renewal::new(api, name, seconds, registered, context.clock.clone());
    // Nobody wakes them: the cluster is told now and then.
    let ((_, never), (_, nor_this), (waker, changed)) = (wake(), wake(), wake());
    let stopped = || context.shutdown.clone().cancelled_owned();
    tokio::spawn(drive(presence, never, watch::Sender::new(LoopStatus::default()), stopped()));
    tokio::spawn(drive(mirrors, changed, watch::Sender::new(LoopStatus::default()), stopped()));
    let (mut generations, end) = (statuses.generations(), context.shutdown.clone());
    tokio::spawn(async move {
        // Statuses are told as they change.
        while let Some(Ok(())) = end.run_until_cancelled(generations.changed()).await {
            waker.wake();
        }
    });
    tokio::spawn(drive(renewal, nor_this, watch::Sender::new(LoopStatus::default()), stopped()));
}

fn verdict(check: Check) -> presence::Verdict {
    Box::new(move |verdict| match verdict {
        Ok(()) => check.good(),
        Err(reason) => check.bad(reason),
    })
}
