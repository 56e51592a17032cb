use bulkhead_model::names;
use bulkhead_testkit::TestNode;
use bulkhead_testkit::apiserver::{FakeApiServer, base64};
use serde_json::json;

use super::*;

struct World {
    api: FakeApiServer,
    environment: Environment,
    kept: Kept,
    node: TestNode,
}

impl World {
    async fn new() -> Self {
        let node = TestNode::new().await;
        let api = FakeApiServer::start().await;
        let socket = node.api_socket("syncd");
        api.serve_at(&socket);
        let service =
            |ip: &str| json!({"spec": {"clusterIP": ip, "ports": [{"port": 443, "protocol": "TCP"}]}});
        api.put("/api/v1/namespaces/default/services/kubernetes", service("10.0.0.1"));
        api.put("/api/v1/namespaces/ns/services/web", service("10.0.0.2"));
        api.put("/api/v1/namespaces/ns/services/headless", service("None"));
        api.put("/api/v1/namespaces/other/services/db", service("10.0.0.3"));
        api.put("/api/v1/namespaces/ns/configmaps/c", json!({"data": {"k": "v"}}));
        api.put("/api/v1/namespaces/ns/secrets/s", json!({"data": {"k": base64(b"hunter2")}}));
        let client = bulkhead_kubeapi::over_socket(&socket, None);
        let check = node.context("syncd").check("services");
        let environment = Environment::new(Some((client, check)), &node.shutdown);
        Self { api, environment, kept: Kept::default(), node }
    }

    async fn read(&mut self, pod: &Pod) -> Result<EnvObjects, String> {
        let container = pod.spec.as_ref().unwrap().containers[0].clone();
        self.environment.read(pod, &container, &mut self.kept).await
    }
}

fn pod(source: &str, container: serde_json::Value) -> Pod {
    serde_json::from_value(json!({
        "metadata": {"namespace": "ns", "name": "p", "annotations": {names::CONFIG_SOURCE: source}},
        "spec": {"containers": [container]}
    }))
    .unwrap()
}

fn both() -> Pod {
    let key = |kind: &str, name: &str| json!({"name": "V", "valueFrom": {kind: {"name": name, "key": "k"}}});
    pod("api", json!({"name": "c", "env": [key("configMapKeyRef", "c"), key("secretKeyRef", "s")]}))
}

#[tokio::test]
async fn services_of_the_pods_namespace_and_the_api_servers() {
    let mut world = World::new().await;
    let mut pod = pod("api", json!({"name": "c"}));
    let hosts = |objects: &EnvObjects| {
        let all = objects.services.iter().filter(|(name, _)| name.ends_with("_SERVICE_HOST"));
        all.map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>()
    };
    let seen = world.read(&pod).await.unwrap();
    assert_eq!(hosts(&seen), ["KUBERNETES_SERVICE_HOST=10.0.0.1", "WEB_SERVICE_HOST=10.0.0.2"]);
    pod.spec.as_mut().unwrap().enable_service_links = Some(false);
    let seen = world.read(&pod).await.unwrap();
    assert_eq!(hosts(&seen), ["KUBERNETES_SERVICE_HOST=10.0.0.1"]);
    world.node.shutdown.cancel();
}

#[tokio::test]
async fn a_static_pod_waits_for_no_services_and_a_pod_of_the_api_does() {
    let mut world = World::new().await;
    world.api.fail("GET /api/v1/services", Some((503, "")));
    let client = bulkhead_kubeapi::over_socket(&world.node.api_socket("syncd"), None);
    let check = world.node.context("syncd").check("services");
    world.environment = Environment::new(Some((client, check)), &world.node.shutdown);
    assert!(world.read(&pod("file", json!({"name": "c"}))).await.unwrap().services.is_empty());
    let refused = world.read(&pod("api", json!({"name": "c"}))).await.unwrap_err();
    assert!(refused.starts_with("services have not yet been read"), "{refused}");
    world.api.heal();
    let wait = async { while world.read(&pod("api", json!({"name": "c"}))).await.is_err() {} };
    tokio::time::timeout(Duration::from_secs(30), wait).await.unwrap();
}

#[tokio::test]
async fn the_last_good_value_serves_while_the_api_server_is_away_and_no_longer() {
    let mut world = World::new().await;
    let value = |objects: &EnvObjects| objects.secrets["s"].as_ref().map(|values| values.0["k"].clone());
    assert_eq!(value(&world.read(&both()).await.unwrap()), Some(b"hunter2".to_vec()));
    for answer in [Some((503, "away")), Some((429, "busy")), Some((200, "no JSON"))] {
        world.api.fail("GET /api/v1/namespaces/ns/", answer);
        assert_eq!(value(&world.read(&both()).await.unwrap()), Some(b"hunter2".to_vec()));
        // A pod that read nothing yet cannot have it.
        let kept = std::mem::take(&mut world.kept);
        let refused = world.read(&both()).await.unwrap_err();
        assert!(!refused.contains("hunter2"), "{refused}");
        world.kept = kept;
        world.api.heal();
    }
    world.api.fail("GET /api/v1/namespaces/ns/secrets", Some((403, "you may not")));
    assert_eq!(world.read(&both()).await.unwrap_err(), "you may not");
    world.api.heal();
    world.api.remove("/api/v1/namespaces/ns/secrets/s");
    assert_eq!(value(&world.read(&both()).await.unwrap()), None, "it is gone");
    world.api.fail("GET /api/v1/namespaces/ns/", Some((503, "away")));
    assert!(world.read(&both()).await.is_err(), "what is gone is not remembered");
    let shown = format!("{:?}", world.kept);
    assert!(!shown.contains("hunter2"), "{shown}");
}

#[tokio::test]
async fn without_an_api_server_only_what_needs_none_starts() {
    let environment = Environment::new(None, &CancellationToken::new());
    let (mut kept, plain) = (Kept::default(), pod("file", json!({"name": "c"})));
    let container = |pod: &Pod| pod.spec.as_ref().unwrap().containers[0].clone();
    assert!(environment.read(&plain, &container(&plain), &mut kept).await.is_ok());
    assert!(environment.read(&both(), &container(&both()), &mut kept).await.is_err());
}
