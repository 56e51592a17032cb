//! All processes of a node, each on a thread and runtime of its own, on the fake container runtime.
//!
//! Killing one drops its runtime in the middle of whatever it does: what `kill -9` does, as far as peers can tell.

#![expect(clippy::expect_used, reason = "a harness: what fails here fails the test that uses it")]

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use bulkhead_api::common::v1::WatchRequest;
use bulkhead_api::statusd::v1::{PodStatus as WireStatus, statusd_client::StatusdClient};
use bulkhead_base::{Clock, SystemClock};
use bulkhead_cgroup::{CgroupPath, Mounts, TearDown, tear_down};
use bulkhead_cri::wire::ContainerState;
use bulkhead_ipc::{Mirror, PeerBoard};
use bulkhead_service::{Context, Service};
use bulkhead_testkit::TestNode;
use bulkhead_testkit::apiserver::FakeApiServer;
use bulkhead_testkit::cri::FakeRuntime;
use k8s_openapi::api::core::v1::PodStatus;
use serde_json::Value;
use tokio::sync::oneshot;

use crate::wait;

/// The node.
pub struct FakeNode {
    /// Folders and channels.
    pub node: TestNode,
    /// The runtime under it.
    pub runtime: FakeRuntime,
    /// What statusd publishes.
    pub statuses: Mirror<String, WireStatus>,
    running: BTreeMap<&'static str, Running>,
    cgroup_root: CgroupPath,
}

struct Running {
    kill: oneshot::Sender<()>,
    thread: std::thread::JoinHandle<()>,
}

/// One clock for two owners.
struct Shared(Arc<dyn Clock>);

impl Clock for Shared {
    fn now(&self) -> jiff::Timestamp {
        self.0.now()
    }
}

/// The machine's clock, set forward or back by whoever holds a clone.
#[derive(Clone, Debug, Default)]
pub struct ShiftedClock(Arc<AtomicI64>);

impl ShiftedClock {
    /// Sets it to so many seconds after the machine's; before it when that is negative.
    pub fn shift(&self, seconds: i64) {
        self.0.store(seconds, Ordering::SeqCst);
    }
}

impl Clock for ShiftedClock {
    fn now(&self) -> jiff::Timestamp {
        SystemClock.now() + jiff::SignedDuration::from_secs(self.0.load(Ordering::SeqCst))
    }
}

impl FakeNode {
    /// A node with every process up.
    ///
    /// # Panics
    /// When it does not come up.
    pub async fn up() -> Self {
        Self::up_at(Arc::new(SystemClock)).await
    }

    /// As [`FakeNode::up`], as `node-a` of a cluster. The API server stands in for apigate, too.
    ///
    /// # Panics
    /// When it does not come up.
    pub async fn up_in(api: &FakeApiServer) -> Self {
        let mut node = TestNode::new().await;
        node.kubeconfig = Some(api.write_kubeconfig(node.dir()));
        for process in ["syncd", "statusd", "volumed", "imaged"] {
            api.serve_at(&node.api_socket(process));
        }
        Self::up_on(node).await
    }

    /// As [`FakeNode::up`], all processes and the runtime with this clock.
    ///
    /// # Panics
    /// When it does not come up.
    pub async fn up_at(clock: Arc<dyn Clock>) -> Self {
        let mut node = TestNode::new().await;
        node.clock = clock;
        Self::up_on(node).await
    }

    async fn up_on(mut node: TestNode) -> Self {
        let clock = node.clock.clone();
        let cgroup_root = format!(
            "/bulkhead-test-{}-{}",
            std::process::id(),
            node.dir()
                .file_name()
                .map_or_else(String::new, |n| n.to_string_lossy().trim_start_matches("bh").to_owned())
        );
        node.config.cgroup_root.clone_from(&cgroup_root);
        let runtime =
            FakeRuntime::start_with_clock(node.dir(), Shared(clock)).await.expect("the fake runtime");
        runtime.add_image("local/busybox:1");
        runtime.add_image("local/busybox:2");
        node.config.container_runtime_endpoint = format!("unix://{}", runtime.socket().display());
        let cgroup_root = CgroupPath::parse(&cgroup_root).expect("a cgroup path");
        let statuses = follow_statuses(&node);
        let mut this = Self { node, runtime, statuses, running: BTreeMap::new(), cgroup_root };
        this.start_all();
        this
    }

    /// Starts every process that does not run.
    pub fn start_all(&mut self) {
        for name in ["crigate", "pleg", "volumed", "imaged", "syncd", "prober", "statusd"] {
            self.start(name);
        }
    }

