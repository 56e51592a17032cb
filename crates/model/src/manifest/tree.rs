//! YAML text as a tree whose every node knows its place. Bounded before it is built.

use std::fmt;

use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::Spanned;

use super::Refusal;

/// Deepest nesting. A pod's own deepest field is about 12 levels down.
const MAX_DEPTH: usize = 32;
/// Most `&anchors`, and most `*aliases`.
const MAX_ALIASES: usize = 100;

/// How big a text may be.
pub(super) struct Bounds {
    /// Of the text itself.
    bytes: usize,
    /// Nodes, aliases counted as often as they are used.
    nodes: usize,
    /// Bytes of all texts in it, aliases counted as often as they are used.
    text: usize,
}

impl Bounds {
    /// One manifest.
    pub(super) const ONE: Self = Self { bytes: super::MAX_BYTES, nodes: 20_000, text: 4 << 20 };
    /// A list of them.
    pub(super) const LIST: Self = Self { bytes: super::MAX_LIST_BYTES, nodes: 200_000, text: 16 << 20 };
}

/// A node and where it starts.
#[derive(Clone, PartialEq)]
pub(super) struct Node {
    pub(super) line: u32,
    pub(super) column: u32,
    pub(super) value: Value,
}

/// What a node is.
#[derive(Clone, PartialEq)]
pub(super) enum Value {
    Null,
    Bool(bool),
    Int(i64),
    /// Above `i64`.
    Large(u64),
    Float(f64),
    Str(String),
    Seq(Vec<Node>),
    Map(Vec<(String, Node)>),
}

impl Node {
    /// The member of a mapping with this key.
    pub(super) fn get(&self, key: &str) -> Option<&Node> {
        let Value::Map(entries) = &self.value else { return None };
        entries.iter().find(|(name, _)| name == key).map(|(_, node)| node)
    }
}

impl Value {
    /// What it is, for people, without what it holds.
    pub(super) fn describe(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "a boolean",
            Self::Int(_) | Self::Large(_) => "a number",
            Self::Float(_) => "a number with a fraction",
            Self::Str(_) => "a text",
            Self::Seq(_) => "a list",
            Self::Map(_) => "an object",
        }
    }
}

/// All documents of `text` that hold something.
pub(super) fn parse(text: &str, bounds: &Bounds) -> Result<Vec<Node>, Refusal> {
    let Bounds { bytes, nodes, text: texts } = *bounds;
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_reader_input_bytes: Some(bytes),
            max_events: 4 * nodes,
            max_nodes: nodes,
            max_depth: MAX_DEPTH,
            flow_nesting_limit: MAX_DEPTH,
            max_documents: 64,
            max_aliases: MAX_ALIASES,
            max_anchors: MAX_ALIASES,
            max_recorded_anchor_events: nodes,
            max_recorded_anchor_bytes: texts,
            max_total_scalar_bytes: texts,
            max_merge_keys: MAX_ALIASES,
        },
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: nodes,
            max_replay_stack_depth: 8,
        },
        // As Go's parser reads it: `defaultMode: 0644` is 420.
        legacy_octal_numbers: true,
        with_snippet: false,
    };
    serde_saphyr::from_str_multiple_with_options(text, options).map_err(|error| refusal(&error, nodes))
}

fn refusal(error: &serde_saphyr::Error, nodes: usize) -> Refusal {
    use serde_saphyr::Error as E;
    let place = error.location().map(|place| (number(place.line()), number(place.column())));
    // What goes wrong inside an alias is wrapped once more.
    let cause = match error.without_snippet() {
        E::AliasError { error, .. } => error.without_snippet(),
        cause => cause,
    };
    let reason = match cause {
        E::DuplicateMappingKey { key: Some(key), .. } => format!("the key `{}` comes twice", shorten(key)),
        E::DuplicateMappingKey { key: None, .. } => "a key comes twice".to_owned(),
        E::Budget { .. } | E::AliasReplayLimitExceeded { .. } | E::AliasReplayStackDepthExceeded { .. } => {
            format!(
                "the manifest is too big or nested too deep: at most {nodes} values, {MAX_DEPTH} levels and \
             {MAX_ALIASES} aliases"
            )
        }
        other => {
            // The first line alone: further ones show the text around it.
            let text = other
                .render_with_options(serde_saphyr::RenderOptions::new(&serde_saphyr::UserMessageFormatter));
            let line = text.lines().next().unwrap_or_default();
            let said = place.map(|(line, column)| format!(" at line {line}, column {column}"));
            let line = said.and_then(|said| line.strip_suffix(&said)).unwrap_or(line);
            format!("not valid YAML: {}", line.chars().take(200).collect::<String>())
        }
    };
    Refusal { line: place.map(|p| p.0), column: place.map(|p| p.1), reason }
}

fn shorten(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(63).collect()
}

fn number(place: u64) -> u32 {
    u32::try_from(place).unwrap_or(u32::MAX)
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let spanned = Spanned::<Value>::deserialize(deserializer)?;
        let place = spanned.referenced;
        Ok(Self { line: number(place.line()), column: number(place.column()), value: spanned.value })
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ValueVisitor)
    }
}

struct ValueVisitor;

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E: de::Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Int(value))
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Value, E> {
        Ok(i64::try_from(value).map_or(Value::Large(value), Value::Int))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Value, E> {
        Ok(Value::Float(value))
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<Value, E> {
        Ok(Value::Str(value.to_owned()))
    }

    fn visit_string<E: de::Error>(self, value: String) -> Result<Value, E> {
        Ok(Value::Str(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Value::Seq(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Vec::new();
        while let Some(entry) = entries.next_entry()? {
            map.push(entry);
        }
        Ok(Value::Map(map))
    }
}
