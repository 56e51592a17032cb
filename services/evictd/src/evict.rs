//! The loop that looks whether the node, or one pod's share of the disk, is used up, and has pods evicted for it.
//!
//! Owns the node's pressures. Must never end a pod itself: syncd does, and refuses those that may not go. What cannot be
//! measured evicts nobody, and before syncd told all pods nobody goes.

mod disk;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bulkhead_api::evictd::v1::{NodePressure, PodStats};
use bulkhead_api::syncd::v1::StatsView;
use bulkhead_ipc::Publisher;
use bulkhead_ipc::said::Said;
use bulkhead_model::event;
use bulkhead_model::eviction::{
    By, Candidate, Condition, ContainerUse, LocalLimits, Look, NodeState, Observations, Rule, Shortage,
    Signal, node_message, order,
};
use bulkhead_reconcile::{Next, Reconciler, Trigger};
use bulkhead_service::{Counter, Recorder};
use tokio::time::Instant;

pub(crate) use self::disk::{ContainerDisk, PodDisk, VolumeDisk};
use crate::config::EvictionSettings;

/// Time between two looks (the kubelet's).
const INTERVAL: Duration = Duration::from_secs(10);
/// What a pod gets that goes at once, in seconds (the kubelet's).
const AT_ONCE: u64 = 1;
/// How long one pod's end is waited for before the next one goes for the same reason (the kubelet's).
const CLEANUP: Duration = Duration::from_secs(30);
/// How often the same thing is said again.
const SAY_AGAIN: Duration = Duration::from_secs(300);

/// What was seen in one look.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Seen {
    /// By signal; what could not be read is missing.
    pub(crate) observations: Observations,
    /// Whether writable layers and images are on another file system than the rest.
    pub(crate) layers_elsewhere: bool,
}

/// A pod to be evicted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Order {
    /// Its UID.
    pub(crate) uid: String,
    /// For people.
    pub(crate) message: String,
    /// Longest time that it gets.
    pub(crate) grace_seconds: u64,
    /// The node ran short; the pod broke no limit of its own.
    pub(crate) disruption: bool,
}

/// What syncd said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// It goes.
    Evicted,
    /// It does not, or was over before: another one may.
    Stays,
    /// Nobody knows: again with the next look.
    Failed(String),
}

/// The node and its other processes, as far as this loop needs them.
pub(crate) trait World: Send + Sync + 'static {
    /// Looks at what is left.
    fn observe(&self) -> impl Future<Output = Seen> + Send;
    /// Every pod that syncd has; `None` until it told all.
    fn pods(&self) -> Option<Vec<Arc<StatsView>>>;
    /// Whether something of the pod may run.
    fn runs(&self, uid: &str) -> bool;
    /// Memory and processes of pods, as they are now.
    fn figures(&self) -> impl Future<Output = Vec<PodStats>> + Send;
    /// What pods take of disks, by UID. The volumes of those in `anew` are measured for it, those of others may be a minute old.
    /// With `layers` the runtime is asked, and all pods are told.
    fn disks(&self, anew: &[String], layers: bool) -> impl Future<Output = BTreeMap<String, PodDisk>> + Send;
    /// Removes images that nobody uses; bytes that were freed.
    fn reclaim(&self) -> impl Future<Output = Result<u64, String>> + Send;
    /// Asks syncd to evict a pod.
    fn evict(&self, order: Order) -> impl Future<Output = Answer> + Send;
}

/// The loop's body.
pub(crate) struct Evictor<W> {
    world: Arc<W>,
    settings: EvictionSettings,
    state: NodeState,
    pressures: Publisher<String, NodePressure>,
    evictions: Counter,
    began: Instant,
    /// The pod that went last because the node ran short, and when.
    going: Option<(String, Instant)>,
    said: Said,
    events: Option<Recorder>,
}

impl<W: World> Evictor<W> {
    /// Nothing is looked at yet.
    pub(crate) fn new(
        world: Arc<W>,
        settings: EvictionSettings,
        pressures: Publisher<String, NodePressure>,
        evictions: Counter,
    ) -> Self {
        Self {
            world,
            settings,
            state: NodeState::default(),
            pressures,
            evictions,
            began: Instant::now(),
            going: None,
            said: Said::every(SAY_AGAIN),
            events: None,
        }
    }

    /// Tells there when the node runs short.
    pub(crate) fn telling(self, events: Recorder) -> Self {
        Self { events: Some(events), ..self }
    }

