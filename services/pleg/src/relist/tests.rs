//! The loop under a paused clock, with a runtime in memory.

use bulkhead_ipc::Publisher;
use bulkhead_model::runtime::{ContainerState, RuntimePod};
use bulkhead_reconcile::{LoopStatus, drive, wake};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tonic::Code;

use super::*;
use crate::cache::Cache;
use crate::error::ReadError;
use crate::fake::{self, FakeRuntime};
use crate::health;

const S: fn(u64) -> Duration = Duration::from_secs;

struct Node {
    runtime: FakeRuntime,
    reader: Reader<FakeRuntime>,
    publisher: Publisher<String, RuntimePod>,
    status: watch::Receiver<LoopStatus>,
    lives: watch::Receiver<u64>,
    trust: Trust,
    shutdown: CancellationToken,
}

impl Node {
    /// A running loop over `runtime`, a moment after its start.
    async fn start(runtime: FakeRuntime) -> Self {
        let shutdown = CancellationToken::new();
        let publisher = Publisher::new(shutdown.clone());
        let reader = Reader::new(runtime.clone(), Arc::new(Cache::new(publisher.clone())));
        let (lives, seen_lives) = watch::channel(0);
        let (status, seen_status) = watch::channel(LoopStatus::default());
        let (waker, waiting) = wake();
        let trust = Trust::new(waker);
        let relist = Relist::new(reader.clone(), lives, trust.clone());
        tokio::spawn(drive(relist, waiting, status, shutdown.clone().cancelled_owned()));
        sleep(Duration::from_millis(1)).await;
        Self { runtime, reader, publisher, status: seen_status, lives: seen_lives, trust, shutdown }
    }

    async fn with_pods(uids: &[&str]) -> Self {
        let runtime = FakeRuntime::default();
        for uid in uids {
            runtime.add_pod(uid);
        }
        let node = Self::start(runtime).await;
        assert!(node.publisher.is_open());
        node
    }

    fn pod(&self, uid: &str) -> Option<Arc<RuntimePod>> {
        self.publisher.get(&uid.to_owned())
    }

    /// State and exit code of the container `id`.
    fn container(&self, uid: &str, id: &str) -> Option<(ContainerState, i32)> {
        let pod = self.pod(uid)?;
        pod.containers.iter().find(|container| container.id == id).map(|c| (c.state, c.exit_code))
    }

    fn verdict(&self) -> Result<(), String> {
        health::verdict(&self.status.borrow(), Instant::now())
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.shutdown.cancel();
    }
}

const RUNS: Option<(ContainerState, i32)> = Some((ContainerState::Running, 0));
const EXITED_3: Option<(ContainerState, i32)> = Some((ContainerState::Exited, 3));

#[tokio::test(start_paused = true)]
async fn changes_are_seen_within_a_second_and_ask_for_nothing_else() {
    let node = Node::with_pods(&["a", "b"]).await;
    assert_eq!(node.container("a", "c-a"), RUNS);
    assert_eq!(node.pod("a").unwrap().sandboxes.first().unwrap().ips, ["10.0.0.1"]);
    node.runtime.clear_calls();
    sleep(S(10)).await;
    assert_eq!(node.runtime.calls("ListContainers").len(), 10);
    assert!(node.runtime.calls("ContainerStatus").is_empty(), "nothing changed");
    assert!(node.runtime.calls("PodSandboxStatus").is_empty());
    node.runtime.exit("c-a", 3);
    node.runtime.add_pod("c");
    sleep(S(1)).await;
    assert_eq!(node.container("a", "c-a"), EXITED_3);
    assert_eq!(node.container("c", "c-c"), RUNS);
    assert_eq!(node.runtime.calls("ContainerStatus"), ["c-a", "c-c"]);
    assert_eq!(node.runtime.calls("PodSandboxStatus"), ["s-c"]);
}

#[tokio::test(start_paused = true)]
async fn newest_comes_first_and_what_went_is_removed() {
    let node = Node::with_pods(&["a", "b"]).await;
    node.runtime.exit("c-a", 1);
    node.runtime.add_container("a", "c-a2");
    sleep(S(1)).await;
    let ids = |pod: Option<Arc<RuntimePod>>| {
        pod.map(|pod| pod.containers.iter().map(|container| container.id.clone()).collect::<Vec<_>>())
    };
    assert_eq!(ids(node.pod("a")).unwrap(), ["c-a2", "c-a"]);
    node.runtime.remove("c-a");
    node.runtime.remove_pod("b");
    sleep(S(1)).await;
    assert_eq!(ids(node.pod("a")).unwrap(), ["c-a2"]);
    assert_eq!(node.pod("b"), None);
}

#[tokio::test(start_paused = true)]
async fn a_failed_inspection_keeps_the_old_record_and_is_tried_again() {
    let node = Node::with_pods(&["a", "b"]).await;
    node.runtime.fail("c-a", Code::Internal);
    node.runtime.exit("c-a", 3);
    node.runtime.exit("c-b", 3);
    sleep(S(5)).await;
    assert_eq!(node.container("a", "c-a"), RUNS, "no exit without its code");
    assert_eq!(node.container("b", "c-b"), EXITED_3, "the other pod is not held up");
    assert_eq!(node.verdict(), Ok(()));
    node.runtime.heal("c-a");
    sleep(S(1)).await;
    assert_eq!(node.container("a", "c-a"), EXITED_3);
}

