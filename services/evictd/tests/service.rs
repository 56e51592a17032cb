//! The whole process over its socket: fakes of syncd and pleg beside it, a machine in a folder beneath it.

#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

use std::fs;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bulkhead_api::common::v1::WatchRequest;
use bulkhead_api::evictd::v1::evictd_client::EvictdClient;
use bulkhead_api::evictd::v1::{GetSummaryRequest, PodStats, Summary};
use bulkhead_api::pleg::v1 as pleg;
use bulkhead_api::process::v1::process_client::ProcessClient;
use bulkhead_api::process::v1::{GetStatusRequest, ProcessStatus};
use bulkhead_api::syncd::v1 as syncd;
use bulkhead_ipc::publisher::BoxStream;
use bulkhead_ipc::status::with_deadline;
use bulkhead_ipc::{PeerChannel, Publisher};
use bulkhead_model::runtime::{Container, ContainerState, RuntimePod, Sandbox};
use bulkhead_service::{Service, ServiceError};
use bulkhead_testkit::TestNode;
use evictd::{Evictd, EvictdFlags};
use jiff::Timestamp;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;
use tonic::{Code, Request, Response, Status};

/// Longest wait for anything.
const BOUND: Duration = Duration::from_secs(20);

async fn within<T>(what: &str, wait: impl Future<Output = T>) -> T {
    tokio::time::timeout(BOUND, wait).await.unwrap_or_else(|_| panic!("not within {BOUND:?}: {what}"))
}

struct Syncd(Publisher<String, syncd::StatsView>);

#[tonic::async_trait]
impl syncd::syncd_server::Syncd for Syncd {
    type WatchStatusViewsStream = BoxStream<syncd::StatusViewsUpdate>;
    type WatchProbeViewsStream = BoxStream<syncd::ProbeViewsUpdate>;
    type WatchStatsViewsStream = BoxStream<syncd::StatsViewsUpdate>;
    type ListPodsStream = BoxStream<syncd::ListPodsItem>;

    async fn watch_status_views(
        &self,
        _: Request<WatchRequest>,
    ) -> Result<Response<Self::WatchStatusViewsStream>, Status> {
        Err(Status::permission_denied("not evictd's"))
    }

    async fn watch_probe_views(
        &self,
        _: Request<WatchRequest>,
    ) -> Result<Response<Self::WatchProbeViewsStream>, Status> {
        Err(Status::permission_denied("not evictd's"))
    }

    async fn watch_stats_views(
        &self,
        _: Request<WatchRequest>,
    ) -> Result<Response<Self::WatchStatsViewsStream>, Status> {
        Ok(Response::new(self.0.subscribe()))
    }

    async fn list_pods(
        &self,
        _: Request<syncd::ListPodsRequest>,
    ) -> Result<Response<Self::ListPodsStream>, Status> {
        Err(Status::permission_denied("not evictd's"))
    }
}

struct Pleg(Publisher<String, RuntimePod>);

#[tonic::async_trait]
impl pleg::pleg_server::Pleg for Pleg {
    type WatchPodsStream = BoxStream<pleg::RuntimePodsUpdate>;

    async fn watch_pods(&self, _: Request<WatchRequest>) -> Result<Response<Self::WatchPodsStream>, Status> {
        Ok(Response::new(self.0.subscribe()))
    }

    async fn observe_pod(
        &self,
        _: Request<pleg::ObservePodRequest>,
    ) -> Result<Response<pleg::ObservePodResponse>, Status> {
        Err(Status::permission_denied("not evictd's"))
    }

    async fn get_runtime(
        &self,
        _: Request<pleg::GetRuntimeRequest>,
    ) -> Result<Response<pleg::GetRuntimeResponse>, Status> {
        Err(Status::permission_denied("not evictd's"))
    }
}

fn second(seconds: i64) -> Timestamp {
    Timestamp::from_second(seconds).unwrap()
}

fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// A v2 machine in the node's folder, and peers with one pod `u1` in it.
struct Bench {
    node: TestNode,
    views: Publisher<String, syncd::StatsView>,
    running: Publisher<String, RuntimePod>,
}

