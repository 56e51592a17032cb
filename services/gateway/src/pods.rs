//! A pod as the API shows it: what syncd has of it, joined with the status that statusd has. Pure.

use serde_json::{Map, Value};

pub(crate) mod source;

/// A JSON object.
pub(crate) type Object = Map<String, Value>;

/// kubectl keeps a copy of the whole manifest, environment included, under this annotation.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Puts the status into the pod. A pod that has none yet is `Pending`, as the API server has it.
pub(crate) fn join(pod: &mut Object, status: Option<Object>) {
    let known = pod.get("status").and_then(Value::as_object).is_some_and(|status| !status.is_empty());
    match status {
        Some(status) => {
            pod.insert("status".to_owned(), Value::Object(status));
        }
        None if known => {}
        None => {
            pod.insert("status".to_owned(), serde_json::json!({ "phase": "Pending" }));
        }
    }
}

/// An item of a list does not say its kind: the list does.
pub(crate) fn as_list_item(pod: &mut Object) {
    pod.remove("kind");
    pod.remove("apiVersion");
}

/// Leaves out the values of environment variables; their names stay.
pub(crate) fn without_values(pod: &mut Object) {
    if let Some(annotations) =
        pod.get_mut("metadata").and_then(|meta| meta.get_mut("annotations")?.as_object_mut())
    {
        annotations.remove(LAST_APPLIED);
    }
    let Some(spec) = pod.get_mut("spec") else { return };
    for list in ["containers", "initContainers", "ephemeralContainers"] {
        let containers = spec.get_mut(list).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten() {
            let env = container.get_mut("env").and_then(Value::as_array_mut);
            for variable in env.into_iter().flatten().filter_map(Value::as_object_mut) {
                variable.remove("value");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(value: Value) -> Object {
        value.as_object().unwrap().clone()
    }

    #[test]
    fn statuses_are_joined() {
        let running = json!({"phase": "Running"});
        let table = [
            (json!({"spec": {}}), Some(running.clone()), running.clone()),
            (json!({"spec": {}, "status": {"phase": "Failed"}}), Some(running.clone()), running.clone()),
            (json!({"spec": {}, "status": {"phase": "Failed"}}), None, json!({"phase": "Failed"})),
            (json!({"spec": {}, "status": {}}), None, json!({"phase": "Pending"})),
            (json!({"spec": {}}), None, json!({"phase": "Pending"})),
            (json!({"spec": {}, "status": "odd"}), None, json!({"phase": "Pending"})),
        ];
        for (pod, status, wanted) in table {
            let mut pod = object(pod);
            join(&mut pod, status.map(object));
            assert_eq!(pod["status"], wanted);
        }
    }

    #[test]
    fn values_of_environment_variables_go_everywhere() {
        let env = json!([{"name": "A", "value": "secret"}, {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "x"}}}]);
        let container = json!({"name": "c", "env": env, "command": ["run"]});
        let mut pod = object(json!({
            "metadata": {"name": "p", "annotations": {LAST_APPLIED: "secret", "a": "b"}},
            "spec": {"containers": [container], "initContainers": [container], "ephemeralContainers": [container]},
        }));
        without_values(&mut pod);
        let text = serde_json::to_string(&pod).unwrap();
        assert!(!text.contains("secret"), "{text}");
        for list in ["containers", "initContainers", "ephemeralContainers"] {
            assert_eq!(pod["spec"][list][0]["env"][0], json!({"name": "A"}), "{list}");
            assert!(pod["spec"][list][0]["env"][1]["valueFrom"].is_object());
        }
        assert_eq!(pod["metadata"]["annotations"], json!({"a": "b"}));
        // Whatever shape it has, nothing panics.
        for odd in
            [json!({}), json!({"spec": 1}), json!({"spec": {"containers": {}}}), json!({"metadata": []})]
        {
            without_values(&mut object(odd));
        }
    }
}
