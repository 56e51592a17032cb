//! Operations on a cgroup in every hierarchy at once: make, list processes, kill, remove. Must never be given the root
//! of a hierarchy: its callers name only cgroups at or beneath `kubepods`.

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::layout::CgroupPath;
use crate::{CgroupError, Mounts, file};

/// v2 controllers that a parent passes on to its children, where the kernel offers them.
const DELEGATED: [&str; 6] = ["cpu", "cpuset", "hugetlb", "io", "memory", "pids"];

/// Largest `cgroup.procs` that is read, in bytes: more than the processes of the busiest node.
const PROCS_LIMIT: u64 = 4 * 1024 * 1024;
/// Most processes that are listed at once.
const PROCESSES_LIMIT: usize = 256 * 1024;
/// Most cgroups of one tree that are walked.
const CGROUPS_LIMIT: usize = 64 * 1024;
/// Processes whose file descriptors are held at the same time while killing.
const KILL_BATCH: usize = 64;

/// What became of a cgroup that was to be removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Removal {
    /// It is gone now.
    Removed,
    /// It was not there.
    AlreadyGone,
    /// Processes or child cgroups are still in it; try again when they are gone.
    Busy {
        /// A directory that could not be removed.
        path: PathBuf,
    },
}

/// What became of the processes that were to be killed. They die a moment later: list them to see.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Killed {
    /// Processes that were sent SIGKILL.
    pub signalled: usize,
    /// Processes of other users that this process may not signal.
    pub denied: usize,
}

/// Makes `path` and what is missing above it, in every hierarchy. True when anything was made.
pub(crate) fn create(mounts: &Mounts, path: &CgroupPath) -> Result<bool, CgroupError> {
    let cpuset = match mounts {
        Mounts::V1 { .. } => mounts.controller("cpuset"),
        Mounts::V2 { .. } => None,
    };
    let mut changed = false;
    for mount in mounts.hierarchies() {
        let mut parent = mount.to_owned();
        for step in path.lineage() {
            if let Mounts::V2 { .. } = mounts {
                pass_controllers_on(&parent)?;
            }
            let dir = step.below(mount);
            changed |= make_dir(&dir)?;
            if cpuset == Some(mount) {
                inherit_cpuset(&parent, &dir)?;
            }
            parent = dir;
        }
    }
    Ok(changed)
}

/// The processes in `path` and beneath, in any hierarchy. Empty when it does not exist.
pub(crate) fn processes(mounts: &Mounts, path: &CgroupPath) -> Result<BTreeSet<u32>, CgroupError> {
    let mut found = BTreeSet::new();
    for mount in mounts.hierarchies() {
        processes_beneath(&path.below(mount), &mut found)?;
    }
    Ok(found)
}

/// Kills what is in `path` and beneath. One pass: processes that fork meanwhile may need another.
pub(crate) fn kill(mounts: &Mounts, path: &CgroupPath) -> Result<Killed, CgroupError> {
    let mut total = Killed::default();
    for mount in mounts.hierarchies() {
        let dir = path.below(mount);
        let one = match mounts {
            Mounts::V2 { .. } => kill_whole(&dir)?,
            Mounts::V1 { .. } => None,
        };
        let one = match one {
            Some(killed) => killed,
            None => kill_each(&dir)?,
        };
        total.signalled = total.signalled.saturating_add(one.signalled);
        total.denied = total.denied.saturating_add(one.denied);
    }
    Ok(total)
}

/// Removes `path` from every hierarchy, with everything beneath it.
pub(crate) fn remove_all(mounts: &Mounts, path: &CgroupPath) -> Result<Removal, CgroupError> {
    in_each(mounts, path, |dir| {
        let mut budget = CGROUPS_LIMIT;
        remove_beneath(dir, dir, &mut budget)
    })
}

/// Removes `path` from every hierarchy; busy where it has children.
pub(crate) fn remove_one(mounts: &Mounts, path: &CgroupPath) -> Result<Removal, CgroupError> {
    in_each(mounts, path, remove_dir)
}

