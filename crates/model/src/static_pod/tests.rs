use super::*;
use crate::manifest;

const PATH: &str = "/etc/kubernetes/manifests/s.yaml";

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn make(yaml: &str) -> Pod {
    make_from(yaml, &StaticSource { origin: Origin::File(PATH), node_name: "Node-A" })
}

fn make_from(yaml: &str, source: &StaticSource<'_>) -> Pod {
    let pod = manifest::parse(yaml.as_bytes()).unwrap_or_else(|error| panic!("{error}")).pod;
    make_static_pod(pod, source, at("2026-11-30T14:26:04.00662829Z"))
}

fn yaml(metadata: &str, spec: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: s{metadata}}}\nspec: {{containers: [{{name: c, image: bb:1}}]{spec}}}\n"
    )
}

#[test]
fn the_spec_is_what_the_kubelet_showed_the_api_server() {
    let pod = make(
        "apiVersion: v1\nkind: Pod\nmetadata: {name: s}\nspec:\n  containers:\n  - name: c\n    \
         image: registry.k8s.io/e2e-test-images/busybox:1.36.1-1\n    command: [sleep, '99999']\n    resources:\n      \
         requests: {cpu: 10m, memory: 16Mi}\n      limits: {memory: 32Mi}\n",
    );
    // From a kubelet's mirror pod, without what the API server's admission adds.
    let expected = serde_json::json!({
        "containers": [{
            "command": ["sleep", "99999"],
            "image": "registry.k8s.io/e2e-test-images/busybox:1.36.1-1",
            "imagePullPolicy": "IfNotPresent",
            "name": "c",
            "resources": {"limits": {"memory": "32Mi"}, "requests": {"cpu": "10m", "memory": "16Mi"}},
            "terminationMessagePath": "/dev/termination-log",
            "terminationMessagePolicy": "File"
        }],
        "dnsPolicy": "ClusterFirst",
        "enableServiceLinks": true,
        "nodeName": "Node-A",
        "restartPolicy": "Always",
        "schedulerName": "default-scheduler",
        "securityContext": {},
        "terminationGracePeriodSeconds": 30,
        "tolerations": [{"effect": "NoExecute", "operator": "Exists"}]
    });
    assert_eq!(serde_json::to_value(pod.spec.unwrap()).unwrap(), expected);
    let metadata = pod.metadata;
    let uid = metadata.uid.unwrap();
    assert_eq!(
        (metadata.name.as_deref(), metadata.namespace.as_deref()),
        (Some("s-node-a"), Some("default"))
    );
    assert!(uid.len() == 32 && uid.bytes().all(|b| b.is_ascii_hexdigit()), "{uid}");
    let annotations: Vec<_> = metadata.annotations.unwrap().into_iter().collect();
    let expected = [
        ("kubernetes.io/config.hash", uid.as_str()),
        ("kubernetes.io/config.seen", "2026-11-30T14:26:04.006628290Z"),
        ("kubernetes.io/config.source", "file"),
    ];
    assert_eq!(annotations, expected.map(|(key, value)| (key.to_owned(), value.to_owned())));
}

#[test]
fn the_uid_changes_with_manifest_node_and_file_and_with_nothing_else() {
    let file = |path, node_name| StaticSource { origin: Origin::File(path), node_name };
    let uid = |yaml: &str, source: &StaticSource<'_>| make_from(yaml, source).metadata.uid.unwrap();
    let (base, source) = (yaml("", ""), file(PATH, "n"));
    let first = uid(&base, &source);
    for (name, yaml) in [
        ("again", base.clone()),
        ("white space and quotes", base.replace("bb:1", "  'bb:1'  ")),
        ("a status", format!("{base}status: {{phase: Failed}}\n")),
        (
            "what the API server owns",
            yaml(", resourceVersion: '5', deletionTimestamp: '2026-01-01T00:00:00Z'", ""),
        ),
        (
            "our annotations",
            yaml(", annotations: {kubernetes.io/config.seen: x, kubernetes.io/config.mirror: z}", ""),
        ),
    ] {
        let pod = make_from(&yaml, &source);
        assert_eq!(pod.metadata.annotations.as_ref().unwrap().len(), 3, "{name}");
        assert_eq!(pod.metadata.uid.unwrap(), first, "{name}");
        assert_eq!(
            (pod.status, pod.metadata.deletion_timestamp, pod.metadata.resource_version),
            (None, None, None)
        );
    }
    for (name, yaml, source) in [
        ("image", base.replace("bb:1", "bb:2"), source),
        ("a label", yaml(", labels: {a: b}", ""), source),
        ("grace", yaml("", ", terminationGracePeriodSeconds: 1"), source),
        ("the node", base.clone(), file(PATH, "m")),
        ("the file", base.clone(), file("/elsewhere/s.yaml", "n")),
        ("the URL", base.clone(), StaticSource { origin: Origin::Url("http://x/"), node_name: "n" }),
        ("the submission", base.clone(), StaticSource { origin: Origin::Submission, node_name: "n" }),
    ] {
        assert_ne!(uid(&yaml, &source), first, "{name}");
    }
    // One URL serves many nodes, and its pods are not one pod.
    let by_url = |node_name| uid(&base, &StaticSource { origin: Origin::Url("http://x/"), node_name });
    assert_ne!(by_url("n"), by_url("m"));
    // This very value is on nodes: a new one would restart every static pod.
    assert_eq!(first, "f6f59d6d56d3809e6b6e32c9c82b6ed5");
}

