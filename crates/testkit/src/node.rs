//! A node in a temporary folder, for tests of one process with everything around it faked.
//!
//! All processes are the test's own user here, so the access file is widened to let `cli` (root) or the test's user call
//! everything. What the access file really refuses is tested in `bulkhead-ipc` and end to end.

#![expect(clippy::expect_used, reason = "a harness: what fails here fails the test that uses it")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bulkhead_api::access::{ACCESS, Access, CLI};
use bulkhead_base::{Clock, SystemClock};
use bulkhead_config::KubeletConfiguration;
use bulkhead_ipc::{Channels, Identities, Identity, PeerBoard, PeerChannel};
use bulkhead_service::{CommonFlags, Context, Parts};
use tokio_util::sync::CancellationToken;

/// Folders, identities and channels of one test node. Its folder goes when it is dropped.
pub struct TestNode {
    dir: tempfile::TempDir,
    uid: u32,
    gid: u32,
    access: &'static Access,
    /// What contexts get; change it before making one.
    pub config: KubeletConfiguration,
    /// What contexts get.
    pub clock: Arc<dyn Clock>,
    /// `--kubeconfig`; with one there is a cluster.
    pub kubeconfig: Option<PathBuf>,
    /// Stops everything that was made with [`TestNode::context`].
    pub shutdown: CancellationToken,
}

impl TestNode {
    /// A fresh node with the default configuration but for thresholds of eviction, beneath the system's temporary folder.
    ///
    /// # Panics
    /// When the folders cannot be made.
    pub async fn new() -> Self {
        let dir = tempfile::Builder::new().prefix("bh").tempdir().expect("a temporary folder");
        for sub in ["run/cri", "run/api", "root/pods", "root/pki", "state", "logs", "manifests"] {
            std::fs::create_dir_all(dir.path().join(sub)).expect("a folder");
        }
        for process in ACCESS.process.keys() {
            std::fs::create_dir_all(dir.path().join("state").join(process)).expect("a folder");
        }
        let (uid, gid) = owner(dir.path());
        let config = KubeletConfiguration {
            pod_logs_dir: dir.path().join("logs").to_string_lossy().into_owned(),
            static_pod_path: dir.path().join("manifests").to_string_lossy().into_owned(),
            container_runtime_endpoint: format!("unix://{}", dir.path().join("runtime.sock").display()),
            // How full the machine of the tests is must not matter.
            eviction_hard: BTreeMap::new(),
            ..Default::default()
        };
        Self {
            uid,
            gid,
            access: Box::leak(Box::new(open_access())),
            config,
            clock: Arc::new(SystemClock),
            kubeconfig: None,
            shutdown: CancellationToken::new(),
            dir,
        }
    }

    /// The node's folder.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Folder of sockets.
    pub fn run_dir(&self) -> PathBuf {
        self.dir().join("run")
    }

    /// The kubelet's folder.
    pub fn root_dir(&self) -> PathBuf {
        self.dir().join("root")
    }

    /// Where a fake CRI must listen to be `process`' own CRI socket.
    pub fn cri_socket(&self, process: &str) -> PathBuf {
        self.run_dir().join("cri").join(format!("{process}.sock"))
    }

    /// Where apigate serves the API to `process`.
    pub fn api_socket(&self, process: &str) -> PathBuf {
        self.run_dir().join("api").join(format!("{process}.sock"))
    }

    /// Where a fake CRI must listen to be the node's runtime (what crigate connects to).
    pub fn runtime_socket(&self) -> PathBuf {
        self.dir().join("runtime.sock")
    }

    /// Common flags of this node.
    pub fn flags(&self) -> CommonFlags {
        CommonFlags {
            config: None,
            config_dir: None,
            run_dir: self.run_dir(),
            root_dir: self.root_dir(),
            state_dir: self.dir().join("state"),
            identities: None,
            hostname_override: Some("node-a".to_owned()),
            node_ip: vec![std::net::Ipv4Addr::new(192, 0, 2, 10).into()],
            node_labels: bulkhead_service::NodeLabels::default(),
            kubeconfig: self.kubeconfig.clone(),
            bootstrap_kubeconfig: None,
            image_credential_provider_config: None,
            image_credential_provider_bin_dir: None,
            cert_dir: None,
            cri_endpoint: None,
            log_format: None,
            log: None,
        }
    }

    /// Everybody is the test's own user.
    pub fn identities(&self) -> Identities {
        let identity = Identity { uid: self.uid, gid: self.gid };
        let process: BTreeMap<_, _> = ACCESS.process.keys().map(|name| (name.clone(), identity)).collect();
        let groups = [bulkhead_api::access::GROUP, bulkhead_api::access::LOG_GROUP];
        Identities { process, groups: groups.map(|name| (name.to_owned(), self.gid)).into() }
    }

    /// What the shell would hand to the process `name`, with a shutdown of its own beneath the node's.
    pub fn context(&self, name: &'static str) -> Context {
        Context::new(Parts {
            name,
            flags: self.flags(),
            config: self.config.clone(),
            identities: self.identities(),
            access: self.access,
            clock: self.clock.clone(),
            shutdown: self.shutdown.child_token(),
        })
    }

    /// A channel to a process of this node.
    pub fn channel(&self, name: &str) -> PeerChannel {
        let board = PeerBoard::new(self.clock.clone());
        Channels::new(&self.run_dir(), Arc::new(self.identities()), board).peer(name)
    }

    /// Serves fakes of a peer on the socket of `name`, without any check, until the token is cancelled.
    ///
    /// # Panics
    /// When the socket cannot be bound.
    pub async fn fake_peer(&self, name: &str, routes: tonic::service::Routes) -> CancellationToken {
        let path = self.run_dir().join(format!("{name}.sock"));
        let listener = bulkhead_ipc::listen::listen(&path, None).await.expect("a socket for the fake");
        let stop = self.shutdown.child_token();
        let listener = listener.into_std().expect("the listener itself");
        let stopped = stop.clone();
        // On a runtime of its own that is dropped at the end: connections live in tasks, and a killed process has none.
        std::thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                let listener = tokio::net::UnixListener::from_std(listener).expect("the listener again");
                let incoming = tokio_stream::wrappers::UnixListenerStream::new(listener);
                let server =
                    tonic::transport::Server::builder().add_routes(routes).serve_with_incoming(incoming);
                stopped.run_until_cancelled(server).await
            })
        });
        stop
    }
}

impl Drop for TestNode {
    fn drop(&mut self) {
        self.shutdown.cancel();
    }
}

/// The access file, with every service open to everyone.
fn open_access() -> Access {
    let mut access = ACCESS.clone();
    let everyone: BTreeSet<String> = ACCESS.process.keys().cloned().chain([CLI.to_owned()]).collect();
    for row in access.process.values_mut() {
        for callers in row.callers.values_mut() {
            callers.clone_from(&everyone);
        }
    }
    access
}

fn owner(path: &Path) -> (u32, u32) {
    use std::os::unix::fs::MetadataExt;
    let metadata = std::fs::metadata(path).expect("the folder just made");
    (metadata.uid(), metadata.gid())
}
