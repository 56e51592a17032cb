//! The node's conditions. Pure, but for the memory of when each one changed.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use bulkhead_model::eviction::Condition;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::NodeCondition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

/// The conditions as they were last looked at.
#[derive(Debug, Default)]
pub(crate) struct Conditions(Mutex<Vec<NodeCondition>>);

impl Conditions {
    /// Looks again: `missing` is what keeps the node from being ready.
    pub(crate) fn update(
        &self,
        missing: &[String],
        pressures: &BTreeSet<Condition>,
        now: Timestamp,
    ) -> Vec<NodeCondition> {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *last = conditions(missing, pressures, &last, now);
        last.clone()
    }
}

/// Types, reasons, texts and order are the kubelet's. There is no pressure as long as evictd has not told any.
fn conditions(
    missing: &[String],
    pressures: &BTreeSet<Condition>,
    previous: &[NodeCondition],
    now: Timestamp,
) -> Vec<NodeCondition> {
    let ready = match missing {
        [] => ("True", "KubeletReady", "kubelet is posting ready status".to_owned()),
        [one] => ("False", "KubeletNotReady", one.clone()),
        several => ("False", "KubeletNotReady", format!("[{}]", several.join(", "))),
    };
    let pressure = |condition: Condition| {
        let holds = pressures.contains(&condition);
        let (reason, message) = pressure_text(condition, holds);
        (condition.as_str(), (if holds { "True" } else { "False" }, reason, message.to_owned()))
    };
    let findings = [
        pressure(Condition::MemoryPressure),
        pressure(Condition::DiskPressure),
        pressure(Condition::PidPressure),
        ("Ready", ready),
    ];
    let now = Time(Timestamp::from_second(now.as_second()).unwrap_or(now));
    let condition = |(type_, (status, reason, message)): (&str, (&str, &str, String))| {
        let before = previous.iter().find(|last| last.type_ == type_);
        let unchanged = before.is_some_and(|last| last.status == status);
        // A clock that was set back must not make a change look old.
        let since = match before.and_then(|last| last.last_transition_time.clone()) {
            Some(last) if unchanged || last.0 > now.0 => last,
            _ => now.clone(),
        };
        NodeCondition {
            type_: type_.to_owned(),
            status: status.to_owned(),
            reason: Some(reason.to_owned()),
            message: Some(message),
            last_heartbeat_time: Some(now.clone()),
            last_transition_time: Some(since),
        }
    };
    findings.into_iter().map(condition).collect()
}

fn pressure_text(condition: Condition, holds: bool) -> (&'static str, &'static str) {
    match (condition, holds) {
        (Condition::MemoryPressure, false) => {
            ("KubeletHasSufficientMemory", "kubelet has sufficient memory available")
        }
        (Condition::MemoryPressure, true) => {
            ("KubeletHasInsufficientMemory", "kubelet has insufficient memory available")
        }
        (Condition::DiskPressure, false) => ("KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
        (Condition::DiskPressure, true) => ("KubeletHasDiskPressure", "kubelet has disk pressure"),
        (Condition::PidPressure, false) => {
            ("KubeletHasSufficientPID", "kubelet has sufficient PID available")
        }
        (Condition::PidPressure, true) => {
            ("KubeletHasInsufficientPID", "kubelet has insufficient PID available")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::at;

    #[test]
    fn ready_says_what_is_missing_and_since_when() {
        let memory = Conditions::default();
        let missing = |parts: &[&str]| parts.iter().map(|part| (*part).to_owned()).collect::<Vec<_>>();
        let table = [
            (0, missing(&["a"]), "False", "KubeletNotReady", "a", 0),
            (5, missing(&["a", "b"]), "False", "KubeletNotReady", "[a, b]", 0),
            (9, missing(&[]), "True", "KubeletReady", "kubelet is posting ready status", 9),
            (12, missing(&[]), "True", "KubeletReady", "kubelet is posting ready status", 9),
            (13, missing(&["b"]), "False", "KubeletNotReady", "b", 13),
            (-3600, missing(&["b"]), "False", "KubeletNotReady", "b", 13),
            (-3599, missing(&[]), "True", "KubeletReady", "kubelet is posting ready status", 13),
            (3600, missing(&["b"]), "False", "KubeletNotReady", "b", 3600),
        ];
        for (second, missing, status, reason, message, since) in table {
            let found = memory.update(&missing, &BTreeSet::new(), at(second));
            let [_, _, pid, ready] = found.as_slice() else { panic!("{found:?}") };
            let expected = NodeCondition {
                type_: "Ready".into(),
                status: status.into(),
                reason: Some(reason.into()),
                message: Some(message.into()),
                last_heartbeat_time: Some(Time(at(second))),
                last_transition_time: Some(Time(at(since))),
            };
            assert_eq!(*ready, expected);
            assert_eq!(pid.last_transition_time, Some(Time(at(0))));
        }
    }

    #[test]
    fn pressure_comes_and_goes_with_its_dates() {
        let memory = Conditions::default();
        let told = |pressures: &[Condition], second| {
            let found = memory.update(&[], &pressures.iter().copied().collect(), at(second));
            found
                .into_iter()
                .map(|c| {
                    let since = c.last_transition_time.unwrap().0.as_second() - at(0).as_second();
                    (c.type_, c.status, c.reason.unwrap(), since)
                })
                .collect::<Vec<_>>()
        };
        let line = |type_: &str, status: &str, reason: &str, since| {
            (type_.to_owned(), status.to_owned(), reason.to_owned(), since)
        };
        let ready = line("Ready", "True", "KubeletReady", 0);
        let quiet = told(&[], 0);
        assert_eq!(
            told(&[Condition::DiskPressure, Condition::MemoryPressure], 5),
            [
                line("MemoryPressure", "True", "KubeletHasInsufficientMemory", 5),
                line("DiskPressure", "True", "KubeletHasDiskPressure", 5),
                line("PIDPressure", "False", "KubeletHasSufficientPID", 0),
                ready.clone(),
            ]
        );
        assert_eq!(
            told(&[Condition::PidPressure, Condition::MemoryPressure], 9),
            [
                line("MemoryPressure", "True", "KubeletHasInsufficientMemory", 5),
                line("DiskPressure", "False", "KubeletHasNoDiskPressure", 9),
                line("PIDPressure", "True", "KubeletHasInsufficientPID", 9),
                ready.clone(),
            ]
        );
        assert_eq!(
            quiet,
            [
                line("MemoryPressure", "False", "KubeletHasSufficientMemory", 0),
                line("DiskPressure", "False", "KubeletHasNoDiskPressure", 0),
                line("PIDPressure", "False", "KubeletHasSufficientPID", 0),
                ready,
            ]
        );
    }
}
