//! Starting one container: its back-off, its image, its configuration, and the two CRI calls.

use std::time::Duration;

use bulkhead_api::imaged::v1::EnsureImageRequest;
use bulkhead_base::chain;
use bulkhead_cri::{Run, wire};
use bulkhead_model::actions::ContainerStart;
use bulkhead_model::decision::Waiting;
use bulkhead_model::env::{EnvObjects, PodFacts};
use bulkhead_model::event;
use bulkhead_model::hash::container_hash;
use bulkhead_model::hook::{self, HookKind};
use bulkhead_model::runtime::RuntimePod;
use bulkhead_model::spec::ContainerKind;
use bulkhead_model::{spec, status};
use k8s_openapi::api::core::v1::Container;
use tokio::time::Instant;
use tracing::Instrument;

use super::hooks::Pending;
use super::{Worker, backoff};
use crate::cri_config::{ContainerPlan, ImageUser, SandboxPlan, container_config, sandbox_config};
use crate::error::PodError;
use crate::peers::{ImageAnswer, ReadyImage};

/// An image that is there is answered in milliseconds; waiting longer while holding a place among the starting pods would
/// make others wait for a pull.
const QUICK: Duration = Duration::from_millis(500);
/// imaged's reason while a pull goes on.
const PULLING: &str = "ContainerCreating";
/// A pull may take this long before imaged is asked again.
const PATIENT: Duration = Duration::from_secs(120);
/// How long a container that could not be made or started waits, when no back-off says otherwise.
const AFTER_FAILURE: Duration = Duration::from_secs(10);

/// What came of it.
pub(super) enum Started {
    /// It runs, or did.
    Yes,
    /// It waits; the reason is in the decision.
    NotBefore(Instant),
}

impl Worker {
    pub(super) async fn start_container(
        &mut self,
        start: &ContainerStart,
        runtime: &RuntimePod,
    ) -> Result<Started, PodError> {
        let pod = self.pod.clone();
        let Some(container) = spec::container(&pod, &start.name) else {
            return Ok(Started::NotBefore(Instant::now() + AFTER_FAILURE));
        };
        self.adopt_backoff(&container, runtime);
        if let Some(at) = self.in_backoff(start) {
            return Ok(Started::NotBefore(at));
        }
        if !runtime.sandboxes.iter().any(|sandbox| sandbox.ready) {
            return Ok(Started::NotBefore(Instant::now()));
        }
        self.take_permit().await;
        let image = match self.image(&container).await? {
            Ok(image) => image,
            Err(at) => return Ok(Started::NotBefore(at)),
        };
        self.take_permit().await;
        self.prepare().await?;
        if start.last_finished_at.is_some() {
            self.backoff.fail(&start.name, self.lived());
        }
        let span = bulkhead_ipc::traced!("syncd container", pod.uid = self.uid, container.name = start.name);
        let made = self.make_and_start(start, &container, runtime, image).instrument(span.clone()).await;
        let counted = made.as_ref().map(drop).map_err(|(reason, _)| *reason);
        self.deps.measures.container_started(start.kind, counted);
        match made {
            Ok(id) => {
                tracing::info!(
                    pod.uid = self.uid,
                    pod.name = self.name(),
                    container = start.name,
                    id,
                    attempt = start.attempt,
                    "container started"
                );
                self.decision.waiting.remove(&start.name);
                self.tell_of(&start.name, event::started());
                if start.kind == ContainerKind::Ephemeral {
                    self.ephemeral_started(&start.name).await;
                }
                if hook::has(&container, HookKind::PostStart) {
                    self.post_start(&Pending::new(&id, &start.name), runtime).await?;
                }
                Ok(Started::Yes)
            }
            Err((reason, message)) => {
                tracing::warn!(
                    pod.uid = self.uid,
                    pod.name = self.name(),
                    container = start.name,
                    reason,
                    message,
                    "container not started"
                );
                bulkhead_ipc::trace::fail(&span, &message);
                self.tell_of(&start.name, event::failed(&message));
                self.wait_for(&start.name, reason, message);
                Ok(Started::NotBefore(Instant::now() + AFTER_FAILURE))
            }
        }
    }

    /// Takes over the back-off that an earlier life left the container in.
    fn adopt_backoff(&mut self, container: &Container, runtime: &RuntimePod) {
        let bounds = (super::FIRST_BACKOFF, self.deps.settings.longest_backoff);
        let found = backoff::earlier(runtime, &container.name, container_hash(container), bounds);
        if let (Some(earlier), Some(begin)) = (found, self.decision.started_at) {
            let last = Duration::try_from(earlier.made_at.duration_since(begin)).unwrap_or_default();
            self.backoff.adopt(&container.name, earlier.delay, last);
        }
    }

