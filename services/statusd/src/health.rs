//! The check of this process, and the node's Ready: looked at again whenever a peer comes or goes, and every 10 s.

use std::sync::Arc;
use std::time::Duration;

use bulkhead_api::evictd::v1::NodePressure;
use bulkhead_base::Clock;
use bulkhead_ipc::{Mirror, PeerBoard};
use bulkhead_model::eviction::Condition;
use bulkhead_service::Check;
use k8s_openapi::api::core::v1::NodeCondition;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::conditions::Conditions;
use crate::pods::Inputs;
use crate::readiness::{Peer, missing};
use crate::runtime::RuntimeState;

const AGAIN: Duration = Duration::from_secs(10);

/// Knows how the parts of the node are doing. Clones share it.
#[derive(Clone)]
pub(crate) struct Health {
    pub(crate) inputs: Inputs,
    /// Of evictd: what it told last, whether or not it is there.
    pub(crate) pressures: Mirror<String, NodePressure>,
    pub(crate) runtime: watch::Receiver<RuntimeState>,
    pub(crate) board: PeerBoard,
    pub(crate) conditions: Arc<Conditions>,
    pub(crate) clock: Arc<dyn Clock>,
}

/// How the inputs of the pods' statuses are doing.
struct Peers {
    syncd: Peer,
    pleg: Peer,
    prober: Peer,
}

impl Health {
    /// The node's conditions now.
    pub(crate) fn conditions(&self) -> Vec<NodeCondition> {
        let Peers { syncd, pleg, .. } = self.peers();
        let missing = missing(&[syncd, pleg], &self.runtime.borrow(), Instant::now());
        let pressures = self.pressures.snapshot();
        let pressures = pressures.keys().filter_map(|condition| Condition::parse(condition)).collect();
        self.conditions.update(&missing, &pressures, self.clock.now())
    }

    /// Keeps the check and the conditions up to date. Never returns.
    pub(crate) async fn follow(mut self, check: Check) {
        loop {
            let peers = self.peers();
            let runtime = self.runtime.borrow_and_update().clone();
            match verdict(&peers, &runtime) {
                None => check.good(),
                Some(reason) => check.bad(reason),
            }
            self.conditions();
            let pressures = self.pressures.status().local;
            let Inputs { views, pods, results } = &self.inputs;
            // All arms are cancel-safe: each looks at what is now.
            tokio::select! {
                () = changed(views, &peers.syncd) => {}
                () = changed(pods, &peers.pleg) => {}
                () = changed(results, &peers.prober) => {}
                _ = self.pressures.wait_until(|now, _| now.local != pressures) => {}
                Ok(()) = self.runtime.changed() => {}
                () = tokio::time::sleep(AGAIN) => {}
            }
        }
    }

    fn peers(&self) -> Peers {
        let board = self.board.snapshot();
        let peer = |name, mirror| {
            let lost = board.get(name).filter(|state| !state.connected);
            let error = lost.map(|state| state.last_error.clone()).unwrap_or_default();
            Peer { name, mirror, error }
        };
        Peers {
            syncd: peer("syncd", self.inputs.views.status()),
            pleg: peer("pleg", self.inputs.pods.status()),
            prober: peer("prober", self.inputs.results.status()),
        }
    }
}

/// Waits until a peer comes or goes.
async fn changed<V: PartialEq + Send + Sync + 'static>(mirror: &Mirror<String, V>, seen: &Peer) {
    mirror.wait_until(|now, _| now.live != seen.mirror.live).await;
}

/// Why statuses are not what they should be. Without syncd or pleg they stand still; without prober only readiness does.
fn verdict(peers: &Peers, runtime: &RuntimeState) -> Option<String> {
    let mut troubles: Vec<String> =
        [&peers.syncd, &peers.pleg].into_iter().filter_map(Peer::trouble).collect();
    if runtime.name.is_empty() {
        let unknown = "the container runtime's name is not known";
        let error = &runtime.error;
        troubles.push(if error.is_empty() { unknown.to_owned() } else { format!("{unknown}: {error}") });
    }
    if !troubles.is_empty() {
        troubles.insert(0, "statuses stay as they are".to_owned());
    }
    troubles.extend(peers.prober.trouble().map(|text| format!("degraded: readiness stays as it is: {text}")));
    (!troubles.is_empty()).then(|| troubles.join("; "))
}

#[cfg(test)]
mod tests {
    use bulkhead_ipc::MirrorStatus;

    use super::*;

    fn peer(name: &'static str, live: bool) -> Peer {
        let mirror =
            MirrorStatus { synced: live, live, epoch: String::new(), generation: 0, local: 0, updated: None };
        Peer { name, mirror, error: "no socket".to_owned() }
    }

    #[test]
    fn the_check_names_who_is_missing() {
        let table: [(bool, bool, bool, &str, &[&str]); 6] = [
            (true, true, true, "containerd", &[]),
            (false, true, true, "containerd", &["statuses stay", "syncd has told nothing yet: no socket"]),
            (true, false, true, "containerd", &["statuses stay", "pleg has told nothing yet"]),
            (true, true, false, "containerd", &["degraded: readiness stays as it is: prober"]),
            (false, false, false, "containerd", &["syncd", "pleg", "degraded", "prober"]),
            (true, true, true, "", &["runtime's name"]),
        ];
        for (syncd, pleg, prober, name, texts) in table {
            let peers = Peers {
                syncd: peer("syncd", syncd),
                pleg: peer("pleg", pleg),
                prober: peer("prober", prober),
            };
            let runtime = RuntimeState { name: name.to_owned(), ..RuntimeState::default() };
            let verdict = verdict(&peers, &runtime);
            assert_eq!(verdict.is_none(), texts.is_empty(), "{verdict:?}");
            let verdict = verdict.unwrap_or_default();
            assert!(texts.iter().all(|text| verdict.contains(text)), "{verdict}");
            assert!(prober || syncd || verdict.starts_with("statuses"), "{verdict}");
        }
    }
}
