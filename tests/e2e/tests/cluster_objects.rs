//! What pods take from objects of a real API server: files of volumes, tokens, environment, and how they follow.
#![cfg(test)]

use std::path::PathBuf;
use std::time::Duration;

use bulkhead_e2e::cluster::Cluster;
use bulkhead_e2e::real_node::RealNode;
use bulkhead_e2e::wait;
use serde_json::{Value, json};

const IN: &str = "/api/v1/namespaces/default";
const BOUND: Duration = Duration::from_secs(60);
/// How soon files must follow (known fault V4).
const SOON: Duration = Duration::from_secs(10);

struct Bench {
    cluster: Cluster,
    node: RealNode,
}

impl Bench {
    fn make(&self, kind: &str, name: &str, more: Value) {
        let mut object = json!({"metadata": {"name": name, "namespace": "default"}});
        object.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        self.cluster.ask("POST", &format!("{IN}/{kind}"), &object);
    }

    fn change(&self, kind: &str, name: &str, more: Value) {
        let mut object = json!({"metadata": {"name": name, "namespace": "default"}});
        object.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        self.cluster.ask("PUT", &format!("{IN}/{kind}/{name}"), &object);
    }

    fn pod(&self, name: &str) -> Option<Value> {
        let all = self.cluster.ask("GET", &format!("{IN}/pods"), &Value::Null);
        all["items"].as_array()?.iter().find(|pod| pod["metadata"]["name"] == name).cloned()
    }

    async fn ready(&self, name: &str) -> Value {
        wait::within(BOUND, &format!("{name} is ready"), async || {
            let pod = self.pod(name)?;
            let conditions = pod["status"]["conditions"].as_array()?;
            conditions.iter().any(|c| c["type"] == "Ready" && c["status"] == "True").then_some(pod.clone())
        })
        .await
    }

    /// A file of a volume, as it is on the node.
    fn file(&self, pod: &Value, path: &str) -> PathBuf {
        let uid = pod["metadata"]["uid"].as_str().unwrap();
        self.node.state().join("root/pods").join(uid).join("volumes").join(path)
    }

    async fn becomes(&self, file: &PathBuf, expected: Option<&str>) {
        wait::within(SOON, &format!("{} becomes {expected:?}", file.display()), async || {
            (std::fs::read_to_string(file).ok().as_deref() == expected).then_some(())
        })
        .await;
    }

    fn log(&self, pod: &str) -> String {
        self.node.text(&["logs", pod, "-c", "c"]).unwrap_or_default()
    }
}

fn waiting(pod: &Value) -> &Value {
    &pod["status"]["containerStatuses"][0]["state"]["waiting"]
}

