//! Which cgroups are read for which pod and container. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bulkhead_api::syncd::v1::StatsView;
use bulkhead_base::chain;
use bulkhead_cgroup::{CgroupError, CgroupName, CgroupPath, Layout, PodCgroup};
use bulkhead_model::runtime::RuntimePod;
use jiff::Timestamp;

use crate::problems::Problems;

/// Everything that one collection is about.
#[derive(Debug)]
pub(crate) struct Plan {
    /// The cgroup that holds all pods.
    pub(crate) kubepods: CgroupPath,
    /// Those in it that hold the pods of a class.
    pub(crate) tiers: [CgroupPath; 2],
    /// Pods by UID.
    pub(crate) pods: Vec<PodPlan>,
    /// Pods and containers whose cgroup has no usable name.
    pub(crate) problems: Problems,
}

/// One pod.
#[derive(Debug)]
pub(crate) struct PodPlan {
    /// Who it is.
    pub(crate) view: Arc<StatsView>,
    /// Its cgroup.
    pub(crate) cgroup: CgroupPath,
    /// Its newest sandbox, if there is one.
    pub(crate) sandbox: Option<SandboxPlan>,
    /// Its running containers by name.
    pub(crate) containers: Vec<ContainerPlan>,
}

/// A pod's sandbox.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SandboxPlan {
    /// The runtime's id.
    pub(crate) id: String,
    /// Its cgroup.
    pub(crate) cgroup: CgroupPath,
    /// When it was made.
    pub(crate) made_at: Timestamp,
    /// Whether its network is not the node's.
    pub(crate) own_network: bool,
}

/// One container that runs.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ContainerPlan {
    /// Its name in the pod.
    pub(crate) name: String,
    /// The runtime's id.
    pub(crate) id: String,
    /// As the pod names it.
    pub(crate) image: String,
    /// When it was made.
    pub(crate) made_at: Timestamp,
    /// Its cgroup.
    pub(crate) cgroup: CgroupPath,
    /// When it was started, or made if the runtime does not tell.
    pub(crate) started_at: Timestamp,
}

impl Plan {
    /// For the pods that syncd wants (`views`) as far as the runtime holds them (`running`), each by UID.
    pub(crate) fn new(
        layout: &Layout,
        views: BTreeMap<String, Arc<StatsView>>,
        running: &BTreeMap<String, Arc<RuntimePod>>,
    ) -> Self {
        let mut problems = Problems::default();
        let mut pods = Vec::with_capacity(views.len());
        for (uid, view) in views {
            match pod_cgroup(layout, &view.cgroup) {
                Ok(Some(cgroup)) => {
                    let runtime = running.get(&uid).map(Arc::as_ref);
                    pods.push(PodPlan {
                        view,
                        cgroup: layout.path(&CgroupName::Pod(cgroup.clone())),
                        sandbox: runtime.and_then(|pod| sandbox(layout, &cgroup, pod, &mut problems)),
                        containers: runtime
                            .map(|pod| containers(layout, &cgroup, pod, &mut problems))
                            .unwrap_or_default(),
                    });
                }
                // Whatever a pod says, no cgroup but pods' own is read.
                Ok(None) => {
                    problems.add(format!("pod {uid}: its cgroup {:?} is not one of a pod", view.cgroup))
                }
                Err(error) => problems.add(format!("pod {uid}: {}", chain(&error))),
            }
        }
        let tiers = [CgroupName::Burstable, CgroupName::BestEffort].map(|tier| layout.path(&tier));
        Self { kubepods: layout.path(&CgroupName::Kubepods), tiers, pods, problems }
    }

    /// Every cgroup that is to be read, the root among them.
    pub(crate) fn cgroups(&self) -> BTreeSet<CgroupPath> {
        let pods = self.pods.iter().map(|pod| &pod.cgroup);
        let containers =
            self.pods.iter().flat_map(|pod| pod.containers.iter().map(|container| &container.cgroup));
        let all = [&self.kubepods].into_iter().chain(pods).chain(containers).cloned();
        all.chain([CgroupPath::root()]).collect()
    }
}

fn pod_cgroup(layout: &Layout, path: &str) -> Result<Option<PodCgroup>, CgroupError> {
    let name = layout.name(&CgroupPath::parse(path)?);
    Ok(match name {
        Some(CgroupName::Pod(pod)) => Some(pod),
        _ => None,
    })
}

fn sandbox(
    layout: &Layout,
    cgroup: &PodCgroup,
    pod: &RuntimePod,
    problems: &mut Problems,
) -> Option<SandboxPlan> {
    let sandbox = pod.newest_sandbox()?;
    match layout.container(cgroup, &sandbox.id) {
        Ok(path) => Some(SandboxPlan {
            id: sandbox.id.clone(),
            cgroup: path,
            made_at: sandbox.created_at,
            // pleg names no address for a pod in the node's network.
            own_network: !sandbox.ips.is_empty(),
        }),
        Err(error) => {
            problems.add(format!("sandbox of pod {}: {}", pod.uid, chain(&error)));
            None
        }
    }
}

