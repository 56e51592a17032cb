//! Which cgroup version this machine has and where its hierarchies are mounted. Must never mount anything.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::{CgroupError, file};

const MOUNTINFO: &str = "/proc/self/mountinfo";

/// Largest mountinfo that is read, in bytes: a node of a few hundred pods has some thousand mounts of 200 bytes.
const MOUNTINFO_LIMIT: u64 = 16 * 1024 * 1024;

/// Controllers that v1 mounts by name (proc(5), `/proc/cgroups`). Other words in a mount's options are options.
const V1_CONTROLLERS: [&str; 14] = [
    "blkio",
    "cpu",
    "cpuacct",
    "cpuset",
    "devices",
    "freezer",
    "hugetlb",
    "memory",
    "misc",
    "net_cls",
    "net_prio",
    "perf_event",
    "pids",
    "rdma",
];

/// The interface that this machine's controllers have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// One hierarchy per controller, or per group of them.
    V1,
    /// The unified hierarchy.
    V2,
}

/// Where the cgroup file systems are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mounts {
    /// Controllers have hierarchies of their own. A hybrid machine, with a cgroup2 mount without controllers beside
    /// them, is this as well.
    V1 {
        /// The mount point of each controller and of each named hierarchy (`name=systemd`); several may share one.
        controllers: BTreeMap<String, PathBuf>,
        /// The cgroup2 mount of a hybrid machine. It controls nothing, but runtimes put containers into it too, so
        /// pods must be made and removed there: else root-owned directories are left behind.
        unified: Option<PathBuf>,
    },
    /// Everything is in one hierarchy.
    V2 {
        /// Its mount point, usually `/sys/fs/cgroup`.
        mountpoint: PathBuf,
    },
}

impl Mounts {
    /// Looks at this process's own mounts.
    pub fn detect() -> Result<Self, CgroupError> {
        Self::detect_from(Path::new(MOUNTINFO))
    }

    /// Looks at the mounts in `mountinfo`, a file in the format of `/proc/self/mountinfo`.
    pub fn detect_from(mountinfo: &Path) -> Result<Self, CgroupError> {
        let content = file::read(mountinfo, MOUNTINFO_LIMIT)?;
        Self::parse(&content).ok_or_else(|| CgroupError::NoMounts { path: mountinfo.to_owned() })
    }

    /// Reads the content of a mountinfo file (proc(5)); `None` when it holds no cgroup mount. Lines of another format
    /// are skipped.
    pub fn parse(content: &str) -> Option<Self> {
        let all: Vec<Mount> = content.lines().filter_map(Mount::parse).collect();
        let visible =
            all.iter().filter(|mount| mount.fs_type.starts_with("cgroup") && !is_hidden(mount, &all));
        let mut controllers = BTreeMap::new();
        let mut v2 = Vec::new();
        for mount in visible {
            if mount.fs_type == "cgroup2" {
                v2.push(mount.point.clone());
                continue;
            }
            for option in mount.options.split(',') {
                if V1_CONTROLLERS.contains(&option) || option.starts_with("name=") {
                    // A bind mount shows a part of a hierarchy; the first mount is the system's own.
                    controllers.entry(option.to_owned()).or_insert_with(|| mount.point.clone());
                }
            }
        }
        // Runtimes call a machine v2 exactly when cgroup2 is mounted at /sys/fs/cgroup, and hybrid when it is mounted
        // in a directory named "unified". Both sides must think the same, or pods end in two trees.
        let standard = v2.iter().find(|point| *point == Path::new("/sys/fs/cgroup"));
        if let Some(mountpoint) = standard.or(if controllers.is_empty() { v2.first() } else { None }) {
            return Some(Self::V2 { mountpoint: mountpoint.clone() });
        }
        if controllers.is_empty() {
            return None;
        }
        let unified = v2.into_iter().find(|point| point.ends_with("unified"));
        Some(Self::V1 { controllers, unified })
    }

    /// Which interface the controllers have.
    pub fn version(&self) -> Version {
        match self {
            Self::V1 { .. } => Version::V1,
            Self::V2 { .. } => Version::V2,
        }
    }

    /// The mount point of `controller`; on v2 the one mount point, whether or not the kernel offers the controller.
    pub fn controller(&self, controller: &str) -> Option<&Path> {
        match self {
            Self::V1 { controllers, .. } => controllers.get(controller).map(PathBuf::as_path),
            Self::V2 { mountpoint } => Some(mountpoint),
        }
    }

    /// Every distinct mount point: each holds the whole tree of pods.
    pub fn hierarchies(&self) -> Vec<&Path> {
        match self {
            Self::V1 { controllers, unified } => {
                let mut points: Vec<&Path> =
                    controllers.values().chain(unified).map(PathBuf::as_path).collect();
                points.sort_unstable();
                points.dedup();
                points
            }
            Self::V2 { mountpoint } => vec![mountpoint],
        }
    }
}

/// The fields of a mountinfo line that are used here.
struct Mount {
    id: u32,
    parent: u32,
    point: PathBuf,
    fs_type: String,
    options: String,
}

impl Mount {
    fn parse(line: &str) -> Option<Self> {
        let (left, right) = line.split_once(" - ")?;
        let mut left = left.split(' ');
        let id = left.next()?.parse().ok()?;
        let parent = left.next()?.parse().ok()?;
        let point = PathBuf::from(unescape(left.nth(2)?)?);
        let mut right = right.split(' ');
        let fs_type = right.next()?.to_owned();
        let options = right.nth(1)?.to_owned();
        Some(Self { id, parent, point, fs_type, options })
    }
}

