//! How this process sees others: who answers, since when, and what went wrong last. Feeds `bulkhead status`.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use bulkhead_base::{Clock, chain};
use jiff::Timestamp;
use tonic::Status;

/// Longest error text kept.
const ERROR_BYTES: usize = 1024;

/// All peers of this process. Clones share it.
#[derive(Clone)]
pub struct PeerBoard {
    clock: Arc<dyn Clock>,
    peers: Arc<Mutex<BTreeMap<String, PeerState>>>,
}

/// One peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerState {
    /// Whether the last call or stream reached it.
    pub connected: bool,
    /// Since when that is so.
    pub since: Timestamp,
    /// The newest failure; empty if none.
    pub last_error: String,
    /// When that was.
    pub last_error_at: Option<Timestamp>,
}

/// Reports about one peer.
#[derive(Clone)]
pub struct PeerHandle {
    name: String,
    board: PeerBoard,
}

impl std::fmt::Debug for PeerBoard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("PeerBoard").field(&self.snapshot()).finish()
    }
}

impl std::fmt::Debug for PeerHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("PeerHandle").field(&self.name).finish()
    }
}

impl PeerBoard {
    /// An empty board.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, peers: Arc::default() }
    }

    /// The handle that reports about `name`. Peers are few and fixed (access.toml), so the board is bounded.
    pub fn handle(&self, name: &str) -> PeerHandle {
        let since = self.clock.now();
        let fresh = PeerState { connected: false, since, last_error: String::new(), last_error_at: None };
        let mut peers = self.peers.lock().unwrap_or_else(PoisonError::into_inner);
        peers.entry(name.to_owned()).or_insert(fresh);
        PeerHandle { name: name.to_owned(), board: self.clone() }
    }

    /// All peers by name.
    pub fn snapshot(&self) -> BTreeMap<String, PeerState> {
        self.peers.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl PeerHandle {
    /// A stream has its snapshot.
    pub fn stream_up(&self) {
        self.set(true, None);
    }

    /// A stream broke or could not be opened.
    pub fn stream_down(&self, status: &Status) {
        self.set(false, Some(format!("{}: {}", status.code(), status.message())));
    }

    /// A call was answered, with whatever answer.
    pub fn call_answered(&self) {
        self.set(true, None);
    }

    /// A call did not reach the peer.
    pub fn call_failed(&self, error: &(dyn std::error::Error + 'static)) {
        self.set(false, Some(chain(error).to_string()));
    }

    fn set(&self, connected: bool, error: Option<String>) {
        let mut peers = self.board.peers.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(state) = peers.get_mut(&self.name) else { return };
        if state.connected != connected {
            state.connected = connected;
            state.since = self.board.clock.now();
            if connected {
                tracing::info!(peer = self.name, "peer connected");
            } else {
                tracing::warn!(peer = self.name, error = error.as_deref().unwrap_or(""), "peer lost");
            }
        }
        if let Some(mut error) = error {
            error.truncate(error.floor_char_boundary(ERROR_BYTES));
            state.last_error = error;
            state.last_error_at = Some(self.board.clock.now());
        }
    }
}
