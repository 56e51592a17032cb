//! Keeps one worker for every desired pod, and none for others. Owns the workers; must never talk to the runtime.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};

use bulkhead_base::chain;
use bulkhead_cgroup::{CgroupManager, CgroupName, Limits, QosTier, Version};
use bulkhead_model::admission::{Rejection, admit, admit_under_pressure};
use bulkhead_model::eviction::Condition;
use bulkhead_model::names;
use bulkhead_model::resources::{self, NodeProtection};
use bulkhead_model::runtime::RuntimePod;
use bulkhead_model::spec;
use bulkhead_service::Check;
use k8s_openapi::api::core::v1::{Container, Lifecycle, Pod, PodSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::folders::qos_tier;
use crate::plan::{Command, Present, full_name, plan};
use crate::source::Desired;
use crate::state::{Failure, PodRecord};
use crate::unsupported::{Origin, unsupported};
use crate::worker::events::{rejected, subject};
use crate::worker::{Deps, Goal, Handle, Wanted, Worker};

/// Owns the workers.
pub struct Manager {
    deps: Arc<Deps>,
    desired: watch::Receiver<Option<Arc<Desired>>>,
    workers: BTreeMap<String, Handle>,
    tasks: JoinSet<String>,
    /// UIDs of pods that were just evicted.
    evicted: mpsc::Receiver<String>,
    /// What the cgroups above the pods' were last given.
    given: Option<Given>,
    check: Check,
}

/// What the pods ask for together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Given {
    /// Of the burstable class.
    shares: u64,
    memory: NodeProtection,
}

impl Given {
    /// Blocks. Memory is set on cgroup v2 alone, and even when nothing is protected any more: an earlier configuration may have
    /// done so.
    fn apply(self, cgroups: &CgroupManager) {
        let v2 = cgroups.mounts().version() == Version::V2;
        let class = Limits {
            cpu_shares: Some(self.shares),
            memory_low: v2.then_some(self.memory.burstable),
            ..Default::default()
        };
        let all = Limits { memory_min: v2.then_some(self.memory.kubepods_min()), ..Default::default() };
        for (name, limits) in [(CgroupName::Kubepods, all), (CgroupName::Burstable, class)] {
            if let Err(error) = cgroups.apply(&name, &limits) {
                tracing::warn!(error = %chain(&error), given = ?self, "the share of all pods, or of their class, is not set");
            }
        }
    }
}

impl Manager {
    /// Nothing runs before [`Manager::run`].
    pub fn new(
        deps: Arc<Deps>,
        desired: watch::Receiver<Option<Arc<Desired>>>,
        evicted: mpsc::Receiver<String>,
        check: Check,
    ) -> Self {
        let (workers, tasks) = (BTreeMap::new(), JoinSet::new());
        Self { deps, desired, workers, tasks, evicted, given: None, check }
    }

    /// Manages until `shutdown`; the workers then stop where they are, and pods go on running.
    pub async fn run(mut self, shutdown: CancellationToken) {
        let mut runtime_changes = self.deps.runtime_pods.changes();
        let mut probe_changes = self.deps.probes.changes();
        self.check.bad("waiting for the first list of the runtime's pods from pleg");
        loop {
            self.follow_plan();
            self.give();
            if !self.deps.views.status.is_open() && self.is_informed() && self.is_whole() {
                self.deps.views.open();
                self.check.good();
            }
            // All arms are cancel-safe: changes that lose the race are told the next time.
            tokio::select! {
                () = shutdown.cancelled() => return,
                changed = self.desired.changed() => {
                    if changed.is_err() {
                        return;
                    }
                }
                changes = runtime_changes.next() => {
                    for (uid, _) in &changes.upserts {
                        self.wake(uid);
                    }
                    for uid in &changes.removed {
                        self.wake(uid);
                    }
                }
                changes = probe_changes.next() => {
                    for (_, result) in &changes.upserts {
                        self.wake(&result.pod_uid);
                    }
                }
                () = self.deps.resized.notified() => {}
                Some(uid) = self.evicted.recv() => self.interrupt(&uid),
                Some(ended) = self.tasks.join_next(), if !self.tasks.is_empty() => self.ended(ended),
            }
        }
    }

