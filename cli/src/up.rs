//! `bulkhead up`: a whole node on one machine, for development and tests, without systemd.
//!
//! Owns the life of a node: prepare, start, keep running, stop, and leave nothing behind but the state folder. Must never
//! do a process' work: it makes folders, users' ids, cgroups and a network namespace, and starts programs.

mod command;
mod containerd;
mod demo;
mod folders;
mod interrupt;
pub mod jail;
mod layout;
mod mounts;
mod netns;
mod node;
mod overlay;
mod pods;
mod program;
mod supervisor;
mod teardown;

use std::fs::File;
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use bulkhead_config::Given;
use tokio::time::Instant;

use crate::output;
use demo::Demo;
#[cfg(test)]
pub use folders::plan as folder_plan;
use interrupt::Interrupts;
pub use layout::Layout;
use node::{Node, Programs};

/// Which container runtime.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Containerd {
    Private,
    Running(PathBuf),
}

/// Which network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Network {
    /// A network namespace of the node's own, that leads nowhere.
    Own,
    /// The machine's.
    Host,
}

/// How the node is started.
#[derive(Debug, clap::Args)]
pub struct Flags {
    /// Folder of everything that stays when the node is stopped.
    #[arg(long, value_name = "DIR", default_value = "/var/lib/bulkhead")]
    state: PathBuf,
    /// KubeletConfiguration to start from. Where pods, logs, cgroups and the runtime are is up to the launcher.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Folder of *.conf files that are laid over it.
    #[arg(long, value_name = "DIR")]
    config_dir: Option<PathBuf>,
    /// Policy file: what pods may ask of the runtime. Read once; without it, what the kubelet allows.
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// How the API server is reached, and as whom. Copied at the start, with all files that it names, for apigate alone.
    /// Without it the node runs without a cluster. A network of the node's own leads to no API server outside.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// What to ask for a client certificate with, in place of --kubeconfig. Copied in the same way; what comes of it stays in
    /// the state folder.
    #[arg(long, value_name = "FILE", conflicts_with = "kubeconfig")]
    bootstrap_kubeconfig: Option<PathBuf>,
    /// `private` starts a containerd of the node's own; a socket uses the one that listens there.
    #[arg(long, value_name = "private|SOCKET", default_value = "private", value_parser = containerd_of)]
    containerd: Containerd,
    /// Folder of containerd, containerd-shim-runc-v2, ctr, runc and pause; PATH when it is not given.
    #[arg(long, value_name = "DIR")]
    peers: Option<PathBuf>,
    /// The first of the processes' uids and gids.
    #[arg(long, value_name = "ID", default_value_t = 64_200, value_parser = clap::value_parser!(u32).range(1..2_000_000_000))]
    uid_base: u32,
    /// `own` by default with a private containerd, `host` with a running one.
    #[arg(long)]
    network: Option<Network>,
    /// Run a pod to look at, from images that are made on this machine.
    #[arg(long)]
    demo: bool,
    /// Run the demo, then stop.
    #[arg(long, hide = true)]
    demo_once: bool,
    /// Leave pods running when the node is stopped; the next `bulkhead up` takes them over.
    #[arg(long)]
    keep_pods: bool,
    /// Name of the node instead of the machine's.
    #[arg(long, value_name = "NAME", alias = "hostname-override")]
    node_name: Option<String>,
    /// Addresses of the node on the machine's network, primary one first; found out when not given.
    #[arg(long, value_name = "IP", value_delimiter = ',')]
    node_ip: Vec<std::net::IpAddr>,
    /// Labels of the node when it registers in a cluster, beside its own.
    #[arg(long, value_name = "KEY=VALUE,...", value_parser = node_labels)]
    node_labels: Option<String>,
    /// What the processes log, as in `info` or `syncd=debug,info`; without it, `logging.verbosity` of the configuration.
    #[arg(long, value_name = "FILTER")]
    log: Option<String>,
}

/// As the processes will read them, so that a wrong one starts nothing.
fn node_labels(text: &str) -> Result<String, bulkhead_model::node_labels::LabelError> {
    bulkhead_model::node_labels::parse(text).map(|_| text.to_owned())
}

