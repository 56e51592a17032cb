//! The plain HTTP ports: 10248 for health, 10255 for reading. What is read there the secured port (`crate::secured`) has, too.
//!
//! Owns listening, bounds against clients, paths and codes. Must never change anything for whoever comes, since anybody may.

pub(crate) mod answer;
mod doors;
pub(crate) mod patient;
pub(crate) mod requests;
pub(crate) mod route;
pub(crate) mod server;

pub use doors::Doors;
