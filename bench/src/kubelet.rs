//! The same pods through the real kubelet, beside a control plane of its own, on the runtime that bulkhead just used.
//!
//! It needs an API server: without one the kubelet starts a static pod every ten seconds. The control plane's share of the
//! CPU is part of what its pods wait for, and is not counted as the kubelet's.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use bulkhead_cgroup::{CgroupPath, Mounts, Owner, TearDown, prepare, tear_down};
use bulkhead_e2e::pods;
use bulkhead_e2e::real_node::{RealNode, peers};
use k8s_openapi::api::core::v1::Pod;
use serde::Deserialize;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::{Instant, timeout};

use crate::measure::Starts;
use crate::processes::Watched;
use crate::report::Agent;
use crate::{floor, node};

const API: &str = "https://203.0.113.10:6443";
/// How long pods may take to come or go before the run is given up.
const BOUND: Duration = Duration::from_secs(600);
/// Until it is at rest after its start, and after its pods came.
const REST: Duration = Duration::from_secs(20);

/// Measures it while bulkhead is away.
pub async fn measure(node: &RealNode, pods: usize, idle: Duration) -> anyhow::Result<Agent> {
    floor::undisturbed(node, async || {
        let folder = tempfile::Builder::new().prefix("bh-kubelet").tempdir()?;
        let cluster = Cluster::up(&folder.path().join(format!("{}-kubelet", node.id())), node).await?;
        let measured = cluster.measure(node, pods, idle).await;
        cluster.down().await?;
        measured
    })
    .await
}

struct Cluster {
    dir: PathBuf,
    cgroup: CgroupPath,
    pid: i32,
}

impl Cluster {
    async fn up(dir: &Path, node: &RealNode) -> anyhow::Result<Self> {
        let cgroup = format!("/{}-kubelet", node.id());
        let mut cluster = Self { dir: dir.to_owned(), cgroup: CgroupPath::parse(&cgroup)?, pid: 0 };
        let started = async {
            prepare(&Mounts::detect()?, &cluster.cgroup, Owner { uid: 0, gid: 0 })?;
            cluster.script("up", &[]).await?;
            let socket = node.runtime_socket();
            cluster.script("kubelet", &[&socket.to_string_lossy(), &cgroup]).await?;
            let pid = std::fs::read_to_string(dir.join("pid/kubelet")).context("the kubelet's pid")?;
            anyhow::Ok(pid.trim().parse::<i32>()?)
        };
        match started.await {
            Ok(pid) => {
                cluster.pid = pid;
                Ok(cluster)
            }
            Err(error) => {
                cluster.down().await?;
                Err(error)
            }
        }
    }

