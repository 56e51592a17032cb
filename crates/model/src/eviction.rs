//! Eviction: what the texts of the configuration say (`evictionHard`, `evictionSoft` and their like), when a node is under
//! pressure ([`NodeState`]), which pod goes first ([`Candidate`]), and what one pod may take of the disk ([`LocalLimits`]).
//!
//! Owns the rules and the kubelet's texts. Must never measure anything or end a pod. What is not known evicts nobody.

mod limits;
mod message;
mod pressure;
mod rank;

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;

use crate::capacity::Threshold;
use crate::quantity::Quantity;
use crate::{names, spec};

pub use limits::{DiskUse, Excess, LocalLimits};
pub use message::{ContainerUse, Shortage, node_message};
pub use pressure::{Condition, Look, NodeRules, NodeState, Observation, Observations, Rule, Signal, rules};
pub use rank::{By, Candidate, order};

/// `status.reason` of a pod that was evicted, or not taken because of pressure.
pub const REASON: &str = "Evicted";
/// From this priority on a pod is critical (`system-cluster-critical`).
const CRITICAL_PRIORITY: i32 = 2_000_000_000;

/// The signals that a threshold may be set for.
pub const SIGNALS: [&str; 8] = [
    "memory.available",
    "nodefs.available",
    "nodefs.inodesFree",
    "imagefs.available",
    "imagefs.inodesFree",
    "containerfs.available",
    "containerfs.inodesFree",
    "pid.available",
];

/// Thresholds by signal.
pub type Thresholds = BTreeMap<String, Threshold>;

/// A text that is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The signal that it stands at.
    pub signal: String,
    /// What is wrong and what to do.
    pub problem: String,
}

/// The set that counts: what was given replaces the defaults as a whole, unless `merge` (`mergeDefaultEvictionSettings`).
pub fn effective(
    given: &BTreeMap<String, String>,
    defaults: &BTreeMap<String, String>,
    merge: bool,
) -> BTreeMap<String, String> {
    let mut all = if merge { defaults.clone() } else { BTreeMap::new() };
    all.extend(given.clone());
    all
}

/// Reads thresholds. 0 % and 100 % switch a signal off, and are left out.
pub fn thresholds(given: &BTreeMap<String, String>) -> (Thresholds, Vec<Fault>) {
    let mut thresholds = Thresholds::new();
    let mut faults = Vec::new();
    for (signal, text) in given {
        match known(signal).and_then(|()| threshold(text)) {
            Ok(Some(threshold)) => drop(thresholds.insert(signal.clone(), threshold)),
            Ok(None) => {}
            Err(problem) => faults.push(Fault { signal: signal.clone(), problem }),
        }
    }
    (thresholds, faults)
}

/// Whether the node never evicts the pod, and takes it under pressure too: static pods and mirrors of them are the node's own,
/// and others are critical by their priority. A pod submitted by hand is nobody's mirror and counts as one of the API's.
pub fn is_critical(pod: &Pod) -> bool {
    let has = |name| pod.metadata.annotations.as_ref().is_some_and(|all| all.contains_key(name));
    let priority = pod.spec.as_ref().and_then(|spec| spec.priority);
    has(names::CONFIG_MIRROR)
        || (spec::is_static(pod) && !has(names::SUBMITTED))
        || priority.is_some_and(|priority| priority >= CRITICAL_PRIORITY)
}

/// Whether this is a signal.
pub fn known(signal: &str) -> Result<(), String> {
    if SIGNALS.contains(&signal) {
        return Ok(());
    }
    Err(format!("is no signal: write one of {}", SIGNALS.join(", ")))
}

