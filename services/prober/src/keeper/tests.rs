//! The loop with a paused clock, mirrors fed by hand, and probes that answer what they are told.

use std::collections::VecDeque;
use std::sync::Mutex;

use bulkhead_api::common::v1::Part;
use bulkhead_api::prober::v1::{ContainerResult, Health};
use bulkhead_base::FakeClock;
use bulkhead_ipc::{Publisher, Update};
use bulkhead_model::decision::Stage;
use bulkhead_model::probe::ProbeKind::{Liveness, Readiness, Startup};
use bulkhead_model::probe::ProbeSpec;
use bulkhead_model::runtime::ContainerState::{self, Exited, Running};
use bulkhead_reconcile::wake;
use tokio::time::{Instant, sleep, timeout};

use super::*;
use crate::container::Decided;
use crate::report::Report;
use crate::testing::{START, exec_spec, item, runtime_pod};

/// Longer than any first spread of a probe that is waited for.
const SPREAD: Duration = Duration::from_millis(501);

#[derive(Clone)]
struct Scripted {
    script: Arc<Mutex<Script>>,
    runs: mpsc::UnboundedSender<Run>,
    begin: Instant,
}

#[derive(Default)]
struct Script {
    /// Answers to come, by container id and kind: what is left when they are used up is the last one.
    answers: BTreeMap<(String, ProbeKind), VecDeque<Report>>,
    takes: Duration,
}

#[derive(Clone, Debug, PartialEq)]
struct Run {
    id: String,
    kind: ProbeKind,
    /// Since the bench was made.
    at: Duration,
}

impl Handlers for Scripted {
    async fn run(&self, job: &Job) -> Report {
        let kind = job.spec.kind;
        let run = Run { id: job.container_id.clone(), kind, at: self.begin.elapsed() };
        let (report, takes) = {
            let mut script = self.script.lock().unwrap();
            let answers = script.answers.entry((job.container_id.clone(), kind)).or_default();
            let report = if answers.len() > 1 { answers.pop_front() } else { answers.front().cloned() };
            (report.unwrap_or_else(Report::success), script.takes)
        };
        self.runs.send(run).unwrap();
        sleep(takes).await;
        report
    }
}

struct Bench {
    inputs: Inputs,
    publisher: Publisher<String, ContainerResult>,
    known: tokio::sync::watch::Receiver<Known>,
    script: Arc<Mutex<Script>>,
    runs: mpsc::UnboundedReceiver<Run>,
    stop: CancellationToken,
    generation: u64,
    clock: FakeClock,
}

impl Bench {
    fn new(known: Known) -> Self {
        let (bench, keeper) = Self::idle(known);
        tokio::spawn(keeper.run(bench.stop.clone()));
        bench
    }

    /// With a keeper that does nothing by itself.
    fn idle(known: Known) -> (Self, Keeper<Scripted>) {
        let inputs = Inputs { views: Mirror::detached(), pods: Mirror::detached() };
        let (script, stop) = (Arc::new(Mutex::new(Script::default())), CancellationToken::new());
        let (sender, runs) = mpsc::unbounded_channel();
        let publisher = Publisher::new(stop.clone());
        let clock = FakeClock::new(START);
        let results = Results::new(publisher.clone(), known, wake().0);
        let tools = Tools {
            handlers: Scripted { script: script.clone(), runs: sender, begin: Instant::now() },
            clock: Arc::new(clock.clone()),
            spread: Spread::seeded(7),
            lanes: Lanes::default(),
        };
        let known = results.known();
        let keeper = Keeper::new(inputs.clone(), tools, results);
        (Self { inputs, publisher, known, script, runs, stop, generation: 0, clock }, keeper)
    }

    /// With one pod "u" that has one running container "a" with id "1".
    fn with(probes: Vec<ProbeSpec>, known: Known) -> Self {
        let mut bench = Self::new(known);
        bench.view(Part::SnapshotEnd, item("u", "a", probes));
        bench.pod(Part::SnapshotEnd, &[("a", "1", Running)]);
        bench
    }

    fn view(&mut self, part: Part, item: ProbeItem) {
        let upserts = vec![(item.view.uid.clone(), item)];
        let generation = self.next();
        self.inputs.views.apply(Update { epoch: "e".into(), generation, part, upserts, removed: vec![] });
    }

    fn pod(&mut self, part: Part, containers: &[(&str, &str, ContainerState)]) {
        let upserts = vec![("u".to_owned(), runtime_pod("u", containers))];
        let generation = self.next();
        self.inputs.pods.apply(Update { epoch: "e".into(), generation, part, upserts, removed: vec![] });
    }

