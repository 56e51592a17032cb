//! From the tree to typed fields, with the place and the path of what does not fit.
//!
//! Owns unknown fields and wrong types. Values of strings are never quoted in its messages: a header may hold a
//! secret.

use std::cell::RefCell;
use std::fmt;

use serde::de::{
    self, DeserializeOwned, DeserializeSeed, Deserializer, IntoDeserializer, MapAccess, SeqAccess,
    Unexpected, Visitor,
};

use crate::error::Problem;
use crate::tree::{Entry, Node, Place, Value, join};

/// Most problems of one kind that are remembered: nobody mends more at a time.
const MAX_TOLD: usize = 500;

/// What was read of a tree.
#[derive(Debug)]
pub(crate) struct Read<T> {
    /// The fields, or one wrong type per top-level field.
    pub value: Result<T, Vec<Problem>>,
    /// Fields that are unknown, which are left out.
    pub unknown: Vec<Problem>,
}

/// Reads `T` from the tree of one or more files. A null is as if the field were not there.
pub(crate) fn from_tree<T: DeserializeOwned>(root: &Node, files: &[&str]) -> Read<T> {
    let mut root = root.clone();
    let context = Context { files, unknown: RefCell::default() };
    let mut problems = Vec::new();
    let value = loop {
        match T::deserialize(NodeDeserializer { node: &root, path: String::new(), context: &context }) {
            Ok(value) if problems.is_empty() => break Ok(value),
            Ok(_) => break Err(problems),
            Err(error) => {
                let top = error.path.split(['.', '[']).next().unwrap_or_default().to_owned();
                problems.push(context.problem(error));
                // Without the field that failed, the rest can still be checked.
                if root.remove(&top).is_none() || problems.len() == MAX_TOLD {
                    break Err(problems);
                }
            }
        }
    };
    Read { value, unknown: context.unknown.into_inner() }
}

struct Context<'a> {
    files: &'a [&'a str],
    unknown: RefCell<Vec<Problem>>,
}

impl Context<'_> {
    fn problem(&self, error: Error) -> Problem {
        let file = |place: Place| place.position(self.files.get(place.file).copied().unwrap_or_default());
        Problem { field: error.path, at: error.place.map(file), message: error.message }
    }

    fn add_unknown(&self, error: Error) {
        let problem = self.problem(error);
        let mut unknown = self.unknown.borrow_mut();
        // The tree is read again after each wrong type.
        if unknown.len() < MAX_TOLD && !unknown.contains(&problem) {
            unknown.push(problem);
        }
    }
}

/// A mismatch; gets its path and place from the innermost node that it passes.
#[derive(Debug)]
struct Error {
    message: String,
    path: String,
    place: Option<Place>,
}

impl Error {
    fn at(mut self, path: &str, place: Place) -> Self {
        if self.place.is_none() {
            self.place = Some(place);
            path.clone_into(&mut self.path);
        }
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

impl de::Error for Error {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self { message: message.to_string(), path: String::new(), place: None }
    }

    fn invalid_type(found: Unexpected<'_>, expected: &dyn de::Expected) -> Self {
        let expected = wanted(&expected.to_string());
        let hint = match (&found, expected.as_str()) {
            (Unexpected::Str(_), want) if want.starts_with("a whole number") || want == BOOLEAN => {
                "; write it without quotes and units"
            }
            (
                Unexpected::Bool(_) | Unexpected::Unsigned(_) | Unexpected::Signed(_) | Unexpected::Float(_),
                "a string",
            ) => "; put it in quotes",
            _ => "",
        };
        Self::custom(format!("expected {expected}, found {}{hint}", kind(&found)))
    }

    fn invalid_value(found: Unexpected<'_>, expected: &dyn de::Expected) -> Self {
        Self::custom(format!("expected {}, found {}", wanted(&expected.to_string()), kind(&found)))
    }

    fn missing_field(field: &'static str) -> Self {
        Self::custom(format!("{field} is missing: add it"))
    }
}

const BOOLEAN: &str = "true or false";

/// Rust's words for a type in words for the writer of the file.
fn wanted(expected: &str) -> String {
    match expected {
        "a boolean" => BOOLEAN.to_owned(),
        "u16" => "a whole number from 0 to 65535".to_owned(),
        "u32" => "a whole number from 0 to 4294967295".to_owned(),
        "i32" => "a whole number from -2147483648 to 2147483647".to_owned(),
        "i64" => "a whole number".to_owned(),
        "f64" => "a number".to_owned(),
        "a sequence" => "a list".to_owned(),
        "a map" => "a map of keys and values".to_owned(),
        other if other.starts_with("struct ") => "a block of fields".to_owned(),
        other => other.to_owned(),
    }
}

fn kind(found: &Unexpected<'_>) -> String {
    match found {
        Unexpected::Str(_) => "a string".to_owned(),
        Unexpected::Seq => "a list".to_owned(),
        Unexpected::Map => "a block of fields".to_owned(),
        Unexpected::Unit => "null".to_owned(),
        Unexpected::Bool(value) => value.to_string(),
        Unexpected::Unsigned(value) => value.to_string(),
        Unexpected::Signed(value) => value.to_string(),
        Unexpected::Float(value) => value.to_string(),
        other => other.to_string(),
    }
}

struct NodeDeserializer<'a> {
    node: &'a Node,
    path: String,
    context: &'a Context<'a>,
}

