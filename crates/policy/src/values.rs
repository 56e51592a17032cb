//! Values of the policy file. Each is checked when it is read, so that the error knows its line.

use std::path::{Component, Path, PathBuf};

use serde::Deserialize;

/// All capabilities of Linux (capabilities(7)), and `ALL`.
const CAPABILITIES: [&str; 42] = [
    "ALL",
    "AUDIT_CONTROL",
    "AUDIT_READ",
    "AUDIT_WRITE",
    "BLOCK_SUSPEND",
    "BPF",
    "CHECKPOINT_RESTORE",
    "CHOWN",
    "DAC_OVERRIDE",
    "DAC_READ_SEARCH",
    "FOWNER",
    "FSETID",
    "IPC_LOCK",
    "IPC_OWNER",
    "KILL",
    "LEASE",
    "LINUX_IMMUTABLE",
    "MAC_ADMIN",
    "MAC_OVERRIDE",
    "MKNOD",
    "NET_ADMIN",
    "NET_BIND_SERVICE",
    "NET_BROADCAST",
    "NET_RAW",
    "PERFMON",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYSLOG",
    "SYS_ADMIN",
    "SYS_BOOT",
    "SYS_CHROOT",
    "SYS_MODULE",
    "SYS_NICE",
    "SYS_PACCT",
    "SYS_PTRACE",
    "SYS_RAWIO",
    "SYS_RESOURCE",
    "SYS_TIME",
    "SYS_TTY_CONFIG",
    "WAKE_ALARM",
];

/// An absolute path without `..`: it stands for itself and everything beneath it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Prefix(PathBuf);

/// A capability, without `CAP_`; `ALL` is one.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Capability(String);

/// A device: a path prefix, or the beginning of a CDI name such as `vendor.com/class=`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub enum Device {
    /// The node's device file, or a folder of them.
    Path(Prefix),
    /// Beginning of a CDI device's full name.
    Cdi(String),
}

/// A kind of seccomp or AppArmor profile, as `type` of the Kubernetes API names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum ProfileKind {
    /// The runtime's own.
    RuntimeDefault,
    /// One of the node's.
    Localhost,
    /// None.
    Unconfined,
}

/// Whether `path` is absolute and means the same to everybody who reads it.
pub(crate) fn is_plain(path: &Path) -> bool {
    path.is_absolute()
        && path.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)))
}

impl Prefix {
    /// The path itself.
    pub fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn new(path: PathBuf) -> Self {
        Self(path)
    }

    /// Whether `place` is it, or beneath it.
    pub(crate) fn holds(&self, place: &Path) -> bool {
        place.starts_with(&self.0)
    }

    /// Whether `place` shows something of it: it is in it, or it is in `place`.
    pub(crate) fn meets(&self, place: &Path) -> bool {
        self.holds(place) || self.0.starts_with(place)
    }
}

impl TryFrom<String> for Prefix {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let path = PathBuf::from(&text);
        if is_plain(&path) {
            Ok(Self(path))
        } else {
            Err(format!("{text:?} is not an absolute path without `..`"))
        }
    }
}

impl Capability {
    /// Whether a container that asks for `name`, in any spelling, asks for this one.
    pub(crate) fn is(&self, name: &str) -> bool {
        self.0 == bare(name)
    }
}

impl TryFrom<String> for Capability {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let name = bare(&text);
        if CAPABILITIES.contains(&name.as_str()) {
            Ok(Self(name))
        } else {
            Err(format!("{text:?} is no capability of Linux"))
        }
    }
}

/// Without `CAP_`, in capitals: as runtimes read it.
fn bare(name: &str) -> String {
    let name = name.to_ascii_uppercase();
    name.strip_prefix("CAP_").map_or_else(|| name.clone(), str::to_owned)
}

impl TryFrom<String> for Device {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        if text.starts_with('/') {
            return Prefix::try_from(text).map(Self::Path);
        }
        if text.contains('/') && text.contains('=') {
            return Ok(Self::Cdi(text));
        }
        Err(format!("{text:?} is neither a path nor a CDI name such as \"vendor.com/class=\""))
    }
}
