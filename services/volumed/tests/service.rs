//! The whole process over its socket, on a node in a temporary folder.

#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests")]

use std::path::PathBuf;
use std::time::Duration;

use bulkhead_api::common::v1::WatchRequest;
use bulkhead_api::process::v1::process_client::ProcessClient;
use bulkhead_api::process::v1::{GetStatusRequest, ProcessStatus};
use bulkhead_api::volumed::v1::volumed_client::VolumedClient;
use bulkhead_api::volumed::v1::{
    EmptyDir, HostPath, PodVolumes, SetUpPodRequest, TearDownPodRequest, Volume, volume::Source,
};
use bulkhead_ipc::status::with_deadline;
use bulkhead_ipc::{Channels, Mirror, PeerBoard, PeerChannel};
use bulkhead_service::{NoFlags, Service, ServiceError};
use bulkhead_testkit::TestNode;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tonic::Code;
use volumed::Volumed;

/// Longest wait for anything.
const BOUND: Duration = Duration::from_secs(10);

/// One life of the process.
struct Life {
    task: JoinHandle<Result<(), ServiceError>>,
    shutdown: CancellationToken,
}

impl Life {
    fn start(node: &TestNode) -> Self {
        let context = node.context("volumed");
        let shutdown = context.shutdown.clone();
        Self { task: tokio::spawn(Volumed::run(context, NoFlags {})), shutdown }
    }

    async fn stop(self) {
        self.shutdown.cancel();
        tokio::time::timeout(BOUND, self.task).await.unwrap().unwrap().unwrap();
    }
}

struct Caller {
    volumes: VolumedClient<PeerChannel>,
    process: ProcessClient<PeerChannel>,
}

impl Caller {
    fn new(node: &TestNode) -> Self {
        let channel = node.channel("volumed");
        Self { volumes: VolumedClient::new(channel.clone()), process: ProcessClient::new(channel) }
    }

    async fn status(&mut self) -> Option<ProcessStatus> {
        self.process.get_status(GetStatusRequest {}).await.ok().map(|answer| answer.into_inner())
    }

    async fn wait_status(&mut self, wanted: impl Fn(&ProcessStatus) -> bool) -> ProcessStatus {
        let wait = async {
            loop {
                match self.status().await {
                    Some(status) if wanted(&status) => return status,
                    _ => tokio::time::sleep(Duration::from_millis(20)).await,
                }
            }
        };
        tokio::time::timeout(BOUND, wait).await.expect("the status in time")
    }

    async fn ready(&mut self) {
        self.wait_status(|status| status.ready).await;
    }

    async fn set_up(&mut self, uid: &str, volumes: &[Volume]) -> Result<(Vec<String>, bool), tonic::Status> {
        let request =
            SetUpPodRequest { pod_uid: uid.to_owned(), volumes: volumes.to_vec(), ..Default::default() };
        let answer = self.volumes.set_up_pod(with_deadline(request, BOUND)).await?.into_inner();
        Ok((answer.volumes.into_iter().map(|volume| volume.host_path).collect(), answer.changed))
    }

    async fn tear_down(&mut self, uid: &str) -> Result<bool, tonic::Status> {
        let request = TearDownPodRequest { pod_uid: uid.to_owned() };
        Ok(self.volumes.tear_down_pod(with_deadline(request, BOUND)).await?.into_inner().changed)
    }
}

fn mirror(node: &TestNode) -> Mirror<String, PodVolumes> {
    let channels =
        Channels::new(&node.run_dir(), node.identities().into(), PeerBoard::new(node.clock.clone()));
    let client = VolumedClient::new(channels.peer("volumed"));
    Mirror::follow(channels.handle("volumed"), node.shutdown.clone(), move || {
        let mut client = client.clone();
        async move { client.watch_volumes(WatchRequest {}).await }
    })
}

async fn wait_mirror(
    mirror: &Mirror<String, PodVolumes>,
    epoch_before: &str,
    expected: &[(&str, &[&str])],
) -> String {
    let wait = mirror.wait_until(|status, table| {
        let found: Vec<(&str, Vec<&str>)> = table
            .iter()
            .map(|(uid, pod)| (uid.as_str(), pod.volumes.iter().map(|volume| volume.name.as_str()).collect()))
            .collect();
        let wanted: Vec<(&str, Vec<&str>)> =
            expected.iter().map(|(uid, names)| (*uid, names.to_vec())).collect();
        status.synced && status.live && status.epoch != epoch_before && found == wanted
    });
    tokio::time::timeout(BOUND, wait)
        .await
        .unwrap_or_else(|_| panic!("not {expected:?}: {:?}", mirror.snapshot()));
    mirror.status().epoch
}