fn threshold(text: &str) -> Result<Option<Threshold>, String> {
    let bad = |what: &str| {
        let shown: String = text.chars().take(40).collect();
        Err(format!(
            "is {shown:?}, {what}: write a quantity above 0 such as 100Mi, or a percentage such as 10%"
        ))
    };
    match Threshold::parse(text) {
        Some(Threshold::Share(share)) if share <= 0.0 || share >= 1.0 => Ok(None),
        Some(Threshold::Bytes(0)) => bad("which is never reached"),
        Some(threshold) => Ok(Some(threshold)),
        None if Quantity::parse(text).is_ok_and(Quantity::is_negative) => bad("which is below 0"),
        None => bad("which is neither"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(signal, text)| ((*signal).to_owned(), (*text).to_owned())).collect()
    }

    #[test]
    fn texts_are_thresholds_off_or_refused() {
        let table = [
            ("100Mi", Ok(Some(Threshold::Bytes(100 << 20)))),
            ("1", Ok(Some(Threshold::Bytes(1)))),
            ("10%", Ok(Some(Threshold::Share(0.1)))),
            ("0.5%", Ok(Some(Threshold::Share(0.005)))),
            ("0%", Ok(None)),
            ("100%", Ok(None)),
            ("0.0%", Ok(None)),
            ("0", Err(())),
            ("-1Mi", Err(())),
            ("-1%", Err(())),
            ("101%", Err(())),
            ("5 %", Err(())),
            ("10%%", Err(())),
            ("1e3Zi", Err(())),
            ("NaN%", Err(())),
            ("inf%", Err(())),
            ("%", Err(())),
            ("", Err(())),
        ];
        for (text, expected) in table {
            assert_eq!(threshold(text).map_err(drop), expected, "{text:?}");
        }
    }

    #[test]
    fn faults_name_their_signal() {
        let (good, faults) = thresholds(&map(&[
            ("memory.available", "5 %"),
            ("nodefs.available", "100%"),
            ("pid.available", "1k"),
            ("disk.free", "1Gi"),
        ]));
        assert_eq!(good.into_keys().collect::<Vec<_>>(), ["pid.available"]);
        let named: Vec<_> = faults.iter().map(|fault| fault.signal.as_str()).collect();
        assert_eq!(named, ["disk.free", "memory.available"]);
        assert!(faults.iter().all(|fault| fault.problem.len() < 300), "{faults:?}");
    }

    #[test]
    fn what_is_given_replaces_the_defaults_unless_merged() {
        let defaults = map(&[("memory.available", "100Mi"), ("nodefs.available", "10%")]);
        let given = map(&[("memory.available", "1Gi")]);
        assert_eq!(effective(&given, &defaults, false), given);
        let merged = map(&[("memory.available", "1Gi"), ("nodefs.available", "10%")]);
        assert_eq!(effective(&given, &defaults, true), merged);
    }

    #[test]
    fn static_and_critical_pods_are_never_evicted() {
        let pod = |annotations: &[(&str, &str)], priority: Option<i32>| {
            let mut pod = Pod::default();
            pod.metadata.annotations =
                Some(annotations.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect());
            pod.spec.get_or_insert_default().priority = priority;
            pod
        };
        let table = [
            (pod(&[], None), false),
            (pod(&[(names::CONFIG_SOURCE, "api")], Some(1_999_999_999)), false),
            (pod(&[(names::CONFIG_SOURCE, "api")], Some(2_000_000_000)), true),
            (pod(&[(names::CONFIG_SOURCE, "file")], None), true),
            (pod(&[(names::CONFIG_SOURCE, "http")], None), true),
            (pod(&[(names::CONFIG_SOURCE, "http"), (names::SUBMITTED, "true")], None), false),
            (pod(&[(names::CONFIG_SOURCE, "http"), (names::SUBMITTED, "true")], Some(2_000_001_000)), true),
            (pod(&[(names::CONFIG_MIRROR, "x")], None), true),
        ];
        for (pod, expected) in table {
            assert_eq!(is_critical(&pod), expected, "{pod:?}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_survived(text in "-?[0-9.e]{0,6}(%|Mi|Zi| %|%%)?|.{0,20}") {
            if let Ok(Some(Threshold::Share(share))) = threshold(&text) {
                prop_assert!(share > 0.0 && share < 1.0);
            }
        }
    }
}
