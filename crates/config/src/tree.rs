//! A YAML or JSON text as a tree that remembers where each value stands.
//!
//! Owns the limits against hostile texts. Must never know a field of the configuration.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess};
use serde_saphyr::Spanned;
use serde_saphyr::budget::BudgetBreach;
use serde_saphyr::options::{DuplicateKeyPolicy, Options};

use crate::error::{Position, Problem};

/// Nested blocks and lists. The deepest field is four levels down.
const MAX_DEPTH: usize = 32;
/// Values and keys in one text, aliases expanded. A file with every field set has about 500.
const MAX_NODES: usize = 20_000;
/// Uses of an anchor. Few files have any.
const MAX_ALIASES: usize = 100;

/// A value and its place.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Node {
    pub place: Place,
    pub value: Value,
}

/// A place, with the file as an index into the list of sources.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub file: usize,
    pub line: u64,
    pub column: u64,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    Null,
    Bool(bool),
    Unsigned(u64),
    Signed(i64),
    Float(f64),
    Text(String),
    List(Vec<Node>),
    Map(Vec<Entry>),
}

/// One key of a map with its value; maps keep the order of the text.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Entry {
    pub key: String,
    pub place: Place,
    pub node: Node,
}

/// Reads one text. Keys that come twice are there twice: see [`without_duplicates`].
pub(crate) fn read(text: &[u8], file: usize, name: &str) -> Result<Node, Vec<Problem>> {
    let mut root: Node = serde_saphyr::from_slice_with_options(text, options()).map_err(|error| {
        let at = error.location().map_or((0, 0), |at| (at.line(), at.column()));
        vec![Problem {
            field: String::new(),
            at: Some(Position { file: name.to_owned(), line: at.0, column: at.1 }),
            message: format!("this is not usable YAML or JSON: {}", explain(&error)),
        }]
    })?;
    set_file(&mut root, file);
    Ok(root)
}

/// Takes out all but the last of keys that come twice, as the kubelet reads them. Each is told with both lines.
pub(crate) fn without_duplicates(root: &mut Node, name: &str) -> Vec<Problem> {
    let mut found = Vec::new();
    keep_last(root, name, "", &mut found);
    found
}

fn options() -> Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_reader_input_bytes: Some(crate::MAX_FILE_BYTES),
            max_documents: 1,
            max_depth: MAX_DEPTH,
            flow_nesting_limit: MAX_DEPTH,
            max_nodes: MAX_NODES,
            max_events: MAX_NODES * 3,
            max_aliases: MAX_ALIASES,
            max_anchors: MAX_ALIASES,
            max_merge_keys: MAX_ALIASES,
        },
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: MAX_NODES,
            max_replay_stack_depth: 8,
        },
        // Kept and found below: the parser's own error does not tell where the first one stands.
        duplicate_keys: DuplicateKeyPolicy::PassThrough,
        // As the API's YAML has it: 0644 is octal.
        legacy_octal_numbers: true,
        with_snippet: false,
    }
}

/// What the parser found, for the writer of the file.
fn explain(error: &serde_saphyr::Error) -> String {
    let text = error.to_string();
    match error.without_snippet() {
        serde_saphyr::Error::Budget { breach: BudgetBreach::Documents { .. }, .. } => {
            "it holds more than one document: keep one, without further --- lines".to_owned()
        }
        serde_saphyr::Error::Budget { .. } => {
            format!("it is longer, or nested deeper, than a configuration can be ({})", without_place(&text))
        }
        _ => without_place(&text).to_owned(),
    }
}

/// The parser ends many messages with the place, which a [`Problem`] has already.
fn without_place(message: &str) -> &str {
    let cut = message.find(" at line ").unwrap_or(message.len());
    message.get(..cut).unwrap_or(message)
}

fn set_file(node: &mut Node, file: usize) {
    node.place.file = file;
    match &mut node.value {
        Value::List(items) => items.iter_mut().for_each(|item| set_file(item, file)),
        Value::Map(entries) => {
            for entry in entries {
                entry.place.file = file;
                set_file(&mut entry.node, file);
            }
        }
        _ => {}
    }
}

