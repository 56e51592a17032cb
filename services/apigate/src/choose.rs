//! Which client certificate is used, and whether one must be asked for. Pure; `now` is an input.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::pem::Validity;

/// What is known of certificates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// Of the pair that the kubeconfig names, if it names one that can be read.
    pub own: Option<Validity>,
    /// Of the newest pair in the folder of certificates, if there is one that can be read.
    pub stored: Option<Validity>,
}

/// Which pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pick {
    /// The kubeconfig's.
    Own,
    /// The newest in the folder.
    Stored,
    /// There is none.
    None,
}

/// The decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// Which pair is the better one.
    pub pick: Pick,
    /// Whether it is over.
    pub over: bool,
}

/// The pair that is good for longest. One that is not good yet counts: the node's clock may be behind, and the API server
/// decides by its own.
pub fn choose(known: Known, now: Timestamp) -> Choice {
    let (pick, validity) = match (known.own, known.stored) {
        (Some(own), Some(stored)) if own.until > stored.until => (Pick::Own, own),
        (_, Some(stored)) => (Pick::Stored, stored),
        (Some(own), None) => (Pick::Own, own),
        (None, None) => return Choice { pick: Pick::None, over: false },
    };
    Choice { pick, over: validity.is_over(now) }
}

/// When a certificate is renewed: between 70 % and 90 % of its life, as `random` says, so that nodes that were made together
/// do not ask together. As the kubelet has it.
pub fn renew_at(validity: Validity, random: u64) -> Timestamp {
    let life = validity.until.duration_since(validity.from).max(SignedDuration::ZERO);
    let thousandths = 700 + i64::try_from(random % 201).unwrap_or_default();
    // In milliseconds: a life of centuries times 900 is far within 64 bits.
    let millis = i64::try_from(life.as_millis()).unwrap_or(i64::MAX / 1000);
    let after = SignedDuration::from_millis(millis.saturating_mul(thousandths) / 1000);
    validity.from.checked_add(after).unwrap_or(validity.until)
}

/// How long to wait from `now` until `then`; not longer than `longest`, after which the clock is looked at again: it may
/// have been set.
pub fn wait(now: Timestamp, then: Timestamp, longest: Duration) -> Duration {
    Duration::try_from(then.duration_since(now)).unwrap_or_default().min(longest)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn validity(from: i64, until: i64) -> Validity {
        Validity { from: at(from), until: at(until) }
    }

    #[test]
    fn the_pair_that_is_good_for_longest_wins() {
        let (old, new) = (Some(validity(0, 100)), Some(validity(50, 200)));
        let choice = |own, stored, now| choose(Known { own, stored }, at(now));
        let is = |pick, over| Choice { pick, over };
        assert_eq!(choice(None, None, 10), is(Pick::None, false));
        assert_eq!(choice(old, None, 10), is(Pick::Own, false));
        assert_eq!(choice(old, None, 100), is(Pick::Own, true));
        assert_eq!(choice(old, new, 10), is(Pick::Stored, false), "not good yet by this clock");
        assert_eq!(choice(new, old, 150), is(Pick::Own, false));
        assert_eq!(choice(old, new, 150), is(Pick::Stored, false), "the kubeconfig's is over");
        assert_eq!(choice(old, new, 300), is(Pick::Stored, true));
        assert_eq!(choice(old, old, 10), is(Pick::Stored, false));
    }

    #[test]
    fn waits_are_bounded_and_never_negative() {
        let longest = Duration::from_secs(60);
        assert_eq!(wait(at(0), at(10), longest), Duration::from_secs(10));
        assert_eq!(wait(at(0), at(1000), longest), longest);
        assert_eq!(wait(at(10), at(0), longest), Duration::ZERO);
    }

    proptest! {
        #[test]
        fn renewal_is_between_seven_and_nine_tenths(from in 0_i64..4_000_000_000, life in 0_i64..4_000_000_000, random: u64) {
            let then = renew_at(validity(from, from + life), random).as_second() - from;
            prop_assert!(then * 10 >= life * 7 - 10 && then * 10 <= life * 9, "{then} of {life}");
        }

        #[test]
        fn any_validity_is_survived(from: i32, until: i32, random: u64) {
            let _ = renew_at(validity(from.into(), until.into()), random);
        }
    }

    #[test]
    fn renewals_are_spread() {
        let year = validity(0, 31_536_000);
        let times: std::collections::BTreeSet<_> = (0..201).map(|random| renew_at(year, random)).collect();
        assert_eq!(times.len(), 201);
    }
}
