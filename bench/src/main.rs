//! `bulkhead-bench`: what the node agent costs, beside the least that any agent could cost, in one run on one runtime.
//!
//! A machine's speed changes by two between runs, so only ratios within one run mean anything: the same pods are started
//! straight over CRI (the floor), through bulkhead, and straight over CRI again.

mod floor;
mod growth;
mod kubelet;
mod machine;
mod measure;
mod node;
mod processes;
mod report;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use bulkhead_e2e::real_node::RealNode;
use clap::Parser;
use report::{Agent, Report};

/// Measures pods through bulkhead against the same pods straight over CRI, on a private containerd. Needs root.
#[derive(Debug, Parser)]
struct Flags {
    /// Pods.
    #[arg(long, default_value_t = 100)]
    pods: usize,
    /// Pods that the floor starts at once: as many as bulkhead does.
    #[arg(long, default_value_t = 4)]
    parallel: usize,
    /// Seconds over which idle CPU is measured.
    #[arg(long, default_value_t = 60)]
    idle: u64,
    /// Measures the real kubelet as well, in a cluster of its own: `tests/peers/build cluster` must be first in BULKHEAD_PEERS.
    #[arg(long)]
    kubelet: bool,
    /// Memory at several numbers of pods instead, on a fake runtime.
    #[arg(long)]
    fake: bool,
    /// Writes the figures here, as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Puts the table between the markers of this document.
    #[arg(long, value_name = "FILE")]
    document: Option<PathBuf>,
    /// How the program was built, for the report.
    #[arg(long, default_value = if cfg!(debug_assertions) { "dev" } else { "release" })]
    profile: String,
}

#[expect(clippy::print_stdout, reason = "its report is its output")]
fn main() -> anyhow::Result<()> {
    let flags = Flags::parse();
    anyhow::ensure!(flags.pods > 0 && flags.parallel > 0, "--pods and --parallel are at least 1");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (name, table, json) = if flags.fake {
        let idle = Duration::from_secs(flags.idle);
        let growth = runtime.block_on(growth::measure(&[0, 100, 300, 500], idle))?;
        ("growth", growth.table(), serde_json::to_string_pretty(&growth)?)
    } else {
        let report = runtime.block_on(run(&flags))?;
        ("bench", report.table(), serde_json::to_string_pretty(&report)?)
    };
    println!("{table}");
    match &flags.json {
        Some(file) => {
            std::fs::write(file, json + "\n").with_context(|| format!("cannot write {}", file.display()))?
        }
        None => println!("{json}"),
    }
    if let Some(file) = &flags.document {
        report::write_into(file, name, &table)?;
    }
    Ok(())
}

async fn run(flags: &Flags) -> anyhow::Result<Report> {
    let mut node = RealNode::up(&[]).await;
    let outcome = measure(flags, &node).await;
    anyhow::ensure!(node.down().await, "the node did not stop in order: {}", node.said());
    outcome
}

async fn measure(flags: &Flags, node: &RealNode) -> anyhow::Result<Report> {
    let idle = Duration::from_secs(flags.idle);
    let before = floor::measure(node, flags.pods, flags.parallel, idle).await?;
    let mut agents = vec![through_bulkhead(flags, node).await?];
    if flags.kubelet {
        agents.push(kubelet::measure(node, flags.pods, idle).await?);
    }
    let after = floor::measure(node, flags.pods, flags.parallel, idle).await?;
    Ok(Report {
        machine: machine::Machine::this(),
        profile: flags.profile.clone(),
        pods: flags.pods,
        parallel: flags.parallel,
        runtime_alone: f64::midpoint(before.runtime_idle, after.runtime_idle),
        floor: [before.starts, after.starts],
        agents,
    })
}

async fn through_bulkhead(flags: &Flags, node: &RealNode) -> anyhow::Result<Agent> {
    let watched = processes::Watched::of(node)?;
    let empty = watched.memory()?;
    let gate = node::Gate::of(node)?;
    let (calls, busy) = (gate.calls().await?, watched.cpu()?);
    let starts = node::start(node, 0..flags.pods).await?;
    let (busy, calls) =
        (watched.cpu()?.since(&busy), node::per_pod(&calls, &gate.calls().await?, flags.pods));
    // Probes and statuses settle before anything is called idle.
    tokio::time::sleep(Duration::from_secs(5)).await;
    let before = watched.cpu()?;
    let idle = Duration::from_secs(flags.idle);
    tokio::time::sleep(idle).await;
    let idle_cpu = watched.cpu()?.since(&before).per_second(idle);
    let memory = watched.memory()?;
    let stop_s = node::stop(node, 0..flags.pods).await?;
    Ok(Agent { name: "bulkhead".to_owned(), starts, stop_s, calls, busy, idle_cpu, empty, memory })
}
