//! Commands that ask a running node. They change nothing: everything here is a read, as root, over the processes' sockets.

mod age;
pub mod config;
pub mod get;
pub mod logs;
pub mod node;
pub mod peer;
mod pod_row;
pub mod policy;
mod spans;
pub mod status;
mod table;
pub mod trace;

/// The small runtime that a command needs.
fn small_runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    use anyhow::Context;
    tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot start the runtime")
}
