//! A pass over a pod that is wanted.

use std::time::Duration;

use bulkhead_cri::Run;
use bulkhead_model::actions::{
    ActionInput, ContainerKill, CreateSandbox, KillPod, PodActions, compute_pod_actions,
    compute_termination_order,
};
use bulkhead_model::admission::Rejection;
use bulkhead_model::decision::{Resize, Stage, Waiting};
use bulkhead_model::event::{self, Event};
use bulkhead_model::grace;
use bulkhead_model::runtime::RuntimePod;
use bulkhead_model::runtime_features::{self, DEFAULT_HANDLER, depends_on_runtime};
use bulkhead_model::spec;
use bulkhead_model::start_time::start_times;
use tokio::time::Instant;
use tracing::Instrument;

use super::events::{MAKING_SANDBOX, rejected};
use super::prune::Prune;
use super::start::Started;
use super::{Step, Worker};
use crate::classes::ClassError;
use crate::cri_config::{SandboxPlan, check_memory_limit, sandbox_config};
use crate::error::PodError;
use crate::identity::Identity;
use crate::state::Failure;

/// Looks and actions of one pass. Each action makes a new look necessary; a pod that needs more comes again at once.
const ROUNDS: usize = 6;
/// The kubelet's reason and text.
const DEADLINE_EXCEEDED: (&str, &str) =
    ("DeadlineExceeded", "Pod was active on the node longer than the specified deadline");

impl Worker {
    /// Brings the runtime to what the pod asks for, as far as that goes now.
    pub(super) async fn sync(&mut self) -> Result<Step, PodError> {
        self.take_eviction();
        if self.is_past_deadline() {
            self.fail_for_deadline().await;
        }
        self.judge_resize().await;
        if let Some(seen) = self.glance() {
            self.read_messages(&seen).await;
            let actions = self.compute(&seen);
            let over =
                actions.finished || self.decision.failed.is_some() || spec::final_phase(&self.pod).is_some();
            let settled = !over || self.cleaned;
            let hooks_done = self.pending_hooks(&seen).is_empty();
            let settled = settled && (over || self.resize_is_settled(&seen));
            if is_idle(&actions) && settled && hooks_done && Prune::of(&seen).is_empty() {
                self.forget_waiting(&actions);
                self.refresh_volumes().await?;
                return Ok(Step::Wait(self.resize_again()));
            }
        }
        for _ in 0..ROUNDS {
            let runtime = self.observe().await?;
            self.take_eviction();
            if self.decision.failed.is_some() || spec::final_phase(&self.pod).is_some() {
                return self.finish(&runtime).await;
            }
            let actions = self.compute(&runtime);
            if actions.finished {
                return self.finish(&runtime).await;
            }
            self.forget_waiting(&actions);
            let mut acted = self.stop_what_must(&actions, &runtime).await?;
            if self.finish_starts(&actions, &runtime).await? {
                continue;
            }
            if let Some(create) = actions.create_sandbox {
                if self.is_rejected(&runtime).await? {
                    continue;
                }
                self.make_sandbox(create).await?;
                continue;
            }
            self.apply_resize(&runtime).await?;
            let mut next = None;
            for start in &actions.containers_to_start {
                match self.start_container(start, &runtime).await? {
                    Started::Yes => acted = true,
                    Started::NotBefore(at) => next = Some(next.map_or(at, |n: Instant| n.min(at))),
                }
            }
            if next.is_none() && !actions.containers_to_start.is_empty() {
                // All were started: the look at them needs no place among those that start.
                self.permit = None;
            }
            if acted {
                continue;
            }
            self.prune(&runtime).await;
            self.refresh_volumes().await?;
            if next.is_none() && actions.wait.is_none() {
                // Everything that the pod asks for was started: the trace of its start ends here.
                if self.start_span.take().is_some() {
                    self.measure_start(&runtime);
                }
            }
            let again = [next, self.resize_again()].into_iter().flatten().min();
            return Ok(Step::Wait(again));
        }
        Ok(Step::Wait(Some(Instant::now())))
    }

