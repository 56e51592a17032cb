//! Resources that change while the pod runs (KEP 1287): first they are accepted or not, then made so.
//!
//! Everything else of the worker knows the accepted ones alone ([`Worker::pod`]): what was only asked for is never given to a
//! container, not even to one that is restarted.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use bulkhead_base::chain;
use bulkhead_cgroup::read_stats;
use bulkhead_cri::{Run, wire};
use bulkhead_model::decision::{ResizeStep, Stage};
use bulkhead_model::resize::{self, Allocation, Change, Verdict};
use bulkhead_model::runtime::{ContainerState, RuntimePod};
use bulkhead_model::status_view::ResourceView;
use bulkhead_model::{event, resources, spec};
use k8s_openapi::api::core::v1::{Container, Pod, ResourceRequirements};
use tokio::time::Instant;

use super::{Deps, Worker};
use crate::cri_config::{check_memory_limit, resources_update};
use crate::error::PodError;
use crate::state::{Changing, PodResources};

/// How soon a change is tried again that has to wait or failed.
const AGAIN: Duration = Duration::from_secs(5);
/// The kubelet's words.
const DEFERRED: &str = "Deferred";
const INFEASIBLE: &str = "Infeasible";
const ERROR: &str = "Error";

impl Deps {
    /// Pods that this node took and that are not over, with what was accepted of them.
    pub fn taken(&self) -> Vec<Arc<Pod>> {
        let mut pods = self.views.pods();
        pods.retain(|pod| {
            let record = self.records.get(pod.metadata.uid.as_deref().unwrap_or_default());
            record.is_none_or(|record| !record.finished && record.failed.is_none())
        });
        pods
    }
}

/// A pod with the resources that were accepted of it.
pub(super) fn accepted(asked: &Arc<Pod>, allocated: Option<&Allocation>) -> Arc<Pod> {
    match allocated {
        Some(allocated) if !allocated.is_same(&Allocation::of(asked)) => {
            let mut pod = Pod::clone(asked);
            allocated.put_into(&mut pod);
            Arc::new(pod)
        }
        _ => asked.clone(),
    }
}

impl Worker {
    /// Takes the pod as it is asked for by now. Whether that is anything new.
    pub(super) fn take(&mut self, asked: Arc<Pod>) -> bool {
        if Arc::ptr_eq(&asked, &self.asked) {
            return false;
        }
        self.pod = accepted(&asked, self.pod_resources().allocated.as_ref());
        self.asked = asked;
        true
    }

    /// Decides about the resources that are asked for.
    pub(super) async fn judge_resize(&mut self) {
        let over = self.decision.stage != Stage::Syncing
            || self.decision.failed.is_some()
            || spec::final_phase(&self.pod).is_some();
        if over || Arc::ptr_eq(&self.pod, &self.asked) {
            self.decision.resize.pending = None;
            return;
        }
        let (reason, message) = match self.try_resize() {
            Verdict::Accepted => {
                tracing::info!(pod.uid = self.uid, pod.name = self.name(), "other resources were accepted");
                // A next life must know what this one gave.
                self.deps.records.kept().await;
                return;
            }
            Verdict::Deferred(message) => (DEFERRED, message),
            Verdict::Infeasible(message) => (INFEASIBLE, message),
        };
        let step = ResizeStep { reason: reason.to_owned(), message, generation: self.generation() };
        if self.decision.resize.pending.as_ref() != Some(&step) {
            let message = &step.message;
            tracing::info!(
                pod.uid = self.uid,
                pod.name = self.name(),
                reason,
                message,
                "resources are not changed"
            );
            self.tell(event::resize(reason, &resize::summary(&self.asked, message)));
            self.decision.resize.pending = Some(step);
        }
    }

    /// What is accepted counts for others at once.
    fn try_resize(&mut self) -> Verdict {
        for found in spec::containers(&self.asked) {
            if let Err(error) = check_memory_limit(found.container) {
                return Verdict::Infeasible(chain(&error).to_string());
            }
        }
        let deps = self.deps.clone();
        let _one_at_a_time = deps.room.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = deps.taken();
        let others = taken.iter().map(|pod| &**pod);
        let verdict = resize::judge(&self.pod, &self.asked, others, &deps.settings.node);
        if verdict == Verdict::Accepted {
            let (allocated, generation) = (Allocation::of(&self.asked), self.generation());
            deps.records.update(&self.uid, |record| {
                let own = &mut record.resources;
                // What one that is being made began with stands until all of it is.
                let earlier = own.changing.take().and_then(|changing| changing.before);
                let before = earlier.or_else(|| own.allocated.take().and_then(|allocated| allocated.pod));
                own.allocated = Some(allocated);
                own.changing = Some(Changing { generation, before });
            });
            self.pod = self.asked.clone();
            self.decision.resize.pending = None;
            self.resize_error = None;
            self.tell_resize(&self.at_a_glance());
            self.publish();
            self.tell(event::resize("Started", &resize::summary(&self.pod, "")));
            deps.resized.notify_one();
        }
        verdict
    }