    fn next(&mut self) -> u64 {
        self.generation += 1;
        self.generation
    }

    fn answer(&self, id: &str, kind: ProbeKind, reports: impl IntoIterator<Item = Report>) {
        let mut script = self.script.lock().unwrap();
        script.answers.insert((id.to_owned(), kind), reports.into_iter().collect());
    }

    /// Lets this much time pass and all tasks settle.
    async fn pass(&mut self, time: Duration) {
        sleep(time).await;
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
    }

    /// The runs until now, by kind, and forgets them.
    fn ran(&mut self) -> Vec<ProbeKind> {
        std::iter::from_fn(|| self.runs.try_recv().ok()).map(|run| run.kind).collect()
    }

    async fn next_run(&mut self) -> Run {
        timeout(Duration::from_secs(1000), self.runs.recv()).await.expect("a run").expect("a keeper")
    }

    fn result(&self, id: &str) -> Option<ContainerResult> {
        self.publisher.get(&id.to_owned()).map(|result| (*result).clone())
    }

    fn state(&self, id: &str) -> (Option<bool>, Option<bool>, Health) {
        let result = self.result(id).expect("a result");
        (result.started, result.ready, result.health())
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

fn no(text: &str) -> Report {
    Report::failure(text)
}

const YES: Option<bool> = Some(true);
const NO: Option<bool> = Some(false);

#[tokio::test(start_paused = true)]
async fn nothing_is_told_before_both_peers_have_spoken() {
    let known = Known::from([("1".to_owned(), Decided { readiness: Some(true), ..Decided::default() })]);
    let mut bench = Bench::new(known.clone());
    bench.view(Part::SnapshotEnd, item("u", "a", vec![exec_spec(Readiness)]));
    bench.pass(Duration::from_secs(60)).await;
    assert!(!bench.publisher.is_open() && bench.ran().is_empty());
    assert_eq!(*bench.known.borrow(), known, "what is known is kept meanwhile");
    bench.pod(Part::SnapshotEnd, &[("a", "1", Running)]);
    bench.pass(Duration::ZERO).await;
    assert!(bench.publisher.is_open());
    assert_eq!(bench.state("1"), (YES, YES, Health::Live), "and told at once");
}

#[tokio::test(start_paused = true)]
async fn probes_run_at_their_period_and_flip_at_their_threshold() {
    let mut bench = Bench::with(vec![exec_spec(Readiness)], Known::new());
    bench.answer("1", Readiness, [Report::success(), no("a"), no("b"), no("c")]);
    let first = bench.next_run().await.at;
    assert!(first < SPREAD, "{first:?}");
    bench.pass(Duration::ZERO).await;
    assert_eq!(bench.state("1"), (YES, YES, Health::Live));
    for round in 1..=3_u32 {
        bench.pass(Duration::from_millis(9_999)).await;
        assert_eq!(bench.ran(), [], "just before the period");
        bench.pass(Duration::from_millis(1)).await;
        assert_eq!(bench.ran(), [Readiness], "just after it");
        let ready = if round < 3 { YES } else { NO };
        assert_eq!(bench.state("1").1, ready, "after {round} failures");
    }
    assert_eq!(bench.result("1").unwrap().message, "Readiness probe failed: c");
}

#[tokio::test(start_paused = true)]
async fn the_initial_delay_is_waited_for() {
    let spec = ProbeSpec { initial_delay: Duration::from_secs(30), ..exec_spec(Startup) };
    let mut bench = Bench::with(vec![spec], Known::new());
    let first = bench.next_run().await.at;
    assert!((Duration::from_secs(30)..Duration::from_secs(30) + SPREAD).contains(&first), "{first:?}");
}

#[tokio::test(start_paused = true)]
async fn liveness_and_readiness_wait_for_the_startup_probe() {
    let mut bench = Bench::with(ProbeKind::ALL.map(exec_spec).to_vec(), Known::new());
    bench.answer("1", Startup, [no("not yet"), no("not yet"), Report::success()]);
    bench.pass(SPREAD + Duration::from_secs(10)).await;
    assert_eq!(bench.ran(), [Startup, Startup]);
    assert_eq!(bench.state("1"), (None, None, Health::Live));
    bench.pass(Duration::from_secs(10)).await;
    assert_eq!(bench.state("1").0, YES);
    bench.pass(SPREAD).await;
    assert_eq!(bench.state("1"), (YES, YES, Health::Live));
    bench.pass(Duration::from_secs(30)).await;
    let ran = bench.ran();
    assert_eq!(
        ran.iter().filter(|kind| **kind == Startup).count(),
        1,
        "it is over with its success: {ran:?}"
    );
    assert!(ran.contains(&Liveness) && ran.contains(&Readiness), "{ran:?}");
}

#[tokio::test(start_paused = true)]
async fn a_failed_startup_or_liveness_is_told_and_held() {
    let spec = |kind| ProbeSpec { failure_threshold: 2, ..exec_spec(kind) };
    for (kind, health) in [(Startup, Health::StartupFailed), (Liveness, Health::LivenessFailed)] {
        let mut bench = Bench::with(vec![spec(kind), spec(Readiness)], Known::new());
        bench.answer("1", kind, [no("1"), no("2"), Report::success()]);
        bench.pass(Duration::from_secs(21)).await;
        assert_eq!(bench.state("1").2, health);
        assert!(bench.result("1").unwrap().message.ends_with("probe failed: 2"));
        bench.ran();
        bench.pass(Duration::from_secs(60)).await;
        assert!(!bench.ran().contains(&kind), "more answers of a dying container mean nothing");
        assert_eq!(bench.state("1").2, health);
    }
}

#[tokio::test(start_paused = true)]
async fn a_new_container_starts_afresh() {
    let spec = ProbeSpec { failure_threshold: 2, ..exec_spec(Liveness) };
    let mut bench = Bench::with(vec![spec, exec_spec(Readiness)], Known::new());
    bench.answer("1", Liveness, [no("1"), no("2")]);
    bench.pass(Duration::from_secs(21)).await;
    assert_eq!(bench.state("1"), (YES, YES, Health::LivenessFailed));
    bench.pod(Part::Delta, &[("a", "1", Exited)]);
    bench.pass(Duration::ZERO).await;
    bench.ran();
    assert_eq!(bench.state("1"), (NO, NO, Health::Live), "what ended is neither started nor ready");
    bench.pass(Duration::from_secs(60)).await;
    assert_eq!(bench.ran(), [], "and is not probed");
    assert_eq!(*bench.known.borrow(), Known::new());

    bench.answer("2", Readiness, [Report::unknown("?"), Report::success()]);
    bench.pod(Part::Delta, &[("a", "2", Running), ("a", "1", Exited)]);
    bench.pass(Duration::ZERO).await;
    assert_eq!(bench.result("1"), None);
    bench.pass(SPREAD).await;
    assert_eq!(bench.state("2"), (YES, None, Health::Live), "an answer that is unknown decides nothing");
    bench.pass(Duration::from_secs(10)).await;
    assert_eq!(bench.state("2"), (YES, YES, Health::Live));
}

#[tokio::test(start_paused = true)]
async fn only_readiness_goes_on_while_a_pod_terminates() {
    let mut bench = Bench::with(vec![exec_spec(Liveness), exec_spec(Readiness)], Known::new());
    bench.pass(Duration::from_secs(11)).await;
    assert!(bench.ran().contains(&Liveness));
    let mut ending = item("u", "a", vec![exec_spec(Liveness), exec_spec(Readiness)]);
    ending.stage = Stage::Terminating;
    bench.view(Part::Delta, ending);
    bench.answer("1", Liveness, [no("")]);
    bench.answer("1", Readiness, [no("going")]);
    bench.pass(Duration::from_secs(60)).await;
    let ran = bench.ran();
    assert!(ran.len() == 6 && ran.iter().all(|kind| *kind == Readiness), "{ran:?}");
    assert_eq!(bench.state("1"), (YES, NO, Health::Live));
}

#[tokio::test(start_paused = true)]
async fn an_answer_on_its_way_does_not_count_once_its_probe_is_over() {
    let spec = ProbeSpec { failure_threshold: 1, ..exec_spec(Liveness) };
    for (stage, health) in [(Stage::Syncing, Health::LivenessFailed), (Stage::Terminating, Health::Live)] {
        let (mut bench, mut keeper) = Bench::idle(Known::new());
        bench.view(Part::SnapshotEnd, ProbeItem { stage, ..item("u", "a", vec![spec.clone()]) });
        bench.pod(Part::SnapshotEnd, &[("a", "1", Running)]);
        keeper.look("u");
        let (pod_uid, container_id) = ("u".to_owned(), "1".to_owned());
        keeper.take(&Answer {
            pod_uid,
            container_id,
            kind: Liveness,
            report: no("late"),
            took: Duration::ZERO,
        });
        assert_eq!(bench.state("1").2, health, "{stage:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_gone_from_either_peer_is_forgotten() {
    for from_syncd in [true, false] {
        let mut bench = Bench::with(vec![exec_spec(Readiness)], Known::new());
        bench.pass(SPREAD).await;
        assert!(!bench.known.borrow().is_empty());
        let removed = vec!["u".to_owned()];
        let (epoch, generation, part) = ("e".to_owned(), bench.next(), Part::Delta);
        if from_syncd {
            bench.inputs.views.apply(Update { epoch, generation, part, upserts: vec![], removed });
        } else {
            bench.inputs.pods.apply(Update { epoch, generation, part, upserts: vec![], removed });
        }
        bench.pass(Duration::ZERO).await;
        assert_eq!(bench.result("1"), None);
        assert!(bench.known.borrow().is_empty());
        bench.ran();
        bench.pass(Duration::from_secs(60)).await;
        assert_eq!(bench.ran(), []);
    }
}

#[tokio::test(start_paused = true)]
async fn a_peers_new_life_changes_nothing_by_itself() {
    let mut bench = Bench::with(vec![exec_spec(Readiness)], Known::new());
    bench.pass(SPREAD).await;
    bench.ran();
    // A whole snapshot with the same content, and one that grew by a container without probes.
    bench.view(Part::SnapshotEnd, item("u", "a", vec![exec_spec(Readiness)]));
    bench.pod(Part::SnapshotEnd, &[("b", "9", Running), ("a", "1", Running)]);
    bench.pass(Duration::from_secs(10)).await;
    assert_eq!(bench.ran(), [Readiness], "the probe keeps its beat");
    assert_eq!(bench.state("1"), (YES, YES, Health::Live));
}

#[tokio::test(start_paused = true)]
async fn a_restart_keeps_results_until_probes_say_otherwise() {
    let decided = |startup, liveness, readiness| Decided { startup, liveness, readiness };
    let specs: Vec<_> = ProbeKind::ALL.map(exec_spec).to_vec();
    for (known, expected) in [
        (decided(YES, None, YES), (YES, YES, Health::Live)),
        (decided(YES, YES, NO), (YES, NO, Health::Live)),
        (decided(YES, NO, YES), (YES, YES, Health::LivenessFailed)),
        (decided(NO, None, None), (NO, NO, Health::StartupFailed)),
        (decided(YES, None, None), (YES, None, Health::Live)),
    ] {
        let stale = decided(YES, None, None);
        let file = Known::from([("1".to_owned(), known), ("gone".to_owned(), stale)]);
        let mut bench = Bench::with(specs.clone(), file);
        bench.answer("1", Readiness, [no("x")]);
        bench.pass(Duration::ZERO).await;
        assert_eq!(bench.state("1"), expected, "{known:?}");
        assert_eq!(*bench.known.borrow(), Known::from([("1".to_owned(), known)]), "of what exists");
        if known.readiness == YES && known.startup == YES {
            // Three failures at a period of 10 s: not before 20 s, at the latest after 30 s.
            bench.pass(Duration::from_secs(19)).await;
            assert_eq!(bench.state("1").1, YES, "{known:?}");
            bench.pass(Duration::from_secs(12)).await;
            assert_eq!(bench.state("1").1, NO, "{known:?}");
            assert!(!bench.ran().contains(&Startup), "it has passed");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_probe_that_takes_long_never_overlaps_itself() {
    let mut bench = Bench::with(vec![exec_spec(Readiness)], Known::new());
    bench.script.lock().unwrap().takes = Duration::from_secs(25);
    let first = bench.next_run().await.at;
    for n in 1..4 {
        assert_eq!(bench.next_run().await.at, first + Duration::from_secs(25) * n);
    }
}

#[tokio::test(start_paused = true)]
async fn a_probe_that_waits_for_an_address_runs_as_soon_as_it_has_one() {
    use bulkhead_model::probe::Handler;
    let spec = ProbeSpec { handler: Handler::Tcp { host: None, port: 1 }, ..exec_spec(Readiness) };
    let mut bench = Bench::new(Known::new());
    bench.view(Part::SnapshotEnd, item("u", "a", vec![spec]));
    let mut pod = runtime_pod("u", &[("a", "1", Running)]);
    pod.sandboxes[0].ips.clear();
    let upserts = vec![("u".to_owned(), pod)];
    let part = Part::SnapshotEnd;
    bench.inputs.pods.apply(Update { epoch: "e".into(), generation: 1, part, upserts, removed: vec![] });
    bench.pass(Duration::from_secs(33)).await;
    assert_eq!(bench.ran(), []);
    assert_eq!(bench.state("1"), (YES, None, Health::Live));
    bench.pod(Part::Delta, &[("a", "1", Running)]);
    bench.pass(SPREAD).await;
    assert_eq!(bench.ran(), [Readiness]);
}

#[tokio::test(start_paused = true)]
async fn the_first_readiness_stands_in_the_trace_of_the_pods_start() {
    use bulkhead_api::process::v1::ListSpansRequest;
    use bulkhead_ipc::spans::SpanRing;
    use opentelemetry::trace::TracerProvider as _;
    use tracing_subscriber::layer::SubscriberExt as _;

    let ring = SpanRing::default();
    let provider =
        opentelemetry_sdk::trace::SdkTracerProvider::builder().with_span_processor(ring.clone()).build();
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("test"));
    let _guard = tracing::subscriber::set_default(tracing_subscriber::registry().with(layer));

    let mut bench = Bench::new(Known::new());
    let spec = ProbeSpec { failure_threshold: 1, ..exec_spec(Readiness) };
    let traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".to_owned();
    bench.view(Part::SnapshotEnd, ProbeItem { traceparent, ..item("u", "a", vec![spec]) });
    bench.pod(Part::SnapshotEnd, &[("a", "1", Running)]);
    bench.answer("1", Readiness, [no(""), Report::success(), no(""), Report::success()]);
    bench.pass(Duration::from_secs(60)).await;
    let trace_id = "0af7651916cd43dd8448eb211c80319c".to_owned();
    let spans = ring.list(&ListSpansRequest { trace_id, pod_uid: String::new() });
    let seen: Vec<_> = spans.iter().map(|span| (span.name.as_str(), span.parent_span_id.as_str())).collect();
    assert_eq!(seen, [("prober ready a", "b7ad6b7169203331")]);
    assert_eq!(spans[0].attributes.get("pod.uid").map(String::as_str), Some("u"));
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_jumps_makes_no_probe_early_or_late() {
    let hour = jiff::SignedDuration::from_hours(1);
    for jump in [hour, -hour] {
        let startup = ProbeSpec { period: Duration::from_secs(20), ..exec_spec(Startup) };
        let live = ProbeSpec { initial_delay: Duration::from_secs(60), ..exec_spec(Liveness) };
        let mut bench = Bench::with(vec![startup, live], Known::new());
        bench.answer("1", Startup, [Report::failure("not yet"), Report::success()]);
        assert_eq!(bench.next_run().await.kind, Startup);
        bench.clock.set(START + jump);
        assert_eq!(bench.next_run().await.kind, Startup);
        let first = bench.next_run().await;
        assert_eq!(first.kind, Liveness);
        let at = first.at.as_secs();
        assert!((60..=70).contains(&at), "{jump}: {at} s after the start, and at most one period");
        bench.stop.cancel();
    }
}

/// As after SIGSTOP: the answer came long after its time, because nobody was there to take it.
#[tokio::test(start_paused = true)]
async fn a_failure_that_comes_too_late_is_checked_again() {
    for (second, health) in
        [(Report::success(), Health::Live), (Report::failure("hangs"), Health::LivenessFailed)]
    {
        let live = ProbeSpec { failure_threshold: 1, ..exec_spec(Liveness) };
        let mut bench = Bench::with(vec![live], Known::new());
        bench.script.lock().unwrap().takes = Duration::from_secs(60);
        bench.answer("1", Liveness, [Report::failure("no answer"), second, Report::success()]);
        bench.next_run().await;
        bench.next_run().await;
        assert_eq!(bench.state("1").2, Health::Live);
        bench.pass(Duration::from_secs(61)).await;
        assert_eq!(bench.state("1").2, health);
        bench.stop.cancel();
    }
    // One that comes in time is not.
    let live = ProbeSpec { failure_threshold: 1, ..exec_spec(Liveness) };
    let mut bench = Bench::with(vec![live], Known::new());
    bench.script.lock().unwrap().takes = Duration::from_secs(1);
    bench.answer("1", Liveness, [Report::failure("hangs"), Report::success()]);
    bench.next_run().await;
    bench.pass(Duration::from_secs(1)).await;
    assert_eq!(bench.state("1").2, Health::LivenessFailed);
}