    fn tell(&self, look: &Look) {
        let before = self.pressures.snapshot();
        for condition in look.conditions.iter().map(|condition| condition.as_str()) {
            if !before.contains_key(condition) {
                tracing::warn!(condition, "the node is under pressure");
            }
        }
        for condition in before.keys() {
            if !look.conditions.iter().any(|now| now.as_str() == condition) {
                tracing::info!(condition, "the node is no longer under pressure");
            }
        }
        let entry = |condition: &Condition| {
            let condition = condition.as_str().to_owned();
            (condition.clone(), NodePressure { condition })
        };
        self.pressures.replace(look.conditions.iter().map(entry).collect());
        if !self.pressures.is_open() {
            self.pressures.open();
        }
    }

    /// Evicts every pod that takes more of the disk than it may. Whether there was any.
    async fn hold_to_limits(&self, pods: &[Arc<StatsView>], seen: &Seen) -> bool {
        let limited: Vec<_> = pods
            .iter()
            .filter(|pod| self.settings.local_limits && !pod.critical)
            .map(|pod| (pod, disk::limits(pod)))
            .filter(|(_, limits)| !limits.is_empty())
            .collect();
        if limited.is_empty() {
            return false;
        }
        let anew: Vec<_> = limited.iter().map(|(pod, _)| pod.uid.clone()).collect();
        let disks = self.world.disks(&anew, limited.iter().any(|(_, limits)| limits.needs_layers())).await;
        let mut any = false;
        for (pod, limits) in limited {
            let Some(excess) = disks.get(&pod.uid).and_then(|disk| exceeded(&limits, disk, seen)) else {
                continue;
            };
            let order = Order {
                uid: pod.uid.clone(),
                message: excess.message,
                grace_seconds: AT_ONCE,
                disruption: false,
            };
            any |= self.evict(pod, excess.signal, order).await == Answer::Evicted;
        }
        any
    }

    /// Acts on a threshold: images first, then one pod.
    async fn relieve(&mut self, rule: Rule, mut seen: Seen, pods: &[Arc<StatsView>]) {
        let signal = rule.signal;
        let event = event::threshold_met(signal);
        if let Some(events) = &self.events
            && self.said.is_news(&event.message, Instant::now())
        {
            events.node(event);
        }
        let is_disk = signal.condition() == Condition::DiskPressure;
        let of_nodefs = matches!(signal, Signal::NodefsAvailable | Signal::NodefsInodesFree);
        // Images on another disk free nothing here.
        if is_disk && !(of_nodefs && seen.layers_elsewhere) {
            match self.world.reclaim().await {
                Ok(0) => {}
                Ok(freed) => tracing::info!(signal = signal.as_str(), freed, "images were removed"),
                Err(error) => self.say("images cannot be removed", &error),
            }
            seen = self.world.observe().await;
            if self.state.is_settled(&rule, &seen.observations) {
                return;
            }
        }
        if self.is_waiting() {
            return;
        }
        let Some(shortage) = shortage(&rule, &seen) else { return };
        let usage = self.usage(signal).await;
        let mut candidates: Vec<_> = pods
            .iter()
            .filter(|pod| !pod.critical)
            .filter_map(|pod| usage.candidate(signal, pod, seen.layers_elsewhere))
            .collect();
        let by = if signal == Signal::PidAvailable { By::Count } else { By::Excess };
        order(by, &mut candidates);
        let grace_seconds = if rule.grace.is_some() { self.settings.max_grace } else { AT_ONCE };
        for candidate in candidates {
            let Some(pod) = pods.iter().find(|pod| pod.uid == candidate.uid) else { continue };
            let message = node_message(shortage, &usage.containers(signal, pod));
            let order = Order { uid: candidate.uid, message, grace_seconds, disruption: true };
            match self.evict(pod, signal.as_str(), order).await {
                Answer::Evicted => {
                    self.going = Some((pod.uid.clone(), Instant::now()));
                    return;
                }
                Answer::Stays => {}
                Answer::Failed(_) => return,
            }
        }
        self.say("there is no pod left to evict", signal.as_str());
    }

    async fn usage(&self, signal: Signal) -> Usage {
        match signal.condition() {
            Condition::DiskPressure => Usage::Disks(self.world.disks(&[], true).await),
            _ => {
                let figures = self.world.figures().await;
                Usage::Figures(figures.into_iter().map(|pod| (pod.uid.clone(), pod)).collect())
            }
        }
    }

