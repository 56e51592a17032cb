//! What is told: a table for people and the same figures as JSON.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use anyhow::Context;
use serde::Serialize;

use crate::machine::Machine;
use crate::measure::Starts;
use crate::processes::{Cpu, Memory};

/// One run.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Where.
    pub machine: Machine,
    /// How the program was built.
    pub profile: String,
    /// Pods, one container each.
    pub pods: usize,
    /// Pods that the floor starts at once.
    pub parallel: usize,
    /// Straight over CRI, before and after the agents.
    pub floor: [Starts; 2],
    /// The runtime's share of one CPU with these pods and nobody who asks it anything.
    pub runtime_alone: f64,
    /// Node agents.
    pub agents: Vec<Agent>,
}

/// A node agent under the same pods.
#[derive(Clone, Debug, Serialize)]
pub struct Agent {
    /// Its name.
    pub name: String,
    /// How its pods came.
    pub starts: Starts,
    /// Until all pods were gone again, in seconds.
    pub stop_s: f64,
    /// CRI calls for each pod while they started.
    pub calls: BTreeMap<String, f64>,
    /// Seconds of CPU while they started.
    pub busy: Cpu,
    /// Share of one CPU while nothing happens.
    pub idle_cpu: Cpu,
    /// Memory without pods.
    pub empty: BTreeMap<String, Memory>,
    /// Memory with all pods.
    pub memory: BTreeMap<String, Memory>,
}

impl Report {
    /// The table.
    pub fn table(&self) -> String {
        let mut text = String::new();
        let machine = &self.machine;
        let [before, after] = &self.floor;
        let floor = |of: fn(&Starts) -> f64| f64::midpoint(of(before), of(after));
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "{}: {}. {} pods, the floor {} at a time, built with `{}`.\n",
            machine.date,
            machine.name(),
            self.pods,
            self.parallel,
            self.profile
        );
        let _ = writeln!(text, "| | all running, s | ratio | median pod waits, s | ratio | first pod, s |");
        let _ = writeln!(text, "|---|---|---|---|---|---|");
        for (name, starts) in [("CRI, before", before), ("CRI, after", after)]
            .into_iter()
            .chain(self.agents.iter().map(|agent| (agent.name.as_str(), &agent.starts)))
        {
            let _ = writeln!(
                text,
                "| {name} | {:.1} | {:.2} | {:.1} | {:.2} | {:.2} |",
                starts.all_s,
                starts.all_s / floor(|s| s.all_s),
                starts.median_s,
                starts.median_s / floor(|s| s.median_s),
                starts.first_s
            );
        }
        let _ = writeln!(
            text,
            "\nThe runtime (containerd) takes {:.2} % of one CPU with these pods while nobody asks it anything.",
            self.runtime_alone * 100.0
        );
        for agent in &self.agents {
            agent.write(&mut text);
        }
        text
    }
}

impl Agent {
    fn write(&self, text: &mut String) {
        let mib = |kib: u64| float(kib) / 1024.0;
        let percent = |share: f64| share * 100.0;
        let none = Memory::default();
        let _ = writeln!(
            text,
            "\n| {} | PSS, MiB | USS, MiB | PSS without pods, MiB | CPU while starting, s | idle CPU, % of one |",
            self.name
        );
        let _ = writeln!(text, "|---|---|---|---|---|---|");
        let mut row = |name: &str, now: Memory, empty: Memory, busy: f64, idle: f64| {
            let _ = writeln!(
                text,
                "| {name} | {:.1} | {:.1} | {:.1} | {busy:.2} | {:.2} |",
                mib(now.pss_kib),
                mib(now.uss_kib),
                mib(empty.pss_kib),
                percent(idle)
            );
        };
        let cpu = |of: &Cpu, name: &str| of.0.get(name).copied().unwrap_or(0.0);
        for (name, memory) in &self.memory {
            let empty = self.empty.get(name).copied().unwrap_or(none);
            row(name, *memory, empty, cpu(&self.busy, name), cpu(&self.idle_cpu, name));
        }
        row("all", sum(&self.memory), sum(&self.empty), self.busy.ours(), self.idle_cpu.ours());
        let _ = writeln!(
            text,
            "| the runtime (containerd) | | | | {:.2} | {:.2} |",
            self.busy.runtime(),
            percent(self.idle_cpu.runtime())
        );
        let _ = write!(text, "\nAll pods gone again after {:.1} s.", self.stop_s);
        let calls: Vec<_> = self.calls.iter().map(|(name, count)| format!("{name} {count:.2}")).collect();
        if !calls.is_empty() {
            let _ = write!(text, " CRI calls for each pod while they start: {}.", calls.join(", "));
        }
        text.push('\n');
    }
}

fn sum(memory: &BTreeMap<String, Memory>) -> Memory {
    memory.values().fold(Memory::default(), |sum, one| Memory {
        pss_kib: sum.pss_kib + one.pss_kib,
        uss_kib: sum.uss_kib + one.uss_kib,
    })
}

/// For ratios and tables; past 2^32 it stays there.
pub fn float(number: u64) -> f64 {
    f64::from(u32::try_from(number).unwrap_or(u32::MAX))
}

/// Replaces what is between the markers `name: begin` and `name: end` of a document.
pub fn write_into(file: &Path, name: &str, table: &str) -> anyhow::Result<()> {
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    let text = replaced(&text, name, table);
    let text = text.with_context(|| format!("{} has no markers of {name}", file.display()))?;
    std::fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
}

fn replaced(text: &str, name: &str, table: &str) -> Option<String> {
    let (begin, end) = (format!("<!-- {name}: begin -->"), format!("<!-- {name}: end -->"));
    let (head, rest) = text.split_once(&begin)?;
    let (_, tail) = rest.split_once(&end)?;
    Some(format!("{head}{begin}\n{table}{end}{tail}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_between_the_markers_is_replaced() {
        let text = "a\n<!-- x: begin -->\nold\n<!-- x: end -->\nz\n";
        let wanted = "a\n<!-- x: begin -->\nnew\n<!-- x: end -->\nz\n";
        assert_eq!(replaced(text, "x", "new\n").as_deref(), Some(wanted));
        assert_eq!(replaced(text, "y", "new"), None);
    }
}
