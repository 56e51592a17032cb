//! What is noted about pods that start.

use std::time::Duration;

use serde::Serialize;

/// Starts of many pods.
#[derive(Clone, Debug, Serialize)]
pub struct Starts {
    /// From the first request to the last pod that runs, in seconds.
    pub all_s: f64,
    /// How long the median pod waited since all were asked for, in seconds.
    pub median_s: f64,
    /// How long the first pod waited, in seconds.
    pub first_s: f64,
}

impl Starts {
    /// From how long each pod waited.
    pub fn new(mut waits: Vec<Duration>) -> Self {
        waits.sort_unstable();
        let at = |index: usize| waits.get(index).map_or(0.0, Duration::as_secs_f64);
        Self { all_s: at(waits.len().saturating_sub(1)), median_s: at(waits.len() / 2), first_s: at(0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_put_in_order() {
        let starts = Starts::new([3, 1, 2].map(Duration::from_secs).into());
        assert_eq!((starts.first_s, starts.median_s, starts.all_s), (1.0, 2.0, 3.0));
        assert_eq!(Starts::new(Vec::new()).all_s, 0.0);
    }
}
