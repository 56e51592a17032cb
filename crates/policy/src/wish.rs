//! What a pod or container asks for, as far as rules look at it. Neutral: neither CRI nor the Kubernetes API.

use std::path::{Path, PathBuf};

use crate::values::is_plain;

/// Where a path of the node really leads: its names with all links resolved, and those of the same files elsewhere. Or
/// why that is not known.
pub type Places = Result<Vec<PathBuf>, String>;

/// The node's folders, without links.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// The kubelet's folder.
    pub root: PathBuf,
    /// `podLogsDir`.
    pub logs: PathBuf,
}

/// One thing that somebody wants to be made: a sandbox, or a container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wish {
    /// Whose it is.
    pub pod: Pod,
    /// What it is.
    pub part: Part,
    /// What it asks for.
    pub asked: Asked,
}

/// A pod's identity.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pod {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID: the name of its folder.
    pub uid: String,
}

/// What is made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Part {
    /// The pod's sandbox.
    #[default]
    Sandbox,
    /// The container with this name.
    Container(String),
}

/// What is asked for. The default is nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// To be as root on the host.
    pub privileged: bool,
    /// Namespaces of the host.
    pub host: HostNamespaces,
    /// Paths of the node that are mounted.
    pub mounts: Vec<Mount>,
    /// Devices of the node.
    pub devices: Vec<DeviceWish>,
    /// Further capabilities, in any spelling.
    pub capabilities: Vec<String>,
    /// The seccomp profile. `None`: not said here.
    pub seccomp: Option<Profile>,
    /// The AppArmor profile. `None`: not said here.
    pub app_armor: Option<Profile>,
    /// Where the runtime, as root, writes what the container prints.
    pub log: Option<LogFile>,
}

/// Namespaces that are shared with the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostNamespaces {
    /// Its network.
    pub network: bool,
    /// Its processes.
    pub pid: bool,
    /// Its System V and POSIX objects.
    pub ipc: bool,
}

/// A path of the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// As it was asked for.
    pub source: String,
    /// Where it leads.
    pub places: Places,
}

/// A device of the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeviceWish {
    /// A device file.
    Path(Mount),
    /// A device by its CDI name.
    Cdi(String),
}

/// A seccomp or AppArmor profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Profile {
    /// The runtime's own.
    RuntimeDefault,
    /// A seccomp file of the node, or the name of an AppArmor profile.
    Localhost(String),
    /// None.
    Unconfined,
}

/// Where a container's output goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogFile {
    /// The pod's folder of logs.
    pub folder: Mount,
    /// The file beneath it; empty for a sandbox, which has none.
    pub file: String,
}

impl Node {
    /// The folder of the pod with this UID. `None`: it is no name of a folder.
    pub fn pod_folder(&self, uid: &str) -> Option<PathBuf> {
        let is_name = !uid.is_empty() && uid != "." && uid != ".." && !uid.contains(['/', '\0']);
        is_name.then(|| self.pods().join(uid))
    }

    /// Where pods' folders are.
    pub fn pods(&self) -> PathBuf {
        self.root.join("pods")
    }

    pub(crate) fn seccomp_profile(&self, file: &str) -> PathBuf {
        self.root.join("seccomp").join(file)
    }

    /// Whether `path` is a seccomp profile where the kubelet keeps them.
    pub(crate) fn is_seccomp_profile(&self, path: &str) -> bool {
        let path = Path::new(path);
        is_plain(path) && path.starts_with(self.root.join("seccomp"))
    }
}
