//! Which values mean "not set". The API cannot tell zero from absent in these fields, and tools such as kubeadm
//! write `0s` and `""` for them.

use crate::duration::Duration;
use crate::tree::{Entry, Node, Value};

/// The zero that means "the default, please".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Zero {
    Text,
    Number,
    Time,
}

use Zero::{Number, Text, Time};

/// Fields whose zero is their default in the kubelet, because the API type is not optional.
const ZERO_IS_UNSET: &[(&str, Zero)] = &[
    ("podLogsDir", Text),
    ("syncFrequency", Time),
    ("fileCheckFrequency", Time),
    ("httpCheckFrequency", Time),
    ("address", Text),
    ("port", Number),
    ("authentication.webhook.cacheTTL", Time),
    ("authorization.mode", Text),
    ("authorization.webhook.cacheAuthorizedTTL", Time),
    ("authorization.webhook.cacheUnauthorizedTTL", Time),
    ("registryBurst", Number),
    ("imagePullCredentialsVerificationPolicy", Text),
    ("eventBurst", Number),
    ("healthzBindAddress", Text),
    ("streamingConnectionIdleTimeout", Time),
    ("nodeStatusUpdateFrequency", Time),
    ("nodeStatusReportFrequency", Time),
    ("nodeLeaseDurationSeconds", Number),
    ("imageMinimumGCAge", Time),
    ("volumeStatsAggPeriod", Time),
    ("cgroupDriver", Text),
    ("cpuManagerPolicy", Text),
    ("cpuManagerReconcilePeriod", Time),
    ("memoryManagerPolicy", Text),
    ("topologyManagerPolicy", Text),
    ("topologyManagerScope", Text),
    ("runtimeRequestTimeout", Time),
    ("hairpinMode", Text),
    ("maxPods", Number),
    ("maxOpenFiles", Number),
    ("contentType", Text),
    ("kubeAPIBurst", Number),
    ("evictionPressureTransitionPeriod", Time),
    ("containerLogMaxSize", Text),
    ("configMapAndSecretChangeDetectionStrategy", Text),
    ("volumePluginDir", Text),
    ("logging.format", Text),
    ("logging.flushFrequency", Time),
    ("logging.flushFrequency", Number),
    ("memoryReservationPolicy", Text),
    ("containerRuntimeEndpoint", Text),
];

const UPDATE: &str = "nodeStatusUpdateFrequency";
const REPORT: &str = "nodeStatusReportFrequency";

/// Turns every zero that means "not set" into a null, in one file. A drop-in's zero then sets a field back to its
/// default, as it does in the kubelet.
pub(crate) fn unset_zeroes(root: &mut Node) {
    for (path, zero) in ZERO_IS_UNSET {
        let Some(entry) = root.entry_mut(path) else { continue };
        let is_zero = match (zero, &entry.node.value) {
            (Text, Value::Text(text)) => text.is_empty(),
            (Number, Value::Unsigned(number)) => *number == 0,
            (Time, Value::Text(text)) => text.parse() == Ok(Duration::ZERO),
            _ => false,
        };
        if is_zero {
            entry.node.value = Value::Null;
        }
    }
}

/// The node status is reported as often as it is computed when only the latter is set. For the merged files.
pub(crate) fn derive_report_frequency(root: &mut Node) {
    let is_set = |entry: &&Entry| entry.node.value != Value::Null;
    let Some(update) = root.entry(UPDATE).filter(is_set).cloned() else { return };
    if root.entry(REPORT).filter(is_set).is_some() {
        return;
    }
    root.remove(REPORT);
    if let Value::Map(entries) = &mut root.value {
        entries.push(Entry { key: REPORT.to_owned(), ..update });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::KubeletConfiguration;

    #[test]
    fn the_table_names_fields_whose_default_is_another_value() {
        let defaults = serde_json::to_value(KubeletConfiguration::default()).unwrap();
        for (path, zero) in ZERO_IS_UNSET {
            let pointer = format!("/{}", path.replace('.', "/"));
            let default = defaults.pointer(&pointer).unwrap_or_else(|| panic!("{path} has no default"));
            let same_kind = default.is_number() == (*zero == Number) || *path == "logging.flushFrequency";
            assert!(same_kind, "{path}: {default} is no {zero:?}");
        }
    }

    #[test]
    fn only_the_zero_of_the_right_kind_is_unset() {
        let text = "podLogsDir: \"\"\nmaxPods: 0\nsyncFrequency: 0s\nreadOnlyPort: 0\nclusterDomain: \"\"\n\
                    containerLogMaxSize: \"0\"\nimageMaximumGCAge: 0s\nlogging: {flushFrequency: 0, format: \"\"}\n";
        let mut root = crate::tree::read(text.as_bytes(), 0, "f").unwrap();
        unset_zeroes(&mut root);
        let unset = |path: &str| root.entry(path).unwrap().node.value == Value::Null;
        for path in ["podLogsDir", "maxPods", "syncFrequency", "logging.flushFrequency", "logging.format"] {
            assert!(unset(path), "{path}");
        }
        for path in ["readOnlyPort", "clusterDomain", "containerLogMaxSize", "imageMaximumGCAge"] {
            assert!(!unset(path), "{path}");
        }
    }
}
