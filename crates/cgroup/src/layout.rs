//! Names of the pods' cgroups and where they are (cgroupfs driver). Pure: knows no mount point and does no I/O.
//!
//! The shape is the kubelet's (`--cgroup-root`, `--cgroups-per-qos`, node design "pod-level cgroups"):
//! `<root>/kubepods`, `<root>/kubepods/burstable`, `<root>/kubepods/besteffort`, and `pod<uid>` in `kubepods` itself for
//! guaranteed pods, else in its QoS class. Containers are the runtime's, in directories named for their id.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::CgroupError;

/// Longest name of one directory, in bytes (the kernel's `NAME_MAX`).
const NAME_LIMIT: usize = 255;
/// Deepest path that is accepted.
const DEPTH_LIMIT: usize = 32;
/// Longest pod UID, in bytes. The API server's are 36 long, those of static pods 32.
const UID_LIMIT: usize = 128;

const KUBEPODS: &str = "kubepods";
const POD_PREFIX: &str = "pod";

/// A cgroup's place in a hierarchy: an absolute, normalized path such as `/kubepods/burstable`.
///
/// Holds no `.` or `..`, no empty and no unprintable component, so it never leads out of a mount point.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CgroupPath(Vec<String>);

/// A pod's UID, checked to be safe as part of a directory's name: 1 to 128 of `A-Z a-z 0-9 . _ -`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodUid(String);

/// The QoS class of a pod (`status.qosClass`), as far as it decides where its cgroup is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum QosTier {
    /// Directly beneath `kubepods`.
    Guaranteed,
    /// Beneath `kubepods/burstable`.
    Burstable,
    /// Beneath `kubepods/besteffort`.
    BestEffort,
}

/// The cgroup of one pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodCgroup {
    /// Decides the parent.
    pub qos: QosTier,
    /// Decides the directory's name.
    pub uid: PodUid,
}

/// A cgroup that this project makes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CgroupName {
    /// The top of the tree, holding all pods of the node.
    Kubepods,
    /// The parent of all burstable pods.
    Burstable,
    /// The parent of all best-effort pods.
    BestEffort,
    /// One pod.
    Pod(PodCgroup),
}

/// Where cgroups are for one `cgroupRoot`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    root: CgroupPath,
}

impl Layout {
    /// The tree beneath `root` (`cgroupRoot` of KubeletConfiguration).
    pub fn new(root: CgroupPath) -> Self {
        Self { root }
    }

    /// Where `name` is.
    pub fn path(&self, name: &CgroupName) -> CgroupPath {
        match name {
            CgroupName::Kubepods => self.root.push(KUBEPODS),
            CgroupName::Burstable => self.tier(QosTier::Burstable),
            CgroupName::BestEffort => self.tier(QosTier::BestEffort),
            CgroupName::Pod(pod) => self.tier(pod.qos).push(&format!("{POD_PREFIX}{}", pod.uid)),
        }
    }

    /// The directory that holds the pods of a QoS class.
    pub fn tier(&self, qos: QosTier) -> CgroupPath {
        let top = self.root.push(KUBEPODS);
        match qos {
            QosTier::Guaranteed => top,
            QosTier::Burstable => top.push("burstable"),
            QosTier::BestEffort => top.push("besteffort"),
        }
    }

    /// `cgroup_parent` of CRI's `LinuxPodSandboxConfig`: with the cgroupfs driver, the pod's path.
    pub fn cgroup_parent(&self, pod: &PodCgroup) -> String {
        self.path(&CgroupName::Pod(pod.clone())).to_string()
    }

    /// Where a runtime with the cgroupfs driver puts a container (or sandbox) of `pod`.
    pub fn container(&self, pod: &PodCgroup, id: &str) -> Result<CgroupPath, CgroupError> {
        check_name(id).map_err(|reason| invalid("container id", id, reason))?;
        Ok(self.path(&CgroupName::Pod(pod.clone())).push(id))
    }

