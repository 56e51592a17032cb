//! Commands that ask a running node, as root, over the processes' sockets. They change nothing, but for [`submit`].

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
pub mod submit;
mod table;
pub mod trace;

/// The small runtime that a command needs.
fn small_runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    use anyhow::Context;
    tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot start the runtime")
}
