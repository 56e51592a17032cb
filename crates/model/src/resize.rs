//! Resources that change while a pod runs (KEP 1287).
//!
//! Owns what of a pod changes in place, whether its node takes a change, and what that means for each container. Must never
//! call done what was only asked for: what was accepted and what applies are two things.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Pod, ResourceRequirements};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::admission::{self, Node};
use crate::quantity::Quantity;
use crate::resources::{self, Amounts, ResourceList, Resources};

/// Resources that change in place; no other does.
const RESIZED: [&str; 2] = ["cpu", "memory"];
/// `resizePolicy` of a resource whose change needs a restart.
const RESTART: &str = "RestartContainer";

/// Requests and limits of a pod: those that are asked for, or those that its node accepted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Allocation {
    /// Of the pod as a whole (`spec.resources`).
    #[serde(default)]
    pub pod: Option<ResourceRequirements>,
    /// By container, init containers among them.
    pub containers: BTreeMap<String, ResourceRequirements>,
}

/// What a node says to a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is accepted.
    Accepted,
    /// There is no room for it at present: it has to wait.
    Deferred(String),
    /// There never is.
    Infeasible(String),
}

/// What a change of resources means for a container that runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Nothing is to change.
    None,
    /// It goes on with other resources.
    InPlace,
    /// It has to be restarted, by its `resizePolicy`.
    Restart,
}

impl Allocation {
    /// What the pod has in its spec.
    pub fn of(pod: &Pod) -> Self {
        let Some(spec) = &pod.spec else { return Self::default() };
        let all = spec.init_containers.iter().flatten().chain(&spec.containers);
        let own = |container: &Container| container.resources.clone().unwrap_or_default();
        Self {
            pod: spec.resources.clone(),
            containers: all.map(|container| (container.name.clone(), own(container))).collect(),
        }
    }

    /// Puts these in place of the pod's own. A container that is not known keeps what it has.
    pub fn put_into(&self, pod: &mut Pod) {
        let Some(spec) = &mut pod.spec else { return };
        spec.resources.clone_from(&self.pod);
        for container in spec.init_containers.iter_mut().flatten().chain(&mut spec.containers) {
            if let Some(own) = self.containers.get(&container.name) {
                container.resources = Some(own.clone());
            }
        }
    }

    /// Whether both mean the same, however they are written.
    pub fn is_same(&self, other: &Self) -> bool {
        let known = |name: &String| self.containers.contains_key(name);
        figures(self.pod.as_ref()) == figures(other.pod.as_ref())
            && self.containers.len() == other.containers.len()
            && other.containers.keys().all(known)
            && self.containers.iter().all(|(name, own)| is_same(own, other.containers.get(name)))
    }
}

/// Whether a container's resources mean the same.
pub fn is_same(one: &ResourceRequirements, other: Option<&ResourceRequirements>) -> bool {
    figures(Some(one)) == figures(other)
}

fn figures(requirements: Option<&ResourceRequirements>) -> Resources {
    let container = Container { resources: requirements.cloned(), ..Container::default() };
    resources::container(&container)
}

/// Whether a node takes a change from what it accepted of a pod to what is `wanted`, beside `others`: all pods that it took and
/// that are not over. What gets smaller always fits.
pub fn judge<'a>(
    accepted: &Pod,
    wanted: &Pod,
    others: impl IntoIterator<Item = &'a Pod> + Clone,
    node: &Node,
) -> Verdict {
    let grows = |name: &&str| admission::wanted(wanted, name) > admission::wanted(accepted, name);
    let growing: Vec<&str> = RESIZED.into_iter().filter(grows).collect();
    for name in &growing {
        let Some(has) = resources::amount(Some(&node.allocatable), name) else { continue };
        let wants = admission::wanted(wanted, name);
        if wants > has {
            let (wants, has) = (admission::figure(name, wants), admission::figure(name, has));
            return Verdict::Infeasible(format!(
                "Node didn't have enough capacity: {name}, requested: {wants}, capacity: {has}"
            ));
        }
    }
    let short = growing.iter().find_map(|name| admission::shortage(wanted, others.clone(), node, name));
    short.map_or(Verdict::Accepted, Verdict::Deferred)
}

