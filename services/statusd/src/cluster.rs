//! The node in the cluster: its object, what that says of it, the lease that shows it alive, and copies of its static pods.
//!
//! Owns these objects in the API server. Must never change what others own of the node object, nor renew a lease for a
//! node that is not registered: others would take it for a node that is there.

mod api;
mod lease;
mod mirror;
mod pods;
mod presence;
mod register;
mod report;

#[cfg(test)]
mod fake;

use std::sync::Arc;

use bulkhead_api::common::v1::WatchRequest;
use bulkhead_api::convert::StatusItem;
use bulkhead_api::statusd::v1::PodStatus;
use bulkhead_api::syncd::v1::syncd_client::SyncdClient;
use bulkhead_ipc::{Mirror, Publisher};
use bulkhead_model::event;
use bulkhead_reconcile::{LoopStatus, drive, wake};
use bulkhead_service::{Check, Context};
use tokio::sync::watch;

use crate::events::{self, Events};
use crate::grpc::NodeReader;
pub(crate) use api::{ApiError, ask};
use api::{KubeNodes, KubePods, Syncd};
use lease::Renewal;
use mirror::Mirrors;
use pods::Pods;
pub(crate) use presence::NodeSource;
use presence::Presence;
use register::Registration;

/// Keeps the node in the cluster until the shutdown, if there is a cluster: then this tells it what happens.
pub(crate) fn start(
    context: &Arc<Context>,
    node: Arc<NodeReader>,
    views: Mirror<String, StatusItem>,
    statuses: Publisher<String, PodStatus>,
) -> Option<Events> {
    context.flags.kubeconfig()?;
    let owner = context.identities.uid_of("apigate");
    let client = bulkhead_kubeapi::over_socket(&context.api_socket(), owner);
    let name = context.flags.node_name();
    let api = Arc::new(KubeNodes::new(client.clone(), &name));
    let config = &context.config;
    let (known, registered) = watch::channel(None);
    let (events, waiting) = Events::queue();
    events::start(context, client.clone(), waiting, registered.clone());
    events.node(event::node_starting(), context.clock.now());
    let presence = Presence::new(presence::Parts {
        api: api.clone(),
        node,
        name: name.clone(),
        registration: Registration::new(config, &context.flags.node_labels.0),
        timing: report::Timing::new(config),
        check: verdict(context.check("node in the cluster")),
        known,
        events: events.clone(),
        clock: context.clock.clone(),
    });
    let seconds = config.node_lease_duration_seconds;
    let syncd = SyncdClient::new(context.peer("syncd")).max_decoding_message_size(crate::MESSAGE_BYTES);
    let pods_api = Arc::new(KubePods(client));
    let existing = Mirror::follow(context.channels.handle("syncd"), context.shutdown.clone(), {
        let syncd = syncd.clone();
        move || {
            let mut client = syncd.clone();
            async move { client.watch_mirror_pods(WatchRequest {}).await }
        }
    });
    let mirrors = Mirrors::new(mirror::Parts {
        api: pods_api.clone(),
        source: Syncd(syncd.clone()),
        views: views.clone(),
        existing: existing.clone(),
        statuses: statuses.clone(),
        node: name.clone(),
        registered: registered.clone(),
    });
    let renewal = Renewal::new(api, name, seconds, registered, context.clock.clone());
    let pods = Pods::new(pods::Parts { api: pods_api, views: views.clone(), statuses: statuses.clone() });
    // Nobody wakes these: the cluster is told now and then.
    let ((_, never), (_, nor_this)) = (wake(), wake());
    let ((mirrors_waker, mirrors_changed), (pods_waker, pods_changed)) = (wake(), wake());
    let stopped = || context.shutdown.clone().cancelled_owned();
    tokio::spawn(drive(presence, never, watch::Sender::new(LoopStatus::default()), stopped()));
    tokio::spawn(drive(mirrors, mirrors_changed, watch::Sender::new(LoopStatus::default()), stopped()));
    tokio::spawn(drive(pods, pods_changed, watch::Sender::new(LoopStatus::default()), stopped()));
    let (mut generations, mut changes, mut copies) =
        (statuses.generations(), views.changes(), existing.changes());
    let end = context.shutdown.clone();
    tokio::spawn(async move {
        // Statuses are told as they change, and pods that are being deleted as soon as nothing is left of them.
        let wakers = [mirrors_waker, pods_waker];
        loop {
            // All are cancel-safe.
            tokio::select! {
                () = end.cancelled() => return,
                changed = generations.changed() => if changed.is_err() { return },
                _ = changes.next() => {}
                _ = copies.next() => {}
            }
            wakers.iter().for_each(bulkhead_reconcile::Waker::wake);
        }
    });
    tokio::spawn(drive(renewal, nor_this, watch::Sender::new(LoopStatus::default()), stopped()));
    Some(events)
}

fn verdict(check: Check) -> presence::Verdict {
    Box::new(move |verdict| match verdict {
        Ok(()) => check.good(),
        Err(reason) => check.bad(reason),
    })
}