#[tokio::test]
async fn pods_take_files_and_variables_from_objects_and_follow_them() {
    let cluster = Cluster::up();
    let account = json!({"metadata": {"name": "default", "namespace": "default"}});
    cluster.ask("POST", &format!("{IN}/serviceaccounts"), &account);
    let node = RealNode::up_in(&cluster, &[]).await;
    let mut bench = Bench { cluster, node };
    wait::within(BOUND, "the node is there", async || {
        let nodes = bench.cluster.ask("GET", "/api/v1/nodes", &Value::Null);
        (!nodes["items"].as_array()?.is_empty()).then_some(())
    })
    .await;
    bench.make("configmaps", "cm", json!({"data": {"a": "1", "app.x": "dotted"}}));
    bench.make("secrets", "s", json!({"stringData": {"password": "hunter2"}}));
    bench.make("services", "web", json!({"spec": {"ports": [{"name": "http", "port": 80}]}}));
    let key = |kind: &str, object: &str, key: &str| json!({kind: {"name": object, "key": key}});
    let token = json!({"serviceAccountToken": {"path": "token", "expirationSeconds": 600}});
    let script = "cat /all/a /all/password; echo; tr '\\0' '\\n' </proc/1/environ | sort; trap 'exit 0' TERM; sleep 100000 & wait";
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "default"},
        "spec": {
            "nodeName": "node-a", "serviceAccountName": "default", "tolerations": [{"operator": "Exists"}],
            "containers": [{
                "name": "c", "image": "local/busybox:1", "imagePullPolicy": "IfNotPresent",
                "command": ["/bin/sh", "-c", script],
                "envFrom": [{"configMapRef": {"name": "cm"}}, {"secretRef": {"name": "s"}, "prefix": "P_"}],
                "env": [
                    {"name": "FROM_KEY", "valueFrom": key("configMapKeyRef", "cm", "a")},
                    {"name": "PW", "valueFrom": key("secretKeyRef", "s", "password")},
                    {"name": "URL", "value": "http://$(WEB_SERVICE_HOST):$(WEB_SERVICE_PORT_HTTP)/$(PW)"},
                ],
                "volumeMounts": [{"name": "all", "mountPath": "/all"}, {"name": "cm", "mountPath": "/cm"}]
            }],
            "volumes": [
                {"name": "cm", "configMap": {"name": "cm", "items": [{"key": "a", "path": "deep/a", "mode": 0o400}]}},
                {"name": "secret", "secret": {"secretName": "s"}},
                {"name": "all", "projected": {"sources": [
                    {"configMap": {"name": "cm"}}, {"secret": {"name": "s"}}, token,
                    {"downwardAPI": {"items": [{"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}]}}
                ]}}
            ]
        }
    });
    bench.cluster.ask("POST", &format!("{IN}/pods"), &pod);
    let first = bench.ready("p").await;
    let said = wait::within(BOUND, "the container said all", async || {
        Some(bench.log("p")).filter(|log| log.contains("URL="))
    })
    .await;
    for line in ["1hunter2", "FROM_KEY=1", "PW=hunter2", "P_password=hunter2", "a=1", "app.x=dotted"] {
        assert!(said.lines().any(|found| found == line), "{line}: {said}");
    }
    let url = said.lines().find_map(|line| line.strip_prefix("URL=")).unwrap();
    assert!(url.ends_with(":80/hunter2") && !url.contains("$("), "{url}");
    assert!(said.contains("KUBERNETES_SERVICE_HOST=") && said.contains("WEB_PORT_80_TCP="), "{said}");

    // Files follow, whole and soon; the container is not restarted.
    let all = bench.file(&first, "kubernetes.io~projected/all");
    let deep = bench.file(&first, "kubernetes.io~configmap/cm/deep/a");
    bench.change("configmaps", "cm", json!({"data": {"a": "2"}}));
    bench.change("secrets", "s", json!({"stringData": {"password": "changed"}}));
    bench.becomes(&deep, Some("2")).await;
    bench.becomes(&all.join("a"), Some("2")).await;
    bench.becomes(&all.join("app.x"), None).await;
    bench.becomes(&all.join("password"), Some("changed")).await;
    bench.becomes(&bench.file(&first, "kubernetes.io~secret/secret/password"), Some("changed")).await;

    // The next life of volumed goes on, with a token of its own that is good, too.
    let token_file = all.join("token");
    let old = std::fs::read_to_string(&token_file).unwrap();
    assert_eq!(reviewed(&bench.cluster, &old), "system:serviceaccount:default:default");
    let pid = bench.node.kill("volumed");
    bench.node.back("volumed", pid, BOUND).await;
    bench.change("configmaps", "cm", json!({"data": {"a": "3"}}));
    bench.becomes(&deep, Some("3")).await;
    let new = wait::within(SOON, "the token is renewed", async || {
        std::fs::read_to_string(&token_file).ok().filter(|token| *token != old)
    })
    .await;
    assert_eq!(reviewed(&bench.cluster, &new), "system:serviceaccount:default:default");
    let second = bench.ready("p").await;
    assert_eq!(second["status"]["containerStatuses"], first["status"]["containerStatuses"]);

    // A key that goes freezes its volume, and an Event names it.
    bench.change("configmaps", "cm", json!({"data": {"b": "4"}}));
    wait::within(BOUND, "an Event names the key", async || {
        let events = bench.cluster.ask("GET", &format!("{IN}/events"), &Value::Null);
        let told = events["items"].as_array()?.iter().any(|event| {
            event["reason"] == "FailedMount"
                && event["message"].as_str().is_some_and(|text| text.ends_with("non-existent key: a"))
        });
        told.then_some(())
    })
    .await;
    assert_eq!(std::fs::read_to_string(&deep).unwrap(), "3");
    bench.change("configmaps", "cm", json!({"data": {"a": "5"}}));
    bench.becomes(&deep, Some("5")).await;

    // What is not there is waited for, by name.
    let wants = |name: &str, more: Value| {
        let mut spec = json!({
            "nodeName": "node-a", "automountServiceAccountToken": false, "tolerations": [{"operator": "Exists"}],
            "containers": [{
                "name": "c", "image": "local/busybox:1", "imagePullPolicy": "IfNotPresent",
                "command": ["/bin/sh", "-c", "sleep 100000"]
            }]
        });
        if let Some(volumes) = more.get("volumes") {
            spec["volumes"] = volumes.clone();
        }
        if let Some(env) = more.get("env") {
            spec["containers"][0]["env"] = env.clone();
        }
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}, "spec": spec});
        bench.cluster.ask("POST", &format!("{IN}/pods"), &pod);
    };
    wants("late-volume", json!({"volumes": [{"name": "v", "configMap": {"name": "late"}}]}));
    wants("late-env", json!({"env": [{"name": "V", "valueFrom": key("configMapKeyRef", "late", "k")}]}));
    let refused = wait::within(BOUND, "it says what is missing", async || {
        let pod = bench.pod("late-env")?;
        (waiting(&pod)["reason"] == "CreateContainerConfigError").then_some(pod)
    })
    .await;
    assert_eq!(waiting(&refused)["message"], "configmap \"late\" not found");
    assert_eq!(bench.pod("late-volume").unwrap()["status"]["phase"], "Pending");
    bench.make("configmaps", "late", json!({"data": {"k": "v"}}));
    bench.ready("late-volume").await;
    bench.ready("late-env").await;

    for name in ["p", "late-volume", "late-env"] {
        bench.cluster.ask("DELETE", &format!("{IN}/pods/{name}?gracePeriodSeconds=1"), &Value::Null);
    }
    wait::within(BOUND, "nothing is left", async || {
        let pods = std::fs::read_dir(bench.node.state().join("root/pods")).ok()?;
        (pods.count() == 0).then_some(())
    })
    .await;
    assert!(bench.node.down().await, "{}", bench.node.said());
}

/// Who the API server says a token is.
fn reviewed(cluster: &Cluster, token: &str) -> String {
    let review =
        json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}});
    let answer = cluster.ask("POST", "/apis/authentication.k8s.io/v1/tokenreviews", &review);
    answer["status"]["user"]["username"].as_str().unwrap_or_default().to_owned()
}
