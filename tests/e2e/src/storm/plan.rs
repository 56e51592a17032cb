//! Which fault comes when: decided by a seed alone. Pure.

use std::fmt;
use std::time::Duration;

use crate::real_node::PROCESSES;

/// What is attacked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Victim {
    /// A process of the node: its place in [`PROCESSES`].
    Process(usize),
    /// containerd.
    Runtime,
    /// What keeps all of them running.
    Launcher,
    /// All processes and containerd at once.
    All,
}

/// What is done to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Attack {
    /// `kill -9`.
    Kill,
    /// SIGSTOP, and SIGCONT after this time.
    Stop(Duration),
}

/// One fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Round {
    /// What is attacked.
    pub victim: Victim,
    /// How.
    pub attack: Attack,
}

/// How long victims are stopped.
#[derive(Clone, Copy, Debug)]
pub struct Length {
    /// Most of them, at most.
    pub short: Duration,
    /// The first `longs`.
    pub long: Duration,
    /// How many rounds stop their victim for long. Every victim once, before any twice.
    pub longs: usize,
}

/// Numbers that only a seed decides (splitmix64).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// From a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// The next number, below `bound`; 0 when that is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.draw().checked_rem(bound).unwrap_or_default()
    }
}

/// The rounds of a storm. Each victim is killed and stopped once before any is again, in an order of the seed's.
pub fn rounds(seed: u64, count: usize, length: &Length) -> Vec<Round> {
    let mut random = Random::new(seed);
    let mut rounds = Vec::new();
    let mut longs = length.longs;
    while rounds.len() < count {
        let mut cycle = Vec::new();
        for victim in victims() {
            let stop = if longs > 0 {
                longs -= 1;
                length.long
            } else {
                let half = length.short / 2;
                let millis = u64::try_from(half.as_millis()).unwrap_or_default();
                half + Duration::from_millis(random.below(millis))
            };
            cycle.push(Round { victim, attack: Attack::Kill });
            cycle.push(Round { victim, attack: Attack::Stop(stop) });
        }
        while !cycle.is_empty() {
            let next = random.below(cycle.len() as u64);
            rounds.push(cycle.swap_remove(usize::try_from(next).unwrap_or_default()));
        }
    }
    rounds.truncate(count);
    rounds
}

/// Those first whose silence matters most: they are the ones that are stopped for long.
fn victims() -> impl Iterator<Item = Victim> {
    const FIRST: [&str; 5] = ["syncd", "prober", "pleg", "statusd", "crigate"];
    let place = |name: &&str| PROCESSES.iter().position(|process| process == name);
    let first = FIRST.iter().filter_map(place);
    let rest = (0..PROCESSES.len()).filter(|index| !FIRST.contains(PROCESSES.get(*index).unwrap_or(&"")));
    let processes = first.chain(rest).map(Victim::Process);
    [Victim::Runtime, Victim::All].into_iter().chain(processes).chain([Victim::Launcher])
}

impl fmt::Display for Victim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Process(index) => PROCESSES.get(*index).copied().unwrap_or_default(),
            Self::Runtime => "containerd",
            Self::Launcher => "launcher",
            Self::All => "everything",
        })
    }
}

impl fmt::Display for Round {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.attack {
            Attack::Kill => write!(f, "{} killed", self.victim),
            Attack::Stop(length) => write!(f, "{} stopped for {:.1} s", self.victim, length.as_secs_f64()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const LENGTH: Length = Length { short: Duration::from_secs(8), long: Duration::from_secs(60), longs: 5 };

    #[test]
    fn a_seed_is_a_storm() {
        assert_eq!(rounds(7, 50, &LENGTH), rounds(7, 50, &LENGTH));
        assert_ne!(rounds(7, 50, &LENGTH), rounds(8, 50, &LENGTH));
        assert!(rounds(7, 0, &LENGTH).is_empty());
    }

    #[test]
    fn every_victim_is_killed_and_stopped_once_before_any_is_again() {
        let once = 2 * victims().count();
        let all = rounds(3, once, &LENGTH);
        let kinds: BTreeSet<_> =
            all.iter().map(|round| (round.victim, round.attack == Attack::Kill)).collect();
        assert_eq!(kinds.len(), once);
    }

    #[test]
    fn stops_are_long_as_often_as_asked_and_else_short() {
        let lengths = |rounds: Vec<Round>| -> Vec<Duration> {
            let stop = |round: Round| match round.attack {
                Attack::Stop(length) => Some(length),
                Attack::Kill => None,
            };
            rounds.into_iter().filter_map(stop).collect()
        };
        let stops = 4 * victims().count();
        let lengths = lengths(rounds(1, 2 * stops, &LENGTH));
        assert_eq!(lengths.iter().filter(|length| **length == LENGTH.long).count(), 5);
        let short = |length: &&Duration| (LENGTH.short / 2..LENGTH.short).contains(*length);
        assert_eq!(lengths.iter().filter(short).count(), stops - 5);
    }
}
