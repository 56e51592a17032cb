//! On this machine's own hierarchies, as root, beneath a directory of this test's own. Others' cgroups are not touched.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::process::{Gid, Uid};

use crate::{
    Ceiling, CgroupManager, CgroupName, CgroupPath, Killed, Limits, Mounts, Owner, PodCgroup, PodUid,
    QosTier, Removal, TearDown, prepare, read_root, read_stats, tear_down,
};

/// Some user that owns nothing.
const NOBODY: Owner = Owner { uid: 64_123, gid: 64_124 };

/// A cgroup root of a test's own, taken down when the test ends, however it ends.
struct Root {
    mounts: Mounts,
    path: CgroupPath,
}

impl Root {
    /// `None`, with a message, where the machine does not let this test run.
    fn new(mounts: Option<Mounts>) -> Option<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        if !rustix::process::getuid().is_root() {
            eprintln!("skipped: making cgroups takes root");
            return None;
        }
        let Some(mounts) = mounts else {
            eprintln!("skipped: this machine mounts no such cgroup hierarchy");
            return None;
        };
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = CgroupPath::parse(&format!("/bulkhead-test-{}-{count}", std::process::id())).unwrap();
        Some(Self { mounts, path })
    }

    fn tear_down(&self) -> bool {
        // Killed processes take a moment to leave: at most two seconds.
        (0..100).any(|_| {
            let done = matches!(tear_down(&self.mounts, &self.path), Ok(TearDown::Done));
            if !done {
                pause();
            }
            done
        })
    }

    fn is_gone(&self) -> bool {
        self.mounts.hierarchies().iter().all(|mount| !self.path.below(mount).exists())
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        if !self.tear_down() {
            eprintln!("the cgroup {} is left behind", self.path);
        }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "waits for the kernel, between looks that are bounded in number"
)]
fn pause() {
    std::thread::sleep(Duration::from_millis(20));
}

fn pod(qos: QosTier) -> CgroupName {
    CgroupName::Pod(PodCgroup { qos, uid: PodUid::parse("0c9f-1").unwrap() })
}

fn unified_mount() -> Option<Mounts> {
    match Mounts::detect().ok()? {
        Mounts::V1 { unified, .. } => Some(Mounts::V2 { mountpoint: unified? }),
        v2 @ Mounts::V2 { .. } => Some(v2),
    }
}

/// Runs `work` on a thread that is `owner` and has no capability.
fn as_user<T: Send + 'static>(owner: Owner, work: impl FnOnce() -> T + Send + 'static) -> T {
    let thread = std::thread::spawn(move || {
        let (uid, gid) = (Uid::from_raw(owner.uid), Gid::from_raw(owner.gid));
        rustix::thread::set_thread_groups(&[]).unwrap();
        rustix::thread::set_thread_res_gid(gid, gid, gid).unwrap();
        rustix::thread::set_thread_res_uid(uid, uid, uid).unwrap();
        work()
    });
    thread.join().unwrap()
}

/// A process that ends by itself after half a minute, so that nothing hangs when it is not killed.
fn sleeper(cgroup: &Path) -> Child {
    let child = Command::new("sleep").arg("30").stdout(Stdio::null()).spawn().unwrap();
    fs::write(cgroup.join("cgroup.procs"), child.id().to_string()).unwrap();
    child
}

fn wait_until(what: &str, mut is_true: impl FnMut() -> bool) {
    for _ in 0..100 {
        if is_true() {
            return;
        }
        pause();
    }
    panic!("waited in vain until {what}");
}