    /// Runs the hooks of containers that run without: nothing after them starts before. Whether there were any.
    async fn finish_starts(&mut self, actions: &PodActions, runtime: &RuntimePod) -> Result<bool, PodError> {
        let mut pending = self.pending_hooks(runtime);
        // Those were just stopped.
        pending.retain(|pending| !actions.containers_to_kill.iter().any(|kill| kill.id == pending.id));
        if actions.kill_pod.is_some() {
            pending.clear();
        }
        for pending in &pending {
            self.post_start(pending, runtime).await?;
        }
        Ok(!pending.is_empty())
    }

    fn measure_start(&self, runtime: &RuntimePod) {
        self.deps.measures.pod_started(self.lived());
        if let Some(times) = start_times(&self.pod, runtime, self.pulls, self.deps.clock.now()) {
            self.deps.measures.pod_start_took(times);
        }
    }

    /// What is over stays as it is: no deadline passes any more.
    fn is_past_deadline(&self) -> bool {
        self.decision.stage == Stage::Syncing
            && self.decision.failed.is_none()
            && self.deadline().is_some_and(|deadline| deadline <= Instant::now())
    }

    /// `activeDeadlineSeconds` have passed: the pod failed, and everything of it is stopped.
    async fn fail_for_deadline(&mut self) {
        let (reason, message) = DEADLINE_EXCEEDED;
        self.tell(Event::normal(reason, message));
        self.fail(Failure::new(reason, message)).await;
    }

    /// An eviction that came meanwhile stands in the pod's record.
    fn take_eviction(&mut self) {
        if self.decision.failed.is_some() || self.decision.stage != Stage::Syncing {
            return;
        }
        if let Some(failure) = self.deps.records.get(&self.uid).and_then(|record| record.failed) {
            let Failure { reason, message, .. } = &failure;
            tracing::warn!(pod.uid = self.uid, pod.name = self.name(), reason, "{message}");
            self.tell(Event::warning(reason.clone(), message));
            self.fails_with(failure);
            self.publish();
        }
    }

    /// Fails the pod as a whole, for good.
    async fn fail(&mut self, failure: Failure) {
        let Failure { reason, message, .. } = &failure;
        tracing::warn!(pod.uid = self.uid, pod.name = self.name(), reason, "{message}");
        self.fails_with(failure.clone());
        self.deps.records.update(&self.uid, |record| record.failed = Some(failure));
        self.deps.records.kept().await;
    }

    /// Whether the runtime cannot run the pod as asked. That is found out here rather than with the rest of admission since
    /// the runtime has to be asked; a pod that it holds something of was taken and is not judged again.
    async fn is_rejected(&mut self, runtime: &RuntimePod) -> Result<bool, PodError> {
        if !runtime.sandboxes.is_empty() || !runtime.containers.is_empty() {
            return Ok(false);
        }
        self.ask_for_features().await?;
        match runtime_features::admit(&self.pod, &self.features) {
            Ok(()) => Ok(false),
            Err(rejection) => {
                self.tell(rejected(&rejection));
                let Rejection { reason, message } = rejection;
                self.fail(Failure::new(reason, message)).await;
                Ok(true)
            }
        }
    }

    /// Asks the runtime what it can do, for a pod that depends on it.
    async fn ask_for_features(&mut self) -> Result<(), PodError> {
        if depends_on_runtime(&self.pod) {
            self.features = self.deps.peers.runtime_features(&self.uid).await?;
        }
        Ok(())
    }

    fn compute(&self, runtime: &RuntimePod) -> PodActions {
        compute_pod_actions(&ActionInput {
            pod: &self.pod,
            runtime,
            stage: self.decision.stage,
            probes: &self.probe_results(runtime),
            ephemeral_ran: &self.ephemeral_ran(),
            resized: &self.restarts_for_resources(runtime),
            hashes: &self.hashes(),
            now: self.deps.clock.now(),
        })
    }

    /// Reasons of containers that are not about to start are no longer true.
    fn forget_waiting(&mut self, actions: &PodActions) {
        let starting = |name: &String| actions.containers_to_start.iter().any(|start| start.name == *name);
        let whole_pod = actions.create_sandbox.is_some();
        self.decision.waiting.retain(|name, _| whole_pod || starting(name));
    }

