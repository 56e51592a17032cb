//! The loop with mirrors that the test feeds, on a paused clock.

use bulkhead_api::common::v1::Part;
use bulkhead_base::FakeClock;
use bulkhead_ipc::Update;
use bulkhead_model::decision::Stage;
use bulkhead_model::spec::RestartPolicy;
use bulkhead_model::status_view::ContainerView;
use bulkhead_reconcile::{LoopStatus, drive, wake};
use k8s_openapi::api::core::v1::PodStatus as Status;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::fake::{self, at};
use crate::keeper;
use crate::records::Memory;

struct Bench {
    inputs: Inputs,
    node: watch::Sender<NodeFacts>,
    records: Records,
    publisher: Publisher<String, PodStatus>,
    clock: FakeClock,
    opened: watch::Receiver<bool>,
    passes: watch::Receiver<LoopStatus>,
    /// What was saved last.
    saved: watch::Receiver<Memory>,
    /// While it is closed no write ends.
    disk: Arc<Semaphore>,
    _tasks: tokio::task::JoinSet<()>,
}

fn bench_with(memory: Memory, runtime_name: &str) -> Bench {
    let inputs = Inputs::default();
    let (waker, waiting) = wake();
    let marks = Marks::new(waker);
    let facts = NodeFacts {
        host_ips: vec!["192.0.2.10".into()],
        runtime_name: runtime_name.into(),
        recursive_read_only: None,
    };
    let (node, facts) = watch::channel(facts);
    let (changed, changes) = wake();
    let records = Records::new(memory, changed);
    let (disk, (write, saved)) = (Arc::new(Semaphore::new(1)), watch::channel(Memory::default()));
    let room = disk.clone();
    let save = move |memory| {
        let (room, write) = (room.clone(), write.clone());
        async move {
            let _turn = room.acquire().await.unwrap();
            write.send_replace(memory);
            true
        }
    };
    let keep = keeper::keep(records.clone(), changes, CancellationToken::new(), save);
    let publisher = Publisher::new(CancellationToken::new());
    let clock = FakeClock::new(at(10));
    let (opened_by, opened) = watch::channel(false);
    let (status, passes) = watch::channel(LoopStatus::default());
    let pods = Pods::new(Parts {
        inputs: inputs.clone(),
        marks: marks.clone(),
        node: facts.clone(),
        records: records.clone(),
        publisher: publisher.clone(),
        clock: Arc::new(clock.clone()),
        opened: opened_by,
    });
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(marks.clone().follow_pods(inputs.views.clone()));
    tasks.spawn(marks.clone().follow_pods(inputs.pods.clone()));
    tasks.spawn(marks.clone().follow_results(inputs.results.clone()));
    tasks.spawn(marks.follow_node(facts));
    tasks.spawn(keep);
    tasks.spawn(drive(pods, waiting, status, std::future::pending()));
    Bench { inputs, node, records, publisher, clock, opened, passes, saved, disk, _tasks: tasks }
}

fn bench() -> Bench {
    bench_with(Memory::default(), "containerd")
}

fn update<V>(part: Part, upserts: Vec<(String, V)>, removed: &[&str]) -> Update<String, V> {
    let removed = removed.iter().map(|key| (*key).to_owned()).collect();
    Update { epoch: "e".to_owned(), generation: 1, part, upserts, removed }
}

impl Bench {
    /// Feeds a whole view of syncd's.
    async fn views(&self, items: &[StatusItem]) {
        let items = items.iter().map(|item| (item.view.uid.clone(), item.clone())).collect();
        self.inputs.views.apply(update(Part::SnapshotEnd, items, &[]));
        self.settle().await;
    }

    /// Feeds a whole view of pleg's.
    async fn runtime(&self, pods: &[RuntimePod]) {
        let pods = pods.iter().map(|pod| (pod.uid.clone(), pod.clone())).collect();
        self.inputs.pods.apply(update(Part::SnapshotEnd, pods, &[]));
        self.settle().await;
    }

