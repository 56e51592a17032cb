//! The loop on a paused clock, with a node that says what the test wants.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard};

use bulkhead_api::evictd::v1::{ContainerStats, MemoryStats};
use bulkhead_api::syncd::v1::{StatsContainer, StatsVolume};
use bulkhead_model::eviction::{NodeRules, Observation, rules};
use bulkhead_reconcile::{LoopStatus, drive, wake};
use bulkhead_service::{Desc, Metrics};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::logs::Taken;

const MI: u64 = 1 << 20;
const EVICTIONS: Desc = Desc { name: "evictions", help: "", labels: &["signal"] };

/// What there is, and what was done.
#[derive(Default)]
struct Scene {
    seen: Seen,
    /// `None`: syncd told nothing yet.
    pods: Option<BTreeMap<String, StatsView>>,
    runs: BTreeSet<String>,
    figures: Vec<PodStats>,
    disks: BTreeMap<String, PodDisk>,
    /// What is seen after images were removed.
    after_reclaim: Option<Seen>,
    /// What syncd answers, by UID; else it evicts.
    answers: BTreeMap<String, Answer>,
    /// What was asked for: seconds and what.
    log: Vec<(u64, String)>,
    orders: Vec<Order>,
}

struct Fake {
    scene: Mutex<Scene>,
    start: Instant,
}

impl Fake {
    fn scene(&self) -> MutexGuard<'_, Scene> {
        self.scene.lock().unwrap()
    }

    fn note(&self, what: impl Into<String>) {
        self.scene().log.push((self.start.elapsed().as_secs(), what.into()));
    }
}

impl World for Fake {
    async fn observe(&self) -> Seen {
        self.scene().seen.clone()
    }

    fn pods(&self) -> Option<Vec<Arc<StatsView>>> {
        Some(self.scene().pods.clone()?.into_values().map(Arc::new).collect())
    }

    fn runs(&self, uid: &str) -> bool {
        self.scene().runs.contains(uid)
    }

    async fn figures(&self) -> Vec<PodStats> {
        self.note("figures");
        self.scene().figures.clone()
    }

    async fn disks(&self, anew: &[String], layers: bool) -> BTreeMap<String, PodDisk> {
        self.note(format!("disks of {anew:?}{}", if layers { " with layers" } else { "" }));
        self.scene().disks.clone()
    }

    async fn reclaim(&self) -> Result<u64, String> {
        self.note("reclaim");
        let mut scene = self.scene();
        if let Some(after) = scene.after_reclaim.take() {
            scene.seen = after;
        }
        Ok(1)
    }

    async fn evict(&self, order: Order) -> Answer {
        self.note(format!("evict {}", order.uid));
        let mut scene = self.scene();
        let answer = scene.answers.get(&order.uid).cloned().unwrap_or(Answer::Evicted);
        if answer == Answer::Evicted
            && let Some(pod) = scene.pods.as_mut().and_then(|pods| pods.get_mut(&order.uid))
        {
            pod.over = true;
            scene.orders.push(order);
        }
        answer
    }
}

struct Bench {
    world: Arc<Fake>,
    pressures: Publisher<String, NodePressure>,
    metrics: Metrics,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Bench {
    fn start(hard: &[(&str, &str)], scene: Scene) -> Self {
        Self::start_with(hard, &[], scene)
    }

    fn start_with(hard: &[(&str, &str)], soft: &[(&str, &str)], scene: Scene) -> Self {
        let map = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect::<BTreeMap<_, _>>()
        };
        let grace = soft.iter().map(|(signal, _)| ((*signal).to_owned(), Duration::from_secs(60))).collect();
        let settings = EvictionSettings {
            rules: NodeRules {
                rules: rules(&map(hard), &map(soft), &grace, &BTreeMap::new()),
                transition: Duration::from_secs(300),
            },
            max_grace: 45,
            local_limits: true,
        };
        let world = Arc::new(Fake { scene: Mutex::new(scene), start: Instant::now() });
        let pressures = Publisher::new(CancellationToken::new());
        let metrics = Metrics::default();
        let evictor = Evictor::new(world.clone(), settings, pressures.clone(), metrics.counter(EVICTIONS));
        let status = watch::Sender::new(LoopStatus::default());
        let (_, never) = wake();
        let task = tokio::spawn(drive(evictor, never, status, std::future::pending()));
        Self { world, pressures, metrics, task }
    }

