//! Keeps the running probes as the plan wants them, and the results as the probes say.
//!
//! Owns the workers and all state; everything happens in one task, one event at a time: a pod changed at syncd, a pod
//! changed at pleg, a probe answered. There is nothing to look for in between, so it is no interval loop. Must never take
//! the silence of a peer for a change.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bulkhead_api::convert::ProbeItem;
use bulkhead_base::Clock;
use bulkhead_ipc::table::Since;
use bulkhead_ipc::{Mirror, trace, traced};
use bulkhead_model::event;
use bulkhead_model::probe::ProbeKind;
use bulkhead_model::runtime::RuntimePod;
use bulkhead_model::spec::ContainerKind;
use bulkhead_service::Recorder;
use jiff::Timestamp;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::container::Probes;
use crate::counts::{Counts, Probed};
use crate::handlers::Handlers;
use crate::lanes::{Lanes, PodLane};
use crate::plan::{self, Job, Planned};
use crate::results::{Known, Results, Subject};
use crate::schedule::{Spread, lasted};
use crate::worker::{Answer, Surroundings, Worker};

/// Answers on their way. A full channel makes workers wait, which only delays their next run.
const ANSWERS: usize = 64;

/// What others say.
#[derive(Clone)]
pub struct Inputs {
    /// From syncd, by pod UID.
    pub views: Mirror<String, ProbeItem>,
    /// From pleg, by pod UID.
    pub pods: Mirror<String, RuntimePod>,
}

/// What the keeper works with.
pub struct Tools<H> {
    /// Runs probes.
    pub handlers: H,
    /// For the time since a container's start.
    pub clock: Arc<dyn Clock>,
    /// Spreads first runs.
    pub spread: Spread,
    /// Bounds what runs at once.
    pub lanes: Lanes,
}

/// The loop.
pub struct Keeper<H> {
    inputs: Inputs,
    clock: Arc<dyn Clock>,
    spread: Spread,
    surroundings: Surroundings<H>,
    answers: mpsc::Receiver<Answer>,
    results: Results,
    /// What an earlier life decided; empty after the first whole look.
    known: Known,
    pods: BTreeMap<String, Pod>,
    counts: Option<Counts>,
    events: Option<Recorder>,
}

#[derive(Default)]
struct Pod {
    lane: PodLane,
    /// By container id.
    containers: BTreeMap<String, Kept>,
}

struct Kept {
    name: String,
    kind: ContainerKind,
    running: bool,
    probes: Probes,
    workers: BTreeMap<ProbeKind, Worker>,
    /// How long the container had run when that was first asked, and when that was: its date counts once, for the clock may
    /// jump.
    ran: Option<(Duration, Instant)>,
}

impl<H: Handlers> Keeper<H> {
    /// With nothing running yet.
    pub fn new(inputs: Inputs, tools: Tools<H>, results: Results) -> Self {
        let Tools { handlers, clock, spread, lanes } = tools;
        let (sender, answers) = mpsc::channel(ANSWERS);
        let known = results.known().borrow().clone();
        let surroundings = Surroundings { handlers, lanes, answers: sender };
        Self {
            inputs,
            clock,
            spread,
            surroundings,
            answers,
            results,
            known,
            pods: BTreeMap::new(),
            counts: None,
            events: None,
        }
    }

    /// Counts answers there.
    pub fn counting(self, counts: Counts) -> Self {
        Self { counts: Some(counts), ..self }
    }

    /// Tells there what does not go well.
    pub fn telling(self, events: Recorder) -> Self {
        Self { events: Some(events), ..self }
    }

    /// Works until `shutdown`, then ends all workers.
    pub async fn run(self, shutdown: CancellationToken) {
        shutdown.run_until_cancelled(self.work()).await;
    }

    async fn work(mut self) {
        let mut views = self.inputs.views.changes();
        let mut pods = self.inputs.pods.changes();
        // Only both together say what exists; which of them comes first does not matter.
        tokio::join!(views.next(), pods.next());
        for uid in self.inputs.views.snapshot().keys() {
            self.look(uid);
        }
        let existing: BTreeSet<_> =
            self.pods.values().flat_map(|pod| pod.containers.keys().cloned()).collect();
        self.results.open(&existing);
        self.known.clear();
        loop {
            // All arms are cancel-safe: what loses the race is told again.
            tokio::select! {
                since = views.next() => self.look_at_changes(since),
                since = pods.next() => self.look_at_changes(since),
                Some(answer) = self.answers.recv() => self.take(&answer),
            }
        }
    }

    fn look_at_changes<V>(&mut self, since: Since<String, V>) {
        let mut changed: BTreeSet<String> = since.removed.into_iter().collect();
        changed.extend(since.upserts.into_iter().map(|(uid, _)| uid));
        if since.full {
            changed.extend(self.pods.keys().cloned());
        }
        for uid in changed {
            self.look(&uid);
        }
    }

