//! Streams, guards and channels over real sockets.
#![cfg(test)]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bulkhead_api::access::{ACCESS, Access};
use bulkhead_api::common::v1::WatchRequest;
use bulkhead_api::volumed::v1 as volumed;
use bulkhead_base::SystemClock;
use bulkhead_ipc::listen::listen;
use bulkhead_ipc::publisher::{BoxStream, ITEMS_PER_MESSAGE};
use bulkhead_ipc::server::Guard;
use bulkhead_ipc::{Channels, Identities, Identity, Mirror, PeerBoard, Publisher};
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;
use tonic::{Code, Request, Response, Status};
use volumed::volumed_client::VolumedClient;
use volumed::volumed_server::{Volumed, VolumedServer};

type Volumes = Publisher<String, volumed::PodVolumes>;

struct Fake(Volumes);

#[tonic::async_trait]
impl Volumed for Fake {
    async fn set_up_pod(
        &self,
        _: Request<volumed::SetUpPodRequest>,
    ) -> Result<Response<volumed::SetUpPodResponse>, Status> {
        Err(Status::failed_precondition("no"))
    }
    async fn set_up_sub_paths(
        &self,
        _: Request<volumed::SetUpSubPathsRequest>,
    ) -> Result<Response<volumed::SetUpSubPathsResponse>, Status> {
        Err(Status::failed_precondition("no"))
    }
    async fn tear_down_pod(
        &self,
        _: Request<volumed::TearDownPodRequest>,
    ) -> Result<Response<volumed::TearDownPodResponse>, Status> {
        std::future::pending().await
    }
    async fn measure_pod(
        &self,
        _: Request<volumed::MeasurePodRequest>,
    ) -> Result<Response<volumed::PodVolumes>, Status> {
        Err(Status::not_found("no"))
    }
    type WatchVolumesStream = BoxStream<volumed::PodVolumesUpdate>;
    async fn watch_volumes(
        &self,
        _: Request<WatchRequest>,
    ) -> Result<Response<Self::WatchVolumesStream>, Status> {
        Ok(Response::new(self.0.subscribe()))
    }
}

struct Node {
    dir: tempfile::TempDir,
    identities: Identities,
    access: &'static Access,
}

impl Node {
    /// The test's user is the process `caller`; root is `cli` whatever it says here.
    fn new(caller: &str) -> Self {
        let uid = rustix::process::getuid().as_raw();
        let mut identities = Identities::from_base(4_000_000);
        identities.process.insert(caller.to_owned(), Identity { uid, gid: uid });
        identities.process.insert("volumed".to_owned(), Identity { uid, gid: uid });
        let mut access = ACCESS.clone();
        if uid == 0 {
            // As root the test is `cli`, so `cli` gets the rights of the caller that it plays.
            for row in access.process.values_mut() {
                for callers in row.callers.values_mut().filter(|callers| callers.contains(caller)) {
                    callers.insert("cli".to_owned());
                }
            }
        }
        Self { dir: tempfile::tempdir().unwrap(), identities, access: Box::leak(Box::new(access)) }
    }

    fn socket(&self) -> std::path::PathBuf {
        self.dir.path().join("volumed.sock")
    }

    async fn serve(&self, volumes: Volumes) -> (CancellationToken, Guard) {
        let stop = CancellationToken::new();
        let guard = Guard::new("volumed", Arc::new(self.identities.clone()), self.access);
        let listener = listen(&self.socket(), None).await.unwrap();
        let routes = Routes::new(VolumedServer::new(Fake(volumes)));
        let (serving, token) = (guard.clone(), stop.clone());
        let listener = listener.into_std().unwrap();
        // On a runtime of its own that is dropped on cancel: connections live in tasks, and a killed process has none.
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let listener = tokio::net::UnixListener::from_std(listener).unwrap();
                let never = CancellationToken::new();
                token.run_until_cancelled(serving.serve(listener, routes, never)).await
            });
        });
        (stop, guard)
    }

    fn channels(&self) -> Channels {
        let board = PeerBoard::new(Arc::new(SystemClock));
        Channels::new(self.dir.path(), Arc::new(self.identities.clone()), board)
    }

    fn follow(&self, channels: &Channels) -> Mirror<String, volumed::PodVolumes> {
        let client = VolumedClient::new(channels.peer("volumed"));
        Mirror::follow(channels.handle("volumed"), CancellationToken::new(), move || {
            let mut client = client.clone();
            async move { client.watch_volumes(WatchRequest {}).await }
        })
    }
}

fn pod(uid: &str) -> (String, volumed::PodVolumes) {
    (uid.to_owned(), volumed::PodVolumes { pod_uid: uid.to_owned(), volumes: Vec::new() })
}

async fn bounded<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), future)
        .await
        .unwrap_or_else(|_| panic!("not in time: {what}"))
}

fn keys(mirror: &Mirror<String, volumed::PodVolumes>) -> Vec<String> {
    mirror.snapshot().into_keys().collect()
}