#[tokio::test(start_paused = true)]
async fn a_slow_container_delays_its_own_pod_only() {
    let node = Node::with_pods(&["a", "b"]).await;
    node.runtime.slow("c-a", S(10));
    node.runtime.exit("c-a", 3);
    sleep(S(2)).await;
    node.runtime.exit("c-b", 3);
    node.runtime.add_pod("c");
    sleep(S(1)).await;
    assert_eq!(node.container("a", "c-a"), RUNS);
    assert_eq!(node.container("b", "c-b"), EXITED_3);
    assert_eq!(node.container("c", "c-c"), RUNS);
    let asked = node.runtime.calls("ContainerStatus").iter().filter(|id| *id == "c-a").count();
    assert_eq!(asked, 2, "at the start, and once while it hangs");
    node.runtime.heal("c-a");
    sleep(S(10)).await;
    assert_eq!(node.container("a", "c-a"), EXITED_3);
    assert_eq!(node.verdict(), Ok(()));
}

#[tokio::test(start_paused = true)]
async fn more_hanging_pods_than_places_leave_requests_alone() {
    let node = Node::with_pods(&["z"]).await;
    for at in 0..30 {
        let uid = format!("p{at}");
        node.runtime.add_pod(&uid);
        node.runtime.slow(&format!("c-{uid}"), S(9));
    }
    sleep(S(2)).await;
    let hanging = node.runtime.calls("ContainerStatus").iter().filter(|id| id.starts_with("c-p")).count();
    assert_eq!(hanging, 8, "bounded");
    node.runtime.exit("c-z", 3);
    let before = Instant::now();
    node.reader.observe("z").await.unwrap();
    assert_eq!(before.elapsed(), Duration::ZERO);
    assert_eq!(node.container("z", "c-z"), EXITED_3);
    sleep(S(60)).await;
    assert_eq!(node.publisher.snapshot().len(), 31, "all had their turn");
}

#[tokio::test(start_paused = true)]
async fn a_sandbox_gets_its_address_later() {
    let runtime = FakeRuntime::default();
    runtime.add_pod("a");
    runtime.set_ip("s-a", false);
    runtime.add_pod("b");
    runtime.fail("s-b", Code::Internal);
    let node = Node::start(runtime).await;
    assert!(node.publisher.is_open(), "addresses may come later");
    let ips = |uid| node.pod(uid).unwrap().sandboxes.first().unwrap().ips.clone();
    assert!(ips("a").is_empty() && ips("b").is_empty());
    node.runtime.exit("c-b", 3);
    node.runtime.set_ip("s-a", true);
    sleep(S(1)).await;
    assert_eq!(ips("a"), ["10.0.0.1"]);
    assert_eq!(node.container("b", "c-b"), EXITED_3, "a sandbox that cannot be read hides no exit");
    node.runtime.heal("s-b");
    sleep(S(1)).await;
    assert_eq!(ips("b"), ["10.0.0.1"]);
    node.runtime.clear_calls();
    sleep(S(5)).await;
    assert!(node.runtime.calls("PodSandboxStatus").is_empty(), "asked until it is known");
}

#[tokio::test(start_paused = true)]
async fn nothing_is_published_before_all_was_read_once() {
    let runtime = FakeRuntime::default();
    runtime.add_pod("a");
    runtime.fail("ListPodSandbox", Code::Unavailable);
    let node = Node::start(runtime).await;
    sleep(S(5)).await;
    assert!(!node.publisher.is_open());
    let reason = node.verdict().unwrap_err();
    assert!(reason.contains("not listed yet") && reason.contains("a fault"), "{reason}");
    node.runtime.fail("c-a", Code::Internal);
    node.runtime.heal("ListPodSandbox");
    sleep(S(5)).await;
    assert!(!node.publisher.is_open(), "a missing pod would be taken for gone");
    assert!(node.verdict().unwrap_err().contains("c-a"), "{:?}", node.verdict());
    node.runtime.heal("c-a");
    sleep(S(2)).await;
    assert!(node.publisher.is_open());
    assert_eq!(node.container("a", "c-a"), RUNS);
    assert_eq!(node.verdict(), Ok(()));
}

#[tokio::test(start_paused = true)]
async fn when_lists_fail_everything_is_kept_and_health_goes_after_three_minutes() {
    let node = Node::with_pods(&["a"]).await;
    assert_eq!(*node.lives.borrow(), 1);
    let good = node.status.borrow().last_good.unwrap();
    node.runtime.fail("ListContainers", Code::Unavailable);
    node.runtime.remove_pod("a");
    tokio::time::sleep_until(good + S(180)).await;
    assert_eq!(node.container("a", "c-a"), RUNS, "only a good list says gone");
    assert_eq!(node.verdict(), Ok(()));
    sleep(S(1)).await;
    assert!(node.verdict().unwrap_err().contains("a fault"));
    assert_eq!(*node.lives.borrow(), 1);
    node.runtime.heal("ListContainers");
    sleep(S(2)).await;
    assert_eq!(node.verdict(), Ok(()));
    assert_eq!(node.pod("a"), None);
    assert_eq!(*node.lives.borrow(), 2, "it may be another runtime");
}

