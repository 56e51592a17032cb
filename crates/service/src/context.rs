//! What the shell hands to a process' own code.

use std::path::PathBuf;
use std::sync::Arc;

use bulkhead_api::access::Access;
use bulkhead_base::Clock;
use bulkhead_config::KubeletConfiguration;
use bulkhead_ipc::listen::listen;
use bulkhead_ipc::server::Guard;
use bulkhead_ipc::spans::SpanRing;
use bulkhead_ipc::{Channels, Identities, PeerBoard, PeerChannel};
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;
use tonic_health::ServingStatus;

use crate::events::Recorder;
use crate::exit::{Exit, ServiceError};
use crate::flags::CommonFlags;
use crate::health::Checks;
use crate::logs::LogBoard;
use crate::metrics::Metrics;
use crate::process::ProcessService;
use crate::supervise;

/// The running process, as its own code sees it.
pub struct Context {
    /// Its name in access.toml.
    pub name: &'static str,
    /// Common flags.
    pub flags: CommonFlags,
    /// The node's configuration.
    pub config: Arc<KubeletConfiguration>,
    /// Who is who.
    pub identities: Arc<Identities>,
    /// The wall clock.
    pub clock: Arc<dyn Clock>,
    /// Cancelled when the process should stop.
    pub shutdown: CancellationToken,
    /// Channels to other processes.
    pub channels: Channels,
    /// What it counts and measures.
    pub metrics: Metrics,
    pub(crate) access: &'static Access,
    pub(crate) checks: Checks,
    pub(crate) logs: LogBoard,
    pub(crate) spans: SpanRing,
    pub(crate) uid: u32,
}

/// What a [`Context`] is made from.
pub struct Parts {
    /// The process' name in access.toml.
    pub name: &'static str,
    /// Common flags.
    pub flags: CommonFlags,
    /// The node's configuration.
    pub config: KubeletConfiguration,
    /// Who is who.
    pub identities: Identities,
    /// Who may call whom.
    pub access: &'static Access,
    /// The wall clock.
    pub clock: Arc<dyn Clock>,
    /// Cancelled when the process should stop.
    pub shutdown: CancellationToken,
}

/// Sets one named check of this process; clone it into loops.
#[derive(Clone)]
pub struct Check {
    checks: Checks,
    name: &'static str,
}

impl Check {
    /// All is well.
    pub fn good(&self) {
        self.checks.set(self.name, Ok(()));
    }

    /// Something is missing; say what and why in one line.
    pub fn bad(&self, reason: impl Into<String>) {
        self.newly_bad(reason);
    }

    /// As [`Check::bad`]; whether all was well before. What goes wrong again and again belongs into the log once.
    pub fn newly_bad(&self, reason: impl Into<String>) -> bool {
        self.checks.set(self.name, Err(reason.into()))
    }
}

impl Context {
    /// A process with a log and span ring of its own.
    pub fn new(parts: Parts) -> Self {
        let Parts { name, flags, config, identities, access, clock, shutdown } = parts;
        let identities = Arc::new(identities);
        let board = PeerBoard::new(clock.clone());
        Self {
            name,
            channels: Channels::new(&flags.run_dir, identities.clone(), board),
            flags,
            config: Arc::new(config),
            identities,
            access,
            checks: Checks::new(clock.clone()),
            clock,
            shutdown,
            metrics: Metrics::default(),
            logs: LogBoard::default(),
            spans: SpanRing::default(),
            uid: rustix::process::getuid().as_raw(),
        }
    }

    pub(crate) fn with_logs(mut self, logs: LogBoard, spans: SpanRing) -> Self {
        self.logs = logs;
        self.spans = spans;
        self
    }

    /// A channel to another process.
    pub fn peer(&self, name: &str) -> PeerChannel {
        self.channels.peer(name)
    }

    /// Where this process speaks CRI: its own socket at crigate, or what `--cri-endpoint` says.
    pub fn cri_socket(&self) -> PathBuf {
        let own = || self.flags.run_dir.join("cri").join(format!("{}.sock", self.name));
        self.flags.cri_endpoint.clone().unwrap_or_else(own)
    }

    /// A channel to the container runtime through crigate.
    pub fn cri_channel(&self) -> PeerChannel {
        let owner = match self.flags.cri_endpoint {
            Some(_) => None,
            None => self.identities.uid_of("crigate"),
        };
        self.channels.socket("crigate", &self.cri_socket(), owner)
    }

    /// Where this process reaches the API server: its own socket at apigate.
    pub fn api_socket(&self) -> PathBuf {
        self.flags.run_dir.join("api").join(format!("{}.sock", self.name))
    }

    /// This process' own folder for what must survive its restart.
    pub fn own_state_dir(&self) -> PathBuf {
        self.flags.state_dir.join(self.name)
    }

    /// Tells the cluster what happens here, if there is one; call it once.
    pub fn recorder(&self) -> Recorder {
        Recorder::start(self)
    }

    /// A named check, shown by `bulkhead status` and /healthz. It starts out bad: "not started yet".
    pub fn check(&self, name: &'static str) -> Check {
        let check = Check { checks: self.checks.clone(), name };
        check.bad("not started yet");
        check
    }

    /// Says that the process can do its work. Only from then on health is SERVING and the supervisor knows. Further
    /// calls change nothing.
    pub fn ready(&self) {
        self.checks.set_ready();
    }

    /// The board of peers.
    pub fn peers(&self) -> &PeerBoard {
        self.channels.board()
    }

    /// Binds the process' socket and serves `routes` on it, beside health and self-description, until shutdown and drain.
    ///
    /// # Errors
    /// When the socket is in use or cannot be bound, or the drain took too long.
    pub async fn serve(&self, routes: Routes) -> Result<(), ServiceError> {
        let path = self.flags.run_dir.join(format!("{}.sock", self.name));
        let group = self.identities.groups.get(bulkhead_api::access::GROUP).copied();
        let listener =
            listen(&path, group).await.map_err(|error| ServiceError::socket("cannot serve", error))?;
        let guard = Guard::new(self.name, self.identities.clone(), self.access);
        let process = ProcessService {
            name: self.name,
            uid: self.uid,
            started_at: self.clock.now(),
            checks: self.checks.clone(),
            peers: self.channels.board().clone(),
            logs: self.logs.clone(),
            spans: self.spans.clone(),
            metrics: self.metrics.clone(),
            guard: Arc::new(guard.clone()),
        };
        let (reporter, health) = tonic_health::server::health_reporter();
        reporter.set_service_status("", ServingStatus::NotServing).await;
        let checks = self.checks.clone();
        let announce = async {
            checks.wait_ready().await;
            reporter.set_service_status("", ServingStatus::Serving).await;
            supervise::ready();
            tracing::info!("ready");
            supervise::watchdog().await;
            std::future::pending::<()>().await;
        };
        let routes = routes
            .add_service(health)
            .add_service(bulkhead_api::process::v1::process_server::ProcessServer::new(process));
        let serve = guard.serve(listener, routes, self.shutdown.clone());
        let drained = tokio::select! {
            result = serve => result.map_err(|error| ServiceError::failed("serving failed", error))?,
            () = announce => true,
        };
        supervise::stopping();
        // The socket stays: removing it here could remove a successor's.
        if drained {
            return Ok(());
        }
        let what = format!("calls in flight did not end within {:?}", bulkhead_ipc::server::DRAIN);
        Err(ServiceError { exit: Exit::DrainExceeded, what, source: None })
    }
}
