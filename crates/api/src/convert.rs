//! Conversions wire <-> model. Total on the way out; on the way in what is missing becomes an error, never a default
//! that means something else.

mod hooks;
mod results;
mod runtime;
mod signals;
mod views;

pub use hooks::{HookCall, hook_call_from_wire, hook_call_to_wire};
pub use results::{health_to_wire, probe_results_from_wire};
pub use runtime::{
    runtime_features_from_cri, runtime_features_from_wire, runtime_features_to_wire, runtime_pod_from_wire,
    runtime_pod_to_wire,
};
pub use signals::{signal_from_cri, signal_to_cri};
pub use views::{
    ProbeItem, StatusItem, probe_item_from_wire, probe_item_to_wire, status_item_from_wire,
    status_item_to_wire,
};

use jiff::Timestamp;

/// A message that lacks what its meaning needs.
#[derive(Debug, thiserror::Error)]
#[error("message {message} has no valid {field}")]
pub struct WireError {
    /// The message's name.
    pub message: &'static str,
    /// The field's name.
    pub field: &'static str,
}

/// A date for the wire.
pub fn timestamp_to_wire(at: Timestamp) -> prost_types::Timestamp {
    prost_types::Timestamp { seconds: at.as_second(), nanos: at.subsec_nanosecond() }
}

/// A date from the wire; `None` when it is outside the years 1-9999.
pub fn timestamp_from_wire(at: &prost_types::Timestamp) -> Option<Timestamp> {
    Timestamp::new(at.seconds, at.nanos).ok()
}
