//! The secured port, 10250: what the API server and others with rights ask of the node.
//!
//! Owns its paths, codes and bounds. Must never answer anything before it is known who asks and that he may: the path that is
//! decided on is the path that is served.

pub(crate) mod answer;
pub(crate) mod body;
mod container_logs;
mod crowd;
mod pages;
pub(crate) mod path;
pub(crate) mod query;
pub(crate) mod route;
pub(crate) mod server;
mod system_logs;
#[cfg(test)]
mod tests;
