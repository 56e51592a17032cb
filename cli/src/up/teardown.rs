//! Stopping a node, so that nothing is left of it but its state folder.
//!
//! Must never touch what it did not make: everything that is removed is found by the node's own names and folders.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};
use bulkhead_api::access::ACCESS;
use bulkhead_cgroup::{CgroupPath, Mounts, TearDown};
use futures::future::join_all;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::time::{Instant, sleep};

use super::interrupt::Interrupts;
use super::mounts::unmount_below;
use super::node::{Node, Programs, RuntimeChoice};
use super::supervisor::Supervised;
use super::{folders, netns};
use crate::output;

/// Pods submitted by hand, in syncd's folder: what the node is to run stays, as manifests do.
const SUBMITTED: &str = "submitted.json";
/// How long killed processes may take to leave their cgroups.
const CGROUPS: Duration = Duration::from_secs(15);
/// How long the runtime may take to answer before pods are removed without it.
const RUNTIME: Duration = Duration::from_secs(5);
/// How long shims may take to end by themselves.
const SHIMS: Duration = Duration::from_secs(2);

/// Stops the processes, removes pods unless `keep_pods`, and takes down what was made for them.
pub async fn stop(
    node: &Node,
    programs: Programs,
    keep_pods: bool,
    interrupts: Interrupts,
) -> anyhow::Result<()> {
    let Programs { containerd, processes } = programs;
    let killers: Vec<_> = processes.iter().map(Supervised::killer).collect();
    let hurry = interrupts.hurry();
    let hurrying = async move {
        hurry.await;
        killers.iter().for_each(|kill| kill());
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = stop_processes(processes) => {}
        () = hurrying => {}
    }
    let mut left = Vec::new();
    // A private containerd that never started holds no pods.
    let has_runtime = containerd.is_some() || matches!(node.runtime, RuntimeChoice::Running(..));
    if !keep_pods && has_runtime {
        let removed = tokio::select! {
            removed = remove_pods(node) => removed,
            () = interrupts.hurry() => Ok(()),
        };
        left.extend(removed.err());
    }
    if let Some(containerd) = containerd {
        containerd.stop().await;
    }
    if keep_pods {
        output::event("stopped; pods run on, and `bulkhead up` takes them over");
    } else {
        left.extend(clear(node).await);
    }
    left.extend(tidy(node).err());
    let Some(first) = left.first() else {
        if !keep_pods {
            output::event("stopped; nothing is left but the state folder");
        }
        return Ok(());
    };
    for error in left.iter().skip(1) {
        output::event(&format!("left behind: {error:#}"));
    }
    bail!("stopped, but something is left behind: {first:#}")
}

/// syncd first, since the others would look dead to it; crigate last, since the others have calls in flight.
async fn stop_processes(processes: Vec<Supervised>) {
    let (mut first, mut middle, mut last) = (Vec::new(), Vec::new(), Vec::new());
    for process in processes {
        match process.name() {
            "syncd" => first.push(process),
            "crigate" => last.push(process),
            _ => middle.push(process),
        }
    }
    for group in [first, middle, last] {
        join_all(group.into_iter().map(Supervised::stop)).await;
    }
}

async fn remove_pods(node: &Node) -> anyhow::Result<()> {
    let runtime = node.cri();
    let started = Instant::now();
    while let Err(why) = runtime.answers().await {
        // It may be starting again just now.
        if started.elapsed() > RUNTIME {
            output::event(&format!(
                "the container runtime does not answer ({why}); its containers are killed"
            ));
            return Ok(());
        }
        sleep(Duration::from_millis(50)).await;
    }
    let known = known_pods(&node.layout.pods());
    let private = matches!(node.runtime, RuntimeChoice::Private(_));
    // A runtime that others use too: a pod is ours when its folder is.
    let removed = runtime.remove_pods(|uid| private || known.contains(uid)).await?;
    if removed > 0 {
        output::event(&format!("{removed} {} removed", if removed == 1 { "pod" } else { "pods" }));
    }
    Ok(())
}

fn known_pods(folder: &Path) -> std::collections::BTreeSet<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

