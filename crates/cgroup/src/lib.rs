//! Cgroup v1 and v2: create, set, remove, read statistics. The only crate that knows cgroups-rs.
//!
//! Owns the shape of the pods' cgroup tree (cgroupfs driver) and every file operation on it. Must never touch a cgroup
//! outside `<cgroupRoot>/kubepods`, decide a limit (that is the model's), or need root: only [`prepare`] and
//! [`tear_down`] are for the launcher, the rest runs as the user that owns the tree.
//!
//! Everything here blocks for the length of a few system calls; async callers use `spawn_blocking`.
//!
//! What cgroups-rs does here: the writes of limits (`CpuController`, `MemController`, `PidController`), whose file
//! names and formats for v1 and v2 it knows. What it does not do, and why:
//! - create: `Cgroup::new` finds mounts by itself (`/sys/fs/cgroup`, no root path, so no fixture tree), writes the root's
//!   `cgroup.subtree_control` on each call and hides every error of that write;
//! - remove: `Controller::delete` sleeps on the calling thread and hides why a directory stays;
//! - list processes and statistics: its readers turn a vanished or malformed file into zeros or an empty list, and have
//!   no bound, no PSI.

mod details;
mod error;
mod file;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzz;
mod layout;
mod limits;
mod manager;
mod mounts;
mod prepare;
mod stats;
mod tree;

#[cfg(test)]
mod fixture;
#[cfg(test)]
mod real_tests;

pub use details::{Detail, processes, read_details};
pub use error::CgroupError;
pub use layout::{CgroupName, CgroupPath, Layout, PodCgroup, PodUid, QosTier};
pub use limits::{Ceiling, Limits, weight_of_shares};
pub use manager::CgroupManager;
pub use mounts::{Mounts, Version};
pub use prepare::{Owner, TearDown, prepare, tear_down};
pub use stats::{
    CgroupStats, MemoryStats, Pressure, PressureLine, PressureStats, read_machine_pressure, read_root,
    read_stats,
};
pub use tree::{Killed, Removal};
