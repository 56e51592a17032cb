//! Events under a paused clock, with a runtime in memory and no relist: what is seen here is seen by events.

use std::sync::Arc;

use bulkhead_ipc::Publisher;
use bulkhead_model::runtime::RuntimePod;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::fake::{self, FakeRuntime};

const S: fn(u64) -> Duration = Duration::from_secs;
const SOON: Duration = Duration::from_millis(1);
/// An event has settled and its pod was read.
const READ: Duration = SETTLE.saturating_add(SOON);

struct Node {
    runtime: FakeRuntime,
    reader: Reader<FakeRuntime>,
    publisher: Publisher<String, RuntimePod>,
    lives: watch::Sender<u64>,
    trust: Trust,
}

impl Node {
    async fn start(runtime: FakeRuntime) -> Self {
        let publisher = Publisher::new(CancellationToken::new());
        let reader = Reader::new(runtime.clone(), Arc::new(Cache::new(publisher.clone())));
        let (lives, seen) = watch::channel(1);
        let trust = Trust::new(bulkhead_reconcile::wake().0);
        tokio::spawn(Events::new(reader.clone(), seen, trust.clone()).run());
        sleep(SOON).await;
        Self { runtime, reader, publisher, lives, trust }
    }

    fn opened(&self) -> usize {
        self.runtime.calls("GetContainerEvents").len()
    }

    fn exit_code(&self, uid: &str) -> Option<i32> {
        let pod = self.publisher.get(&uid.to_owned())?;
        pod.containers.first().map(|container| container.exit_code)
    }
}

fn of_pod(uid: &str) -> wire::ContainerEventResponse {
    let listed = fake::sandbox(uid, &format!("s-{uid}"));
    let status = wire::PodSandboxStatus { labels: listed.labels.clone(), ..fake::sandbox_status(&listed) };
    wire::ContainerEventResponse { pod_sandbox_status: Some(status), ..Default::default() }
}

#[tokio::test(start_paused = true)]
async fn an_event_has_its_pod_read_soon() {
    let node = Node::start(FakeRuntime::default()).await;
    node.runtime.add_pod("a");
    node.runtime.add_pod("b");
    node.runtime.event(Some(&of_pod("a")));
    sleep(READ).await;
    assert_eq!((node.exit_code("a"), node.exit_code("b")), (Some(0), None));
    node.runtime.exit("c-a", 3);
    // Told by a container alone.
    let listed = fake::container("a", "c-a", "app");
    let statuses = vec![fake::status(&listed)];
    node.runtime
        .event(Some(&wire::ContainerEventResponse { containers_statuses: statuses, ..Default::default() }));
    sleep(READ).await;
    assert_eq!(node.exit_code("a"), Some(3));
    // The last event of a pod names nothing but an id.
    node.runtime.remove_pod("a");
    node.runtime
        .event(Some(&wire::ContainerEventResponse { container_id: "s-a".to_owned(), ..Default::default() }));
    sleep(READ).await;
    assert_eq!(node.exit_code("a"), None);
}

#[tokio::test(start_paused = true)]
async fn events_of_a_pod_that_is_being_read_count_as_one_more() {
    let node = Node::start(FakeRuntime::default()).await;
    node.runtime.add_pod("a");
    node.runtime.slow("ListContainers", S(1));
    for _ in 0..50 {
        node.runtime.event(Some(&of_pod("a")));
        sleep(Duration::from_millis(10)).await;
    }
    node.runtime.exit("c-a", 3);
    node.runtime.event(Some(&of_pod("a")));
    sleep(S(10)).await;
    assert_eq!(node.exit_code("a"), Some(3), "the event during the read is not lost");
    assert_eq!(node.runtime.calls("ListContainers").len(), 2);
}

#[tokio::test(start_paused = true)]
async fn events_of_what_was_looked_at_since_cost_nothing() {
    let node = Node::start(FakeRuntime::default()).await;
    node.runtime.add_pod("a");
    node.runtime.event(Some(&of_pod("a")));
    sleep(SOON).await;
    node.reader.observe("a").await.unwrap();
    sleep(S(1)).await;
    assert_eq!(node.runtime.calls("ListContainers").len(), 1, "the look itself");
    // A look that finds nothing new counts as well.
    node.runtime.event(Some(&of_pod("a")));
    sleep(SOON).await;
    node.reader.observe("a").await.unwrap();
    sleep(S(1)).await;
    assert_eq!(node.runtime.calls("ListContainers").len(), 2);
    // One from before the event does not.
    node.runtime.exit("c-a", 3);
    node.runtime.event(Some(&of_pod("a")));
    sleep(S(1)).await;
    assert_eq!(node.exit_code("a"), Some(3));
}

