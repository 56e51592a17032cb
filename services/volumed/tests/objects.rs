//! Volumes of objects of the API, over volumed's socket and against a fake API server.
#![cfg(test)]

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bulkhead_api::volumed::v1::projected_source::Source as Part;
use bulkhead_api::volumed::v1::volume::Source;
use bulkhead_api::volumed::v1::volumed_client::VolumedClient;
use bulkhead_api::volumed::v1::{
    DownwardApi, KeyFile, ObjectFiles, Projected, ProjectedSource, ServiceAccountToken, SetUpPodRequest,
    TearDownPodRequest, TrustBundle, Volume, VolumeFile,
};
use bulkhead_base::{Clock, FakeClock, SystemClock};
use bulkhead_ipc::PeerChannel;
use bulkhead_ipc::status::with_deadline;
use bulkhead_service::{NoFlags, Service, ServiceError};
use bulkhead_testkit::TestNode;
use bulkhead_testkit::apiserver::{FakeApiServer, base64};
use serde_json::json;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tonic::{Code, Status};
use volumed::Volumed;

/// Longest wait for anything.
const BOUND: Duration = Duration::from_secs(15);
const WATCHES: &str = "GET /api/v1/namespaces/ns/configmaps?";

struct World {
    node: TestNode,
    api: FakeApiServer,
    clock: FakeClock,
    volumes: VolumedClient<PeerChannel>,
    life: Option<Life>,
}

struct Life {
    task: JoinHandle<Result<(), ServiceError>>,
    shutdown: CancellationToken,
}

impl World {
    async fn new() -> Self {
        let mut node = TestNode::new().await;
        node.kubeconfig = Some("/any".into());
        let clock = FakeClock::new(SystemClock.now());
        node.clock = Arc::new(clock.clone());
        let api = FakeApiServer::start().await;
        api.serve_at(&node.api_socket("volumed"));
        api.put("/api/v1/namespaces/ns/serviceaccounts/sa", json!({}));
        let volumes = VolumedClient::new(node.channel("volumed"));
        let mut world = Self { node, api, clock, volumes, life: None };
        world.begin();
        world
    }

    fn begin(&mut self) {
        let context = self.node.context("volumed");
        let shutdown = context.shutdown.clone();
        let task = tokio::spawn(Volumed::run(context, NoFlags {}));
        self.life = Some(Life { task, shutdown });
    }

    async fn end(&mut self) {
        let life = self.life.take().unwrap();
        life.shutdown.cancel();
        tokio::time::timeout(BOUND, life.task).await.unwrap().unwrap().unwrap();
    }

    fn pod(&self, uid: &str) -> PathBuf {
        let path = self.node.root_dir().join("pods").join(uid);
        std::fs::create_dir(&path).unwrap();
        path
    }

    async fn set_up(&mut self, uid: &str, volumes: &[Volume]) -> Result<(), Status> {
        let request = SetUpPodRequest {
            pod_uid: uid.to_owned(),
            volumes: volumes.to_vec(),
            fs_group: None,
            pod_namespace: "ns".to_owned(),
            pod_name: "p".to_owned(),
            service_account: "sa".to_owned(),
            token_owner: None,
        };
        for _ in 0..100 {
            match self.volumes.set_up_pod(with_deadline(request.clone(), BOUND)).await {
                // volumed itself begins.
                Err(status)
                    if status.code() == Code::Unavailable && !status.message().starts_with("volume") =>
                {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
                answer => return answer.map(drop),
            }
        }
        panic!("volumed does not answer")
    }

    async fn tear_down(&mut self, uid: &str) {
        let request = TearDownPodRequest { pod_uid: uid.to_owned() };
        self.volumes.tear_down_pod(with_deadline(request, BOUND)).await.unwrap();
    }

    fn config_map(&self, name: &str, values: &[(&str, &str)]) {
        let data: serde_json::Map<_, _> =
            values.iter().map(|(key, value)| ((*key).to_owned(), json!(value))).collect();
        self.api.put(&format!("/api/v1/namespaces/ns/configmaps/{name}"), json!({"data": data}));
    }

    fn secret(&self, name: &str, key: &str, value: &str) {
        let data = json!({key: base64(value.as_bytes())});
        self.api.put(&format!("/api/v1/namespaces/ns/secrets/{name}"), json!({"data": data}));
    }
}

fn object(name: &str, optional: bool, items: &[(&str, &str, Option<u32>)]) -> ObjectFiles {
    let item = |(key, path, mode): &(&str, &str, Option<u32>)| KeyFile {
        key: (*key).to_owned(),
        path: (*path).to_owned(),
        mode: *mode,
    };
    ObjectFiles {
        name: name.to_owned(),
        optional,
        items: items.iter().map(item).collect(),
        default_mode: 0o644,
    }
}

fn config_map(volume: &str, name: &str, optional: bool) -> Volume {
    Volume { name: volume.to_owned(), source: Some(Source::ConfigMap(object(name, optional, &[]))) }
}

fn projected(volume: &str, parts: Vec<Part>) -> Volume {
    let sources = parts.into_iter().map(|part| ProjectedSource { source: Some(part) }).collect();
    Volume { name: volume.to_owned(), source: Some(Source::Projected(Projected { sources })) }
}

fn token(path: &str) -> Part {
    Part::Token(ServiceAccountToken {
        path: path.to_owned(),
        audience: String::new(),
        expiration_seconds: 600,
        mode: 0o644,
    })
}

fn text(path: &Path) -> Option<String> {
    std::fs::read_to_string(path).ok()
}

async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let wait = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    assert!(tokio::time::timeout(BOUND, wait).await.is_ok(), "in time: {what}");
}