    /// Stops what stands in the way. Returns whether anything was stopped.
    async fn stop_what_must(&mut self, actions: &PodActions, runtime: &RuntimePod) -> Result<bool, PodError> {
        if let Some(why) = actions.kill_pod {
            tracing::info!(pod.uid = self.uid, pod.name = self.name(), ?why, "stopping the pod's containers");
            self.stop_everything(runtime, why).await?;
            return Ok(true);
        }
        if actions.containers_to_kill.is_empty() && actions.sandboxes_to_stop.is_empty() {
            return Ok(false);
        }
        self.acted = true;
        self.kill_containers(&actions.containers_to_kill, runtime).await?;
        for id in &actions.sandboxes_to_stop {
            self.deps.runtime.stop_pod_sandbox(id).await.map_err(self.doing("stopping a surplus sandbox"))?;
        }
        Ok(true)
    }

    /// All at once; the first failure is returned when all have been tried.
    async fn kill_containers(&self, kills: &[ContainerKill], runtime: &RuntimePod) -> Result<(), PodError> {
        let stops = kills.iter().map(|kill| {
            let grace = grace::container_grace(&self.pod, &kill.name, kill.reason.stop_reason(), None);
            tracing::info!(
                pod.uid = self.uid,
                pod.name = self.name(),
                container = kill.name,
                id = kill.id,
                grace_s = grace.as_secs(),
                "{}",
                kill.message
            );
            self.tell_of(&kill.name, event::killing(&kill.message));
            self.stop_container(&kill.id, &kill.name, runtime, grace)
        });
        futures::future::join_all(stops).await.into_iter().collect()
    }

    /// Stops a container, its preStop hook first; the two share `grace`. One that is gone is stopped.
    pub(super) async fn stop_container(
        &self,
        id: &str,
        name: &str,
        runtime: &RuntimePod,
        grace: Duration,
    ) -> Result<(), PodError> {
        let grace = self.pre_stop(id, name, runtime, grace).await;
        self.signal(id, grace).await
    }

    async fn signal(&self, id: &str, grace: Duration) -> Result<(), PodError> {
        match self.deps.runtime.stop_container(id, grace).await {
            Err(error) if !error.is_not_found() => Err(self.doing("stopping a container")(error)),
            _ => Ok(()),
        }
    }

    /// Containers in their order within one grace period, then every sandbox.
    pub(super) async fn stop_everything(
        &mut self,
        runtime: &RuntimePod,
        why: KillPod,
    ) -> Result<(), PodError> {
        // Waiting for processes to end must not keep others from it, but thousands at once would.
        let _permit = self.deps.stops.clone().acquire_owned().await.ok();
        self.acted = true;
        let total = grace::pod_grace(&self.pod, self.shorter);
        let ending = matches!(why, KillPod::Terminating | KillPod::Finished);
        let by = match self.kill_by {
            // A shorter grace may have been asked for meanwhile.
            Some(by) if ending => by.min(Instant::now() + total),
            _ => Instant::now() + total,
        };
        if ending {
            self.kill_by = Some(by);
        }
        let order = compute_termination_order(&self.pod, runtime);
        if !self.told_stop || !ending {
            self.told_stop = ending;
            for (_, name) in order.iter().flat_map(|step| &step.containers) {
                self.tell_of(name, event::stopping(name));
            }
        }
        let left = by.saturating_duration_since(Instant::now());
        let mut steps = order.iter();
        let first = steps.next().into_iter().flat_map(|step| &step.containers);
        let stops = first.map(|(id, name)| self.stop_container(id, name, runtime, left));
        // The hooks of those that follow run at once; only their signals wait for their turn.
        let hooks = steps.clone().flat_map(|step| &step.containers);
        let hooks = hooks.map(|(id, name)| self.pre_stop(id, name, runtime, left));
        let (stopped, _) =
            futures::future::join(futures::future::join_all(stops), futures::future::join_all(hooks)).await;
        stopped.into_iter().collect::<Result<(), _>>()?;
        for step in steps {
            let left = by.saturating_duration_since(Instant::now());
            // They get the least that a process needs to handle its signal.
            let grace = if total.is_zero() { left } else { left.max(grace::AFTER_HOOK) };
            let stops = step.containers.iter().map(|(id, _)| self.signal(id, grace));
            futures::future::join_all(stops).await.into_iter().collect::<Result<(), _>>()?;
        }
        for sandbox in &runtime.sandboxes {
            match self.deps.runtime.stop_pod_sandbox(&sandbox.id).await {
                Err(error) if !error.is_not_found() => return Err(self.doing("stopping the sandbox")(error)),
                _ => {}
            }
        }
        Ok(())
    }

