//! Against what a real kubelet published.

use serde_json::{Value, json};

use super::*;

fn conditions(since: &str, generation: Option<i64>) -> Value {
    let types = ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"];
    let one = |type_: &&str| {
        let mut condition = json!({"type": type_, "status": "True", "lastTransitionTime": since});
        if let Some(generation) = generation {
            condition["observedGeneration"] = json!(generation);
        }
        condition
    };
    types.iter().map(one).collect()
}

fn world(pod: StatusView) -> World {
    let started_at: Timestamp = "2026-11-30T14:26:04.006628290Z".parse().unwrap();
    let image = "registry.k8s.io/e2e-test-images/busybox:1.36.1-1".to_owned();
    let running = Container {
        id: "2b1dbf2b".into(),
        created_at: started_at,
        started_at: Some(started_at),
        image,
        image_id: "sha256:4d00640e".into(),
        user: Some(crate::runtime::User { uid: 0, gid: 0, supplemental_groups: vec![0] }),
        ..container("c", 0, Running, 0)
    };
    let mut world = World::new(pod, vec![running]);
    world.decision.started_at = Some(started_at);
    world.now = started_at;
    world
}

fn container_status(extra: Value) -> Value {
    let mut status = json!({
        "containerID": "containerd://2b1dbf2b",
        "image": "registry.k8s.io/e2e-test-images/busybox:1.36.1-1",
        "imageID": "sha256:4d00640e",
        "lastState": {},
        "name": "c",
        "ready": true,
        "restartCount": 0,
        "started": true,
        "state": {"running": {"startedAt": "2026-11-30T14:26:04Z"}},
        "user": {"linux": {"gid": 0, "supplementalGroups": [0], "uid": 0}},
    });
    let (Value::Object(status_fields), Value::Object(extra)) = (&mut status, extra) else {
        panic!("not objects")
    };
    status_fields.extend(extra);
    status
}

fn status(extra: Value) -> Value {
    let mut status = json!({
        "hostIP": "192.0.2.10",
        "hostIPs": [{"ip": "192.0.2.10"}],
        "phase": "Running",
        "podIP": "10.1.0.5",
        "podIPs": [{"ip": "10.1.0.5"}],
        "startTime": "2026-11-30T14:26:04Z",
    });
    let (Value::Object(fields), Value::Object(extra)) = (&mut status, extra) else { panic!("not objects") };
    fields.extend(extra);
    status
}

#[test]
fn a_static_pod_has_the_status_that_the_kubelet_gives_it() {
    let list =
        |pairs: &[(&str, &str)]| pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    let asked = ResourceView {
        requests: list(&[("cpu", "10m"), ("memory", "16Mi")]),
        limits: list(&[("memory", "32Mi")]),
    };
    let mut pod = StatusView { qos_class: "Burstable".into(), ..view(RestartPolicy::Always, &["c"]) };
    pod.resources = asked.clone();
    pod.containers[0].resources = asked;
    let resources = json!({"limits": {"memory": "32Mi"}, "requests": {"cpu": "10m", "memory": "16Mi"}});
    let allocated = json!({"cpu": "10m", "memory": "16Mi"});
    let expected = status(json!({
        "allocatedResources": allocated,
        "resources": resources,
        "conditions": conditions("2026-11-30T14:26:04Z", None),
        "containerStatuses": [container_status(json!({"allocatedResources": allocated, "resources": resources}))],
        "qosClass": "Burstable",
    }));
    assert_eq!(serde_json::to_value(world(pod).status()).unwrap(), expected);
}

