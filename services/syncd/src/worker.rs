//! One pod's worker: a task that brings the runtime to what the pod asks for, and in the end to nothing.
//!
//! Owns everything that happens to one pod, one step after another, so nothing about a pod can race. It looks at pleg's
//! stream for free, but never acts on that: before acting it reads the pod from the runtime, newer than its own last action.

mod backoff;
mod ephemeral;
pub mod events;
mod hooks;
mod messages;
mod prune;
mod release;
mod resize;
mod start;
mod sync;
mod terminate;
mod volumes;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bulkhead_api::convert::probe_results_from_wire;
use bulkhead_api::evictd::v1::NodePressure;
use bulkhead_api::prober::v1::ContainerResult;
use bulkhead_base::{Backoff, Clock, CrashBackoff, chain};
use bulkhead_cgroup::{CgroupManager, PodCgroup, PodUid};
use bulkhead_cri::RunClient;
use bulkhead_ipc::said::Said;
use bulkhead_ipc::{Mirror, trace};
use bulkhead_model::decision::{Decision, Stage, Waiting};
use bulkhead_model::hash::container_hash;
use bulkhead_model::probe::ProbeResults;
use bulkhead_model::resize::Allocation;
use bulkhead_model::runtime::RuntimePod;
use bulkhead_model::runtime_features::RuntimeFeatures;
use bulkhead_model::{names, spec};
use bulkhead_reconcile::{Wake, Waker, at, wake};
use bulkhead_service::Recorder;
use k8s_openapi::api::core::v1::Pod;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::Instant;
use tracing::Instrument;

use crate::classes::RuntimeClasses;
use crate::config::Settings;
use crate::environment::{Environment, Kept};
use crate::error::PodError;
use crate::folders::{Folders, qos_tier};
use crate::identity::Identity;
use crate::measures::{Measures, Pass};
use crate::peers::Peers;
use crate::state::{Failure, PodRecord, Records};
use crate::views::{Published, Views};

/// First back-off of a container that ended (the kubelet's).
const FIRST_BACKOFF: Duration = Duration::from_secs(10);
/// First and longest wait after a pass that failed: not long, so that all is well soon after a runtime came back.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(6));
/// How often the same failure is said again.
const SAY_AGAIN: Duration = Duration::from_secs(60);

/// What all workers share.
pub struct Deps {
    /// Settings of the process.
    pub settings: Settings,
    /// The runtime, through crigate.
    pub runtime: RunClient,
    /// Other processes.
    pub peers: Peers,
    /// Runtime classes.
    pub classes: RuntimeClasses,
    /// What variables are made of.
    pub environment: Environment,
    /// What pleg saw.
    pub runtime_pods: Mirror<String, RuntimePod>,
    /// What prober found.
    pub probes: Mirror<String, ContainerResult>,
    /// Pressures that evictd sees the node under. Until it told any there is none.
    pub pressures: Mirror<String, NodePressure>,
    /// What is published.
    pub views: Views,
    /// What survives a restart.
    pub records: Records,
    /// Pod cgroups.
    pub cgroups: Arc<CgroupManager>,
    /// What is counted.
    pub measures: Measures,
    /// Tells the cluster what happens to pods.
    pub events: Recorder,
    /// The wall clock.
    pub clock: Arc<dyn Clock>,
    /// Whoever takes a pod, or more of the node for one, holds it: two must not take the same room.
    pub room: Mutex<()>,
    /// Told when what pods ask for together has changed.
    pub resized: Notify,
    /// Bounds pods that start at once. First come, first served.
    pub starts: Arc<Semaphore>,
    /// Bounds pods that stop at once.
    pub stops: Arc<Semaphore>,
}

/// What a worker is to do.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// The pod as it is asked for.
    pub pod: Arc<Pod>,
    /// What for.
    pub goal: Goal,
}

/// What a worker's pod is to come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goal {
    /// It is asked for: it runs or, while it is being deleted, is stopped and kept for statusd to report.
    Run,
    /// Nobody asks for it any more: nothing of it stays.
    End,
}

/// A worker as the manager holds it.
#[derive(Debug)]
pub struct Handle {
    /// Namespace and name: only one worker at a time may have them.
    pub full_name: (String, String),
    /// What is wanted.
    pub control: watch::Sender<Wanted>,
    /// Asks for a look.
    pub waker: Waker,
}

