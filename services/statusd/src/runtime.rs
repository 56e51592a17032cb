//! What the container runtime says of itself, asked now and then, and the addresses of the node that can change as well.

use std::net::IpAddr;
use std::time::Duration;

use bulkhead_api::convert::runtime_features_from_cri;
use bulkhead_cri::{CriError, Observe, wire};
use bulkhead_model::runtime_features::DEFAULT_HANDLER;
use bulkhead_model::status::NodeFacts;
use bulkhead_reconcile::{Next, Reconciler, Trigger};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::records::Records;

/// How often the runtime is asked.
const EVERY: Duration = Duration::from_secs(10);
/// A runtime that was upgraded without a failed call shows its new version after this time.
const VERSION_AGAIN: Duration = Duration::from_secs(60);
/// Longest error kept.
const ERROR_BYTES: usize = 512;

/// What is known of the runtime.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct RuntimeState {
    /// Such as `containerd`; empty while it is not known.
    pub(crate) name: String,
    /// Empty while it is not known.
    pub(crate) version: String,
    /// `RuntimeReady`, `NetworkReady` and whatever else it tells.
    pub(crate) conditions: Vec<wire::RuntimeCondition>,
    /// Its handlers.
    pub(crate) handlers: Vec<wire::RuntimeHandler>,
    /// What it can do.
    pub(crate) features: Option<wire::RuntimeFeatures>,
    /// When it told its conditions last.
    pub(crate) answered: Option<Instant>,
    /// Why it did not tell them since; empty when it did.
    pub(crate) error: String,
}

/// The loop.
pub(crate) struct RuntimeWatch<O, A> {
    pub(crate) client: O,
    /// The node's addresses now.
    pub(crate) addresses: A,
    pub(crate) state: watch::Sender<RuntimeState>,
    pub(crate) node: watch::Sender<NodeFacts>,
    pub(crate) records: Records,
    pub(crate) version_asked: Option<Instant>,
}

impl<O, A> Reconciler for RuntimeWatch<O, A>
where
    O: Observe,
    A: Fn() -> Vec<IpAddr> + Send,
{
    const NAME: &'static str = "runtime state";

    fn interval(&self) -> Duration {
        EVERY
    }

    async fn reconcile(&mut self, _: Trigger) -> Next {
        let found = (self.addresses)();
        self.node.send_if_modified(|node| {
            let ips = addresses(&node.host_ips, &found);
            let changed = ips != node.host_ips;
            node.host_ips = ips;
            changed
        });
        match self.ask().await {
            Ok(()) => Next::Wait,
            Err(error) => {
                let mut text = error.runtime_message();
                text.truncate(text.floor_char_boundary(ERROR_BYTES));
                self.state.send_modify(|state| state.error = text);
                // It may be another version when it is back.
                self.version_asked = None;
                Next::Failed(error.to_string())
            }
        }
    }
}

impl<O: Observe, A> RuntimeWatch<O, A> {
    async fn ask(&mut self) -> Result<(), CriError> {
        if self.version_asked.is_none_or(|at| at.elapsed() >= VERSION_AGAIN) {
            let version = self.client.version().await?;
            self.take_version(version);
            self.version_asked = Some(Instant::now());
        }
        let status = self.client.status().await?;
        let recursive_read_only =
            Some(runtime_features_from_cri(&status).recursive_read_only(DEFAULT_HANDLER));
        self.node.send_if_modified(|node| {
            let changed = node.recursive_read_only != recursive_read_only;
            node.recursive_read_only = recursive_read_only;
            changed
        });
        self.state.send_modify(|state| {
            state.conditions = status.status.unwrap_or_default().conditions;
            state.handlers = status.runtime_handlers;
            state.features = status.features;
            state.answered = Some(Instant::now());
            state.error.clear();
        });
        Ok(())
    }

    fn take_version(&self, version: wire::VersionResponse) {
        let name = version.runtime_name;
        self.records.set_runtime_name(&name);
        self.node.send_if_modified(|node| {
            let changed = node.runtime_name != name;
            node.runtime_name.clone_from(&name);
            changed
        });
        self.state.send_modify(|state| {
            state.name = name;
            state.version = version.runtime_version;
        });
    }
}

/// The node's addresses after another look. A machine that has lost its routes finds only its loopback address; its pods
/// keep the addresses that they were told.
fn addresses(known: &[String], found: &[IpAddr]) -> Vec<String> {
    let lost = found.iter().all(IpAddr::is_loopback);
    if lost && !known.is_empty() { known.to_vec() } else { found.iter().map(IpAddr::to_string).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_outlive_the_network() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let table: [(&[&str], &[IpAddr], &[&str]); 5] = [
            (&[], &[ip("192.0.2.1")], &["192.0.2.1"]),
            (&["192.0.2.1"], &[ip("192.0.2.2"), ip("2001:db8::1")], &["192.0.2.2", "2001:db8::1"]),
            (&["192.0.2.1"], &[ip("127.0.0.1")], &["192.0.2.1"]),
            (&["192.0.2.1"], &[], &["192.0.2.1"]),
            (&[], &[ip("127.0.0.1")], &["127.0.0.1"]),
        ];
        for (known, found, after) in table {
            let known: Vec<String> = known.iter().map(|ip| (*ip).to_owned()).collect();
            assert_eq!(addresses(&known, found), after, "{known:?} {found:?}");
        }
    }
}