impl<'a> NodeDeserializer<'a> {
    fn visit<'de, V: Visitor<'de>>(
        self,
        visitor: V,
        fields: Option<&'static [&'static str]>,
    ) -> Result<V::Value, Error> {
        let Self { node, path, context } = self;
        let result = match &node.value {
            Value::Null => visitor.visit_unit(),
            Value::Bool(value) => visitor.visit_bool(*value),
            Value::Unsigned(value) => visitor.visit_u64(*value),
            Value::Signed(value) => visitor.visit_i64(*value),
            Value::Float(value) => visitor.visit_f64(*value),
            Value::Text(value) => visitor.visit_str(value),
            Value::List(items) => {
                visitor.visit_seq(Items { items: items.iter(), index: 0, path: &path, context })
            }
            Value::Map(entries) => visitor.visit_map(Entries {
                entries: entries.iter(),
                value: None,
                fields,
                path: &path,
                context,
            }),
        };
        result.map_err(|error| error.at(&path, node.place))
    }
}

impl<'de> Deserializer<'de> for NodeDeserializer<'_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.visit(visitor, None)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        if matches!(self.node.value, Value::List(_)) {
            // The visitor would take a list for the fields in order.
            return Err(<Error as de::Error>::invalid_type(Unexpected::Seq, &"a block of fields"))
                .map_err(|error| error.at(&self.path, self.node.place));
        }
        self.visit(visitor, Some(fields))
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if self.node.value == Value::Null { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_unit()
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map enum identifier
    }
}

struct Items<'a> {
    items: std::slice::Iter<'a, Node>,
    index: usize,
    path: &'a str,
    context: &'a Context<'a>,
}

impl<'de> SeqAccess<'de> for Items<'_> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Error> {
        let Some(node) = self.items.next() else { return Ok(None) };
        let path = format!("{}[{}]", self.path, self.index);
        self.index += 1;
        seed.deserialize(NodeDeserializer { node, path: path.clone(), context: self.context })
            .map(Some)
            .map_err(|error| error.at(&path, node.place))
    }
}

struct Entries<'a> {
    entries: std::slice::Iter<'a, Entry>,
    value: Option<&'a Entry>,
    /// What a struct knows; None for a map with free keys.
    fields: Option<&'static [&'static str]>,
    path: &'a str,
    context: &'a Context<'a>,
}

impl Entries<'_> {
    fn unknown(&self, entry: &Entry, fields: &[&str]) {
        let header: &[&str] = if self.path.is_empty() { &["apiVersion", "kind"] } else { &[] };
        let message = match fields.iter().chain(header).find(|field| field.eq_ignore_ascii_case(&entry.key)) {
            Some(field) => format!("is unknown and ignored: did you mean {field}? Names are case-sensitive"),
            None => {
                "is unknown and ignored: remove it, or look for its name in the KubeletConfiguration v1beta1 reference"
                    .to_owned()
            }
        };
        self.context.add_unknown(Error {
            message,
            path: join(self.path, &entry.key),
            place: Some(entry.place),
        });
    }
}