#[test]
fn an_unprivileged_owner_makes_limits_reads_and_removes_pods() {
    let Some(root) = Root::new(Mounts::detect().ok()) else { return };
    prepare(&root.mounts, &root.path, NOBODY).unwrap();
    prepare(&root.mounts, &root.path, NOBODY).unwrap();
    let (mounts, path) = (root.mounts.clone(), root.path.clone());
    as_user(NOBODY, move || {
        assert_eq!(rustix::process::geteuid().as_raw(), NOBODY.uid);
        let manager = CgroupManager::new(mounts.clone(), path.clone());
        let name = pod(QosTier::Burstable);
        assert!(manager.create(&name).unwrap());
        assert!(!manager.create(&name).unwrap(), "it is there already");
        assert!(manager.exists(&name));
        assert_eq!(manager.list_pods().unwrap().len(), 1);

        let limits = Limits {
            cpu_shares: Some(512),
            cpu_quota_us: Some(Ceiling::At(50_000)),
            cpu_period_us: Some(20_000),
            memory_limit_bytes: Some(Ceiling::At(64 * 1024 * 1024 + 17)),
            pids_max: Some(Ceiling::At(32)),
            huge_pages: [("2MB".to_owned(), 0)].into(),
            ..Limits::default()
        };
        assert!(!manager.apply(&name, &limits).unwrap().is_empty());
        assert!(manager.apply(&name, &limits).unwrap().is_empty(), "what the kernel keeps is what was asked");
        let lifted = Limits {
            cpu_quota_us: Some(Ceiling::Unlimited),
            memory_limit_bytes: Some(Ceiling::Unlimited),
            pids_max: Some(Ceiling::Unlimited),
            ..Limits::default()
        };
        assert_eq!(manager.apply(&name, &lifted).unwrap().len(), 3);
        assert!(manager.apply(&name, &lifted).unwrap().is_empty());
        manager.apply(&CgroupName::Kubepods, &limits).unwrap();

        let stats = read_stats(&mounts, &manager.layout().path(&name)).unwrap().unwrap();
        assert_eq!((stats.cpu_usage_ns, stats.pids), (Some(0), Some(0)));
        assert!(stats.memory.is_some());

        // Above its tree it may do nothing.
        let outside = CgroupManager::new(mounts, CgroupPath::root());
        assert!(outside.create(&pod(QosTier::Guaranteed)).is_err());

        assert_eq!(manager.remove(&name).unwrap(), Removal::Removed);
        assert_eq!(manager.remove(&name).unwrap(), Removal::AlreadyGone);
        assert!(manager.list_pods().unwrap().is_empty());
    });
}

#[test]
fn a_pod_with_a_process_is_busy_until_it_is_killed() {
    let Some(root) = Root::new(Mounts::detect().ok()) else { return };
    kill_and_remove(&root);
    assert!(root.tear_down() && root.is_gone());
}

#[test]
fn the_same_on_the_unified_hierarchy() {
    let Some(root) = Root::new(unified_mount()) else { return };
    kill_and_remove(&root);
    assert!(root.tear_down() && root.is_gone());
}

fn kill_and_remove(root: &Root) {
    let manager = CgroupManager::new(root.mounts.clone(), root.path.clone());
    let name = pod(QosTier::BestEffort);
    manager.create(&name).unwrap();
    let last = *root.mounts.hierarchies().last().unwrap();
    let container = manager.layout().path(&name).below(last).join("c0ffee");
    fs::create_dir(&container).unwrap();
    let mut child = sleeper(&container);
    assert_eq!(manager.pids(&name).unwrap().into_iter().collect::<Vec<_>>(), [child.id()]);
    assert!(matches!(manager.remove(&name).unwrap(), Removal::Busy { .. }));

    // A pod's processes are not the agent's: without privileges v1 refuses, and says so.
    if let Mounts::V1 { .. } = root.mounts {
        let other = manager.clone();
        let killed = as_user(NOBODY, move || other.kill(&pod(QosTier::BestEffort)).unwrap());
        assert_eq!(killed, Killed { signalled: 0, denied: 1 });
    }
    assert_eq!(manager.kill(&name).unwrap(), Killed { signalled: 1, denied: 0 });
    let status = child.wait().unwrap();
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(9));
    wait_until("the pod is removed", || !matches!(manager.remove(&name).unwrap(), Removal::Busy { .. }));
    assert!(!manager.exists(&name));
}

#[test]
fn taking_down_kills_what_is_left() {
    let Some(root) = Root::new(Mounts::detect().ok()) else { return };
    prepare(&root.mounts, &root.path, NOBODY).unwrap();
    let manager = CgroupManager::new(root.mounts.clone(), root.path.clone());
    manager.create(&pod(QosTier::Guaranteed)).unwrap();
    let first = *root.mounts.hierarchies().first().unwrap();
    let mut child = sleeper(&manager.layout().path(&pod(QosTier::Guaranteed)).below(first));
    let step = tear_down(&root.mounts, &root.path).unwrap();
    assert!(matches!(step, TearDown::Waiting { processes: 1 } | TearDown::Done), "{step:?}");
    let status = child.wait().unwrap();
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(9));
    assert!(root.tear_down() && root.is_gone());
}

#[test]
fn the_machines_own_figures_are_read() {
    let Ok(mounts) = Mounts::detect() else {
        eprintln!("skipped: this machine mounts no cgroup hierarchy");
        return;
    };
    let root = read_root(&mounts).unwrap();
    assert!(root.cpu_usage_ns.unwrap() > 0);
    if let Some(memory) = root.memory {
        assert!(memory.rss > 0 && memory.page_faults > 0);
    }
}