#[tokio::test(start_paused = true)]
async fn an_old_list_does_not_undo_a_newer_observation() {
    let node = Node::with_pods(&["a", "b"]).await;
    // The next list, within a second, looks at once and answers late.
    node.runtime.slow("ListPodSandbox", S(3));
    node.runtime.slow("ListContainers", S(3));
    sleep(S(2)).await;
    node.runtime.heal("ListPodSandbox");
    node.runtime.heal("ListContainers");
    node.runtime.exit("c-a", 3);
    node.runtime.remove_pod("b");
    node.runtime.add_pod("n");
    let seen = node.reader.observe("a").await.unwrap().unwrap();
    assert_eq!(seen.containers.first().unwrap().exit_code, 3);
    assert_eq!(node.reader.observe("b").await.unwrap(), None);
    assert!(node.reader.observe("n").await.unwrap().is_some());
    node.runtime.clear_calls();
    // The old list arrives: a running, b there, n not.
    sleep(Duration::from_millis(2100)).await;
    assert_eq!(node.container("a", "c-a"), EXITED_3);
    assert_eq!(node.pod("b"), None);
    assert_eq!(node.container("n", "c-n"), RUNS);
    assert!(node.runtime.calls("ContainerStatus").is_empty(), "nor is it a reason to ask");
    sleep(S(3)).await;
    assert_eq!(node.container("n", "c-n"), RUNS);
}

#[tokio::test(start_paused = true)]
async fn an_observation_answers_what_is_true_after_the_call() {
    let node = Node::with_pods(&["a"]).await;
    node.runtime.exit("c-a", 3);
    let seen = node.reader.observe("a").await.unwrap();
    assert_eq!(seen, node.pod("a"), "the cache has it as well");
    assert_eq!(node.container("a", "c-a"), EXITED_3);
    node.runtime.clear_calls();
    assert_eq!(node.reader.observe("a").await.unwrap(), seen);
    assert!(node.runtime.calls("ContainerStatus").is_empty(), "known already");
    assert_eq!(node.reader.observe("nobody").await.unwrap(), None);
    node.runtime.fail("ListContainers", Code::Unavailable);
    assert!(matches!(node.reader.observe("a").await, Err(ReadError::Runtime(_))));
    node.runtime.heal("ListContainers");
    node.runtime.slow("ListContainers", S(60));
    assert!(matches!(node.reader.observe("a").await, Err(ReadError::Late { .. })));
}

#[tokio::test(start_paused = true)]
async fn things_of_other_tools_are_ignored() {
    let node = Node::with_pods(&["a"]).await;
    node.runtime.add_foreign(fake::sandbox("", "s-x"));
    sleep(S(2)).await;
    assert_eq!(node.publisher.snapshot().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn with_events_a_quiet_runtime_is_listed_rarely() {
    let node = Node::with_pods(&["a"]).await;
    node.trust.gain();
    sleep(S(1)).await;
    node.runtime.clear_calls();
    sleep(S(3600)).await;
    assert_eq!(node.runtime.calls("ListContainers").len(), 30);
    assert_eq!(node.verdict(), Ok(()));
    // Nobody tells of it: the net catches it all the same.
    node.runtime.exit("c-a", 3);
    sleep(QUIET).await;
    assert_eq!(node.container("a", "c-a"), EXITED_3);
}

#[tokio::test(start_paused = true)]
async fn what_moved_is_confirmed_until_nothing_moves() {
    let node = Node::with_pods(&["a"]).await;
    node.trust.gain();
    sleep(S(10)).await;
    node.runtime.clear_calls();
    node.runtime.fail("c-a", Code::Internal);
    node.runtime.exit("c-a", 3);
    node.trust.moved();
    sleep(S(10)).await;
    assert_eq!(node.runtime.calls("ListContainers").len(), 9, "a read that failed is not left alone");
    node.runtime.heal("c-a");
    sleep(S(2)).await;
    assert_eq!(node.container("a", "c-a"), EXITED_3);
    node.runtime.clear_calls();
    sleep(S(60)).await;
    assert!(node.runtime.calls("ListContainers").len() <= 1);
}

#[tokio::test(start_paused = true)]
async fn without_the_stream_the_relist_is_back_at_once() {
    let node = Node::with_pods(&["a"]).await;
    node.trust.gain();
    sleep(S(10)).await;
    node.trust.lose();
    node.runtime.exit("c-a", 3);
    sleep(S(1) + Duration::from_millis(1)).await;
    assert_eq!(node.container("a", "c-a"), EXITED_3);
    node.runtime.clear_calls();
    sleep(S(10)).await;
    assert_eq!(node.runtime.calls("ListContainers").len(), 10);
}
