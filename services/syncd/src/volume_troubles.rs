//! What goes wrong with files of running pods that follow objects of the API, told to the cluster as Events.
//!
//! Owns which of it was told. volumed owns the files; must never act on a pod.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bulkhead_api::volumed::v1::PodVolumes;
use bulkhead_ipc::Mirror;
use bulkhead_ipc::table::Since;
use bulkhead_model::event;
use bulkhead_service::{Recorder, Subject};
use k8s_openapi::api::core::v1::Pod;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::source::Desired;

/// Volume and what is wrong with it.
type Trouble = (String, String);

/// Tells it until `shutdown`.
pub async fn tell(
    volumes: Mirror<String, PodVolumes>,
    desired: watch::Receiver<Option<Arc<Desired>>>,
    events: Recorder,
    shutdown: CancellationToken,
) {
    let mut changes = volumes.changes();
    let mut told = Told::default();
    while let Some(since) = shutdown.run_until_cancelled(changes.next()).await {
        for (uid, (volume, problem)) in told.news(&since) {
            let desired = desired.borrow();
            let pod = desired.as_ref().and_then(|desired| desired.pods.get(&uid));
            if let Some(found) = pod {
                events.pod(&subject(&found.pod), event::no_mount(&volume, &problem));
            }
        }
    }
}

fn subject(pod: &Pod) -> Subject {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let meta = &pod.metadata;
    Subject {
        uid: text(&meta.uid),
        namespace: text(&meta.namespace),
        name: text(&meta.name),
        field_path: String::new(),
    }
}

/// By pod: what was told of its volumes.
#[derive(Default)]
struct Told(BTreeMap<String, BTreeSet<Trouble>>);

impl Told {
    /// What is new; what is over may be told again when it comes back.
    fn news(&mut self, since: &Since<String, PodVolumes>) -> Vec<(String, Trouble)> {
        if since.full {
            let there: BTreeSet<&String> = since.upserts.iter().map(|(uid, _)| uid).collect();
            self.0.retain(|uid, _| there.contains(uid));
        }
        for uid in &since.removed {
            self.0.remove(uid);
        }
        let mut news = Vec::new();
        for (uid, pod) in &since.upserts {
            let troubled = pod.volumes.iter().filter(|volume| !volume.problem.is_empty());
            let now: BTreeSet<Trouble> =
                troubled.map(|volume| (volume.name.clone(), volume.problem.clone())).collect();
            let before = self.0.remove(uid).unwrap_or_default();
            news.extend(now.difference(&before).map(|trouble| (uid.clone(), trouble.clone())));
            if !now.is_empty() {
                self.0.insert(uid.clone(), now);
            }
        }
        news
    }
}

#[cfg(test)]
mod tests {
    use bulkhead_api::volumed::v1::MountedVolume;

    use super::*;

    fn since(full: bool, pods: &[(&str, &str)], removed: &[&str]) -> Since<String, PodVolumes> {
        let pod = |(uid, problem): &(&str, &str)| {
            let volume = MountedVolume { name: "v".into(), problem: (*problem).into(), ..Default::default() };
            let pod = PodVolumes { pod_uid: (*uid).into(), volumes: vec![volume] };
            ((*uid).to_owned(), Arc::new(pod))
        };
        Since {
            generation: 0,
            full,
            upserts: pods.iter().map(pod).collect(),
            removed: removed.iter().map(|uid| (*uid).to_owned()).collect(),
        }
    }

    #[test]
    fn each_trouble_is_told_once_until_it_is_over() {
        let mut told = Told::default();
        let mut count = |since: &Since<String, PodVolumes>| told.news(since).len();
        assert_eq!(count(&since(true, &[("a", "no key b"), ("b", "")], &[])), 1);
        assert_eq!(count(&since(false, &[("a", "no key b")], &[])), 0, "the same");
        assert_eq!(count(&since(true, &[("a", "no key b")], &[])), 0, "volumed began anew");
        assert_eq!(count(&since(false, &[("a", "no key c")], &[])), 1, "another");
        assert_eq!(count(&since(false, &[("a", "")], &[])), 0);
        assert_eq!(count(&since(false, &[("a", "no key c")], &[])), 1, "back");
        assert_eq!(count(&since(false, &[], &["a"])), 0);
        assert_eq!(told.0.len(), 0);
    }
}
