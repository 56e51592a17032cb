//! What people are told of a pod that was evicted because the node ran short (the kubelet's texts).

use crate::quantity::{Format, Quantity};

use super::pressure::Signal;

/// What the node was short of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shortage {
    /// What was looked at.
    pub signal: Signal,
    /// The threshold, in bytes or pieces.
    pub threshold: u64,
    /// What was left.
    pub available: u64,
}

/// What one container takes of what the node is short of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerUse {
    /// Its name.
    pub name: String,
    /// In bytes; `None` when it was not measured.
    pub used: Option<u64>,
    /// What it asked for, in bytes.
    pub request: u64,
}

/// The pod's `status.message`.
pub fn node_message(shortage: Shortage, containers: &[ContainerUse]) -> String {
    let resource = shortage.signal.resource();
    let figure = |value: u64| quantity(value, shortage.signal.format()).to_string();
    let mut text = format!(
        "The node was low on resource: {resource}. Threshold quantity: {}, available: {}. ",
        figure(shortage.threshold),
        figure(shortage.available)
    );
    for container in containers {
        let Some(used) = container.used.filter(|used| *used > container.request) else { continue };
        text.push_str(&format!(
            "Container {} was using {}, request is {}, has larger consumption of {resource}. ",
            container.name,
            quantity(used, Format::BinarySi),
            quantity(container.request, Format::BinarySi)
        ));
    }
    text
}

fn quantity(value: u64, format: Format) -> Quantity {
    Quantity::from_value(i64::try_from(value).unwrap_or(i64::MAX), format)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_names_the_threshold_and_who_took_more_than_it_asked_for() {
        let container = |name: &str, used, request| ContainerUse { name: name.to_owned(), used, request };
        let containers = [
            container("c", Some(40 << 20), 0),
            container("modest", Some(1 << 20), 1 << 20),
            container("unknown", None, 0),
            container("d", Some((2 << 20) + 1), 2 << 20),
        ];
        let shortage =
            Shortage { signal: Signal::MemoryAvailable, threshold: 100 << 20, available: 50 << 20 };
        assert_eq!(
            node_message(shortage, &containers[..3]),
            "The node was low on resource: memory. Threshold quantity: 100Mi, available: 50Mi. \
             Container c was using 40Mi, request is 0, has larger consumption of memory. "
        );
        assert!(
            node_message(shortage, &containers).ends_with(
                "Container d was using 2097153, request is 2Mi, has larger consumption of memory. "
            )
        );
        let shortage = Shortage { signal: Signal::PidAvailable, threshold: 1000, available: 12 };
        assert_eq!(
            node_message(shortage, &[]),
            "The node was low on resource: pids. Threshold quantity: 1k, available: 12. "
        );
    }
}