    /// Sources and runtime were both seen whole: only then may anything be started, ended or called unknown.
    fn is_informed(&self) -> bool {
        self.desired.borrow().is_some() && self.deps.runtime_pods.status().synced
    }

    /// Every pod that runs has a worker. One that has none may be of a source that was not read yet: nobody must be told that
    /// it is gone.
    fn is_whole(&self) -> bool {
        let all_read = self.desired.borrow().as_ref().is_some_and(|desired| desired.unread.is_empty());
        all_read || self.deps.runtime_pods.snapshot().keys().all(|uid| self.workers.contains_key(uid))
    }

    fn follow_plan(&mut self) {
        if !self.is_informed() {
            return;
        }
        let desired = self.desired.borrow_and_update().clone().unwrap_or_default();
        let present = self.workers.iter().map(|(uid, worker)| {
            let Wanted { pod, goal } = worker.control.borrow().clone();
            let wanted = (goal == Goal::Run).then_some(pod);
            (uid.clone(), Present { full_name: worker.full_name.clone(), wanted })
        });
        let mut commands = plan(&desired, &present.collect(), &self.deps.runtime_pods.snapshot());
        // Pods that were taken before count first; then those that came first.
        commands.sort_by_cached_key(|command| match command {
            Command::Start(pod) if self.is_new(pod) => (1, arrival(pod)),
            _ => (0, Default::default()),
        });
        for command in commands {
            match command {
                Command::Start(pod) => {
                    let deps = self.deps.clone();
                    let _one_at_a_time = deps.room.lock().unwrap_or_else(PoisonError::into_inner);
                    self.admit(&pod);
                    self.start(pod, Goal::Run);
                }
                Command::StartOrphan(pod) => {
                    self.deps.measures.orphan_found();
                    tracing::info!(
                        pod.uid = pod.uid,
                        pod.name = pod.name,
                        "ending a pod that no source knows"
                    );
                    self.start(Arc::new(stand_in(&pod)), Goal::End);
                }
                Command::Update(uid, pod) => self.tell(&uid, Some(pod), Goal::Run),
                Command::End(uid, last) => self.tell(&uid, last, Goal::End),
            }
        }
    }

    /// Neither known from before nor present in the runtime.
    fn is_new(&self, pod: &Pod) -> bool {
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        self.deps.records.get(uid).is_none() && self.deps.runtime_pods.get(&uid.to_owned()).is_none()
    }

    /// Decides, once in its life, whether a pod may be here. One that may not is kept as failed.
    fn admit(&self, pod: &Pod) {
        if !self.is_new(pod) || spec::is_deleting(pod) {
            return;
        }
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        if spec::final_phase(pod).is_some() {
            // It ran, and was over, in a life of which nothing is left.
            let over = PodRecord { finished: true, ..PodRecord::new(self.deps.clock.now()) };
            self.deps.records.set(&uid, Some(over));
            return;
        }
        let taken = self.deps.taken();
        let pressures = self.deps.pressures.snapshot();
        let pressures = pressures.keys().filter_map(|condition| Condition::parse(condition)).collect();
        let admitted = built(pod)
            .and_then(|()| admit_under_pressure(pod, &pressures))
            .and_then(|()| admit(pod, taken.iter().map(|pod| &**pod), &self.deps.settings.node));
        let Err(rejection) = admitted else { return };
        let (namespace, name) = full_name(pod);
        tracing::warn!(
            pod.uid = uid,
            pod.namespace = namespace,
            pod.name = name,
            reason = rejection.reason,
            "{rejection}"
        );
        self.deps.events.pod(&subject(pod, None), rejected(&rejection));
        let failed = Some(Failure::new(rejection.reason, rejection.message));
        self.deps.records.set(&uid, Some(PodRecord { failed, ..PodRecord::new(self.deps.clock.now()) }));
    }