#[test]
fn a_pod_of_the_api_has_the_status_that_the_kubelet_gives_it() {
    let mut pod = StatusView { generation: 1, ..view(RestartPolicy::Always, &["c"]) };
    let path = "/var/run/secrets/kubernetes.io/serviceaccount";
    pod.containers[0].mounts = vec![MountView {
        volume: "kube-api-access-j2t58".into(),
        path: path.into(),
        read_only: true,
        recursive_read_only: String::new(),
    }];
    let mount = json!({
        "mountPath": path, "name": "kube-api-access-j2t58", "readOnly": true, "recursiveReadOnly": "Disabled",
    });
    let expected = status(json!({
        "resources": {},
        "conditions": conditions("2026-11-30T14:26:04Z", Some(1)),
        "containerStatuses": [container_status(json!({"resources": {}, "volumeMounts": [mount]}))],
        "observedGeneration": 1,
        "qosClass": "BestEffort",
    }));
    assert_eq!(serde_json::to_value(world(pod).status()).unwrap(), expected);
}

#[test]
fn a_mount_says_how_it_is_read_only_and_a_user_outlives_a_runtime_that_does_not_tell() {
    let mut pod = view(RestartPolicy::Always, &["c"]);
    let mount = |read_only, recursive: &str| MountView {
        volume: "v".into(),
        path: "/v".into(),
        read_only,
        recursive_read_only: recursive.into(),
    };
    let table = [
        (false, "", None),
        (false, "Disabled", None),
        (true, "", Some("Disabled")),
        (true, "Enabled", Some("Enabled")),
        (true, "IfPossible", Some("Enabled")),
    ];
    pod.containers[0].mounts = (0..)
        .zip(&table)
        .map(|(at, (read_only, wish, _)): (u8, _)| MountView {
            path: format!("/{at}"),
            ..mount(*read_only, wish)
        })
        .collect();
    let mut world = world(pod);
    let told = |status: &PodStatus| {
        let container = &status.container_statuses.as_ref().unwrap()[0];
        let mounts = container.volume_mounts.iter().flatten();
        mounts.map(|mount| mount.recursive_read_only.clone()).collect::<Vec<_>>()
    };
    let expected = table.map(|(_, _, told)| told.map(ToOwned::to_owned)).to_vec();
    let status = world.status();
    assert_eq!(told(&status), expected);
    world.node.recursive_read_only = Some(false);
    let without: Vec<_> = expected.iter().map(|told| told.as_ref().map(|_| "Disabled".to_owned())).collect();
    assert_eq!(told(&world.status()), without);
    world.node.recursive_read_only = None;
    let unknown: Vec<_> =
        expected.iter().map(|told| told.clone().filter(|told| told == "Disabled")).collect();
    assert_eq!(told(&world.status()), unknown, "nothing is guessed");
    world.previous = Some(status.clone());
    assert_eq!(told(&world.status()), expected, "what was published stands");
    let user = status.container_statuses.as_ref().unwrap()[0].user.clone();
    assert!(user.is_some());
    world.previous = Some(status);
    world.runtime.as_mut().unwrap().containers[0].user = None;
    assert_eq!(world.status().container_statuses.unwrap()[0].user, user);
}

#[test]
fn the_stop_signal_is_told_of_a_container_that_names_one() {
    let mut world = world(view(RestartPolicy::Always, &["c"]));
    let told = |world: &World| world.status().container_statuses.unwrap()[0].stop_signal.clone();
    world.runtime.as_mut().unwrap().containers[0].stop_signal = "SIGQUIT".into();
    assert_eq!(told(&world), None, "the image's is nobody's wish");
    world.pod.containers[0].stop_signal = "SIGQUIT".into();
    assert_eq!(told(&world).as_deref(), Some("SIGQUIT"));
    world.previous = Some(world.status());
    world.runtime.as_mut().unwrap().containers[0].stop_signal.clear();
    assert_eq!(told(&world).as_deref(), Some("SIGQUIT"), "known from before");
    world.previous = None;
    assert_eq!(told(&world), None, "a runtime that does not tell");
}

#[test]
fn a_status_survives_the_way_to_the_api_server_and_back() {
    let mut world = world(view(RestartPolicy::Always, &["c"]));
    let status = world.status();
    let sent = serde_json::to_string(&status).unwrap();
    let back: PodStatus = serde_json::from_str(&sent).unwrap();
    assert_eq!(back, status);
    world.previous = Some(back);
    world.now = at(9_999_999);
    assert_eq!(world.status(), status);
}
