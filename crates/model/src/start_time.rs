//! How long a pod took to start: the kubelet's service level indicator of it.
//!
//! Measured from the pod's creation until all of it was started. Static pods are left out, as in the kubelet: nobody waits for
//! them at the API server, and their creation is when this node first saw them.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;

use crate::runtime::RuntimePod;
use crate::spec::{self, ContainerKind};

/// How long a pod took to start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StartTimes {
    /// All of it.
    pub total: Duration,
    /// Without what depends on the pod alone: pulls of its images and the runs of its init containers.
    pub own: Duration,
    /// Whether it has a network of its own.
    pub network: bool,
}

/// The times of a pod of which everything was started `now`, and for whose images was waited for `pulls`. `None` for a pod
/// that does not count.
pub fn start_times(pod: &Pod, runtime: &RuntimePod, pulls: Duration, now: Timestamp) -> Option<StartTimes> {
    let created = pod.metadata.creation_timestamp.as_ref().filter(|_| !spec::is_static(pod))?.0;
    let total = Duration::try_from(now.duration_since(created)).unwrap_or_default();
    let own = total.saturating_sub(pulls).saturating_sub(init_runs(pod, runtime));
    Some(StartTimes { total, own, network: !spec::host_network(pod) })
}

/// The time that init containers ran, every attempt of them.
fn init_runs(pod: &Pod, runtime: &RuntimePod) -> Duration {
    let containers = spec::containers(pod);
    let is_init =
        |name: &str| containers.iter().any(|found| found.kind == ContainerKind::Init && found.name() == name);
    let ran =
        runtime.containers.iter().filter(|container| is_init(&container.name)).filter_map(|container| {
            let (from, to) = (container.started_at?, container.finished_at?);
            Duration::try_from(to.duration_since(from)).ok()
        });
    ran.fold(Duration::ZERO, Duration::saturating_add)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::runtime::{Container, ContainerState};

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + second).unwrap()
    }

    fn pod(source: Option<&str>, spec: Value) -> Pod {
        let mut spec = spec;
        spec["containers"] = json!([{"name": "c"}]);
        spec["initContainers"] = json!([{"name": "i"}, {"name": "s", "restartPolicy": "Always"}]);
        let mut metadata = json!({"name": "p", "creationTimestamp": at(0).to_string()});
        if let Some(source) = source {
            metadata["annotations"] = json!({"kubernetes.io/config.source": source});
        }
        serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap()
    }

    fn run(name: &str, from: i64, to: i64) -> Container {
        Container {
            id: format!("{name}{from}"),
            name: name.into(),
            sandbox_id: String::new(),
            attempt: 0,
            state: ContainerState::Exited,
            created_at: at(from),
            started_at: Some(at(from)),
            finished_at: Some(at(to)),
            exit_code: 0,
            reason: String::new(),
            message: String::new(),
            image: String::new(),
            image_id: String::new(),
            log_path: String::new(),
            hash: None,
            annotations: std::collections::BTreeMap::default(),
            user: None,
            stop_signal: String::new(),
        }
    }

    #[test]
    fn pulls_and_init_containers_are_no_time_of_the_nodes() {
        let secs = Duration::from_secs;
        let containers = vec![run("i", 2, 5), run("i", 6, 7), run("s", 7, 9), run("c", 9, 10)];
        let runtime = RuntimePod { containers, ..Default::default() };
        let times = start_times(&pod(Some("api"), json!({})), &runtime, secs(6), at(12));
        assert_eq!(times, Some(StartTimes { total: secs(12), own: secs(2), network: true }));
        let host = pod(None, json!({"hostNetwork": true}));
        let late = start_times(&host, &runtime, secs(60), at(12)).unwrap();
        assert_eq!((late.own, late.network), (Duration::ZERO, false));
        let before = start_times(&host, &runtime, secs(0), at(-5)).unwrap();
        assert_eq!(before.total, Duration::ZERO, "a clock that was set back");
    }

    #[test]
    fn a_static_pod_does_not_count() {
        for source in ["file", "http"] {
            let pod = pod(Some(source), json!({}));
            assert_eq!(start_times(&pod, &RuntimePod::default(), Duration::ZERO, at(1)), None, "{source}");
        }
        assert_eq!(start_times(&Pod::default(), &RuntimePod::default(), Duration::ZERO, at(1)), None);
    }
}