async fn becomes(path: &Path, expected: Option<&str>) {
    until(&format!("{} is {expected:?}", path.display()), || text(path).as_deref() == expected).await;
}

fn may_mount() -> bool {
    let may = rustix::mount::fsopen("tmpfs", rustix::mount::FsOpenFlags::FSOPEN_CLOEXEC).is_ok();
    if !may {
        eprintln!("skipped: mounting takes CAP_SYS_ADMIN");
    }
    may
}

#[tokio::test]
async fn files_are_what_the_objects_say_and_follow_them() {
    if !may_mount() {
        return;
    }
    let mut world = World::new().await;
    let pod = world.pod("u1");
    world.config_map("c", &[("a", "1"), ("b.txt", "2")]);
    world.secret("s", "password", "hunter2");
    let bundle = "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n";
    world
        .api
        .put("/apis/certificates.k8s.io/v1/clustertrustbundles/x", json!({"spec": {"trustBundle": bundle}}));
    let secret = Source::Secret(object("s", false, &[("password", "deep/pw", Some(0o400))]));
    let file = VolumeFile { path: "name".to_owned(), content: b"p".to_vec(), mode: 0o644 };
    let trust =
        TrustBundle { name: "x".to_owned(), path: "ca.pem".to_owned(), mode: 0o644, ..Default::default() };
    let all = [
        config_map("config", "c", false),
        Volume { name: "secret".to_owned(), source: Some(secret) },
        projected(
            "all",
            vec![
                Part::ConfigMap(object("c", false, &[("a", "from-config", None)])),
                Part::Secret(object("s", false, &[])),
                Part::DownwardApi(DownwardApi { files: vec![file] }),
                token("token"),
                Part::TrustBundle(trust),
            ],
        ),
    ];
    world.set_up("u1", &all).await.unwrap();
    let volumes = pod.join("volumes");
    let config = volumes.join("kubernetes.io~configmap/config");
    assert_eq!(text(&config.join("a")).unwrap(), "1");
    assert_eq!(text(&config.join("b.txt")).unwrap(), "2");
    let password = volumes.join("kubernetes.io~secret/secret/deep/pw");
    assert_eq!(text(&password).unwrap(), "hunter2");
    assert_eq!(password.metadata().unwrap().mode() & 0o777, 0o400);
    let all_in_one = volumes.join("kubernetes.io~projected/all");
    for (path, expected) in [
        ("from-config", "1"),
        ("password", "hunter2"),
        ("name", "p"),
        ("token", "ns/sa/p/1"),
        ("ca.pem", bundle),
    ] {
        assert_eq!(text(&all_in_one.join(path)).as_deref(), Some(expected), "{path}");
    }
    // Secrets and tokens are in memory only.
    for place in ["kubernetes.io~secret/secret", "kubernetes.io~projected/all"] {
        let kind = rustix::fs::statfs(volumes.join(place)).unwrap().f_type;
        assert_eq!(kind, 0x0102_1994, "{place} is a tmpfs");
    }
    let kept = std::fs::read(pod.join("volumes-wanted/request")).unwrap();
    let kept = String::from_utf8_lossy(&kept);
    assert!(kept.contains("password") && !kept.contains("hunter2") && !kept.contains("ns/sa/p/"));

    world.config_map("c", &[("a", "3")]);
    world.secret("s", "password", "changed");
    becomes(&config.join("a"), Some("3")).await;
    becomes(&config.join("b.txt"), None).await;
    becomes(&all_in_one.join("from-config"), Some("3")).await;
    becomes(&password, Some("changed")).await;
    becomes(&all_in_one.join("password"), Some("changed")).await;
    assert_eq!(text(&all_in_one.join("token")).unwrap(), "ns/sa/p/1", "one token is enough");
    // Again and again, as it is for every container that starts: nothing new is asked for.
    for _ in 0..3 {
        world.set_up("u1", &all).await.unwrap();
    }
    assert_eq!(world.api.count(WATCHES), 1, "one watch for two volumes");
    assert_eq!(world.api.count("POST /api/v1/namespaces/ns/serviceaccounts/sa/token"), 1);

    world.tear_down("u1").await;
    assert!(!volumes.exists() && !pod.join("volumes-wanted").exists());
    world.end().await;
}

