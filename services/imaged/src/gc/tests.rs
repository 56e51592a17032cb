//! The loop and the request, on a paused clock with everything else in memory.

use std::collections::BTreeMap;
use std::sync::Mutex as StdMutex;

use bulkhead_reconcile::{LoopStatus, drive, wake};
use tokio::sync::watch;
use tonic::Status;

use super::plan::Space;
use super::*;
use crate::fake::{FakeImages, STORE, id_of};

#[derive(Clone, Default)]
struct Node(Arc<StdMutex<State>>);

#[derive(Default)]
struct State {
    used: BTreeSet<String>,
    unknown: bool,
    space: Option<Space>,
}

impl Node {
    fn with<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        change(&mut self.0.lock().unwrap())
    }

    fn uses(&self, image: &str) {
        self.with(|state| state.used.insert(id_of(image)));
    }

    fn available(&self, available: u64) {
        self.with(|state| state.space = Some(Space { capacity: 100, available }));
    }
}

impl Users for Node {
    async fn used(&self) -> Result<BTreeSet<String>, GcError> {
        self.with(|state| match state.unknown {
            true => Err(GcError::Pods(Status::unavailable("starting"))),
            false => Ok(state.used.clone()),
        })
    }
}

impl Disk for Node {
    async fn space(&self, folder: &str) -> Option<Space> {
        assert_eq!(folder, STORE);
        self.with(|state| state.space)
    }
}

struct Bench {
    fake: FakeImages,
    node: Node,
    promised: Promised,
    metrics: Metrics,
    collector: Collector<FakeImages, Node, Node>,
    status: watch::Receiver<LoopStatus>,
}

const LIMITS: Limits =
    Limits { high: 85, low: 80, least_age: Duration::from_secs(120), longest_unused: None };

/// The loop runs as long as the test.
fn bench(limits: Limits, prepare: impl FnOnce(&FakeImages, &Node)) -> Bench {
    let (fake, node, promised) = (FakeImages::default(), Node::default(), Promised::default());
    prepare(&fake, &node);
    let parts = Parts {
        runtime: fake.clone(),
        users: node.clone(),
        disk: node.clone(),
        limits,
        promised: promised.clone(),
    };
    let metrics = Metrics::default();
    let collector = Collector::new(parts, &metrics);
    let (waker, wake) = wake();
    let (told, status) = watch::channel(LoopStatus::default());
    let passes = Loop::new(collector.clone());
    tokio::spawn(async move {
        let _waker = waker;
        drive(passes, wake, told, std::future::pending()).await;
    });
    Bench { fake, node, promised, metrics, collector, status }
}

async fn after(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds) + Duration::from_millis(1)).await;
}

fn removed_by(metrics: &Metrics) -> BTreeMap<String, f64> {
    let families = metrics.gather().into_iter().filter(|family| family.name == COLLECTED.name);
    let series = families.flat_map(|family| family.series);
    series.map(|series| (series.label_values.concat(), series.value)).collect()
}

#[tokio::test(start_paused = true)]
async fn a_full_disk_costs_unused_images_but_neither_pinned_ones_nor_those_of_containers() {
    let bench = bench(LIMITS, |fake, node| {
        fake.pin("pause");
        fake.add("unused:2");
        fake.add("used:1");
        node.uses("used:1");
        node.available(14);
    });
    after(0).await;
    assert_eq!(bench.fake.removed(), ["unused:2"]);
    assert_eq!(removed_by(&bench.metrics), BTreeMap::from([("space".to_owned(), 1.0)]));
    // Nothing more can go: that is said, and not tried without end.
    let lists = bench.status.borrow().passes;
    after(3000).await;
    assert_eq!(bench.fake.removed(), ["unused:2"]);
    assert!(bench.status.borrow().passes - lists <= 11, "{:?}", bench.status.borrow());
}

#[tokio::test(start_paused = true)]
async fn a_disk_with_room_keeps_everything_and_is_looked_at_every_five_minutes() {
    let bench = bench(LIMITS, |fake, node| {
        fake.add("unused:2");
        node.available(16);
    });
    after(290).await;
    assert_eq!(bench.fake.removed(), [""; 0]);
    bench.node.available(15);
    after(10).await;
    assert_eq!(bench.fake.removed(), ["unused:2"]);
}

#[tokio::test(start_paused = true)]
async fn nothing_goes_while_it_is_not_known_what_is_used_or_how_full_the_disk_is() {
    let bench = bench(LIMITS, |fake, node| {
        fake.add("unused:2");
        node.available(0);
        node.with(|state| state.unknown = true);
    });
    after(60).await;
    assert_eq!(bench.fake.removed(), [""; 0]);
    assert!(bench.collector.reclaim().await.is_err());
    assert!(bench.status.borrow().last_error.contains("it is not known which ones containers use"));
    bench.node.with(|state| {
        state.unknown = false;
        state.space = None;
    });
    after(60).await;
    assert_eq!(bench.fake.removed(), [""; 0]);
    bench.node.available(0);
    after(300).await;
    assert_eq!(bench.fake.removed(), ["unused:2"]);
}

#[tokio::test(start_paused = true)]
async fn what_a_container_was_just_told_it_has_is_not_taken_away() {
    let bench = bench(LIMITS, |fake, _| fake.add("soon:1"));
    after(0).await;
    bench.promised.note(&id_of("soon:1"), Instant::now());
    assert_eq!(bench.collector.reclaim().await.unwrap(), 0);
    after(120).await;
    assert_eq!(bench.collector.reclaim().await.unwrap(), crate::fake::SIZE, "no container came of it");
}

#[tokio::test(start_paused = true)]
async fn an_image_that_cannot_be_removed_does_not_keep_the_others() {
    let bench = bench(LIMITS, |fake, _| {
        fake.keep("a:1");
        fake.add("b:1");
    });
    after(0).await;
    assert_eq!(bench.collector.reclaim().await.unwrap(), crate::fake::SIZE);
    assert_eq!(bench.fake.removed(), ["b:1"]);
}

#[tokio::test(start_paused = true)]
async fn an_old_unused_image_goes_and_a_node_that_wants_neither_is_left_alone() {
    let limits = Limits { high: 100, longest_unused: Some(Duration::from_secs(3600)), ..LIMITS };
    let aged = bench(limits, |fake, _| fake.add("a:1"));
    after(3500).await;
    assert_eq!(aged.fake.removed(), [""; 0]);
    after(500).await;
    assert_eq!(aged.fake.removed(), ["a:1"]);
    assert_eq!(removed_by(&aged.metrics), BTreeMap::from([("age".to_owned(), 1.0)]));

    let off = bench(Limits { longest_unused: None, ..limits }, |fake, node| {
        fake.add("a:1");
        fake.go_away(Status::unavailable("nobody should ask"));
        node.available(0);
    });
    after(4000).await;
    assert_eq!(off.status.borrow().failures, 0);
}
