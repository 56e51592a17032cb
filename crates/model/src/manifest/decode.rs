//! From the tree to a pod: types are exact, what the pod does not know is noted, and every error knows its place.
//!
//! A number where a text belongs is an error, as in the API; only quantities take both.

use std::cell::RefCell;
use std::fmt;

use k8s_openapi::api::core::v1::Pod;
use serde::de::{self, Deserialize, DeserializeSeed, Deserializer, Expected, Unexpected, Visitor};

use super::path::At;
use super::tree::{Node, Value};
use super::{MAX_WARNINGS, Refusal, Warning};

/// Builds the pod that `document` describes.
pub(super) fn pod(document: &Node) -> Result<(Pod, Vec<Warning>), Refusal> {
    let warnings = RefCell::new(Vec::new());
    let pod =
        Pod::deserialize(Reader { node: document, at: &At::ROOT, warnings: &warnings }).map_err(|error| {
            let (line, column) = error.place.unzip();
            Refusal { line, column, reason: error.reason }
        })?;
    Ok((pod, warnings.into_inner()))
}

/// A wrong value. The place is filled in by the first reader that sees the error on its way up.
#[derive(Debug)]
struct DecodeError {
    place: Option<(u32, u32)>,
    reason: String,
}

impl std::error::Error for DecodeError {}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl de::Error for DecodeError {
    fn custom<T: fmt::Display>(text: T) -> Self {
        Self { place: None, reason: text.to_string() }
    }

    // serde's own texts show the value, which may be a secret.
    fn invalid_type(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        let (expected, found) = (plain(expected), describe(found));
        // `on` and `0800` are no texts in YAML: say so to whoever meant them as such.
        let quotable = matches!(found, "a boolean" | "a number" | "a number with a fraction");
        let hint = if quotable && expected == "a text" { ": put it into quotes" } else { "" };
        Self::custom(format_args!("expected {expected}, found {found}{hint}"))
    }

    fn invalid_value(_: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::custom(format_args!("expected {}, found another value", plain(expected)))
    }
}

/// What a visitor wants, in words for people who do not know Rust.
fn plain(expected: &dyn Expected) -> String {
    let text = expected.to_string();
    match text.as_str() {
        "i32" | "i64" | "u16" | "u32" => "a whole number".into(),
        "a boolean" => text,
        "a string" => "a text".into(),
        "a map" => "an object".into(),
        "a sequence" => "a list".into(),
        "IntOrString" => "a number or a text".into(),
        _ => format!("an object ({text})"),
    }
}

fn describe(found: Unexpected<'_>) -> &'static str {
    match found {
        Unexpected::Bool(_) => "a boolean",
        Unexpected::Unsigned(_) | Unexpected::Signed(_) => "a number",
        Unexpected::Float(_) => "a number with a fraction",
        Unexpected::Str(_) | Unexpected::Char(_) => "a text",
        Unexpected::Unit | Unexpected::Option => "null",
        Unexpected::Seq => "a list",
        Unexpected::Map => "an object",
        _ => "something else",
    }
}

#[derive(Clone, Copy)]
struct Reader<'a> {
    node: &'a Node,
    at: &'a At<'a>,
    warnings: &'a RefCell<Vec<Warning>>,
}

impl Reader<'_> {
    fn fault(&self, reason: &str) -> DecodeError {
        self.place(de::Error::custom(reason))
    }

    fn place(&self, error: DecodeError) -> DecodeError {
        match error.place {
            Some(_) => error,
            None => DecodeError {
                place: Some((self.node.line, self.node.column)),
                reason: self.at.fault(error.reason).to_string(),
            },
        }
    }

    fn text_of_number(&self) -> Option<String> {
        match self.node.value {
            Value::Int(number) => Some(number.to_string()),
            Value::Large(number) => Some(number.to_string()),
            Value::Float(number) => Some(number.to_string()),
            _ => None,
        }
    }
}

impl<'de> Deserializer<'de> for Reader<'_> {
    type Error = DecodeError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        match &self.node.value {
            Value::Null => visitor.visit_unit(),
            Value::Bool(value) => visitor.visit_bool(*value),
            Value::Int(value) => visitor.visit_i64(*value),
            Value::Large(value) => visitor.visit_u64(*value),
            Value::Float(value) => visitor.visit_f64(*value),
            Value::Str(value) => visitor.visit_str(value),
            Value::Seq(list) => visitor.visit_seq(Items { list, next: 0, reader: self }),
            Value::Map(entries) => visitor.visit_map(Entries { entries, next: 0, reader: self }),
        }
        .map_err(|error| self.place(error))
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        match self.node.value {
            Value::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    // Go's decoder leaves a text that is null empty.
    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        match self.node.value {
            Value::Null => visitor.visit_str(""),
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        self.deserialize_string(visitor)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        let number = self.text_of_number().filter(|_| name == "Quantity");
        if name == "Quantity" && !matches!(self.node.value, Value::Str(_) | Value::Null) && number.is_none() {
            let found = self.node.value.describe();
            return Err(self.fault(&format!("expected a quantity such as 100m or 64Mi, found {found}")));
        }
        match number {
            Some(text) => visitor.visit_newtype_struct(de::value::StringDeserializer::new(text)),
            None => visitor.visit_newtype_struct(self),
        }
        .map_err(|error: DecodeError| self.place(error))
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        let mut warnings = self.warnings.borrow_mut();
        if warnings.len() < MAX_WARNINGS {
            let text = self.at.fault("this field is unknown and ignored").to_string();
            warnings.push(Warning { line: self.node.line, column: self.node.column, text });
        }
        visitor.visit_unit()
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char bytes byte_buf unit unit_struct seq tuple
        tuple_struct map struct enum identifier
    }
}

struct Items<'a> {
    list: &'a [Node],
    next: usize,
    reader: Reader<'a>,
}

impl<'de> de::SeqAccess<'de> for Items<'_> {
    type Error = DecodeError;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, DecodeError> {
        let Some(node) = self.list.get(self.next) else { return Ok(None) };
        let at = self.reader.at.index(self.next);
        self.next += 1;
        seed.deserialize(Reader { node, at: &at, warnings: self.reader.warnings }).map(Some)
    }
}

struct Entries<'a> {
    entries: &'a [(String, Node)],
    next: usize,
    reader: Reader<'a>,
}

impl<'de> de::MapAccess<'de> for Entries<'_> {
    type Error = DecodeError;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, DecodeError> {
        let Some((key, _)) = self.entries.get(self.next) else { return Ok(None) };
        seed.deserialize(de::value::StrDeserializer::new(key)).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, DecodeError> {
        let Some((key, node)) = self.entries.get(self.next) else {
            return Err(self.reader.fault("a value is missing"));
        };
        self.next += 1;
        let at = self.reader.at.field(key);
        seed.deserialize(Reader { node, at: &at, warnings: self.reader.warnings })
    }
}