/// One pod's worker.
pub struct Worker {
    uid: String,
    /// The pod with the resources that were accepted.
    pod: Arc<Pod>,
    /// The pod as it is asked for. The same as `pod` unless its resources are to change.
    asked: Arc<Pod>,
    /// Why a change of resources that was accepted is not made.
    resize_error: Option<String>,
    cgroup: PodCgroup,
    folders: Folders,
    decision: Decision,
    /// What others were told last.
    published: Option<(Arc<Pod>, Decision)>,
    /// Something was done since the runtime was last read for this pod.
    acted: bool,
    backoff: CrashBackoff,
    /// By container: when it ended by its own date, and when that was here. The second does not jump with the clock.
    ends: BTreeMap<String, (jiff::Timestamp, Instant)>,
    /// By container: the end that its back-off was told for.
    told_back_off: BTreeMap<String, jiff::Timestamp>,
    born: Instant,
    /// How old the pod was then. From here on the clock does not count: it may jump.
    age: Duration,
    volumes: BTreeMap<String, PathBuf>,
    /// The pod that volumes were last set up for in this life: what is in them may follow it.
    volumes_of: Option<Arc<Pod>>,
    /// The pod's names, once they were read for its start.
    identity: Identity,
    /// What the runtime can do, once that was asked for a pod that depends on it.
    features: RuntimeFeatures,
    /// What was read for its variables.
    env: Kept,
    permit: Option<OwnedSemaphorePermit>,
    /// The pod is over by its own policy, and all that it used is gone.
    cleaned: bool,
    /// What was said of what goes wrong.
    said: Said,
    /// When all grace is used up, once the pod is being stopped.
    kill_by: Option<Instant>,
    /// It was told that the pod's containers are stopped for good.
    told_stop: bool,
    /// Longest grace that the pod gets, whatever it asks for: it is evicted.
    shorter: Option<Duration>,
    traceparent: String,
    /// How long was waited for images since the pod began to start.
    pulls: Duration,
    /// Open until everything of the pod was started once.
    start_span: Option<tracing::Span>,
    deps: Arc<Deps>,
    control: watch::Receiver<Wanted>,
    wake: Wake,
}

/// What a pass ended with.
enum Step {
    /// Nothing to do until something changes or this time comes.
    Wait(Option<Instant>),
    /// Nothing of the pod is left.
    Gone,
}

impl Worker {
    /// A worker, published at once. `None` when the pod's UID can be no folder: such a manifest is refused before.
    pub fn new(wanted: Wanted, deps: Arc<Deps>) -> Option<(Self, Handle)> {
        let Wanted { pod, goal } = wanted.clone();
        let text = |value: &Option<String>| value.clone().unwrap_or_default();
        let uid = text(&pod.metadata.uid);
        let cgroup = PodCgroup { qos: qos_tier(&pod), uid: PodUid::parse(&uid).ok()? };
        let folders = Folders::new(&deps.settings, deps.cgroups.clone(), &pod, cgroup.clone());
        let (sender, control) = watch::channel(wanted);
        let (waker, waiting) = wake();
        let full_name = (text(&pod.metadata.namespace), text(&pod.metadata.name));
        let now = deps.clock.now();
        let record = deps.records.get(&uid);
        let started_at = record.as_ref().map_or(now, |record| record.started_at);
        let finished = record.as_ref().is_some_and(|record| record.finished);
        let stage = if finished { Stage::Terminated } else { Stage::Syncing };
        if record.is_none() && goal == Goal::Run {
            deps.records.set(&uid, Some(PodRecord::new(now)));
            let waited = now.duration_since(seen(&pod).unwrap_or(now));
            let containers = u32::try_from(spec::containers(&pod).len()).unwrap_or(u32::MAX);
            deps.measures.worker_started(Duration::try_from(waited).unwrap_or_default(), containers);
        }
        if goal == Goal::Run && !spec::is_static(&pod) {
            deps.records.update(&uid, |record| {
                record.resources.allocated.get_or_insert_with(|| Allocation::of(&pod));
            });
        }
        let asked = pod;
        let allocated = deps.records.get(&uid).and_then(|record| record.resources.allocated);
        let pod = resize::accepted(&asked, allocated.as_ref());
        let known = deps.runtime_pods.get(&uid);
        let earlier = known.as_ref().and_then(|pod| pod.newest_sandbox()).map(|s| s.traceparent.clone());
        let (traceparent, start_span) = match earlier {
            Some(traceparent) => (traceparent, None),
            None => new_start(&uid, &full_name),
        };
        let failed = record.and_then(|record| record.failed);
        let mut worker = Self {
            age: Duration::try_from(now.duration_since(started_at)).unwrap_or_default(),
            decision: Decision { stage, started_at: Some(started_at), ..Default::default() },
            published: None,
            acted: true,
            cleaned: false,
            backoff: CrashBackoff::new(FIRST_BACKOFF, deps.settings.longest_backoff),
            ends: BTreeMap::new(),
            told_back_off: BTreeMap::new(),
            born: Instant::now(),
            volumes: BTreeMap::new(),
            volumes_of: None,
            identity: Identity::default(),
            features: RuntimeFeatures::default(),
            env: Kept::default(),
            permit: None,
            pulls: Duration::ZERO,
            kill_by: None,
            told_stop: false,
            shorter: None,
            said: Said::every(SAY_AGAIN),
            uid,
            pod,
            asked,
            resize_error: None,
            cgroup,
            folders,
            traceparent,
            start_span,
            deps,
            control,
            wake: waiting,
        };
        if let Some(failed) = failed {
            worker.fails_with(failed);
        }
        if goal == Goal::End || (stage == Stage::Syncing && spec::is_deleting(&worker.pod)) {
            worker.decision.stage = Stage::Terminating;
        }
        worker.publish();
        Some((worker, Handle { full_name, control: sender, waker }))
    }