    /// Nothing is to be done about resources.
    pub(super) fn resize_is_settled(&self, runtime: &RuntimePod) -> bool {
        self.pod_resources().changing.is_none() && self.outstanding(runtime).is_empty()
    }

    /// When a change that waits is looked at again; `None` for none.
    pub(super) fn resize_again(&self) -> Option<Instant> {
        let deferred = self.decision.resize.pending.as_ref().is_some_and(|step| step.reason == DEFERRED);
        (deferred || self.resize_error.is_some()).then(|| Instant::now() + AGAIN)
    }

    /// Ids of containers that must be restarted for their resources to change.
    pub(super) fn restarts_for_resources(&self, runtime: &RuntimePod) -> BTreeSet<String> {
        let outstanding = self.outstanding(runtime).into_iter();
        outstanding.filter(|(.., change)| *change == Change::Restart).map(|(id, ..)| id).collect()
    }

    /// Gives running containers what was accepted, and then the pod's cgroup: it is raised before, and lowered after them.
    pub(super) async fn apply_resize(&mut self, runtime: &RuntimePod) -> Result<(), PodError> {
        let mut work = self.outstanding(runtime);
        work.retain(|(.., change)| *change == Change::InPlace);
        if work.is_empty() && self.pod_resources().changing.is_none() {
            return Ok(());
        }
        let before = self.resize_error.take();
        if !work.is_empty() {
            self.make_folders(runtime).await?;
        }
        let pod = self.pod.clone();
        for (id, name, _) in work {
            let Some(container) = spec::container(&pod, &name) else { continue };
            match self.give(&id, &container).await {
                Ok(()) => {
                    let now = container.resources.clone().unwrap_or_default();
                    self.remember_applied(&id, now);
                    tracing::info!(
                        pod.uid = self.uid,
                        pod.name = self.name(),
                        container = name,
                        "resources changed"
                    );
                }
                Err(error) => {
                    if before.as_ref() != Some(&error) {
                        tracing::warn!(
                            pod.uid = self.uid,
                            container = name,
                            error,
                            "resources are not changed"
                        );
                        self.tell(event::resize(ERROR, &resize::summary(&self.pod, &error)));
                    }
                    self.resize_error = Some(error);
                }
            }
        }
        if self.outstanding(runtime).is_empty() {
            let mut changing = false;
            self.deps
                .records
                .update(&self.uid, |record| changing = record.resources.changing.take().is_some());
            // Without the room that it needed until now.
            self.make_folders(runtime).await?;
            if changing {
                self.tell(event::resize("Completed", &resize::summary(&self.pod, "")));
            }
        }
        self.deps.records.kept().await;
        self.tell_resize(runtime);
        Ok(())
    }

    /// Folders and cgroup of the pod, which has room for what its containers have and for what they are to have.
    pub(super) async fn make_folders(&self, runtime: &RuntimePod) -> Result<(), PodError> {
        let room = self.pod_resources().changing.map(|changing| {
            let applied = Allocation { pod: changing.before, containers: self.applied(runtime) };
            resize::roomier(&self.pod, &applied)
        });
        self.in_folders(move |folders, pod, settings| folders.make(room.as_ref().unwrap_or(pod), settings))
            .await
    }

    /// What pleg has last seen of the pod, however old.
    pub(super) fn at_a_glance(&self) -> RuntimePod {
        self.deps.runtime_pods.get(&self.uid).map(|pod| (*pod).clone()).unwrap_or_default()
    }

    /// A container was made with these.
    pub(super) fn remember_applied(&self, id: &str, now: ResourceRequirements) {
        let id = id.to_owned();
        self.deps.records.update(&self.uid, |record| {
            if record.resources.allocated.is_some() {
                record.resources.applied.insert(id, now);
            }
        });
    }

    /// Forgets containers that are gone, and tells how far a change has come.
    pub(super) fn follow_resources(&mut self, runtime: &RuntimePod) {
        let held = |id: &String| runtime.containers.iter().any(|container| container.id == *id);
        self.deps.records.update(&self.uid, |record| record.resources.applied.retain(|id, _| held(id)));
        self.tell_resize(runtime);
    }

