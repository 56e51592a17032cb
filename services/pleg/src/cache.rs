//! The pods as they were last read, and the order of reads: whose answer may replace whose.
//!
//! Reads of the whole runtime and of single pods run at the same time, and an answer can be old when it arrives. The rule
//! is optimistic: a read may change a pod only if nothing changed that pod since the read began. So what is published
//! never goes back in time; a read that loses has to be repeated by whoever needs it. Knows no runtime and no clock.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bulkhead_ipc::Publisher;
use bulkhead_model::runtime::RuntimePod;

use crate::listing::{Row, by_pod};
use crate::plan::{Known, is_current};

/// All pods.
#[derive(Debug)]
pub(crate) struct Cache {
    publisher: Publisher<String, RuntimePod>,
    order: Mutex<Order>,
}

#[derive(Debug, Default)]
struct Order {
    /// Counts begins and changes.
    moment: u64,
    pods: BTreeMap<String, Slot>,
    /// When pods went that a running read may still have seen.
    gone: BTreeMap<String, u64>,
    /// When the reads that run began.
    running: BTreeSet<u64>,
}

#[derive(Debug, Default)]
struct Slot {
    changed: u64,
    /// When the last read began that found the pod as it is published.
    confirmed: u64,
    awaiting_ip: Vec<String>,
}

/// A read that runs. Made before its first question to the runtime.
#[derive(Debug)]
pub(crate) struct Read {
    began: u64,
    cache: Arc<Cache>,
}

/// What a read found of one pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reading {
    /// The whole pod.
    pub(crate) pod: RuntimePod,
    /// Its ready sandboxes whose addresses are not known yet.
    pub(crate) awaiting_ip: Vec<String>,
}

/// What became of a reading.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Applied {
    /// It is what is published now.
    Yes {
        /// What was published before.
        before: Option<Arc<RuntimePod>>,
        /// What is published now.
        now: Option<Arc<RuntimePod>>,
    },
    /// The pod changed since the read began: the reading may be older than what is published.
    Overtaken,
}

impl Cache {
    /// Keeps pods in `publisher`, which nobody else may change.
    pub(crate) fn new(publisher: Publisher<String, RuntimePod>) -> Self {
        Self { publisher, order: Mutex::default() }
    }

    /// Begins a read.
    pub(crate) fn begin(self: &Arc<Self>) -> Read {
        let mut order = self.order();
        order.moment += 1;
        let began = order.moment;
        order.running.insert(began);
        Read { began, cache: self.clone() }
    }

    /// Now, in the order of reads: a read that begins later has a later number.
    pub(crate) fn moment(&self) -> u64 {
        self.order().moment
    }

    /// Whether a read that began after `moment` found the pod as it is published.
    pub(crate) fn is_confirmed_since(&self, uid: &str, moment: u64) -> bool {
        self.order().pods.get(uid).is_some_and(|slot| slot.confirmed > moment)
    }

    /// Whether the state was whole at some time.
    pub(crate) fn is_open(&self) -> bool {
        self.publisher.is_open()
    }

    /// Says that the state is whole.
    pub(crate) fn open(&self) {
        self.publisher.open();
    }

    /// What is known of a pod.
    pub(crate) fn known(&self, uid: &str) -> Option<Known> {
        let order = self.order();
        let slot = order.pods.get(uid)?;
        let pod = self.publisher.get(&uid.to_owned())?;
        Some(Known { pod, awaiting_ip: slot.awaiting_ip.clone() })
    }

    /// The pod that a container or sandbox id belongs to.
    pub(crate) fn owner_of(&self, id: &str) -> Option<String> {
        let owns = |pod: &RuntimePod| {
            pod.sandboxes.iter().any(|sandbox| sandbox.id == id) || pod.containers.iter().any(|c| c.id == id)
        };
        self.publisher.snapshot().into_iter().find(|(_, pod)| owns(pod)).map(|(uid, _)| uid)
    }

