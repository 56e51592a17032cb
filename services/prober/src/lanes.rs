//! How many probes run at once. Waiting is first come, first served, and never counts towards a probe's time-out.

use std::sync::Arc;

use bulkhead_model::probe::Handler;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Commands at once on the whole node: each is a process that the runtime has to make.
const COMMANDS: usize = 16;
/// Connections at once on the whole node: each is a socket and some buffers.
const CONNECTIONS: usize = 64;
/// Probes of one pod at once: a pod whose probes all hang must leave room for others.
const OF_ONE_POD: usize = 8;

/// The node's lanes. Clones share them.
#[derive(Clone, Debug)]
pub struct Lanes {
    commands: Arc<Semaphore>,
    connections: Arc<Semaphore>,
}

/// One pod's share. Clones share it.
#[derive(Clone, Debug)]
pub struct PodLane(Arc<Semaphore>);

/// The right to run one probe, until it is dropped.
#[derive(Debug)]
#[must_use = "the place is given back when this is dropped"]
pub struct Place {
    _pod: OwnedSemaphorePermit,
    _node: OwnedSemaphorePermit,
}

impl Default for Lanes {
    fn default() -> Self {
        Self {
            commands: Arc::new(Semaphore::new(COMMANDS)),
            connections: Arc::new(Semaphore::new(CONNECTIONS)),
        }
    }
}

impl Default for PodLane {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(OF_ONE_POD)))
    }
}

impl Lanes {
    /// Waits for a place for a run of `handler`. `None` never happens while the lanes live: they are not closed.
    pub async fn enter(&self, pod: &PodLane, handler: &Handler) -> Option<Place> {
        // The pod's place first: who waits for it must not hold one of the node's.
        let pod = pod.0.clone().acquire_owned().await.ok()?;
        let node = match handler {
            Handler::Exec { .. } => &self.commands,
            Handler::Http { .. } | Handler::Tcp { .. } | Handler::Grpc { .. } => &self.connections,
        };
        let node = node.clone().acquire_owned().await.ok()?;
        Some(Place { _pod: pod, _node: node })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_storm_of_commands_leaves_the_rest_alone() {
        let lanes = Lanes::default();
        let command = Handler::Exec { command: Vec::new() };
        let connection = Handler::Tcp { host: None, port: 1 };
        let soon = Duration::from_secs(1);
        let hog = PodLane::default();
        let mut held = Vec::new();
        while let Ok(place) = timeout(soon, lanes.enter(&hog, &command)).await {
            held.push(place);
        }
        assert_eq!(held.len(), OF_ONE_POD, "one pod has a share");
        while let Ok(place) = timeout(soon, lanes.enter(&PodLane::default(), &command)).await {
            held.push(place);
        }
        assert_eq!(held.len(), COMMANDS, "and all together have a bound");
        let other = PodLane::default();
        assert!(
            timeout(soon, lanes.enter(&other, &connection)).await.is_ok(),
            "connections have their own lane"
        );
        held.pop();
        assert!(timeout(soon, lanes.enter(&other, &command)).await.is_ok(), "a place is given back");
    }
}
