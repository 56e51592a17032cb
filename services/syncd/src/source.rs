//! Where pods come from. Owns reading them and the choice between two that want one name; must never act on a pod.

mod files;
mod plan;
mod watch;

pub use plan::Desired;
#[cfg(test)]
pub use plan::StaticPod;
pub use watch::{Sources, follow};
