//! Keeps one worker for every desired pod, and none for others. Owns the workers; must never talk to the runtime.

use std::collections::BTreeMap;
use std::sync::Arc;

use bulkhead_base::chain;
use bulkhead_cgroup::{CgroupName, Limits, QosTier};
use bulkhead_model::runtime::RuntimePod;
use bulkhead_model::{names, resources};
use bulkhead_service::Check;
use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::folders::qos_tier;
use crate::plan::{Command, Present, plan};
use crate::source::Desired;
use crate::worker::{Control, Deps, Handle, Worker};

/// Owns the workers.
pub struct Manager {
    deps: Arc<Deps>,
    desired: watch::Receiver<Option<Arc<Desired>>>,
    workers: BTreeMap<String, Handle>,
    tasks: JoinSet<String>,
    /// CPU shares that the burstable class was last given.
    burstable: u64,
    check: Check,
}

impl Manager {
    /// Nothing runs before [`Manager::run`].
    pub fn new(deps: Arc<Deps>, desired: watch::Receiver<Option<Arc<Desired>>>, check: Check) -> Self {
        Self { deps, desired, workers: BTreeMap::new(), tasks: JoinSet::new(), burstable: 0, check }
    }

    /// Manages until `shutdown`; the workers then stop where they are, and pods go on running.
    pub async fn run(mut self, shutdown: CancellationToken) {
        let mut runtime_changes = self.deps.runtime_pods.changes();
        let mut probe_changes = self.deps.probes.changes();
        self.check.bad("waiting for the first list of the runtime's pods from pleg");
        loop {
            self.follow_plan();
            self.share_cpu();
            if !self.deps.views.status.is_open() && self.is_informed() {
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
                Some(ended) = self.tasks.join_next(), if !self.tasks.is_empty() => self.ended(ended),
            }
        }
    }

    /// Sources and runtime were both seen whole: only then may anything be started, ended or called unknown.
    fn is_informed(&self) -> bool {
        self.desired.borrow().is_some() && self.deps.runtime_pods.status().synced
    }

    fn follow_plan(&mut self) {
        if !self.is_informed() {
            return;
        }
        let desired = self.desired.borrow_and_update().clone().unwrap_or_default();
        let present = self.workers.iter().map(|(uid, worker)| {
            let wanted = worker.control.borrow().clone();
            (uid.clone(), Present { full_name: worker.full_name.clone(), wanted })
        });
        let commands = plan(&desired, &present.collect(), &self.deps.runtime_pods.snapshot());
        for command in commands {
            match command {
                Command::Start(pod) => self.start(pod.clone(), Some(pod)),
                Command::StartOrphan(pod) => {
                    tracing::info!(
                        pod.uid = pod.uid,
                        pod.name = pod.name,
                        "ending a pod that no source knows"
                    );
                    self.start(Arc::new(stand_in(&pod)), None);
                }
                Command::Update(uid, pod) => self.tell(&uid, Some(pod)),
                Command::End(uid) => self.tell(&uid, None),
            }
        }
    }

    /// The burstable class' share of the CPUs is what its pods ask for together.
    fn share_cpu(&mut self) {
        let pods = self.deps.views.pods();
        let burstable = pods.iter().map(|pod| &**pod).filter(|pod| qos_tier(pod) == QosTier::Burstable);
        let shares = resources::burstable_shares(burstable);
        if shares == self.burstable {
            return;
        }
        self.burstable = shares;
        let cgroups = self.deps.cgroups.clone();
        tokio::task::spawn_blocking(move || {
            let limits = Limits { cpu_shares: Some(shares), ..Default::default() };
            if let Err(error) = cgroups.apply(&CgroupName::Burstable, &limits) {
                tracing::warn!(error = %chain(&error), shares, "CPU shares of the burstable class not set");
            }
        });
    }

    fn start(&mut self, pod: Arc<Pod>, wanted: Control) {
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        let Some((worker, handle)) = Worker::new(pod, wanted, self.deps.clone()) else {
            tracing::error!(pod.uid = uid, "a pod with this UID cannot run: it can be no folder's name");
            return;
        };
        self.workers.insert(uid, handle);
        self.tasks.spawn(worker.run());
    }

    fn tell(&self, uid: &str, wanted: Control) {
        if let Some(worker) = self.workers.get(uid) {
            worker.control.send_replace(wanted);
        }
    }

    fn wake(&self, uid: &str) {
        if let Some(worker) = self.workers.get(uid) {
            worker.waker.wake();
        }
    }

    fn ended(&mut self, ended: Result<String, tokio::task::JoinError>) {
        match ended {
            Ok(uid) => {
                self.workers.remove(&uid);
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

/// A pod object for what only the runtime knows: enough to stop it within the grace that it was made with.
fn stand_in(pod: &RuntimePod) -> Pod {
    let graces =
        pod.containers.iter().filter_map(|c| c.annotations.get(names::POD_GRACE)?.parse::<i64>().ok());
    let containers = pod.containers.iter().map(|c| c.name.clone()).collect::<std::collections::BTreeSet<_>>();
    Pod {
        metadata: ObjectMeta {
            uid: Some(pod.uid.clone()),
            name: Some(pod.name.clone()),
            namespace: Some(pod.namespace.clone()),
            ..Default::default()
        },
        spec: Some(PodSpec {
            containers: containers.into_iter().map(|name| Container { name, ..Default::default() }).collect(),
            termination_grace_period_seconds: graces.max(),
            ..Default::default()
        }),
        ..Default::default()
    }
}
