//! One pod as a row of `get pods`: the words are kubectl's. Pure.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerStateTerminated, ContainerStatus, Pod, PodSpec, PodStatus};

use super::age::age;

/// The cells of one pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodRow {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Ready containers and all of them.
    pub ready: String,
    /// Why it is how it is, in one word.
    pub status: String,
    /// Restarts, and how long ago the last one was.
    pub restarts: String,
    /// Since when the node has it.
    pub age: String,
    /// Its address.
    pub ip: String,
    /// Its node.
    pub node: String,
}

/// Makes the row of `pod` at `now`.
pub fn row(pod: &Pod, now: Timestamp) -> PodRow {
    let none = (PodSpec::default(), PodStatus::default());
    let spec = pod.spec.as_ref().unwrap_or(&none.0);
    let status = pod.status.as_ref().unwrap_or(&none.1);
    let containers = status.container_statuses.as_deref().unwrap_or_default();
    let init = status.init_container_statuses.as_deref().unwrap_or_default();
    let sidecars = |status: &&ContainerStatus| is_sidecar(spec, &status.name);
    let counted: Vec<&ContainerStatus> = init.iter().filter(sidecars).chain(containers).collect();
    let sidecar_count = spec.init_containers.iter().flatten().filter(|c| is_sidecar(spec, &c.name)).count();
    let total = spec.containers.len() + sidecar_count;
    let ready = counted.iter().filter(|status| status.ready && running(status)).count();
    let waits_for_init = init_reason(spec, init);
    let restarting: Vec<&ContainerStatus> =
        if waits_for_init.is_some() { init.iter().collect() } else { counted.clone() };
    let restarts: i32 = restarting.iter().map(|status| status.restart_count).sum();
    let last = restarting
        .iter()
        .filter_map(|status| Some(status.last_state.as_ref()?.terminated.as_ref()?.finished_at.as_ref()?.0))
        .max();
    let or_none = |text: &Option<String>| text.clone().unwrap_or_else(|| "<none>".to_owned());
    PodRow {
        namespace: pod.metadata.namespace.clone().unwrap_or_default(),
        name: pod.metadata.name.clone().unwrap_or_default(),
        ready: format!("{ready}/{total}"),
        status: reason(pod, status, containers, waits_for_init),
        restarts: match last {
            Some(last) if restarts > 0 => format!("{restarts} ({} ago)", age(Some(last), now)),
            _ => restarts.to_string(),
        },
        age: age(since(pod, status), now),
        ip: or_none(&status.pod_ip),
        node: or_none(&spec.node_name),
    }
}

/// A static pod was never created anywhere: the node's first sight of it counts.
fn since(pod: &Pod, status: &PodStatus) -> Option<Timestamp> {
    let created = pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
    created.or(status.start_time.as_ref().map(|time| time.0))
}

fn reason(
    pod: &Pod,
    status: &PodStatus,
    containers: &[ContainerStatus],
    waits_for_init: Option<String>,
) -> String {
    let phase = status.phase.clone().unwrap_or_else(|| "Unknown".to_owned());
    if pod.metadata.deletion_timestamp.is_some() {
        return "Terminating".to_owned();
    }
    // A pod that failed before anything of it ran, such as one that was not admitted, says so itself.
    let began = |container: &ContainerStatus| {
        container.state.as_ref().is_some_and(|state| state.running.is_some() || state.terminated.is_some())
    };
    let of_pod = status.reason.as_ref().filter(|reason| !reason.is_empty() && phase == "Failed");
    if let Some(reason) = of_pod
        && !containers.iter().any(began)
    {
        return reason.clone();
    }
    if let Some(reason) = waits_for_init {
        return reason;
    }
    let mut text = status.reason.clone().filter(|reason| !reason.is_empty()).unwrap_or(phase);
    let mut any_runs = false;
    // The first container has the last word.
    for container in containers.iter().rev() {
        let Some(state) = &container.state else { continue };
        if let Some(reason) = state.waiting.as_ref().and_then(|waiting| waiting.reason.clone()) {
            text = reason;
        } else if let Some(ended) = &state.terminated {
            text = ended_reason(ended);
        } else if running(container) && container.ready {
            any_runs = true;
        }
    }
    if text == "Completed" && any_runs {
        text = if ready(status) { "Running" } else { "NotReady" }.to_owned();
    }
    text
}

/// The word while init containers have not done their work; `None` when they have.
fn init_reason(spec: &PodSpec, init: &[ContainerStatus]) -> Option<String> {
    for (index, container) in init.iter().enumerate() {
        let state = container.state.clone().unwrap_or_default();
        if let Some(ended) = &state.terminated {
            if ended.exit_code == 0 {
                continue;
            }
            return Some(format!("Init:{}", ended_reason(ended)));
        }
        if is_sidecar(spec, &container.name) && container.started == Some(true) {
            continue;
        }
        let waiting = state.waiting.and_then(|waiting| waiting.reason);
        return match waiting {
            Some(reason) if reason != "PodInitializing" => Some(format!("Init:{reason}")),
            _ => Some(format!("Init:{index}/{}", spec.init_containers.as_ref().map_or(0, Vec::len))),
        };
    }
    None
}

