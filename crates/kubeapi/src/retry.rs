//! When a watch that broke is begun again.

use std::time::Duration;

use bulkhead_base::Backoff;

/// First and longest wait. Short: what went wrong in an outage of hours must be right within seconds after it. One node's
/// watches are few, and go over one connection.
const BOUNDS: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(5));

/// Waits between tries of a [`kube::runtime::watcher()`], for its stream's `backoff`.
#[derive(Clone, Debug)]
pub struct Retry(Backoff);

impl Default for Retry {
    fn default() -> Self {
        Self(Backoff::new(BOUNDS.0, BOUNDS.1))
    }
}

impl Iterator for Retry {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        Some(self.0.next_delay())
    }
}

impl kube::runtime::utils::Backoff for Retry {
    fn reset(&mut self) {
        self.0.reset();
    }
}

#[cfg(test)]
mod tests {
    use kube::runtime::utils::Backoff;

    use super::*;

    #[test]
    fn a_long_outage_is_noticed_to_be_over_soon() {
        let mut retry = Retry::default();
        assert_eq!(retry.next(), Some(Duration::from_millis(500)));
        assert_eq!(retry.by_ref().take(20).last(), Some(Duration::from_secs(5)));
        retry.reset();
        assert_eq!(retry.next(), Some(Duration::from_millis(500)));
    }
}
