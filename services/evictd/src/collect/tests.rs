use std::collections::BTreeSet;
use std::sync::Mutex;

use bulkhead_base::SystemClock;
use bulkhead_cgroup::{CgroupPath, Layout, Version};
use bulkhead_model::runtime::ContainerState::Running;
use bulkhead_reconcile::{LoopStatus, Waker, drive, wake};
use tokio::task::JoinHandle;

use super::*;
use crate::grpc::Newest;
use crate::machine::{Machine, Readings};
use crate::testing::{CgroupFixture, container, detached, runtime_pod, sync, view};

/// A machine that notes when it is read, and fails when told to.
#[derive(Clone)]
struct Scripted {
    machine: Arc<Machine>,
    start: Instant,
    reads: Arc<Mutex<Vec<u128>>>,
    broken: Arc<Mutex<bool>>,
}

impl Figures for Scripted {
    fn read(&self, kubepods: &CgroupPath, cgroups: &BTreeSet<CgroupPath>) -> Result<Readings, CollectError> {
        self.reads.lock().unwrap().push(self.start.elapsed().as_millis());
        if *self.broken.lock().unwrap() {
            let source = std::io::Error::other("unplugged");
            return Err(CollectError::Read { path: "/proc/stat".into(), source });
        }
        self.machine.read(kubepods, cgroups)
    }
}

fn settings() -> Settings {
    let layout = Layout::new(CgroupPath::root());
    Settings { node_name: "node-a".to_owned(), layout, agent: None, others: None }
}

struct Bench {
    fixture: CgroupFixture,
    pods: Pods,
    scripted: Scripted,
    handlers: Arc<Newest>,
    waker: Waker,
    task: JoinHandle<()>,
}

impl Bench {
    fn start(broken: bool) -> Self {
        let fixture = CgroupFixture::new(Version::V2);
        fixture.cgroup("/", 100, None);
        fixture.cgroup("/kubepods", 50, None);
        let machine = Arc::new(Machine::new(fixture.proc_dir(), Arc::new(SystemClock)));
        let scripted = Scripted {
            machine,
            start: Instant::now(),
            reads: Arc::default(),
            broken: Arc::new(Mutex::new(broken)),
        };
        let pods = detached();
        let settings = settings();
        let (newest, latest) = watch::channel(None);
        let (status, passes) = watch::channel(LoopStatus::default());
        let (waker, waiting) = wake();
        let collector = Collector::new(Arc::new(scripted.clone()), pods.clone(), settings, newest);
        let asked = collector.asked();
        let task = tokio::spawn(drive(collector, waiting, status, std::future::pending()));
        let handlers = Arc::new(Newest { latest, status: passes, waker: waker.clone(), asked });
        Self { fixture, pods, scripted, handlers, waker, task }
    }

    async fn pass(&self, seconds: u64) {
        tokio::time::sleep(Duration::from_secs(seconds)).await;
    }

