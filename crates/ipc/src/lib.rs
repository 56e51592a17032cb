//! How processes talk: Unix sockets whose callers are checked, snapshot-then-changes streams, deadlines, trace context.
//!
//! Owns sockets, peer credentials, the state of connections and the one mapping of errors to gRPC status. Must never know
//! what a message means.

pub mod caller;
pub mod channel;
pub mod identity;
pub mod listen;
pub mod mirror;
mod once;
pub mod peers;
pub mod publisher;
pub mod said;
pub mod server;
pub mod spans;
pub mod status;
mod streams;
pub mod table;
pub mod trace;
pub mod update;

pub use channel::{Channels, PeerChannel};
pub use identity::{Identities, Identity};
pub use mirror::{Mirror, MirrorStatus};
pub use once::whole;
pub use peers::PeerBoard;
pub use publisher::Publisher;
pub use table::Table;
pub use update::{Update, UpdateMessage};
