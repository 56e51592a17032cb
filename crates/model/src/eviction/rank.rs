//! Which pod goes first.

use std::cmp::{Ordering, Reverse};

/// A pod that may be evicted, as far as its turn depends on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Its UID: of two alike, the same one goes whenever they are asked about.
    pub uid: String,
    /// `spec.priority`; 0 for none.
    pub priority: i32,
    /// What it takes of what the node is short of: bytes or pieces.
    pub used: u64,
    /// What it asked for of that.
    pub request: u64,
}

/// How pods are put in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// Memory and disk: who takes more than it asked for, then the lower priority, then who is further above its request.
    Excess,
    /// Processes: the lower priority, then who has more.
    Count,
}

/// Puts the pod that goes first in front.
pub fn order(by: By, candidates: &mut [Candidate]) {
    candidates.sort_by(|a, b| match by {
        By::Excess => excess(a, b),
        By::Count => (a.priority, Reverse(a.used), &a.uid).cmp(&(b.priority, Reverse(b.used), &b.uid)),
    });
}

fn excess(a: &Candidate, b: &Candidate) -> Ordering {
    let key = |pod: &Candidate| {
        let above = i128::from(pod.used).saturating_sub(i128::from(pod.request));
        (Reverse(pod.used > pod.request), pod.priority, Reverse(above))
    };
    key(a).cmp(&key(b)).then_with(|| a.uid.cmp(&b.uid))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn candidate(uid: &str, priority: i32, used: u64, request: u64) -> Candidate {
        Candidate { uid: uid.to_owned(), priority, used, request }
    }

    fn ordered(by: By, mut pods: Vec<Candidate>) -> Vec<String> {
        order(by, &mut pods);
        pods.into_iter().map(|pod| pod.uid).collect()
    }

    #[test]
    fn excess_counts_first_then_priority_then_how_much() {
        let pods = vec![
            candidate("within-low", -10, 50, 100),
            candidate("within", 0, 90, 100),
            candidate("above-high", 1000, 900, 100),
            candidate("above-much", 0, 300, 100),
            candidate("above-little", 0, 350, 300),
            candidate("above-little-too", 0, 350, 300),
        ];
        let expected =
            ["above-much", "above-little", "above-little-too", "above-high", "within-low", "within"];
        assert_eq!(ordered(By::Excess, pods), expected);
    }

    #[test]
    fn of_processes_priority_counts_first_then_how_many() {
        let pods = vec![candidate("few", 0, 3, 0), candidate("many", 0, 300, 0), candidate("low", -1, 1, 0)];
        assert_eq!(ordered(By::Count, pods), ["low", "many", "few"]);
    }

    proptest! {
        #[test]
        fn the_order_does_not_depend_on_who_is_listed_first(
            pods in prop::collection::vec((0..4_i32, 0..4_u64, 0..4_u64), 0..8),
            seed in any::<prop::sample::Index>(),
        ) {
            let pods: Vec<_> =
                pods.iter().enumerate().map(|(n, (p, u, r))| candidate(&n.to_string(), *p, *u, *r)).collect();
            let mut turned = pods.clone();
            if !turned.is_empty() {
                turned.rotate_left(seed.index(pods.len()));
            }
            let found = ordered(By::Excess, pods.clone());
            prop_assert_eq!(&found, &ordered(By::Excess, turned));
            let above: Vec<_> = found
                .iter()
                .map(|uid| pods.iter().find(|pod| pod.uid == *uid).is_some_and(|pod| pod.used > pod.request))
                .collect();
            prop_assert!(above.is_sorted_by(|a, b| a >= b), "nobody within its request goes before one above");
        }
    }
}
