//! When the node is under pressure, and which threshold is to be acted on.
//!
//! A condition holds as long as one of its thresholds is met, and for a time after that. A threshold that was acted on stays
//! met until what is reclaimed at least is free as well.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::capacity::Threshold;
use crate::quantity::Format;

use super::thresholds;

/// What is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Signal {
    /// Memory that no working set holds.
    MemoryAvailable,
    /// Bytes left on the disk of the node agent's root folder.
    NodefsAvailable,
    /// Inodes left there.
    NodefsInodesFree,
    /// Bytes left on the disk of images.
    ImagefsAvailable,
    /// Inodes left there.
    ImagefsInodesFree,
    /// Bytes left on the disk of writable layers.
    ContainerfsAvailable,
    /// Inodes left there.
    ContainerfsInodesFree,
    /// Processes and threads that may still be made.
    PidAvailable,
}

/// A node's condition of pressure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Condition {
    /// Of memory.
    MemoryPressure,
    /// Of any disk.
    DiskPressure,
    /// Of processes.
    PidPressure,
}

/// One threshold.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rule {
    /// What it is about.
    pub signal: Signal,
    /// Less than this is too little.
    pub threshold: Threshold,
    /// How long it has to be met before it is acted on; `None`: it is a hard one.
    pub grace: Option<Duration>,
    /// So much more has to be free before it counts as no longer met.
    pub min_reclaim: Option<Threshold>,
}

/// What the configuration says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeRules {
    /// All thresholds.
    pub rules: Vec<Rule>,
    /// `evictionPressureTransitionPeriod`: how long a condition holds after it was last seen.
    pub transition: Duration,
}

/// What is left of something, and what there is of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Observation {
    /// Left.
    pub available: u64,
    /// The whole.
    pub capacity: u64,
}

/// What was seen. A signal that could not be read is missing, and meets no threshold.
pub type Observations = BTreeMap<Signal, Observation>;

/// What earlier looks left.
#[derive(Clone, Debug, Default)]
pub struct NodeState {
    /// Thresholds that were to be acted on.
    due: Vec<Rule>,
    /// Since when each threshold is met without a break.
    since: Vec<(Rule, Duration)>,
    /// When each condition was seen last.
    seen: BTreeMap<Condition, Duration>,
}

/// What follows from a look.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Look {
    /// Conditions that hold.
    pub conditions: BTreeSet<Condition>,
    /// Thresholds to act on, the first one first.
    pub due: Vec<Rule>,
}

impl Signal {
    const ALL: [Self; 8] = [
        Self::MemoryAvailable,
        Self::NodefsAvailable,
        Self::NodefsInodesFree,
        Self::ImagefsAvailable,
        Self::ImagefsInodesFree,
        Self::ContainerfsAvailable,
        Self::ContainerfsInodesFree,
        Self::PidAvailable,
    ];

    /// As the configuration names it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::MemoryAvailable => "memory.available",
            Self::NodefsAvailable => "nodefs.available",
            Self::NodefsInodesFree => "nodefs.inodesFree",
            Self::ImagefsAvailable => "imagefs.available",
            Self::ImagefsInodesFree => "imagefs.inodesFree",
            Self::ContainerfsAvailable => "containerfs.available",
            Self::ContainerfsInodesFree => "containerfs.inodesFree",
            Self::PidAvailable => "pid.available",
        }
    }

    /// Reads the configuration's name.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|signal| signal.as_str() == text)
    }

    /// What pods take of it, as people are told.
    pub fn resource(self) -> &'static str {
        match self {
            Self::MemoryAvailable => "memory",
            Self::NodefsAvailable | Self::ImagefsAvailable | Self::ContainerfsAvailable => {
                "ephemeral-storage"
            }
            Self::NodefsInodesFree | Self::ImagefsInodesFree | Self::ContainerfsInodesFree => "inodes",
            Self::PidAvailable => "pids",
        }
    }

    /// The condition that it leads to.
    pub fn condition(self) -> Condition {
        match self {
            Self::MemoryAvailable => Condition::MemoryPressure,
            Self::PidAvailable => Condition::PidPressure,
            _ => Condition::DiskPressure,
        }
    }

    /// Whether inodes are counted rather than bytes.
    pub fn is_inodes(self) -> bool {
        self.resource() == "inodes"
    }

    pub(super) fn format(self) -> Format {
        match self.resource() {
            "memory" | "ephemeral-storage" => Format::BinarySi,
            _ => Format::DecimalSi,
        }
    }
}

