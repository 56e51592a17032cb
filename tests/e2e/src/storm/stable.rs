//! Pods that no fault may touch: with probes that one failure decides, volumes, hooks, sidecars, and some that are over.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Map, Value, json};

use super::check::Pod;
use crate::pods;

/// File names and manifests. A folder in `state` is made for one of them.
pub fn manifests(state: &Path) -> Vec<(String, Value)> {
    [web(), execs(), plain(state), unready(), ended("done", 0), ended("failed", 3)]
        .into_iter()
        .map(|pod| {
            let name = pod.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
            (format!("stable-{name}.yaml"), pod.clone())
        })
        .collect()
}

/// Whether they are what they are for.
pub fn are_settled(pods: &BTreeMap<String, Pod>) -> bool {
    let phase = |name: &str| pods.get(name).map_or("", |pod| pod.phase.as_str());
    let condition = |name: &str, kind: &str, status: &str| {
        pods.get(name).is_some_and(|pod| pod.condition(kind) == status)
    };
    // The last that changes of a pod that is over: its sandbox is stopped.
    let over = |name: &str| condition(name, "PodReadyToStartContainers", "False");
    ["web", "execs", "plain"].into_iter().all(|name| condition(name, "Ready", "True"))
        && condition("unready", "Ready", "False")
        && phase("unready") == "Running"
        && (phase("done") == "Succeeded" && over("done"))
        && (phase("failed") == "Failed" && over("failed"))
}

/// Every kind of probe over the network, every kind of hook, memory and the pod's own fields as volumes.
fn web() -> Value {
    let http = || json!({"httpGet": {"port": 8080, "path": "/"}, "periodSeconds": 1, "failureThreshold": 1, "timeoutSeconds": 5});
    let container = with(
        pods::container("c", "mkdir /w; echo hi >/w/index.html; httpd -f -p 8080 -h /w & wait"),
        json!({
            "startupProbe": {"tcpSocket": {"port": 8080}, "periodSeconds": 1, "failureThreshold": 60},
            "readinessProbe": http(),
            "livenessProbe": http(),
            "lifecycle": {
                "postStart": {"exec": {"command": ["/bin/sh", "-c", "echo started >/m/started"]}},
                "preStop": {"sleep": {"seconds": 1}},
            },
            "volumeMounts": [{"name": "m", "mountPath": "/m"}, {"name": "d", "mountPath": "/d"}],
        }),
    );
    let pod = pods::with_spec(pods::simple("web"), "containers", json!([container]));
    let labels = json!([{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]);
    let volumes = json!([
        {"name": "m", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}},
        {"name": "d", "downwardAPI": {"items": labels}},
    ]);
    let mut pod = pods::with_spec(pod, "volumes", volumes);
    if let Some(metadata) = pod.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.insert("labels".to_owned(), json!({"app": "web"}));
    }
    pod
}

/// Probes by command, an init container, a sidecar, a part of a volume.
fn execs() -> Value {
    let probe = |path: &str| json!({"exec": {"command": ["/bin/ls", path]}, "periodSeconds": 1, "failureThreshold": 1, "timeoutSeconds": 5});
    let volume = |path: &str| json!([{"name": "v", "mountPath": path}]);
    let init =
        with(pods::container("i", "mkdir -p /v/a; touch /v/a/f"), json!({"volumeMounts": volume("/v")}));
    let run = "sleep 100000 & wait";
    let side = with(
        pods::container("side", run),
        json!({"restartPolicy": "Always", "startupProbe": probe("/v/a/f"), "volumeMounts": volume("/v")}),
    );
    let container = with(
        pods::container("c", run),
        json!({
            "readinessProbe": probe("/part/f"),
            "livenessProbe": probe("/part"),
            "volumeMounts": [{"name": "v", "mountPath": "/part", "subPath": "a"}],
        }),
    );
    let pod = pods::with_spec(pods::simple("execs"), "initContainers", json!([init, side]));
    let pod = pods::with_spec(pod, "containers", json!([container]));
    pods::with_spec(pod, "volumes", json!([{"name": "v", "emptyDir": {}}]))
}

/// Two containers with limits and a folder of the host's, and nothing that looks at them.
fn plain(state: &Path) -> Value {
    let run = "sleep 100000 & wait";
    let resources = json!({"resources": {"limits": {"cpu": "1", "memory": "64Mi"}}});
    let mount = json!({"volumeMounts": [{"name": "h", "mountPath": "/h"}]});
    let containers = json!([
        with(pods::container("c", run), resources.clone()),
        with(pods::container("d", run), with(resources, mount))
    ]);
    let pod = pods::with_spec(pods::simple("plain"), "containers", containers);
    let folder = json!({"path": state.join("stable"), "type": "DirectoryOrCreate"});
    pods::with_spec(pod, "volumes", json!([{"name": "h", "hostPath": folder}]))
}

/// Never ready, and no fault may make it so.
fn unready() -> Value {
    let probe = json!({"readinessProbe": {"exec": {"command": ["/bin/false"]}, "periodSeconds": 2, "failureThreshold": 1}});
    let container = with(pods::container("c", "sleep 100000 & wait"), probe);
    pods::with_spec(pods::simple("unready"), "containers", json!([container]))
}

/// Over, and no fault may make it run again or end otherwise.
fn ended(name: &str, code: i32) -> Value {
    let pod = pods::with_spec(pods::simple(name), "restartPolicy", json!("Never"));
    pods::with_spec(pod, "containers", json!([pods::container("c", &format!("exit {code}"))]))
}

fn with(container: Value, more: Value) -> Value {
    let object = |value: Value| match value {
        Value::Object(object) => object,
        _ => Map::new(),
    };
    let mut all = object(container);
    all.extend(object(more));
    Value::Object(all)
}
