//! imaged, a client, and the fake runtime.

use std::num::NonZeroUsize;
use std::time::Duration;

use bulkhead_api::imaged::v1 as wire;
use bulkhead_api::process::v1 as process;
use bulkhead_ipc::PeerChannel;
use bulkhead_ipc::status::with_deadline;
use bulkhead_testkit::TestNode;
use bulkhead_testkit::cri::FakeRuntime;
use imaged::config::{BackOff, Limits, Settings};
use tokio_util::sync::CancellationToken;
use tonic::Status;
pub(crate) use wire::ensure_image_response::Result as Answer;
use wire::imaged_client::ImagedClient;

/// Longest wait for anything; a passing test never gets near it.
pub(crate) const BOUND: Duration = Duration::from_secs(20);

/// A node with a fake runtime.
pub(crate) struct Bench {
    node: TestNode,
    pub(crate) runtime: FakeRuntime,
    _directory: tempfile::TempDir,
}

/// A running imaged.
pub(crate) struct Process {
    stop: CancellationToken,
    ended: tokio::task::JoinHandle<()>,
}

pub(crate) async fn bench() -> Bench {
    let node = TestNode::new().await;
    let directory = tempfile::tempdir().unwrap();
    let runtime = FakeRuntime::start(directory.path()).await.unwrap();
    std::os::unix::fs::symlink(runtime.socket(), node.cri_socket("imaged")).unwrap();
    Bench { node, runtime, _directory: directory }
}

/// Back-offs that tests can wait for.
fn settings() -> Settings {
    Settings {
        parallel_pulls: NonZeroUsize::new(2).unwrap(),
        rate: None,
        back_off: BackOff { first: Duration::from_millis(300), longest: Duration::from_millis(600) },
        garbage: Limits::default(),
    }
}

impl Bench {
    pub(crate) async fn start(&self) -> Process {
        let context = self.node.context("imaged");
        let stop = context.shutdown.clone();
        let ended = tokio::task::spawn(async move { imaged::run(context, settings()).await.unwrap() });
        let process = Process { stop, ended };
        let serving = async {
            while self.process_status().await.is_err() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(BOUND, serving).await.expect("imaged serves");
        process
    }

    pub(crate) fn client(&self) -> ImagedClient<PeerChannel> {
        ImagedClient::new(self.node.channel("imaged"))
    }

    pub(crate) async fn call(&self, image: &str, policy: &str, deadline: Duration) -> Result<Answer, Status> {
        let request = with_deadline(request(image, policy), deadline);
        let answer = self.client().ensure_image(request).await?;
        Ok(answer.into_inner().result.expect("an answer"))
    }

    pub(crate) async fn if_not_present(&self, image: &str) -> Result<Answer, Status> {
        self.call(image, "IfNotPresent", BOUND).await
    }

    async fn process_status(&self) -> Result<process::ProcessStatus, Status> {
        let mut client = process::process_client::ProcessClient::new(self.node.channel("imaged"));
        client.get_status(process::GetStatusRequest {}).await.map(tonic::Response::into_inner)
    }

    /// Waits until the check says that the image service answers, or that it does not.
    pub(crate) async fn until_check_is(&self, ok: bool) {
        let wanted = async {
            loop {
                let status = self.process_status().await.unwrap();
                let check = status.checks.iter().find(|check| check.name == "runtime images").unwrap();
                if check.ok == ok && check.reason != "not started yet" {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(BOUND, wanted).await.expect("the check turns");
    }
}

impl Process {
    pub(crate) async fn stop(self) {
        self.stop.cancel();
        tokio::time::timeout(BOUND, self.ended).await.expect("it stops").unwrap();
    }
}

pub(crate) fn present(answer: Result<Answer, Status>) -> wire::ImagePresent {
    match answer {
        Ok(Answer::Present(present)) => present,
        other => panic!("present wanted: {other:?}"),
    }
}

pub(crate) fn waiting(answer: Result<Answer, Status>) -> wire::ImageWaiting {
    match answer {
        Ok(Answer::Waiting(waiting)) => waiting,
        other => panic!("waiting wanted: {other:?}"),
    }
}

/// What container `app` of pod `u1` asks.
pub(crate) fn request(image: &str, policy: &str) -> wire::EnsureImageRequest {
    wire::EnsureImageRequest {
        pod_uid: "u1".to_owned(),
        container_name: "app".to_owned(),
        image: image.to_owned(),
        pull_policy: policy.to_owned(),
        ..Default::default()
    }
}
