//! A pod manifest's bytes: read, checked, and refused with line and reason.
//!
//! Owns what a static pod may say. The bytes are not trusted: their size, depth, nodes and aliases are bounded before
//! anything is built from them. Must never read a file, and never show a value of the manifest in a refusal: values
//! may be secrets. YAML and JSON are one: JSON is read as the subset of YAML that it is.
//!
//! Stricter than the kubelet in three ways, each because the silent alternative hurt somebody: several documents in
//! one file, duplicate keys, and paths with `..` are refused.

mod check;
mod containers;
mod decode;
mod list;
mod path;
mod probes;
mod references;
mod security;
mod text;
mod tree;
mod volumes;

use std::fmt;

use k8s_openapi::api::core::v1::Pod;

pub use list::{Item, MAX_ITEMS, MAX_LIST_BYTES, parse_all};
use tree::{Bounds, Node, Value};

/// Largest manifest in bytes. A bigger one is refused unread; the API server's own limit for a pod is about the same.
pub const MAX_BYTES: usize = 1 << 20;
/// Most warnings that one manifest gives.
pub const MAX_WARNINGS: usize = 32;

/// A manifest that was taken.
#[derive(Clone, Debug, PartialEq)]
pub struct Manifest {
    /// The pod, as it was written: [`crate::static_pod::make_static_pod`] fills in the rest.
    pub pod: Pod,
    /// What is odd but harmless, such as fields that this version does not know. At most [`MAX_WARNINGS`].
    pub warnings: Vec<Warning>,
}

/// Something in a manifest that was ignored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// Line, from 1.
    pub line: u32,
    /// Column, from 1.
    pub column: u32,
    /// What was ignored.
    pub text: String,
}

/// Why a manifest was not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Refusal {
    /// Line, from 1; `None` when it is about the file as a whole.
    pub line: Option<u32>,
    /// Column, from 1.
    pub column: Option<u32>,
    /// The field, what is wrong with it, and what is right.
    pub reason: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.line, self.column) {
            (Some(line), Some(column)) => write!(f, "line {line}, column {column}: {}", self.reason),
            (Some(line), None) => write!(f, "line {line}: {}", self.reason),
            _ => f.write_str(&self.reason),
        }
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}: {}", self.line, self.column, self.text)
    }
}

impl Refusal {
    fn whole(reason: impl Into<String>) -> Self {
        Self { line: None, column: None, reason: reason.into() }
    }

    fn at(node: &Node, reason: impl Into<String>) -> Self {
        Self { line: Some(node.line), column: Some(node.column), reason: reason.into() }
    }
}

/// Reads one pod from YAML or JSON and checks it.
pub fn parse(bytes: &[u8]) -> Result<Manifest, Refusal> {
    if bytes.len() > MAX_BYTES {
        return Err(Refusal::whole(format!(
            "the manifest has {} bytes: at most {MAX_BYTES} are read",
            bytes.len()
        )));
    }
    let text = std::str::from_utf8(bytes).map_err(|error| not_text(bytes, error.valid_up_to()))?;
    let documents = tree::parse(text, &Bounds::ONE)?;
    checked(only_pod(&documents)?)
}

/// The pod in `document`, which says that it is one.
fn checked(document: &Node) -> Result<Manifest, Refusal> {
    let (pod, warnings) = decode::pod(document)?;
    references::check(&pod).and_then(|()| check::check(&pod)).map_err(|fault| {
        let node = fault.locate(document);
        Refusal::at(node, fault.to_string())
    })?;
    Ok(Manifest { pod, warnings })
}

fn not_text(bytes: &[u8], valid: usize) -> Refusal {
    let before = bytes.get(..valid).unwrap_or_default();
    let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
    Refusal { line: u32::try_from(line).ok(), column: None, reason: "the manifest is not UTF-8 text".into() }
}

/// The one document, when it is a v1 Pod.
fn only_pod(documents: &[Node]) -> Result<&Node, Refusal> {
    let document = match documents {
        [] => return Err(Refusal::whole("the manifest is empty: it must hold one v1 Pod")),
        [document] => document,
        [_, second, ..] => {
            let kinds: Vec<_> = documents.iter().take(8).map(kind).collect();
            let reason = format!(
                "the file holds {} documents ({}): put each Pod into a file of its own",
                documents.len(),
                kinds.join(", ")
            );
            return Err(Refusal::at(second, reason));
        }
    };
    let Value::Map(_) = document.value else {
        return Err(Refusal::at(
            document,
            format!("the manifest is {}: it must be a v1 Pod", document.value.describe()),
        ));
    };
    let (version, kind_node) = (document.get("apiVersion"), document.get("kind"));
    let is = |node: Option<&Node>, text: &str| matches!(node, Some(Node { value: Value::Str(s), .. }) if s == text);
    if is(version, "v1") && is(kind_node, "Pod") {
        return Ok(document);
    }
    let kind = kind(document);
    let reason = match (version, kind_node) {
        (_, None) => "the manifest has no kind: it must be a v1 Pod".to_owned(),
        _ if kind.ends_with("List") => format!("kind {kind}: put each Pod into a file of its own"),
        (None, _) => format!("kind {kind} has no apiVersion: it must be v1"),
        _ if kind == "Pod" => "the apiVersion of a Pod must be v1".to_owned(),
        _ => format!("kind {kind}: only v1 Pods can be run from a manifest"),
    };
    let wrong = if is(kind_node, "Pod") { version } else { kind_node };
    Err(Refusal::at(wrong.unwrap_or(document), reason))
}

/// The document's kind for people, shortened.
fn kind(document: &Node) -> String {
    match document.get("kind").map(|node| &node.value) {
        Some(Value::Str(kind)) if !kind.is_empty() && kind.bytes().all(|b| b.is_ascii_alphanumeric()) => {
            kind.chars().take(63).collect()
        }
        _ => "unknown".to_owned(),
    }
}

#[cfg(test)]
mod tests;