    /// Feeds a whole view of prober's.
    async fn results(&self, results: &[ContainerResult]) {
        let results = results.iter().map(|result| (result.container_id.clone(), result.clone())).collect();
        self.inputs.results.apply(update(Part::SnapshotEnd, results, &[]));
        self.settle().await;
    }

    /// Lets all tasks run until they wait; the paused clock moves a millisecond.
    async fn settle(&self) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }

    fn published(&self, uid: &str) -> Option<Arc<PodStatus>> {
        self.publisher.get(&uid.to_owned())
    }

    fn version(&self, uid: &str) -> u64 {
        self.published(uid).map_or(0, |status| status.version)
    }

    fn status(&self, uid: &str) -> Status {
        serde_json::from_slice(&self.published(uid).expect("published").status_json).unwrap()
    }

    fn phase(&self, uid: &str) -> String {
        self.status(uid).phase.unwrap_or_default()
    }

    /// Ready, and since which second.
    fn ready(&self, uid: &str) -> (bool, i64) {
        let conditions = self.status(uid).conditions.unwrap();
        let ready = conditions.into_iter().find(|condition| condition.type_ == "Ready").unwrap();
        (ready.status == "True", ready.last_transition_time.unwrap().0.as_second() - at(0).as_second())
    }
}

#[tokio::test(start_paused = true)]
async fn it_opens_when_all_that_it_needs_is_known() {
    let bench = bench_with(Memory::default(), "");
    bench.settle().await;
    bench.views(&[fake::item("u")]).await;
    assert_eq!(bench.published("u"), None, "Pending would be a guess");
    bench.runtime(&[fake::running("u")]).await;
    assert_eq!(bench.published("u"), None, "container ids begin with the runtime's name");
    assert!(!bench.publisher.is_open() && !*bench.opened.borrow());
    bench.node.send_modify(|node| node.runtime_name = "containerd".to_owned());
    bench.settle().await;
    assert_eq!(bench.phase("u"), "Running");
    assert!(bench.publisher.is_open() && *bench.opened.borrow());
}

#[tokio::test(start_paused = true)]
async fn an_empty_node_opens_too() {
    let bench = bench();
    bench.runtime(&[]).await;
    assert!(!bench.publisher.is_open());
    bench.views(&[]).await;
    assert!(bench.publisher.is_open());
}

#[tokio::test(start_paused = true)]
async fn only_changes_are_published() {
    let bench = bench();
    bench.views(&[fake::item("a"), fake::item("b")]).await;
    bench.runtime(&[fake::running("a")]).await;
    let (a, b) = (bench.version("a"), bench.version("b"));
    assert!(a > 0 && b > 0);
    bench.clock.advance(Duration::from_secs(300));
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert_eq!((bench.version("a"), bench.version("b")), (a, b), "full looks change nothing");
    bench.runtime(&[fake::running("a"), fake::running("b")]).await;
    assert_eq!(bench.version("a"), a);
    assert!(bench.version("b") > b.max(a));
    assert_eq!(bench.phase("b"), "Running");
}

#[tokio::test(start_paused = true)]
async fn all_pods_are_looked_at_every_minute_even_when_woken_all_the_time() {
    let bench = bench();
    bench.views(&[fake::item("a"), fake::item("b")]).await;
    bench.runtime(&[fake::running("a")]).await;
    // As if the mark of its removal were lost.
    bench.records.set("z", Record::default());
    for second in 0..62 {
        assert!(second >= 60 || bench.records.get("z").is_some(), "{second}");
        let exit_code = i32::from(second % 2 == 0);
        bench.runtime(&[fake::exited("a", exit_code)]).await;
        tokio::time::sleep(Duration::from_millis(999)).await;
    }
    assert_eq!(bench.records.get("z"), None);
    assert!(bench.passes.borrow().passes > 60, "it was woken all the time");
}

