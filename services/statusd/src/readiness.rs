//! Whether the node is ready, and what is missing. Pure.

use std::time::Duration;

use bulkhead_ipc::MirrorStatus;
use tokio::time::Instant;

use crate::runtime::RuntimeState;

/// Longest silence of a peer that does not count: a restart is over sooner, and heartbeats come every 10 s.
const PEER_SILENCE: Duration = Duration::from_secs(20);
/// Longest silence of the runtime that does not count: the kubelet's.
const RUNTIME_SILENCE: Duration = Duration::from_secs(30);
/// Longest text of one part.
const TEXT_BYTES: usize = 512;

/// A process that the node needs.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    /// Its name.
    pub(crate) name: &'static str,
    /// How good the copy of its state is.
    pub(crate) mirror: MirrorStatus,
    /// Why it is not reached; empty when it is, and only has nothing to tell.
    pub(crate) error: String,
}

impl Peer {
    /// What is wrong with it at this moment.
    pub(crate) fn trouble(&self) -> Option<String> {
        (!self.mirror.live).then(|| cut(self.text()))
    }

    /// What is wrong with it, once that is no mere restart.
    fn lasting_trouble(&self, now: Instant) -> Option<String> {
        let silent = |at: Instant| now.saturating_duration_since(at) > PEER_SILENCE;
        self.trouble().filter(|_| self.mirror.updated.is_none_or(silent))
    }

    fn text(&self) -> String {
        let state = if self.mirror.synced { "is lost" } else { "has told nothing yet" };
        if self.error.is_empty() {
            format!("{} {state}", self.name)
        } else {
            format!("{} {state}: {}", self.name, self.error)
        }
    }
}

/// What keeps the node from being ready; nothing when it is. The texts about the runtime are the kubelet's.
pub(crate) fn missing(peers: &[Peer], runtime: &RuntimeState, now: Instant) -> Vec<String> {
    let mut missing: Vec<String> = peers.iter().filter_map(|peer| peer.lasting_trouble(now)).collect();
    missing.extend(runtime_trouble(runtime, now).into_iter().map(cut));
    missing
}

fn runtime_trouble(runtime: &RuntimeState, now: Instant) -> Vec<String> {
    let Some(answered) = runtime.answered else {
        let text = "container runtime status check may not have completed yet";
        return vec![with_cause(text, &runtime.error)];
    };
    if now.saturating_duration_since(answered) > RUNTIME_SILENCE {
        return vec![with_cause("container runtime is down", &runtime.error)];
    }
    let needed = [("RuntimeReady", "container runtime"), ("NetworkReady", "container runtime network")];
    needed
        .into_iter()
        .filter_map(|(type_, what)| match runtime.conditions.iter().find(|found| found.r#type == type_) {
            None => Some(format!("{what} not ready: the runtime does not tell {type_}")),
            Some(found) if !found.status => Some(format!(
                "{what} not ready: {type_}=false reason:{} message:{}",
                found.reason, found.message
            )),
            Some(_) => None,
        })
        .collect()
}

fn with_cause(text: &str, cause: &str) -> String {
    if cause.is_empty() { text.to_owned() } else { format!("{text}: {cause}") }
}

fn cut(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(TEXT_BYTES));
    text
}

#[cfg(test)]
mod tests {
    use bulkhead_cri::wire::RuntimeCondition;

    use super::*;

    fn peer(synced: bool, live: bool, updated: Option<Instant>) -> Peer {
        let mirror = MirrorStatus { synced, live, epoch: String::new(), generation: 0, local: 0, updated };
        Peer { name: "pleg", mirror, error: "gone".to_owned() }
    }

    fn condition(type_: &str, status: bool) -> RuntimeCondition {
        RuntimeCondition { r#type: type_.into(), status, reason: "R".into(), message: "M".into() }
    }

    fn runtime(answered: Option<Instant>, conditions: &[RuntimeCondition]) -> RuntimeState {
        RuntimeState { answered, conditions: conditions.to_vec(), ..RuntimeState::default() }
    }

    #[tokio::test(start_paused = true)]
    async fn peers_count_when_they_stay_away() {
        let start = Instant::now();
        let good = runtime(Some(start), &[condition("RuntimeReady", true), condition("NetworkReady", true)]);
        let table = [
            (peer(true, true, Some(start)), 0, None),
            (peer(true, false, Some(start)), 20, None),
            (peer(true, false, Some(start)), 21, Some("pleg is lost: gone")),
            (peer(false, false, None), 0, Some("pleg has told nothing yet: gone")),
        ];
        for (peer, second, text) in table {
            let now = start + Duration::from_secs(second);
            let missing = missing(std::slice::from_ref(&peer), &good, now);
            assert_eq!(missing.first().map(String::as_str), text, "{peer:?} {second}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_runtime_counts() {
        let now = Instant::now() + Duration::from_secs(100);
        let long_ago = Some(now - Duration::from_secs(31));
        let recently = Some(now - Duration::from_secs(30));
        let both =
            |runtime, network| [condition("RuntimeReady", runtime), condition("NetworkReady", network)];
        let table: [(RuntimeState, &[&str]); 6] = [
            (runtime(None, &[]), &["container runtime status check may not have completed yet"]),
            (runtime(long_ago, &both(true, true)), &["container runtime is down"]),
            (runtime(recently, &both(true, true)), &[]),
            (
                runtime(recently, &both(true, false)),
                &["container runtime network not ready: NetworkReady=false reason:R message:M"],
            ),
            (
                runtime(recently, &both(false, false)),
                &[
                    "container runtime not ready: RuntimeReady=false reason:R message:M",
                    "container runtime network not ready: NetworkReady=false reason:R message:M",
                ],
            ),
            (
                runtime(recently, &[condition("RuntimeReady", true)]),
                &["container runtime network not ready: the runtime does not tell NetworkReady"],
            ),
        ];
        for (runtime, texts) in table {
            assert_eq!(missing(&[], &runtime, now), texts, "{runtime:?}");
        }
    }

    #[test]
    fn long_texts_are_cut() {
        let mut peer = peer(false, false, None);
        peer.error = "é".repeat(10_000);
        assert!(peer.trouble().unwrap().len() <= TEXT_BYTES);
    }
}
