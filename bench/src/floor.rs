//! The floor: the same pods straight over the runtime's own socket, with nothing decided, written or looked at.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use bulkhead_base::SystemClock;
use bulkhead_cgroup::{CgroupPath, Mounts, TearDown, tear_down};
use bulkhead_cri::{Run, RunClient, wire};
use bulkhead_e2e::real_node::{RealNode, signal};
use bulkhead_ipc::{Channels, Identities, PeerBoard};
use futures::{StreamExt, TryStreamExt, stream};
use nix::sys::signal::Signal;
use tokio::time::Instant;

use crate::measure::Starts;
use crate::processes::Watched;

const TIMEOUT: Duration = Duration::from_secs(120);
/// Until the runtime is at rest after its pods came.
const REST: Duration = Duration::from_secs(5);

/// The least that any agent needs.
pub struct Floor {
    /// How its pods came.
    pub starts: Starts,
    /// The runtime's share of one CPU with these pods and nobody who asks it anything.
    pub runtime_idle: f64,
}

/// Starts and removes `pods` pods, `parallel` at a time, with nobody else on the runtime, and looks at it for `idle` between.
pub async fn measure(node: &RealNode, pods: usize, parallel: usize, idle: Duration) -> anyhow::Result<Floor> {
    undisturbed(node, async || alone(node, pods, parallel, idle).await).await
}

/// Does something while the node's processes are halted: all but the gate, since a runtime waits for whoever holds its stream
/// of events and does not read it. The gate reads on, and has nothing else to do.
pub async fn undisturbed<T>(
    node: &RealNode,
    work: impl AsyncFnOnce() -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let mut processes = node.processes();
    processes.remove("crigate");
    let all = |what| processes.values().for_each(|(pid, _)| signal(*pid, what));
    all(Signal::SIGSTOP);
    let done = work().await;
    all(Signal::SIGCONT);
    node.healthy().await;
    done
}

async fn alone(node: &RealNode, pods: usize, parallel: usize, idle: Duration) -> anyhow::Result<Floor> {
    let board = PeerBoard::new(Arc::new(SystemClock));
    // No process of access.toml is spoken to, so that no identity matters.
    let channels = Channels::new(Path::new("/"), Arc::new(Identities::from_base(1)), board);
    let runtime = RunClient::new(channels.socket("runtime", &node.runtime_socket(), None), TIMEOUT);
    runtime.version().await.context("the runtime does not answer")?;
    let logs = tempfile::Builder::new().prefix("bh-floor").tempdir()?;
    let cgroup = format!("/{}-floor", node.id());

    let began = Instant::now();
    let one = |index: usize| {
        let (runtime, config) = (runtime.clone(), sandbox(index, &cgroup, logs.path()));
        async move {
            let id = start(&runtime, config).await?;
            anyhow::Ok((id, began.elapsed()))
        }
    };
    let started: Vec<_> = stream::iter((0..pods).map(one))
        .buffer_unordered(parallel)
        .try_collect()
        .await
        .context("the floor")?;

    let (ids, waits): (Vec<_>, Vec<_>) = started.into_iter().unzip();
    let watched = Watched::of(node)?;
    tokio::time::sleep(REST).await;
    let before = watched.cpu()?;
    tokio::time::sleep(idle).await;
    let runtime_idle = watched.cpu()?.since(&before).per_second(idle).runtime();
    let remove = |id: String| {
        let runtime = runtime.clone();
        async move {
            runtime.stop_pod_sandbox(&id).await?;
            runtime.remove_pod_sandbox(&id).await
        }
    };
    stream::iter(ids.into_iter().map(remove)).buffer_unordered(parallel).try_collect::<Vec<_>>().await?;
    let path = CgroupPath::parse(&cgroup)?;
    let mounts = Mounts::detect()?;
    while !matches!(tear_down(&mounts, &path)?, TearDown::Done) {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(Floor { starts: Starts::new(waits), runtime_idle })
}

async fn start(runtime: &RunClient, config: wire::PodSandboxConfig) -> anyhow::Result<String> {
    let sandbox = runtime.run_pod_sandbox(config.clone(), "").await?;
    let request = wire::CreateContainerRequest {
        pod_sandbox_id: sandbox.clone(),
        config: Some(container()),
        sandbox_config: Some(config),
    };
    let container = runtime.create_container(request).await?;
    runtime.start_container(&container).await?;
    Ok(sandbox)
}

fn sandbox(index: usize, cgroup: &str, logs: &Path) -> wire::PodSandboxConfig {
    wire::PodSandboxConfig {
        metadata: Some(wire::PodSandboxMetadata {
            name: format!("floor-{index}"),
            uid: format!("floor-{index}"),
            namespace: "floor".to_owned(),
            attempt: 0,
        }),
        hostname: format!("floor-{index}"),
        log_directory: logs.join(index.to_string()).to_string_lossy().into_owned(),
        linux: Some(wire::LinuxPodSandboxConfig {
            cgroup_parent: cgroup.to_owned(),
            security_context: Some(wire::LinuxSandboxSecurityContext {
                seccomp: Some(wire::SecurityProfile::default()),
                ..Default::default()
            }),
            ..Default::default()
        }),
        ..Default::default()
    }
}

/// The container of [`bulkhead_e2e::pods::simple`].
fn container() -> wire::ContainerConfig {
    let text = |text: &str| text.to_owned();
    let command = ["/bin/sh", "-c", "trap 'exit 0' TERM; sleep 100000 & wait"];
    wire::ContainerConfig {
        metadata: Some(wire::ContainerMetadata { name: text("c"), attempt: 0 }),
        image: Some(wire::ImageSpec { image: text("local/busybox:1"), ..Default::default() }),
        command: command.map(text).into(),
        log_path: text("c.log"),
        linux: Some(wire::LinuxContainerConfig::default()),
        ..Default::default()
    }
}