/// Takes down everything that holds pods; returns what went wrong.
async fn clear(node: &Node) -> Vec<anyhow::Error> {
    let layout = &node.layout;
    let private = matches!(node.runtime, RuntimeChoice::Private(_));
    let mut wrong = Vec::new();
    if private {
        wrong.extend(end_shims(&layout.volatile()).await.err());
    }
    wrong.extend(clear_cgroups(&layout.cgroup()).await.err());
    let mut folders = vec![layout.pods()];
    if private {
        folders.extend([layout.volatile(), layout.containerd()]);
    }
    match unmount_below(&folders) {
        Ok(stayed) => {
            wrong.extend(stayed.iter().map(|path| anyhow::anyhow!("{} is still mounted", path.display())))
        }
        Err(error) => wrong.push(error),
    }
    // With a mount still in it, removing a folder would remove what is mounted.
    if wrong.is_empty() {
        wrong.extend(empty(&layout.pods()).err());
        wrong.extend(empty(&layout.pod_logs()).err());
        wrong.extend(empty(&layout.log_links()).err());
        // What processes remember is about pods that are no more: a next start must not take theirs for the same run.
        for process in ACCESS.process.keys() {
            wrong.extend(empty_but(&layout.states().join(process), &[SUBMITTED]).err());
        }
        if private {
            wrong.extend(remove(&layout.volatile()).err());
        }
    }
    // Both, since an earlier life may have had the other kind of network.
    wrong.extend(netns::remove(&layout.netns()).await.err());
    wrong.extend(netns::remove_bridge(&layout.bridge()).await.err());
    if private {
        // The CNI library keeps its cache there, whatever it is told. Only an empty folder goes.
        for folder in ["/var/lib/cni/results", "/var/lib/cni"] {
            let _ = std::fs::remove_dir(folder);
        }
    }
    wrong
}

/// Leavings of the processes that no next start needs.
fn tidy(node: &Node) -> anyhow::Result<()> {
    for folder in [node.layout.cri(), node.layout.run()] {
        if folder.is_dir() {
            folders::remove_sockets(&folder)?;
        }
    }
    remove(&node.layout.bin())
}

async fn clear_cgroups(root: &str) -> anyhow::Result<()> {
    let (mounts, root) = (Mounts::detect()?, CgroupPath::parse(root)?);
    let started = Instant::now();
    loop {
        let step = bulkhead_cgroup::tear_down(&mounts, &root).context("cannot remove the cgroups of pods")?;
        match step {
            TearDown::Done => return Ok(()),
            TearDown::Waiting { processes } if started.elapsed() > CGROUPS => {
                bail!("cgroup {root} does not get empty: {processes} processes in it do not end")
            }
            TearDown::Waiting { .. } => sleep(Duration::from_millis(50)).await,
        }
    }
}

/// Shims end with their pods; those of a containerd that could not be asked any more are killed.
async fn end_shims(volatile: &Path) -> anyhow::Result<()> {
    let started = Instant::now();
    loop {
        let shims = shims(volatile);
        if shims.is_empty() {
            return Ok(());
        }
        let waited = started.elapsed();
        if waited > SHIMS * 2 {
            bail!("shims of the container runtime do not end: {shims:?}");
        }
        if waited > SHIMS {
            for pid in shims {
                let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
            }
        }
        sleep(Duration::from_millis(50)).await;
    }
}

/// Pids of the shims of the private runtime. They name its folder in their command line.
fn shims(volatile: &Path) -> Vec<i32> {
    let folder = volatile.as_os_str().as_encoded_bytes();
    let is_ours = |pid: &i32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let mut words = line.split(|byte| *byte == 0);
        let program = words.next().unwrap_or_default();
        program.ends_with(b"containerd-shim-runc-v2") && words.any(|word| below(word, folder))
    };
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(is_ours).collect()
}

/// Whether `word` is a path in `folder`.
fn below(word: &[u8], folder: &[u8]) -> bool {
    word.strip_prefix(folder).is_some_and(|rest| rest.first() == Some(&b'/'))
}

fn empty(folder: &Path) -> anyhow::Result<()> {
    empty_but(folder, &[])
}

fn empty_but(folder: &Path, kept: &[&str]) -> anyhow::Result<()> {
    let name = || format!("cannot empty {}", folder.display());
    if !folder.is_dir() {
        return Ok(());
    }
    for entry in std::fs::read_dir(folder).with_context(name)? {
        let path = entry.with_context(name)?.path();
        if !kept.iter().any(|kept| path.ends_with(kept)) {
            remove(&path)?;
        }
    }
    Ok(())
}

fn remove(path: &Path) -> anyhow::Result<()> {
    let removed = match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Ok(metadata) if metadata.is_dir() => std::fs::remove_dir_all(path),
        _ => std::fs::remove_file(path),
    };
    removed.with_context(|| format!("cannot remove {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shim_of_another_node_is_not_ours() {
        let ours = b"/run/bulkhead-0a0a0a";
        assert!(below(b"/run/bulkhead-0a0a0a/containerd.sock", ours));
        assert!(!below(b"/run/bulkhead-0a0a0ab/containerd.sock", ours));
        assert!(!below(b"/run/containerd/containerd.sock", ours));
    }
}
