//! Which pod is meant: syncd knows all of them; while it is away, statusd's statuses say enough.

use bulkhead_api::syncd::v1::list_pods_item::Item;
use serde::Deserialize;

use super::choose;
pub(crate) use super::choose::{PodFacts, container};
use crate::error::{LogError, PeerError};
use crate::pods::source::Pods;

/// Most pods of the same namespace that a message may name.
const NEIGHBOURS: usize = 64;

/// What is read of a pod.
#[derive(Deserialize)]
struct Pod {
    metadata: Metadata,
    spec: Spec,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    #[serde(default)]
    namespace: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    uid: String,
    deletion_timestamp: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    containers: Option<Vec<Named>>,
    init_containers: Option<Vec<Named>>,
    ephemeral_containers: Option<Vec<Named>>,
}

/// What is read of a pod's status.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    container_statuses: Option<Vec<Named>>,
    init_container_statuses: Option<Vec<Named>>,
    ephemeral_container_statuses: Option<Vec<Named>>,
}

#[derive(Deserialize)]
struct Named {
    name: String,
    #[serde(default)]
    tty: bool,
}

/// Pods of one name, and others that stand beside them.
#[derive(Default)]
struct Found {
    same_name: Vec<PodFacts>,
    neighbours: Vec<String>,
}

/// Finds a pod by its name.
pub(crate) async fn pod(pods: &Pods, namespace: &str, name: &str) -> Result<PodFacts, LogError> {
    let found = match from_syncd(pods, namespace, name).await {
        Ok(found) => found,
        Err(missing) => from_statuses(pods, namespace, name).ok_or(missing)?,
    };
    let Found { same_name, neighbours } = found;
    choose::pod(same_name).ok_or_else(|| choose::no_pod(namespace, name, &neighbours))
}

async fn from_syncd(pods: &Pods, namespace: &str, name: &str) -> Result<Found, PeerError> {
    let mut list = pods.raw().await?;
    let mut found = Found::default();
    while let Some(item) = list.next().await? {
        if let Item::PodJson(json) = item {
            let pod = serde_json::from_slice::<Pod>(&json);
            let malformed =
                |source| PeerError::Malformed { process: "syncd", what: "a pod".to_owned(), source };
            found.see(facts(pod.map_err(malformed)?), namespace, name);
        }
    }
    Ok(found)
}

fn from_statuses(pods: &Pods, namespace: &str, name: &str) -> Option<Found> {
    let mut found = Found::default();
    for status in pods.statuses()? {
        let own = serde_json::from_slice::<Status>(&status.status_json).ok();
        let (app, others) = own.map(Status::names).unwrap_or_default();
        let facts = PodFacts {
            namespace: status.namespace.clone(),
            name: status.name.clone(),
            uid: status.pod_uid.clone(),
            app,
            others,
            terminals: Vec::new(),
            going: false,
        };
        found.see(facts, namespace, name);
    }
    Some(found)
}

impl Found {
    fn see(&mut self, pod: PodFacts, namespace: &str, name: &str) {
        if pod.namespace != namespace {
            return;
        }
        if pod.name == name {
            self.same_name.push(pod);
        } else if self.neighbours.len() < NEIGHBOURS {
            self.neighbours.push(pod.name);
        }
    }
}

impl Status {
    fn names(self) -> (Vec<String>, Vec<String>) {
        let others =
            names(self.init_container_statuses).chain(names(self.ephemeral_container_statuses)).collect();
        (names(self.container_statuses).collect(), others)
    }
}

fn facts(pod: Pod) -> PodFacts {
    let Pod { metadata, spec } = pod;
    let all =
        [&spec.containers, &spec.init_containers, &spec.ephemeral_containers].into_iter().flatten().flatten();
    let terminals = all.filter(|container| container.tty).map(|container| container.name.clone()).collect();
    PodFacts {
        namespace: metadata.namespace,
        name: metadata.name,
        uid: metadata.uid,
        app: names(spec.containers).collect(),
        others: names(spec.init_containers).chain(names(spec.ephemeral_containers)).collect(),
        terminals,
        going: metadata.deletion_timestamp.is_some(),
    }
}

fn names(list: Option<Vec<Named>>) -> impl Iterator<Item = String> {
    list.into_iter().flatten().map(|named| named.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_needed_is_read_and_the_rest_passed_over() {
        let pod: Pod = serde_json::from_value(serde_json::json!({
            "metadata": {"namespace": "ns", "name": "p", "uid": "u", "deletionTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"containers": [{"name": "a", "image": "i"}], "initContainers": [{"name": "i", "tty": true}],
                     "ephemeralContainers": [{"name": "e"}], "nodeName": "n"},
            "status": {"phase": "Running"},
        }))
        .unwrap();
        let facts = facts(pod);
        assert_eq!(facts.terminals, ["i"]);
        assert_eq!(
            (facts.app, facts.others, facts.going),
            (vec!["a".to_owned()], vec!["i".to_owned(), "e".to_owned()], true)
        );
        let status: Status = serde_json::from_value(serde_json::json!({
            "phase": "Running", "containerStatuses": [{"name": "a", "restartCount": 1}],
        }))
        .unwrap();
        assert_eq!(status.names(), (vec!["a".to_owned()], Vec::new()));
    }
}