    /// When a container that ended may run again; `None` when that is now.
    fn in_backoff(&mut self, start: &ContainerStart) -> Option<Instant> {
        let ended = start.last_finished_at?;
        let now = Instant::now();
        let since = match self.ends.get(&start.name) {
            Some((at, since)) if *at == ended => *since,
            _ => {
                // Its own date counts once, when it is first seen: from then on the clock may jump.
                let by_date = self.deps.clock.now().duration_since(ended);
                let since = now.checked_sub(Duration::try_from(by_date).unwrap_or_default()).unwrap_or(now);
                self.ends.insert(start.name.clone(), (ended, since));
                since
            }
        };
        let elapsed = now.saturating_duration_since(since);
        let mono = self.lived();
        let left = self.backoff.remaining(&start.name, mono.saturating_sub(elapsed), mono);
        if left.is_zero() {
            return None;
        }
        let delay = self.backoff.delay(&start.name).as_secs();
        let pod = self.full_name();
        // Once for each time that it ends.
        if self.told_back_off.get(&start.name) != Some(&ended) {
            self.told_back_off.insert(start.name.clone(), ended);
            self.tell_of(&start.name, event::back_off(&start.name, &pod));
        }
        let message = format!("back-off {delay}s restarting failed container={} pod={pod}", start.name);
        self.wait_for(&start.name, "CrashLoopBackOff", message);
        Some(now + left)
    }

    /// The container's image, or when to ask again.
    async fn image(&mut self, container: &Container) -> Result<Result<ReadyImage, Instant>, PodError> {
        let image = container.image.clone().unwrap_or_default();
        let request = EnsureImageRequest {
            pod_uid: self.uid.clone(),
            container_name: container.name.clone(),
            image: image.clone(),
            pull_policy: container.image_pull_policy.clone().unwrap_or_default(),
            pod_namespace: self.pod.metadata.namespace.clone().unwrap_or_default(),
            pull_secrets: spec::pull_secrets(&self.pod),
            pod_name: self.name().to_owned(),
            service_account: self
                .pod
                .spec
                .as_ref()
                .and_then(|s| s.service_account_name.clone())
                .unwrap_or_default(),
        };
        let span = bulkhead_ipc::traced!("syncd image", pod.uid = self.uid, image = image);
        let asked = Instant::now();
        let quick = self.deps.peers.ensure_image(request.clone(), QUICK).instrument(span).await?;
        let pulling = match &quick {
            ImageAnswer::NotYet => true,
            ImageAnswer::Waiting { reason, .. } => reason == PULLING,
            ImageAnswer::Ready(_) => false,
        };
        let answer = match quick {
            _ if pulling => {
                // A pull: others may start meanwhile, and the pod's end need not wait for it.
                self.permit = None;
                let waiting = ImageAnswer::Waiting {
                    reason: PULLING.to_owned(),
                    message: String::new(),
                    retry_after: Duration::ZERO,
                };
                self.tell_of_image(&container.name, &image, &waiting);
                self.wait_for(&container.name, PULLING, format!("pulling image \"{image}\""));
                self.publish();
                let mut control = self.control.clone();
                let deadline = self.deadline();
                let span = bulkhead_ipc::traced!("syncd image pull", pod.uid = self.uid, image = image);
                let begin = Instant::now();
                let answer = tokio::select! {
                    answer = self.deps.peers.ensure_image(request, PATIENT).instrument(span) => answer,
                    _ = control.changed() => return Ok(Err(Instant::now())),
                    () = bulkhead_reconcile::at(deadline) => return Ok(Err(Instant::now())),
                };
                self.pulls += begin.elapsed();
                answer?
            }
            answer => answer,
        };
        self.tell_of_image(&container.name, &image, &answer);
        match answer {
            ImageAnswer::Ready(ready) => {
                let took = asked.elapsed();
                let event = match ready.pulled {
                    true => event::pulled(&image, took, took, ready.size),
                    false => event::already_present(&image),
                };
                self.tell_of(&container.name, event);
                Ok(Ok(ready))
            }
            ImageAnswer::Waiting { reason, message, retry_after } => {
                self.wait_for(&container.name, &reason, message);
                Ok(Err(Instant::now() + retry_after))
            }
            ImageAnswer::NotYet => Ok(Err(Instant::now())),
        }
    }