/// The newest container of each name, if it runs: figures of an attempt that ended are nobody's.
fn containers(
    layout: &Layout,
    cgroup: &PodCgroup,
    pod: &RuntimePod,
    problems: &mut Problems,
) -> Vec<ContainerPlan> {
    let mut newest = BTreeMap::new();
    for container in &pod.containers {
        newest.entry(container.name.as_str()).or_insert(container);
    }
    let mut plans = Vec::new();
    for container in newest.into_values().filter(|container| container.may_run()) {
        match layout.container(cgroup, &container.id) {
            Ok(path) => plans.push(ContainerPlan {
                name: container.name.clone(),
                id: container.id.clone(),
                image: container.image.clone(),
                made_at: container.created_at,
                cgroup: path,
                started_at: container.started_at.unwrap_or(container.created_at),
            }),
            Err(error) => {
                problems.add(format!("container {} of pod {}: {}", container.name, pod.uid, chain(&error)))
            }
        }
    }
    plans
}

#[cfg(test)]
mod tests {
    use bulkhead_model::runtime::ContainerState::{Created, Exited, Running, Unknown};

    use super::*;
    use crate::testing::{container, path, runtime_pod, second, view};

    fn plan(views: &[StatsView], pods: &[RuntimePod]) -> Plan {
        let views = views.iter().map(|view| (view.uid.clone(), Arc::new(view.clone()))).collect();
        let pods = pods.iter().map(|pod| (pod.uid.clone(), Arc::new(pod.clone()))).collect();
        Plan::new(&Layout::new(CgroupPath::root()), views, &pods)
    }

    #[test]
    fn the_newest_running_container_of_each_name_is_read() {
        let mut pod = runtime_pod("u1", 7);
        pod.containers = vec![
            container("init", "i0", Exited),
            container("app", "a2", Running),
            container("app", "a1", Running),
            container("side", "s1", Exited),
            container("side", "s0", Running),
            container("new", "n0", Created),
            container("odd", "o0", Unknown),
        ];
        pod.containers[6].started_at = None;
        let plan = plan(&[view("u1", "/kubepods/podu1"), view("u2", "/kubepods/burstable/podu2")], &[pod]);
        assert_eq!(plan.problems, Problems::default());
        let [one, two] = plan.pods.as_slice() else { panic!("two pods: {plan:?}") };
        let sandbox = SandboxPlan {
            id: "sandbox-u1".to_owned(),
            cgroup: path("/kubepods/podu1/sandbox-u1"),
            made_at: second(7),
            own_network: false,
        };
        assert_eq!(one.sandbox, Some(sandbox));
        let expected = [("app", "a2", second(20)), ("odd", "o0", second(10))];
        let expected = expected.map(|(name, id, started_at)| ContainerPlan {
            name: name.to_owned(),
            id: id.to_owned(),
            image: "bb:1".to_owned(),
            made_at: second(10),
            cgroup: path(&format!("/kubepods/podu1/{id}")),
            started_at,
        });
        assert_eq!(one.containers, expected);
        assert_eq!(
            (two.sandbox.is_none(), two.containers.len()),
            (true, 0),
            "the runtime holds nothing of it"
        );
        let all = [
            "/",
            "/kubepods",
            "/kubepods/burstable/podu2",
            "/kubepods/podu1",
            "/kubepods/podu1/a2",
            "/kubepods/podu1/o0",
        ];
        assert_eq!(plan.cgroups(), all.map(path).into());
    }

    #[test]
    fn names_that_lead_elsewhere_are_refused_and_the_rest_goes_on() {
        let mut pod = runtime_pod("good", 0);
        pod.containers = vec![container("bad", "../x", Running), container("fine", "f", Running)];
        let foreign = ["/", "/kubepods", "/system.slice", "/kubepods/../etc", "/kubepods/podx/y", ""];
        let mut views: Vec<_> =
            foreign.iter().enumerate().map(|(n, cgroup)| view(&format!("bad{n}"), cgroup)).collect();
        views.push(view("good", "/kubepods/besteffort/podgood"));
        let plan = plan(&views, &[pod]);
        let names: Vec<_> = plan.pods.iter().map(|pod| pod.view.uid.as_str()).collect();
        assert_eq!(names, ["good"]);
        assert_eq!(plan.pods[0].containers.len(), 1);
        assert_eq!(plan.problems.count(), foreign.len() + 1);
    }
}