fn empty_dir(name: &str, medium: &str) -> Volume {
    let source = EmptyDir { medium: medium.to_owned(), size_limit_bytes: 1 << 20, huge_page_bytes: 0 };
    Volume { name: name.to_owned(), source: Some(Source::EmptyDir(source)) }
}

fn host_path(name: &str, path: &str, r#type: &str) -> Volume {
    let source = HostPath { path: path.to_owned(), r#type: r#type.to_owned() };
    Volume { name: name.to_owned(), source: Some(Source::HostPath(source)) }
}

fn pod_dir(node: &TestNode, uid: &str) -> PathBuf {
    let path = node.root_dir().join("pods").join(uid);
    std::fs::create_dir(&path).unwrap();
    path
}

#[tokio::test]
async fn a_pods_volumes_from_set_up_to_the_end() {
    let node = TestNode::new().await;
    let pod = pod_dir(&node, "u1");
    let life = Life::start(&node);
    let mut caller = Caller::new(&node);
    let mirror = mirror(&node);
    caller.ready().await;
    wait_mirror(&mirror, "", &[]).await;

    let volumes = [empty_dir("data", ""), host_path("etc", "/etc", "Directory")];
    let (paths, changed) = caller.set_up("u1", &volumes).await.unwrap();
    let data = pod.join("volumes/kubernetes.io~empty-dir/data");
    assert!(changed && data.is_dir());
    assert_eq!(paths, [data.to_str().unwrap(), "/etc"]);
    wait_mirror(&mirror, "", &[("u1", &["data", "etc"])]).await;
    std::fs::write(data.join("file"), "").unwrap();
    assert!(!caller.set_up("u1", &volumes).await.unwrap().1);
    assert!(data.join("file").exists());

    assert!(caller.tear_down("u1").await.unwrap());
    wait_mirror(&mirror, "", &[]).await;
    assert_eq!(std::fs::read_dir(&pod).unwrap().count(), 0);
    assert!(!caller.tear_down("u1").await.unwrap());
    life.stop().await;
}

#[tokio::test]
async fn errors_name_the_volume_and_say_what_to_do_by_their_code() {
    let node = TestNode::new().await;
    let pod = pod_dir(&node, "u1");
    let life = Life::start(&node);
    let mut caller = Caller::new(&node);
    caller.ready().await;
    let missing = node.dir().join("missing");
    let missing = missing.to_str().unwrap();
    for (uid, volume, code, texts) in [
        ("u1", host_path("h", missing, "File"), Code::FailedPrecondition, ["`h`", "does not exist"]),
        (
            "u1",
            host_path("h", "/etc", "Socket"),
            Code::FailedPrecondition,
            ["`h`", "/etc is not a socket file"],
        ),
        ("u1", host_path("h", "/../etc", ""), Code::InvalidArgument, ["`h`", "`..`"]),
        ("u1", empty_dir("../x", ""), Code::InvalidArgument, ["volume name", "../x"]),
        ("u1", empty_dir("e", "Disk"), Code::FailedPrecondition, ["`e`", "\"Disk\""]),
        ("..", empty_dir("e", ""), Code::InvalidArgument, ["pod UID", ".."]),
        ("u2", empty_dir("e", ""), Code::FailedPrecondition, ["`e`", "pods/u2 does not exist"]),
    ] {
        let error = caller.set_up(uid, std::slice::from_ref(&volume)).await.unwrap_err();
        assert_eq!(error.code(), code, "{error}");
        assert!(texts.iter().all(|text| error.message().contains(text)), "{error}");
    }
    assert_eq!(caller.tear_down("a/b").await.unwrap_err().code(), Code::InvalidArgument);
    assert_eq!(std::fs::read_dir(&pod).unwrap().count(), 0);

    // One bad pod does not disturb another, nor itself when it is put right.
    std::os::unix::fs::symlink("/", pod.join("volumes")).unwrap();
    let error = caller.set_up("u1", &[empty_dir("e", "")]).await.unwrap_err();
    assert_eq!(error.code(), Code::FailedPrecondition);
    assert!(caller.tear_down("u1").await.unwrap());
    assert!(caller.set_up("u1", &[empty_dir("e", "")]).await.unwrap().1);
    life.stop().await;
}

#[tokio::test]
async fn a_restart_forgets_nothing_that_stands_and_a_mirror_follows() {
    let node = TestNode::new().await;
    pod_dir(&node, "u1");
    pod_dir(&node, "u2");
    let life = Life::start(&node);
    let mut caller = Caller::new(&node);
    let mirror = mirror(&node);
    caller.ready().await;
    caller.set_up("u1", &[empty_dir("a", ""), empty_dir("b", "")]).await.unwrap();
    let epoch = wait_mirror(&mirror, "", &[("u1", &["a", "b"])]).await;
    life.stop().await;

    // Gone, not empty: readers keep what they know.
    assert_eq!(mirror.snapshot().len(), 1);
    assert_eq!(caller.tear_down("u1").await.unwrap_err().code(), Code::Unavailable);

    let life = Life::start(&node);
    wait_mirror(&mirror, &epoch, &[("u1", &["a", "b"])]).await;
    caller.ready().await;
    assert!(!caller.set_up("u1", &[empty_dir("a", ""), empty_dir("b", "")]).await.unwrap().1);
    assert!(caller.tear_down("u1").await.unwrap());
    wait_mirror(&mirror, &epoch, &[]).await;
    life.stop().await;
}

#[tokio::test]
async fn without_its_folder_it_says_so_and_says_nothing_about_pods() {
    let node = TestNode::new().await;
    let pods = node.root_dir().join("pods");
    std::fs::remove_dir(&pods).unwrap();
    let life = Life::start(&node);
    let mut caller = Caller::new(&node);
    let mirror = mirror(&node);
    let status =
        caller.wait_status(|status| status.checks.iter().any(|check| check.reason.contains("pods"))).await;
    assert!(!status.ready);
    assert!(!mirror.status().synced);
    let error = caller.set_up("u1", &[empty_dir("e", "")]).await.unwrap_err();
    assert_eq!(error.code(), Code::Unavailable);
    // The node's own paths need no folder of pods.
    caller.set_up("u2", &[host_path("h", "/etc", "")]).await.unwrap();

    std::fs::create_dir_all(pods.join("u1")).unwrap();
    let status = caller.wait_status(|status| status.ready).await;
    assert!(status.checks.iter().all(|check| check.ok), "{:?}", status.checks);
    wait_mirror(&mirror, "", &[("u1", &[]), ("u2", &["h"])]).await;
    caller.set_up("u1", &[empty_dir("e", "")]).await.unwrap();
    wait_mirror(&mirror, "", &[("u1", &["e"]), ("u2", &["h"])]).await;
    life.stop().await;
}

#[tokio::test]
async fn memory_comes_and_goes_over_a_restart() {
    if rustix::mount::fsopen("tmpfs", rustix::mount::FsOpenFlags::FSOPEN_CLOEXEC).is_err() {
        eprintln!("skipped: mounting takes CAP_SYS_ADMIN");
        return;
    }
    let node = TestNode::new().await;
    let pod = pod_dir(&node, "u1");
    let mounted = || {
        let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        table.lines().filter(|line| line.contains(pod.to_str().unwrap())).count()
    };
    let life = Life::start(&node);
    let mut caller = Caller::new(&node);
    caller.ready().await;
    assert!(caller.set_up("u1", &[empty_dir("ram", "Memory")]).await.unwrap().1);
    assert_eq!(mounted(), 1);
    life.stop().await;
    let life = Life::start(&node);
    caller.ready().await;
    assert!(!caller.set_up("u1", &[empty_dir("ram", "Memory")]).await.unwrap().1);
    assert_eq!(mounted(), 1);
    assert!(caller.tear_down("u1").await.unwrap());
    assert_eq!(mounted(), 0);
    life.stop().await;
}

#[tokio::test]
async fn calls_for_one_pod_at_the_same_time_do_the_work_once() {
    let node = TestNode::new().await;
    pod_dir(&node, "u1");
    let life = Life::start(&node);
    let mut caller = Caller::new(&node);
    caller.ready().await;
    let calls = (0..3).map(|_| {
        let mut caller = Caller::new(&node);
        async move { caller.set_up("u1", &[empty_dir("a", ""), empty_dir("b", "")]).await.unwrap().1 }
    });
    let changed = futures::future::join_all(calls).await;
    assert_eq!(changed.iter().filter(|changed| **changed).count(), 1, "{changed:?}");
    life.stop().await;
}
