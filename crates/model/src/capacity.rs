//! What a machine has, and what of it pods may use.
//!
//! Allocatable is capacity less the hard eviction thresholds of memory and disk (the API's "Reserve Compute Resources"),
//! and memory less the huge pages that were taken out of it. Figures and their form are the kubelet's. Must never read a
//! file: [`crate::admission`] and the node's status both start from the same facts.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;

use crate::eviction;
use crate::quantity::{Format, Quantity};
use crate::resources::ResourceList;

/// What the machine has. `None` where that could not be read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Machine {
    /// CPUs that are online.
    pub cpus: Option<u64>,
    /// Bytes of memory.
    pub memory: Option<u64>,
    /// Number of preallocated huge pages by their size in bytes.
    pub huge_pages: BTreeMap<u64, u64>,
    /// Bytes of the file system of pods' folders.
    pub disk: Option<u64>,
}

/// What the configuration says about the node's resources.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Limits {
    /// `maxPods`.
    pub max_pods: u64,
    /// `podsPerCore`; 0: no such limit.
    pub pods_per_core: u64,
    /// `evictionHard` of `memory.available`.
    pub memory: Option<Threshold>,
    /// `evictionHard` of `nodefs.available`.
    pub disk: Option<Threshold>,
}

impl Limits {
    /// From the fields of KubeletConfiguration that have these names. A negative number counts as 0, and a threshold that
    /// is switched off or cannot be understood as none.
    pub fn configured(max_pods: i32, pods_per_core: i32, eviction_hard: &BTreeMap<String, String>) -> Self {
        let (thresholds, _) = eviction::thresholds(eviction_hard);
        let threshold = |signal: &str| thresholds.get(signal).copied();
        Self {
            max_pods: u64::try_from(max_pods).unwrap_or(0),
            pods_per_core: u64::try_from(pods_per_core).unwrap_or(0),
            memory: threshold("memory.available"),
            disk: threshold("nodefs.available"),
        }
    }
}

/// A part that is kept free.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Threshold {
    /// So many bytes.
    Bytes(u64),
    /// This share of the whole, in single precision as the kubelet keeps it: it shows in the last digits.
    Share(f32),
}

impl Limits {
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
    pub fn parse(text: &str) -> Option<Self> {
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
        clippy::cast_precision_loss,
        reason = "a share is 0 to 1, so the product lies between 0 and `whole`"
    )]
    /// In bytes (or pieces), of a whole of this size.
    pub fn of(self, whole: u64) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Share(share) => (whole as f64 * f64::from(share)) as u64,
        }
    }
}

/// `status.capacity`. What is not known is left out.
pub fn capacity(machine: &Machine, limits: &Limits) -> ResourceList {
    resources(machine, limits, machine.memory, machine.disk)
}

/// `status.allocatable`. What is not known is left out.
pub fn allocatable(machine: &Machine, limits: &Limits) -> ResourceList {
    let less = |whole: u64, threshold: Option<Threshold>| {
        whole.saturating_sub(threshold.map_or(0, |threshold| threshold.of(whole)))
    };
    let huge = machine
        .huge_pages
        .iter()
        .fold(0_u64, |sum, (size, count)| sum.saturating_add(size.saturating_mul(*count)));
    let memory = machine.memory.map(|memory| less(memory, limits.memory).saturating_sub(huge));
    resources(machine, limits, memory, machine.disk.map(|disk| less(disk, limits.disk)))
}

/// The resource of huge pages of this many bytes: `hugepages-2Mi`.
pub fn huge_page_resource(bytes: u64) -> String {
    format!("hugepages-{}", quantity(bytes, Format::BinarySi))
}

/// Huge pages of this many bytes, as the kernel names them in the hugetlb controller's files: `2MB`, `1GB`.
pub fn huge_page_name(bytes: u64) -> String {
    let units = [(1 << 30, "GB"), (1 << 20, "MB"), (1 << 10, "KB")];
    let unit = units.into_iter().find(|(size, _)| bytes >= *size);
    unit.map_or_else(|| format!("{bytes}B"), |(size, name)| format!("{}{name}", bytes / size))
}

/// Bytes of `MemTotal` in /proc/meminfo.
pub fn memory_total(meminfo: &str) -> Option<u64> {
    let total = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix("kB"))?;
    total.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// How many CPUs a list such as `0-3,8` names.
pub fn cpu_count(list: &str) -> Option<u64> {
    let mut count = 0_u64;
    for range in list.trim().split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last) = (first.parse::<u32>().ok()?, last.parse::<u32>().ok()?);
        count += u64::from(last.checked_sub(first)?) + 1;
    }
    Some(count)
}

