//! The node's conditions. Pure, but for the memory of when each one changed.

use std::sync::{Mutex, PoisonError};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::NodeCondition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

/// The conditions as they were last looked at.
#[derive(Debug, Default)]
pub(crate) struct Conditions(Mutex<Vec<NodeCondition>>);

impl Conditions {
    /// Looks again: `missing` is what keeps the node from being ready.
    pub(crate) fn update(&self, missing: &[String], now: Timestamp) -> Vec<NodeCondition> {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *last = conditions(missing, &last, now);
        last.clone()
    }
}

/// Types, reasons, texts and order are the kubelet's. There is no pressure as long as nobody measures any.
fn conditions(missing: &[String], previous: &[NodeCondition], now: Timestamp) -> Vec<NodeCondition> {
    let ready = match missing {
        [] => ("True", "KubeletReady", "kubelet is posting ready status".to_owned()),
        [one] => ("False", "KubeletNotReady", one.clone()),
        several => ("False", "KubeletNotReady", format!("[{}]", several.join(", "))),
    };
    let fine = |reason, message: &str| ("False", reason, message.to_owned());
    let findings = [
        ("MemoryPressure", fine("KubeletHasSufficientMemory", "kubelet has sufficient memory available")),
        ("DiskPressure", fine("KubeletHasNoDiskPressure", "kubelet has no disk pressure")),
        ("PIDPressure", fine("KubeletHasSufficientPID", "kubelet has sufficient PID available")),
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
            let found = memory.update(&missing, at(second));
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
}
