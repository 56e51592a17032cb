//! What a pull policy asks for.

use bulkhead_model::image::PullPolicy;

/// What to do about a container's image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// Take the one that is there.
    Use,
    /// Pull it.
    Pull,
    /// It is not there and must not be pulled.
    Refuse,
}

/// Whether the node has the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Presence {
    /// It has.
    Present,
    /// It has not.
    Absent,
}

/// `imagePullPolicy` of the container API.
pub(crate) fn decide(policy: PullPolicy, presence: Presence) -> Decision {
    match (policy, presence) {
        (PullPolicy::Always, _) | (PullPolicy::IfNotPresent, Presence::Absent) => Decision::Pull,
        (PullPolicy::IfNotPresent | PullPolicy::Never, Presence::Present) => Decision::Use,
        (PullPolicy::Never, Presence::Absent) => Decision::Refuse,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_policy_with_and_without_the_image() {
        use {Decision::*, Presence::*, PullPolicy::*};
        for (policy, presence, decision) in [
            (Always, Present, Pull),
            (Always, Absent, Pull),
            (IfNotPresent, Present, Use),
            (IfNotPresent, Absent, Pull),
            (Never, Present, Use),
            (Never, Absent, Refuse),
        ] {
            assert_eq!(decide(policy, presence), decision, "{policy:?} {presence:?}");
        }
    }
}