/// Bytes of a page by the name of its folder, `hugepages-2048kB`.
pub fn huge_page_size(folder: &str) -> Option<u64> {
    folder.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse::<u64>().ok()?.checked_mul(1024)
}

fn resources(machine: &Machine, limits: &Limits, memory: Option<u64>, disk: Option<u64>) -> ResourceList {
    let huge = machine.huge_pages.iter().map(|(size, count)| {
        (huge_page_resource(*size), Some(size.saturating_mul(*count)), Format::BinarySi)
    });
    let plain = [
        ("cpu", machine.cpus, Format::DecimalSi),
        ("memory", memory, Format::BinarySi),
        ("ephemeral-storage", disk, Format::DecimalSi),
        ("pods", Some(limits.pods(machine.cpus)), Format::DecimalSi),
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

    fn machine() -> Machine {
        Machine {
            cpus: Some(2),
            memory: Some(24_684_084 * 1024),
            huge_pages: [(2 << 20, 0), (1 << 30, 0)].into(),
            disk: Some(270_553_174_016),
        }
    }

    fn of(resources: &ResourceList, name: &str) -> String {
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

    /// With the kubelet's defaults, on a machine whose kubelet was asked.
    #[test]
    fn the_figures_are_the_kubelets() {
        let limits = Limits {
            max_pods: 110,
            pods_per_core: 0,
            memory: Threshold::parse("100Mi"),
            disk: Threshold::parse("10%"),
        };
        let (has, usable) = (capacity(&machine(), &limits), allocatable(&machine(), &limits));
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
        let mut machine = machine();
        machine.huge_pages = [(2 << 20, 512)].into();
        let limits = Limits { max_pods: 110, ..Limits::default() };
        assert_eq!(of(&capacity(&machine, &limits), "hugepages-2Mi"), "1Gi");
        assert_eq!(of(&capacity(&machine, &limits), "memory"), "24684084Ki");
        assert_eq!(of(&allocatable(&machine, &limits), "memory"), "23635508Ki");
        machine.memory = Some(1 << 20);
        assert_eq!(of(&allocatable(&machine, &limits), "memory"), "0", "never below zero");
    }

    #[test]
    fn pods_are_bounded_by_cores() {
        for (cpus, per_core, pods) in
            [(Some(2), 0, "110"), (Some(2), 10, "20"), (Some(20), 10, "110"), (None, 10, "110")]
        {
            let machine = Machine { cpus, ..machine() };
            let limits = Limits { max_pods: 110, pods_per_core: per_core, ..Limits::default() };
            assert_eq!(of(&capacity(&machine, &limits), "pods"), pods);
        }
    }

    #[test]
    fn what_is_not_known_is_left_out() {
        let names: Vec<String> = allocatable(&Machine::default(), &Limits::default()).into_keys().collect();
        assert_eq!(names, ["pods"]);
    }

    #[test]
    fn memory() {
        for (text, bytes) in [
            ("MemTotal:       24684084 kB\nMemFree:  1 kB\n", Some(24_684_084 * 1024)),
            ("MemFree: 1 kB\nMemTotal: 2 kB", Some(2048)),
            ("MemTotal: 2", None),
            ("MemTotal: -2 kB", None),
            ("MemTotal: 18446744073709551615 kB", None),
            ("", None),
        ] {
            assert_eq!(memory_total(text), bytes, "{text}");
        }
    }

    #[test]
    fn cpus() {
        for (text, count) in [
            ("0\n", Some(1)),
            ("0-1\n", Some(2)),
            ("0-3,8,10-11", Some(7)),
            ("3-1", None),
            ("", None),
            ("a", None),
            ("0-4294967295", Some(1 << 32)),
            ("0,", None),
        ] {
            assert_eq!(cpu_count(text), count, "{text}");
        }
    }

    #[test]
    fn page_sizes() {
        for (folder, size) in [
            ("hugepages-2048kB", Some(2 << 20)),
            ("hugepages-1048576kB", Some(1 << 30)),
            ("hugepages-kB", None),
            ("hugepages-2048", None),
            ("other", None),
        ] {
            assert_eq!(huge_page_size(folder), size, "{folder}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_survived(text in "(MemTotal:|hugepages-)?[-0-9,kB \n]{0,40}") {
            let _ = (memory_total(&text), cpu_count(&text), huge_page_size(&text), Threshold::parse(&text));
        }
    }
}
