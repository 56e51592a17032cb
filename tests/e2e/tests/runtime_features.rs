//! Pods that depend on what the container runtime can do, on the fake one: a runtime that can, and one that cannot.
#![cfg(test)]

use bulkhead_e2e::fake_node::{FakeNode, is_ready};
use bulkhead_e2e::pods;
use bulkhead_testkit::cri::{Abilities, Method};
use k8s_openapi::api::core::v1::PodStatus;
use serde_json::{Value, json};

const NOTHING: Abilities = Abilities { recursive_read_only: false, supplemental_groups_policy: false };

fn strict(name: &str) -> Value {
    pods::with_spec(pods::simple(name), "securityContext", json!({"supplementalGroupsPolicy": "Strict"}))
}

fn mounting(name: &str, recursive: &str) -> Value {
    let mut pod = pods::with_spec(pods::simple(name), "volumes", json!([{"name": "v", "emptyDir": {}}]));
    pod["spec"]["containers"][0]["volumeMounts"] =
        json!([{"name": "v", "mountPath": "/v", "readOnly": true, "recursiveReadOnly": recursive}]);
    pod
}

/// `recursiveReadOnly` of the first mount, as the status tells it.
fn told(status: &PodStatus) -> Option<String> {
    let container = status.container_statuses.as_ref()?.first()?;
    container.volume_mounts.as_ref()?.first()?.recursive_read_only.clone()
}

fn waits_for(status: &PodStatus, reason: &str) -> Option<String> {
    let container = status.container_statuses.as_ref()?.first()?;
    let waiting = container.state.as_ref()?.waiting.as_ref()?;
    waiting.message.clone().filter(|_| waiting.reason.as_deref() == Some(reason))
}

#[tokio::test]
async fn a_runtime_that_can_gives_what_is_asked_for() {
    let node = FakeNode::up().await;
    let mut signal = strict("strict");
    signal["spec"]["os"] = json!({"name": "linux"});
    signal["spec"]["containers"][0]["lifecycle"] = json!({"stopSignal": "SIGRTMIN+3"});
    node.put("strict.yaml", &signal);
    let status = node.ready("strict").await;
    assert_eq!(status.container_statuses.unwrap()[0].stop_signal.as_deref(), Some("SIGRTMIN+3"));
    node.put("mount.yaml", &mounting("mount", "IfPossible"));
    let status = node.status_where("mount", "mounted", |s| is_ready(s) && told(s).is_some()).await;
    assert_eq!(told(&status).as_deref(), Some("Enabled"));
    let made = node.runtime.containers();
    let mounted = made.iter().flat_map(|c| &c.config.mounts).find(|mount| mount.container_path == "/v");
    assert!(mounted.unwrap().recursive_read_only);
}

#[tokio::test]
async fn a_runtime_that_cannot_is_said_to_be_why() {
    let mut node = FakeNode::up().await;
    // It was taken while the runtime could, and is not judged again.
    node.put("before.yaml", &strict("before"));
    node.ready("before").await;
    node.runtime.set(|world| world.can = NOTHING);

    node.put("strict.yaml", &strict("strict"));
    let status = node.status_where("strict", "rejected", |s| s.phase.as_deref() == Some("Failed")).await;
    assert_eq!(status.reason.as_deref(), Some("SupplementalGroupsPolicyNotSupported"));
    assert!(
        status.message.unwrap().ends_with("SupplementalGroupsPolicy=Strict is not supported in this node")
    );

    node.put("possible.yaml", &mounting("possible", "IfPossible"));
    node.ready("possible").await;
    let made = node.runtime.containers();
    let mut mounts = made.iter().flat_map(|c| &c.config.mounts).filter(|mount| mount.container_path == "/v");
    assert!(mounts.all(|mount| mount.readonly && !mount.recursive_read_only));

    node.put("enabled.yaml", &mounting("enabled", "Enabled"));
    let refused = |s: &PodStatus| waits_for(s, "CreateContainerConfigError").is_some();
    let status = node.status_where("enabled", "refused", refused).await;
    let message = waits_for(&status, "CreateContainerConfigError").unwrap();
    assert!(message.contains("recursiveReadOnly: Enabled"), "{message}");

    for name in ["syncd", "pleg", "statusd"] {
        node.kill(name);
        node.start(name);
    }
    node.ready("before").await;
    // statusd has asked the runtime anew.
    let disabled = |s: &PodStatus| is_ready(s) && told(s).as_deref() == Some("Disabled");
    node.status_where("possible", "shown without", disabled).await;
    let sandboxes = node.runtime.log().count(Method::RunPodSandbox);
    assert_eq!(sandboxes, 3, "before, possible and enabled; none for the one that was rejected");
}
