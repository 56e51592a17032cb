//! What the node object's status is told, and when. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use bulkhead_config::KubeletConfiguration;
use k8s_openapi::api::core::v1::{NodeCondition, NodeStatus};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde_json::{Value, json};

/// When statuses are looked at and reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Timing {
    /// Between two looks, each of which reports a change: `nodeStatusUpdateFrequency`.
    pub(crate) look: Duration,
    /// Between two reports without a change: `nodeStatusReportFrequency`.
    pub(crate) report: Duration,
}

impl Timing {
    /// By the configuration.
    pub(crate) fn new(config: &KubeletConfiguration) -> Self {
        Self {
            look: config.node_status_update_frequency.to_std(),
            report: config.node_status_report_frequency.to_std(),
        }
    }
}

/// Our conditions, with the dates of the existing ones that say the same: a restart of this process changes nothing.
pub(crate) fn settle(existing: Option<&NodeStatus>, mut ours: NodeStatus) -> NodeStatus {
    for condition in ours.conditions.iter_mut().flatten() {
        if let Some(before) = same_type(existing, condition)
            && before.status == condition.status
            && before.last_transition_time.is_some()
        {
            condition.last_transition_time = before.last_transition_time.clone();
        }
    }
    ours
}

/// Whether `ours` says anything that `existing` does not, heartbeats apart.
pub(crate) fn differs(existing: Option<&NodeStatus>, ours: &NodeStatus) -> bool {
    let Some(existing) = existing else { return true };
    let condition = |own: &NodeCondition| {
        same_type(Some(existing), own).is_none_or(|there| {
            (&there.status, &there.reason, &there.message, &there.last_transition_time)
                != (&own.status, &own.reason, &own.message, &own.last_transition_time)
        })
    };
    ours.conditions.iter().flatten().any(condition)
        || existing.addresses != ours.addresses
        || lacks(existing.capacity.as_ref(), ours.capacity.as_ref())
        || lacks(existing.allocatable.as_ref(), ours.allocatable.as_ref())
        || existing.node_info != ours.node_info
        || existing.daemon_endpoints != ours.daemon_endpoints
        || existing.features != ours.features
        || existing.images != ours.images
        || existing.runtime_handlers != ours.runtime_handlers
}

/// The strategic merge patch that says all of `ours`. Conditions of other types stay, and so do resources that others add.
pub(crate) fn patch(ours: &NodeStatus) -> Result<Value, serde_json::Error> {
    let mut status = serde_json::to_value(ours)?;
    if let Some(addresses) = status.get_mut("addresses").and_then(Value::as_array_mut) {
        // Merged by their type alone, two addresses of one type would become one.
        addresses.insert(0, json!({ "$patch": "replace" }));
    }
    Ok(json!({ "status": status }))
}

/// What is said of conditions that are new or changed, in the kubelet's words. A node that was never ready did not become
/// unready.
pub(crate) fn turned(before: Option<&NodeStatus>, now: &NodeStatus) -> Vec<&'static str> {
    let turned = |condition: &NodeCondition| {
        let last = same_type(before, condition).map(|last| last.status.as_str());
        let holds = condition.status == "True";
        if last == Some(condition.status.as_str()) {
            return None;
        }
        match (condition.type_.as_str(), holds) {
            ("MemoryPressure", false) => Some("NodeHasSufficientMemory"),
            ("MemoryPressure", true) => Some("NodeHasInsufficientMemory"),
            ("DiskPressure", false) => Some("NodeHasNoDiskPressure"),
            ("DiskPressure", true) => Some("NodeHasDiskPressure"),
            ("PIDPressure", false) => Some("NodeHasSufficientPID"),
            ("PIDPressure", true) => Some("NodeHasInsufficientPID"),
            ("Ready", true) => Some("NodeReady"),
            ("Ready", false) => last.map(|_| "NodeNotReady"),
            _ => None,
        }
    };
    now.conditions.iter().flatten().filter_map(turned).collect()
}

fn same_type<'a>(status: Option<&'a NodeStatus>, condition: &NodeCondition) -> Option<&'a NodeCondition> {
    status?.conditions.iter().flatten().find(|there| there.type_ == condition.type_)
}

type Resources = BTreeMap<String, Quantity>;