    async fn make_sandbox(&mut self, create: CreateSandbox) -> Result<(), PodError> {
        self.take_permit().await;
        self.prepare().await?;
        let handler = self.handler().await?;
        if create.attempt > 0 {
            self.tell(event::sandbox_changed());
        }
        for note in &self.identity.dns.notes {
            // Once a sandbox: what the kubelet tells with its event DNSConfigForming.
            tracing::warn!(
                pod.uid = self.uid,
                pod.name = self.name(),
                note,
                "the pod's resolv.conf is not as asked for"
            );
            self.tell_dns(note);
        }
        let config = sandbox_config(&SandboxPlan {
            pod: &self.pod,
            attempt: create.attempt,
            cgroup_parent: &self.deps.cgroups.layout().cgroup_parent(&self.cgroup),
            pod_logs_dir: &self.deps.settings.pod_logs_dir,
            traceparent: &self.traceparent,
            identity: &self.identity,
            cgroups: &self.deps.settings.cgroups,
        });
        self.acted = true;
        let span = bulkhead_ipc::traced!("syncd sandbox", pod.uid = self.uid);
        let begin = Instant::now();
        let made = self.deps.runtime.run_pod_sandbox(config, &handler).instrument(span).await;
        self.deps.measures.sandbox_made(begin.elapsed(), made.is_err());
        match made {
            Ok(id) => {
                tracing::info!(pod.uid = self.uid, pod.name = self.name(), sandbox = id, "sandbox made");
                Ok(())
            }
            Err(error) => {
                self.all_wait(
                    "ContainerCreating",
                    &format!("Failed to create pod sandbox: {}", error.runtime_message()),
                );
                Err(self.doing(MAKING_SANDBOX)(error))
            }
        }
    }

    /// The runtime's handler for the pod's sandbox. What its class was last known to name, while that cannot be asked for.
    async fn handler(&mut self) -> Result<String, PodError> {
        let class = self.pod.spec.as_ref().and_then(|spec| spec.runtime_class_name.clone());
        let Some(class) = class.filter(|class| !class.is_empty()) else {
            return Ok(DEFAULT_HANDLER.to_owned());
        };
        let source = match (self.deps.classes.handler(&class).await, self.known_handler()) {
            (Ok(handler), _) => {
                let known = Some(handler.clone());
                self.deps.records.update(&self.uid, |record| record.handler = known);
                return Ok(handler);
            }
            (Err(ClassError::Away { .. }), Some(known)) => return Ok(known),
            (Err(error), _) => error,
        };
        let why = bulkhead_base::chain(&source).to_string();
        self.all_wait(
            "ContainerCreating",
            &format!("Failed to create pod sandbox: failed to get sandbox runtime: {why}"),
        );
        Err(PodError::RuntimeClass { uid: self.uid.clone(), source })
    }

    /// The handler that the pod's sandbox was made with, if it has a class.
    pub(super) fn known_handler(&self) -> Option<String> {
        self.deps.records.get(&self.uid)?.handler
    }