    /// Which of our cgroups is at `path`; `None` when none is, as for a container or a foreign cgroup.
    pub fn name(&self, path: &CgroupPath) -> Option<CgroupName> {
        let below = path.0.strip_prefix(self.root.0.as_slice())?;
        let below: Vec<&str> = below.iter().map(String::as_str).collect();
        let pod = |qos, name| Some(CgroupName::Pod(PodCgroup { qos, uid: Self::pod_uid(name)? }));
        match below.as_slice() {
            [KUBEPODS] => Some(CgroupName::Kubepods),
            [KUBEPODS, "burstable"] => Some(CgroupName::Burstable),
            [KUBEPODS, "besteffort"] => Some(CgroupName::BestEffort),
            [KUBEPODS, name] => pod(QosTier::Guaranteed, name),
            [KUBEPODS, "burstable", name] => pod(QosTier::Burstable, name),
            [KUBEPODS, "besteffort", name] => pod(QosTier::BestEffort, name),
            _ => None,
        }
    }

    /// The UID in the name of a pod's directory; `None` when it is no pod's.
    pub fn pod_uid(directory: &str) -> Option<PodUid> {
        PodUid::parse(directory.strip_prefix(POD_PREFIX)?).ok()
    }
}

impl CgroupPath {
    /// The root of a hierarchy, `/`.
    pub fn root() -> Self {
        Self(Vec::new())
    }

    /// Reads a path. As with the kubelet's `--cgroup-root`, an empty text is the root and the first `/` may be absent.
    pub fn parse(text: &str) -> Result<Self, CgroupError> {
        let parts: Vec<&str> = text.split('/').filter(|part| !part.is_empty()).collect();
        if parts.len() > DEPTH_LIMIT {
            return Err(invalid("cgroup path", text, "it is deeper than 32 directories"));
        }
        for part in &parts {
            check_name(part).map_err(|reason| invalid("cgroup path", text, reason))?;
        }
        Ok(Self(parts.into_iter().map(str::to_owned).collect()))
    }

    /// The directory beneath `mount`, a hierarchy's mount point.
    pub fn below(&self, mount: &Path) -> PathBuf {
        let mut path = mount.to_owned();
        path.extend(&self.0);
        path
    }

    /// The cgroup that holds this one; `None` for the root.
    pub fn parent(&self) -> Option<Self> {
        let (_, parent) = self.0.split_last()?;
        Some(Self(parent.to_vec()))
    }

    /// Every cgroup from the one beneath the root down to this one.
    pub(crate) fn lineage(&self) -> Vec<Self> {
        let mut seen = Self::root();
        self.0
            .iter()
            .map(|part| {
                seen = seen.push(part);
                seen.clone()
            })
            .collect()
    }

    /// `name` must be checked by the caller.
    fn push(&self, name: &str) -> Self {
        let mut parts = self.0.clone();
        parts.push(name.to_owned());
        Self(parts)
    }
}

impl fmt::Display for CgroupPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "/{}", self.0.join("/"))
    }
}

impl PodUid {
    /// Checks a UID. Those of manifests are whatever their author wrote.
    pub fn parse(text: &str) -> Result<Self, CgroupError> {
        let reason = if text.is_empty() {
            "it is empty"
        } else if text.len() > UID_LIMIT {
            "it is longer than 128 bytes"
        } else if !text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte)) {
            "only letters, digits, '.', '_' and '-' are allowed"
        } else {
            return Ok(Self(text.to_owned()));
        };
        Err(invalid("pod UID", text, reason))
    }

    /// The UID as the API has it.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for PodUid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn check_name(name: &str) -> Result<(), &'static str> {
    if name.is_empty() {
        Err("a name in it is empty")
    } else if name == "." || name == ".." {
        Err("it holds '.' or '..'")
    } else if name.len() > NAME_LIMIT {
        Err("a name in it is longer than 255 bytes")
    } else if name.contains('/') || name.chars().any(char::is_control) {
        Err("a name in it holds '/' or a control character")
    } else {
        Ok(())
    }
}