    fn order(&self) -> MutexGuard<'_, Order> {
        self.order.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Read {
    /// Whether the pod changed since this read began.
    pub(crate) fn is_overtaken(&self, uid: &str) -> bool {
        self.cache.order().changed_at(uid) > self.began
    }

    /// Makes the pod what this read found of it; `None`: nothing.
    pub(crate) fn apply(&self, uid: &str, reading: Option<Reading>) -> Applied {
        let mut order = self.cache.order();
        if order.changed_at(uid) > self.began {
            return Applied::Overtaken;
        }
        let publisher = &self.cache.publisher;
        let key = uid.to_owned();
        let before = publisher.get(&key);
        match reading {
            Some(Reading { pod, awaiting_ip }) => {
                let changed = publisher.upsert(key.clone(), pod);
                order.moment += u64::from(changed);
                let moment = order.moment;
                order.gone.remove(uid);
                let slot = order.pods.entry(key.clone()).or_default();
                slot.awaiting_ip = awaiting_ip;
                slot.confirmed = slot.confirmed.max(self.began);
                if changed {
                    slot.changed = moment;
                }
            }
            None => {
                order.remove(uid);
                publisher.remove(&key);
            }
        }
        Applied::Yes { before, now: publisher.get(&key) }
    }

    /// Notes that this read found the pod as it is published.
    pub(crate) fn confirm(&self, uid: &str) {
        if let Some(slot) = self.cache.order().pods.get_mut(uid) {
            slot.confirmed = slot.confirmed.max(self.began);
        }
    }

    /// Of a list of everything, the pods that are not as they are known. Those that changed since are left out: they
    /// were read later than the list.
    pub(crate) fn changed<'r, 'a>(&self, rows: &'r [Row<'a>]) -> Vec<&'r [Row<'a>]> {
        let order = self.cache.order();
        // One key for all look-ups: the publisher wants a String.
        let mut key = String::new();
        let changed = by_pod(rows).filter(|pod| {
            let Some(uid) = pod.first().map(|row| row.uid) else { return false };
            if order.changed_at(uid) > self.began {
                return false;
            }
            key.clear();
            key.push_str(uid);
            match (order.pods.get(uid), self.cache.publisher.get(&key)) {
                (Some(slot), Some(known)) => !is_current(pod, &known, &slot.awaiting_ip),
                _ => true,
            }
        });
        changed.collect()
    }

    /// Removes pods of which a list of everything has nothing.
    pub(crate) fn remove_missing(&self, rows: &[Row<'_>]) {
        let mut order = self.cache.order();
        let missing = order.pods.iter().filter(|(uid, slot)| {
            slot.changed < self.began && rows.binary_search_by(|row| row.uid.cmp(uid.as_str())).is_err()
        });
        let missing: Vec<String> = missing.map(|(uid, _)| uid.clone()).collect();
        for uid in missing {
            order.remove(&uid);
            self.cache.publisher.remove(&uid);
        }
    }

    /// Whether each pod of a list of everything was read, or went meanwhile.
    pub(crate) fn is_whole(&self, rows: &[Row<'_>]) -> bool {
        let order = self.cache.order();
        by_pod(rows).filter_map(<[_]>::first).all(|row| order.changed_at(row.uid) > 0)
    }
}

impl Drop for Read {
    fn drop(&mut self) {
        let mut order = self.cache.order();
        order.running.remove(&self.began);
        match order.running.first().copied() {
            Some(oldest) => order.gone.retain(|_, moment| *moment > oldest),
            None => order.gone.clear(),
        }
    }
}

impl Order {
    /// When the pod last changed, its end included; 0 when no running read could care.
    fn changed_at(&self, uid: &str) -> u64 {
        let slot = self.pods.get(uid).map(|slot| slot.changed);
        slot.or_else(|| self.gone.get(uid).copied()).unwrap_or(0)
    }

    fn remove(&mut self, uid: &str) {
        self.pods.remove(uid);
        // Also when it was not known: an older read that still saw it must not bring it.
        self.moment += 1;
        self.gone.insert(uid.to_owned(), self.moment);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::fake;
    use crate::listing::rows;

    fn cache() -> Arc<Cache> {
        Arc::new(Cache::new(Publisher::new(CancellationToken::new())))
    }

    /// A pod that tells its version by its name.
    fn reading(version: u64) -> Option<Reading> {
        let pod = RuntimePod { uid: "u".to_owned(), name: version.to_string(), ..RuntimePod::default() };
        Some(Reading { pod, awaiting_ip: Vec::new() })
    }

    fn version(cache: &Cache) -> Option<u64> {
        cache.known("u").map(|known| known.pod.name.parse().unwrap())
    }

    #[test]
    fn an_older_read_does_not_replace_a_newer_one() {
        let cache = cache();
        let (older, newer) = (cache.begin(), cache.begin());
        assert!(matches!(newer.apply("u", reading(2)), Applied::Yes { before: None, now: Some(_) }));
        assert_eq!(older.apply("u", reading(1)), Applied::Overtaken);
        assert_eq!(version(&cache), Some(2));
        assert!(matches!(cache.begin().apply("u", reading(3)), Applied::Yes { before: Some(_), .. }));
    }

    #[test]
    fn an_older_read_does_not_bring_back_what_went() {
        let cache = cache();
        cache.begin().apply("u", reading(1));
        let older = cache.begin();
        let newer = cache.begin();
        assert!(matches!(newer.apply("u", None), Applied::Yes { before: Some(_), now: None }));
        drop(newer);
        assert_eq!(older.apply("u", reading(1)), Applied::Overtaken);
        assert!(older.is_overtaken("u"));
        drop(older);
        assert!(cache.order().gone.is_empty(), "nobody is left who could have seen it");
        assert!(!cache.begin().is_overtaken("u"));
    }

    #[test]
    fn an_older_list_neither_removes_nor_reports_a_newer_pod() {
        let cache = cache();
        let list = cache.begin();
        cache.begin().apply("u", reading(1));
        list.remove_missing(&[]);
        assert_eq!(version(&cache), Some(1));
        let sandboxes = [fake::sandbox("u", "s1")];
        assert!(list.changed(&rows(&sandboxes, &[])).is_empty());
        let list = cache.begin();
        assert_eq!(list.changed(&rows(&sandboxes, &[])).len(), 1);
        list.remove_missing(&[]);
        assert_eq!(version(&cache), None);
    }

    #[test]
    fn a_state_is_whole_when_every_listed_pod_was_read() {
        let cache = cache();
        let sandboxes = [fake::sandbox("u", "s1"), fake::sandbox("v", "s2")];
        let rows = rows(&sandboxes, &[]);
        let list = cache.begin();
        assert!(!list.is_whole(&rows));
        list.apply("u", reading(1));
        assert!(!list.is_whole(&rows));
        let later = cache.begin();
        later.apply("v", reading(1));
        later.apply("u", reading(2));
        cache.begin().apply("v", None);
        assert!(list.is_whole(&rows), "v went after the list");
    }

    #[test]
    fn owners_are_found_by_container_and_sandbox() {
        let cache = cache();
        let mut found = reading(1).unwrap();
        found.pod.sandboxes.push(crate::convert::sandbox(&fake::sandbox("u", "s1")));
        cache.begin().apply("u", Some(found));
        assert_eq!(cache.owner_of("s1").as_deref(), Some("u"));
        assert_eq!(cache.owner_of("s2"), None);
    }

    #[derive(Clone, Debug)]
    enum Step {
        /// The runtime's pod changes; false: it goes or comes.
        World {
            changes: bool,
        },
        Begin,
        List(prop::sample::Index),
        Apply(prop::sample::Index),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            any::<bool>().prop_map(|changes| Step::World { changes }),
            Just(Step::Begin),
            any::<prop::sample::Index>().prop_map(Step::List),
            any::<prop::sample::Index>().prop_map(Step::Apply),
        ];
        prop::collection::vec(step, 0..60)
    }

    proptest! {
        // However reads overlap, what is published only moves on, and one undisturbed read brings it up to date.
        #[test]
        fn what_is_published_never_goes_back(steps in steps()) {
            let cache = cache();
            // The moment of the last change, and whether the pod exists.
            let mut world = (1_u64, true);
            let mut reads: Vec<(Read, Option<(u64, bool)>)> = Vec::new();
            let mut published = 0;
            for step in steps {
                match step {
                    Step::World { changes } => world = (world.0 + 1, if changes { world.1 } else { !world.1 }),
                    Step::Begin => reads.push((cache.begin(), None)),
                    Step::List(at) if !reads.is_empty() => {
                        let read = at.get_mut(&mut reads);
                        read.1 = read.1.or(Some(world));
                    }
                    Step::Apply(at) if !reads.is_empty() => {
                        let at = at.index(reads.len());
                        if let (read, Some((moment, exists))) = reads.swap_remove(at)
                            && let Applied::Yes { before, now } = read.apply("u", exists.then(|| reading(moment)).flatten())
                            && before != now
                        {
                            prop_assert!(moment >= published, "{} after {}", moment, published);
                            published = moment;
                        }
                    }
                    Step::List(_) | Step::Apply(_) => {}
                }
            }
            cache.begin().apply("u", world.1.then(|| reading(world.0)).flatten());
            prop_assert_eq!(version(&cache), world.1.then_some(world.0));
            drop(reads);
            prop_assert!(cache.order().gone.is_empty() && cache.order().running.is_empty());
        }
    }
}