#[tokio::test(start_paused = true)]
async fn readiness_comes_from_the_prober_and_outlives_it() {
    let bench = bench();
    bench.views(&[fake::probed("u")]).await;
    bench.runtime(&[fake::running("u")]).await;
    assert_eq!((bench.phase("u").as_str(), bench.ready("u")), ("Running", (false, 10)));
    bench.clock.set(at(20));
    bench.results(&[fake::ready("u", true)]).await;
    assert_eq!(bench.ready("u"), (true, 20));
    let version = bench.version("u");
    // The prober was restarted: a new epoch, and it knows nothing yet.
    bench.clock.set(at(30));
    bench.results(&[]).await;
    bench.views(&[fake::probed("u")]).await;
    tokio::time::sleep(FULL * 2).await;
    assert_eq!((bench.ready("u"), bench.version("u")), ((true, 20), version));
    bench.clock.set(at(40));
    bench.results(&[fake::ready("u", false)]).await;
    assert_eq!(bench.ready("u"), (false, 40));
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_syncd_has_no_more_is_removed() {
    let bench = bench();
    bench.views(&[fake::item("a"), fake::item("b")]).await;
    bench.runtime(&[fake::running("a"), fake::running("b")]).await;
    bench.inputs.views.apply(update(Part::Delta, Vec::new(), &["a"]));
    bench.settle().await;
    assert_eq!((bench.published("a"), bench.records.get("a")), (None, None));
    assert!(bench.published("b").is_some());
    // The runtime may still hold it.
    bench.runtime(&[fake::exited("a", 0)]).await;
    assert_eq!(bench.published("a"), None);
}

#[tokio::test(start_paused = true)]
async fn what_was_saved_goes_on() {
    let first = bench();
    first.views(&[fake::probed("u"), fake::item("gone")]).await;
    first.runtime(&[fake::running("u"), fake::running("gone")]).await;
    first.results(&[fake::ready("u", true)]).await;
    let before = first.status("u");

    // A new life, long after; neither prober nor pleg is there.
    let second = bench_with(first.records.memory().0, "containerd");
    second.clock.set(at(1000));
    second.settle().await;
    assert!(second.records.get("gone").is_some(), "who is gone is said by syncd alone");
    second.views(&[fake::probed("u")]).await;
    assert_eq!(second.records.get("gone"), None);
    assert_eq!(second.status("u"), before, "the earlier status stands");
    assert!(!second.publisher.is_open());
    second.runtime(&[fake::running("u")]).await;
    assert!(second.publisher.is_open());
    assert_eq!(second.status("u"), before);
    second.results(&[fake::ready("u", false)]).await;
    assert_eq!(second.ready("u"), (false, 1000));
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_put_back_begins_anew() {
    let bench = bench();
    let mut item = fake::item("u");
    item.view.restart_policy = RestartPolicy::Never;
    item.view.containers[0].restart_policy = RestartPolicy::Never;
    bench.views(std::slice::from_ref(&item)).await;
    bench.runtime(&[fake::exited("u", 0)]).await;
    assert_eq!(bench.phase("u"), "Succeeded");
    item.decision.stage = Stage::Terminated;
    bench.views(std::slice::from_ref(&item)).await;

    // pleg is behind: it still holds the dead container, which syncd has removed.
    item.decision.stage = Stage::Syncing;
    item.decision.started_at = Some(at(100));
    bench.clock.set(at(100));
    bench.views(std::slice::from_ref(&item)).await;
    assert_eq!(bench.phase("u"), "Pending");
    assert_eq!(bench.ready("u"), (false, 100));
    bench.runtime(&[]).await;
    let mut again = fake::running("u");
    again.containers[0].created_at = at(102);
    bench.runtime(std::slice::from_ref(&again)).await;
    assert_eq!(bench.phase("u"), "Running");
    let mut over = fake::exited("u", 0);
    over.containers[0].created_at = at(102);
    bench.runtime(&[over]).await;
    assert_eq!(bench.phase("u"), "Succeeded");
}

#[tokio::test(start_paused = true)]
async fn a_syncd_that_lost_its_records_changes_nothing_even_when_all_were_restarted() {
    let mut item = fake::item("u");
    item.view.containers.push(ContainerView { name: "done".to_owned(), ..ContainerView::default() });
    let mut pod = fake::running("u");
    let mut done = fake::exited("u", 0).containers.remove(0);
    done.id = "u-done".to_owned();
    done.name = "done".to_owned();
    pod.containers.push(done);
    let first = bench();
    first.views(std::slice::from_ref(&item)).await;
    first.runtime(std::slice::from_ref(&pod)).await;
    let before = first.status("u");

    let second = bench_with(first.records.memory().0, "containerd");
    second.clock.set(at(1000));
    item.decision.started_at = Some(at(900));
    second.views(std::slice::from_ref(&item)).await;
    assert_eq!(second.status("u"), before, "it waits for the runtime's view");
    second.runtime(std::slice::from_ref(&pod)).await;
    assert_eq!(second.status("u"), before, "what ended before the new start is of this run too");
    tokio::time::sleep(FULL).await;
    assert_eq!((second.status("u"), second.version("u")), (before, 1));
}

#[tokio::test(start_paused = true)]
async fn a_pod_whose_clock_was_set_back_is_late_by_one_look_at_most() {
    let bench = bench();
    let mut item = fake::item("u");
    item.view.containers[0].restart_policy = RestartPolicy::Never;
    item.decision.started_at = Some(at(500));
    bench.views(std::slice::from_ref(&item)).await;
    // Created, by its date, before the pod began.
    bench.runtime(&[fake::exited("u", 0)]).await;
    assert_eq!(bench.phase("u"), "Pending");
    tokio::time::sleep(FULL).await;
    assert_eq!(bench.phase("u"), "Succeeded");
}

/// A pod whose container is not started again.
fn never(uid: &str) -> StatusItem {
    let mut item = fake::item(uid);
    item.view.restart_policy = RestartPolicy::Never;
    item.view.containers[0].restart_policy = RestartPolicy::Never;
    item
}

/// Known fault T1: `kill -9`, and then the containers are removed.
#[tokio::test(start_paused = true)]
async fn a_final_phase_is_kept_before_anybody_sees_it() {
    let first = bench();
    first.views(&[never("u"), fake::item("v")]).await;
    first.runtime(&[fake::running("u"), fake::running("v")]).await;
    let turn = first.disk.acquire().await.unwrap();
    first.runtime(&[fake::exited("u", 3), fake::running("v")]).await;
    first.settle().await;
    assert_eq!(first.phase("u"), "Running", "not before it is written");
    drop(turn);
    first.settle().await;
    assert_eq!(first.phase("u"), "Failed");
    let saved = first.saved.borrow().clone();
    assert_eq!(saved.pods["u"].status, first.status("u"), "in the same second");

    // The next life finds nothing in the runtime.
    let second = bench_with(saved, "containerd");
    second.views(&[never("u"), fake::item("v")]).await;
    second.runtime(&[fake::running("v")]).await;
    let (before, now) = (first.status("u"), second.status("u"));
    assert_eq!((now.phase, now.container_statuses), (before.phase, before.container_statuses));
}

#[tokio::test(start_paused = true)]
async fn a_disk_that_hangs_holds_a_final_phase_up_for_seconds_only() {
    let bench = bench();
    bench.views(&[never("u")]).await;
    bench.runtime(&[fake::running("u")]).await;
    let _turn = bench.disk.acquire().await.unwrap();
    bench.runtime(&[fake::exited("u", 0)]).await;
    assert_eq!(bench.phase("u"), "Running");
    tokio::time::sleep(PATIENCE).await;
    assert_eq!(bench.phase("u"), "Succeeded");
}
