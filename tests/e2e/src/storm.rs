//! A storm: faults, one after another, on a real node whose pods come, change and go all the time.
//!
//! Owns the order of things. What is done is decided by [`plan`] and [`churn`], what is there is read by [`observe`], and
//! whether that is right says [`check`]: all but reading is pure.

#![expect(
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a harness: what fails here fails the test that uses it, and who waits for it reads along"
)]

pub mod check;
pub mod churn;
pub mod observe;
pub mod plan;
pub mod stable;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use nix::sys::signal::Signal;
use tokio::time::{Instant, sleep, timeout};

use crate::real_node::{PROCESSES, RealNode, signal};
use crate::wait;
use check::{Expected, Fault};
use churn::Churn;
use observe::Observer;
use plan::{Attack, Length, Random, Round, Victim};

/// Time between two changes of manifests.
const CHANGE: Duration = Duration::from_millis(700);
/// How long pods go on changing after a kill.
const AFTER_KILL: Duration = Duration::from_secs(2);
/// Time between two looks.
const LOOK: Duration = Duration::from_millis(100);
/// After so many rounds that lost something there is nothing more to learn.
const ENOUGH: usize = 5;

/// How long, how hard.
#[derive(Clone, Copy, Debug)]
pub struct Weather {
    /// Number of rounds.
    pub rounds: usize,
    /// The same number gives the same storm.
    pub seed: u64,
    /// What "a while" is.
    pub length: Length,
    /// A round is bad when not everything is consistent within this time after its fault is over.
    pub within: Duration,
}

/// What a storm came to.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Time to be consistent again, by round.
    pub recovered: Vec<(Round, Duration)>,
    /// Rounds with what was wrong after them.
    pub bad: Vec<String>,
    /// How many of them were bad for more than being slow.
    pub lost: usize,
    /// Changes of manifests.
    pub changes: usize,
}

/// A storm over a node that is up and empty.
pub struct Storm {
    node: RealNode,
    observer: Observer,
    churn: Churn,
    random: Random,
    expected: Expected,
    outcome: Outcome,
    weather: Weather,
    /// Where the logs of bad rounds go.
    keep: PathBuf,
}

impl Storm {
    /// Starts the stable pods and looks at them.
    pub async fn gather(node: RealNode, weather: Weather, keep: &Path) -> Self {
        let observer = Observer::new(&node);
        let empty = observer.look(&node).await.expect("an empty node can be looked at");
        for (file, manifest) in stable::manifests(node.state()) {
            node.put(&file, &manifest);
        }
        let mut expected = Expected { baseline: empty, ..Expected::default() };
        wait::until("the stable pods are as they shall stay", async || {
            let seen = observer.look(&node).await.ok()?;
            stable::are_settled(&seen.pods).then(|| expected.stable = seen.pods.clone())
        })
        .await;
        let random = Random::new(weather.seed);
        Self {
            churn: Churn::new(weather.seed),
            outcome: Outcome::default(),
            keep: keep.to_owned(),
            node,
            observer,
            random,
            expected,
            weather,
        }
    }

    /// All rounds; returns what they came to and the node.
    pub async fn rage(mut self) -> (Outcome, RealNode) {
        // Calm first: what is wrong now is no fault's doing.
        self.settle("before the first round").await;
        let rounds = plan::rounds(self.weather.seed, self.weather.rounds, &self.weather.length);
        for (number, round) in rounds.into_iter().enumerate() {
            self.attack(round).await;
            let name = format!("round {number}: {round}");
            let took = self.settle(&name).await;
            println!("{name}: consistent after {:.1} s", took.as_secs_f64());
            self.outcome.recovered.push((round, took));
            if self.outcome.lost >= ENOUGH {
                break;
            }
        }
        (self.outcome, self.node)
    }

    /// One fault from its begin to its end, while pods change.
    async fn attack(&mut self, round: Round) {
        let before = Duration::from_millis(self.random.below(2000));
        self.change_for(before).await;
        let pids = self.victims(round.victim);
        match round.attack {
            Attack::Kill => {
                pids.iter().for_each(|pid| signal(*pid, Signal::SIGKILL));
                if round.victim == Victim::Launcher {
                    self.relaunch().await;
                }
                self.change_for(AFTER_KILL).await;
            }
            Attack::Stop(length) => {
                pids.iter().for_each(|pid| signal(*pid, Signal::SIGSTOP));
                self.change_for(length).await;
                pids.iter().for_each(|pid| signal(*pid, Signal::SIGCONT));
            }
        }
    }