impl<'de> MapAccess<'de> for Entries<'_> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Error> {
        while let Some(entry) = self.entries.next() {
            if let Some(fields) = self.fields
                && !fields.contains(&entry.key.as_str())
            {
                self.unknown(entry, fields);
                continue;
            }
            if entry.node.value == Value::Null {
                continue;
            }
            self.value = Some(entry);
            return seed.deserialize(entry.key.as_str().into_deserializer()).map(Some);
        }
        Ok(None)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Error> {
        let Some(entry) = self.value.take() else {
            return Err(<Error as de::Error>::custom("a value was asked for before its key"));
        };
        let path = join(self.path, &entry.key);
        // A field may be refused after it was read, by the code that turns a text into its type.
        seed.deserialize(NodeDeserializer { node: &entry.node, path: path.clone(), context: self.context })
            .map_err(|error| error.at(&path, entry.node.place))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;
    use std::collections::BTreeMap;

    #[derive(Debug, Default, PartialEq, Deserialize)]
    #[serde(default, rename_all = "camelCase")]
    struct Sample {
        max_pods: i32,
        port: u16,
        name: String,
        on: bool,
        factor: f64,
        list: Vec<String>,
        map: BTreeMap<String, String>,
        inner: Inner,
        maybe: Option<Inner>,
        items: Vec<Inner>,
    }

    #[derive(Debug, Default, PartialEq, Deserialize)]
    #[serde(default, rename_all = "camelCase")]
    struct Inner {
        deep_one: i64,
    }

    fn read(text: &str) -> Read<Sample> {
        let root = crate::tree::read(text.as_bytes(), 0, "f").unwrap();
        from_tree(&root, &["f"])
    }

    fn sample(text: &str) -> Result<Sample, Vec<String>> {
        read(text).value.map_err(|problems| problems.iter().map(ToString::to_string).collect())
    }

    fn unknown(text: &str) -> Vec<String> {
        read(text).unknown.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_good_text_is_read() {
        let read = sample(
            "maxPods: 5\nport: 1\nname: x\non: yes\nfactor: 1\nlist: [a]\nmap: {k: v}\ninner: {deepOne: -3}\n\
             maybe: {}\nitems: [{deepOne: 7}]\n",
        )
        .unwrap();
        assert_eq!((read.max_pods, read.port, read.on, read.factor), (5, 1, true, 1.0));
        assert_eq!((read.inner.deep_one, read.items[0].deep_one), (-3, 7));
        assert_eq!(read.maybe, Some(Inner::default()));
        assert_eq!(
            sample("maxPods: ~\ninner:\nmap: {k: ~}\n"),
            Ok(Sample::default()),
            "null is as if absent"
        );
    }

    #[test]
    fn what_does_not_fit_is_told_with_place_and_path() {
        let table = [
            (
                "maxPods: many",
                "f:1:10: field maxPods: expected a whole number from -2147483648 to 2147483647, found a string; write it without quotes and units",
            ),
            ("\n\nport: 70000", "f:3:7: field port: expected a whole number from 0 to 65535, found 70000"),
            ("port: 1.5", "f:1:7: field port: expected a whole number from 0 to 65535, found 1.5"),
            ("name: true", "f:1:7: field name: expected a string, found true; put it in quotes"),
            ("name: {a: 1}", "f:1:7: field name: expected a string, found a block of fields"),
            (
                "on: 'no'",
                "f:1:5: field on: expected true or false, found a string; write it without quotes and units",
            ),
            ("list: a", "f:1:7: field list: expected a list, found a string"),
            ("list: [a, 1]", "f:1:11: field list[1]: expected a string, found 1; put it in quotes"),
            ("map: {k: 1}", "f:1:10: field map.k: expected a string, found 1; put it in quotes"),
            (
                "inner: {deepOne: x}",
                "f:1:18: field inner.deepOne: expected a whole number, found a string; write it without quotes and units",
            ),
            ("inner: []", "f:1:8: field inner: expected a block of fields, found a list"),
            (
                "items: [{}, {deepOne: []}]",
                "f:1:23: field items[1].deepOne: expected a whole number, found a list",
            ),
        ];
        for (text, expected) in table {
            assert_eq!(sample(text), Err(vec![expected.to_owned()]), "{text}");
        }
    }

    #[test]
    fn what_is_unknown_is_named_and_left_out() {
        let table = [
            (
                "MaxPods: 5",
                "f:1:1: field MaxPods: is unknown and ignored: did you mean maxPods? Names are case-sensitive",
            ),
            (
                "inner: {deepone: 5}",
                "f:1:9: field inner.deepone: is unknown and ignored: did you mean deepOne? Names are case-sensitive",
            ),
            (
                "apiversion: x",
                "f:1:1: field apiversion: is unknown and ignored: did you mean apiVersion? Names are case-sensitive",
            ),
        ];
        for (text, expected) in table {
            assert_eq!(sample(text), Ok(Sample::default()), "{text}");
            assert_eq!(unknown(text), [expected], "{text}");
        }
        let many: String = (0..2000).map(|number| format!("f{number}: 1\n")).collect();
        assert_eq!(unknown(&many).len(), MAX_TOLD);
    }

    #[test]
    fn everything_wrong_is_told_at_once_and_once() {
        let text = "foo: 1\nmaxPods: x\nbar: ~\nport: -1\nname: fine\ninner: {baz: 1, deepOne: []}\n";
        let fields = |found: Vec<String>| -> Vec<String> {
            found.iter().map(|text| text.split(": ").nth(1).unwrap().replace("field ", "")).collect()
        };
        assert_eq!(fields(sample(text).unwrap_err()), ["maxPods", "port", "inner.deepOne"]);
        assert_eq!(fields(unknown(text)), ["foo", "bar", "inner.baz"]);
    }

    #[test]
    fn the_text_of_a_string_is_not_repeated() {
        let found = sample("map: [hunter2]\nmaxPods: hunter2\ninner: hunter2\n").unwrap_err();
        assert_eq!(found.len(), 3);
        assert!(!found.concat().contains("hunter2"), "{found:?}");
    }
}