#[tokio::test]
async fn a_mirror_follows_through_the_publishers_death() {
    let node = Node::new("syncd");
    let volumes = Volumes::new(CancellationToken::new());
    for n in 0..ITEMS_PER_MESSAGE * 2 + 1 {
        let (key, value) = pod(&format!("{n:04}"));
        volumes.upsert(key, value);
    }
    let (stop, _) = node.serve(volumes.clone()).await;
    let channels = node.channels();
    let mirror = node.follow(&channels);
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(!mirror.status().synced, "nothing is told before the state is whole");
    volumes.open();
    bounded("a snapshot in pieces", mirror.wait_until(|s, t| s.live && t.len() == ITEMS_PER_MESSAGE * 2 + 1))
        .await;
    volumes.replace(BTreeMap::from([pod("a"), pod("b")]));
    bounded("changes", mirror.wait_until(|_, t| t.len() == 2)).await;
    let epoch = mirror.status().epoch;

    stop.cancel();
    bounded("the break", mirror.wait_until(|s, _| !s.live)).await;
    assert!(mirror.status().synced);
    assert_eq!(keys(&mirror), ["a", "b"], "the last state is kept");
    let board = channels.board().snapshot();
    assert!(!board["volumed"].connected && !board["volumed"].last_error.is_empty());

    let successor = Volumes::new(CancellationToken::new());
    let (_stop, _) = node.serve(successor.clone()).await;
    let mut changes = mirror.changes();
    assert_eq!(changes.next().await.upserts.len(), 2);
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(keys(&mirror), ["a", "b"], "a successor that knows nothing yet takes nothing away");
    successor.replace(BTreeMap::from([pod("b"), pod("c")]));
    successor.open();
    let since = bounded("the difference", changes.next()).await;
    assert_eq!(
        (since.removed, since.upserts.len()),
        (vec!["a".to_owned()], 1),
        "only what differs is a change"
    );
    assert_ne!(mirror.status().epoch, epoch);
}

#[tokio::test]
async fn callers_that_are_not_listed_are_refused_and_counted() {
    // imaged may not call volumed; statusd may.
    for (caller, allowed) in [("imaged", false), ("statusd", true)] {
        let node = Node::new(caller);
        let (_stop, guard) = node.serve(Volumes::new(CancellationToken::new())).await;
        let mut client = VolumedClient::new(node.channels().peer("volumed"));
        let answer = client.set_up_pod(volumed::SetUpPodRequest::default()).await.unwrap_err();
        let wanted = if allowed { Code::FailedPrecondition } else { Code::PermissionDenied };
        assert_eq!(answer.code(), wanted, "{caller}: {answer}");
        assert_eq!(guard.refused(), u64::from(!allowed));
        if !allowed {
            assert!(answer.message().contains("bulkhead.volumed.v1.Volumed"), "{answer}");
        }
    }
}

#[tokio::test]
async fn a_stranger_who_took_a_socket_is_not_spoken_to() {
    let node = Node::new("syncd");
    let (_stop, _) = node.serve(Volumes::new(CancellationToken::new())).await;
    let board = PeerBoard::new(Arc::new(SystemClock));
    // By these identities volumed is somebody else than who serves.
    let channels = Channels::new(node.dir.path(), Arc::new(Identities::from_base(4_000_000)), board);
    let mut client = VolumedClient::new(channels.peer("volumed"));
    let answer = client.set_up_pod(volumed::SetUpPodRequest::default()).await.unwrap_err();
    assert_eq!(answer.code(), Code::Unavailable);
    assert!(channels.board().snapshot()["volumed"].last_error.contains("belongs to uid"));
}

#[tokio::test]
async fn a_deadline_ends_a_call_that_hangs_and_a_missing_peer_is_unavailable() {
    let node = Node::new("syncd");
    let (stop, _) = node.serve(Volumes::new(CancellationToken::new())).await;
    let mut client = VolumedClient::new(node.channels().peer("volumed"));
    let hang =
        |deadline| bulkhead_ipc::status::with_deadline(volumed::TearDownPodRequest::default(), deadline);
    let answer =
        bounded("the deadline", client.tear_down_pod(hang(Duration::from_millis(100)))).await.unwrap_err();
    assert!(matches!(answer.code(), Code::DeadlineExceeded | Code::Cancelled), "{answer}");
    stop.cancel();
    std::fs::remove_file(node.socket()).unwrap();
    let mut client = VolumedClient::new(node.channels().peer("volumed"));
    let answer = client.tear_down_pod(hang(Duration::from_secs(5))).await.unwrap_err();
    assert_eq!(answer.code(), Code::Unavailable, "{answer}");
}

#[tokio::test]
async fn asking_to_stop_ends_streams_and_drains_calls() {
    let node = Node::new("syncd");
    let shutdown = CancellationToken::new();
    let volumes = Volumes::new(shutdown.clone());
    volumes.open();
    let guard = Guard::new("volumed", Arc::new(node.identities.clone()), node.access);
    let listener = listen(&node.socket(), None).await.unwrap();
    let routes = Routes::new(VolumedServer::new(Fake(volumes)));
    let server = tokio::spawn(guard.serve(listener, routes, shutdown.clone()));
    let channels = node.channels();
    let mirror = node.follow(&channels);
    bounded("live", mirror.wait_until(|s, _| s.live)).await;
    shutdown.cancel();
    assert!(
        bounded("the drain", server).await.unwrap().unwrap(),
        "an open stream does not hold the process back"
    );
    assert!(Path::new(&node.socket()).exists(), "a successor replaces it");
}