#[tokio::test(start_paused = true)]
async fn a_look_that_began_before_the_event_does_not_count() {
    let node = Node::start(FakeRuntime::default()).await;
    node.runtime.add_pod("a");
    node.runtime.slow("ListPodSandbox", SETTLE * 4);
    let look = tokio::spawn({
        let reader = node.reader.clone();
        async move { reader.observe("a").await.map(drop) }
    });
    // The look has its containers already.
    sleep(SETTLE).await;
    node.runtime.exit("c-a", 3);
    node.runtime.event(Some(&of_pod("a")));
    look.await.unwrap().unwrap();
    sleep(S(2)).await;
    assert_eq!(node.exit_code("a"), Some(3));
}

#[tokio::test(start_paused = true)]
async fn events_about_nothing_known_ask_for_nothing() {
    let node = Node::start(FakeRuntime::default()).await;
    node.runtime.event(Some(&of_pod("")));
    node.runtime
        .event(Some(&wire::ContainerEventResponse { container_id: "x".to_owned(), ..Default::default() }));
    sleep(S(1)).await;
    assert!(node.runtime.calls("ListContainers").is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_broken_stream_is_opened_again_with_back_off() {
    let node = Node::start(FakeRuntime::default()).await;
    assert_eq!(node.opened(), 1);
    node.runtime.event(None);
    sleep(Duration::from_millis(190)).await;
    assert_eq!(node.opened(), 1);
    sleep(Duration::from_millis(20)).await;
    assert_eq!(node.opened(), 2);
    node.runtime.fail("GetContainerEvents", Code::Unavailable);
    node.runtime.event(None);
    sleep(S(60)).await;
    assert!((7..15).contains(&node.opened()), "{} times in a minute", node.opened());
    node.runtime.heal("GetContainerEvents");
    node.lives.send_replace(2);
    sleep(SOON).await;
    node.runtime.add_pod("a");
    node.runtime.event(Some(&of_pod("a")));
    sleep(READ).await;
    assert_eq!(node.exit_code("a"), Some(0), "soon after the runtime is back");
}

#[tokio::test(start_paused = true)]
async fn a_runtime_without_events_is_asked_once_a_life() {
    let runtime = FakeRuntime::default();
    runtime.fail("GetContainerEvents", Code::Unimplemented);
    let node = Node::start(runtime).await;
    sleep(S(3600)).await;
    assert_eq!(node.opened(), 1);
    node.lives.send_replace(2);
    sleep(S(3600)).await;
    assert_eq!(node.opened(), 2);
}

#[tokio::test(start_paused = true)]
async fn only_an_event_proves_the_stream() {
    let node = Node::start(FakeRuntime::default()).await;
    sleep(S(3600)).await;
    assert!(!node.trust.events(), "open, but it never told anything");
    node.runtime.event(Some(&of_pod("a")));
    sleep(SOON).await;
    assert!(node.trust.events());
    node.runtime.fail("GetContainerEvents", Code::Unavailable);
    node.runtime.event(None);
    sleep(SOON).await;
    assert!(!node.trust.events());
    sleep(S(60)).await;
    assert!(!node.trust.events(), "it does not open");
    node.runtime.heal("GetContainerEvents");
    node.lives.send_replace(2);
    sleep(S(9)).await;
    assert!(!node.trust.events());
    sleep(S(2)).await;
    assert!(node.trust.events(), "proved before, and it lasts");
}

#[tokio::test(start_paused = true)]
async fn a_head_that_comes_with_the_first_event_holds_nothing_up() {
    let node = Node::start(FakeRuntime::default()).await;
    node.runtime.event(Some(&of_pod("a")));
    sleep(SOON).await;
    node.runtime.slow("GetContainerEvents", S(3600));
    node.runtime.event(None);
    sleep(S(9)).await;
    assert!(!node.trust.events());
    sleep(S(2)).await;
    assert!(node.trust.events(), "opening it takes until the first event");
    node.runtime.fail("GetContainerEvents", Code::Unimplemented);
    sleep(S(3600)).await;
    node.runtime.heal("GetContainerEvents");
    node.runtime.fail("GetContainerEvents", Code::Unimplemented);
    node.runtime.event(None);
    sleep(S(20)).await;
    assert!(!node.trust.events(), "another runtime, without events");
}
