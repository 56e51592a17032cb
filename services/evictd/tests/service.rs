//! The whole process over its socket: fakes of syncd and pleg beside it, a machine in a folder beneath it.

#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

use std::fs;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bulkhead_api::common::v1::WatchRequest;
use bulkhead_api::cri::v1 as cri;
use bulkhead_api::evictd::v1::evictd_client::EvictdClient;
use bulkhead_api::evictd::v1::pressures_client::PressuresClient;
use bulkhead_api::evictd::v1::{GetSummaryRequest, ListCgroupsRequest, PodStats, Summary};
use bulkhead_api::process::v1::process_client::ProcessClient;
use bulkhead_api::process::v1::{GetStatusRequest, ProcessStatus};
use bulkhead_api::syncd::v1 as syncd;
use bulkhead_api::volumed::v1 as volumed;
use bulkhead_ipc::status::with_deadline;
use bulkhead_ipc::{PeerChannel, Publisher};
use bulkhead_model::runtime::{ContainerState, RuntimePod};
use bulkhead_service::{Service, ServiceError};
use bulkhead_testkit::TestNode;
use bulkhead_testkit::cri::{FakeRuntime, Method, Usage};
use bulkhead_testkit::peers::{self, FakePleg, FakeSyncd, FakeVolumed};
use evictd::{Evictd, EvictdFlags};
use jiff::Timestamp;
use syncd::eviction_server::{Eviction, EvictionServer};
use syncd::syncd_server::SyncdServer;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;
use tonic::{Code, Request, Response, Status};

/// Longest wait for anything.
const BOUND: Duration = Duration::from_secs(20);