fn containerd_of(text: &str) -> Result<Containerd, String> {
    match text {
        "private" => Ok(Containerd::Private),
        path => {
            let path = Path::new(path.strip_prefix("unix://").unwrap_or(path));
            if path.is_absolute() {
                Ok(Containerd::Running(path.to_owned()))
            } else {
                Err("write `private` or the path of a socket".to_owned())
            }
        }
    }
}

/// Runs a node until it is told to stop. Its processes get the kubelet's flags that were given.
pub fn run(flags: &Flags, kubelets: &[Given]) -> anyhow::Result<()> {
    if !nix::unistd::geteuid().is_root() {
        bail!("`bulkhead up` needs root, to give each process a user of its own: run it with sudo");
    }
    // What is made has the modes that it is given, and the runtime's files are not at the mercy of a strict shell.
    nix::sys::stat::umask(nix::sys::stat::Mode::from_bits_truncate(0o022));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.context("cannot start the runtime")?.block_on(live(flags, kubelets))
}

async fn live(flags: &Flags, kubelets: &[Given]) -> anyhow::Result<()> {
    let started = Instant::now();
    let mut interrupts = Interrupts::listen()?;
    let layout = Layout::make(&flags.state)?;
    let _lock = lock(&layout)?;
    // Everything that can be found missing is, before anything is made.
    let node = Node::plan(flags, kubelets, layout)?;
    let demo = if flags.demo || flags.demo_once { Some(Demo::plan(&node)?) } else { None };

    let mut programs = Programs::default();
    let lived = tokio::select! {
        lived = run_node(&node, &mut programs, started, demo, flags.demo_once) => lived,
        () = interrupts.asked_to_stop() => Ok(()),
    };
    if let Err(error) = &lived {
        output::event(&format!("stopping because of an error: {error:#}"));
    }
    let stopped = teardown::stop(&node, programs, flags.keep_pods, interrupts).await;
    lived.and(stopped)
}

/// Starts everything and stays; returns only for an error, or when the demo is over and `once`.
async fn run_node(
    node: &Node,
    programs: &mut Programs,
    started: Instant,
    demo: Option<Demo>,
    once: bool,
) -> anyhow::Result<()> {
    node.prepare().await?;
    node.start(programs).await?;
    output::event(&node.summary(started.elapsed()));
    if let Some(demo) = demo {
        demo.show(node).await?;
        if once {
            return Ok(());
        }
    }
    std::future::pending().await
}

/// One launcher at a time for a state folder. The lock goes with the process, however it ends.
fn lock(layout: &Layout) -> anyhow::Result<File> {
    let path = layout.lock();
    let name = || format!("cannot use {}", path.display());
    let file = File::options().read(true).write(true).create(true).truncate(false).open(&path);
    let mut file = file.with_context(name)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(std::fs::TryLockError::WouldBlock) => {
            let mut pid = String::new();
            let _ = file.read_to_string(&mut pid);
            bail!(
                "a node is running on {} already (pid {}): stop that one first, or choose another --state",
                layout.state().display(),
                pid.trim()
            );
        }
        Err(std::fs::TryLockError::Error(error)) => return Err(error).with_context(name),
    }
    file.set_len(0).with_context(name)?;
    file.rewind().with_context(name)?;
    writeln!(file, "{}", std::process::id()).with_context(name)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn containerd_is_private_or_a_socket() {
        assert_eq!(containerd_of("private"), Ok(Containerd::Private));
        let running = Ok(Containerd::Running("/run/c.sock".into()));
        assert_eq!(containerd_of("/run/c.sock"), running);
        assert_eq!(containerd_of("unix:///run/c.sock"), running);
        assert!(containerd_of("c.sock").is_err());
    }

    #[test]
    fn a_second_launcher_is_told_about_the_first() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::new(dir.path().to_owned()).unwrap();
        let first = lock(&layout).unwrap();
        let error = lock(&layout).unwrap_err().to_string();
        assert!(error.contains(&std::process::id().to_string()), "{error}");
        drop(first);
        lock(&layout).unwrap();
    }
}
