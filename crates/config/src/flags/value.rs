//! From the text of a flag to a value. Pure. What is given is never quoted where it may be a secret.

use crate::flags::Kind;
use crate::tree::{Entry, Node, Place, Value};

/// Reads a value; a flag that came several times adds to a list or map, and else the last one counts.
pub(super) fn read(kind: Kind, values: &[String], place: Place) -> Result<Value, String> {
    let last = values.last().map_or("", String::as_str);
    match kind {
        Kind::Switch => switch(last).map(Value::Bool).ok_or_else(|| bad(last, "true or false")),
        Kind::Number => number(last),
        Kind::Text | Kind::Time => Ok(Value::Text(last.to_owned())),
        Kind::Texts => {
            let text = |text: &str| Node { place, value: Value::Text(text.to_owned()) };
            Ok(Value::List(parts(values, ',').map(text).collect()))
        }
        Kind::Pairs => pairs(values, '=', place, |text| Ok(Value::Text(text.to_owned()))),
        Kind::Thresholds => pairs(values, '<', place, |text| Ok(Value::Text(text.to_owned()))),
        Kind::Switches => pairs(values, '=', place, |text| {
            switch(text).map(Value::Bool).ok_or_else(|| bad(text, "true or false"))
        }),
        Kind::Headers => headers(values, place),
        Kind::Taints => list(values, ',', place, taint),
        Kind::Reservations => list(values, ';', place, reservation),
        Kind::Levels => list(values, ',', place, level),
    }
}

/// As Go reads a truth value.
pub(super) fn switch(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

fn number(text: &str) -> Result<Value, String> {
    let unsigned = text.parse().map(Value::Unsigned);
    unsigned.or_else(|_| text.parse().map(Value::Signed)).map_err(|_| bad(text, "a whole number"))
}

fn bad(text: &str, wanted: &str) -> String {
    let shown: String = text.chars().take(80).collect();
    format!("is {shown:?}: write {wanted}")
}

fn parts(values: &[String], between: char) -> impl Iterator<Item = &str> {
    values.iter().flat_map(move |value| value.split(between)).map(str::trim).filter(|part| !part.is_empty())
}

fn text(place: Place, key: &str, value: &str) -> Entry {
    entry(place, key, Value::Text(value.to_owned()))
}

fn entry(place: Place, key: &str, value: Value) -> Entry {
    Entry { key: key.to_owned(), place, node: Node { place, value } }
}

/// A map; a key that comes twice has its last value.
fn pairs(
    values: &[String],
    between: char,
    place: Place,
    value: impl Fn(&str) -> Result<Value, String>,
) -> Result<Value, String> {
    let mut entries: Vec<Entry> = Vec::new();
    for part in parts(values, ',') {
        let (key, text) = part
            .split_once(between)
            .ok_or_else(|| bad(part, &format!("KEY{between}VALUE,KEY{between}VALUE")))?;
        let (key, value) = (key.trim(), value(text.trim())?);
        match entries.iter_mut().find(|entry| entry.key == key) {
            Some(entry) => entry.node.value = value,
            None => entries.push(entry(place, key, value)),
        }
    }
    Ok(Value::Map(entries))
}

fn headers(values: &[String], place: Place) -> Result<Value, String> {
    let mut entries: Vec<Entry> = Vec::new();
    for part in parts(values, ',') {
        let (name, value) =
            part.split_once(':').ok_or_else(|| "is no header: write NAME:VALUE,NAME:VALUE".to_owned())?;
        let (name, value) = (name.trim(), Node { place, value: Value::Text(value.trim().to_owned()) });
        match entries.iter_mut().find(|entry| entry.key == name).map(|entry| &mut entry.node.value) {
            Some(Value::List(list)) => list.push(value),
            _ => entries.push(entry(place, name, Value::List(vec![value]))),
        }
    }
    Ok(Value::Map(entries))
}

fn list(
    values: &[String],
    between: char,
    place: Place,
    item: impl Fn(&str, Place) -> Option<Vec<Entry>>,
) -> Result<Value, String> {
    let item = |part| {
        let entries =
            item(part, place).ok_or_else(|| bad(part, "it as the kubelet's documentation shows"))?;
        Ok(Node { place, value: Value::Map(entries) })
    };
    parts(values, between).map(item).collect::<Result<_, String>>().map(Value::List)
}

/// `key=value:Effect` or `key:Effect`.
fn taint(part: &str, place: Place) -> Option<Vec<Entry>> {
    let (key, effect) = part.rsplit_once(':')?;
    let (key, value) = key.split_once('=').unwrap_or((key, ""));
    let mut entries = vec![text(place, "key", key), text(place, "effect", effect)];
    if !value.is_empty() {
        entries.push(text(place, "value", value));
    }
    Some(entries)
}

/// `0:memory=1Gi,hugepages-2Mi=2Mi`.
fn reservation(part: &str, place: Place) -> Option<Vec<Entry>> {
    let (node, limits) = part.split_once(':')?;
    let node = node.trim().parse().ok()?;
    let limits = pairs(&[limits.to_owned()], '=', place, |text| Ok(Value::Text(text.to_owned()))).ok()?;
    Some(vec![entry(place, "numaNode", Value::Unsigned(node)), entry(place, "limits", limits)])
}

/// `pattern=4`.
fn level(part: &str, place: Place) -> Option<Vec<Entry>> {
    let (pattern, level) = part.split_once('=')?;
    let level = Value::Unsigned(level.trim().parse().ok()?);
    Some(vec![text(place, "filePattern", pattern.trim()), entry(place, "verbosity", level)])
}
