//! What of a listed pod has to be asked for again, and what is known already. Pure.
//!
//! The record that the list is compared with is the published pod itself. So a change whose inspection failed is seen
//! again by the next list, and nothing else has to remember it.

use std::sync::Arc;

use bulkhead_cri::wire;
use bulkhead_model::runtime::{Container, RuntimePod, Sandbox};

use crate::convert;
use crate::listing::{Item, PodListing, Row};

/// What is known of a pod.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    /// As published.
    pub(crate) pod: Arc<RuntimePod>,
    /// Ids of ready sandboxes whose addresses are not known yet.
    pub(crate) awaiting_ip: Vec<String>,
}

/// How to bring a pod up to date.
#[derive(Clone, Debug, Default)]
pub(crate) struct Plan {
    /// What needs no question; incomplete until the rest is added.
    pub(crate) pod: RuntimePod,
    /// Ready sandboxes to ask for their addresses.
    pub(crate) sandboxes: Vec<Sandbox>,
    /// Containers to ask for their status.
    pub(crate) containers: Vec<wire::Container>,
}

/// Whether the list says what is known already. Container and sandbox ids are never used twice, so that id and state
/// tell all.
pub(crate) fn is_current(listed: &[Row<'_>], pod: &RuntimePod, awaiting_ip: &[String]) -> bool {
    let (mut sandboxes, mut containers) = (0, 0);
    let same = listed.iter().all(|row| match row.item {
        Item::Sandbox(listed) => {
            sandboxes += 1;
            known_sandbox(pod, listed).is_some() && !awaiting_ip.contains(&listed.id)
        }
        Item::Container(listed) => {
            containers += 1;
            known_container(pod, listed).is_some()
        }
    });
    same && sandboxes == pod.sandboxes.len() && containers == pod.containers.len()
}

/// Takes over what is known and says what to ask for.
pub(crate) fn plan(listing: PodListing, known: Option<&Known>) -> Plan {
    let PodListing { uid, name, namespace, sandboxes, containers } = listing;
    let mut plan =
        Plan { pod: RuntimePod { uid, name, namespace, ..RuntimePod::default() }, ..Plan::default() };
    for listed in sandboxes {
        let old = known.and_then(|known| known_sandbox(&known.pod, &listed));
        let awaited = known.is_some_and(|known| known.awaiting_ip.contains(&listed.id));
        match old {
            Some(old) if !awaited => plan.pod.sandboxes.push(old.clone()),
            _ if convert::is_ready(&listed) => plan.sandboxes.push(convert::sandbox(&listed)),
            // It has no network any more: the list says all there is.
            _ => plan.pod.sandboxes.push(convert::sandbox(&listed)),
        }
    }
    for listed in containers {
        match known.and_then(|known| known_container(&known.pod, &listed)) {
            Some(old) => plan.pod.containers.push(old.clone()),
            None => plan.containers.push(listed),
        }
    }
    plan
}

fn known_sandbox<'a>(pod: &'a RuntimePod, listed: &wire::PodSandbox) -> Option<&'a Sandbox> {
    let ready = convert::is_ready(listed);
    pod.sandboxes.iter().find(|known| known.id == listed.id && known.ready == ready)
}