impl Condition {
    /// The type of the node's condition.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::MemoryPressure => "MemoryPressure",
            Self::DiskPressure => "DiskPressure",
            Self::PidPressure => "PIDPressure",
        }
    }

    /// Reads that.
    pub fn parse(text: &str) -> Option<Self> {
        [Self::MemoryPressure, Self::DiskPressure, Self::PidPressure]
            .into_iter()
            .find(|condition| condition.as_str() == text)
    }
}

/// The rules out of the configuration's maps, which validation took. `soft_grace` by signal: a soft threshold without is
/// none. What is switched off is left out.
pub fn rules(
    hard: &BTreeMap<String, String>,
    soft: &BTreeMap<String, String>,
    soft_grace: &BTreeMap<String, Duration>,
    min_reclaim: &BTreeMap<String, String>,
) -> Vec<Rule> {
    let reclaim = thresholds(min_reclaim).0;
    let of = |given: &BTreeMap<String, String>, grace: &dyn Fn(&str) -> Option<Option<Duration>>| {
        let all = thresholds(given).0;
        let rule = |(name, threshold): (String, Threshold)| {
            Some(Rule {
                signal: Signal::parse(&name)?,
                threshold,
                grace: grace(&name)?,
                min_reclaim: reclaim.get(&name).copied(),
            })
        };
        all.into_iter().filter_map(rule).collect::<Vec<_>>()
    };
    let mut rules = of(hard, &|_| Some(None));
    rules.extend(of(soft, &|name| soft_grace.get(name).copied().map(Some)));
    rules
}

impl Rule {
    /// Whether there is too little.
    pub fn is_met(&self, seen: &Observations) -> bool {
        self.lacks(seen, None)
    }

    /// The threshold in bytes or pieces, of a whole of this size.
    pub fn quantity(&self, capacity: u64) -> u64 {
        self.threshold.of(capacity)
    }

    /// A threshold that was acted on is left alone only once there is that much more.
    fn is_still_met(&self, seen: &Observations) -> bool {
        self.lacks(seen, self.min_reclaim)
    }

    fn lacks(&self, seen: &Observations, more: Option<Threshold>) -> bool {
        seen.get(&self.signal).is_some_and(|seen| {
            let more = more.map_or(0, |more| more.of(seen.capacity));
            self.quantity(seen.capacity).saturating_add(more) > seen.available
        })
    }
}

impl NodeState {
    /// Looks at what was seen at `now`, a time since any fixed moment that never goes back.
    pub fn look(&mut self, rules: &NodeRules, seen: &Observations, now: Duration) -> Look {
        let was_due = |rule: &Rule| self.due.contains(rule);
        let met: Vec<Rule> = rules
            .rules
            .iter()
            .filter(|rule| rule.is_met(seen) || (was_due(rule) && rule.is_still_met(seen)))
            .copied()
            .collect();
        let since = |rule: &Rule| {
            let before = self.since.iter().find(|(known, _)| known == rule);
            before.map_or(now, |(_, since)| *since)
        };
        self.since = met.iter().map(|rule| (*rule, since(rule))).collect();
        for rule in &met {
            self.seen.insert(rule.signal.condition(), now);
        }
        self.seen.retain(|_, last| *last == now || now.saturating_sub(*last) < rules.transition);
        let due = self
            .since
            .iter()
            .filter(|(rule, since)| rule.grace.is_none_or(|grace| now.saturating_sub(*since) >= grace));
        self.due = due.map(|(rule, _)| *rule).collect();
        // Memory first: it kills the fastest. Then what must be done at once.
        self.due.sort_by_key(|rule| (rule.signal != Signal::MemoryAvailable, rule.grace.is_some()));
        Look { conditions: self.seen.keys().copied().collect(), due: self.due.clone() }
    }

    /// Whether what was to be acted on has been settled meanwhile.
    pub fn is_settled(&self, rule: &Rule, seen: &Observations) -> bool {
        seen.contains_key(&rule.signal) && !rule.is_still_met(seen)
    }
}

#[cfg(test)]
mod tests;