    async fn until(&self, second: u64) {
        // Half a second later: the look of that second is over.
        let end = self.world.start + Duration::from_millis(second * 1000 + 500);
        tokio::time::sleep_until(end).await;
    }

    fn evicted(&self) -> Vec<String> {
        self.world.scene().orders.iter().map(|order| order.uid.clone()).collect()
    }

    fn log(&self) -> Vec<(u64, String)> {
        self.world.scene().log.clone()
    }

    fn pressures(&self) -> Vec<String> {
        self.pressures.snapshot().into_keys().collect()
    }

    fn counted(&self) -> Vec<(String, f64)> {
        let families = self.metrics.gather();
        let series = families.iter().flat_map(|family| &family.series);
        series.map(|series| (series.label_values.concat(), series.value)).collect()
    }
}

fn seen(signal: Signal, available: u64, capacity: u64) -> Seen {
    Seen { observations: [(signal, Observation { available, capacity })].into(), layers_elsewhere: false }
}

fn memory(available: u64) -> Seen {
    seen(Signal::MemoryAvailable, available * MI, 1000 * MI)
}

fn view(uid: &str, request: u64) -> StatsView {
    let container = StatsContainer {
        name: "c".to_owned(),
        memory_request_bytes: request,
        ephemeral_request_bytes: request,
        ..StatsContainer::default()
    };
    StatsView {
        uid: uid.to_owned(),
        name: uid.to_owned(),
        namespace: "default".to_owned(),
        memory_request_bytes: request,
        ephemeral_request_bytes: request,
        containers: vec![container],
        ..StatsView::default()
    }
}

fn pods(views: impl IntoIterator<Item = StatsView>) -> Option<BTreeMap<String, StatsView>> {
    Some(views.into_iter().map(|view| (view.uid.clone(), view)).collect())
}

fn figures(uid: &str, working_set: u64) -> PodStats {
    let memory = Some(MemoryStats { working_set_bytes: working_set, ..MemoryStats::default() });
    let container = ContainerStats { name: "c".to_owned(), memory, ..ContainerStats::default() };
    PodStats {
        uid: uid.to_owned(),
        memory,
        containers: vec![container],
        process_count: Some(working_set / MI),
        ..PodStats::default()
    }
}

fn disk(layer: u64, volume: u64) -> PodDisk {
    let taken = |bytes| Taken { bytes, inodes: 1 };
    let container = ContainerDisk { layer: Some(taken(layer)), logs: Some(taken(0)) };
    let volume = VolumeDisk { taken: taken(volume), on_disk: true };
    PodDisk {
        containers: [("c".to_owned(), container)].into(),
        volumes: Some([("d".to_owned(), volume)].into()),
    }
}

