//! Probes: what a pod asks for, and when a run of answers changes a container's health.
//!
//! Owns the reading of the API's probes ([`ProbeSpec`]), the threshold machine of one probe of one container
//! ([`ProbeState`]) and the merged answer per container id ([`ProbeResults`]). Must never run a probe.

mod results;
mod spec;
mod state;

pub use results::{ContainerProbes, Health, ProbeResults};
pub use spec::{GrpcMode, Handler, HttpHeader, HttpScheme, ProbeError, ProbeSpec};
pub use state::ProbeState;

/// Which of a container's three probes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ProbeKind {
    /// Tells when the container is up; the others wait for it.
    Startup,
    /// Tells when the container must be killed.
    Liveness,
    /// Tells when the container may get traffic.
    Readiness,
}

/// What one run of a probe found, or what a run of them adds up to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ProbeOutcome {
    /// The check passed.
    Success,
    /// The check failed; a timeout is a failure.
    Failure,
    /// The check could not be made. Counts neither way.
    Unknown,
}

impl ProbeKind {
    /// Every kind, in the order in which they matter.
    pub const ALL: [Self; 3] = [Self::Startup, Self::Liveness, Self::Readiness];

    /// What the kubelet takes a container for before a probe of this kind has decided.
    pub fn initial(self) -> ProbeOutcome {
        match self {
            Self::Startup => ProbeOutcome::Unknown,
            Self::Liveness => ProbeOutcome::Success,
            Self::Readiness => ProbeOutcome::Failure,
        }
    }

    /// The kubelet's name, as events and metric labels show it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Startup => "Startup",
            Self::Liveness => "Liveness",
            Self::Readiness => "Readiness",
        }
    }
}
