//! Changes of resources: what was accepted, what applies, and what waits.

use super::*;
use crate::decision::{Resize, ResizeStep};
use RestartPolicy::Always;

fn amounts(cpu: &str) -> ResourceView {
    ResourceView { requests: [("cpu".to_owned(), cpu.to_owned())].into(), limits: BTreeMap::new() }
}

fn cpu(list: Option<&BTreeMap<String, k8s_openapi::apimachinery::pkg::api::resource::Quantity>>) -> String {
    list.and_then(|list| list.get("cpu")).map(|amount| amount.0.clone()).unwrap_or_default()
}

/// Allocated and applied CPU of the container and of the pod, then conditions about it.
fn told(status: &PodStatus) -> ([String; 4], Vec<(String, String, i64)>) {
    let a = of(status, "a");
    let applied = |resources: &Option<k8s_openapi::api::core::v1::ResourceRequirements>| {
        cpu(resources.as_ref().and_then(|resources| resources.requests.as_ref()))
    };
    let figures = [
        cpu(a.allocated_resources.as_ref()),
        applied(&a.resources),
        cpu(status.allocated_resources.as_ref()),
        applied(&status.resources),
    ];
    let conditions = status.conditions.iter().flatten().filter(|found| found.type_.starts_with("PodResize"));
    let conditions = conditions.map(|found| {
        let reason = found.reason.clone().unwrap_or_default();
        (found.type_.clone(), reason, found.observed_generation.unwrap())
    });
    (figures, conditions.collect())
}

#[test]
fn a_change_is_told_step_by_step_and_leaves_nothing_behind() {
    let mut world = World::new(view(Always, &["a"]), vec![container("a", 0, Running, 0)]);
    let set = |world: &mut World, allocated: &str, generation: i64| {
        world.pod.containers[0].resources = amounts(allocated);
        world.pod.resources = amounts(allocated);
        world.pod.generation = generation;
    };
    set(&mut world, "100m", 1);
    let all = |text: &str| [(); 4].map(|()| text.to_owned());
    let before = world.step();
    assert_eq!(told(&before), (all("100m"), vec![]));

    set(&mut world, "100m", 2);
    let step = |reason: &str, generation: i64| {
        Some(ResizeStep { reason: reason.into(), message: "m".into(), generation })
    };
    world.decision.resize.pending = step("Infeasible", 2);
    let status = world.step();
    assert_eq!(told(&status), (all("100m"), vec![("PodResizePending".into(), "Infeasible".into(), 2)]));
    assert_eq!(status.observed_generation, Some(2));
    let first = since(&status, "PodResizePending");
    world.decision.resize.pending = step("Deferred", 3);
    assert_eq!(since(&world.step(), "PodResizePending"), first);

    set(&mut world, "200m", 4);
    world.decision.resize = Resize {
        pending: None,
        progress: step("", 4),
        applied: [("a".to_owned(), amounts("100m"))].into(),
        applied_total: Some(amounts("100m")),
    };
    let both = ["200m", "100m", "200m", "100m"].map(ToOwned::to_owned);
    assert_eq!(told(&world.step()), (both, vec![("PodResizeInProgress".into(), String::new(), 4)]));
    world.decision.resize = Resize::default();
    let after = world.step();
    assert_eq!(told(&after), (all("200m"), vec![]));
    let others = |status: &PodStatus| {
        status
            .conditions
            .iter()
            .flatten()
            .map(|found| (found.type_.clone(), found.status.clone()))
            .collect::<Vec<_>>()
    };
    assert_eq!(others(&after), others(&before));
}
