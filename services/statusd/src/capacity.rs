//! What a node has, and what of it pods may use. Pure.
//!
//! Allocatable is capacity less the hard eviction thresholds of memory and disk (the API's "Reserve Compute Resources"),
//! and memory less the huge pages that were taken out of it. Figures and their form are the kubelet's.

use std::collections::BTreeMap;

use bulkhead_config::KubeletConfiguration;
use bulkhead_model::quantity::{Format, Quantity};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;

use crate::host::HostFacts;

/// Resource name to quantity.
pub(crate) type Resources = BTreeMap<String, ApiQuantity>;

/// What the configuration says about the node's resources.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Limits {
    /// `maxPods`.
    pub(crate) max_pods: u64,
    /// `podsPerCore`; 0: no such limit.
    pub(crate) pods_per_core: u64,
    /// `evictionHard` of `memory.available`.
    pub(crate) memory: Option<Threshold>,
    /// `evictionHard` of `nodefs.available`.
    pub(crate) disk: Option<Threshold>,
}

/// A part that is kept free.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Threshold {
    /// So many bytes.
    Bytes(u64),
    /// This share of the whole, in single precision as the kubelet keeps it: it shows in the last digits.
    Share(f32),
}

impl Limits {
    /// From the configuration.
    pub(crate) fn new(config: &KubeletConfiguration) -> Self {
        let threshold =
            |signal: &str| config.eviction_hard.get(signal).and_then(|text| Threshold::parse(text));
        Self {
            max_pods: u64::try_from(config.max_pods).unwrap_or(0),
            pods_per_core: u64::try_from(config.pods_per_core).unwrap_or(0),
            memory: threshold("memory.available"),
            disk: threshold("nodefs.available"),
        }
    }

    fn pods(&self, cpus: Option<u64>) -> u64 {
        match cpus {
            Some(cpus) if self.pods_per_core > 0 => {
                self.max_pods.min(self.pods_per_core.saturating_mul(cpus))
            }
            _ => self.max_pods,
        }
    }
}

impl Threshold {
    /// A quantity or a percentage; `None` when it is neither.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        match text.strip_suffix('%') {
            Some(percent) => {
                let percent: f32 = percent.parse().ok()?;
                (0.0..=100.0).contains(&percent).then_some(Self::Share(percent / 100.0))
            }
            None => Some(Self::Bytes(u64::try_from(Quantity::parse(text).ok()?.value()).ok()?)),
        }
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a share is 0 to 1, so the product lies between 0 and `whole`"
    )]
    fn of(self, whole: u64) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Share(share) => (whole as f64 * f64::from(share)) as u64,
        }
    }
}

/// `status.capacity`.
pub(crate) fn capacity(host: &HostFacts, limits: &Limits) -> Resources {
    resources(host, limits, host.memory, host.disk)
}

/// `status.allocatable`.
pub(crate) fn allocatable(host: &HostFacts, limits: &Limits) -> Resources {
    let less = |whole: u64, threshold: Option<Threshold>| {
        whole.saturating_sub(threshold.map_or(0, |threshold| threshold.of(whole)))
    };
    let huge = host
        .huge_pages
        .iter()
        .fold(0_u64, |sum, (size, count)| sum.saturating_add(size.saturating_mul(*count)));
    let memory = host.memory.map(|memory| less(memory, limits.memory).saturating_sub(huge));
    resources(host, limits, memory, host.disk.map(|disk| less(disk, limits.disk)))
}

fn resources(host: &HostFacts, limits: &Limits, memory: Option<u64>, disk: Option<u64>) -> Resources {
    let huge = host.huge_pages.iter().map(|(size, count)| {
        let name = format!("hugepages-{}", quantity(*size, Format::BinarySi));
        (name, Some(size.saturating_mul(*count)), Format::BinarySi)
    });
    let plain = [
        ("cpu", host.cpus, Format::DecimalSi),
        ("memory", memory, Format::BinarySi),
        ("ephemeral-storage", disk, Format::DecimalSi),
        ("pods", Some(limits.pods(host.cpus)), Format::DecimalSi),
    ];
    let plain = plain.map(|(name, value, format)| (name.to_owned(), value, format));
    let known = plain.into_iter().chain(huge);
    known
        .filter_map(|(name, value, format)| Some((name, ApiQuantity(quantity(value?, format).to_string()))))
        .collect()
}

fn quantity(value: u64, format: Format) -> Quantity {
    Quantity::from_value(i64::try_from(value).unwrap_or(i64::MAX), format)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host() -> HostFacts {
        HostFacts {
            cpus: Some(2),
            memory: Some(24_684_084 * 1024),
            huge_pages: [(2 << 20, 0), (1 << 30, 0)].into(),
            disk: Some(270_553_174_016),
            ..HostFacts::default()
        }
    }

    fn of(resources: &Resources, name: &str) -> String {
        resources.get(name).map(|quantity| quantity.0.clone()).unwrap_or_default()
    }

    #[test]
    fn thresholds() {
        for (text, threshold) in [
            ("100Mi", Some(Threshold::Bytes(100 << 20))),
            ("10%", Some(Threshold::Share(0.1))),
            ("0%", Some(Threshold::Share(0.0))),
            ("101%", None),
            ("-1%", None),
            ("nan%", None),
            ("-1", None),
            ("", None),
        ] {
            assert_eq!(Threshold::parse(text), threshold, "{text}");
        }
    }

    #[test]
    fn the_figures_are_the_kubelets() {
        let limits = Limits::new(&KubeletConfiguration::default());
        let (has, usable) = (capacity(&host(), &limits), allocatable(&host(), &limits));
        for (name, capacity, allocatable) in [
            ("cpu", "2", "2"),
            ("memory", "24684084Ki", "24581684Ki"),
            ("ephemeral-storage", "270553174016", "243497856212"),
            ("pods", "110", "110"),
            ("hugepages-2Mi", "0", "0"),
            ("hugepages-1Gi", "0", "0"),
        ] {
            assert_eq!((of(&has, name), of(&usable, name)), (capacity.into(), allocatable.into()), "{name}");
        }
        assert_eq!((has.len(), usable.len()), (6, 6));
    }

    #[test]
    fn huge_pages_are_taken_out_of_memory() {
        let mut host = host();
        host.huge_pages = [(2 << 20, 512)].into();
        let limits = Limits { max_pods: 110, ..Limits::default() };
        assert_eq!(of(&capacity(&host, &limits), "hugepages-2Mi"), "1Gi");
        assert_eq!(of(&capacity(&host, &limits), "memory"), "24684084Ki");
        assert_eq!(of(&allocatable(&host, &limits), "memory"), "23635508Ki");
        host.memory = Some(1 << 20);
        assert_eq!(of(&allocatable(&host, &limits), "memory"), "0", "never below zero");
    }

    #[test]
    fn pods_are_bounded_by_cores() {
        for (cpus, per_core, pods) in
            [(Some(2), 0, "110"), (Some(2), 10, "20"), (Some(20), 10, "110"), (None, 10, "110")]
        {
            let host = HostFacts { cpus, ..host() };
            let limits = Limits { max_pods: 110, pods_per_core: per_core, ..Limits::default() };
            assert_eq!(of(&capacity(&host, &limits), "pods"), pods);
        }
    }

    #[test]
    fn what_is_not_known_is_left_out() {
        let limits = Limits::new(&KubeletConfiguration::default());
        let names: Vec<String> = allocatable(&HostFacts::default(), &limits).into_keys().collect();
        assert_eq!(names, ["pods"]);
    }
}
