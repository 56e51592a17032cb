//! Asks every process how it is: on demand, all at once, and at most once a second however many ask.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bulkhead_api::access::ACCESS;
use bulkhead_api::gateway::v1::HealthCheck;
use bulkhead_api::process::v1::process_client::ProcessClient;
use bulkhead_api::process::v1::{GetStatusRequest, ProcessStatus};
use bulkhead_ipc::status::with_deadline;
use bulkhead_ipc::{Channels, PeerBoard, PeerChannel};
use bulkhead_service::Context;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::{Answer, checks};
use crate::error::why;

/// How long a process may take to answer.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long an answer is told again.
const FRESH: Duration = Duration::from_secs(1);

/// Whoever can be asked about processes.
pub(crate) trait Ask: Send + Sync + 'static {
    /// Names of all processes, in the order to tell them.
    fn processes(&self) -> Vec<String>;
    /// What one says, or why nothing came. Bounded by the caller.
    fn ask(&self, process: &str) -> impl Future<Output = Result<ProcessStatus, String>> + Send;
    /// Where it was asked, for messages.
    fn place(&self, process: &str) -> String;
}

/// The newest answers.
pub(crate) struct Board<A> {
    ask: A,
    newest: Mutex<Option<(Instant, Arc<[HealthCheck]>)>>,
}

/// The processes of this node.
pub(crate) struct Peers {
    clients: BTreeMap<String, Peer>,
}

struct Peer {
    client: ProcessClient<PeerChannel>,
    socket: PathBuf,
}

impl<A: Ask> Board<A> {
    /// Nothing was asked yet.
    pub(crate) fn new(ask: A) -> Self {
        Self { ask, newest: Mutex::default() }
    }

    /// Every check of every process, at most a second old.
    pub(crate) async fn checks(&self) -> Arc<[HealthCheck]> {
        // Held while asking, which is bounded: whoever comes meanwhile gets the same answer.
        let mut newest = self.newest.lock().await;
        if let Some((at, checks)) = &*newest
            && at.elapsed() < FRESH
        {
            return checks.clone();
        }
        let names = self.ask.processes();
        let answers = futures::future::join_all(names.into_iter().map(|name| self.one(name))).await;
        let fresh: Arc<[HealthCheck]> = checks(&answers).into();
        *newest = Some((Instant::now(), fresh.clone()));
        fresh
    }

    async fn one(&self, process: String) -> Answer {
        let said = match tokio::time::timeout(PATIENCE, self.ask.ask(&process)).await {
            Ok(Ok(status)) => Ok(status),
            Ok(Err(why)) => Err(format!("no answer on {}: {why}", self.ask.place(&process))),
            Err(_) => {
                Err(format!("no answer on {} within {} s", self.ask.place(&process), PATIENCE.as_secs()))
            }
        };
        Answer { process, said }
    }
}

impl Peers {
    /// Every process of the access file, this one included: that it answers itself on its own socket is worth knowing.
    pub(crate) fn new(context: &Context) -> Self {
        // This process is no peer of its own: its channel to itself stays off the board that `bulkhead status` shows.
        let board = PeerBoard::new(context.clock.clone());
        let own = Channels::new(&context.flags.run_dir, context.identities.clone(), board);
        let peer = |name: &str| {
            let channel = if name == context.name { own.peer(name) } else { context.peer(name) };
            let socket = context.flags.run_dir.join(format!("{name}.sock"));
            Peer { client: ProcessClient::new(channel), socket }
        };
        Self { clients: ACCESS.process.keys().map(|name| (name.clone(), peer(name))).collect() }
    }
}

impl Ask for Peers {
    fn processes(&self) -> Vec<String> {
        self.clients.keys().cloned().collect()
    }

    async fn ask(&self, process: &str) -> Result<ProcessStatus, String> {
        let Some(peer) = self.clients.get(process) else { return Err("it is not known".to_owned()) };
        let mut client = peer.client.clone();
        // The caller's own bound comes first, so that its words are the ones told.
        match client.get_status(with_deadline(GetStatusRequest {}, PATIENCE * 2)).await {
            Ok(status) => Ok(status.into_inner()),
            Err(status) => Err(why(&status)),
        }
    }

    fn place(&self, process: &str) -> String {
        self.clients.get(process).map(|peer| peer.socket.display().to_string()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// "fast" answers, "slow" never does, "gone" refuses.
    #[derive(Default)]
    struct Fake {
        asked: AtomicUsize,
    }

    impl Ask for Fake {
        fn processes(&self) -> Vec<String> {
            ["fast", "gone", "slow"].map(str::to_owned).into()
        }

        async fn ask(&self, process: &str) -> Result<ProcessStatus, String> {
            self.asked.fetch_add(1, Ordering::Relaxed);
            match process {
                "fast" => Ok(ProcessStatus { ready: true, ..Default::default() }),
                "gone" => Err("refused".to_owned()),
                _ => std::future::pending().await,
            }
        }

        fn place(&self, process: &str) -> String {
            format!("{process}.sock")
        }
    }

    #[tokio::test(start_paused = true)]
    async fn slow_ones_hold_nobody_up_for_more_than_a_second() {
        let board = Board::new(Fake::default());
        let begin = Instant::now();
        let told: Vec<_> =
            board.checks().await.iter().map(|c| (c.process.clone(), c.ok, c.reason.clone())).collect();
        assert_eq!(begin.elapsed(), PATIENCE, "all are asked at once");
        let line = |process: &str, ok, reason: &str| (process.to_owned(), ok, reason.to_owned());
        let wanted = [
            line("fast", true, ""),
            line("gone", false, "no answer on gone.sock: refused"),
            line("slow", false, "no answer on slow.sock within 1 s"),
        ];
        assert_eq!(told, wanted);
    }

    #[tokio::test(start_paused = true)]
    async fn many_askers_are_one_question_a_second() {
        let board = Board::new(Fake::default());
        let all = futures::future::join_all((0..50).map(|_| board.checks())).await;
        assert_eq!(all.len(), 50);
        assert_eq!(board.ask.asked.load(Ordering::Relaxed), 3);
        tokio::time::advance(FRESH / 2).await;
        board.checks().await;
        assert_eq!(board.ask.asked.load(Ordering::Relaxed), 3, "still fresh");
        tokio::time::advance(FRESH).await;
        board.checks().await;
        assert_eq!(board.ask.asked.load(Ordering::Relaxed), 6);
    }
}
