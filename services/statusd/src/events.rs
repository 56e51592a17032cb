//! Events: what happened on the node, told to the cluster.
//!
//! Owns the way from whoever saw it to the API server: what is told again becomes a count, what is told in many ways becomes
//! one, and whoever never stops is not listened to. Must never hold up the one who tells, nor keep more than [`QUEUE`] of them.

mod api;
mod correlate;
mod grpc;
mod object;
mod recent;
mod send;
mod tokens;

#[cfg(test)]
mod tests;

use bulkhead_model::event::Event;
use bulkhead_service::Context;
use jiff::Timestamp;
use kube::Client;
use tokio::sync::{mpsc, watch};

use api::KubeEvents;
pub(crate) use grpc::EventHandlers;
use object::Author;
use send::{Parts, Sender};

/// Events that may wait for the API server: as many as the kubelet's.
const QUEUE: usize = 1000;

/// What something happened to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Regarding {
    /// This node.
    Node,
    /// A pod, or a part of one.
    Pod {
        /// Its UID: of a static pod, the one that the node gave it.
        uid: String,
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
        /// The part; empty: the pod.
        field_path: String,
    },
}

/// Something happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Happened {
    /// To what.
    pub(crate) regarding: Regarding,
    /// What.
    pub(crate) event: Event,
    /// When.
    pub(crate) at: Timestamp,
}

/// Takes what happened. Clones share the queue.
#[derive(Clone, Debug)]
pub(crate) struct Events(mpsc::Sender<Happened>);

/// There is no place.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Full;

impl Events {
    /// A queue, and its other end.
    pub(crate) fn queue() -> (Self, mpsc::Receiver<Happened>) {
        let (events, waiting) = mpsc::channel(QUEUE);
        (Self(events), waiting)
    }

    /// All of them or none.
    pub(crate) fn take(&self, all: Vec<Happened>) -> Result<(), Full> {
        let places = self.0.try_reserve_many(all.len()).map_err(|_| Full)?;
        for (place, happened) in places.zip(all) {
            place.send(happened);
        }
        Ok(())
    }

    /// Something happened to the node. What there is no place for is left out.
    pub(crate) fn node(&self, event: Event, at: Timestamp) {
        let _ = self.0.try_send(Happened { regarding: Regarding::Node, event, at });
    }
}

/// Tells the cluster from now on. `node` is the UID of the registered node.
pub(crate) fn start(
    context: &Context,
    client: Client,
    waiting: mpsc::Receiver<Happened>,
    node: watch::Receiver<Option<String>>,
) {
    let sender = Sender::new(Parts {
        api: KubeEvents::new(client),
        waiting,
        author: Author { node: context.flags.node_name(), uid: node },
        rate: send::rate(&context.config),
        metrics: &context.metrics,
    });
    let shutdown = context.shutdown.clone();
    tokio::spawn(async move { shutdown.run_until_cancelled(sender.run()).await });
}
