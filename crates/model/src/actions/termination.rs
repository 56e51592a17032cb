//! The order in which a pod's containers are stopped.

use k8s_openapi::api::core::v1::Pod;

use crate::runtime::RuntimePod;
use crate::spec::{self, ContainerKind};

/// Containers that are stopped at once; the next step begins when all of them have ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StopStep {
    /// The runtime's ids with the names in the pod's spec.
    pub containers: Vec<(String, String)>,
}

/// Which containers to stop, step by step: first everything but sidecars, then the sidecars one by one, the last one of
/// the spec first (KEP 753). The same before the pod was initialised. Only what may run is listed; empty steps are not.
pub fn compute_termination_order(pod: &Pod, runtime: &RuntimePod) -> Vec<StopStep> {
    let containers = spec::containers(pod);
    let sidecars: Vec<&str> =
        containers.iter().filter(|c| c.kind == ContainerKind::Sidecar).map(|c| c.name()).collect();
    let step = |wanted: &dyn Fn(&str) -> bool| StopStep {
        containers: runtime
            .containers
            .iter()
            .filter(|c| c.may_run() && wanted(&c.name))
            .map(|c| (c.id.clone(), c.name.clone()))
            .collect(),
    };
    let mut steps = vec![step(&|name| !sidecars.contains(&name))];
    steps.extend(sidecars.iter().rev().map(|sidecar| step(&|name| name == *sidecar)));
    steps.retain(|step| !step.containers.is_empty());
    steps
}