    /// The cgroups above the pods' get what their pods ask for together.
    fn give(&mut self) {
        let pods = self.deps.taken();
        let burstable = pods.iter().map(|pod| &**pod).filter(|pod| qos_tier(pod) == QosTier::Burstable);
        let qos = &self.deps.settings.traits.memory_qos;
        let given = Given {
            shares: resources::burstable_shares(burstable),
            memory: qos.of_node(pods.iter().map(|pod| &**pod)),
        };
        if self.given == Some(given) {
            return;
        }
        self.given = Some(given);
        self.deps.measures.memory_protected(given.memory);
        let cgroups = self.deps.cgroups.clone();
        tokio::task::spawn_blocking(move || given.apply(&cgroups));
    }

    fn start(&mut self, pod: Arc<Pod>, goal: Goal) {
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        let Some((worker, handle)) = Worker::new(Wanted { pod, goal }, self.deps.clone()) else {
            tracing::error!(pod.uid = uid, "a pod with this UID cannot run: it can be no folder's name");
            return;
        };
        self.workers.insert(uid, handle);
        self.tasks.spawn(worker.run());
    }

    /// Without a pod, that which the worker has stands.
    fn tell(&self, uid: &str, pod: Option<Arc<Pod>>, goal: Goal) {
        if let Some(worker) = self.workers.get(uid) {
            worker.control.send_modify(|wanted| {
                wanted.goal = goal;
                if let Some(pod) = pod {
                    wanted.pod = pod;
                }
            });
        }
    }

    fn wake(&self, uid: &str) {
        if let Some(worker) = self.workers.get(uid) {
            worker.waker.wake();
        }
    }

    /// As [`Manager::wake`], and what the worker waits for meanwhile, such as a hook, is given up.
    fn interrupt(&self, uid: &str) {
        if let Some(worker) = self.workers.get(uid) {
            worker.control.send_modify(|_| {});
        }
    }

    fn ended(&mut self, ended: Result<String, tokio::task::JoinError>) {
        match ended {
            Ok(uid) => {
                self.workers.remove(&uid);
                if self.desired.borrow().as_ref().is_some_and(|desired| desired.pods.contains_key(&uid)) {
                    self.deps.measures.pod_restarted();
                }
            }
            // A worker that panicked is a fault of ours: its pod must not be forgotten, so the process starts anew and
            // adopts everything.
            Err(error) => {
                tracing::error!(%error, "a worker failed");
                self.check.bad("a pod's worker failed; see the log");
            }
        }
    }
}

/// Rejects what this release cannot do, by name. Manifests of this node are refused before they become pods.
fn built(pod: &Pod) -> Result<(), Rejection> {
    let missing = unsupported(pod, Origin::Api);
    if missing.is_empty() {
        return Ok(());
    }
    let text = format!("this release of bulkhead cannot do: {}", missing.join(", "));
    Err(Rejection::new("Unsupported", text))
}

/// When a pod came, and for those that came together its name.
fn arrival(pod: &Pod) -> (String, (String, String)) {
    let annotations = pod.metadata.annotations.as_ref();
    let seen = annotations.and_then(|all| all.get(names::CONFIG_SEEN)).cloned();
    (seen.unwrap_or_default(), full_name(pod))
}

/// A pod object for what only the runtime knows: enough to stop it within the grace, and with the preStop hooks, that it was
/// made with.
fn stand_in(pod: &RuntimePod) -> Pod {
    let graces =
        pod.containers.iter().filter_map(|c| c.annotations.get(names::POD_GRACE)?.parse::<i64>().ok());
    let names = pod.containers.iter().map(|c| c.name.as_str()).collect::<std::collections::BTreeSet<_>>();
    let container = |name: &str| {
        let hook = pod.newest(name).and_then(|newest| newest.annotations.get(names::PRE_STOP));
        let pre_stop = hook.and_then(|json| serde_json::from_str(json).ok());
        let lifecycle = pre_stop.map(|hook| Lifecycle { pre_stop: Some(hook), ..Default::default() });
        Container { name: name.to_owned(), lifecycle, ..Default::default() }
    };
    Pod {
        metadata: ObjectMeta {
            uid: Some(pod.uid.clone()),
            name: Some(pod.name.clone()),
            namespace: Some(pod.namespace.clone()),
            ..Default::default()
        },
        spec: Some(PodSpec {
            containers: names.into_iter().map(container).collect(),
            termination_grace_period_seconds: graces.max(),
            ..Default::default()
        }),
        ..Default::default()
    }
}