async fn within<T>(what: &str, wait: impl Future<Output = T>) -> T {
    tokio::time::timeout(BOUND, wait).await.unwrap_or_else(|_| panic!("not within {BOUND:?}: {what}"))
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
        let cgroups = self.cgroups();
        let mount = format!(
            "22 1 8:1 / / rw - ext4 /dev/vda rw\n30 1 0:26 / {} rw - cgroup2 cgroup2 rw\n",
            cgroups.display()
        );
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
        self.add_pod_with(uid, &format!("c-{uid}"));
    }

    /// A pod with one container of this id.
    fn add_pod_with(&self, uid: &str, container: &str) {
        let cgroup = format!("kubepods/burstable/pod{uid}");
        self.cgroup(&cgroup, 3);
        self.cgroup(&format!("{cgroup}/{container}"), 2);
        let sandbox = peers::sandbox("s", second(10), &["10.0.0.7"]);
        let container = peers::container(container, "app", ContainerState::Running, second(20));
        let pod = peers::runtime_pod(uid, "web", sandbox, vec![container]);
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
        FakeSyncd { stats: Some(self.views.clone()), ..FakeSyncd::default() }.serve(&self.node).await
    }

    /// syncd that also takes evictions, and tells them.
    async fn syncd_that_evicts(
        &self,
    ) -> (CancellationToken, mpsc::UnboundedReceiver<syncd::EvictPodRequest>) {
        let (told, orders) = mpsc::unbounded_channel();
        let fake = FakeSyncd { stats: Some(self.views.clone()), ..FakeSyncd::default() };
        let routes = Routes::new(SyncdServer::new(fake)).add_service(EvictionServer::new(FakeEviction(told)));
        (self.node.fake_peer("syncd", routes).await, orders)
    }

    async fn pleg(&self) -> CancellationToken {
        FakePleg(self.running.clone()).serve(&self.node).await
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

struct FakeEviction(mpsc::UnboundedSender<syncd::EvictPodRequest>);

#[tonic::async_trait]
impl Eviction for FakeEviction {
    async fn evict_pod(
        &self,
        request: Request<syncd::EvictPodRequest>,
    ) -> Result<Response<syncd::EvictPodResponse>, Status> {
        self.0.send(request.into_inner()).unwrap();
        Ok(Response::new(syncd::EvictPodResponse { changed: true }))
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
    async fn cpu_and_memory(&self) -> Summary {
        let request = GetSummaryRequest { only_cpu_and_memory: true };
        self.evictd.clone().get_summary(request).await.unwrap().into_inner()
    }

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

/// Runs a container in the runtime that wrote something; returns its id.
async fn run_container(runtime: &FakeRuntime) -> String {
    runtime.add_image("bb:1");
    let mut client = runtime.in_process().runtime;
    let metadata = cri::PodSandboxMetadata {
        name: "web".into(),
        uid: "u9".into(),
        namespace: "default".into(),
        attempt: 0,
    };
    let config = cri::PodSandboxConfig { metadata: Some(metadata), ..Default::default() };
    let request = cri::RunPodSandboxRequest { config: Some(config.clone()), runtime_handler: String::new() };
    let sandbox = client.run_pod_sandbox(request).await.unwrap().into_inner().pod_sandbox_id;
    let container = cri::ContainerConfig {
        metadata: Some(cri::ContainerMetadata { name: "app".into(), attempt: 0 }),
        image: Some(cri::ImageSpec { image: "bb:1".into(), ..Default::default() }),
        ..Default::default()
    };
    let request = cri::CreateContainerRequest {
        pod_sandbox_id: sandbox,
        config: Some(container),
        sandbox_config: Some(config),
    };
    let id = client.create_container(request).await.unwrap().into_inner().container_id;
    client.start_container(cri::StartContainerRequest { container_id: id.clone() }).await.unwrap();
    runtime.set_usage(&id, Usage { writable_layer_bytes: 700, writable_layer_inodes: 3, ..Usage::default() });
    id
}

#[tokio::test]
async fn the_runtime_and_the_disk_are_asked_when_somebody_asks_for_all_and_only_then() {
    let bench = Bench::new().await;
    let runtime = FakeRuntime::start(bench.node.dir()).await.unwrap();
    std::os::unix::fs::symlink(runtime.socket(), bench.node.cri_socket("evictd")).unwrap();
    let id = run_container(&runtime).await;
    bench.add_pod_with("u9", &id);
    let folder = bench.node.dir().join("logs/default_web_u9/app");
    write(&folder.join("0.log"), &"x".repeat(10_000));
    write(&bench.cgroups().join("kubepods/burstable/podu9/s/cgroup.procs"), "77\n");
    write(&bench.cgroups().join("kubepods/burstable/podu9/s/pids.current"), "1\n");
    let dev = "  eth0: 11 2 0 0 0 0 0 0 22 4 0 0 0 0 0 0\n    lo: 1 1 0 0 0 0 0 0 1 1 0 0 0 0 0 0\n";
    write(&bench.node.dir().join("proc/77/net/dev"), dev);
    let volumes = Publisher::new(bench.node.shutdown.clone());
    let volume = |name: &str, used_bytes, own_file_system| volumed::MountedVolume {
        name: name.to_owned(),
        usage: Some(volumed::VolumeUsage { used_bytes, own_file_system, ..Default::default() }),
        ..Default::default()
    };
    let mounted = vec![volume("data", 5000, false), volume("memory", 9000, true)];
    volumes.upsert("u9".to_owned(), volumed::PodVolumes { pod_uid: "u9".to_owned(), volumes: mounted });
    volumes.open();
    let (_syncd, _pleg) = (bench.syncd().await, bench.pleg().await);
    let _volumed = FakeVolumed(volumes).serve(&bench.node).await;
    let life = bench.start();
    life.wait_check("").await;

    // It asked where images are as soon as it was there.
    let place = async {
        while runtime.log().count(Method::ImageFsInfo) == 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    within("the place of images", place).await;
    let asked =
        || runtime.log().count(Method::ListContainerStats) + runtime.log().count(Method::ImageFsInfo) - 1;
    let few = life.cpu_and_memory().await;
    assert_eq!((uids(&few), asked()), (vec!["u1", "u9"], 0), "nobody asked for all");
    assert!(few.pods[1].network.is_none() && few.pods[1].cpu.is_some());

    let summary = life.summary().await.unwrap();
    assert_eq!(asked(), 2);
    let node = summary.node.as_ref().unwrap();
    assert!(node.image_fs.unwrap().capacity.unwrap().capacity_bytes > 0, "{:?}", node.image_fs);
    let pod = &summary.pods[1];
    let container = &pod.containers[0];
    let rootfs = container.rootfs.unwrap();
    assert_eq!((rootfs.used_bytes, rootfs.inodes_used), (700, Some(3)));
    let logs = container.logs.unwrap();
    assert!((10_000..100_000).contains(&logs.used_bytes) && logs.inodes_used == Some(1), "{logs:?}");
    assert_eq!(
        pod.ephemeral_storage.unwrap().used_bytes,
        700 + logs.used_bytes + 5000,
        "not what is in memory"
    );
    let used: Vec<_> = pod.volumes.iter().map(|v| (v.name.as_str(), v.fs.unwrap().used_bytes)).collect();
    assert_eq!(used, [("data", 5000), ("memory", 9000)]);
    let interfaces = &pod.network.as_ref().unwrap().interfaces;
    assert_eq!(
        interfaces.iter().map(|one| (one.name.as_str(), one.rx_bytes, one.tx_packets)).collect::<Vec<_>>(),
        [("eth0", 11, 4)]
    );
    let neighbour = &summary.pods[0];
    assert!(
        neighbour.containers[0].rootfs.is_none() && neighbour.network.is_none(),
        "nobody knows: {neighbour:?}"
    );
    life.summary().await.unwrap();
    assert_eq!(asked(), 2, "the figures are young");

    let listed = life.evictd.clone().list_cgroups(ListCgroupsRequest {}).await.unwrap().into_inner();
    assert!(listed.machine.unwrap().memory_bytes > 0);
    let find = |end: &str| listed.cgroups.iter().find(|one| one.path.ends_with(end)).unwrap();
    let container = find(&id);
    assert_eq!(
        (container.container.as_str(), container.id.as_str(), container.image.as_str()),
        ("app", id.as_str(), "bb:1")
    );
    assert_eq!((container.fs.unwrap().used_bytes, container.device.as_str()), (700, "/dev/vda"));
    assert_eq!(find("podu9/s").network.as_ref().unwrap().interfaces.len(), 1);
    let root = listed.cgroups.iter().find(|one| one.path == "/").unwrap();
    assert!(!root.figures.is_empty() && root.pod_name.is_empty());
    assert_eq!(asked(), 2);
    life.stop().await;
}

/// Known fault E2: measured anew, and asked of syncd.
#[tokio::test]
async fn a_pod_over_its_limit_is_evicted_and_one_without_a_limit_is_not_looked_at() {
    let bench = Bench::new().await;
    bench.add_pod("u2");
    let mut view = (*bench.views.get(&"u1".to_owned()).unwrap()).clone();
    let limit = syncd::StatsVolume { name: "d".to_owned(), size_limit: "5Mi".to_owned() };
    view.limited_volumes = vec![limit];
    bench.views.upsert("u1".to_owned(), view);
    let volumes = Publisher::new(bench.node.shutdown.clone());
    for uid in ["u1", "u2"] {
        let usage = Some(volumed::VolumeUsage { used_bytes: 20 << 20, ..Default::default() });
        let volume = volumed::MountedVolume { name: "d".to_owned(), usage, ..Default::default() };
        volumes
            .upsert(uid.to_owned(), volumed::PodVolumes { pod_uid: uid.to_owned(), volumes: vec![volume] });
    }
    let _volumed = FakeVolumed(volumes).serve(&bench.node).await;
    let ((_syncd, mut orders), _pleg) = (bench.syncd_that_evicts().await, bench.pleg().await);
    let life = bench.start();
    let order = within("an eviction", orders.recv()).await.unwrap();
    let expected = syncd::EvictPodRequest {
        pod_uid: "u1".to_owned(),
        message: "Usage of EmptyDir volume \"d\" exceeds the limit \"5Mi\". ".to_owned(),
        grace_seconds: 1,
        disruption: false,
    };
    assert_eq!(order, expected);
    life.stop().await;
}

#[tokio::test]
async fn pressure_is_told_and_costs_a_pod_that_takes_more_than_it_asked_for() {
    let mut bench = Bench::new().await;
    write(&bench.cgroups().join("memory.current"), "900000000000000\n");
    let hard = [("memory.available".to_owned(), "10%".to_owned())];
    bench.node.config.eviction_hard = hard.into();
    let ((_syncd, mut orders), _pleg) = (bench.syncd_that_evicts().await, bench.pleg().await);
    let life = bench.start();
    let order = within("an eviction", orders.recv()).await.unwrap();
    assert_eq!((order.pod_uid.as_str(), order.grace_seconds, order.disruption), ("u1", 1, true));
    assert!(
        order.message.starts_with("The node was low on resource: memory. Threshold quantity: "),
        "{order:?}"
    );
    let mut told = PressuresClient::new(bench.node.channel("evictd"))
        .watch_pressure(WatchRequest {})
        .await
        .unwrap()
        .into_inner();
    let first = within("the pressure", told.message()).await.unwrap().unwrap();
    let conditions: Vec<_> = first.upserts.iter().map(|pressure| pressure.condition.as_str()).collect();
    assert_eq!(conditions, ["MemoryPressure"]);
    drop(told);
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
