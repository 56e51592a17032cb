//! Timelines: what was seen when, and what follows.

use proptest::prelude::*;

use super::*;

const MI: u64 = 1 << 20;

fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(signal, text)| ((*signal).to_owned(), (*text).to_owned())).collect()
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn seen(pairs: &[(Signal, u64, u64)]) -> Observations {
    pairs
        .iter()
        .map(|(signal, available, capacity)| {
            (*signal, Observation { available: *available, capacity: *capacity })
        })
        .collect()
}

fn memory(available: u64) -> Observations {
    seen(&[(Signal::MemoryAvailable, available * MI, 1000 * MI)])
}

fn hard(pairs: &[(&str, &str)]) -> NodeRules {
    let none = BTreeMap::new();
    NodeRules { rules: rules(&map(pairs), &none, &BTreeMap::new(), &none), transition: seconds(300) }
}

/// Known fault E1.
#[test]
fn thresholds_of_nothing_and_of_everything_evict_nobody() {
    for (signal, text) in
        [("memory.available", "0%"), ("nodefs.available", "100%"), ("imagefs.available", "100%")]
    {
        let rules = hard(&[(signal, text)]);
        let nothing_left = seen(&[
            (Signal::MemoryAvailable, 0, 1000),
            (Signal::NodefsAvailable, 0, 1000),
            (Signal::ImagefsAvailable, 0, 1000),
        ]);
        assert_eq!(
            NodeState::default().look(&rules, &nothing_left, seconds(0)),
            Look::default(),
            "{signal} {text}"
        );
    }
}

#[test]
fn a_hard_threshold_is_due_at_once_and_its_condition_stays_for_a_while() {
    let rules = hard(&[("memory.available", "100Mi"), ("nodefs.available", "10%")]);
    let mut state = NodeState::default();
    let timeline = [
        (0, memory(100), false, false),
        (10, memory(99), true, true),
        (20, memory(500), true, false),
        (309, memory(500), true, false),
        (310, memory(500), false, false),
        (320, memory(5), true, true),
        // It cannot be read: nobody goes, and what was last known of the condition holds for its time.
        (330, Observations::new(), true, false),
        (619, Observations::new(), true, false),
        (620, Observations::new(), false, false),
    ];
    for (at, seen, pressure, due) in timeline {
        let look = state.look(&rules, &seen, seconds(at));
        assert_eq!(look.conditions.contains(&Condition::MemoryPressure), pressure, "at {at}");
        assert_eq!(!look.due.is_empty(), due, "at {at}");
    }
}

#[test]
fn a_soft_threshold_is_due_after_its_grace_without_a_break() {
    let none = BTreeMap::new();
    let grace = [("memory.available".to_owned(), seconds(90))].into();
    let rules = NodeRules {
        rules: rules(&none, &map(&[("memory.available", "10%"), ("pid.available", "1k")]), &grace, &none),
        transition: seconds(0),
    };
    assert_eq!(rules.rules.len(), 1, "one without grace is none");
    let mut state = NodeState::default();
    let timeline = [
        (0, 99, true, false),
        (89, 99, true, false),
        (90, 101, false, false),
        (91, 99, true, false),
        (181, 99, true, true),
    ];
    for (at, available, pressure, due) in timeline {
        let look = state.look(&rules, &memory(available), seconds(at));
        assert_eq!((!look.conditions.is_empty(), !look.due.is_empty()), (pressure, due), "at {at}");
    }
}

#[test]
fn what_was_acted_on_is_met_until_the_least_is_reclaimed() {
    let none = BTreeMap::new();
    let rules = NodeRules {
        rules: rules(
            &map(&[("memory.available", "100Mi")]),
            &none,
            &BTreeMap::new(),
            &map(&[("memory.available", "50Mi")]),
        ),
        transition: seconds(0),
    };
    let mut state = NodeState::default();
    let due = |state: &mut NodeState, at, available| {
        !state.look(&rules, &memory(available), seconds(at)).due.is_empty()
    };
    assert!(!due(&mut state, 0, 120), "between the two, coming from above");
    assert!(due(&mut state, 10, 99));
    assert!(due(&mut state, 20, 149), "between the two, coming from below");
    let rule = rules.rules[0];
    assert!(!state.is_settled(&rule, &memory(149)) && state.is_settled(&rule, &memory(150)));
    assert!(!state.is_settled(&rule, &Observations::new()), "not known");
    assert!(!due(&mut state, 30, 150));
    assert!(!due(&mut state, 40, 120));
}

#[test]
fn memory_comes_first_then_what_is_hard() {
    let none = BTreeMap::new();
    let grace =
        [("nodefs.available".to_owned(), seconds(0)), ("memory.available".to_owned(), seconds(0))].into();
    let both = map(&[("nodefs.available", "10%"), ("memory.available", "10%")]);
    let rules = NodeRules { rules: rules(&both, &both, &grace, &none), transition: seconds(0) };
    let seen = seen(&[(Signal::NodefsAvailable, 0, 100), (Signal::MemoryAvailable, 0, 100)]);
    let look = NodeState::default().look(&rules, &seen, seconds(0));
    let order: Vec<_> = look.due.iter().map(|rule| (rule.signal, rule.grace.is_some())).collect();
    let expected = [
        (Signal::MemoryAvailable, false),
        (Signal::MemoryAvailable, true),
        (Signal::NodefsAvailable, false),
        (Signal::NodefsAvailable, true),
    ];
    assert_eq!(order, expected);
    assert_eq!(look.conditions, [Condition::MemoryPressure, Condition::DiskPressure].into());
}

#[test]
fn names_are_the_configurations() {
    let names: Vec<_> = super::super::SIGNALS.into_iter().map(Signal::parse).collect();
    assert_eq!(names, Signal::ALL.map(Some));
    assert_eq!(Signal::parse("disk.free"), None);
    for condition in [Condition::MemoryPressure, Condition::DiskPressure, Condition::PidPressure] {
        assert_eq!(Condition::parse(condition.as_str()), Some(condition));
    }
    assert!(Signal::ImagefsInodesFree.is_inodes() && !Signal::PidAvailable.is_inodes());
}

proptest! {
    /// Whatever comes: what is due is met by what was seen just now, and its condition holds.
    #[test]
    fn nothing_is_due_that_was_not_seen(
        looks in prop::collection::vec((0..200_u64, prop::option::of(0..200_u64)), 1..30),
    ) {
        let grace = [("memory.available".to_owned(), seconds(30))].into();
        let text = map(&[("memory.available", "100Mi")]);
        let reclaim = map(&[("memory.available", "20Mi")]);
        let rules = NodeRules { rules: rules(&text, &text, &grace, &reclaim), transition: seconds(60) };
        let mut state = NodeState::default();
        let mut at = seconds(0);
        for (step, available) in looks {
            at += seconds(step);
            let seen = available.map(memory).unwrap_or_default();
            let look = state.look(&rules, &seen, at);
            prop_assert!(look.due.is_empty() || available.is_some_and(|available| available < 120));
            prop_assert!(look.due.is_empty() || look.conditions.contains(&Condition::MemoryPressure));
            if available.is_some_and(|available| available < 100) {
                prop_assert!(look.due.iter().any(|rule| rule.grace.is_none()));
            }
        }
    }
}
