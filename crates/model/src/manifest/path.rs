//! Where in a manifest something is: `spec.containers[0].ports[1].hostPort`.

use std::fmt;

use super::tree::{Node, Value};

/// A place in the pod, as a chain on the stack: nothing is allocated until something is wrong.
#[derive(Clone, Copy)]
pub(super) struct At<'a> {
    parent: Option<&'a At<'a>>,
    step: Step<'a>,
}

#[derive(Clone, Copy)]
enum Step<'a> {
    Root,
    Field(&'a str),
    Index(usize),
}

/// What is wrong, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    steps: Vec<OwnedStep>,
    reason: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum OwnedStep {
    Field(String),
    Index(usize),
}

impl<'a> At<'a> {
    /// The manifest as a whole.
    pub(super) const ROOT: At<'static> = At { parent: None, step: Step::Root };

    pub(super) fn field<'b>(&'b self, name: &'b str) -> At<'b>
    where
        'a: 'b,
    {
        At { parent: Some(self), step: Step::Field(name) }
    }

    pub(super) fn index(&self, index: usize) -> At<'_> {
        At { parent: Some(self), step: Step::Index(index) }
    }

    /// Says what is wrong here.
    pub(super) fn fault(&self, reason: impl Into<String>) -> Fault {
        let mut steps = Vec::new();
        let mut at = Some(self);
        while let Some(here) = at {
            match here.step {
                Step::Root => {}
                Step::Field(name) => steps.push(OwnedStep::Field(name.to_owned())),
                Step::Index(index) => steps.push(OwnedStep::Index(index)),
            }
            at = here.parent;
        }
        steps.reverse();
        Fault { steps, reason: reason.into() }
    }

    /// [`At::fault`] as an error, unless `right`.
    pub(super) fn require(&self, right: bool, reason: &str) -> Result<(), Fault> {
        if right { Ok(()) } else { Err(self.fault(reason)) }
    }
}

impl Fault {
    /// The node that it is about, or the nearest one above it that the manifest has.
    pub(super) fn locate<'n>(&self, root: &'n Node) -> &'n Node {
        let mut node = root;
        for step in &self.steps {
            let next = match (step, &node.value) {
                (OwnedStep::Field(name), _) => node.get(name),
                (OwnedStep::Index(index), Value::Seq(list)) => list.get(*index),
                _ => None,
            };
            match next {
                Some(next) => node = next,
                None => break,
            }
        }
        node
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, step) in self.steps.iter().enumerate() {
            match step {
                OwnedStep::Index(index) => write!(f, "[{index}]")?,
                OwnedStep::Field(name) => {
                    let plain = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric());
                    let name: String = name.chars().filter(|c| !c.is_control()).take(80).collect();
                    match (plain, position) {
                        (true, 0) => f.write_str(&name)?,
                        (true, _) => write!(f, ".{name}")?,
                        (false, _) => write!(f, "[{name}]")?,
                    }
                }
            }
        }
        if !self.steps.is_empty() {
            f.write_str(": ")?;
        }
        f.write_str(&self.reason)
    }
}