/// Removes from every hierarchy before it answers with the worst of what it met, so that one that fails does not keep
/// the others.
fn in_each(
    mounts: &Mounts,
    path: &CgroupPath,
    mut remove: impl FnMut(&Path) -> Result<Removal, CgroupError>,
) -> Result<Removal, CgroupError> {
    let mut result = Ok(Removal::AlreadyGone);
    for mount in mounts.hierarchies() {
        result = worse(result, remove(&path.below(mount)));
    }
    result
}

/// An error before busy before removed before gone; of equals the first.
fn worse(a: Result<Removal, CgroupError>, b: Result<Removal, CgroupError>) -> Result<Removal, CgroupError> {
    let rank = |result: &Result<Removal, CgroupError>| match result {
        Err(_) => 3,
        Ok(Removal::Busy { .. }) => 2,
        Ok(Removal::Removed) => 1,
        Ok(Removal::AlreadyGone) => 0,
    };
    if rank(&b) > rank(&a) { b } else { a }
}

fn remove_beneath(top: &Path, dir: &Path, budget: &mut usize) -> Result<Removal, CgroupError> {
    *budget = budget.checked_sub(1).ok_or_else(|| too_many_cgroups(top))?;
    // Most cgroups have no children.
    let removal = remove_dir(dir)?;
    if !matches!(removal, Removal::Busy { .. }) {
        return Ok(removal);
    }
    let Some(children) = file::children(dir)? else { return Ok(Removal::AlreadyGone) };
    if children.is_empty() {
        return Ok(removal);
    }
    let mut result = Ok(Removal::AlreadyGone);
    for child in children {
        result = worse(result, remove_beneath(top, &child, budget));
    }
    match result? {
        busy @ Removal::Busy { .. } => Ok(busy),
        Removal::Removed | Removal::AlreadyGone => remove_dir(dir),
    }
}

fn remove_dir(dir: &Path) -> Result<Removal, CgroupError> {
    match fs::remove_dir(dir) {
        Ok(()) => Ok(Removal::Removed),
        Err(error) if file::is_gone(&error) => Ok(Removal::AlreadyGone),
        Err(error) if is_busy(&error) => Ok(Removal::Busy { path: dir.to_owned() }),
        Err(source) => Err(CgroupError::Remove { path: dir.to_owned(), source }),
    }
}

fn is_busy(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ResourceBusy | io::ErrorKind::DirectoryNotEmpty)
}

fn make_dir(dir: &Path) -> Result<bool, CgroupError> {
    let made = DirBuilder::new().mode(0o755).create(dir).and_then(|()| {
        // A strict umask must not hide the pods' statistics from their reader, which is another user.
        fs::set_permissions(dir, Permissions::from_mode(0o755))
    });
    match made {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(source) => Err(CgroupError::Create { path: dir.to_owned(), source }),
    }
}

/// v2: a child has only the controllers that its parent names in `cgroup.subtree_control`.
fn pass_controllers_on(dir: &Path) -> Result<(), CgroupError> {
    let available = file::read(&dir.join("cgroup.controllers"), file::KNOB_LIMIT)?;
    let control = dir.join("cgroup.subtree_control");
    let enabled = file::read(&control, file::KNOB_LIMIT)?;
    let has = |list: &str, name: &str| list.split_whitespace().any(|word| word == name);
    let missing: Vec<String> = DELEGATED
        .iter()
        .filter(|name| has(&available, name) && !has(&enabled, name))
        .map(|name| format!("+{name}"))
        .collect();
    if missing.is_empty() { Ok(()) } else { file::write(&control, &missing.join(" ")) }
}