    /// Starts one process.
    ///
    /// # Panics
    /// When there is no process with this name.
    pub fn start(&mut self, name: &str) {
        match name {
            "crigate" => self.spawn::<crigate::Crigate>(),
            "pleg" => self.spawn::<pleg::Pleg>(),
            "volumed" => self.spawn::<volumed::Volumed>(),
            "imaged" => self.spawn::<imaged::Imaged>(),
            "syncd" => self.spawn::<syncd::Syncd>(),
            "prober" => self.spawn::<prober::Prober>(),
            "statusd" => self.spawn::<statusd::Statusd>(),
            other => unreachable!("no process {other}"),
        }
    }

    /// Kills one process and waits until nothing of it runs.
    ///
    /// # Panics
    /// When the process panicked itself.
    pub fn kill(&mut self, name: &str) {
        if let Some(running) = self.running.remove(name) {
            let _ = running.kill.send(());
            running.thread.join().expect("the process did not panic");
        }
    }

    /// Puts a manifest into the static pod directory, whole at once.
    ///
    /// # Panics
    /// When it cannot be written.
    pub fn put(&self, file: &str, manifest: &Value) {
        let manifests = self.node.dir().join("manifests");
        let part = self.node.dir().join("part");
        std::fs::write(&part, manifest.to_string()).expect("a manifest");
        std::fs::rename(part, manifests.join(file)).expect("a manifest in its place");
    }

    /// Takes a manifest out again.
    ///
    /// # Panics
    /// When it is not there.
    pub fn take(&self, file: &str) {
        std::fs::remove_file(self.manifest(file)).expect("a manifest to remove");
    }

    /// Where a manifest is.
    pub fn manifest(&self, file: &str) -> PathBuf {
        self.node.dir().join("manifests").join(file)
    }

    /// The published status of the pod with this name (without the node's suffix).
    pub fn status(&self, name: &str) -> Option<PodStatus> {
        let wanted = [name.to_owned(), format!("{name}-node-a")];
        let statuses = self.statuses.snapshot();
        let found = statuses.values().find(|status| wanted.contains(&status.name))?;
        serde_json::from_slice(&found.status_json).ok()
    }

    /// Waits until the pod's status is as `wanted` asks.
    ///
    /// # Panics
    /// When it does not become so.
    pub async fn status_where(
        &self,
        name: &str,
        what: &str,
        wanted: impl Fn(&PodStatus) -> bool,
    ) -> PodStatus {
        wait::until(&format!("{name} {what}"), async || self.status(name).filter(|status| wanted(status)))
            .await
    }

    /// Waits until the pod is Running with all containers ready.
    ///
    /// # Panics
    /// When it does not become so.
    pub async fn ready(&self, name: &str) -> PodStatus {
        self.status_where(name, "ready", is_ready).await
    }

    /// Ids of containers that run, by `pod/container`.
    pub fn running(&self) -> BTreeMap<String, String> {
        let is_running = |c: &bulkhead_testkit::cri::Container| c.state == ContainerState::ContainerRunning;
        let pod = |c: &bulkhead_testkit::cri::Container| {
            let labels = c.config.labels.clone();
            labels.get("io.kubernetes.pod.name").cloned().unwrap_or_default()
        };
        self.runtime
            .containers()
            .into_iter()
            .filter(is_running)
            .map(|c| (format!("{}/{}", pod(&c).trim_end_matches("-node-a"), c.name()), c.id.clone()))
            .collect()
    }

    fn spawn<S: Service<Flags: Default>>(&mut self) {
        if self.running.contains_key(S::NAME) {
            return;
        }
        let context: Context = self.node.context(S::NAME);
        let (kill, killed) = oneshot::channel();
        let thread = std::thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                tokio::select! {
                    result = S::run(context, S::Flags::default()) => {
                        result.unwrap_or_else(|error| unreachable!("{}: {}", S::NAME, bulkhead_base::chain(&error)));
                    }
                    _ = killed => {}
                }
            });
            runtime.shutdown_background();
        });
        self.running.insert(S::NAME, Running { kill, thread });
    }
}

impl Drop for FakeNode {
    fn drop(&mut self) {
        for (_, running) in std::mem::take(&mut self.running) {
            let _ = running.kill.send(());
            let _ = running.thread.join();
        }
        let Ok(mounts) = Mounts::detect() else { return };
        for _ in 0..10 {
            if matches!(tear_down(&mounts, &self.cgroup_root), Ok(TearDown::Done)) {
                return;
            }
        }
    }
}

/// Running, and every container ready.
pub fn is_ready(status: &PodStatus) -> bool {
    let containers = status.container_statuses.as_deref().unwrap_or_default();
    status.phase.as_deref() == Some("Running") && !containers.is_empty() && containers.iter().all(|c| c.ready)
}

fn follow_statuses(node: &TestNode) -> Mirror<String, WireStatus> {
    let client = StatusdClient::new(node.channel("statusd"));
    let board = PeerBoard::new(node.clock.clone());
    Mirror::follow(board.handle("statusd"), node.shutdown.child_token(), move || {
        let mut client = client.clone();
        async move { client.watch_statuses(WatchRequest {}).await }
    })
}