impl Bench {
    async fn new() -> Self {
        let node = TestNode::new().await;
        let proc = node.dir().join("proc");
        // Everything but the mounts is this machine's own.
        for name in ["stat", "meminfo", "loadavg", "sys/kernel/pid_max", "sys/kernel/threads-max"] {
            write(&proc.join(name), &fs::read_to_string(Path::new("/proc").join(name)).unwrap());
        }
        let views = Publisher::new(node.shutdown.clone());
        let running = Publisher::new(node.shutdown.clone());
        let bench = Self { node, views, running };
        bench.mount();
        bench.cgroup("", 100);
        bench.cgroup("kubepods", 10);
        bench.add_pod("u1");
        bench.views.open();
        bench.running.open();
        bench
    }

    fn mount(&self) {
        let mount = format!("30 1 0:26 / {} rw - cgroup2 cgroup2 rw\n", self.cgroups().display());
        write(&self.node.dir().join("proc/self/mountinfo"), &mount);
    }

    fn cgroups(&self) -> PathBuf {
        self.node.dir().join("cgroup")
    }

    fn cgroup(&self, path: &str, cpu_seconds: u64) {
        let folder = self.cgroups().join(path);
        write(&folder.join("cpu.stat"), &format!("usage_usec {}\n", cpu_seconds * 1_000_000));
        write(&folder.join("memory.current"), "5000\n");
        write(&folder.join("memory.stat"), "anon 3000\ninactive_file 1000\npgfault 11\npgmajfault 2\n");
        write(&folder.join("memory.max"), "max\n");
        write(&folder.join("pids.current"), "4\n");
    }

    fn add_pod(&self, uid: &str) {
        let cgroup = format!("kubepods/burstable/pod{uid}");
        self.cgroup(&cgroup, 3);
        self.cgroup(&format!("{cgroup}/c-{uid}"), 2);
        let sandbox = Sandbox {
            id: "s".to_owned(),
            attempt: 0,
            ready: true,
            created_at: second(10),
            ips: vec![],
            traceparent: String::new(),
        };
        let container = Container {
            id: format!("c-{uid}"),
            name: "app".to_owned(),
            sandbox_id: "s".to_owned(),
            attempt: 0,
            state: ContainerState::Running,
            created_at: second(19),
            started_at: Some(second(20)),
            finished_at: None,
            exit_code: 0,
            reason: String::new(),
            message: String::new(),
            image: String::new(),
            image_id: String::new(),
            log_path: String::new(),
            hash: None,
            annotations: [].into(),
        };
        let pod = RuntimePod {
            uid: uid.to_owned(),
            name: "web".to_owned(),
            namespace: "default".to_owned(),
            sandboxes: vec![sandbox],
            containers: vec![container],
        };
        let view = syncd::StatsView {
            uid: uid.to_owned(),
            name: "web".to_owned(),
            namespace: "default".to_owned(),
            qos_class: "Burstable".to_owned(),
            cgroup: format!("/{cgroup}"),
            ..syncd::StatsView::default()
        };
        self.running.upsert(uid.to_owned(), pod);
        self.views.upsert(uid.to_owned(), view);
    }

    async fn syncd(&self) -> CancellationToken {
        let server = syncd::syncd_server::SyncdServer::new(Syncd(self.views.clone()));
        self.node.fake_peer("syncd", Routes::new(server)).await
    }

    async fn pleg(&self) -> CancellationToken {
        let server = pleg::pleg_server::PlegServer::new(Pleg(self.running.clone()));
        self.node.fake_peer("pleg", Routes::new(server)).await
    }

    fn start(&self) -> Life {
        let context = self.node.context("evictd");
        let stop = context.shutdown.clone();
        let flags = EvictdFlags { proc_dir: self.node.dir().join("proc") };
        let task = tokio::spawn(Evictd::run(context, flags));
        let channel = self.node.channel("evictd");
        Life { stop, task, evictd: EvictdClient::new(channel.clone()), process: ProcessClient::new(channel) }
    }
}

/// One life of the process.
struct Life {
    stop: CancellationToken,
    task: JoinHandle<Result<(), ServiceError>>,
    evictd: EvictdClient<PeerChannel>,
    process: ProcessClient<PeerChannel>,
}

impl Life {
    async fn summary(&self) -> Result<Summary, Status> {
        let request = with_deadline(GetSummaryRequest::default(), Duration::from_secs(5));
        Ok(self.evictd.clone().get_summary(request).await?.into_inner())
    }