    fn victims(&self, victim: Victim) -> Vec<u32> {
        let processes = self.node.processes();
        let all = || processes.values().map(|(pid, _)| *pid).chain(self.node.runtime_pid());
        let pids: Vec<u32> = match victim {
            Victim::Process(index) => {
                let name = PROCESSES.get(index).copied().unwrap_or_default();
                processes.get(name).map(|(pid, _)| *pid).into_iter().collect()
            }
            Victim::Runtime => self.node.runtime_pid().into_iter().collect(),
            Victim::Launcher => vec![self.node.launcher_pid()],
            Victim::All => all().collect(),
        };
        assert!(!pids.is_empty(), "{victim} is up: {}", self.node.said());
        pids
    }

    /// What the launcher started ends with it; then its successor comes.
    async fn relaunch(&mut self) {
        let pids: Vec<u32> = self.node.runtime_pid().into_iter().collect();
        wait::until("what the launcher started ended", async || {
            pids.iter().all(|pid| !Path::new(&format!("/proc/{pid}")).exists()).then_some(())
        })
        .await;
        self.node.launch();
    }

    async fn change_for(&mut self, length: Duration) {
        let end = Instant::now() + length;
        while Instant::now() + CHANGE < end {
            sleep(CHANGE).await;
            self.outcome.changes += 1;
            let changes = self.churn.change();
            changes.apply(&self.node);
        }
        tokio::time::sleep_until(end).await;
    }

    /// Waits until everything is as it should be; what is not after too long is noted. Returns how long it took.
    async fn settle(&mut self, name: &str) -> Duration {
        let begin = Instant::now();
        self.expected.churn = self.churn.present();
        let mut last = Vec::new();
        let found = timeout(wait::BOUND, async {
            loop {
                match self.observer.look(&self.node).await {
                    Ok(seen) => {
                        last = check::faults(&self.expected, &seen);
                        if last.is_empty() || last.iter().all(Fault::is_final) {
                            return seen;
                        }
                    }
                    Err(error) => last = vec![Fault::Passing(format!("{error:#}"))],
                }
                sleep(LOOK).await;
            }
        })
        .await;
        let took = begin.elapsed();
        self.outcome.lost += usize::from(!last.is_empty());
        if took > self.weather.within {
            last.push(Fault::Final(format!("it took {:.1} s", took.as_secs_f64())));
        }
        if !last.is_empty() {
            self.note(name, &last);
        }
        // What is lost is lost: the next round is about itself.
        if let Ok(seen) = found {
            let stable = &self.expected.stable;
            let now = seen.pods.into_iter().filter(|(name, _)| stable.contains_key(name));
            self.expected.stable = now.collect();
        }
        took
    }

    fn note(&mut self, name: &str, faults: &[Fault]) {
        let mut text = format!("{name} (seed {}):", self.weather.seed);
        for fault in faults {
            let _ = write!(text, "\n  {fault}");
        }
        let folder = self.keep.join(format!("{}-{}", self.weather.seed, self.outcome.recovered.len()));
        let _ = std::fs::create_dir_all(&self.keep);
        let copied = Command::new("cp").arg("-r").arg(self.node.state().join("logs")).arg(&folder).status();
        if copied.is_ok_and(|status| status.success()) {
            let _ = write!(text, "\n  logs: {}", folder.display());
        }
        println!("{text}");
        self.outcome.bad.push(text);
    }
}

impl Outcome {
    /// For people: what happened, and the longest time to be consistent.
    pub fn summary(&self) -> String {
        let mut victims = std::collections::BTreeMap::<String, (usize, usize)>::new();
        for (round, _) in &self.recovered {
            let (killed, stopped) = victims.entry(round.victim.to_string()).or_default();
            *match round.attack {
                Attack::Kill => killed,
                Attack::Stop(_) => stopped,
            } += 1;
        }
        let longest = self.recovered.iter().max_by_key(|(_, took)| *took);
        let longest = longest.map(|(round, took)| format!("{:.1} s after {round}", took.as_secs_f64()));
        let mut times: Vec<_> = self.recovered.iter().map(|(_, took)| took.as_secs_f64()).collect();
        times.sort_by(f64::total_cmp);
        let median = times.get(times.len() / 2).copied().unwrap_or_default();
        format!(
            "{} rounds, {} changes, {} bad, {} of them for more than time; consistent after {median:.1} s (median), at most {}\nkilled/stopped: {victims:?}",
            self.recovered.len(),
            self.changes,
            self.bad.len(),
            self.lost,
            longest.unwrap_or_default(),
        )
    }
}