/// v1: a new cpuset is empty, and no process can enter it before it has processors and memory nodes.
fn inherit_cpuset(parent: &Path, dir: &Path) -> Result<(), CgroupError> {
    for knob in ["cpuset.cpus", "cpuset.mems"] {
        let own = dir.join(knob);
        if !file::read(&own, file::KNOB_LIMIT)?.trim().is_empty() {
            continue;
        }
        let from = parent.join(knob);
        let value = file::read(&from, file::KNOB_LIMIT)?;
        if value.trim().is_empty() {
            let reason = "empty, so child cgroups have nothing to inherit".to_owned();
            return Err(CgroupError::Malformed { path: from, line: 0, reason });
        }
        file::write(&own, value.trim())?;
    }
    Ok(())
}

fn processes_beneath(top: &Path, found: &mut BTreeSet<u32>) -> Result<(), CgroupError> {
    let mut walked = 0usize;
    let mut open = vec![top.to_owned()];
    while let Some(dir) = open.pop() {
        walked = walked.saturating_add(1);
        if walked > CGROUPS_LIMIT {
            return Err(too_many_cgroups(top));
        }
        let Some(children) = file::children(&dir)? else { continue };
        open.extend(children);
        let path = dir.join("cgroup.procs");
        // Absent also where a v2 cgroup is threaded: its processes are listed by the cgroup above.
        let Some(text) = file::read_optional(&path, PROCS_LIMIT)? else { continue };
        found.extend(parse_procs(&text, &path)?);
        if found.len() > PROCESSES_LIMIT {
            let limit = PROCESSES_LIMIT;
            return Err(CgroupError::TooMany { what: "processes", path: top.to_owned(), limit });
        }
    }
    Ok(())
}

pub(crate) fn parse_procs(text: &str, path: &Path) -> Result<Vec<u32>, CgroupError> {
    let mut pids = Vec::new();
    for (index, line) in text.lines().enumerate() {
        match line.trim().parse::<u32>() {
            // 0 is a process outside of this PID namespace.
            Ok(0) => {}
            Ok(pid) => pids.push(pid),
            Err(_) => {
                let reason = "not a process id".to_owned();
                return Err(CgroupError::Malformed {
                    path: path.to_owned(),
                    line: index.saturating_add(1),
                    reason,
                });
            }
        }
    }
    Ok(pids)
}

