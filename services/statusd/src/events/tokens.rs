//! A token bucket. Pure: `now` is any time that only goes on.

use std::time::Duration;

/// How much is let through.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Rate {
    /// Tokens that come back in a second.
    pub(super) per_second: f64,
    /// Most tokens there are at a time.
    pub(super) burst: u32,
}

/// The tokens that are left.
#[derive(Clone, Debug)]
pub(super) struct Tokens {
    left: f64,
    at: Duration,
}

impl Tokens {
    /// All of them.
    pub(super) fn full(rate: Rate, now: Duration) -> Self {
        Self { left: f64::from(rate.burst), at: now }
    }

    /// Takes one.
    ///
    /// # Errors
    /// How long it takes until there is one.
    pub(super) fn take(&mut self, rate: Rate, now: Duration) -> Result<(), Duration> {
        let passed = now.saturating_sub(self.at).as_secs_f64();
        self.at = now.max(self.at);
        self.left = passed.mul_add(rate.per_second, self.left).min(f64::from(rate.burst));
        if self.left >= 1.0 {
            self.left -= 1.0;
            return Ok(());
        }
        let wait = (1.0 - self.left) / rate.per_second;
        Err(Duration::try_from_secs_f64(wait).unwrap_or(Duration::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_passes_and_then_what_comes_back() {
        let rate = Rate { per_second: 0.5, burst: 2 };
        let second = Duration::from_secs;
        let mut tokens = Tokens::full(rate, second(10));
        assert_eq!(tokens.take(rate, second(10)), Ok(()));
        assert_eq!(tokens.take(rate, second(10)), Ok(()));
        assert_eq!(tokens.take(rate, second(10)), Err(second(2)));
        assert_eq!(tokens.take(rate, second(9)), Err(second(2)), "time does not go back");
        assert_eq!(tokens.take(rate, second(12)), Ok(()));
        assert_eq!(tokens.take(rate, second(1000)), Ok(()));
        assert_eq!(tokens.take(rate, second(1000)), Ok(()));
        assert!(tokens.take(rate, second(1000)).is_err(), "no more than the burst is saved up");
    }

    #[test]
    fn without_a_rate_nothing_comes_back() {
        let rate = Rate { per_second: 0.0, burst: 1 };
        let mut tokens = Tokens::full(rate, Duration::ZERO);
        assert_eq!(tokens.take(rate, Duration::ZERO), Ok(()));
        assert_eq!(tokens.take(rate, Duration::from_secs(1)), Err(Duration::MAX));
    }
}
