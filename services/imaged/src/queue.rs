//! Whose pull is next: in turns between pods, so that a pod with thirty images does not hold up one with a single one.
//! Pure. Bounded by who pushes.

use std::collections::BTreeMap;

/// Round, then arrival. A pod has one image in each round.
type Rank = (u64, u64);

/// Images that wait for their pull, each once.
#[derive(Debug, Default)]
pub(crate) struct FairQueue {
    /// The round that newcomers join: the one after the last served, so that an endless row of them cannot hold up
    /// those who wait.
    round: u64,
    arrivals: u64,
    /// The last round in which a pod has an image; only rounds that newcomers can still join.
    last_round: BTreeMap<String, u64>,
    order: BTreeMap<Rank, String>,
    ranks: BTreeMap<String, Rank>,
}

impl FairQueue {
    /// Puts `image` in line for `pod`. One that is in line already moves forward if it is this pod's turn earlier.
    pub(crate) fn push(&mut self, pod: &str, image: &str) {
        let after_own = self.last_round.get(pod).map_or(0, |last| last.saturating_add(1));
        let rank = (self.round.max(after_own), self.arrivals);
        if let Some(present) = self.ranks.get(image).copied() {
            if present <= rank {
                return;
            }
            self.order.remove(&present);
        }
        self.arrivals = self.arrivals.saturating_add(1);
        self.order.insert(rank, image.to_owned());
        self.ranks.insert(image.to_owned(), rank);
        self.last_round.insert(pod.to_owned(), rank.0);
    }

    /// Takes the image whose turn it is.
    pub(crate) fn pop(&mut self) -> Option<String> {
        let (rank, image) = self.order.pop_first()?;
        self.ranks.remove(&image);
        self.round = rank.0.saturating_add(1);
        if self.order.is_empty() {
            self.last_round.clear();
        } else {
            self.last_round.retain(|_, last| *last > rank.0);
        }
        Some(image)
    }

    /// Whether `image` is in line.
    pub(crate) fn contains(&self, image: &str) -> bool {
        self.ranks.contains_key(image)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn drain(queue: &mut FairQueue) -> Vec<String> {
        std::iter::from_fn(|| queue.pop()).collect()
    }

    #[test]
    fn pods_take_turns() {
        let mut queue = FairQueue::default();
        for (pod, image) in [("a", "a1"), ("a", "a2"), ("a", "a3"), ("b", "b1"), ("c", "c1"), ("b", "b2")] {
            queue.push(pod, image);
        }
        assert_eq!(queue.pop().unwrap(), "a1");
        queue.push("d", "d1");
        queue.push("a", "a4");
        assert_eq!(drain(&mut queue), ["b1", "c1", "a2", "b2", "d1", "a3", "a4"]);
    }

    #[test]
    fn an_endless_row_of_newcomers_holds_nobody_up() {
        let mut queue = FairQueue::default();
        for image in ["a1", "a2", "a3"] {
            queue.push("a", image);
        }
        let mut taken = Vec::new();
        for number in 0..5 {
            taken.extend(queue.pop());
            queue.push(&format!("new{number}"), &format!("n{number}"));
        }
        assert_eq!(taken, ["a1", "a2", "n0", "a3", "n1"]);
    }

    #[test]
    fn an_image_moves_forward_when_a_pod_wants_it_whose_turn_is_earlier() {
        let mut queue = FairQueue::default();
        for image in ["a1", "a2", "shared", "a4"] {
            queue.push("a", image);
        }
        queue.push("b", "shared");
        queue.push("b", "shared");
        queue.push("a", "a1");
        assert_eq!(drain(&mut queue), ["a1", "shared", "a2", "a4"]);
        assert!(queue.last_round.is_empty(), "nothing is remembered of those who are gone");
    }

    proptest! {
        #[test]
        fn every_image_comes_once_and_pods_differ_by_one_round(images in prop::collection::vec(0..40u8, 0..60)) {
            let mut queue = FairQueue::default();
            let mut wanted = BTreeMap::new();
            for image in images {
                // An image belongs to one pod here.
                let (pod, image) = (format!("p{}", image % 4), format!("i{image}"));
                queue.push(&pod, &image);
                wanted.insert(image, pod);
            }
            let mut taken: BTreeMap<String, usize> = BTreeMap::new();
            let mut left: BTreeMap<String, usize> = BTreeMap::new();
            for pod in wanted.values() {
                *left.entry(pod.clone()).or_default() += 1;
            }
            for image in drain(&mut queue) {
                let pod = wanted.remove(&image).expect("in line, and not taken before");
                // Whoever still waits has had at least as many turns as the one who is served now had before.
                let served = taken.get(&pod).copied().unwrap_or_default();
                for (other, _) in left.iter().filter(|(_, left)| **left > 0) {
                    prop_assert!(taken.get(other).copied().unwrap_or_default() >= served);
                }
                *taken.entry(pod.clone()).or_default() += 1;
                *left.get_mut(&pod).unwrap() -= 1;
            }
            prop_assert!(wanted.is_empty());
        }
    }
}