/// v2, Linux 5.14 and later: one write kills all, even a fork bomb, whosever processes they are. `None` when the
/// kernel has no such file.
fn kill_whole(dir: &Path) -> Result<Option<Killed>, CgroupError> {
    let mut pids = BTreeSet::new();
    processes_beneath(dir, &mut pids)?;
    if pids.is_empty() {
        return Ok(Some(Killed::default()));
    }
    match file::write(&dir.join("cgroup.kill"), "1") {
        Ok(()) => Ok(Some(Killed { signalled: pids.len(), denied: 0 })),
        Err(CgroupError::Write { source, .. })
            if file::is_gone(&source) || file::has_errno(&source, Errno::OPNOTSUPP) =>
        {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

fn kill_each(dir: &Path) -> Result<Killed, CgroupError> {
    let mut killed = Killed::default();
    let mut pids = BTreeSet::new();
    processes_beneath(dir, &mut pids)?;
    // Never this process itself, should somebody have put it there.
    pids.remove(&std::process::id());
    let pids: Vec<u32> = pids.into_iter().collect();
    for batch in pids.chunks(KILL_BATCH) {
        let held: Vec<_> = batch.iter().filter_map(|&pid| Some((pid, hold(pid)?))).collect();
        // Process ids are used again. A process that is held and still listed is the one that was meant.
        let mut still = BTreeSet::new();
        processes_beneath(dir, &mut still)?;
        for (pid, fd) in held.iter().filter(|(pid, _)| still.contains(pid)) {
            match pidfd_send_signal(fd, Signal::KILL) {
                Ok(()) => killed.signalled = killed.signalled.saturating_add(1),
                Err(Errno::SRCH) => {}
                Err(Errno::PERM) => killed.denied = killed.denied.saturating_add(1),
                Err(errno) => {
                    return Err(CgroupError::Kill { pid: *pid, path: dir.to_owned(), source: errno.into() });
                }
            }
        }
    }
    Ok(killed)
}

/// Holds on to a process, so that its id means nobody else; `None` when it is gone.
fn hold(pid: u32) -> Option<rustix::fd::OwnedFd> {
    let pid = Pid::from_raw(i32::try_from(pid).ok()?)?;
    pidfd_open(pid, PidfdFlags::empty()).ok()
}

fn too_many_cgroups(top: &Path) -> CgroupError {
    CgroupError::TooMany { what: "cgroups", path: top.to_owned(), limit: CGROUPS_LIMIT }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::fixture::{V1, V2, path};

    #[test]
    fn v1_makes_every_hierarchy_and_fills_cpusets() {
        let v1 = V1::new();
        v1.kernel_makes("/kubepods");
        v1.kernel_makes("/kubepods/podx");
        assert!(!create(&v1.mounts(), &path("/kubepods/podx")).unwrap(), "all directories were there");
        for knob in ["cpuset.cpus", "cpuset.mems"] {
            assert_eq!(
                v1.read("cpuset", "/kubepods/podx", knob),
                v1.read("cpuset", "/", knob).trim(),
                "{knob}"
            );
        }
    }

    #[test]
    fn v1_cpusets_that_are_set_stay() {
        let v1 = V1::new();
        v1.kernel_makes("/kubepods");
        v1.write("cpuset", "/kubepods", "cpuset.cpus", "1\n");
        create(&v1.mounts(), &path("/kubepods")).unwrap();
        assert_eq!(v1.read("cpuset", "/kubepods", "cpuset.cpus"), "1\n");
    }

    #[test]
    fn an_empty_parent_cpuset_is_named() {
        let v1 = V1::new();
        v1.write("cpuset", "/", "cpuset.mems", "\n");
        v1.kernel_makes("/kubepods");
        let error = create(&v1.mounts(), &path("/kubepods")).unwrap_err();
        assert!(error.to_string().contains("cpuset/cpuset.mems"), "{error}");
    }

    #[test]
    fn v2_passes_on_what_is_offered_and_missing() {
        let v2 = V2::new();
        v2.kernel_makes("/kubepods");
        v2.write("/", "cgroup.controllers", "cpuset cpu io memory hugetlb pids rdma\n");
        v2.write("/", "cgroup.subtree_control", "cpu pids\n");
        v2.write("/kubepods", "cgroup.controllers", "cpu memory\n");
        v2.kernel_makes("/kubepods/podx");
        create(&v2.mounts(), &path("/kubepods/podx")).unwrap();
        assert_eq!(v2.read("/", "cgroup.subtree_control"), "+cpuset +hugetlb +io +memory");
        assert_eq!(v2.read("/kubepods", "cgroup.subtree_control"), "+cpu +memory");
        assert_eq!(v2.read("/kubepods/podx", "cgroup.subtree_control"), "", "a leaf keeps its processes");
    }

    #[test]
    fn v2_writes_nothing_when_all_is_passed_on() {
        let v2 = V2::new();
        v2.kernel_makes("/kubepods");
        v2.write("/", "cgroup.controllers", "cpu\n");
        v2.write("/", "cgroup.subtree_control", "cpu\n");
        create(&v2.mounts(), &path("/kubepods")).unwrap();
        assert_eq!(v2.read("/", "cgroup.subtree_control"), "cpu\n");
    }

    #[test]
    fn processes_are_found_in_any_hierarchy_and_at_any_depth() {
        let v1 = V1::new();
        v1.kernel_makes("/kubepods");
        v1.kernel_makes("/kubepods/podx");
        v1.write("memory", "/kubepods/podx", "cgroup.procs", "7\n9\n0\n");
        v1.write("pids", "/kubepods", "cgroup.procs", "9\n11\n");
        let found = processes(&v1.mounts(), &path("/kubepods")).unwrap();
        assert_eq!(found.into_iter().collect::<Vec<_>>(), [7, 9, 11]);
        assert!(processes(&v1.mounts(), &path("/gone")).unwrap().is_empty());
        v1.write("pids", "/kubepods", "cgroup.procs", "9\nx\n");
        let error = processes(&v1.mounts(), &path("/kubepods")).unwrap_err();
        assert!(error.to_string().contains("cgroup.procs, line 2"), "{error}");
    }

    #[test]
    fn v2_kills_with_one_write() {
        let v2 = V2::new();
        v2.kernel_makes("/kubepods");
        v2.write("/kubepods", "cgroup.procs", "2147483646\n2147483647\n");
        let killed = kill(&v2.mounts(), &path("/kubepods")).unwrap();
        assert_eq!(killed, Killed { signalled: 2, denied: 0 });
        assert_eq!(v2.read("/kubepods", "cgroup.kill"), "1");
    }

    #[test]
    fn without_processes_nothing_is_written() {
        let v2 = V2::new();
        v2.kernel_makes("/kubepods");
        assert_eq!(kill(&v2.mounts(), &path("/kubepods")).unwrap(), Killed::default());
        assert_eq!(v2.read("/kubepods", "cgroup.kill"), "");
    }

    #[test]
    fn this_process_and_processes_that_are_gone_are_not_signalled() {
        let v1 = V1::new();
        v1.kernel_makes("/kubepods");
        let gone = 4_194_304; // one above the largest process id that Linux gives
        v1.write("memory", "/kubepods", "cgroup.procs", &format!("{}\n{gone}\n", std::process::id()));
        assert_eq!(kill(&v1.mounts(), &path("/kubepods")).unwrap(), Killed::default());
    }

    #[test]
    fn a_tree_goes_from_every_hierarchy_leaves_first() {
        let v1 = V1::new();
        for mount in v1.mounts().hierarchies() {
            fs::create_dir_all(mount.join("kubepods/podx/c1/nested")).unwrap();
            fs::create_dir_all(mount.join("kubepods/podx/c2")).unwrap();
        }
        let pod = path("/kubepods/podx");
        assert!(matches!(remove_one(&v1.mounts(), &pod).unwrap(), Removal::Busy { .. }), "it has children");
        assert_eq!(remove_all(&v1.mounts(), &pod).unwrap(), Removal::Removed);
        for mount in v1.mounts().hierarchies() {
            assert!(!mount.join("kubepods/podx").exists() && mount.join("kubepods").exists());
        }
        assert_eq!(remove_all(&v1.mounts(), &pod).unwrap(), Removal::AlreadyGone);
    }

    #[test]
    fn one_busy_hierarchy_keeps_no_other() {
        let v1 = V1::new();
        for mount in v1.mounts().hierarchies() {
            fs::create_dir_all(mount.join("kubepods/podx/c1")).unwrap();
        }
        // A file keeps a directory of a plain file system as processes keep a cgroup.
        v1.write("cpu", "/kubepods/podx/c1", "tasks", "1\n");
        let busy = v1.mounts().controller("cpu").unwrap().join("kubepods/podx/c1");
        let removal = remove_all(&v1.mounts(), &path("/kubepods/podx")).unwrap();
        assert_eq!(removal, Removal::Busy { path: busy.clone() });
        let left =
            v1.mounts().hierarchies().iter().filter(|mount| mount.join("kubepods/podx").exists()).count();
        assert_eq!(left, 1);
        fs::remove_file(busy.join("tasks")).unwrap();
        assert_eq!(remove_all(&v1.mounts(), &path("/kubepods/podx")).unwrap(), Removal::Removed);
    }

    proptest! {
        #[test]
        fn any_process_list_is_read_without_panic(text in "([0-9]{0,12}\n){0,5}|.{0,40}") {
            if let Ok(pids) = parse_procs(&text, Path::new("x")) {
                prop_assert!(!pids.contains(&0));
            }
        }
    }
}
