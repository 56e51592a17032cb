//! The plain HTTP ports: 10248 for health, 10255 for reading.
//!
//! Owns listening, bounds against clients, paths and codes. Must never change anything for whoever comes, since anybody may.

pub(crate) mod answer;
mod doors;
mod patient;
pub(crate) mod requests;
mod route;
pub(crate) mod server;

pub use doors::Doors;