    /// One goes already: what that frees is to be seen first.
    fn is_waiting(&mut self) -> bool {
        let waiting =
            self.going.as_ref().is_some_and(|(uid, since)| since.elapsed() < CLEANUP && self.world.runs(uid));
        if !waiting {
            self.going = None;
        }
        waiting
    }

    async fn evict(&self, pod: &StatsView, signal: &str, order: Order) -> Answer {
        let message = order.message.clone();
        let answer = self.world.evict(order).await;
        match &answer {
            Answer::Evicted => {
                self.evictions.add_one(&[signal]);
                let StatsView { uid, name, namespace, .. } = pod;
                tracing::warn!(
                    pod.uid = uid,
                    pod.name = name,
                    pod.namespace = namespace,
                    signal,
                    message,
                    "evicted"
                );
            }
            Answer::Stays => {}
            Answer::Failed(error) => self.say("a pod cannot be evicted", error),
        }
        answer
    }

    fn say(&self, what: &str, why: &str) {
        if self.said.is_news(&format!("{what}: {why}"), Instant::now()) {
            tracing::warn!(why, "{what}");
        }
    }
}

impl<W: World> Reconciler for Evictor<W> {
    const NAME: &'static str = "eviction";

    fn interval(&self) -> Duration {
        INTERVAL
    }

    async fn reconcile(&mut self, _: Trigger) -> Next {
        let seen = self.world.observe().await;
        let look = self.state.look(&self.settings.rules, &seen.observations, self.began.elapsed());
        self.tell(&look);
        let Some(mut pods) = self.world.pods() else { return Next::Wait };
        pods.retain(|pod| !pod.over);
        if self.hold_to_limits(&pods, &seen).await {
            return Next::Wait;
        }
        if let Some(rule) = look.due.first() {
            self.relieve(*rule, seen, &pods).await;
        }
        Next::Wait
    }
}

/// What pods take of what the node is short of, by UID.
enum Usage {
    Figures(BTreeMap<String, PodStats>),
    Disks(BTreeMap<String, PodDisk>),
}

impl Usage {
    /// `None` for a pod of which that is not known.
    fn candidate(&self, signal: Signal, pod: &StatsView, layers_elsewhere: bool) -> Option<Candidate> {
        let (used, request) = match self {
            Self::Figures(pods) => {
                let stats = pods.get(&pod.uid)?;
                match signal {
                    Signal::PidAvailable => (stats.process_count?, 0),
                    _ => (stats.memory.as_ref()?.working_set_bytes, pod.memory_request_bytes),
                }
            }
            Self::Disks(pods) => {
                let taken = pods.get(&pod.uid)?.of(signal, layers_elsewhere)?;
                match signal.is_inodes() {
                    true => (taken.inodes, 0),
                    false => (taken.bytes, pod.ephemeral_request_bytes),
                }
            }
        };
        Some(Candidate { uid: pod.uid.clone(), priority: pod.priority.unwrap_or(0), used, request })
    }

    fn containers(&self, signal: Signal, pod: &StatsView) -> Vec<ContainerUse> {
        if signal == Signal::PidAvailable || signal.is_inodes() {
            return Vec::new();
        }
        let of = |container: &bulkhead_api::syncd::v1::StatsContainer| {
            let name = &container.name;
            let (used, request) = match self {
                Self::Figures(pods) => {
                    let mut all = pods.get(&pod.uid).into_iter().flat_map(|pod| &pod.containers);
                    let found = all.find(|stats| stats.name == *name);
                    let memory = found.and_then(|stats| stats.memory.as_ref());
                    (memory.map(|memory| memory.working_set_bytes), container.memory_request_bytes)
                }
                Self::Disks(pods) => {
                    let found = pods.get(&pod.uid).and_then(|disk| disk.containers.get(name));
                    (
                        found.and_then(ContainerDisk::whole).map(|taken| taken.bytes),
                        container.ephemeral_request_bytes,
                    )
                }
            };
            ContainerUse { name: name.clone(), used, request }
        };
        pod.containers.iter().map(of).collect()
    }
}

fn exceeded(limits: &LocalLimits, disk: &PodDisk, seen: &Seen) -> Option<bulkhead_model::eviction::Excess> {
    limits.exceeded(&disk.limited(seen.layers_elsewhere))
}

fn shortage(rule: &Rule, seen: &Seen) -> Option<Shortage> {
    let observed = seen.observations.get(&rule.signal)?;
    let threshold = rule.quantity(observed.capacity);
    Some(Shortage { signal: rule.signal, threshold, available: observed.available })
}

#[cfg(test)]
mod tests;