#[tokio::test]
async fn what_is_missing_is_waited_for_and_what_goes_stays_unless_it_is_optional() {
    let mut world = World::new().await;
    let pod = world.pod("u1").join("volumes/kubernetes.io~configmap");
    let volumes = [config_map("must", "must", false), config_map("may", "may", true)];
    let refused = world.set_up("u1", &volumes).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert_eq!(refused.message(), "volume `must`: configmap \"must\" not found");
    world.config_map("must", &[("a", "1")]);
    until("the object is seen", || world.api.count(WATCHES) == 2).await;
    let mut tries = 0;
    while let Err(error) = world.set_up("u1", &volumes).await {
        tries += 1;
        assert!(tries < 100, "{error}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(world.api.count(WATCHES), 2, "tries do not ask the API server again");
    assert_eq!(text(&pod.join("must/a")).unwrap(), "1");
    assert!(pod.join("may").is_dir());

    world.config_map("may", &[("b", "2")]);
    becomes(&pod.join("may/b"), Some("2")).await;
    world.api.remove("/api/v1/namespaces/ns/configmaps/must");
    world.api.remove("/api/v1/namespaces/ns/configmaps/may");
    becomes(&pod.join("may/b"), None).await;
    assert_eq!(text(&pod.join("must/a")).unwrap(), "1", "a running pod keeps what it has");
    // Another pod cannot have it.
    world.pod("u2");
    assert!(world.set_up("u2", &volumes[..1]).await.is_err());
    world.end().await;
}

#[tokio::test]
async fn a_missing_key_freezes_its_volume_alone_and_is_named() {
    // Known fault V4.
    let mut world = World::new().await;
    let pod = world.pod("u1").join("volumes/kubernetes.io~configmap");
    world.config_map("one", &[("a", "1"), ("b", "1")]);
    world.config_map("two", &[("c", "1")]);
    let named = object("one", false, &[("a", "a", None), ("b", "b", None)]);
    let named = Volume { name: "one".to_owned(), source: Some(Source::ConfigMap(named)) };
    let volumes = [named, config_map("two", "two", false)];
    world.set_up("u1", &volumes).await.unwrap();
    world.config_map("one", &[("a", "2")]);
    world.config_map("two", &[("c", "2")]);
    becomes(&pod.join("two/c"), Some("2")).await;
    assert_eq!(
        (text(&pod.join("one/a")).unwrap(), text(&pod.join("one/b")).unwrap()),
        ("1".into(), "1".into())
    );
    let refused = world.set_up("u1", &volumes).await.unwrap_err();
    assert!(refused.message().contains("non-existent key: b"), "{}", refused.message());
    world.config_map("one", &[("a", "3"), ("b", "3")]);
    becomes(&pod.join("one/b"), Some("3")).await;
    world.end().await;
}

#[tokio::test]
async fn without_the_api_server_what_stands_stays_and_what_is_new_waits() {
    let mut world = World::new().await;
    let first = world.pod("u1").join("volumes/kubernetes.io~configmap/v/a");
    let second = world.pod("u2").join("volumes/kubernetes.io~configmap/v/a");
    world.config_map("c", &[("a", "1")]);
    world.config_map("d", &[("a", "1")]);
    world.set_up("u1", &[config_map("v", "c", false)]).await.unwrap();
    world.api.stop();
    let waits = world.set_up("u2", &[config_map("v", "d", false)]).await.unwrap_err();
    assert_eq!(waits.code(), Code::Unavailable, "{}", waits.message());
    // What is known is enough for a container that starts again.
    world.set_up("u1", &[config_map("v", "c", false)]).await.unwrap();
    world.config_map("c", &[("a", "2")]);
    world.api.start_again().await;
    world.api.serve_at(&world.node.api_socket("volumed"));
    becomes(&first, Some("2")).await;
    let mut tries = 0;
    while let Err(error) = world.set_up("u2", &[config_map("v", "d", false)]).await {
        tries += 1;
        assert!(tries < 200, "{error}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(text(&second).unwrap(), "1");
    world.end().await;
}

#[tokio::test]
async fn the_next_life_goes_on_without_being_told() {
    let mut world = World::new().await;
    let file = world.pod("u1").join("volumes/kubernetes.io~configmap/v/a");
    world.config_map("c", &[("a", "1")]);
    world.set_up("u1", &[config_map("v", "c", false)]).await.unwrap();
    world.end().await;
    world.config_map("c", &[("a", "2")]);
    assert_eq!(text(&file).unwrap(), "1");
    world.begin();
    becomes(&file, Some("2")).await;
    world.config_map("c", &[("a", "3")]);
    becomes(&file, Some("3")).await;
    world.end().await;
}

#[tokio::test]
async fn tokens_are_renewed_and_an_old_one_is_better_than_none() {
    // Known fault V6.
    if !may_mount() {
        return;
    }
    let mut world = World::new().await;
    let token_file = world.pod("u1").join("volumes/kubernetes.io~projected/t/token");
    world.config_map("c", &[("a", "1")]);
    let volume =
        projected("t", vec![token("token"), Part::ConfigMap(object("c", false, &[("a", "a", None)]))]);
    world.set_up("u1", std::slice::from_ref(&volume)).await.unwrap();
    assert_eq!(text(&token_file).unwrap(), "ns/sa/p/1");
    let requests = "POST /api/v1/namespaces/ns/serviceaccounts/sa/token";
    // Nine minutes later it is due; any change makes the pod be looked at.
    world.clock.advance(Duration::from_secs(540));
    world.api.fail(requests, Some((403, "no")));
    world.config_map("c", &[("a", "2")]);
    becomes(&token_file.with_file_name("a"), Some("2")).await;
    assert_eq!(text(&token_file).unwrap(), "ns/sa/p/1", "the old one stays");
    until("it is asked for again", || world.api.count(requests) >= 3).await;
    world.api.heal();
    until("it is renewed", || text(&token_file).is_some_and(|text| text != "ns/sa/p/1")).await;
    // The next life has none, and asks.
    world.end().await;
    let before = text(&token_file).unwrap();
    world.begin();
    until("there is a new one", || text(&token_file).is_some_and(|text| text != before)).await;
    world.tear_down("u1").await;
    world.end().await;
}

#[tokio::test]
async fn an_api_server_that_answers_badly_harms_nothing() {
    let mut world = World::new().await;
    let pod = world.pod("u1").join("volumes/kubernetes.io~configmap");
    let big = "x".repeat(1 << 20);
    world.config_map("big", &[("a", &big)]);
    world.config_map("c", &[("a", "1")]);
    for (code, body) in [
        (429, "slow down"),
        (200, "no JSON \u{0} at all\n"),
        (200, "{\"type\":\"ADDED\",\"object\":{\"data\":7}}\n"),
    ] {
        world.api.fail(WATCHES, Some((code, body)));
        let refused = world.set_up("u1", &[config_map("c", "c", false)]).await.unwrap_err();
        assert_eq!(refused.code(), Code::Unavailable, "{code}: {}", refused.message());
        world.api.heal();
        world.tear_down("u1").await;
    }
    world.set_up("u1", &[config_map("c", "c", false), config_map("big", "big", false)]).await.unwrap();
    assert_eq!(text(&pod.join("big/a")).unwrap().len(), 1 << 20);
    // A watch that ends with an error is begun anew.
    world.api.compact();
    world.config_map("c", &[("a", "2")]);
    becomes(&pod.join("c/a"), Some("2")).await;
    world.end().await;
}

#[tokio::test]
async fn what_never_changes_is_not_watched_and_nothing_is_kept_for_nobody() {
    let mut world = World::new().await;
    world.pod("u1");
    let frozen = json!({"data": {"a": "1"}, "immutable": true});
    world.api.put("/api/v1/namespaces/ns/configmaps/frozen", frozen);
    world.config_map("c", &[("a", "1")]);
    let volumes = [config_map("f", "frozen", false), config_map("c", "c", false)];
    world.set_up("u1", &volumes).await.unwrap();
    assert_eq!(world.api.watches(), 1, "of two objects one can change");
    // Without the volume nobody needs the object.
    world.set_up("u1", &volumes[..1]).await.unwrap();
    until("its watch ends", || world.api.watches() == 0).await;
    world.set_up("u1", &volumes).await.unwrap();
    until("it is watched again", || world.api.watches() == 1).await;
    world.tear_down("u1").await;
    until("its watch ends", || world.api.watches() == 0).await;
    world.end().await;
}