    async fn wait_summary(&self, what: &str, wanted: impl Fn(&Summary) -> bool) -> Summary {
        let wait = async {
            loop {
                match self.summary().await {
                    Ok(summary) if wanted(&summary) => return summary,
                    _ => tokio::time::sleep(Duration::from_millis(50)).await,
                }
            }
        };
        within(what, wait).await
    }

    async fn wait_status(&self, what: &str, wanted: impl Fn(&ProcessStatus) -> bool) {
        let wait = async {
            loop {
                let answer = self.process.clone().get_status(GetStatusRequest {}).await;
                match answer {
                    Ok(status) if wanted(status.get_ref()) => return,
                    _ => tokio::time::sleep(Duration::from_millis(20)).await,
                }
            }
        };
        within(what, wait).await;
    }

    async fn wait_check(&self, reason: &str) {
        let wanted = |status: &ProcessStatus| {
            let check = status.checks.iter().find(|check| check.name == "statistics");
            check.is_some_and(|check| check.ok == reason.is_empty() && check.reason.contains(reason))
        };
        self.wait_status(&format!("statistics: {reason:?}"), wanted).await;
    }

    async fn stop(self) {
        self.stop.cancel();
        within("an orderly end", self.task).await.unwrap().unwrap();
    }
}

fn uids(summary: &Summary) -> Vec<&str> {
    summary.pods.iter().map(|pod| pod.uid.as_str()).collect()
}

fn rate(pod: &PodStats) -> Option<u64> {
    pod.cpu.and_then(|cpu| cpu.usage_nano_cores)
}

#[tokio::test]
async fn a_summary_has_node_pods_and_containers() {
    let bench = Bench::new().await;
    let (_syncd, _pleg) = (bench.syncd().await, bench.pleg().await);
    let life = bench.start();
    life.wait_check("").await;
    life.wait_status("ready", |status| status.ready).await;
    let summary = life.summary().await.unwrap();
    let node = summary.node.as_ref().unwrap();
    assert_eq!(node.node_name, "node-a");
    assert!(node.start_unix_nano > 0 && node.process_count > 0 && node.max_pid > 0, "{node:?}");
    assert_eq!(node.cpu.unwrap().usage_core_nano_seconds, 100_000_000_000);
    assert!(node.memory.unwrap().available_bytes.unwrap() > 0);
    assert_eq!(node.system_containers[0].cpu.unwrap().usage_core_nano_seconds, 10_000_000_000);
    let [pod] = summary.pods.as_slice() else { panic!("one pod: {summary:?}") };
    assert_eq!((pod.uid.as_str(), pod.name.as_str(), pod.namespace.as_str()), ("u1", "web", "default"));
    assert_eq!((pod.start_unix_nano, pod.process_count), (10_000_000_000, Some(4)));
    assert_eq!(pod.cpu.unwrap().usage_core_nano_seconds, 3_000_000_000);
    assert_eq!(pod.memory.unwrap().working_set_bytes, 4000);
    let [container] = pod.containers.as_slice() else { panic!("one container: {pod:?}") };
    assert_eq!((container.name.as_str(), container.start_unix_nano), ("app", 20_000_000_000));
    assert_eq!(container.cpu.unwrap().usage_core_nano_seconds, 2_000_000_000);

    // A later call finds what happened since, and rates.
    bench.cgroup("kubepods/burstable/podu1", 4);
    let busy = |summary: &Summary| summary.pods.iter().any(|pod| rate(pod).is_some_and(|rate| rate > 0));
    life.wait_summary("a rate", busy).await;

    // One file that is no use costs its own container, and is named.
    let broken = bench.cgroups().join("kubepods/burstable/podu1/c-u1/cpu.stat");
    fs::write(broken, "usage_usec much\n").unwrap();
    let whole = life
        .wait_summary("no container", |summary| summary.pods.iter().all(|pod| pod.containers.is_empty()))
        .await;
    assert_eq!(uids(&whole), ["u1"]);
    life.wait_check("c-u1/cpu.stat").await;
    life.stop().await;
}

