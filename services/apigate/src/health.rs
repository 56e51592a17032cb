//! Whether the API server answers, as requests and the probe see it: one check of this process.

use std::sync::{Arc, Mutex, PoisonError};

use bulkhead_base::chain;
use bulkhead_service::Check;
use http::StatusCode;
use tokio::time::Instant;

use crate::error::Unavailable;
use crate::limits;

/// What is known of the API server. Clones share it.
#[derive(Clone)]
pub struct ServerHealth(Arc<Inner>);

struct Inner {
    /// `None`: the node runs without a cluster.
    check: Option<Check>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// When it last answered anybody.
    answered: Option<Instant>,
    /// `None`: not known yet. Empty: well. Else why not.
    reason: Option<String>,
}

impl ServerHealth {
    /// Nothing is known yet.
    pub fn new(check: Option<Check>) -> Self {
        Self(Arc::new(Inner { check, state: Mutex::default() }))
    }

    /// It answered. Every answer proves that it is there; one says that it does not know us.
    pub fn answered(&self, status: StatusCode) {
        let reason = match status {
            StatusCode::UNAUTHORIZED => {
                "the API server does not know the node's credential (401 Unauthorized)".to_owned()
            }
            _ => String::new(),
        };
        self.note(Some(Instant::now()), reason);
    }

    /// A request failed. An error of one alone changes nothing.
    pub fn failed(&self, error: &Unavailable) {
        if error.is_general() {
            self.away(error);
        }
    }

    /// It does not answer.
    pub fn away(&self, error: &Unavailable) {
        self.note(None, chain(error).to_string());
    }

    /// Whether nobody got an answer for so long that it should be asked.
    pub fn is_quiet(&self) -> bool {
        let state = self.0.state.lock().unwrap_or_else(PoisonError::into_inner);
        let well = state.reason.as_ref().is_some_and(String::is_empty);
        !well || state.answered.is_none_or(|at| at.elapsed() >= limits::QUIET)
    }

    fn note(&self, answered: Option<Instant>, reason: String) {
        let mut state = self.0.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.answered = answered.or(state.answered);
        if state.reason.as_ref() == Some(&reason) {
            return;
        }
        if let Some(check) = &self.0.check {
            if reason.is_empty() {
                tracing::info!("the API server answers");
                check.good();
            } else {
                tracing::warn!(reason, "the API server is away");
                check.bad(reason.clone());
            }
        }
        state.reason = Some(reason);
    }
}
