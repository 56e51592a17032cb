//! What imaged takes from the node's configuration.

use std::num::NonZeroUsize;

use bulkhead_config::KubeletConfiguration;

pub use crate::bucket::Rate;
pub use crate::failures::BackOff;
pub use crate::gc::Limits;

/// How images are pulled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Pulls that may run at once: `serializeImagePulls`, `maxParallelImagePulls`.
    pub parallel_pulls: NonZeroUsize,
    /// How many pulls may start: `registryPullQPS`, `registryBurst`. `None`: any number.
    pub rate: Option<Rate>,
    /// Waits after failed pulls. The kubelet's cannot be configured either.
    pub back_off: BackOff,
    /// When unused images go: `imageGCHighThresholdPercent`, `imageGCLowThresholdPercent`, `imageMinimumGCAge`,
    /// `imageMaximumGCAge`.
    pub garbage: Limits,
}

impl Settings {
    /// From the configuration file's fields.
    pub fn from_configuration(config: &KubeletConfiguration) -> Self {
        // Without serializeImagePulls the default is no limit; the table of pulls is bounded in any case.
        let limit = match (config.serialize_image_pulls, config.max_parallel_image_pulls) {
            (true, _) => 1,
            (false, limit) => limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX),
        };
        let per_second = u32::try_from(config.registry_pull_qps).unwrap_or(0);
        let burst = u32::try_from(config.registry_burst).unwrap_or(0);
        Self {
            parallel_pulls: NonZeroUsize::new(limit).unwrap_or(NonZeroUsize::MIN),
            // 0 is the kubelet's "no limit".
            rate: (per_second > 0).then_some(Rate { per_second, burst }),
            back_off: BackOff::default(),
            garbage: garbage(config),
        }
    }
}

fn garbage(config: &KubeletConfiguration) -> Limits {
    let percent = |share: i32| u8::try_from(share.clamp(0, 100)).unwrap_or(100);
    let longest = config.image_maximum_gc_age.to_std();
    Limits {
        high: percent(config.image_gc_high_threshold_percent),
        low: percent(config.image_gc_low_threshold_percent),
        least_age: config.image_minimum_gc_age.to_std(),
        longest_unused: (!longest.is_zero()).then_some(longest),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn defaults_are_one_pull_at_a_time_and_five_a_second() {
        let settings = Settings::from_configuration(&KubeletConfiguration::default());
        assert_eq!(settings.parallel_pulls.get(), 1);
        assert_eq!(settings.rate, Some(Rate { per_second: 5, burst: 10 }));
        let garbage = Limits { high: 85, low: 80, least_age: Duration::from_secs(120), longest_unused: None };
        assert_eq!(settings.garbage, garbage);
        assert_eq!((settings.back_off.first.as_secs(), settings.back_off.longest.as_secs()), (10, 300));
    }

    #[test]
    fn the_fields_say_how_many() {
        for (serialize, most, parallel) in [
            (true, None, 1),
            (true, Some(7), 1),
            (false, None, usize::MAX),
            (false, Some(7), 7),
            (false, Some(1), 1),
        ] {
            let config = KubeletConfiguration {
                serialize_image_pulls: serialize,
                max_parallel_image_pulls: most,
                registry_pull_qps: 0,
                ..KubeletConfiguration::default()
            };
            let settings = Settings::from_configuration(&config);
            assert_eq!(settings.parallel_pulls.get(), parallel, "{serialize} {most:?}");
            assert_eq!(settings.rate, None);
        }
    }
}
