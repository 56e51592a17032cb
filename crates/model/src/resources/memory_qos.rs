//! Memory protection and throttling on cgroup v2 (KEP-2570).
//!
//! Nothing of it is on by default. `memoryThrottlingFactor` slows containers that may use more than they ask for before they
//! reach their limit; `memoryReservationPolicy` keeps what pods ask for from being reclaimed.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Pod};

use crate::qos::QosClass;

/// What the node's configuration says, on a machine with cgroup v2.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MemoryQos {
    /// `memoryThrottlingFactor`, above 0 to 1; `None`: no throttling.
    pub throttling_factor: Option<f64>,
    /// `memoryReservationPolicy: TieredReservation`: guaranteed pods' requests are never reclaimed, burstable pods' last.
    pub tiered_reservation: bool,
    /// Bytes of memory that all pods together may use: the limit of containers without one.
    pub allocatable_bytes: u64,
    /// Bytes of a page of memory.
    pub page_bytes: u64,
}

/// Memory that is kept from being reclaimed, in bytes; 0: none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Protection {
    /// `memory.min`: whatever happens.
    pub min: u64,
    /// `memory.low`: as long as there is anything else.
    pub low: u64,
}

/// Protection of the cgroups above those of pods, and what it is made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeProtection {
    /// `memory.min` that guaranteed pods have together.
    pub guaranteed: u64,
    /// `memory.low` that burstable pods have together: that of their class.
    pub burstable: u64,
}

impl NodeProtection {
    /// `memory.min` of the cgroup of all pods: a parent must cover what its children are promised.
    pub fn kubepods_min(self) -> u64 {
        self.guaranteed.saturating_add(self.burstable)
    }
}

impl MemoryQos {
    /// Protection of a pod's cgroup.
    pub fn of_pod(&self, pod: &Pod) -> Protection {
        self.protection(QosClass::of(pod), bytes(super::pod(pod).requests))
    }

    /// Protection of the cgroups above pods, of these pods.
    pub fn of_node<'a>(&self, pods: impl IntoIterator<Item = &'a Pod>) -> NodeProtection {
        let mut sum = NodeProtection::default();
        for Protection { min, low } in pods.into_iter().map(|pod| self.of_pod(pod)) {
            sum.guaranteed = sum.guaranteed.saturating_add(min);
            sum.burstable = sum.burstable.saturating_add(low);
        }
        sum
    }

    /// What a container's cgroup is given besides its limits, by file: the runtime's `unified`.
    pub fn of_container(&self, pod: &Pod, container: &Container) -> BTreeMap<String, String> {
        let (class, resources) = (QosClass::of(pod), super::container(container));
        let request = bytes(resources.requests);
        let Protection { min, low } = self.protection(class, request);
        let limit = Some(bytes(resources.limits)).filter(|limit| *limit > 0);
        // Who may use no more than it asked for is never slowed.
        let high = self
            .throttling_factor
            .filter(|_| class != QosClass::Guaranteed)
            .map(|factor| self.high(request, limit.unwrap_or(self.allocatable_bytes), factor))
            .filter(|high| *high > request);
        let knobs = [("memory.min", min), ("memory.low", low), ("memory.high", high.unwrap_or(0))];
        let set = knobs.into_iter().filter(|(_, bytes)| *bytes > 0);
        set.map(|(knob, bytes)| (knob.to_owned(), bytes.to_string())).collect()
    }

    fn protection(&self, class: QosClass, request: u64) -> Protection {
        match class {
            _ if !self.tiered_reservation => Protection::default(),
            QosClass::Guaranteed => Protection { min: request, low: 0 },
            QosClass::Burstable => Protection { min: 0, low: request },
            QosClass::BestEffort => Protection::default(),
        }
    }

    /// From where on a container is slowed: at this share of what it may use beyond its request, in whole pages.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "the factor is 0 to 1, so the product lies between 0 and the limit"
    )]
    fn high(&self, request: u64, limit: u64, factor: f64) -> u64 {
        let beyond = (limit.saturating_sub(request) as f64 * factor) as u64;
        let page = self.page_bytes.max(1);
        request.saturating_add(beyond) / page * page
    }
}