    /// Makes the container, unless one that never started can be taken, and starts it. The error is the kubelet's reason
    /// and a text.
    async fn make_and_start(
        &mut self,
        start: &ContainerStart,
        container: &Container,
        runtime: &RuntimePod,
        image: ReadyImage,
    ) -> Result<String, (&'static str, String)> {
        let id = match &start.resume {
            Some(id) => id.clone(),
            None => {
                let Some(sandbox) = runtime.sandboxes.iter().find(|sandbox| sandbox.ready) else {
                    return Err(("CreateContainerError", "the pod's sandbox is gone".to_owned()));
                };
                let target = self.target_of(&container.name, runtime);
                let target = target.map_err(|message| ("CreateContainerConfigError", message))?;
                let (name, attempt) = (container.name.clone(), start.attempt);
                let file =
                    self.in_folders(move |folders, _, _| folders.make_termination_log(&name, attempt)).await;
                file.map_err(|error| ("CreateContainerError", chain(&error).to_string()))?;
                let hosts = self.write_hosts(sandbox).await;
                hosts.map_err(|error| ("CreateContainerError", chain(&error).to_string()))?;
                let objects = self.deps.environment.read(&self.pod, container, &mut self.env).await;
                let objects = objects.map_err(|message| ("CreateContainerConfigError", message))?;
                let mut request = self
                    .create_request(start, container, sandbox, image, target.as_deref(), &objects)
                    .map_err(|error| ("CreateContainerConfigError", chain(&error).to_string()))?;
                let parts = self.bind_sub_paths(container, &mut request).await;
                parts.map_err(|message| ("CreateContainerConfigError", message))?;
                self.acted = true;
                let made = self.deps.runtime.create_container(request).await;
                let made = made.map_err(|error| ("CreateContainerError", error.runtime_message()))?;
                self.remember_applied(&made, container.resources.clone().unwrap_or_default());
                self.tell_of(&start.name, event::created());
                made
            }
        };
        self.acted = true;
        if hook::has(container, HookKind::PostStart) {
            // Before anybody can see it run.
            self.decision.in_post_start.insert(id.clone());
            self.publish();
        }
        match self.deps.runtime.start_container(&id).await {
            Ok(()) => Ok(id),
            Err(error) => Err(("RunContainerError", error.runtime_message())),
        }
    }

    fn pod_ips(&self, sandbox: &bulkhead_model::runtime::Sandbox) -> Vec<String> {
        let node_ips = &self.deps.settings.node_ips;
        if spec::host_network(&self.pod) {
            return node_ips.clone();
        }
        status::one_per_family(&sandbox.ips, node_ips.first())
    }

    /// Whether there is anything to say in the pod's `/etc/hosts`.
    fn has_hosts(&self, sandbox: &bulkhead_model::runtime::Sandbox) -> bool {
        spec::host_network(&self.pod) || !self.pod_ips(sandbox).is_empty()
    }

    async fn write_hosts(&self, sandbox: &bulkhead_model::runtime::Sandbox) -> Result<(), PodError> {
        if !self.has_hosts(sandbox) {
            return Ok(());
        }
        let (identity, ips) = (self.identity.clone(), self.pod_ips(sandbox));
        self.in_folders(move |folders, pod, _| folders.write_hosts(&identity.hosts(pod, &ips))).await
    }

    fn create_request(
        &self,
        start: &ContainerStart,
        container: &Container,
        sandbox: &bulkhead_model::runtime::Sandbox,
        image: ReadyImage,
        target: Option<&str>,
        objects: &EnvObjects,
    ) -> Result<wire::CreateContainerRequest, crate::cri_config::ConfigError> {
        let settings = &self.deps.settings;
        let pod_ips = self.pod_ips(sandbox);
        let hosts = self.folders.hosts();
        let handler = self.known_handler().unwrap_or_default();
        let config = container_config(&ContainerPlan {
            container,
            attempt: start.attempt,
            backoff: self.backoff.delay(&container.name),
            image_ref: &image.image_ref,
            image_user: ImageUser { uid: image.uid, name: image.username },
            facts: PodFacts {
                pod: &self.pod,
                node_name: &settings.node_name,
                pod_ips: &pod_ips,
                host_ips: &settings.node_ips,
                allocatable_cpu: settings.cpus,
                allocatable_memory: settings.memory,
            },
            objects,
            volumes: &self.volumes,
            termination_log: self.folders.termination_log(&container.name, start.attempt).as_deref(),
            hosts: self.has_hosts(sandbox).then_some(hosts.as_path()),
            recursive_read_only: self.features.recursive_read_only(&handler),
            target,
            cgroups: &settings.cgroups,
            node: &settings.traits,
        })?;
        let parent = self.deps.cgroups.layout().cgroup_parent(&self.cgroup);
        let sandbox_config = sandbox_config(&SandboxPlan {
            pod: &self.pod,
            attempt: sandbox.attempt,
            cgroup_parent: &parent,
            pod_logs_dir: &settings.pod_logs_dir,
            traceparent: &sandbox.traceparent,
            identity: &self.identity,
            cgroups: &settings.cgroups,
        });
        Ok(wire::CreateContainerRequest {
            pod_sandbox_id: sandbox.id.clone(),
            config: Some(config),
            sandbox_config: Some(sandbox_config),
        })
    }

    pub(super) fn wait_for(&mut self, container: &str, reason: &str, mut message: String) {
        message.truncate(message.floor_char_boundary(1024));
        self.decision.waiting.insert(container.to_owned(), Waiting { reason: reason.to_owned(), message });
    }
}
