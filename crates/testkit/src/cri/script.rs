//! What goes wrong, and when: queues of faults and pauses per method. Each call takes the first of each queue.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use tokio::sync::oneshot;
use tonic::Status;

use super::log::Method;

/// Keeps one call waiting until it is opened or dropped.
#[derive(Debug)]
#[must_use = "a gate that is dropped is open"]
pub struct Gate(oneshot::Sender<()>);

impl Gate {
    /// Lets the call go on.
    pub fn open(self) {
        // The call may have been given up by its caller: then nobody waits any more.
        let _ = self.0.send(());
    }
}

/// Where in a call something happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// Before the call has changed anything.
    BeforeEffect,
    /// When all is done and only the answer is missing.
    BeforeAnswer,
}

#[derive(Debug)]
pub(super) enum Pause {
    For(Duration),
    Until(oneshot::Receiver<()>),
}

impl Pause {
    pub(super) async fn wait(self) {
        match self {
            Self::For(time) => tokio::time::sleep(time).await,
            Self::Until(gate) => {
                // A dropped gate is an open one.
                let _ = gate.await;
            }
        }
    }
}

/// What is in store for one call.
#[derive(Debug, Default)]
pub(super) struct Fate {
    pub(super) pause: Option<(Moment, Pause)>,
    pub(super) fault: Option<(Moment, Status)>,
}

/// The queues.
#[derive(Debug, Default)]
pub(super) struct Script {
    pauses: BTreeMap<Method, VecDeque<(Moment, Pause)>>,
    faults: BTreeMap<Method, VecDeque<(Moment, Status)>>,
}

impl Script {
    pub(super) fn fault(&mut self, method: Method, moment: Moment, status: Status, times: usize) {
        let queue = self.faults.entry(method).or_default();
        queue.extend(std::iter::repeat_n((moment, status), times));
    }

    pub(super) fn delay(&mut self, method: Method, moment: Moment, time: Duration) {
        self.pauses.entry(method).or_default().push_back((moment, Pause::For(time)));
    }

    pub(super) fn hold(&mut self, method: Method, moment: Moment) -> Gate {
        let (gate, wait) = oneshot::channel();
        self.pauses.entry(method).or_default().push_back((moment, Pause::Until(wait)));
        Gate(gate)
    }

    pub(super) fn take(&mut self, method: Method) -> Fate {
        Fate {
            pause: self.pauses.get_mut(&method).and_then(VecDeque::pop_front),
            fault: self.faults.get_mut(&method).and_then(VecDeque::pop_front),
        }
    }

    /// Drops what has not happened yet; held calls that already wait stay held.
    pub(super) fn clear(&mut self) {
        self.pauses.clear();
        self.faults.clear();
    }
}
