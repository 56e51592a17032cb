//! Which workers there should be. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use bulkhead_model::runtime::RuntimePod;
use k8s_openapi::api::core::v1::Pod;

use crate::source::Desired;

/// A worker, as far as the plan depends on it.
#[derive(Clone, Debug, PartialEq)]
pub struct Present {
    /// Namespace and name.
    pub full_name: (String, String),
    /// The pod that it was last told to run; `None` when it is to end.
    pub wanted: Option<Arc<Pod>>,
}

/// What to do about one worker.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// Start one for this desired pod.
    Start(Arc<Pod>),
    /// Start one that ends a pod which only the runtime knows.
    StartOrphan(Arc<RuntimePod>),
    /// Tell it that its pod changed.
    Update(String, Arc<Pod>),
    /// Tell it to end its pod, with the last word on that if there was one.
    End(String, Option<Arc<Pod>>),
}

/// What is to be done so that every desired pod, and no other, has a worker.
///
/// - A pod that left the sources is ended; one that only the runtime holds (its manifest went while syncd was away) is ended
///   too, unless a source that was not read in this life may have it.
/// - Two pods of one name never overlap: the newer one starts when nothing of the older one is left, and then as the sources
///   are by then.
/// - A pod that is put back while it is being ended starts again after its end.
pub fn plan(
    desired: &Desired,
    present: &BTreeMap<String, Present>,
    runtime: &BTreeMap<String, Arc<RuntimePod>>,
) -> Vec<Command> {
    let mut commands = Vec::new();
    for (uid, worker) in present {
        let wanted = desired.pods.get(uid).map(|pod| &pod.pod);
        match (&worker.wanted, wanted) {
            (Some(_), None) => commands.push(Command::End(uid.clone(), desired.gone.get(uid).cloned())),
            (Some(old), Some(new)) if old != new => commands.push(Command::Update(uid.clone(), new.clone())),
            // One that is ending ends, whatever the sources say by now.
            _ => {}
        }
    }
    for (uid, pod) in runtime {
        let is_known = desired.pods.contains_key(uid) || present.contains_key(uid);
        if !is_known && desired.disowns((&pod.namespace, &pod.name)) {
            commands.push(Command::StartOrphan(pod.clone()));
        }
    }
    for (uid, pod) in &desired.pods {
        if present.contains_key(uid) {
            continue;
        }
        let full_name = full_name(&pod.pod);
        let name_taken = present.values().any(|worker| worker.full_name == full_name)
            || runtime.iter().any(|(other, held)| {
                other != uid && (&held.namespace, &held.name) == (&full_name.0, &full_name.1)
            });
        if !name_taken {
            commands.push(Command::Start(pod.pod.clone()));
        }
    }
    commands
}

/// Namespace and name.
pub fn full_name(pod: &Pod) -> (String, String) {
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    (text(&pod.metadata.namespace), text(&pod.metadata.name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::{Kind, Place, SourcedPod};

    fn pod(uid: &str, name: &str, image: &str) -> Arc<Pod> {
        let json = serde_json::json!({
            "metadata": {"uid": uid, "name": name, "namespace": "d"},
            "spec": {"containers": [{"name": "c", "image": image}]}
        });
        Arc::new(serde_json::from_value(json).unwrap())
    }

    fn desired(pods: &[&Arc<Pod>]) -> Desired {
        let entry = |pod: &&Arc<Pod>| {
            let place = Place { kind: Kind::File, name: "/m/x".into() };
            (pod.metadata.uid.clone().unwrap(), SourcedPod { pod: (*pod).clone(), place })
        };
        Desired { pods: pods.iter().map(entry).collect(), ..Default::default() }
    }

    fn present(pod: &Arc<Pod>, wanted: bool) -> (String, Present) {
        let wanted = wanted.then(|| pod.clone());
        (pod.metadata.uid.clone().unwrap(), Present { full_name: full_name(pod), wanted })
    }

    fn held(uid: &str, name: &str) -> (String, Arc<RuntimePod>) {
        let pod =
            RuntimePod { uid: uid.into(), name: name.into(), namespace: "d".into(), ..Default::default() };
        (uid.into(), Arc::new(pod))
    }

    #[test]
    fn every_desired_pod_gets_a_worker_and_no_other_keeps_one() {
        let (a, b) = (pod("1", "a", "bb:1"), pod("2", "b", "bb:1"));
        let plan_of = |d: &[&Arc<Pod>], p: &[(String, Present)], r: &[(String, Arc<RuntimePod>)]| {
            plan(&desired(d), &p.iter().cloned().collect(), &r.iter().cloned().collect())
        };
        // added, removed, unchanged
        assert_eq!(plan_of(&[&a], &[], &[]), [Command::Start(a.clone())]);
        assert_eq!(plan_of(&[], &[present(&a, true)], &[held("1", "a")]), [Command::End("1".into(), None)]);
        assert_eq!(plan_of(&[&a], &[present(&a, true)], &[held("1", "a")]), []);
        // adopted from an earlier life
        assert_eq!(plan_of(&[&a], &[], &[held("1", "a")]), [Command::Start(a.clone())]);
        // only the runtime knows it
        assert_eq!(plan_of(&[], &[], &[held("9", "x")]), [Command::StartOrphan(held("9", "x").1)]);
        // put back while it ends: after its end
        assert_eq!(plan_of(&[&a], &[present(&a, false)], &[held("1", "a")]), []);
        // same UID, other image
        let edited = pod("1", "a", "bb:2");
        assert_eq!(plan_of(&[&edited], &[present(&a, true)], &[]), [Command::Update("1".into(), edited)]);
        // a changed manifest is another UID of the same name: the old one first
        let newer = pod("3", "a", "bb:2");
        assert_eq!(
            plan_of(&[&newer, &b], &[present(&a, true)], &[held("1", "a")]),
            [Command::End("1".into(), None), Command::Start(b.clone())]
        );
        assert_eq!(plan_of(&[&newer], &[present(&a, false)], &[held("1", "a")]), []);
        // the same, when the manifest changed while syncd was away
        assert_eq!(plan_of(&[&newer], &[], &[held("1", "a")]), [Command::StartOrphan(held("1", "a").1)]);
        assert_eq!(plan_of(&[&newer], &[], &[]), [Command::Start(newer)]);
    }

    #[test]
    fn what_an_unread_source_may_have_is_left_alone() {
        let a = pod("1", "a", "bb:1");
        let unread = Desired { unread: [Kind::Url].into(), ..desired(&[&a]) };
        let plan_of = |held: (String, Arc<RuntimePod>)| plan(&unread, &BTreeMap::new(), &[held].into());
        assert_eq!(plan_of(held("9", "x")), [Command::Start(a)]);
        // The file's pod has the name whatever the URL says.
        assert_eq!(plan_of(held("9", "a")), [Command::StartOrphan(held("9", "a").1)]);
    }
}
