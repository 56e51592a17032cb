//! Which of the things that the runtime lists belongs to which pod. Pure, and borrows: a relist of a full node copies
//! nothing.

use std::collections::HashMap;

use bulkhead_cri::wire;
use bulkhead_model::names;

/// One listed thing and whose it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row<'a> {
    /// UID of the pod.
    pub(crate) uid: &'a str,
    /// Name of the pod.
    pub(crate) name: &'a str,
    /// Namespace of the pod.
    pub(crate) namespace: &'a str,
    /// The thing.
    pub(crate) item: Item<'a>,
}

/// A listed thing.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Item<'a> {
    /// A sandbox.
    Sandbox(&'a wire::PodSandbox),
    /// A container.
    Container(&'a wire::Container),
}

/// What was listed of one pod.
#[derive(Clone, Debug, Default)]
pub(crate) struct PodListing {
    /// UID of the pod.
    pub(crate) uid: String,
    /// Name of the pod.
    pub(crate) name: String,
    /// Namespace of the pod.
    pub(crate) namespace: String,
    /// Its sandboxes.
    pub(crate) sandboxes: Vec<wire::PodSandbox>,
    /// Its containers.
    pub(crate) containers: Vec<wire::Container>,
}

/// One row for each thing that carries the labels of a pod, ordered by UID. What other tools made in the same runtime
/// carries none and is left out.
pub(crate) fn rows<'a>(sandboxes: &'a [wire::PodSandbox], containers: &'a [wire::Container]) -> Vec<Row<'a>> {
    let mut rows = Vec::with_capacity(sandboxes.len() + containers.len());
    // Nothing can be asked or told about what has no id.
    let sandboxes = sandboxes.iter().filter(|sandbox| !sandbox.id.is_empty());
    rows.extend(sandboxes.filter_map(|sandbox| row(&sandbox.labels, Item::Sandbox(sandbox))));
    let named = containers.iter().filter(|container| {
        !container.id.is_empty() && label(&container.labels, names::CONTAINER_NAME).is_some()
    });
    rows.extend(named.filter_map(|container| row(&container.labels, Item::Container(container))));
    rows.sort_by(|a, b| a.uid.cmp(b.uid));
    rows
}

/// The rows of each pod, together.
pub(crate) fn by_pod<'r, 'a>(rows: &'r [Row<'a>]) -> impl Iterator<Item = &'r [Row<'a>]> {
    rows.chunk_by(|a, b| a.uid == b.uid)
}

impl PodListing {
    /// A copy of the rows of one pod; `None` when there is none.
    pub(crate) fn of(rows: &[Row<'_>]) -> Option<Self> {
        let first = rows.first()?;
        let mut listing = Self {
            uid: first.uid.to_owned(),
            name: first.name.to_owned(),
            namespace: first.namespace.to_owned(),
            ..Self::default()
        };
        for row in rows {
            match row.item {
                Item::Sandbox(sandbox) => listing.sandboxes.push(sandbox.clone()),
                Item::Container(container) => listing.containers.push(container.clone()),
            }
        }
        Some(listing)
    }
}

fn row<'a>(labels: &'a HashMap<String, String>, item: Item<'a>) -> Option<Row<'a>> {
    Some(Row {
        uid: label(labels, names::POD_UID)?,
        name: label(labels, names::POD_NAME)?,
        namespace: label(labels, names::POD_NAMESPACE)?,
        item,
    })
}

fn label<'a>(labels: &'a HashMap<String, String>, name: &str) -> Option<&'a str> {
    labels.get(name).map(String::as_str).filter(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::fake::{container, sandbox};

    fn shape<'a>(
        sandboxes: &'a [wire::PodSandbox],
        containers: &'a [wire::Container],
    ) -> Vec<(String, String)> {
        let rows = rows(sandboxes, containers);
        let texts = by_pod(&rows).map(|pod| {
            let listing = PodListing::of(pod).unwrap();
            let sandboxes = listing.sandboxes.iter().map(|s| s.id.as_str());
            let containers = listing.containers.iter().map(|c| c.id.as_str());
            (listing.uid.clone(), sandboxes.chain(containers).collect::<Vec<_>>().join(" "))
        });
        texts.collect()
    }

    #[test]
    fn things_go_to_their_pods() {
        let sandboxes = [sandbox("b", "s1"), sandbox("a", "s2"), sandbox("b", "s3")];
        let containers = [container("b", "c1", "x"), container("c", "c2", "x"), container("a", "c3", "x")];
        let expected = [("a", "s2 c3"), ("b", "s1 s3 c1"), ("c", "c2")];
        let expected = expected.map(|(uid, ids)| (uid.to_owned(), ids.to_owned()));
        assert_eq!(shape(&sandboxes, &containers), expected);
        assert!(shape(&[], &[]).is_empty());
    }

    #[test]
    fn without_the_labels_of_a_pod_it_is_somebody_elses() {
        for name in [names::POD_UID, names::POD_NAME, names::POD_NAMESPACE] {
            let mut foreign = sandbox("a", "s1");
            foreign.labels.remove(name);
            assert!(shape(&[foreign], &[]).is_empty(), "{name}");
        }
        for name in [names::POD_UID, names::POD_NAME, names::POD_NAMESPACE, names::CONTAINER_NAME] {
            let mut foreign = container("a", "c1", "x");
            foreign.labels.insert(name.to_owned(), String::new());
            assert!(shape(&[], &[foreign]).is_empty(), "{name}");
        }
    }

    #[test]
    fn what_has_no_id_is_left_out() {
        assert!(shape(&[sandbox("a", "")], &[container("a", "", "x")]).is_empty());
        let one = shape(&[sandbox("a", ""), sandbox("a", "s1")], &[container("a", "", "x")]);
        assert_eq!(one, [("a".to_owned(), "s1".to_owned())]);
    }

    proptest! {
        #[test]
        fn each_thing_is_in_one_pod_and_each_pod_comes_once(
            sandboxes in prop::collection::vec(0_u8..5, 0..20), containers in prop::collection::vec(0_u8..5, 0..20),
        ) {
            let name = |kind: &str, at: usize, uid: &u8| (format!("{uid}"), format!("{kind}{at}"));
            let names: Vec<_> = sandboxes.iter().enumerate().map(|(at, uid)| name("s", at, uid)).collect();
            let sandboxes: Vec<_> = names.iter().map(|(uid, id)| sandbox(uid, id)).collect();
            let names: Vec<_> = containers.iter().enumerate().map(|(at, uid)| name("c", at, uid)).collect();
            let containers: Vec<_> = names.iter().map(|(uid, id)| container(uid, id, "x")).collect();
            let rows = rows(&sandboxes, &containers);
            prop_assert_eq!(rows.len(), sandboxes.len() + containers.len());
            let uids: Vec<_> = by_pod(&rows).map(|pod| pod.first().unwrap().uid).collect();
            prop_assert!(uids.is_sorted_by(|a, b| a < b), "{:?}", uids);
        }
    }
}
