//! Whether what the probes depend on is there.

use bulkhead_service::Check;
use tokio_util::sync::CancellationToken;

use crate::keeper::Inputs;

/// Keeps `check` as the inputs are, until `shutdown`.
pub async fn watch(inputs: Inputs, check: Check, shutdown: CancellationToken) {
    shutdown.run_until_cancelled(follow(inputs, check)).await;
}

async fn follow(inputs: Inputs, check: Check) {
    let Inputs { views, pods } = inputs;
    loop {
        let (syncd, pleg) = (views.status(), pods.status());
        match missing(syncd.live, pleg.live) {
            None => check.good(),
            Some(peers) if syncd.synced && pleg.synced => {
                check.bad(format!("no stream from {peers}: pods are probed as they were last known"));
            }
            Some(peers) => check.bad(format!("no stream from {peers} yet: nothing is probed")),
        }
        tokio::select! {
            () = views.wait_until(|now, _| (now.live, now.synced) != (syncd.live, syncd.synced)) => {}
            () = pods.wait_until(|now, _| (now.live, now.synced) != (pleg.live, pleg.synced)) => {}
        }
    }
}

fn missing(syncd: bool, pleg: bool) -> Option<&'static str> {
    match (syncd, pleg) {
        (true, true) => None,
        (false, true) => Some("syncd"),
        (true, false) => Some("pleg"),
        (false, false) => Some("syncd and pleg"),
    }
}