    fn reads(&self) -> Vec<u128> {
        self.scripted.reads.lock().unwrap().clone()
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn pods_appear_get_rates_and_vanish() {
    let bench = Bench::start(false);
    bench.fixture.cgroup("/kubepods/podu1", 1, None);
    bench.fixture.cgroup("/kubepods/podu1/c1", 1, None);
    let mut pod = runtime_pod("u1", 5);
    pod.containers = vec![container("app", "c1", Running)];
    // u2 has no cgroup yet.
    sync(&bench.pods, &[view("u1", "/kubepods/podu1"), view("u2", "/kubepods/podu2")], &[pod]);
    bench.pass(5).await;
    bench.fixture.cgroup("/kubepods/podu1", 6, None);
    bench.fixture.cgroup("/kubepods/podu1/c1", 0, None);
    bench.pass(5).await;
    let collection = bench.handlers.get().await.unwrap();
    let pods = &collection.summary.pods;
    let [pod] = pods.as_slice() else { panic!("one pod: {pods:?}") };
    assert_eq!(pod.cpu.unwrap().usage_nano_cores, Some(500_000_000), "5 s of work in 10 s");
    assert_eq!(pod.containers[0].cpu.unwrap().usage_nano_cores, None, "its counter went back");
    assert_eq!(collection.problems.count(), 0, "what is not there is no problem");

    // The pod's cgroup goes before syncd and pleg say so.
    std::fs::remove_dir_all(bench.fixture.proc_dir().join("../cgroup/kubepods/podu1")).unwrap();
    bench.pass(10).await;
    let collection = bench.handlers.get().await.unwrap();
    assert!(collection.summary.pods.is_empty(), "{:?}", collection.summary.pods);
    assert_eq!(collection.problems.count(), 0);
}

#[tokio::test(start_paused = true)]
async fn it_collects_once_for_many_callers_and_seldom_while_nobody_calls() {
    let bench = Bench::start(false);
    sync(&bench.pods, &[], &[]);
    bench.pass(125).await;
    assert_eq!(bench.reads(), [0, 60_000, 120_000]);
    let call = || {
        let handlers = bench.handlers.clone();
        tokio::spawn(async move { handlers.get().await.unwrap().at })
    };
    let calls = [call(), call(), call()];
    for call in calls {
        assert_eq!((call.await.unwrap() - bench.scripted.start).as_millis(), 125_000);
    }
    assert_eq!(bench.reads()[3..], [125_000], "one collection for three calls");
    bench.handlers.get().await.unwrap();
    tokio::time::sleep(Duration::from_millis(900)).await;
    bench.handlers.get().await.unwrap();
    assert_eq!(bench.reads().len(), 4, "younger than a second");
    bench.waker.wake();
    bench.waker.wake();
    bench.pass(1).await;
    assert_eq!(bench.reads()[4..], [126_000], "a signal is answered a second after the last collection");
    bench.pass(21).await;
    assert_eq!(bench.reads()[5..], [136_000, 146_000], "every ten seconds while more calls are expected");
    bench.pass(300).await;
    let reads = bench.reads();
    let (last, before) = (reads[reads.len() - 1], reads[reads.len() - 2]);
    assert_eq!(last - before, 60_000, "nobody called for two minutes");
}

#[tokio::test(start_paused = true)]
async fn without_peers_the_node_is_collected_after_a_moment() {
    let bench = Bench::start(false);
    let first = bench.handlers.get().await.unwrap();
    assert_eq!(bench.reads()[..], [2000]);
    let summary = &first.summary;
    let node = summary.node.clone().unwrap();
    assert_eq!(node.cpu.unwrap().usage_core_nano_seconds, 100_000_000_000);
    assert_eq!(node.system_containers[0].name, "pods");
    assert!(summary.pods.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_failed_collection_keeps_the_last_figures_and_is_tried_again() {
    let bench = Bench::start(true);
    sync(&bench.pods, &[], &[]);
    let error = bench.handlers.get().await.unwrap_err();
    assert!(error.to_string().contains("yet: cannot read /proc/stat: unplugged"), "{error}");
    *bench.scripted.broken.lock().unwrap() = false;
    bench.pass(1).await;
    let good = bench.handlers.get().await.unwrap().at;
    *bench.scripted.broken.lock().unwrap() = true;
    bench.pass(60).await;
    assert_eq!(bench.handlers.get().await.unwrap().at, good, "the last figures with their own times");
    let reads = bench.reads();
    assert!(reads.len() > 6 && reads.len() < 20, "tried again, with back-off: {reads:?}");
}

/// A machine whose files do not answer until a test releases them.
struct Stuck(Mutex<std::sync::mpsc::Receiver<()>>);

impl Figures for Stuck {
    fn read(&self, _: &CgroupPath, _: &BTreeSet<CgroupPath>) -> Result<Readings, CollectError> {
        let _ = self.0.lock().unwrap().recv();
        Err(CollectError::Read { path: "/proc/stat".into(), source: std::io::Error::other("released") })
    }
}

#[tokio::test(start_paused = true)]
async fn a_read_that_hangs_holds_a_call_for_three_seconds_at_most() {
    let (release, released) = std::sync::mpsc::channel();
    let pods = detached();
    sync(&pods, &[], &[]);
    let settings = settings();
    let (newest, latest) = watch::channel(None);
    let (status, passes) = watch::channel(LoopStatus::default());
    let (waker, waiting) = wake();
    let collector = Collector::new(Arc::new(Stuck(Mutex::new(released))), pods, settings, newest);
    let asked = collector.asked();
    let task = tokio::spawn(drive(collector, waiting, status, std::future::pending()));
    let handlers = Newest { latest, status: passes, waker, asked };
    let call = tokio::spawn(async move { handlers.get().await });
    // The clock does not run by itself while a thread reads.
    tokio::time::advance(Duration::from_millis(10)).await;
    tokio::time::advance(Duration::from_millis(2980)).await;
    assert!(!call.is_finished());
    tokio::time::advance(Duration::from_millis(20)).await;
    let error = call.await.unwrap().unwrap_err();
    assert_eq!(error.last_error, "", "the collection has not failed, it goes on");
    release.send(()).unwrap();
    task.abort();
}