#[tokio::test(start_paused = true)]
async fn one_pod_goes_at_a_time_and_the_next_once_the_first_is_gone() {
    let static_pod = StatsView { critical: true, ..view("static", 0) };
    let scene = Scene {
        seen: memory(200),
        pods: pods([view("a", 0), view("b", 100 * MI), view("unknown", 0), static_pod]),
        runs: ["a".to_owned()].into(),
        figures: vec![figures("a", 40 * MI), figures("b", 50 * MI), figures("static", 900 * MI)],
        ..Scene::default()
    };
    let bench = Bench::start(&[("memory.available", "100Mi")], scene);
    bench.until(15).await;
    assert_eq!((bench.log(), bench.pressures()), (vec![], vec![]), "nothing is asked of anybody");
    assert!(bench.pressures.is_open());
    bench.world.scene().seen = memory(50);
    bench.until(40).await;
    assert_eq!(bench.evicted(), ["a"], "it still runs");
    assert_eq!(bench.pressures(), ["MemoryPressure"]);
    let order = bench.world.scene().orders[0].clone();
    let message = "The node was low on resource: memory. Threshold quantity: 100Mi, available: 50Mi. \
                   Container c was using 40Mi, request is 0, has larger consumption of memory. ";
    assert_eq!((order.message.as_str(), order.grace_seconds, order.disruption), (message, 1, true));
    bench.world.scene().runs.clear();
    bench.until(50).await;
    assert_eq!(bench.evicted(), ["a", "b"]);
    bench.until(100).await;
    assert_eq!(bench.evicted().len(), 2, "of the others one is critical, and one is not known");
    assert_eq!(bench.counted(), [("memory.available".to_owned(), 2.0)]);
    bench.world.scene().seen = memory(500);
    bench.until(390).await;
    assert_eq!(bench.pressures(), ["MemoryPressure"]);
    bench.until(401).await;
    assert_eq!(bench.pressures(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_does_not_end_does_not_save_the_others_for_ever() {
    let scene = Scene {
        seen: memory(50),
        pods: pods([view("a", 0), view("b", 0)]),
        runs: ["a".to_owned()].into(),
        figures: vec![figures("a", 400 * MI), figures("b", 50 * MI)],
        ..Scene::default()
    };
    let bench = Bench::start(&[("memory.available", "10%")], scene);
    bench.until(20).await;
    assert_eq!(bench.evicted(), ["a"]);
    bench.until(30).await;
    assert_eq!(bench.evicted(), ["a", "b"]);
}

#[tokio::test(start_paused = true)]
async fn nobody_goes_before_all_is_known_and_who_may_stay_is_passed_over() {
    let scene = Scene {
        seen: memory(50),
        figures: vec![figures("a", 400 * MI), figures("b", 50 * MI), figures("c", 5 * MI)],
        answers: [("a".to_owned(), Answer::Stays), ("b".to_owned(), Answer::Failed("away".to_owned()))]
            .into(),
        ..Scene::default()
    };
    let bench = Bench::start(&[("memory.available", "100Mi")], scene);
    bench.until(10).await;
    assert_eq!((bench.log(), bench.pressures()), (vec![], vec!["MemoryPressure".to_owned()]));
    bench.world.scene().pods = pods([view("a", 0), view("b", 0), view("c", 0)]);
    bench.until(20).await;
    assert_eq!(bench.evicted(), [""; 0], "syncd is away: another pod in its place would be one too many");
    bench.world.scene().answers.remove("b");
    bench.until(30).await;
    assert_eq!(bench.evicted(), ["b"]);
}

#[tokio::test(start_paused = true)]
async fn a_soft_threshold_gives_time_and_grace() {
    let scene = Scene {
        seen: memory(50),
        pods: pods([view("a", 0)]),
        figures: vec![figures("a", 400 * MI)],
        ..Scene::default()
    };
    let bench = Bench::start_with(&[], &[("memory.available", "100Mi")], scene);
    bench.until(50).await;
    assert_eq!((bench.evicted().len(), bench.pressures()), (0, vec!["MemoryPressure".to_owned()]));
    bench.until(60).await;
    assert_eq!(bench.world.scene().orders[0].grace_seconds, 45);
}

#[tokio::test(start_paused = true)]
async fn images_go_before_pods() {
    let full = seen(Signal::NodefsAvailable, 5 * MI, 100 * MI);
    let scene = Scene {
        seen: full.clone(),
        pods: pods([view("a", 0), view("b", 0)]),
        disks: [("a".to_owned(), disk(MI, 2 * MI)), ("b".to_owned(), disk(5 * MI, 0))].into(),
        after_reclaim: Some(seen(Signal::NodefsAvailable, 50 * MI, 100 * MI)),
        ..Scene::default()
    };
    let bench = Bench::start(&[("nodefs.available", "10%")], scene);
    bench.until(10).await;
    assert_eq!(bench.log(), [(0, "reclaim".to_owned())], "that was enough");
    assert_eq!(bench.pressures(), ["DiskPressure"]);
    bench.world.scene().seen = full;
    bench.until(20).await;
    let calls: Vec<_> = bench.log().into_iter().map(|(_, call)| call).collect();
    assert_eq!(calls[1..], ["reclaim", "disks of [] with layers", "evict b"]);
    assert_eq!(
        bench.world.scene().orders[0].message,
        "The node was low on resource: ephemeral-storage. Threshold quantity: 10Mi, available: 5Mi. \
         Container c was using 5Mi, request is 0, has larger consumption of ephemeral-storage. "
    );
}

#[tokio::test(start_paused = true)]
async fn images_on_another_disk_stay_when_the_nodes_own_is_full() {
    let scene = Scene {
        seen: Seen { layers_elsewhere: true, ..seen(Signal::NodefsInodesFree, 1, 100) },
        pods: pods([view("a", 0)]),
        disks: [("a".to_owned(), disk(MI, 0))].into(),
        ..Scene::default()
    };
    let bench = Bench::start(&[("nodefs.inodesFree", "5%")], scene);
    bench.until(1).await;
    assert!(!bench.log().iter().any(|(_, call)| call == "reclaim"), "{:?}", bench.log());
    assert_eq!(bench.evicted(), ["a"]);
}

/// Known fault E2: the rule of it.
#[tokio::test(start_paused = true)]
async fn pods_over_their_own_limits_all_go_and_others_are_not_even_measured() {
    let sized = |uid: &str| StatsView {
        limited_volumes: vec![StatsVolume { name: "d".to_owned(), size_limit: "5Mi".to_owned() }],
        ..view(uid, 0)
    };
    let scene = Scene {
        pods: pods([
            view("free", 0),
            sized("a"),
            sized("b"),
            sized("under"),
            StatsView { critical: true, ..sized("static") },
        ]),
        disks: ["free", "a", "b", "under", "static"]
            .map(|uid| (uid.to_owned(), disk(0, if uid == "under" { MI } else { 20 * MI })))
            .into(),
        ..Scene::default()
    };
    let bench = Bench::start(&[("memory.available", "100Mi")], scene);
    bench.until(1).await;
    let expected = [r#"disks of ["a", "b", "under"]"#, "evict a", "evict b"];
    assert_eq!(bench.log().into_iter().map(|(_, call)| call).collect::<Vec<_>>(), expected);
    let orders = bench.world.scene().orders.clone();
    let message = "Usage of EmptyDir volume \"d\" exceeds the limit \"5Mi\". ";
    assert!(
        orders.iter().all(|order| order.message == message && !order.disruption && order.grace_seconds == 1)
    );
    assert_eq!(bench.counted(), [("emptydirfs.limit".to_owned(), 2.0)]);
    bench.until(20).await;
    assert_eq!(bench.evicted(), ["a", "b"]);
    bench.world.scene().disks.clear();
    bench.until(30).await;
    assert_eq!(bench.evicted().len(), 2, "what is not measured exceeds nothing");
}

#[tokio::test(start_paused = true)]
async fn a_limit_of_storage_needs_the_layers() {
    let mut limited = view("a", 0);
    limited.ephemeral_limit = "5Mi".to_owned();
    limited.containers[0].ephemeral_limit = "5Mi".to_owned();
    let scene = Scene {
        pods: pods([limited]),
        disks: [("a".to_owned(), disk(6 * MI, 0))].into(),
        ..Scene::default()
    };
    let bench = Bench::start(&[], scene);
    bench.until(1).await;
    assert_eq!(bench.log()[0].1, r#"disks of ["a"] with layers"#);
    let message = "Pod ephemeral local storage usage exceeds the total limit of containers 5Mi. ";
    assert_eq!(bench.world.scene().orders[0].message, message);
}

/// Known fault E1.
#[tokio::test(start_paused = true)]
async fn signals_that_are_switched_off_evict_nobody() {
    for (signal, text, seen) in [
        ("memory.available", "0%", memory(0)),
        ("nodefs.available", "100%", seen(Signal::NodefsAvailable, 0, 1)),
    ] {
        let scene = Scene {
            seen,
            pods: pods([view("a", 0)]),
            figures: vec![figures("a", 400 * MI)],
            disks: [("a".to_owned(), disk(6 * MI, 0))].into(),
            ..Scene::default()
        };
        let bench = Bench::start(&[(signal, text)], scene);
        bench.until(120).await;
        assert_eq!((bench.log(), bench.pressures()), (vec![], vec![]), "{signal} {text}");
    }
}