fn lacks(existing: Option<&Resources>, ours: Option<&Resources>) -> bool {
    let there = |name: &String| existing.and_then(|existing| existing.get(name));
    ours.into_iter().flatten().any(|(name, amount)| there(name) != Some(amount))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::NodeAddress;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;
    use crate::fake::at;

    fn condition(type_: &str, status: &str, since: i64, heartbeat: i64) -> NodeCondition {
        NodeCondition {
            type_: type_.into(),
            status: status.into(),
            last_transition_time: Some(Time(at(since))),
            last_heartbeat_time: Some(Time(at(heartbeat))),
            ..NodeCondition::default()
        }
    }

    fn status(conditions: Vec<NodeCondition>, cpu: &str) -> NodeStatus {
        let capacity = BTreeMap::from([("cpu".to_owned(), Quantity(cpu.to_owned()))]);
        NodeStatus { conditions: Some(conditions), capacity: Some(capacity), ..NodeStatus::default() }
    }

    #[test]
    fn a_condition_keeps_its_date_as_long_as_it_says_the_same() {
        let existing = status(vec![condition("Ready", "True", 0, 5), condition("X", "True", 1, 1)], "2");
        let since = |conditions: Vec<NodeCondition>| {
            let settled = settle(Some(&existing), status(conditions, "2"));
            settled.conditions.unwrap().remove(0).last_transition_time.unwrap().0
        };
        assert_eq!(since(vec![condition("Ready", "True", 9, 9)]), at(0));
        assert_eq!(since(vec![condition("Ready", "False", 9, 9)]), at(9));
        assert_eq!(since(vec![condition("New", "True", 9, 9)]), at(9));
        let first = settle(None, status(vec![condition("Ready", "True", 9, 9)], "2"));
        assert_eq!(first.conditions.unwrap()[0].last_transition_time, Some(Time(at(9))));
    }

    #[test]
    fn heartbeats_and_what_others_add_are_no_difference() {
        let ours = status(vec![condition("Ready", "True", 0, 9)], "2");
        let mut existing =
            status(vec![condition("Ready", "True", 0, 5), condition("Network", "False", 1, 1)], "2");
        existing.capacity.as_mut().unwrap().insert("example.com/gpu".into(), Quantity("1".into()));
        assert!(!differs(Some(&existing), &ours));
        assert!(differs(None, &ours));
        for other in [
            status(vec![condition("Ready", "False", 0, 9)], "2"),
            status(vec![condition("Ready", "True", 1, 9)], "2"),
            status(vec![condition("Other", "True", 0, 9)], "2"),
            status(vec![condition("Ready", "True", 0, 9)], "4"),
            NodeStatus { addresses: Some(vec![NodeAddress::default()]), ..ours.clone() },
            NodeStatus { node_info: Some(Default::default()), ..ours.clone() },
            NodeStatus { runtime_handlers: Some(vec![Default::default()]), ..ours.clone() },
        ] {
            assert!(differs(Some(&existing), &other), "{other:?}");
        }
    }

    #[test]
    fn conditions_that_turn_out_or_change_are_told() {
        let of = |statuses: [&str; 4]| {
            let types = ["MemoryPressure", "DiskPressure", "PIDPressure", "Ready"];
            let each = types.iter().zip(statuses).filter(|(_, status)| !status.is_empty());
            status(each.map(|(type_, status)| condition(type_, status, 0, 0)).collect(), "2")
        };
        let healthy = of(["False", "False", "False", "True"]);
        let all = ["NodeHasSufficientMemory", "NodeHasNoDiskPressure", "NodeHasSufficientPID", "NodeReady"];
        assert_eq!(turned(None, &healthy), all);
        assert_eq!(turned(Some(&healthy), &healthy), [""; 0]);
        let ill = of(["True", "True", "True", "False"]);
        let all =
            ["NodeHasInsufficientMemory", "NodeHasDiskPressure", "NodeHasInsufficientPID", "NodeNotReady"];
        assert_eq!(turned(Some(&healthy), &ill), all);
        assert_eq!(turned(None, &of(["", "", "", "False"])), [""; 0], "it was not ready before");
        assert_eq!(turned(Some(&of(["", "", "", "Unknown"])), &of(["", "", "", "True"])), ["NodeReady"]);
    }

    #[test]
    fn a_patch_replaces_addresses_and_merges_the_rest() {
        let address = |ip: &str| NodeAddress { type_: "InternalIP".into(), address: ip.into() };
        let addresses = Some(vec![address("10.0.0.1"), address("fd00::1")]);
        let ours = NodeStatus { addresses, ..status(vec![condition("Ready", "True", 0, 0)], "2") };
        let patch = patch(&ours).unwrap();
        assert_eq!(patch["status"]["addresses"][0], json!({"$patch": "replace"}));
        assert_eq!(patch["status"]["addresses"][2]["address"], "fd00::1");
        assert_eq!(patch["status"]["capacity"], json!({"cpu": "2"}));
        assert_eq!(patch["status"]["conditions"].as_array().unwrap().len(), 1);
    }
}
