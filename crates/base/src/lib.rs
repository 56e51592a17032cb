//! Error-chain printing, back-off arithmetic and the wall clock. Knows nothing of pods.
//!
//! Owns the three things that every crate needs and that must exist once. Must never grow into a drawer of helpers:
//! what belongs to pods is in `bulkhead-model`, what belongs to sockets in `bulkhead-ipc`.

mod backoff;
mod clock;
mod error;

pub use backoff::{Backoff, CrashBackoff};
pub use clock::{Clock, FakeClock, SystemClock};
pub use error::{Chain, chain};
