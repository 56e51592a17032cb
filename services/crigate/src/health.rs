//! Whether the runtime answers, as calls and the probe see it: one check of this process.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use bulkhead_base::chain;
use bulkhead_service::Check;
use tokio::time::Instant;

use crate::error::Unavailable;
use crate::limits;

/// What is known of one socket of the runtime. Clones share it.
#[derive(Clone)]
pub struct RuntimeHealth(Arc<Inner>);

struct Inner {
    socket: String,
    check: Check,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// When it last answered anybody.
    answered: Option<Instant>,
    /// `None`: not known yet. Empty: well. Else why not.
    reason: Option<String>,
}

impl RuntimeHealth {
    /// Nothing is known yet.
    pub fn new(socket: &Path, check: Check) -> Self {
        Self(Arc::new(Inner { socket: socket.display().to_string(), check, state: Mutex::default() }))
    }

    /// The runtime answered, with whatever answer.
    pub fn answered(&self) {
        self.note(Some(Instant::now()), String::new());
    }

    /// The runtime does not answer. An error of one call alone changes nothing.
    pub fn failed(&self, error: &Unavailable) {
        if error.cause.is_general() {
            self.note(None, chain(error).to_string());
        }
    }

    /// Whether nobody got an answer for so long that the runtime should be asked.
    pub fn is_quiet(&self) -> bool {
        let state = self.0.state.lock().unwrap_or_else(PoisonError::into_inner);
        let well = state.reason.as_ref().is_some_and(String::is_empty);
        !well || state.answered.is_none_or(|at| at.elapsed() >= limits::QUIET)
    }

    fn note(&self, answered: Option<Instant>, reason: String) {
        let Inner { socket, check, state } = &*self.0;
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        state.answered = answered.or(state.answered);
        if state.reason.as_ref() == Some(&reason) {
            return;
        }
        if reason.is_empty() {
            tracing::info!(socket, "the container runtime answers");
            check.good();
        } else {
            tracing::warn!(reason, "the container runtime is away");
            check.bad(reason.clone());
        }
        state.reason = Some(reason);
    }
}