    /// Works until nothing of the pod is left; returns its UID.
    pub async fn run(mut self) -> String {
        let mut retry = Backoff::new(RETRY.0, RETRY.1);
        let mut pass = Pass::Create;
        // Nothing is made for a pod that a next life would know nothing about.
        self.deps.records.kept().await;
        loop {
            let Wanted { pod, goal } = self.control.borrow_and_update().clone();
            let span = self.start_span.clone().unwrap_or_else(tracing::Span::none);
            let begin = Instant::now();
            let changed = self.take(pod);
            let result = if goal == Goal::End || spec::is_deleting(&self.pod) {
                pass = Pass::Kill;
                self.start_span = None;
                self.end(goal).await
            } else {
                if pass == Pass::Sync && changed {
                    pass = Pass::Update;
                }
                self.sync().instrument(span).await
            };
            self.permit = None;
            self.deps.measures.passed(pass, begin.elapsed());
            pass = Pass::Sync;
            self.publish();
            let until = match result {
                Ok(Step::Gone) => {
                    self.deps.views.remove(&self.uid);
                    self.deps.records.set(&self.uid, None);
                    // The same manifest may come back, and must not be taken for a pod that is over.
                    self.deps.records.kept().await;
                    return self.uid;
                }
                Ok(Step::Wait(until)) => {
                    retry.reset();
                    until
                }
                Err(error) => {
                    if let Some(span) = &self.start_span {
                        trace::fail(span, &error);
                    }
                    self.complain(&error);
                    Some(Instant::now() + retry.next_delay())
                }
            };
            let resync = Instant::now() + self.deps.settings.resync;
            let deadline = self.deadline().filter(|_| self.decision.stage == Stage::Syncing);
            // All arms are cancel-safe, and each only asks for one more look.
            tokio::select! {
                changed = self.control.changed() => {
                    if changed.is_err() {
                        // The manager is gone: the process is stopping. Pods stay as they are.
                        return self.uid;
                    }
                }
                () = self.wake.woken() => {}
                () = tokio::time::sleep_until(until.unwrap_or(resync).min(resync)) => {}
                () = at(deadline.filter(|_| self.decision.failed.is_none())) => {}
            }
        }
    }

    /// Says why a pass failed; what fails the same way again and again is said once a minute.
    fn complain(&self, trouble: &PodError) {
        let error = chain(trouble).to_string();
        if self.said.is_news(&error, Instant::now()) {
            tracing::warn!(pod.uid = self.uid, pod.name = self.name(), error, "trying again");
            self.tell_trouble(trouble);
        }
    }

    fn name(&self) -> &str {
        self.pod.metadata.name.as_deref().unwrap_or_default()
    }