fn keep_last(node: &mut Node, name: &str, path: &str, found: &mut Vec<Problem>) {
    match &mut node.value {
        Value::List(items) => {
            for (index, item) in items.iter_mut().enumerate() {
                keep_last(item, name, &format!("{path}[{index}]"), found);
            }
        }
        Value::Map(entries) => {
            let mut last = BTreeMap::new();
            for (index, entry) in entries.iter().enumerate() {
                if let Some((_, first)) = last.insert(entry.key.clone(), (index, entry.place.line)) {
                    found.push(Problem {
                        message: format!(
                            "is set twice, first in line {first}: the last one counts; remove one of the two"
                        ),
                        at: Some(entry.place.position(name)),
                        field: join(path, &entry.key),
                    });
                }
            }
            let mut index = 0;
            entries.retain(|entry| {
                index += 1;
                last.get(&entry.key).is_some_and(|(last, _)| *last + 1 == index)
            });
            for entry in entries {
                keep_last(&mut entry.node, name, &join(path, &entry.key), found);
            }
        }
        _ => {}
    }
}

/// `parent.key`, or `key` at the root.
pub(crate) fn join(parent: &str, key: &str) -> String {
    if parent.is_empty() { key.to_owned() } else { format!("{parent}.{key}") }
}

impl Place {
    pub fn position(self, file: &str) -> Position {
        Position { file: file.to_owned(), line: self.line, column: self.column }
    }

    fn of(at: serde_saphyr::Location) -> Self {
        Self { file: 0, line: at.line(), column: at.column() }
    }
}

impl Node {
    /// The entry at a dotted path; list indexes are not followed. A key may hold dots itself, as those of signals do.
    pub fn entry(&self, path: &str) -> Option<&Entry> {
        let (first, rest) = split(path);
        let Value::Map(entries) = &self.value else { return None };
        if let Some(entry) = entries.iter().find(|entry| entry.key == path) {
            return Some(entry);
        }
        let entry = entries.iter().find(|entry| entry.key == first)?;
        rest.map_or(Some(entry), |rest| entry.node.entry(rest))
    }

    /// As [`Node::entry`], to change it.
    pub fn entry_mut(&mut self, path: &str) -> Option<&mut Entry> {
        let (first, rest) = split(path);
        let Value::Map(entries) = &mut self.value else { return None };
        let entry = entries.iter_mut().find(|entry| entry.key == first)?;
        match rest {
            Some(rest) => entry.node.entry_mut(rest),
            None => Some(entry),
        }
    }

    /// Puts a value at a dotted path, in blocks that are made where there are none.
    pub fn set(&mut self, path: &str, node: Node) {
        let (first, rest) = split(path);
        if !matches!(self.value, Value::Map(_)) {
            self.value = Value::Map(Vec::new());
        }
        let Value::Map(entries) = &mut self.value else { return };
        let (place, block) = (node.place, Node { place: node.place, value: Value::Map(Vec::new()) });
        let index = entries.iter().position(|entry| entry.key == first).unwrap_or_else(|| {
            entries.push(Entry { key: first.to_owned(), place, node: block });
            entries.len() - 1
        });
        let Some(entry) = entries.get_mut(index) else { return };
        match rest {
            Some(rest) => entry.node.set(rest, node),
            None => *entry = Entry { key: first.to_owned(), place, node },
        }
    }

    /// Takes the entry with this key out of a map.
    pub fn remove(&mut self, key: &str) -> Option<Entry> {
        let Value::Map(entries) = &mut self.value else { return None };
        let index = entries.iter().position(|entry| entry.key == key)?;
        Some(entries.remove(index))
    }
}

fn split(path: &str) -> (&str, Option<&str>) {
    match path.split_once('.') {
        Some((first, rest)) => (first, Some(rest)),
        None => (path, None),
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let spanned = Spanned::<Value>::deserialize(deserializer)?;
        Ok(Self { place: Place::of(spanned.referenced), value: spanned.value })
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ValueVisitor)
    }
}

struct ValueVisitor;

impl<'de> de::Visitor<'de> for ValueVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_unit<E: de::Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E: de::Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Unsigned(value))
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Signed(value))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Value, E> {
        Ok(Value::Float(value))
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<Value, E> {
        Ok(Value::Text(value.to_owned()))
    }

    fn visit_string<E: de::Error>(self, value: String) -> Result<Value, E> {
        Ok(Value::Text(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element()? {
            items.push(item);
        }
        Ok(Value::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut entries = Vec::new();
        while let Some(key) = map.next_key::<Spanned<String>>()? {
            let node = map.next_value()?;
            entries.push(Entry { place: Place::of(key.referenced), key: key.value, node });
        }
        Ok(Value::Map(entries))
    }
}

#[cfg(test)]
mod tests;
