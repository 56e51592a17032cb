//! What imaged takes from the node's configuration.

use std::num::NonZeroUsize;

use bulkhead_config::KubeletConfiguration;

pub use crate::bucket::Rate;
pub use crate::failures::BackOff;

/// How images are pulled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Pulls that may run at once: `serializeImagePulls`, `maxParallelImagePulls`.
    pub parallel_pulls: NonZeroUsize,
    /// How many pulls may start: `registryPullQPS`, `registryBurst`. `None`: any number.
    pub rate: Option<Rate>,
    /// Waits after failed pulls. The kubelet's cannot be configured either.
    pub back_off: BackOff,
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
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_one_pull_at_a_time_and_five_a_second() {
        let settings = Settings::from_configuration(&KubeletConfiguration::default());
        assert_eq!(settings.parallel_pulls.get(), 1);
        assert_eq!(settings.rate, Some(Rate { per_second: 5, burst: 10 }));
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