    /// Tells everybody what was decided, if that is anything new.
    fn publish(&mut self) {
        let same_pod = self.published.as_ref().is_some_and(|(pod, _)| Arc::ptr_eq(pod, &self.pod));
        if same_pod && self.published.as_ref().is_some_and(|(_, decision)| *decision == self.decision) {
            return;
        }
        self.decision.generation += 1;
        self.published = Some((self.pod.clone(), self.decision.clone()));
        self.deps.views.publish(Published {
            pod: &self.pod,
            cgroup: &self.cgroup,
            decision: &self.decision,
            traceparent: &self.traceparent,
        });
    }

    /// The pod fails as a whole.
    fn fails_with(&mut self, failure: Failure) {
        let Failure { reason, message, eviction } = failure;
        self.shorter = eviction.map(|eviction| Duration::from_secs(eviction.grace_seconds));
        self.decision.disrupted = eviction.is_some_and(|eviction| eviction.disruption);
        self.decision.failed = Some(Waiting { reason, message });
    }

    /// Reads the pod from the runtime, newer than anything that was done so far.
    async fn observe(&mut self) -> Result<RuntimePod, PodError> {
        let pod = self.deps.peers.observe(&self.uid).await?;
        self.acted = false;
        self.follow_hooks(&pod);
        self.follow_ephemeral(&pod);
        self.follow_resources(&pod);
        self.read_messages(&pod).await;
        Ok(pod)
    }

    /// When `activeDeadlineSeconds` have passed; `None` for a pod without.
    fn deadline(&self) -> Option<Instant> {
        let seconds = self.pod.spec.as_ref()?.active_deadline_seconds?;
        let allowed = Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
        self.born.checked_add(allowed.saturating_sub(self.age))
    }

    /// What pleg's stream says: good enough to see that there is nothing to do. `None` while that is not known.
    fn glance(&self) -> Option<RuntimePod> {
        if self.acted || !self.deps.runtime_pods.status().synced {
            return None;
        }
        let seen = self.deps.runtime_pods.get(&self.uid).map(|pod| (*pod).clone());
        Some(seen.unwrap_or_else(|| RuntimePod { uid: self.uid.clone(), ..Default::default() }))
    }

    /// Probe results of this pod's containers.
    fn probe_results(&self, runtime: &RuntimePod) -> BTreeMap<String, ProbeResults> {
        let result = |id: &String| Some((id.clone(), probe_results_from_wire(&*self.deps.probes.get(id)?)));
        runtime.containers.iter().filter_map(|container| result(&container.id)).collect()
    }

    fn hashes(&self) -> BTreeMap<String, u32> {
        let containers = spec::containers(&self.pod);
        containers.iter().map(|found| (found.name().to_owned(), container_hash(found.container))).collect()
    }

    /// Time since the pod was first seen, on which its back-off counts. Only what came before this life is by the clock.
    fn lived(&self) -> Duration {
        self.age.saturating_add(self.born.elapsed())
    }

    fn doing(&self, doing: &'static str) -> impl Fn(bulkhead_cri::CriError) -> PodError + use<> {
        let uid = self.uid.clone();
        move |source| PodError::Runtime { doing, uid: uid.clone(), source }
    }

    /// Runs blocking work on the pod's folders and cgroup.
    async fn in_folders<F>(&self, work: F) -> Result<(), PodError>
    where
        F: FnOnce(&Folders, &Pod, &Settings) -> Result<(), PodError> + Send + 'static,
    {
        let (folders, pod, deps) = (self.folders.clone(), self.pod.clone(), self.deps.clone());
        let uid = self.uid.clone();
        let done = tokio::task::spawn_blocking(move || work(&folders, &pod, &deps.settings)).await;
        done.unwrap_or_else(|error| {
            let source = std::io::Error::other(error);
            Err(PodError::Folder { action: "work in", path: PathBuf::new(), uid, source })
        })
    }
}

/// When the pod was first seen.
fn seen(pod: &Pod) -> Option<jiff::Timestamp> {
    pod.metadata.annotations.as_ref()?.get(names::CONFIG_SEEN)?.parse().ok()
}

/// The trace of a pod that starts for the first time.
fn new_start(uid: &str, (namespace, name): &(String, String)) -> (String, Option<tracing::Span>) {
    let span =
        bulkhead_ipc::traced!("syncd start pod", pod.uid = uid, pod.namespace = namespace, pod.name = name);
    (trace::traceparent(&span).unwrap_or_default(), Some(span))
}