    /// Makes one pod's workers and results what they should be.
    fn look(&mut self, uid: &str) {
        let uid = uid.to_owned();
        let item = self.inputs.views.get(&uid);
        let runtime = self.inputs.pods.get(&uid);
        let planned = match (&item, &runtime) {
            (Some(item), Some(runtime)) => plan::containers(item, runtime),
            _ => Vec::new(),
        };
        let mut pod = self.pods.remove(&uid).unwrap_or_default();
        pod.containers.retain(|id, _| {
            let stays = planned.iter().any(|planned| planned.container.id == *id);
            if !stays {
                self.results.forget(id);
            }
            stays
        });
        let stage = item.as_ref().map(|item| item.stage).unwrap_or_default();
        for planned in &planned {
            let id = &planned.container.id;
            let kept = pod.containers.entry(id.clone()).or_insert_with(|| Kept {
                name: planned.probed.name.clone(),
                kind: planned.probed.kind,
                running: false,
                probes: Probes::new(planned.probed, id, self.known.get(id).copied()),
                workers: BTreeMap::new(),
                ran: None,
            });
            kept.probes.adopt(planned.probed, id);
            kept.running = planned.container.may_run();
            let jobs = plan::jobs(planned, stage, &kept.probes);
            kept.workers.retain(|kind, _| jobs.iter().any(|job| job.spec.kind == *kind));
            for job in jobs {
                match kept.workers.get(&job.spec.kind) {
                    Some(worker) => worker.give(job),
                    None => {
                        let running_for = kept.running_for(planned, || self.clock.now());
                        let first = self.first_wait(running_for, &job, &kept.probes);
                        let kind = job.spec.kind;
                        let surroundings = self.surroundings.clone();
                        let worker = Worker::start(surroundings, uid.clone(), pod.lane.clone(), job, first);
                        kept.workers.insert(kind, worker);
                    }
                }
            }
            self.results.tell(kept.subject(&uid, id), &kept.probes);
        }
        if !pod.containers.is_empty() {
            self.pods.insert(uid, pod);
        } else if let Some(counts) = &mut self.counts {
            counts.forget(&uid);
        }
    }

    fn first_wait(&self, running_for: Duration, job: &Job, probes: &Probes) -> Duration {
        let decided = probes.state(job.spec.kind).is_some_and(|state| state.settled().is_some());
        self.spread.first(&job.spec, &job.container_id, running_for, decided)
    }

    fn take(&mut self, answer: &Answer) {
        let Answer { pod_uid, container_id, kind, report, took } = answer;
        let kept = self.pods.get_mut(pod_uid).and_then(|pod| pod.containers.get_mut(container_id));
        let Some(kept) = kept else { return };
        // An answer of a worker that was ended meanwhile is not wanted any more: the pod may be terminating.
        if !kept.workers.contains_key(kind) {
            return;
        }
        if let (Some(counts), Some(pod)) = (&mut self.counts, self.inputs.pods.get(pod_uid)) {
            let (uid, namespace, name) = (pod_uid.as_str(), pod.namespace.as_str(), pod.name.as_str());
            let probed = Probed { uid, namespace, name, container: &kept.name, kind: *kind };
            counts.count(probed, report.outcome, *took);
        }
        if let (Some(events), Some(event), Some(pod)) =
            (&self.events, report.event(*kind), self.inputs.views.get(pod_uid))
        {
            let (namespace, name) = (pod.view.namespace.clone(), pod.view.name.clone());
            let field_path = event::field_path(kept.kind, &kept.name);
            let subject = bulkhead_service::Subject { uid: pod_uid.clone(), namespace, name, field_path };
            events.pod(&subject, event);
        }
        let recorded = kept.probes.record(*kind, report);
        if recorded.first_ready {
            let item = self.inputs.views.get(pod_uid);
            trace_ready(pod_uid, &kept.name, item.as_ref().map_or("", |item| &item.traceparent));
        }
        if recorded.changed {
            tracing::info!(pod = pod_uid, container = kept.name, id = container_id, probe = kind.as_str(),
                outcome = ?report.outcome, "probe decided");
            // Gates may open and probes may be over.
            self.look(pod_uid);
        } else {
            self.results.tell(kept.subject(pod_uid, container_id), &kept.probes);
        }
    }
}

impl Kept {
    /// How long its container has run.
    fn running_for(&mut self, planned: &Planned<'_>, now: impl Fn() -> Timestamp) -> Duration {
        let Some(started_at) = planned.container.started_at else { return Duration::ZERO };
        let first = || (lasted(started_at, now()), Instant::now());
        let (ran, at) = *self.ran.get_or_insert_with(first);
        ran.saturating_add(at.elapsed())
    }

    fn subject<'a>(&'a self, pod_uid: &'a str, id: &'a str) -> Subject<'a> {
        Subject { pod_uid, name: &self.name, id, running: self.running }
    }
}

/// Marks, in the trace of the pod's start, the moment in which a container became ready.
fn trace_ready(uid: &str, container: &str, traceparent: &str) {
    if traceparent.is_empty() {
        return;
    }
    let name = format!("prober ready {container}");
    let span = traced!("prober ready", otel.name = name, pod.uid = uid, container.name = container);
    trace::set_parent(&span, traceparent);
    span.in_scope(|| ());
}

#[cfg(test)]
mod tests;
