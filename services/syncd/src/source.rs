//! Where pods come from. Owns reading the sources and the choice between two that want one name; must never act on a pod.

mod api;
mod board;
mod files;
mod plan;
mod submitted;
mod url;
mod watch;

pub use api::FollowApi;
pub use board::Board;
pub use plan::{Desired, Kind};
#[cfg(test)]
pub use plan::{Place, SourcedPod};
pub use submitted::{Change, Submissions};
pub use url::{FollowUrl, ManifestUrl};
pub use watch::FollowFiles;
