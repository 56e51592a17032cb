//! Back-off arithmetic: for reconnecting peers, and for containers that crash. Pure; `now` is an input.

use std::collections::BTreeMap;
use std::time::Duration;

/// Doubling delays between a first and a longest one, for retries against a peer.
#[derive(Clone, Debug)]
pub struct Backoff {
    first: Duration,
    longest: Duration,
    next: Duration,
}

impl Backoff {
    /// Delays `first`, twice `first`, ... up to `longest`.
    pub fn new(first: Duration, longest: Duration) -> Self {
        Self { first, longest, next: first }
    }

    /// The delay before the next try; doubles for the one after it.
    pub fn next_delay(&mut self) -> Duration {
        let delay = self.next.min(self.longest);
        self.next = delay.saturating_mul(2).min(self.longest);
        delay
    }

    /// Forgets past failures: call it after a success.
    pub fn reset(&mut self) {
        self.next = self.first;
    }
}

/// Back-off per key with the kubelet's rules for crashing containers and failing pulls: the first wait is `first`,
/// each further one twice that up to `longest`; a key whose last failure is older than twice `longest` starts afresh.
///
/// `now` is any monotonic time of the caller's, as a duration since a fixed start.
#[derive(Clone, Debug)]
pub struct CrashBackoff {
    first: Duration,
    longest: Duration,
    entries: BTreeMap<String, Entry>,
}

#[derive(Clone, Debug)]
struct Entry {
    delay: Duration,
    last: Duration,
}

impl CrashBackoff {
    /// The kubelet's defaults are 10 s and 300 s.
    pub fn new(first: Duration, longest: Duration) -> Self {
        Self { first, longest, entries: BTreeMap::new() }
    }

    /// Notes a failure of `key` at `now` and returns how long to wait from then.
    pub fn fail(&mut self, key: &str, now: Duration) -> Duration {
        let (first, longest) = (self.first.min(self.longest), self.longest);
        let fresh = Entry { delay: first, last: now };
        match self.entries.get_mut(key) {
            Some(entry) if now.saturating_sub(entry.last) <= longest.saturating_mul(2) => {
                entry.delay = entry.delay.saturating_mul(2).min(longest);
                entry.last = now;
                entry.delay
            }
            _ => {
                self.entries.insert(key.to_owned(), fresh);
                first
            }
        }
    }

    /// The wait that `key`'s last failure asked for; zero when it never failed or was forgotten.
    pub fn delay(&self, key: &str) -> Duration {
        self.entries.get(key).map_or(Duration::ZERO, |entry| entry.delay)
    }

    /// What is left at `now` of the wait, counted from `since` (such as a container's exit); zero when it is over, or when
    /// all went well for so long before `since` that the last failure is forgotten.
    pub fn remaining(&self, key: &str, since: Duration, now: Duration) -> Duration {
        match self.entries.get(key) {
            Some(entry) if since.saturating_sub(entry.last) <= self.longest.saturating_mul(2) => {
                entry.delay.saturating_sub(now.saturating_sub(since))
            }
            _ => Duration::ZERO,
        }
    }

    /// Takes over what an earlier life knew: `key` failed last at `last` and had to wait `delay` from then. What is known of
    /// `key` already stands.
    pub fn adopt(&mut self, key: &str, delay: Duration, last: Duration) {
        if !self.entries.contains_key(key) {
            self.entries.insert(key.to_owned(), Entry { delay: delay.min(self.longest), last });
        }
    }

    /// Forgets `key`.
    pub fn reset(&mut self, key: &str) {
        self.entries.remove(key);
    }

    /// Drops keys whose last failure is older than twice the longest wait: keeps the table bounded by what still fails.
    pub fn collect(&mut self, now: Duration) {
        let keep = self.longest.saturating_mul(2);
        self.entries.retain(|_, entry| now.saturating_sub(entry.last) <= keep);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: fn(u64) -> Duration = Duration::from_secs;

    #[test]
    fn reconnect_delays_double_up_to_the_longest_and_start_again() {
        let mut backoff = Backoff::new(S(1), S(5));
        let delays: Vec<_> = (0..5).map(|_| backoff.next_delay().as_secs()).collect();
        assert_eq!(delays, [1, 2, 4, 5, 5]);
        backoff.reset();
        assert_eq!(backoff.next_delay(), S(1));
    }

    #[test]
    fn crash_delays_are_the_kubelets_and_a_quiet_time_forgets_them() {
        let mut backoff = CrashBackoff::new(S(10), S(300));
        let mut now = S(0);
        let mut seen = Vec::new();
        for _ in 0..7 {
            let delay = backoff.fail("a", now);
            seen.push(delay.as_secs());
            now += delay;
        }
        assert_eq!(seen, [10, 20, 40, 80, 160, 300, 300]);
        assert_eq!(backoff.fail("a", now + S(601)), S(10), "older than twice the longest wait");
        assert_eq!(backoff.fail("b", now), S(10), "a neighbour is not slowed");
        assert_eq!(backoff.remaining("b", now, now + S(4)), S(6));
        assert_eq!(backoff.remaining("b", now + S(601), now + S(602)), S(0), "it ran well for ten minutes");
        backoff.collect(now + S(5000));
        assert_eq!(backoff.delay("b"), S(0));
    }

    #[test]
    fn an_earlier_lifes_delays_go_on_where_they_were() {
        let mut backoff = CrashBackoff::new(S(10), S(300));
        backoff.adopt("a", S(40), S(100));
        assert_eq!(backoff.remaining("a", S(105), S(110)), S(35));
        assert_eq!(backoff.remaining("a", S(701), S(702)), S(0), "it ran well for ten minutes");
        assert_eq!(backoff.fail("a", S(145)), S(80));
        backoff.adopt("a", S(10), S(0));
        assert_eq!(backoff.delay("a"), S(80), "this life knows better");
        backoff.adopt("b", S(5000), S(0));
        assert_eq!(backoff.delay("b"), S(300), "the longest wait may have been shortened since");
    }
}
