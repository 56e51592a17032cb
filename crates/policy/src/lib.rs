//! The node policy: what the owner of a node lets pods ask of the container runtime, whatever the rest of the node asks.
//!
//! Owns the policy file ([`Policy`]), what is judged ([`Wish`]) and the rules, which are pure. Reading the file and finding
//! out where a path really leads ([`Host`]) are the only places that touch the file system. Must never know CRI or the
//! Kubernetes API: crigate fills a [`Wish`] from the one, the command line from the other.

mod file;
mod judge;
mod mounts;
mod place;
mod values;
mod wish;

pub use file::{Exception, HostPaths, Policy, PolicyError, Rules};
pub use judge::{Refusal, summary};
pub use place::{Host, Look};
pub use values::{Capability, Device, Prefix, ProfileKind};
pub use wish::{Asked, DeviceWish, HostNamespaces, LogFile, Mount, Node, Part, Places, Pod, Profile, Wish};
