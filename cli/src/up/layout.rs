//! Where everything of one node is: a state folder that stays, a volatile folder, a network namespace and a cgroup that go.
//! Pure but for resolving the state folder's name.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use sha2::{Digest, Sha256};

/// Longest path of a Unix socket (`sun_path`, with its final zero, is 108 bytes).
const SOCKET_PATH: usize = 107;
/// The longest name that is made below the state folder for a socket.
const LONGEST_SOCKET: &str = "run/cri/crigate.sock";

/// Names of one node's things.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    state: PathBuf,
    id: String,
}

impl Layout {
    /// For the node in `state`, an absolute path without links.
    pub fn new(state: PathBuf) -> anyhow::Result<Self> {
        let Some(text) = state.to_str() else { bail!("--state {} is not UTF-8", state.display()) };
        if text.len() + 1 + LONGEST_SOCKET.len() > SOCKET_PATH {
            bail!(
                "--state {text} is too long for the sockets in it: at most {} bytes",
                SOCKET_PATH - 1 - LONGEST_SOCKET.len()
            );
        }
        let digest = Sha256::digest(state.as_os_str().as_bytes());
        let id = digest.iter().take(3).map(|byte| format!("{byte:02x}")).collect();
        Ok(Self { state, id })
    }

    /// Makes the state folder and resolves its name.
    pub fn make(state: &Path) -> anyhow::Result<Self> {
        let name = || format!("--state {} cannot be used", state.display());
        std::fs::create_dir_all(state).with_context(name)?;
        Self::new(state.canonicalize().with_context(name)?)
    }

    /// The state folder. It stays when the node is stopped.
    pub fn state(&self) -> &Path {
        &self.state
    }

    /// Held by the launcher as long as it runs.
    pub fn lock(&self) -> PathBuf {
        self.state.join("lock")
    }

    /// Folder of the processes' sockets.
    pub fn run(&self) -> PathBuf {
        self.state.join("run")
    }

    /// Folder of the CRI sockets that crigate makes.
    pub fn cri(&self) -> PathBuf {
        self.run().join("cri")
    }

    /// Folder of the API sockets that apigate makes.
    pub fn api(&self) -> PathBuf {
        self.run().join("api")
    }

    /// The kubelet's folder.
    pub fn root(&self) -> PathBuf {
        self.state.join("root")
    }

    /// Folder of the node's certificates.
    pub fn certificates(&self) -> PathBuf {
        self.root().join("pki")
    }

    /// How apigate reaches the API server: a copy, or what it wrote itself after it got its first certificate.
    pub fn kubeconfig(&self) -> PathBuf {
        self.certificates().join("kubeconfig")
    }

    /// A copy of the kubeconfig to ask for that certificate with.
    pub fn bootstrap_kubeconfig(&self) -> PathBuf {
        self.certificates().join("bootstrap-kubeconfig")
    }

    /// Folder of pods' folders.
    pub fn pods(&self) -> PathBuf {
        self.root().join("pods")
    }

    /// Folder of the processes' own logs, and of those of pods.
    pub fn logs(&self) -> PathBuf {
        self.state.join("logs")
    }

    /// `podLogsDir`.
    pub fn pod_logs(&self) -> PathBuf {
        self.logs().join("pods")
    }

    /// Folder of links to pods' logs: beside `podLogsDir`.
    pub fn log_links(&self) -> PathBuf {
        self.logs().join("containers")
    }

    /// `staticPodPath`.
    pub fn manifests(&self) -> PathBuf {
        self.state.join("manifests")
    }

    /// Folder above each process' own state.
    pub fn states(&self) -> PathBuf {
        self.state.join("state")
    }

    /// Which uid is which process.
    pub fn identities(&self) -> PathBuf {
        self.state.join("identities.json")
    }

    /// The user's configuration as it was at the start.
    pub fn config(&self) -> PathBuf {
        self.state.join("config.yaml")
    }

    /// Folder of what the launcher lays over it.
    pub fn config_dir(&self) -> PathBuf {
        self.state.join("config.d")
    }

    /// The node policy as it was at the start.
    pub fn policy(&self) -> PathBuf {
        self.state.join("policy.toml")
    }

    /// Folder of this program under the processes' names, as it was at the start.
    pub fn bin(&self) -> PathBuf {
        self.state.join("bin")
    }

    /// Folder of the private runtime's images and metadata.
    pub fn containerd(&self) -> PathBuf {
        self.state.join("containerd")
    }

    /// Folder of what must not survive a reboot. Short: the runtime allows its shims' sockets 42 bytes.
    pub fn volatile(&self) -> PathBuf {
        Path::new("/run").join(self.name())
    }

    /// Name of the network namespace.
    pub fn netns(&self) -> String {
        self.name()
    }

    /// `cgroupRoot`.
    pub fn cgroup(&self) -> String {
        format!("/{}", self.name())
    }

    /// Name of the bridge between pods; at most 15 bytes.
    pub fn bridge(&self) -> String {
        format!("bh-{}", self.id)
    }

    fn name(&self) -> String {
        format!("bulkhead-{}", self.id)
    }
}

/// Whether `path` is in `folder` and not `folder` itself.
pub fn is_below(path: &Path, folder: &Path) -> bool {
    path != folder
        && path.starts_with(folder)
        && !path.components().any(|part| part.as_os_str() == OsStr::new(".."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_folders_share_nothing() {
        let layout = |path: &str| Layout::new(path.into()).unwrap();
        let (a, b) = (layout("/a"), layout("/b"));
        assert_ne!(a.volatile(), b.volatile());
        assert_ne!(a.netns(), b.netns());
        assert_ne!(a.cgroup(), b.cgroup());
        assert_ne!(a.bridge(), b.bridge());
        assert_eq!(a, layout("/a"), "the same folder is the same node");
    }

    #[test]
    fn names_fit_where_they_go() {
        let longest = format!("/{}", "s".repeat(SOCKET_PATH - 2 - LONGEST_SOCKET.len()));
        let layout = Layout::new(longest.clone().into()).unwrap();
        assert!(layout.bridge().len() <= 15);
        assert!(layout.volatile().join("s").as_os_str().len() <= 42);
        for process in bulkhead_api::access::ACCESS.process.keys() {
            assert!(
                layout.cri().join(format!("{process}.sock")).as_os_str().len() <= SOCKET_PATH,
                "{process}"
            );
        }
        assert!(Layout::new(format!("{longest}s").into()).is_err());
    }

    #[test]
    fn only_what_is_inside_is_below() {
        let below = |path: &str| is_below(Path::new(path), Path::new("/s/pods"));
        assert!(below("/s/pods/a") && below("/s/pods/a/b"));
        assert!(!below("/s/pods") && !below("/s/pods2/a") && !below("/s") && !below("/s/pods/../x"));
    }
}