/// True when another mount lies over `mount`, at its mount point or above: then its path shows the other.
fn is_hidden(mount: &Mount, all: &[Mount]) -> bool {
    // A mount covers this one when it sits on this one or on something that this one sits on, at a place along its
    // path, without being what this one sits on itself. The order of lines tells nothing: the root of a booted system
    // is mounted after /proc.
    let mut lineage = vec![mount.id];
    let mut at = mount;
    while let Some(parent) = all.iter().find(|other| other.id == at.parent && !lineage.contains(&other.id)) {
        lineage.push(parent.id);
        at = parent;
    }
    all.iter().any(|other| {
        !lineage.contains(&other.id)
            && lineage.contains(&other.parent)
            && mount.point.starts_with(&other.point)
    })
}

/// Undoes the `\ooo` escapes of a path in mountinfo; `None` when the result is no text.
fn unescape(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let code = after.get(..3).filter(|_| first == b'\\');
        let code = code.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        match code {
            Some(byte) => {
                bytes.push(byte);
                rest = after.get(3..).unwrap_or_default();
            }
            None => {
                bytes.push(first);
                rest = after;
            }
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HYBRID: &str = "\
23 0 254:0 / / rw - ext4 /dev/vda rw
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 master:1 - cgroup cgroup rw,cpu,cpuacct
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
40 31 0:37 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,xattr,name=systemd
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
";

    const V2: &str = "\
23 0 254:0 / / rw - ext4 /dev/vda rw
31 23 0:28 / /sys/fs/cgroup rw,relatime - cgroup2 cgroup2 rw,nsdelegate
";

    #[test]
    fn a_hybrid_machine_is_v1_with_a_unified_tree_beside() {
        let mounts = Mounts::parse(HYBRID).unwrap();
        assert_eq!(mounts.version(), Version::V1);
        assert_eq!(mounts.controller("cpuacct"), Some(Path::new("/sys/fs/cgroup/cpu,cpuacct")));
        assert_eq!(mounts.controller("pids"), None);
        assert_eq!(mounts.controller("xattr"), None, "an option is no controller");
        let points =
            ["cpu,cpuacct", "memory", "systemd", "unified"].map(|name| format!("/sys/fs/cgroup/{name}"));
        assert_eq!(mounts.hierarchies(), points.iter().map(Path::new).collect::<Vec<_>>());
    }

    #[test]
    fn a_unified_machine_is_v2() {
        let mounts = Mounts::parse(V2).unwrap();
        assert_eq!(mounts, Mounts::V2 { mountpoint: "/sys/fs/cgroup".into() });
        assert_eq!(mounts.controller("memory"), Some(Path::new("/sys/fs/cgroup")));
    }

    #[test]
    fn a_stray_v1_mount_does_not_make_a_v2_machine_v1() {
        let stray = format!("{V2}50 23 0:50 / /mnt/net_cls rw - cgroup cgroup rw,net_cls\n");
        assert_eq!(Mounts::parse(&stray).unwrap().version(), Version::V2);
    }

    #[test]
    fn what_another_mount_covers_is_not_seen() {
        // cgroup2 mounted over the v1 tree, as in a private mount namespace.
        let over = format!("{HYBRID}60 31 0:38 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
        assert_eq!(Mounts::parse(&over).unwrap(), Mounts::V2 { mountpoint: "/sys/fs/cgroup".into() });
        let parent_covered = format!("{HYBRID}60 23 0:60 / /sys rw - sysfs sysfs rw\n");
        assert_eq!(Mounts::parse(&parent_covered), None);
    }

    #[test]
    fn a_root_that_was_mounted_later_covers_nothing_of_its_own() {
        let booted = "\
31 99 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw
1 1 0:1 / / rw - rootfs rootfs rw
99 1 254:0 / / rw - ext4 /dev/vda rw
";
        assert!(Mounts::parse(booted).is_some());
    }

    #[test]
    fn nothing_mounted_and_odd_lines() {
        assert_eq!(Mounts::parse(""), None);
        assert_eq!(Mounts::parse("garbage\n31 23 - cgroup2\n\n - - -\n"), None);
        let spaced = "31 23 0:28 / /mnt/a\\040b\\134c rw - cgroup2 cgroup2 rw\n";
        assert_eq!(Mounts::parse(spaced).unwrap(), Mounts::V2 { mountpoint: "/mnt/a b\\c".into() });
    }

    #[test]
    fn a_missing_mount_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("mountinfo");
        assert!(matches!(Mounts::detect_from(&path), Err(CgroupError::Read { .. })));
        std::fs::write(&path, "23 0 254:0 / / rw - ext4 /dev/vda rw\n").unwrap();
        assert!(matches!(Mounts::detect_from(&path), Err(CgroupError::NoMounts { .. })));
        std::fs::write(&path, V2).unwrap();
        assert_eq!(Mounts::detect_from(&path).unwrap().version(), Version::V2);
    }

    proptest! {
        #[test]
        fn any_content_is_read_without_panic(
            lines in prop::collection::vec(
                "[0-9]{1,2} [0-9]{1,2} 0:1 / /[a-z/\\\\0-9]{0,8} rw - cgroup2? cgroup rw,(cpu|memory|name=x)|.{0,40}",
                0..12,
            )
        ) {
            if let Some(mounts) = Mounts::parse(&lines.join("\n")) {
                prop_assert!(!mounts.hierarchies().is_empty());
            }
        }

        #[test]
        fn an_escaped_path_comes_back(path in "[a-z \\\\\n\t]{0,20}") {
            let escaped: String = path
                .chars()
                .map(|c| match c {
                    ' ' => "\\040".to_owned(),
                    '\\' => "\\134".to_owned(),
                    '\n' => "\\012".to_owned(),
                    '\t' => "\\011".to_owned(),
                    other => other.to_string(),
                })
                .collect();
            prop_assert_eq!(unescape(&escaped), Some(path));
        }
    }
}