/// What is to become of a container that runs with `applied`, by what was accepted for it by now.
pub fn change(container: &Container, applied: &ResourceRequirements) -> Change {
    let (wanted, has) = (resources::container(container), figures(Some(applied)));
    if wanted == has {
        return Change::None;
    }
    let restarts = |name: &str| {
        let mut policies = container.resize_policy.iter().flatten();
        policies.any(|policy| policy.resource_name == name && policy.restart_policy == RESTART)
    };
    let cpu = wanted.requests.cpu != has.requests.cpu || wanted.limits.cpu != has.limits.cpu;
    // A request of memory is nothing that a process could see.
    let memory = wanted.limits.memory != has.limits.memory;
    if (cpu && restarts("cpu")) || (memory && restarts("memory")) { Change::Restart } else { Change::InPlace }
}

/// The pod with the greater of what was accepted and what applies, as a whole and container by container: what its cgroup has to
/// allow while one turns into the other.
pub fn roomier(pod: &Pod, applied: &Allocation) -> Pod {
    let mut pod = pod.clone();
    let Some(spec) = &mut pod.spec else { return pod };
    let (one, other) = (figures(spec.resources.as_ref()), figures(applied.pod.as_ref()));
    if one != other {
        let own = spec.resources.get_or_insert_default();
        put(&mut own.requests, one.requests.max(other.requests));
        put(&mut own.limits, at_most(one.limits, other.limits));
    }
    for container in spec.init_containers.iter_mut().flatten().chain(&mut spec.containers) {
        let Some(applied) = applied.containers.get(&container.name) else { continue };
        let (one, other) = (resources::container(container), figures(Some(applied)));
        let own = container.resources.get_or_insert_default();
        put(&mut own.requests, one.requests.max(other.requests));
        put(&mut own.limits, at_most(one.limits, other.limits));
    }
    pod
}

/// No limit is more than any.
fn at_most(one: Amounts, other: Amounts) -> Amounts {
    let both = |a: Option<Quantity>, b: Option<Quantity>| Some(a?.max(b?));
    Amounts { cpu: both(one.cpu, other.cpu), memory: both(one.memory, other.memory) }
}

fn put(list: &mut Option<ResourceList>, amounts: Amounts) {
    let list = list.get_or_insert_default();
    for (name, amount) in [("cpu", amounts.cpu), ("memory", amounts.memory)] {
        match amount {
            Some(amount) => {
                let text = k8s_openapi::apimachinery::pkg::api::resource::Quantity(amount.to_string());
                list.insert(name.to_owned(), text);
            }
            None => {
                list.remove(name);
            }
        }
    }
}

/// The accepted resources of a pod as Events tell them, with what is in their way.
pub fn summary(pod: &Pod, error: &str) -> String {
    let Allocation { pod: whole, .. } = Allocation::of(pod);
    let own = |container: &Container| json!({"name": container.name, "resources": container.resources.clone().unwrap_or_default()});
    let list = |list: &[Container]| list.iter().map(own).collect::<Vec<_>>();
    let spec = pod.spec.clone().unwrap_or_default();
    let mut all = serde_json::Map::new();
    if let Some(init) = spec.init_containers.filter(|init| !init.is_empty()) {
        all.insert("initContainers".to_owned(), list(&init).into());
    }
    all.insert("containers".to_owned(), list(&spec.containers).into());
    if let Some(whole) = whole {
        all.insert("resources".to_owned(), json!(whole));
    }
    all.insert("generation".to_owned(), json!(pod.metadata.generation.unwrap_or(0)));
    if !error.is_empty() {
        all.insert("error".to_owned(), json!(error));
    }
    serde_json::Value::from(all).to_string()
}

#[cfg(test)]
mod tests;
