//! The loop driver that every loop of every process runs under, and the keyed delay queue.
//!
//! Owns waiting, trigger reasons, counters and back-off. Must never know what a loop does. All waiting is on tokio's clock.

mod at;
mod delay_queue;
mod driver;
mod wake;

pub use at::at;
pub use delay_queue::DelayQueue;
pub use driver::{LoopStatus, Next, Reconciler, Trigger, drive};
pub use wake::{Wake, Waker, wake};