#[test]
fn a_uid_in_the_manifest_is_kept_and_is_the_hash() {
    let pod = make(&yaml(", uid: 1234-abcd, namespace: kube-system", ""));
    assert_eq!(pod.metadata.uid.as_deref(), Some("1234-abcd"));
    assert_eq!(pod.metadata.annotations.unwrap()[names::CONFIG_HASH], "1234-abcd");
    assert_eq!(pod.metadata.namespace.as_deref(), Some("kube-system"));
}

#[test]
fn a_pod_by_url_says_so() {
    let pod = make_from(&yaml("", ""), &StaticSource { origin: Origin::Url("http://x/"), node_name: "n" });
    assert_eq!(pod.metadata.annotations.unwrap()[names::CONFIG_SOURCE], "http");
    assert_eq!(pod.spec.unwrap().tolerations, None);
    let by_hand = make_from(&yaml("", ""), &StaticSource { origin: Origin::Submission, node_name: "n" });
    assert_eq!(by_hand.metadata.annotations.unwrap()[names::CONFIG_SOURCE], "http");
    assert!(by_hand.spec.unwrap().tolerations.is_some(), "it is the node's own, like a file's");
}

#[test]
fn defaults_of_containers_probes_ports_and_volumes() {
    let pod = make(
        "
apiVersion: v1
kind: Pod
metadata: {name: s}
spec:
  hostNetwork: true
  restartPolicy: Never
  terminationGracePeriodSeconds: 0
  tolerations: [{operator: Exists, effect: NoExecute}]
  initContainers:
  - {name: i, image: bb}
  containers:
  - name: c
    image: bb:latest
    imagePullPolicy: Never
    resources: {limits: {cpu: 0.5, memory: 1024Ki}}
    ports: [{containerPort: 80}, {containerPort: 53, hostPort: 53, protocol: UDP}]
    env: [{name: NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]
    livenessProbe: {httpGet: {port: 80}}
    readinessProbe: {grpc: {port: 81}, timeoutSeconds: 5, failureThreshold: 0}
    lifecycle: {preStop: {httpGet: {port: 80, scheme: HTTPS}}}
  volumes:
  - {name: a}
  - {name: h, hostPath: {path: /a}}
  - {name: d, downwardAPI: {items: [{path: f, fieldRef: {fieldPath: metadata.name}}]}}
  - {name: m, emptyDir: {medium: Memory, sizeLimit: 1024Ki}}
",
    );
    let spec = serde_json::to_value(pod.spec.unwrap()).unwrap();
    let expected = [
        ("/restartPolicy", serde_json::json!("Never")),
        ("/terminationGracePeriodSeconds", serde_json::json!(0)),
        ("/tolerations", serde_json::json!([{"effect": "NoExecute", "operator": "Exists"}])),
        ("/initContainers/0/imagePullPolicy", serde_json::json!("Always")),
        ("/initContainers/0/resources", serde_json::json!({})),
        ("/containers/0/imagePullPolicy", serde_json::json!("Never")),
        (
            "/containers/0/resources",
            serde_json::json!({
                "limits": {"cpu": "500m", "memory": "1Mi"}, "requests": {"cpu": "500m", "memory": "1Mi"}
            }),
        ),
        (
            "/containers/0/ports/0",
            serde_json::json!({"containerPort": 80, "hostPort": 80, "protocol": "TCP"}),
        ),
        (
            "/containers/0/ports/1",
            serde_json::json!({"containerPort": 53, "hostPort": 53, "protocol": "UDP"}),
        ),
        ("/containers/0/env/0/valueFrom/fieldRef/apiVersion", serde_json::json!("v1")),
        (
            "/containers/0/livenessProbe",
            serde_json::json!({
                "httpGet": {"path": "/", "port": 80, "scheme": "HTTP"},
                "timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3
            }),
        ),
        (
            "/containers/0/readinessProbe",
            serde_json::json!({
                "grpc": {"port": 81, "service": ""},
                "timeoutSeconds": 5, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3
            }),
        ),
        (
            "/containers/0/lifecycle/preStop/httpGet",
            serde_json::json!({"path": "/", "port": 80, "scheme": "HTTPS"}),
        ),
        ("/volumes/0", serde_json::json!({"name": "a", "emptyDir": {}})),
        ("/volumes/1", serde_json::json!({"name": "h", "hostPath": {"path": "/a", "type": ""}})),
        (
            "/volumes/2/downwardAPI",
            serde_json::json!({
                "defaultMode": 420,
                "items": [{"path": "f", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}]
            }),
        ),
        ("/volumes/3/emptyDir", serde_json::json!({"medium": "Memory", "sizeLimit": "1Mi"})),
    ];
    for (pointer, value) in expected {
        assert_eq!(spec.pointer(pointer), Some(&value), "{pointer}");
    }
}

#[test]
fn a_static_pod_stays_the_same_when_its_defaults_are_filled_in_twice() {
    let pod = make(&yaml("", ", volumes: [{name: a}]"));
    let mut again = pod.spec.clone().unwrap();
    defaults::fill(&mut again);
    assert_eq!(Some(again), pod.spec);
}
