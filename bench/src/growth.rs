//! What more pods cost: the real processes on a fake runtime that starts containers at once.
//!
//! Memory and idle CPU are taken on the way up. On the way down the processes that know every pod are killed at each number of
//! pods: what they need to take everything in anew is a whole relist and the computation of every status.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::os::unix::fs::{PermissionsExt, chown};
use std::time::Duration;

use bulkhead_e2e::real_node::RealNode;
use bulkhead_testkit::cri::FakeRuntime;
use serde::Serialize;

use crate::machine::Machine;
use crate::processes::{Cpu, Memory, Watched};
use crate::{node, report};

/// The processes that know every pod.
const KNOWING: [&str; 3] = ["pleg", "statusd", "syncd"];
/// Until what a process does after its start is done, beyond being healthy.
const REST: Duration = Duration::from_secs(10);
const BACK: Duration = Duration::from_secs(60);

/// The fake's socket belongs to this group, that nobody is in.
const GROUP: u32 = 64_199;

const CONFIG: &str = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";

/// One run.
#[derive(Clone, Debug, Serialize)]
pub struct Growth {
    /// Where.
    pub machine: Machine,
    /// In the order of their numbers of pods.
    pub points: Vec<Point>,
}

/// Some number of pods.
#[derive(Clone, Debug, Serialize)]
pub struct Point {
    /// Pods, one container each.
    pub pods: usize,
    /// Memory by process.
    pub memory: BTreeMap<String, Memory>,
    /// Share of one CPU while nothing happens.
    pub idle_cpu: Cpu,
    /// What taking everything in anew takes.
    pub anew: Anew,
}

/// What processes need after they were killed.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Anew {
    /// Seconds that a list of all pods and containers takes pleg.
    pub relist_s: f64,
    /// Seconds of CPU from the start until all is known again, by process.
    pub cpu: BTreeMap<String, f64>,
}

/// Measures at each number of pods, which must grow.
pub async fn measure(numbers: &[usize], idle: Duration) -> anyhow::Result<Growth> {
    let folder = tempfile::Builder::new().prefix("bh-fake").tempdir()?;
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o711))?;
    let runtime = FakeRuntime::start(folder.path()).await?;
    runtime.add_image("local/busybox:1");
    chown(runtime.socket(), None, Some(GROUP))?;
    std::fs::set_permissions(runtime.socket(), std::fs::Permissions::from_mode(0o660))?;
    // More than a node takes by itself.
    let config = folder.path().join("config.yaml");
    let most = numbers.iter().max().copied().unwrap_or_default();
    std::fs::write(&config, format!("{CONFIG}maxPods: {}\n", most + 10))?;
    let mut node = RealNode::up_on(runtime.socket(), &["--config", &config.to_string_lossy()]).await;
    let measured = points(&node, &runtime, numbers, idle).await;
    anyhow::ensure!(node.down().await, "the node did not stop in order: {}", node.said());
    Ok(Growth { machine: Machine::this(), points: measured? })
}

async fn points(
    node: &RealNode,
    runtime: &FakeRuntime,
    numbers: &[usize],
    idle: Duration,
) -> anyhow::Result<Vec<Point>> {
    let watched = Watched::of(node)?;
    let mut points = Vec::new();
    let mut there = 0;
    for pods in numbers {
        node::start(node, there..*pods).await?;
        there = *pods;
        runtime.log().clear();
        tokio::time::sleep(Duration::from_secs(5)).await;
        let before = watched.cpu()?;
        tokio::time::sleep(idle).await;
        let idle_cpu = watched.cpu()?.since(&before).per_second(idle);
        points.push(Point { pods: *pods, memory: watched.memory()?, idle_cpu, anew: Anew::default() });
    }
    for point in points.iter_mut().rev() {
        node::stop(node, point.pods..there).await?;
        there = point.pods;
        point.anew = anew(node).await?;
    }
    node::stop(node, 0..there).await?;
    Ok(points)
}

async fn anew(node: &RealNode) -> anyhow::Result<Anew> {
    let before = KNOWING.map(|name| (name, node.kill(name)));
    for (name, pid) in before {
        node.back(name, pid, BACK).await;
    }
    tokio::time::sleep(REST).await;
    let mut cpu = Watched::of(node)?.cpu()?.0;
    cpu.retain(|name, _| KNOWING.contains(&name.as_str()));
    Ok(Anew { relist_s: node::relist(node).await?, cpu })
}

impl Growth {
    /// The tables: PSS by process, time and CPU, and what each further pod takes.
    pub fn table(&self) -> String {
        let mut text = format!("{}: {}.\n\n| PSS, MiB |", self.machine.date, self.machine.name());
        for point in &self.points {
            // Writing to a String cannot fail.
            let _ = write!(text, " {} pods |", point.pods);
        }
        text.push_str(" per pod, KiB |\n|---|");
        text.push_str(&"---|".repeat(self.points.len() + 1));
        text.push('\n');
        let (Some(first), Some(last)) = (self.points.first(), self.points.last()) else { return text };
        let more = last.pods.saturating_sub(first.pods).max(1);
        let mut row = |name: &str, of: &dyn Fn(&Point) -> u64| {
            let _ = write!(text, "| {name} |");
            for point in &self.points {
                let _ = write!(text, " {:.1} |", report::float(of(point)) / 1024.0);
            }
            let per_pod = report::float(of(last).saturating_sub(of(first))) / report::float(more as u64);
            let _ = writeln!(text, " {per_pod:.1} |");
        };
        for name in first.memory.keys() {
            row(name, &|point| point.memory.get(name).map_or(0, |memory| memory.pss_kib));
        }
        row("all", &|point| point.memory.values().map(|memory| memory.pss_kib).sum());
        let mut anew = |name: &str, of: &dyn Fn(&Anew) -> f64| {
            let _ = write!(text, "| {name} |");
            for point in &self.points {
                let _ = write!(text, " {:.0} |", of(&point.anew) * 1000.0);
            }
            let per_pod = (of(&last.anew) - of(&first.anew)) * 1000.0 / report::float(more as u64);
            let _ = writeln!(text, " {per_pod:.2} |");
        };
        anew("pleg's relist, ms", &|anew| anew.relist_s);
        for name in KNOWING {
            let of = |anew: &Anew| anew.cpu.get(name).copied().unwrap_or_default();
            anew(&format!("CPU of a new {name} until all is known, ms"), &of);
        }
        let idle = self
            .points
            .iter()
            .map(|point| format!("{:.2} % at {} pods", point.idle_cpu.ours() * 100.0, point.pods));
        let _ = writeln!(
            text,
            "\nIdle CPU of all processes, of one CPU: {}.",
            idle.collect::<Vec<_>>().join(", ")
        );
        text
    }
}