fn invalid(what: &'static str, text: &str, reason: &'static str) -> CgroupError {
    // A UID may be megabytes of a manifest: errors end in logs and events.
    CgroupError::InvalidName { what, text: text.chars().take(64).collect(), reason }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pod(qos: QosTier, uid: &str) -> CgroupName {
        CgroupName::Pod(PodCgroup { qos, uid: PodUid::parse(uid).unwrap() })
    }

    #[test]
    fn every_name_has_the_kubelets_path() {
        let cases = [
            (CgroupName::Kubepods, "/kubepods"),
            (CgroupName::Burstable, "/kubepods/burstable"),
            (CgroupName::BestEffort, "/kubepods/besteffort"),
            (pod(QosTier::Guaranteed, "a-1"), "/kubepods/poda-1"),
            (pod(QosTier::Burstable, "a-1"), "/kubepods/burstable/poda-1"),
            (pod(QosTier::BestEffort, "a-1"), "/kubepods/besteffort/poda-1"),
        ];
        for root in ["", "/", "/bulkhead", "a/b/"] {
            let root = CgroupPath::parse(root).unwrap();
            let layout = Layout::new(root.clone());
            let prefix = root.to_string();
            for (name, path) in &cases {
                assert_eq!(layout.path(name).to_string(), format!("{}{path}", prefix.trim_end_matches('/')));
                assert_eq!(layout.name(&layout.path(name)).as_ref(), Some(name));
            }
        }
    }

    #[test]
    fn the_runtime_gets_the_pods_path_and_puts_containers_beneath() {
        let layout = Layout::new(CgroupPath::parse("/bulkhead").unwrap());
        let pod = PodCgroup { qos: QosTier::Burstable, uid: PodUid::parse("u").unwrap() };
        assert_eq!(layout.cgroup_parent(&pod), "/bulkhead/kubepods/burstable/podu");
        let container = layout.container(&pod, "c0ffee").unwrap();
        assert_eq!(container.to_string(), "/bulkhead/kubepods/burstable/podu/c0ffee");
        assert_eq!(layout.name(&container), None);
        assert_eq!(container.parent(), Some(layout.path(&CgroupName::Pod(pod.clone()))));
        assert!(layout.container(&pod, "../x").is_err());
        assert!(layout.container(&pod, "").is_err());
    }

    #[test]
    fn foreign_paths_have_no_name() {
        let layout = Layout::new(CgroupPath::parse("/bulkhead").unwrap());
        for path in ["/", "/bulkhead", "/kubepods", "/bulkhead/kubepods/system", "/bulkhead/kubepods/pod"] {
            assert_eq!(layout.name(&CgroupPath::parse(path).unwrap()), None, "{path}");
        }
    }

    #[test]
    fn hostile_names_are_refused_in_few_words() {
        for path in ["..", "/a/../b", "/./a", "/a\nb", "/a\0"] {
            assert!(CgroupPath::parse(path).is_err(), "{path:?}");
        }
        assert!(CgroupPath::parse(&"/a".repeat(33)).is_err());
        for uid in ["", "a/b", "a b", "ü", "a\n"] {
            assert!(PodUid::parse(uid).is_err(), "{uid:?}");
        }
        let error = PodUid::parse(&"x".repeat(10_000_000)).unwrap_err().to_string();
        assert!(error.len() < 200, "{} bytes", error.len());
    }

    proptest! {
        #[test]
        fn a_path_never_leaves_its_mount_point(text in ".{0,80}|([a-z.]{0,3}/){0,6}") {
            if let Ok(path) = CgroupPath::parse(&text) {
                let full = path.below(Path::new("/mnt"));
                prop_assert!(full.starts_with("/mnt"));
                prop_assert!(full.components().all(|part| part != std::path::Component::ParentDir));
                prop_assert_eq!(CgroupPath::parse(&path.to_string()).unwrap(), path);
            }
        }

        #[test]
        fn a_pods_directory_gives_its_uid_back(uid in "[A-Za-z0-9._-]{1,128}", tier in 0..3usize) {
            let qos = [QosTier::Guaranteed, QosTier::Burstable, QosTier::BestEffort][tier];
            let layout = Layout::new(CgroupPath::root());
            let name = pod(qos, &uid);
            let path = layout.path(&name);
            prop_assert_eq!(path.0.len(), if qos == QosTier::Guaranteed { 2 } else { 3 });
            prop_assert_eq!(layout.name(&path), Some(name));
        }

        #[test]
        fn any_text_is_read_without_panic(text in ".{0,300}") {
            let _ = Layout::pod_uid(&text);
        }
    }
}
