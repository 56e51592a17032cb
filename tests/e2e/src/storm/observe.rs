//! Looks at a node from all sides: its command line, its health, its runtime, and the machine under it. Decides nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use bulkhead_api::cri::v1 as wire;
use bulkhead_base::SystemClock;
use bulkhead_ipc::status::with_deadline;
use bulkhead_ipc::{Channels, Identities, PeerBoard, PeerChannel};
use k8s_openapi::api::core::v1::{ContainerState, ContainerStatus, Pod as ApiPod};
use nix::sched::CloneFlags;
use wire::runtime_service_client::RuntimeServiceClient;

use super::check::{Condition, Container, Held, Pod, Runtime, Seen};
use super::churn::REVISION;
use crate::real_node::{RealNode, peers};

const ANSWER: Duration = Duration::from_secs(5);
const SHIM: &str = "containerd-shim-runc-v2";

/// Looks at one node.
pub struct Observer {
    /// What everything outside the state folder is named after.
    id: String,
    socket: PathBuf,
    runtime: RuntimeServiceClient<PeerChannel>,
}

impl Observer {
    /// Of a node that is up.
    pub fn new(node: &RealNode) -> Self {
        let board = PeerBoard::new(Arc::new(SystemClock));
        let channels =
            Channels::new(&node.state().join("run"), Arc::new(Identities::from_base(64_200)), board);
        let channel = channels.socket("containerd", &node.runtime_socket(), None);
        Self { id: node.id(), socket: node.runtime_socket(), runtime: RuntimeServiceClient::new(channel) }
    }

    /// Everything, as it is now.
    ///
    /// # Errors
    /// When the runtime or the command line does not answer.
    pub async fn look(&self, node: &RealNode) -> anyhow::Result<Seen> {
        let folder = node.state().canonicalize()?;
        let mut seen = Seen {
            ill: self.ill(node),
            pods: pods(node)?,
            runtime: self.runtime().await?,
            cgroups: cgroups(&self.id),
            mounts: mounts(&folder, &self.id),
            folders: names(&folder.join("root/pods")),
            logs: names(&folder.join("logs/pods")),
            processes: processes(&folder, &self.id),
        };
        seen.processes.sort();
        Ok(seen)
    }

    fn ill(&self, node: &RealNode) -> Vec<String> {
        let Some(status) = node.status() else { return vec!["the node does not say".to_owned()] };
        let checks = status.pointer("/health/checks").and_then(|checks| checks.as_array()).cloned();
        let bad =
            checks.unwrap_or_default().into_iter().filter(|check| check.get("ok") != Some(&true.into()));
        let mut ill: Vec<String> = bad.map(|check| check.to_string()).collect();
        if ill.is_empty() && status.pointer("/health/healthy") != Some(&true.into()) {
            ill.push(status.get("health").cloned().unwrap_or_default().to_string());
        }
        // As a load balancer would ask.
        match healthz(&self.id) {
            Ok(answer) if answer.starts_with("HTTP/1.1 200 ") => {}
            other => ill.push(format!("/healthz: {other:?}")),
        }
        ill
    }

    async fn runtime(&self) -> anyhow::Result<Runtime> {
        let mut client = self.runtime.clone();
        let request = with_deadline(wire::ListPodSandboxRequest { filter: None }, ANSWER);
        let sandboxes =
            client.list_pod_sandbox(request).await.context("list of sandboxes")?.into_inner().items;
        let request = with_deadline(wire::ListContainersRequest { filter: None }, ANSWER);
        let containers = client.list_containers(request).await.context("list of containers")?.into_inner();
        let ready = i32::from(wire::PodSandboxState::SandboxReady);
        let running = i32::from(wire::ContainerState::ContainerRunning);
        let sandboxes = sandboxes
            .into_iter()
            .map(|sandbox| (sandbox.id, (sandbox.metadata.unwrap_or_default().uid, sandbox.state == ready)));
        let containers = containers.containers.into_iter().map(|container| {
            let held = Held {
                uid: container.labels.get("io.kubernetes.pod.uid").cloned().unwrap_or_default(),
                sandbox: container.pod_sandbox_id,
                name: container.metadata.unwrap_or_default().name,
                running: container.state == running,
            };
            (container.id, held)
        });
        Ok(Runtime { sandboxes: sandboxes.collect(), containers: containers.collect(), own: self.own()? })
    }

    /// Ids in containerd's own lists.
    fn own(&self) -> anyhow::Result<BTreeSet<String>> {
        let mut ids = BTreeSet::new();
        for list in [["containers", "ls"], ["tasks", "ls"], ["snapshots", "ls"]] {
            let output = Command::new(peers().join("ctr"))
                .arg("--address")
                .arg(&self.socket)
                .args(["--namespace", "k8s.io", "--timeout", "5s"])
                .args(list)
                .stdin(Stdio::null())
                .output()?;
            if !output.status.success() {
                bail!("ctr {list:?}: {}", String::from_utf8_lossy(&output.stderr));
            }
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            let first = text.lines().filter_map(|line| line.split_whitespace().next());
            // Layers of images are named by their digests.
            ids.extend(first.filter(|name| is_id(name)).map(str::to_owned));
        }
        Ok(ids)
    }
}