#[tokio::test]
async fn without_peers_the_node_has_figures_and_pods_come_with_them() {
    let bench = Bench::new().await;
    let life = bench.start();
    let alone = life.wait_summary("the node alone", |summary| summary.node.is_some()).await;
    assert!(alone.pods.is_empty());
    life.wait_status("ready", |status| status.ready).await;
    life.wait_check("no stream from syncd yet").await;
    let syncd = bench.syncd().await;
    life.wait_check("no stream from pleg yet").await;
    let pleg = bench.pleg().await;
    life.wait_check("").await;
    let all = life
        .wait_summary("its container", |summary| summary.pods.iter().any(|pod| !pod.containers.is_empty()))
        .await;
    assert_eq!(uids(&all), ["u1"]);

    // Peers that are gone again take nothing with them.
    syncd.cancel();
    pleg.cancel();
    let gone = |status: &ProcessStatus| {
        let down = |name| status.peers.iter().any(|peer| peer.name == name && !peer.connected);
        down("syncd") && down("pleg")
    };
    life.wait_status("peers seen as gone", gone).await;
    bench.cgroup("kubepods/burstable/podu1", 9);
    let fresh = |summary: &Summary| {
        summary.pods.iter().any(|pod| pod.cpu.is_some_and(|cpu| cpu.usage_core_nano_seconds == 9_000_000_000))
    };
    life.wait_summary("fresh figures without peers", fresh).await;
    life.wait_check("").await;

    // They come back with another pod.
    bench.add_pod("u2");
    let (_syncd, _pleg) = (bench.syncd().await, bench.pleg().await);
    life.wait_summary("both pods", |summary| uids(summary) == ["u1", "u2"]).await;
    bench.views.remove(&"u1".to_owned());
    life.wait_summary("the second alone", |summary| uids(summary) == ["u2"]).await;
    life.stop().await;

    // The next life begins with everything.
    let life = bench.start();
    let first = life.wait_summary("the first summary", |_| true).await;
    assert_eq!(uids(&first), ["u2"]);
    life.stop().await;
}

#[tokio::test]
async fn without_cgroups_it_says_why_and_goes_on_when_they_are_there() {
    let bench = Bench::new().await;
    let (_syncd, _pleg) = (bench.syncd().await, bench.pleg().await);
    write(&bench.node.dir().join("proc/self/mountinfo"), "");
    let life = bench.start();
    life.wait_check("no cgroup file system is mounted").await;
    let error = life.summary().await.unwrap_err();
    assert_eq!(error.code(), Code::Unavailable);
    assert!(error.message().contains("no cgroup file system is mounted"), "{error}");
    life.wait_status("not ready", |status| !status.ready).await;
    bench.mount();
    life.wait_check("").await;
    life.wait_status("ready", |status| status.ready).await;
    assert_eq!(uids(&life.summary().await.unwrap()), ["u1"]);
    life.stop().await;
}

#[tokio::test]
async fn this_machine_has_figures() {
    let node = TestNode::new().await;
    let context = node.context("evictd");
    let stop = context.shutdown.clone();
    let task = tokio::spawn(Evictd::run(context, EvictdFlags { proc_dir: "/proc".into() }));
    let channel = node.channel("evictd");
    let life =
        Life { stop, task, evictd: EvictdClient::new(channel.clone()), process: ProcessClient::new(channel) };
    let summary = life.wait_summary("a summary", |_| true).await;
    let node = summary.node.unwrap();
    let (cpu, memory) = (node.cpu.unwrap(), node.memory.unwrap());
    assert!(cpu.usage_core_nano_seconds > 0 && cpu.time_unix_nano > node.start_unix_nano, "{node:?}");
    assert!(memory.working_set_bytes > 0 && memory.usage_bytes >= memory.working_set_bytes, "{memory:?}");
    assert!(memory.available_bytes.unwrap() > 0 && memory.rss_bytes > 0, "{memory:?}");
    assert!(node.process_count > 0 && node.max_pid >= node.process_count, "{node:?}");
    life.stop().await;
}

#[tokio::test]
async fn a_cgroup_root_that_is_no_path_is_a_wrong_configuration() {
    let mut node = TestNode::new().await;
    node.config.cgroup_root = "/a/../b".to_owned();
    let error =
        Evictd::run(node.context("evictd"), EvictdFlags { proc_dir: "/proc".into() }).await.unwrap_err();
    assert_eq!(error.exit, bulkhead_service::Exit::Configuration);
}
