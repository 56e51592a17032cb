//! A token bucket: `registryPullQPS` and `registryBurst`. Pure; `now` is a duration since a fixed start.

use std::time::Duration;

/// What one pull costs: with nanotokens the arithmetic needs no fractions.
const TOKEN: u128 = 1_000_000_000;

/// How many pulls may start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Pulls a second in the long run.
    pub per_second: u32,
    /// Pulls at once after a quiet time.
    pub burst: u32,
}

/// Starts full.
#[derive(Debug)]
pub(crate) struct TokenBucket {
    rate: Rate,
    tokens: u128,
    filled_at: Duration,
}

impl TokenBucket {
    /// A full bucket.
    pub(crate) fn new(rate: Rate) -> Self {
        Self { rate, tokens: full(rate), filled_at: Duration::ZERO }
    }

    /// Takes one token at `now`; false when there is none.
    pub(crate) fn take(&mut self, now: Duration) -> bool {
        // Nanoseconds times tokens a second are nanotokens.
        let fresh = now.saturating_sub(self.filled_at).as_nanos().saturating_mul(self.rate.per_second.into());
        self.tokens = self.tokens.saturating_add(fresh).min(full(self.rate));
        self.filled_at = self.filled_at.max(now);
        let Some(left) = self.tokens.checked_sub(TOKEN) else { return false };
        self.tokens = left;
        true
    }
}

fn full(rate: Rate) -> u128 {
    u128::from(rate.burst).saturating_mul(TOKEN)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    #[test]
    fn a_burst_passes_at_once_and_then_the_rate_counts() {
        let mut bucket = TokenBucket::new(Rate { per_second: 5, burst: 2 });
        // (at, passes)
        let table = [
            (0, true),
            (0, true),
            (0, false),
            (199, false),
            (200, true),
            (200, false),
            (100, false), // time that goes back earns nothing
            (399, false),
            (400, true),
            (60_000, true), // no more than the burst is saved up
            (60_000, true),
            (60_000, false),
        ];
        for (at, passes) in table {
            assert_eq!(bucket.take(MS(at)), passes, "at {at} ms");
        }
    }

    #[test]
    fn an_empty_burst_lets_nothing_pass() {
        let mut bucket = TokenBucket::new(Rate { per_second: 5, burst: 0 });
        assert!(!bucket.take(MS(10_000)));
    }
}
