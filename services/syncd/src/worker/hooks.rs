//! postStart and preStop hooks: when they run, how long they may take, and what their end means.
//!
//! prober runs commands and requests; sleeping is done here. A hook runs at least once: one whose end was not recorded is run
//! again by the next life.

use std::time::Duration;

use bulkhead_api::convert::HookCall;
use bulkhead_cri::Run;
use bulkhead_model::event;
use bulkhead_model::hook::{self, Hook, HookKind};
use bulkhead_model::probe::Handler;
use bulkhead_model::runtime::{ContainerState, RuntimePod};
use bulkhead_model::{grace, names, spec};
use k8s_openapi::api::core::v1::Container;
use tokio::time::Instant;
use tracing::Instrument;

use super::Worker;
use crate::error::PodError;
use crate::peers::HookAnswer;
use crate::state::HookEnd;

/// Longest postStart hook. The API knows no bound.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);
/// Wait before a hook is run again that could not be run.
const PAUSE: Duration = Duration::from_secs(1);
/// Tries while prober or the runtime is away: enough for both to come back.
const TRIES_AWAY: u32 = 60;
/// Tries when the runtime answers and refuses: such as for a command that does not exist.
const TRIES_REFUSED: u32 = 2;
/// Shown in place of a container's state while it is stopped because of its hook (the kubelet's).
const HOOK_ERROR: &str = "PostStartHookError";

/// A running container whose postStart hook is not over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pending {
    pub(super) id: String,
    pub(super) name: String,
    /// It failed, and the container still runs.
    failed: Option<String>,
}

impl Worker {
    /// Running containers whose postStart hook has not ended well. Only those that this project made: a kubelet's have had
    /// theirs.
    pub(super) fn pending_hooks(&self, runtime: &RuntimePod) -> Vec<Pending> {
        let running = runtime.containers.iter().filter(|container| {
            container.state == ContainerState::Running
                && container.annotations.contains_key(names::POST_START)
        });
        let record = self.deps.records.get(&self.uid);
        let pending = running.filter_map(|container| {
            let failed = match record.as_ref().and_then(|record| record.post_start.get(&container.id)) {
                Some(HookEnd::Done) => return None,
                Some(HookEnd::Failed(text)) => Some(text.clone()),
                None => None,
            };
            Some(Pending { id: container.id.clone(), name: container.name.clone(), failed })
        });
        pending.collect()
    }

    /// Forgets hooks of containers that are gone, and holds those back whose hook is to come.
    pub(super) fn follow_hooks(&mut self, runtime: &RuntimePod) {
        self.decision.in_post_start =
            self.pending_hooks(runtime).into_iter().map(|pending| pending.id).collect();
        let held = |id: &String| runtime.containers.iter().any(|container| container.id == *id);
        self.deps.records.update(&self.uid, |record| record.post_start.retain(|id, _| held(id)));
    }

    /// Runs the hook of a container that was just started, or that an earlier life left without. Whether the container is
    /// started now; if not, look again.
    pub(super) async fn post_start(
        &mut self,
        pending: &Pending,
        runtime: &RuntimePod,
    ) -> Result<bool, PodError> {
        let Pending { id, name, failed } = pending;
        // It may take long, and needs no place among those that start.
        self.permit = None;
        self.decision.in_post_start.insert(id.clone());
        self.publish();
        let pod = self.pod.clone();
        let containers = spec::containers(&pod);
        let found = containers.iter().find(|found| found.name() == name);
        let result = match (failed, found) {
            (Some(text), _) => Err(text.clone()),
            (None, None) => Ok(()),
            (None, Some(found)) => {
                let span =
                    bulkhead_ipc::traced!("syncd postStart", pod.uid = self.uid, container.name = name);
                let mut control = self.control.clone();
                let deadline = self.deadline();
                tokio::select! {
                    result = self.run_hook(HookKind::PostStart, id, found.container, runtime, LONGEST).instrument(span.clone()) => {
                        if let Err(text) = &result {
                            bulkhead_ipc::trace::fail(&span, text);
                        }
                        result.map_err(|text| format!("{}: {text}", HookKind::PostStart.failure()))
                    }
                    // Its end is what counts then, or the pod's.
                    () = self.ended_at_runtime(id) => return Ok(false),
                    _ = control.changed() => return Ok(false),
                    () = bulkhead_reconcile::at(deadline) => return Ok(false),
                }
            }
        };
        let end = match &result {
            Ok(()) => HookEnd::Done,
            Err(text) => HookEnd::Failed(text.clone()),
        };
        self.deps.records.update(&self.uid, |record| {
            record.post_start.insert(id.clone(), end);
        });
        self.deps.records.kept().await;
        let Err(text) = result else {
            self.decision.in_post_start.remove(id);
            self.publish();
            return Ok(true);
        };
        tracing::warn!(
            pod.uid = self.uid,
            pod.name = self.name(),
            container = name,
            id,
            reason = HookKind::PostStart.failure(),
            "{text}"
        );
        self.tell_of(name, event::hook_failed(HookKind::PostStart.failure()));
        self.tell_of(name, event::killing(HookKind::PostStart.failure()));
        self.wait_for(name, HOOK_ERROR, text);
        self.publish();
        self.acted = true;
        let grace = grace::container_grace(&self.pod, name, grace::StopReason::Other, None);
        self.stop_container(id, name, runtime, grace).await?;
        Ok(false)
    }