fn known_container<'a>(pod: &'a RuntimePod, listed: &wire::Container) -> Option<&'a Container> {
    let state = convert::state(listed.state());
    pod.containers.iter().find(|known| known.id == listed.id && known.state == state)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;
    use wire::ContainerState as State;

    use super::*;
    use crate::fake;
    use crate::listing::rows;

    /// One pod: sandboxes with readiness, containers with state.
    #[derive(Clone, Debug, Default)]
    struct Things {
        sandboxes: BTreeMap<String, bool>,
        containers: BTreeMap<String, State>,
    }

    impl Things {
        fn new(sandboxes: &[(&str, bool)], containers: &[(&str, State)]) -> Self {
            Self {
                sandboxes: sandboxes.iter().map(|(id, ready)| ((*id).to_owned(), *ready)).collect(),
                containers: containers.iter().map(|(id, state)| ((*id).to_owned(), *state)).collect(),
            }
        }

        fn listing(&self) -> PodListing {
            let sandboxes = self.sandboxes.iter().map(|(id, ready)| {
                let mut sandbox = fake::sandbox("u", id);
                let not = wire::PodSandboxState::SandboxNotready;
                sandbox.set_state(if *ready { wire::PodSandboxState::SandboxReady } else { not });
                sandbox
            });
            let containers = self.containers.iter().map(|(id, state)| {
                let mut container = fake::container("u", id, id);
                container.set_state(*state);
                container
            });
            PodListing {
                uid: "u".to_owned(),
                sandboxes: sandboxes.collect(),
                containers: containers.collect(),
                ..PodListing::default()
            }
        }

        fn known(&self) -> Known {
            let listing = self.listing();
            let mut pod = RuntimePod { uid: "u".to_owned(), ..RuntimePod::default() };
            pod.sandboxes = listing.sandboxes.iter().map(convert::sandbox).collect();
            let statuses = listing.containers.into_iter().map(|container| {
                let status = fake::status(&container);
                convert::container(container, status)
            });
            pod.containers = statuses.collect();
            Known { pod: Arc::new(pod), awaiting_ip: Vec::new() }
        }
    }

    /// Whether nothing has to be done, and else the ids to ask for.
    fn outcome(listed: &Things, known: &Known) -> (bool, Vec<String>) {
        let listing = listed.listing();
        let rows = rows(&listing.sandboxes, &listing.containers);
        let current = is_current(&rows, &known.pod, &known.awaiting_ip);
        let plan = plan(listing.clone(), Some(known));
        let sandboxes = plan.sandboxes.iter().map(|sandbox| sandbox.id.clone());
        let containers = plan.containers.iter().map(|container| container.id.clone());
        (current, sandboxes.chain(containers).collect())
    }

    #[test]
    fn only_what_changed_is_asked_for() {
        use State::{ContainerExited as Exited, ContainerRunning as Running};
        let before = Things::new(&[("s1", true), ("s0", false)], &[("c1", Running), ("c0", Exited)]);
        let table: [(&str, Things, bool, &[&str]); 8] = [
            ("nothing", before.clone(), true, &[]),
            (
                "exited",
                Things::new(&[("s1", true), ("s0", false)], &[("c1", Exited), ("c0", Exited)]),
                false,
                &["c1"],
            ),
            (
                "a new one",
                Things::new(
                    &[("s1", true), ("s0", false)],
                    &[("c1", Running), ("c2", Running), ("c0", Exited)],
                ),
                false,
                &["c2"],
            ),
            ("one removed", Things::new(&[("s1", true), ("s0", false)], &[("c1", Running)]), false, &[]),
            ("sandbox removed", Things::new(&[("s1", true)], &[("c1", Running), ("c0", Exited)]), false, &[]),
            (
                "sandbox lost",
                Things::new(&[("s1", false), ("s0", false)], &[("c1", Running), ("c0", Exited)]),
                false,
                &[],
            ),
            (
                "new sandbox",
                Things::new(&[("s1", true), ("s0", false), ("s2", true)], &[("c1", Running), ("c0", Exited)]),
                false,
                &["s2"],
            ),
            (
                "one replaced",
                Things::new(&[("s1", true), ("s0", false)], &[("c2", Running), ("c0", Exited)]),
                false,
                &["c2"],
            ),
        ];
        for (name, listed, current, asked) in table {
            let asked = asked.iter().map(ToString::to_string).collect();
            assert_eq!(outcome(&listed, &before.known()), (current, asked), "{name}");
        }
    }

    #[test]
    fn a_sandbox_without_address_is_asked_again() {
        let things = Things::new(&[("s1", true)], &[]);
        let mut known = things.known();
        known.awaiting_ip.push("s1".to_owned());
        assert_eq!(outcome(&things, &known), (false, vec!["s1".to_owned()]));
        let lost = Things::new(&[("s1", false)], &[]);
        assert_eq!(outcome(&lost, &known), (false, vec![]), "a lost one gets none");
    }

    #[test]
    fn an_unknown_pod_is_asked_for_in_whole() {
        let things = Things::new(&[("s1", true), ("s0", false)], &[("c1", State::ContainerExited)]);
        let plan = plan(things.listing(), None);
        assert_eq!(plan.pod.sandboxes.iter().map(|s| s.id.as_str()).collect::<Vec<_>>(), ["s0"]);
        assert_eq!((plan.sandboxes.len(), plan.containers.len()), (1, 1));
    }

    fn things() -> impl Strategy<Value = Things> {
        let state = prop::sample::select(vec![
            State::ContainerCreated,
            State::ContainerRunning,
            State::ContainerExited,
        ]);
        let sandboxes = prop::collection::btree_map("s[0-4]", any::<bool>(), 0..4);
        let containers = prop::collection::btree_map("c[0-4]", state, 0..5);
        (sandboxes, containers).prop_map(|(sandboxes, containers)| Things { sandboxes, containers })
    }

    proptest! {
        #[test]
        fn asked_and_known_are_the_whole_list(before in things(), now in things()) {
            let known = before.known();
            let (current, asked) = outcome(&now, &known);
            let same = before.sandboxes == now.sandboxes && before.containers == now.containers;
            prop_assert_eq!(current, same);
            let plan = plan(now.listing(), Some(&known));
            let kept = plan.pod.containers.iter().map(|c| &c.id).chain(plan.pod.sandboxes.iter().map(|s| &s.id));
            let mut all: Vec<_> = kept.chain(&asked).cloned().collect();
            all.sort();
            let mut listed: Vec<_> = now.containers.keys().chain(now.sandboxes.keys()).cloned().collect();
            listed.sort();
            prop_assert_eq!(all, listed);
            for id in now.containers.keys() {
                let changed = before.containers.get(id) != now.containers.get(id);
                prop_assert_eq!(asked.contains(id), changed, "{}", id);
            }
        }
    }
}