fn ended_reason(ended: &ContainerStateTerminated) -> String {
    match (&ended.reason, ended.signal) {
        (Some(reason), _) if !reason.is_empty() => reason.clone(),
        (_, Some(signal)) if signal != 0 => format!("Signal:{signal}"),
        _ => format!("ExitCode:{}", ended.exit_code),
    }
}

fn is_sidecar(spec: &PodSpec, name: &str) -> bool {
    let mut init = spec.init_containers.iter().flatten();
    init.any(|container| container.name == name && container.restart_policy.as_deref() == Some("Always"))
}

fn running(status: &ContainerStatus) -> bool {
    status.state.as_ref().is_some_and(|state| state.running.is_some())
}

fn ready(status: &PodStatus) -> bool {
    status
        .conditions
        .iter()
        .flatten()
        .any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn of(status: Value) -> PodRow {
        let pod = json!({
            "metadata": { "name": "web-n", "namespace": "default" },
            "spec": {
                "nodeName": "n",
                "initContainers": [{ "name": "i" }, { "name": "s", "restartPolicy": "Always" }],
                "containers": [{ "name": "a" }, { "name": "b" }],
            },
            "status": status,
        });
        row(&serde_json::from_value(pod).unwrap(), "2026-01-01T01:00:00Z".parse().unwrap())
    }

    fn done(name: &str) -> Value {
        json!({ "name": name, "image": "", "imageID": "", "ready": true, "restartCount": 0,
            "state": { "terminated": { "exitCode": 0, "reason": "Completed" } } })
    }

    fn runs(name: &str, restarts: u32) -> Value {
        json!({ "name": name, "image": "", "imageID": "", "ready": true, "started": true, "restartCount": restarts,
            "state": { "running": {} },
            "lastState": { "terminated": { "exitCode": 1, "finishedAt": "2026-01-01T00:55:00Z" } } })
    }

    fn waits(name: &str, reason: &str) -> Value {
        json!({ "name": name, "image": "", "imageID": "", "ready": false, "restartCount": 0,
            "state": { "waiting": { "reason": reason } } })
    }

    #[test]
    fn a_pod_that_was_not_admitted_says_why() {
        let rejected = |containers: Value| {
            let waiting = [waits("i", "PodInitializing"), waits("s", "PodInitializing")];
            of(json!({
                "phase": "Failed", "reason": "OutOfcpu", "initContainerStatuses": waiting, "containerStatuses": containers,
            }))
        };
        let never_ran = json!([waits("a", "PodInitializing"), waits("b", "ContainerCreating")]);
        assert_eq!(rejected(never_ran).status, "OutOfcpu");
        assert_eq!(rejected(json!([])).status, "OutOfcpu");
    }

    #[test]
    fn a_running_pod_counts_its_sidecars() {
        let row = of(json!({
            "phase": "Running", "startTime": "2026-01-01T00:00:00Z", "podIP": "10.0.0.1",
            "initContainerStatuses": [done("i"), runs("s", 0)],
            "containerStatuses": [runs("a", 2), runs("b", 1)],
        }));
        assert_eq!((row.ready.as_str(), row.status.as_str()), ("3/3", "Running"));
        assert_eq!((row.restarts.as_str(), row.age.as_str()), ("3 (5m ago)", "60m"));
        assert_eq!((row.ip.as_str(), row.node.as_str()), ("10.0.0.1", "n"));
    }

    #[test]
    fn the_worst_that_happens_is_the_status() {
        let status = |init: Value, containers: Value| {
            of(json!({ "phase": "Pending", "initContainerStatuses": init, "containerStatuses": containers }))
                .status
        };
        let started = json!([done("i"), runs("s", 0)]);
        assert_eq!(
            status(started.clone(), json!([waits("a", "ImagePullBackOff"), runs("b", 0)])),
            "ImagePullBackOff"
        );
        assert_eq!(
            status(started.clone(), json!([runs("a", 0), waits("b", "CrashLoopBackOff")])),
            "CrashLoopBackOff"
        );
        assert_eq!(status(json!([waits("i", "PodInitializing")]), json!([])), "Init:0/2");
        assert_eq!(status(json!([done("i"), waits("s", "ErrImagePull")]), json!([])), "Init:ErrImagePull");
        assert_eq!(status(started, json!([done("a"), done("b")])), "Completed");
        assert_eq!(status(json!([]), json!([])), "Pending");
    }

    #[test]
    fn a_pod_without_a_status_is_unknown() {
        let row = row(&Pod::default(), Timestamp::UNIX_EPOCH);
        assert_eq!(
            (row.ready.as_str(), row.status.as_str(), row.age.as_str()),
            ("0/0", "Unknown", "<unknown>")
        );
    }
}
