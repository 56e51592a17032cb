//! What one pod may take of the node's disk, whatever is left there: sizes of emptyDirs and limits of ephemeral storage.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;

use crate::quantity::Quantity;
use crate::resources;
use crate::spec::{self, ContainerKind};

const EPHEMERAL: &str = "ephemeral-storage";

/// The limits of one pod. Empty: it has none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LocalLimits {
    /// `sizeLimit` of emptyDirs, by volume.
    pub empty_dirs: BTreeMap<String, Quantity>,
    /// Limits of containers together, where one has any.
    pub pod: Option<Quantity>,
    /// Limits of single app containers.
    pub containers: BTreeMap<String, Quantity>,
}

/// What the pod takes, in bytes. What is missing was not measured, and exceeds nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiskUse {
    /// By volume.
    pub volumes: BTreeMap<String, u64>,
    /// Layers, logs and volumes on the node's disk together.
    pub total: Option<u64>,
    /// Logs and, where it is on the same disk, the layer; by container.
    pub containers: BTreeMap<String, u64>,
}

/// A limit that is exceeded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Excess {
    /// The kubelet's name of it in its metrics.
    pub signal: &'static str,
    /// The kubelet's text.
    pub message: String,
}

impl LocalLimits {
    /// Those of `pod`.
    pub fn of(pod: &Pod) -> Self {
        let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
        let empty_dirs = volumes.filter_map(|volume| {
            let limit = Quantity::parse(&volume.empty_dir.as_ref()?.size_limit.as_ref()?.0).ok()?;
            (limit > Quantity::ZERO).then(|| (volume.name.clone(), limit))
        });
        let of = |container: &k8s_openapi::api::core::v1::Container| {
            resources::amount(container.resources.as_ref()?.limits.as_ref(), EPHEMERAL)
        };
        let (mut running, mut sidecars, mut highest) = (Quantity::ZERO, Quantity::ZERO, Quantity::ZERO);
        let (mut any, mut containers) = (false, BTreeMap::new());
        for found in spec::containers(pod) {
            let Some(limit) = of(found.container) else { continue };
            any = true;
            match found.kind {
                ContainerKind::App => {
                    running = sum(running, limit);
                    if !limit.is_zero() {
                        containers.insert(found.name().to_owned(), limit);
                    }
                }
                ContainerKind::Sidecar => {
                    running = sum(running, limit);
                    sidecars = sum(sidecars, limit);
                    highest = highest.max(sidecars);
                }
                ContainerKind::Init => highest = highest.max(sum(limit, sidecars)),
                ContainerKind::Ephemeral => {}
            }
        }
        Self { empty_dirs: empty_dirs.collect(), pod: any.then(|| running.max(highest)), containers }
    }

    /// Whether there is nothing to exceed.
    pub fn is_empty(&self) -> bool {
        self.empty_dirs.is_empty() && self.pod.is_none() && self.containers.is_empty()
    }

    /// Whether more than volumes has to be measured.
    pub fn needs_layers(&self) -> bool {
        self.pod.is_some() || !self.containers.is_empty()
    }

    /// The first limit that is exceeded: volumes, then the pod, then its containers.
    pub fn exceeded(&self, used: &DiskUse) -> Option<Excess> {
        let over = |used: Option<&u64>, limit: &Quantity| {
            used.is_some_and(|used| i64::try_from(*used).unwrap_or(i64::MAX) > limit.value())
        };
        let excess = |signal, message| Some(Excess { signal, message });
        let mut volumes = self.empty_dirs.iter();
        if let Some((name, limit)) = volumes.find(|(name, limit)| over(used.volumes.get(*name), limit)) {
            let text = format!("Usage of EmptyDir volume \"{name}\" exceeds the limit \"{limit}\". ");
            return excess("emptydirfs.limit", text);
        }
        if let Some(limit) = self.pod.filter(|limit| over(used.total.as_ref(), limit)) {
            let text =
                format!("Pod ephemeral local storage usage exceeds the total limit of containers {limit}. ");
            return excess("ephemeralpodfs.limit", text);
        }
        let mut containers = self.containers.iter();
        let (name, limit) = containers.find(|(name, limit)| over(used.containers.get(*name), limit))?;
        excess(
            "ephemeralcontainerfs.limit",
            format!("Container {name} exceeded its local ephemeral storage limit \"{limit}\". "),
        )
    }
}

/// In the form of the first that is not zero.
fn sum(one: Quantity, other: Quantity) -> Quantity {
    if one.is_zero() { other } else { one.plus(other) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn limits(spec: serde_json::Value) -> LocalLimits {
        LocalLimits::of(&serde_json::from_value(json!({"metadata": {}, "spec": spec})).unwrap())
    }

    fn limited(name: &str, limit: &str) -> serde_json::Value {
        json!({"name": name, "resources": {"limits": {"ephemeral-storage": limit}}})
    }

    fn text(limits: &LocalLimits, used: &DiskUse) -> String {
        limits.exceeded(used).map(|excess| excess.message).unwrap_or_default()
    }

    #[test]
    fn a_volume_over_its_size_is_named() {
        let limits = limits(json!({
            "volumes": [
                {"name": "d", "emptyDir": {"sizeLimit": "5Mi"}},
                {"name": "e", "emptyDir": {"sizeLimit": "0"}},
                {"name": "f", "emptyDir": {}},
                {"name": "h", "hostPath": {"path": "/"}}
            ],
            "containers": [{"name": "c"}]
        }));
        assert!(!limits.is_empty() && !limits.needs_layers());
        let used = |bytes: u64| DiskUse {
            volumes: ["d", "e", "f", "h"]
                .map(|name| (name.to_owned(), if name == "d" { bytes } else { 1 << 40 }))
                .into(),
            total: Some(1 << 40),
            ..DiskUse::default()
        };
        assert_eq!(text(&limits, &used(5 << 20)), "", "as much as allowed");
        assert_eq!(
            text(&limits, &used((5 << 20) + 1)),
            "Usage of EmptyDir volume \"d\" exceeds the limit \"5Mi\". "
        );
        assert_eq!(text(&limits, &DiskUse::default()), "", "not measured");
    }

    #[test]
    fn the_pods_limit_is_that_of_its_containers_together() {
        let limits = limits(json!({
            "initContainers": [limited("i", "4Mi")],
            "containers": [limited("a", "5Mi"), limited("b", "1Mi"), {"name": "c"}]
        }));
        assert!(limits.needs_layers());
        let used = |total: u64, b: u64| DiskUse {
            total: Some(total),
            containers: [("b".to_owned(), b), ("c".to_owned(), 1 << 40)].into(),
            ..DiskUse::default()
        };
        assert_eq!(text(&limits, &used(6 << 20, 1 << 20)), "");
        assert_eq!(
            text(&limits, &used((6 << 20) + 1, 0)),
            "Pod ephemeral local storage usage exceeds the total limit of containers 6Mi. "
        );
        assert_eq!(
            text(&limits, &used(0, 2 << 20)),
            "Container b exceeded its local ephemeral storage limit \"1Mi\". "
        );
    }

    #[test]
    fn a_pod_without_limits_exceeds_none() {
        let limits = limits(json!({"containers": [{"name": "c"}]}));
        assert!(limits.is_empty());
        let used = DiskUse { total: Some(u64::MAX), ..DiskUse::default() };
        assert_eq!(text(&limits, &used), "");
    }
}
