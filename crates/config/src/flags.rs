//! The kubelet's flags: which there are, which field of the configuration each one sets, and what else they may say.
//!
//! Owns the table. Must never parse a command line: whoever does hands over what was given ([`Given`]).

mod table;
mod value;

use crate::duration::Duration;
use crate::error::{Position, Problem};
use crate::merge::merge;
use crate::tree::{Node, Place, Value};

pub use table::FLAGS;

/// One flag of the kubelet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flag {
    /// Its name without the dashes.
    pub name: &'static str,
    /// How its value is written.
    pub kind: Kind,
    /// What it is about.
    pub about: About,
}

/// How a flag's value is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `true` or `false`; alone it is true. Its value stands behind `=`.
    Switch,
    /// A whole number.
    Number,
    /// Any text.
    Text,
    /// A duration such as `1m30s`.
    Time,
    /// Texts with commas between them.
    Texts,
    /// `KEY=VALUE` pairs with commas between them.
    Pairs,
    /// `KEY<VALUE` pairs with commas between them: thresholds.
    Thresholds,
    /// `KEY=true` pairs with commas between them, which are laid over those of the file.
    Switches,
    /// `NAME:VALUE` pairs with commas between them; a name may come several times.
    Headers,
    /// `KEY=VALUE:EFFECT` with commas between them.
    Taints,
    /// `NODE:KIND=AMOUNT,...` with semicolons between them.
    Reservations,
    /// `PATTERN=LEVEL` pairs with commas between them.
    Levels,
}

/// What a flag is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum About {
    /// A field of the configuration, by its dotted path. The flag wins over files.
    Field(&'static str),
    /// The process itself: it is read there.
    Process,
    /// Something that this release does not do. It may only have its default.
    Missing {
        /// The kubelet's default; empty: it is not set.
        default: &'static str,
    },
}

/// A flag as it was given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Given {
    /// Which one.
    pub flag: &'static Flag,
    /// Its values, once for each time that it was given.
    pub values: Vec<String>,
}

impl Flag {
    /// The flag with this name.
    pub fn find(name: &str) -> Option<&'static Self> {
        FLAGS.iter().find(|flag| flag.name == name)
    }
}

impl Given {
    /// The flag as it is written.
    pub fn written(&self) -> String {
        format!("--{}", self.flag.name)
    }

    fn problem(&self, message: impl Into<String>) -> Problem {
        let at = Position { file: self.written(), line: 0, column: 0 };
        Problem { field: String::new(), at: Some(at), message: message.into() }
    }

    /// What is wrong with a flag that this release does nothing with.
    fn missing(&self, default: &str) -> Option<Problem> {
        let last = self.values.last().map_or("", String::as_str);
        let is_default = match self.flag.kind {
            Kind::Time => last.parse::<Duration>().is_ok_and(|time| Ok(time) == default.parse()),
            Kind::Switch => value::switch(last).is_some_and(|on| on.to_string() == default),
            _ => last == default,
        };
        let remedy = match default {
            _ if is_default => return None,
            "" => "remove it (by default it is not set)".to_owned(),
            default => format!("remove it or set it to its default {default}"),
        };
        Some(self.problem(format!("this release of bulkhead does not implement it; {remedy}")))
    }
}

/// Lays flags over the merged files. Their places are files of their own, from number `first` on.
pub(crate) fn apply(root: &mut Node, given: &[Given], first: usize) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (file, given) in (first..).zip(given) {
        match given.flag.about {
            About::Process => {}
            About::Missing { default } => problems.extend(given.missing(default)),
            About::Field(field) => {
                let place = Place { file, line: 0, column: 0 };
                match value::read(given.flag.kind, &given.values, place) {
                    Ok(value) => set(root, field, given.flag.kind, Node { place, value }),
                    Err(fault) => problems.push(given.problem(fault)),
                }
            }
        }
    }
    problems
}

fn set(root: &mut Node, field: &str, kind: Kind, node: Node) {
    match root.entry(field).map(|entry| entry.node.clone()) {
        Some(mut under) if kind == Kind::Switches => {
            if under.value == Value::Null {
                under.value = Value::Map(Vec::new());
            }
            merge(&mut under, node);
            root.set(field, under);
        }
        _ => root.set(field, node),
    }
}

#[cfg(test)]
mod tests;