    /// Runs a container's preStop hook within `grace`; what is left of it for the process. A hook that fails or takes too long
    /// stops nothing: the container is stopped all the same.
    pub(super) async fn pre_stop(
        &self,
        id: &str,
        name: &str,
        runtime: &RuntimePod,
        grace: Duration,
    ) -> Duration {
        let containers = spec::containers(&self.pod);
        let Some(found) = containers.iter().find(|found| found.name() == name) else { return grace };
        let runs = runtime.containers.iter().any(|c| c.id == id && c.state == ContainerState::Running);
        if !runs || grace.is_zero() || !hook::has(found.container, HookKind::PreStop) {
            return grace;
        }
        let begin = Instant::now();
        let failed = tokio::select! {
            result = self.run_hook(HookKind::PreStop, id, found.container, runtime, grace) => result.err(),
            () = tokio::time::sleep(grace) => Some("it took the whole grace period".to_owned()),
            // Nothing is left to be stopped: it did not fail.
            () = self.ended_at_runtime(id) => None,
        };
        if let Some(text) = failed {
            tracing::warn!(
                pod.uid = self.uid,
                pod.name = self.name(),
                container = name,
                id,
                reason = HookKind::PreStop.failure(),
                "{text}"
            );
            self.tell_of(name, event::hook_failed(HookKind::PreStop.failure()));
        }
        grace::after_pre_stop(grace, begin.elapsed())
    }

    async fn run_hook(
        &self,
        kind: HookKind,
        id: &str,
        container: &Container,
        runtime: &RuntimePod,
        limit: Duration,
    ) -> Result<(), String> {
        match hook::of(container, kind).map_err(|error| format!("{} hook: {error}", kind.as_str()))? {
            None => Ok(()),
            Some(Hook::Sleep(time)) => {
                tokio::time::sleep(time.min(limit)).await;
                Ok(())
            }
            Some(Hook::Run(handler)) => {
                let handler = self.addressed(handler, id, runtime);
                self.run_at_prober(id, handler, limit).await
            }
        }
    }

    async fn run_at_prober(&self, id: &str, handler: Handler, limit: Duration) -> Result<(), String> {
        let until = Instant::now() + limit;
        let (mut away, mut refused) = (0, 0);
        loop {
            // Whole seconds, at least one; the callers' own bound is exact.
            let left = until.saturating_duration_since(Instant::now()).as_millis().div_ceil(1000);
            let timeout = Duration::from_secs(u64::try_from(left).unwrap_or(u64::MAX).max(1));
            let call = HookCall { container_id: id.to_owned(), handler: handler.clone(), timeout };
            let text = match self.deps.peers.run_hook(&call).await {
                HookAnswer::Done => return Ok(()),
                HookAnswer::Failed(text) => return Err(text),
                HookAnswer::Refused(text) => {
                    if self.deps.runtime.version().await.is_ok() {
                        refused += 1;
                    } else {
                        away += 1;
                    }
                    text
                }
                HookAnswer::Away(text) => {
                    away += 1;
                    text
                }
            };
            if refused >= TRIES_REFUSED || away >= TRIES_AWAY {
                return Err(text);
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// An HTTP hook without a host of its own goes to the pod.
    fn addressed(&self, handler: Handler, id: &str, runtime: &RuntimePod) -> Handler {
        let Handler::Http { scheme, host, port, path, headers } = handler else { return handler };
        let of_pod = || {
            if spec::host_network(&self.pod) {
                return self.deps.settings.node_ips.first().cloned();
            }
            let container = runtime.containers.iter().find(|container| container.id == id);
            let sandbox = match container {
                Some(container) => runtime.sandboxes.iter().find(|s| s.id == container.sandbox_id),
                None => runtime.sandboxes.iter().find(|s| s.ready),
            };
            sandbox.and_then(|sandbox| sandbox.ips.first().cloned())
        };
        Handler::Http { scheme, host: host.or_else(of_pod), port, path, headers }
    }

    /// Returns once pleg saw the container's end.
    async fn ended_at_runtime(&self, id: &str) {
        let mut changes = self.deps.runtime_pods.changes();
        loop {
            let pod = self.deps.runtime_pods.get(&self.uid);
            let state = pod.iter().flat_map(|pod| &pod.containers).find(|c| c.id == id).map(|c| c.state);
            if state == Some(ContainerState::Exited) {
                return;
            }
            changes.next().await;
        }
    }
}

impl Pending {
    /// Of a container that was just started.
    pub(super) fn new(id: &str, name: &str) -> Self {
        Self { id: id.to_owned(), name: name.to_owned(), failed: None }
    }
}