    async fn script(&self, order: &str, arguments: &[&str]) -> anyhow::Result<()> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/cluster/cluster");
        let path = std::env::var("PATH").unwrap_or_default();
        let status = Command::new(&script)
            .arg(order)
            .arg(&self.dir)
            .args(arguments)
            .env("PATH", format!("{}:{path}", peers().display()))
            .stdin(Stdio::null())
            .status()
            .await
            .with_context(|| format!("cannot run {}", script.display()))?;
        ensure!(status.success(), "{} {order}: {status}", script.display());
        Ok(())
    }

    async fn down(&self) -> anyhow::Result<()> {
        self.script("down", &[]).await?;
        let mounts = Mounts::detect()?;
        while !matches!(tear_down(&mounts, &self.cgroup)?, TearDown::Done) {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Ok(())
    }

    async fn measure(&self, node: &RealNode, pods: usize, idle: Duration) -> anyhow::Result<Agent> {
        let watched = Watched::one("kubelet", self.pid, node)?;
        tokio::time::sleep(REST).await;
        let empty = watched.memory()?;
        let mut watch = self.watch()?;
        let requests = self.requests(pods)?;
        let busy = watched.cpu()?;
        let began = Instant::now();
        let mut posts = self.curl().arg("--config").arg(&requests).stdout(Stdio::null()).spawn()?;
        let mut waits = BTreeMap::new();
        while waits.len() < pods {
            let event = watch.next(began).await?;
            if node::is_running(&event.object) {
                let name = event.object.metadata.name.unwrap_or_default();
                waits.entry(name).or_insert_with(|| began.elapsed());
            }
        }
        let busy = watched.cpu()?.since(&busy);
        ensure!(posts.wait().await?.success(), "pods could not be created");
        tokio::time::sleep(REST).await;
        let before = watched.cpu()?;
        tokio::time::sleep(idle).await;
        let idle_cpu = watched.cpu()?.since(&before).per_second(idle);
        let memory = watched.memory()?;
        let stop_s = self.stop(&mut watch, waits.keys().cloned().collect()).await?;
        Ok(Agent {
            name: "kubelet".to_owned(),
            starts: Starts::new(waits.into_values().collect()),
            stop_s,
            calls: BTreeMap::new(),
            busy,
            idle_cpu,
            empty,
            memory,
        })
    }

    async fn stop(&self, watch: &mut Watch, mut left: BTreeSet<String>) -> anyhow::Result<f64> {
        let began = Instant::now();
        let all = format!("{API}/api/v1/namespaces/default/pods");
        let deleted = self.curl().args(["--request", "DELETE", &all]).stdout(Stdio::null()).status().await?;
        ensure!(deleted.success(), "pods could not be deleted");
        while !left.is_empty() {
            let event = watch.next(began).await?;
            if event.kind == "DELETED" {
                left.remove(&event.object.metadata.name.unwrap_or_default());
            }
        }
        Ok(began.elapsed().as_secs_f64())
    }

    /// One request a pod, all on one connection.
    fn requests(&self, pods: usize) -> anyhow::Result<PathBuf> {
        let mut config = String::new();
        for number in 0..pods {
            let mut pod = pods::with_spec(pods::simple(&format!("p{number}")), "nodeName", "node-a".into());
            pod = pods::with_spec(pod, "dnsPolicy", "Default".into());
            let body = self.dir.join(format!("p{number}.json"));
            std::fs::write(&body, pod.to_string())?;
            if number > 0 {
                config.push_str("next\n");
            }
            // Writing to a String cannot fail. Options hold for one request.
            let _ = writeln!(
                config,
                "url = \"{API}/api/v1/namespaces/default/pods\"\ndata-binary = \"@{}\"\n\
                 header = \"Content-Type: application/json\"\noutput = \"/dev/null\"\nsilent\nfail\n\
                 cacert = \"{dir}/pki/ca.crt\"\ncert = \"{dir}/pki/admin.crt\"\nkey = \"{dir}/pki/admin.key\"",
                body.display(),
                dir = self.dir.display()
            );
        }
        let file = self.dir.join("requests");
        std::fs::write(&file, config)?;
        Ok(file)
    }

    fn watch(&self) -> anyhow::Result<Watch> {
        let all = format!("{API}/api/v1/namespaces/default/pods?watch=1");
        let mut child = self.curl().arg("--no-buffer").arg(all).stdout(Stdio::piped()).spawn()?;
        let output = child.stdout.take().context("curl has no output")?;
        Ok(Watch { lines: BufReader::new(output).lines(), _child: child })
    }

    fn curl(&self) -> Command {
        let netns = format!("bulkhead-{}", self.dir.file_name().unwrap_or_default().to_string_lossy());
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/run/netns/{netns}")).args(["curl", "--silent", "--fail", "--cacert"]);
        command.arg(self.dir.join("pki/ca.crt")).arg("--cert").arg(self.dir.join("pki/admin.crt"));
        command.arg("--key").arg(self.dir.join("pki/admin.key")).stdin(Stdio::null()).kill_on_drop(true);
        command
    }
}

struct Watch {
    lines: Lines<BufReader<ChildStdout>>,
    _child: Child,
}

#[derive(Deserialize)]
struct Event {
    #[serde(rename = "type")]
    kind: String,
    object: Pod,
}

impl Watch {
    async fn next(&mut self, began: Instant) -> anyhow::Result<Event> {
        let left = BOUND.saturating_sub(began.elapsed());
        match timeout(left, self.lines.next_line()).await {
            Ok(line) => Ok(serde_json::from_str(&line?.context("the API server ended the watch")?)?),
            Err(_) => bail!("the kubelet's pods are not there after {BOUND:?}"),
        }
    }
}