    fn tell_resize(&mut self, runtime: &RuntimePod) {
        let own = self.pod_resources();
        self.decision.resize.progress = own.changing.map(|Changing { generation, .. }| ResizeStep {
            reason: self.resize_error.as_ref().map(|_| ERROR.to_owned()).unwrap_or_default(),
            message: self.resize_error.clone().unwrap_or_default(),
            generation,
        });
        let mut applied = self.applied(runtime);
        applied.retain(|name, has| {
            let wanted = spec::container(&self.pod, name);
            wanted.is_some_and(|wanted| !resize::is_same(has, wanted.resources.as_ref()))
        });
        self.decision.resize.applied_total = (!applied.is_empty()).then(|| {
            let mut pod = Pod::clone(&self.pod);
            let pod_level = pod.spec.as_ref().and_then(|spec| spec.resources.clone());
            Allocation { pod: pod_level, containers: applied.clone() }.put_into(&mut pod);
            ResourceView::total(resources::pod(&pod))
        });
        let views = applied.iter().map(|(name, has)| (name.clone(), ResourceView::new(Some(has))));
        self.decision.resize.applied = views.collect();
    }

    /// Containers that run with other resources than were accepted: id, name, and what that means.
    fn outstanding(&self, runtime: &RuntimePod) -> Vec<(String, String, Change)> {
        let own = self.pod_resources();
        if own.allocated.is_none() {
            return Vec::new();
        }
        let mut found = Vec::new();
        for (id, wanted) in running(&self.pod, runtime) {
            // One that nothing is known of was made by a life that ended too soon to remember, or by a kubelet.
            let change = own.applied.get(&id).map_or(Change::InPlace, |has| resize::change(wanted, has));
            if change != Change::None {
                found.push((id, wanted.name.clone(), change));
            }
        }
        found
    }

    /// By name: what running containers have, as far as that is known.
    fn applied(&self, runtime: &RuntimePod) -> BTreeMap<String, ResourceRequirements> {
        let own = self.pod_resources();
        let has =
            |(id, wanted): (String, &Container)| Some((wanted.name.clone(), own.applied.get(&id)?.clone()));
        running(&self.pod, runtime).into_iter().filter_map(has).collect()
    }

    /// The error is a text for people.
    async fn give(&self, id: &str, container: &Container) -> Result<(), String> {
        let settings = &self.deps.settings;
        let update = resources_update(&self.pod, container, &settings.cgroups, &settings.traits);
        if let (Ok(limit), Some(used)) =
            (u64::try_from(update.memory_limit_in_bytes), self.memory_of(id).await)
            && (1..used).contains(&limit)
        {
            // The kernel would take it by force.
            return Err(format!(
                "attempting to set memory limit of container {} ({limit}) below current usage ({used})",
                container.name
            ));
        }
        let request = wire::UpdateContainerResourcesRequest {
            container_id: id.to_owned(),
            linux: Some(update),
            ..Default::default()
        };
        let updated = self.deps.runtime.update_container_resources(request).await;
        updated.map_err(|error| format!("container {}: {}", container.name, error.runtime_message()))
    }

    /// Bytes that a container cannot do without, where that can be told.
    async fn memory_of(&self, id: &str) -> Option<u64> {
        let (cgroups, cgroup, id) = (self.deps.cgroups.clone(), self.cgroup.clone(), id.to_owned());
        let read = tokio::task::spawn_blocking(move || {
            let path = cgroups.layout().container(&cgroup, &id).ok()?;
            read_stats(cgroups.mounts(), &path).ok().flatten()
        });
        read.await.ok().flatten()?.memory?.working_set
    }

    fn generation(&self) -> i64 {
        self.asked.metadata.generation.unwrap_or(0)
    }

    fn pod_resources(&self) -> PodResources {
        self.deps.records.get(&self.uid).map(|record| record.resources).unwrap_or_default()
    }
}

/// Ids of the pod's containers that run, with their specs.
fn running<'a>(pod: &'a Pod, runtime: &RuntimePod) -> Vec<(String, &'a Container)> {
    let find = |found: &spec::SpecContainer<'a>| {
        let newest = runtime.newest(found.name())?;
        (newest.state == ContainerState::Running).then(|| (newest.id.clone(), found.container))
    };
    spec::containers(pod).iter().filter_map(find).collect()
}
