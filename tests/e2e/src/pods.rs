//! Manifests that tests drop into a directory.

#![expect(clippy::indexing_slicing, reason = "indexing a JSON object to set a field inserts it")]

use serde_json::{Value, json};

/// A pod with one container `c` that runs until it is told to stop.
pub fn simple(name: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "terminationGracePeriodSeconds": 2,
            "containers": [container("c", "sleep 100000 & wait")]
        }
    })
}

/// A container of the test image that runs a shell script and ends at once when it is told to.
pub fn container(name: &str, script: &str) -> Value {
    json!({
        "name": name,
        "image": "local/busybox:1",
        "imagePullPolicy": "IfNotPresent",
        "command": ["/bin/sh", "-c", format!("trap 'exit 0' TERM; {script}")]
    })
}

/// `pod` with its `spec`'s `field` set.
pub fn with_spec(mut pod: Value, field: &str, value: Value) -> Value {
    pod["spec"][field] = value;
    pod
}