fn bytes(amounts: super::Amounts) -> u64 {
    amounts.memory.and_then(|memory| u64::try_from(memory.value()).ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    const MI: u64 = 1 << 20;

    fn settings(factor: Option<f64>, tiered: bool) -> MemoryQos {
        MemoryQos {
            throttling_factor: factor,
            tiered_reservation: tiered,
            allocatable_bytes: 1000 * MI,
            page_bytes: MI,
        }
    }

    fn pod(resources: Value) -> Pod {
        serde_json::from_value(json!({"spec": {"containers": [{"name": "c", "resources": resources}]}}))
            .unwrap()
    }

    fn knobs(settings: MemoryQos, pod: &Pod) -> Vec<(String, u64)> {
        let container = &pod.spec.as_ref().unwrap().containers[0];
        let knobs = settings.of_container(pod, container).into_iter();
        knobs.map(|(knob, bytes)| (knob, bytes.parse::<u64>().unwrap() / MI)).collect()
    }

    #[test]
    fn containers_are_slowed_between_request_and_limit() {
        // Request and limit in MiB, factor, `memory.high` in MiB: the KEP's examples.
        let table = [
            (Some(500), Some(1000), 0.6, Some(800)),
            (Some(800), Some(1000), 0.6, Some(920)),
            (Some(1000), Some(1000), 0.6, None),
            (Some(850), Some(1000), 0.8, Some(970)),
            (Some(500), Some(1000), 0.4, Some(700)),
            (Some(100), None, 0.9, Some(910)),
            (None, None, 0.9, Some(900)),
            // The request is the limit where only that is stated.
            (None, Some(500), 0.9, None),
            (Some(2000), None, 0.9, None),
        ];
        for (request, limit, factor, high) in table {
            let list = |mib: Option<u32>| mib.map_or(json!({}), |mib| json!({"memory": format!("{mib}Mi")}));
            let pod = pod(json!({"requests": list(request), "limits": list(limit)}));
            let found = knobs(settings(Some(factor), false), &pod);
            let expected: Vec<_> = high.map(|high| ("memory.high".to_owned(), high)).into_iter().collect();
            assert_eq!(found, expected, "{request:?} {limit:?} {factor}");
            assert_eq!(knobs(settings(None, false), &pod), [], "off by default");
        }
    }

    #[test]
    fn what_is_asked_for_is_kept_by_class() {
        let same = json!({"cpu": "1", "memory": "64Mi"});
        let guaranteed = pod(json!({"requests": same, "limits": same}));
        let burstable = pod(json!({"requests": {"memory": "32Mi"}}));
        let best_effort = pod(json!({}));
        let on = settings(Some(0.5), true);
        let knob = |name: &str, mib: u64| (name.to_owned(), mib);
        assert_eq!(knobs(on, &guaranteed), [knob("memory.min", 64)], "and never slowed");
        assert_eq!(knobs(on, &burstable), [knob("memory.high", 516), knob("memory.low", 32)]);
        assert_eq!(knobs(on, &best_effort), [knob("memory.high", 500)]);
        assert_eq!(on.of_pod(&guaranteed), Protection { min: 64 * MI, low: 0 });
        assert_eq!(on.of_pod(&burstable), Protection { min: 0, low: 32 * MI });
        assert_eq!(on.of_pod(&best_effort), Protection::default());
        let pods = [&guaranteed, &burstable, &burstable, &best_effort];
        let node = on.of_node(pods);
        assert_eq!(node, NodeProtection { guaranteed: 64 * MI, burstable: 64 * MI });
        assert_eq!(node.kubepods_min(), 128 * MI);
        assert_eq!(settings(Some(0.5), false).of_node(pods), NodeProtection::default());
    }

    #[test]
    fn a_pod_is_kept_as_it_runs() {
        let container = |name: &str, mib: u32| json!({"name": name, "resources": {"requests": {"memory": format!("{mib}Mi")}}});
        let mut sidecar = container("s", 1);
        sidecar["restartPolicy"] = json!("Always");
        let pod: Pod = serde_json::from_value(json!({"spec": {
            "initContainers": [sidecar, container("i", 2)], "containers": [container("c", 10)],
            "overhead": {"memory": "100Mi"}
        }}))
        .unwrap();
        assert_eq!(settings(None, true).of_pod(&pod).low, 111 * MI, "app, sidecar and overhead");
    }

    proptest! {
        #[test]
        fn the_threshold_lies_between_request_and_limit(
            request in 0_u64..1 << 40, limit in 1_u64..1 << 40, factor in 0.000_1_f64..=1.0, page in 0_u64..1 << 16,
        ) {
            let settings = MemoryQos { page_bytes: page, ..settings(Some(factor), false) };
            let high = settings.high(request, limit, factor);
            prop_assert!(high <= limit.max(request));
            prop_assert!(high + page.max(1) > request.min(limit));
        }
    }
}