/// What the node's own /healthz answers, in the network namespace with this name.
fn healthz(netns: &str) -> std::io::Result<String> {
    let file = std::fs::File::open(Path::new("/run/netns").join(netns))?;
    // A thread of its own: it stays in that network.
    let ask = move || {
        nix::sched::setns(file, CloneFlags::CLONE_NEWNET)?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 10_248));
        let mut stream = TcpStream::connect_timeout(&address, ANSWER)?;
        stream.set_read_timeout(Some(ANSWER))?;
        stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    };
    std::thread::spawn(ask).join().unwrap_or_else(|_| Err(std::io::Error::other("it panicked")))
}

fn is_id(name: &str) -> bool {
    name.len() == 64 && name.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Pods by name, as `bulkhead get pods` shows them.
///
/// # Errors
/// When the node does not answer or refuses a manifest.
pub fn pods(node: &RealNode) -> anyhow::Result<BTreeMap<String, Pod>> {
    let text = node.text(&["get", "pods", "-o", "json"]).context("bulkhead get pods")?;
    let list: serde_json::Value = serde_json::from_str(&text)?;
    let refused = list.get("refused").and_then(|refused| refused.as_array()).cloned().unwrap_or_default();
    if !refused.is_empty() {
        bail!("a manifest is refused: {refused:?}");
    }
    let items: Vec<ApiPod> = serde_json::from_value(list.get("items").cloned().unwrap_or_default())?;
    Ok(items.into_iter().map(pod).collect())
}

fn pod(pod: ApiPod) -> (String, Pod) {
    let (metadata, status) = (pod.metadata, pod.status.unwrap_or_default());
    let name = metadata.name.unwrap_or_default().trim_end_matches("-node-a").to_owned();
    let conditions = status.conditions.unwrap_or_default().into_iter().map(|condition| Condition {
        kind: condition.type_,
        status: condition.status,
        since: condition.last_transition_time.map(|time| format!("{time:?}")).unwrap_or_default(),
    });
    let init = status.init_container_statuses.unwrap_or_default();
    let containers = init.into_iter().chain(status.container_statuses.unwrap_or_default());
    let pod = Pod {
        uid: metadata.uid.unwrap_or_default(),
        revision: metadata.annotations.unwrap_or_default().remove(REVISION).unwrap_or_default(),
        phase: status.phase.unwrap_or_default(),
        conditions: conditions.collect(),
        containers: containers.map(|status| (status.name.clone(), container(status))).collect(),
    };
    (name, pod)
}

fn container(status: ContainerStatus) -> Container {
    let id = status.container_id.unwrap_or_default();
    let state = match status.state.unwrap_or_default() {
        ContainerState { running: Some(_), .. } => "running".to_owned(),
        ContainerState { terminated: Some(end), .. } => {
            format!("ended with {} ({})", end.exit_code, end.reason.unwrap_or_default())
        }
        ContainerState { waiting, .. } => waiting.unwrap_or_default().reason.unwrap_or_default(),
    };
    Container {
        id: id.split_once("://").map_or(id.as_str(), |(_, id)| id).to_owned(),
        ready: status.ready,
        restarts: status.restart_count,
        state,
    }
}

/// Cgroups below the node's, relative to it, and the processes in each, whatever hierarchies there are.
fn cgroups(id: &str) -> BTreeMap<String, usize> {
    let root = Path::new("/sys/fs/cgroup");
    let controllers = std::fs::read_dir(root).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut found = BTreeMap::new();
    for place in controllers.chain([root.to_owned()]).map(|place| place.join(id)) {
        let mut left = vec![place.clone()];
        while let Some(folder) = left.pop() {
            let entries = std::fs::read_dir(&folder).into_iter().flatten().flatten();
            left.extend(entries.map(|entry| entry.path()).filter(|path| path.is_dir()));
            let Ok(path) = folder.strip_prefix(&place) else { continue };
            let path = path.to_string_lossy().into_owned();
            if !path.is_empty() {
                let processes = std::fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
                let count = found.entry(path).or_insert(0);
                *count = processes.lines().count().max(*count);
            }
        }
    }
    found
}

fn mounts(folder: &Path, id: &str) -> Vec<String> {
    let folder = folder.to_string_lossy().into_owned();
    let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let points = table.lines().filter_map(|line| line.split(' ').nth(4));
    points.filter(|point| point.contains(&folder) || point.contains(id)).map(str::to_owned).collect()
}

fn names(folder: &Path) -> BTreeSet<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

/// What runs with the node's name or folder on its command line: programs' names, shims with their sandbox.
fn processes(folder: &Path, id: &str) -> Vec<String> {
    let folder = folder.to_string_lossy().into_owned();
    let mut found = Vec::new();
    for process in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let command = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
        let command = String::from_utf8_lossy(&command).into_owned();
        if !command.contains(&folder) && !command.contains(id) {
            continue;
        }
        let mut words = command.split('\0');
        let program = words.next().unwrap_or_default().rsplit('/').next().unwrap_or_default().to_owned();
        let sandbox = words.skip_while(|word| *word != "-id").nth(1).map(str::to_owned);
        match sandbox.filter(|_| program == SHIM) {
            Some(sandbox) => found.push(format!("shim {sandbox}")),
            None => found.push(program),
        }
    }
    found
}
