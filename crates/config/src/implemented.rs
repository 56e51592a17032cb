//! Which fields this release acts on. Any other field may only have its default.

use serde_json::Value as Json;

use crate::error::Problem;
use crate::kubelet::KubeletConfiguration;

/// A field that this release acts on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Implemented {
    /// The dotted path of the field.
    pub field: &'static str,
    /// Which of its values are supported.
    pub values: Values,
}

/// The values of a field that this release supports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Values {
    /// Whatever is valid.
    Any,
    /// These, as they are printed in JSON without quotes.
    Only(&'static [&'static str]),
}

const fn any(field: &'static str) -> Implemented {
    Implemented { field, values: Values::Any }
}

const fn only(field: &'static str, values: &'static [&'static str]) -> Implemented {
    Implemented { field, values: Values::Only(values) }
}

/// Every field that this release acts on.
pub const IMPLEMENTED: &[Implemented] = &[
    any("staticPodPath"),
    any("fileCheckFrequency"),
    any("staticPodURL"),
    any("staticPodURLHeader"),
    any("httpCheckFrequency"),
    any("podLogsDir"),
    any("syncFrequency"),
    any("readOnlyPort"),
    any("address"),
    any("port"),
    any("enableServer"),
    any("tlsCertFile"),
    any("tlsPrivateKeyFile"),
    any("tlsCipherSuites"),
    any("tlsMinVersion"),
    any("serverTLSBootstrap"),
    any("authentication.x509.clientCAFile"),
    any("authentication.webhook.enabled"),
    any("authentication.webhook.cacheTTL"),
    any("authentication.anonymous.enabled"),
    any("authorization.mode"),
    any("authorization.webhook.cacheAuthorizedTTL"),
    any("authorization.webhook.cacheUnauthorizedTTL"),
    any("enableDebuggingHandlers"),
    any("enableSystemLogHandler"),
    any("enableProfilingHandler"),
    any("enableDebugFlagsHandler"),
    any("streamingConnectionIdleTimeout"),
    any("healthzPort"),
    any("healthzBindAddress"),
    any("oomScoreAdj"),
    any("cgroupRoot"),
    only("cgroupDriver", &["cgroupfs"]),
    only("cgroupsPerQOS", &["true"]),
    any("cpuCFSQuota"),
    any("cpuCFSQuotaPeriod"),
    any("podPidsLimit"),
    any("memoryThrottlingFactor"),
    any("memoryReservationPolicy"),
    any("featureGates.MemoryQoS"),
    any("maxPods"),
    any("podsPerCore"),
    any("resolvConf"),
    any("clusterDNS"),
    any("clusterDomain"),
    any("allowedUnsafeSysctls"),
    any("seccompDefault"),
    any("runtimeRequestTimeout"),
    any("containerRuntimeEndpoint"),
    any("imageServiceEndpoint"),
    any("serializeImagePulls"),
    any("maxParallelImagePulls"),
    any("registryPullQPS"),
    any("registryBurst"),
    any("imagePullCredentialsVerificationPolicy"),
    any("preloadedImagesVerificationAllowlist"),
    any("configMapAndSecretChangeDetectionStrategy"),
    any("crashLoopBackOff.maxContainerRestartPeriod"),
    any("nodeStatusUpdateFrequency"),
    any("nodeStatusReportFrequency"),
    any("nodeStatusMaxImages"),
    any("nodeLeaseDurationSeconds"),
    any("registerNode"),
    any("registerWithTaints"),
    any("providerID"),
    any("eventRecordQPS"),
    any("eventBurst"),
    any("makeIPTablesUtilChains"),
    any("imageMinimumGCAge"),
    any("imageMaximumGCAge"),
    any("imageGCHighThresholdPercent"),
    any("imageGCLowThresholdPercent"),
    any("evictionHard"),
    any("evictionSoft"),
    any("evictionSoftGracePeriod"),
    any("evictionMinimumReclaim"),
    any("evictionMaxPodGracePeriod"),
    any("evictionPressureTransitionPeriod"),
    any("mergeDefaultEvictionSettings"),
    any("localStorageCapacityIsolation"),
    any("rotateCertificates"),
    any("failCgroupV1"),
    any("failSwapOn"),
    any("logging.format"),
    any("logging.verbosity"),
];

/// Blocks whose fields are looked at one by one. Anything else is looked at as a whole.
const BLOCKS: &[&str] = &[
    "authentication",
    "authentication.x509",
    "authentication.webhook",
    "authentication.anonymous",
    "authorization",
    "authorization.webhook",
    "crashLoopBackOff",
    "featureGates",
    "logging",
    "logging.options",
    "logging.options.text",
    "logging.options.json",
    "memorySwap",
];

/// Every field that this release does not implement and that has another value than its default, and every value that
/// it does not support. Empty: this release does all that the configuration asks for.
pub fn unimplemented(config: &KubeletConfiguration) -> Vec<Problem> {
    let (Ok(set), Ok(default)) =
        (serde_json::to_value(config), serde_json::to_value(KubeletConfiguration::default()))
    else {
        return vec![Problem::of("", "the configuration cannot be compared with the defaults")];
    };
    let mut problems = Vec::new();
    compare("", &set, &default, &mut problems);
    problems
}

fn compare(block: &str, set: &Json, default: &Json, problems: &mut Vec<Problem>) {
    // A map that is empty is not printed.
    let empty = serde_json::Map::new();
    let set = set.as_object().unwrap_or(&empty);
    let default = default.as_object().unwrap_or(&empty);
    let mut names: Vec<&String> =
        set.keys().chain(default.keys().filter(|key| !set.contains_key(*key))).collect();
    names.sort_unstable();
    for name in names {
        let field = crate::tree::join(block, name);
        let (value, default) =
            (set.get(name).unwrap_or(&Json::Null), default.get(name).unwrap_or(&Json::Null));
        if BLOCKS.contains(&field.as_str()) {
            compare(&field, value, default, problems);
        } else if value != default {
            problems.extend(refusal(&field, value, default));
        }
    }
}

fn refusal(field: &str, value: &Json, default: &Json) -> Option<Problem> {
    let message = match IMPLEMENTED.iter().find(|entry| entry.field == field).map(|entry| entry.values) {
        Some(Values::Any) => return None,
        Some(Values::Only(values)) if values.contains(&bare(value).as_str()) => return None,
        Some(Values::Only(values)) => format!(
            "this release of bulkhead implements only {}; remove it or set it to that",
            values.join(", ")
        ),
        None if default.is_null() => {
            "this release of bulkhead does not implement it; remove it (by default it is not set)".to_owned()
        }
        None => format!(
            "this release of bulkhead does not implement it; remove it or set it to its default {}",
            bare(default)
        ),
    };
    Some(Problem::of(field, message))
}

fn bare(value: &Json) -> String {
    value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kubelet::every_field_set;
    use std::collections::BTreeSet;

    /// The dotted paths of all fields, blocks opened.
    fn all_fields() -> BTreeSet<String> {
        fn walk(block: &str, value: &Json, into: &mut BTreeSet<String>) {
            for (name, value) in value.as_object().into_iter().flatten() {
                let field = crate::tree::join(block, name);
                if BLOCKS.contains(&field.as_str()) {
                    assert!(value.is_object(), "{field} is no block");
                    walk(&field, value, into);
                }
                into.insert(field);
            }
        }
        let mut fields = BTreeSet::new();
        walk("", &serde_json::to_value(every_field_set()).unwrap(), &mut fields);
        fields
    }

    #[test]
    fn the_tables_name_real_fields_once() {
        let fields = all_fields();
        let named: Vec<_> =
            IMPLEMENTED.iter().map(|entry| entry.field).chain(BLOCKS.iter().copied()).collect();
        for field in &named {
            assert!(fields.contains(*field), "{field} does not exist");
        }
        assert_eq!(named.iter().collect::<BTreeSet<_>>().len(), named.len(), "named twice");
        assert!(IMPLEMENTED.iter().all(|entry| entry.values != Values::Only(&[])));
    }

    #[test]
    fn the_defaults_ask_for_nothing_that_is_missing() {
        assert_eq!(unimplemented(&KubeletConfiguration::default()), []);
    }

    /// No field can be set without being implemented or refused.
    #[test]
    fn every_other_field_is_refused_by_name() {
        let implemented: BTreeSet<_> = IMPLEMENTED
            .iter()
            .filter(|entry| entry.values == Values::Any)
            .map(|entry| entry.field.to_owned())
            .chain(BLOCKS.iter().map(|block| (*block).to_owned()))
            .collect();
        let expected: Vec<_> = all_fields().difference(&implemented).cloned().collect();
        let mut refused: Vec<_> =
            unimplemented(&every_field_set()).into_iter().map(|problem| problem.field).collect();
        refused.sort_unstable();
        assert_eq!(refused, expected);
    }

    #[test]
    fn the_message_says_what_to_do() {
        let config = KubeletConfiguration {
            cgroup_driver: "systemd".into(),
            pod_cidr: "10.0.0.0/24".into(),
            kube_api_burst: 7,
            ..Default::default()
        };
        let text: Vec<_> = unimplemented(&config).iter().map(ToString::to_string).collect();
        assert_eq!(
            text,
            [
                "field cgroupDriver: this release of bulkhead implements only cgroupfs; remove it or set it to that",
                "field kubeAPIBurst: this release of bulkhead does not implement it; remove it or set it to its default 100",
                "field podCIDR: this release of bulkhead does not implement it; remove it (by default it is not set)",
            ]
        );
    }
}