    /// Folders, cgroup, names and volumes: what must stand before anything of the pod runs.
    pub(super) async fn prepare(&mut self) -> Result<(), PodError> {
        // First: the pod's cgroup would get the same limit, and even its sandbox could not start.
        for found in bulkhead_model::spec::containers(&self.pod) {
            if let Err(source) = check_memory_limit(found.container) {
                self.all_wait("CreateContainerConfigError", &bulkhead_base::chain(&source).to_string());
                return Err(PodError::Config { uid: self.uid.clone(), source: source.into() });
            }
        }
        if let Err(error) = self.make_folders(&self.at_a_glance()).await {
            // Such as a full disk.
            self.all_wait("ContainerCreating", &bulkhead_base::chain(&error).to_string());
            return Err(error);
        }
        self.read_identity().await?;
        self.ask_for_features().await?;
        match self.set_up_volumes().await {
            Ok(()) => Ok(()),
            Err(error) => {
                self.all_wait("ContainerCreating", &bulkhead_base::chain(&error).to_string());
                Err(error)
            }
        }
    }

    async fn read_identity(&mut self) -> Result<(), PodError> {
        let (pod, deps) = (self.pod.clone(), self.deps.clone());
        let read = tokio::task::spawn_blocking(move || Identity::of(&pod, &deps.settings.names)).await;
        match read {
            Ok(Ok(identity)) => {
                self.identity = identity;
                Ok(())
            }
            Ok(Err(source)) => {
                self.all_wait("ContainerCreating", &bulkhead_base::chain(&source).to_string());
                Err(PodError::Identity { uid: self.uid.clone(), source })
            }
            // Only when the process stops.
            Err(_) => Ok(()),
        }
    }

    pub(super) async fn take_permit(&mut self) {
        if self.permit.is_none() {
            // The semaphore is never closed.
            self.permit = self.deps.starts.clone().acquire_owned().await.ok();
        }
    }

    /// Every container waits for the same thing.
    fn all_wait(&mut self, reason: &str, message: &str) {
        let mut message = message.to_owned();
        message.truncate(message.floor_char_boundary(1024));
        for found in bulkhead_model::spec::containers(&self.pod) {
            let waiting = Waiting { reason: reason.to_owned(), message: message.clone() };
            self.decision.waiting.insert(found.name().to_owned(), waiting);
        }
    }

    /// The pod runs nothing any more by its own restart policy: its containers stay to be looked at, the rest goes.
    async fn finish(&mut self, runtime: &RuntimePod) -> Result<Step, PodError> {
        self.start_span = None;
        self.decision.waiting.clear();
        self.decision.resize = Resize::default();
        if runtime.is_active() {
            self.stop_everything(runtime, KillPod::Finished).await?;
            if self.observe().await?.is_active() {
                return Err(PodError::StillRuns { uid: self.uid.clone() });
            }
        }
        self.decision.stage = Stage::Terminated;
        self.deps.records.update(&self.uid, |record| record.finished = true);
        self.deps.records.kept().await;
        self.publish();
        self.deps.peers.tear_down_volumes(&self.uid).await?;
        self.volumes.clear();
        self.in_folders(|folders, _, _| folders.remove_cgroup()).await?;
        self.kill_by = None;
        if let Some(again) = self.release(runtime).await? {
            return Ok(Step::Wait(Some(again)));
        }
        self.cleaned = true;
        Ok(Step::Wait(None))
    }

    /// Removes dead containers beyond those that are kept. Failing at it harms nothing: the next pass tries again.
    async fn prune(&mut self, runtime: &RuntimePod) {
        let prune = Prune::of(runtime);
        for (id, log) in &prune.containers {
            match self.deps.runtime.remove_container(id).await {
                Ok(()) => {
                    if let Some(gone) = runtime.containers.iter().find(|container| container.id == *id) {
                        self.forget_files(&gone.name, gone.attempt, log);
                    }
                }
                Err(error) => tracing::debug!(pod.uid = self.uid, id, %error, "dead container not removed"),
            }
        }
        for id in &prune.sandboxes {
            if let Err(error) = self.deps.runtime.remove_pod_sandbox(id).await {
                tracing::debug!(pod.uid = self.uid, id, %error, "dead sandbox not removed");
            }
        }
    }
}

/// Nothing to stop, make or start.
fn is_idle(actions: &PodActions) -> bool {
    actions.kill_pod.is_none()
        && actions.create_sandbox.is_none()
        && actions.sandboxes_to_stop.is_empty()
        && actions.containers_to_kill.is_empty()
        && actions.containers_to_start.is_empty()
}
