//! How a drop-in changes what came before it.

use crate::tree::{Node, Value};

/// Lays `over` on `base`: maps are joined key by key, everything else replaces. A null replaces too, which sets the
/// field back to its default. Places are those of the text that wins.
pub(crate) fn merge(base: &mut Node, over: Node) {
    match (&mut base.value, over.value) {
        (Value::Map(under), Value::Map(entries)) => {
            for entry in entries {
                match under.iter_mut().find(|old| old.key == entry.key) {
                    Some(old) => {
                        old.place = entry.place;
                        merge(&mut old.node, entry.node);
                    }
                    None => under.push(entry),
                }
            }
        }
        (_, value) => *base = Node { place: over.place, value },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::read;

    fn merged(base: &str, over: &str) -> Node {
        let mut base = read(base.as_bytes(), 0, "base").unwrap();
        merge(&mut base, read(over.as_bytes(), 1, "over").unwrap());
        base
    }

    /// The values without their places.
    fn plain(node: &Node) -> serde_json::Value {
        match &node.value {
            Value::Null => serde_json::Value::Null,
            Value::Bool(value) => (*value).into(),
            Value::Unsigned(value) => (*value).into(),
            Value::Signed(value) => (*value).into(),
            Value::Float(value) => (*value).into(),
            Value::Text(value) => value.clone().into(),
            Value::List(items) => items.iter().map(plain).collect(),
            Value::Map(entries) => {
                entries.iter().map(|entry| (entry.key.clone(), plain(&entry.node))).collect()
            }
        }
    }

    #[test]
    fn scalars_and_lists_replace_and_maps_join() {
        let table = [
            ("a: 1", "a: 2", r#"{"a": 2}"#),
            ("a: 1", "b: 2", r#"{"a": 1, "b": 2}"#),
            ("a: [1, 2]", "a: [3]", r#"{"a": [3]}"#),
            ("a: {x: 1, y: 1}", "a: {y: 2, z: 2}", r#"{"a": {"x": 1, "y": 2, "z": 2}}"#),
            ("a: {x: {y: 1}}", "a: {x: {z: 2}}", r#"{"a": {"x": {"y": 1, "z": 2}}}"#),
            ("a: {x: 1}", "a: {}", r#"{"a": {"x": 1}}"#),
            ("a: {x: 1}", "a: null", r#"{"a": null}"#),
            ("a: null", "a: {x: 1}", r#"{"a": {"x": 1}}"#),
            ("a: [{x: 1}]", "a: [{y: 1}]", r#"{"a": [{"y": 1}]}"#),
        ];
        for (base, over, expected) in table {
            let expected: serde_json::Value = serde_json::from_str(expected).unwrap();
            assert_eq!(plain(&merged(base, over)), expected, "{base} + {over}");
        }
    }

    #[test]
    fn the_place_is_that_of_the_text_that_wins() {
        let node = merged("a: 1\nm:\n  x: 1\n", "# one\n# two\na: 2\nm: {y: 3}\n");
        let place = |path| node.entry(path).map(|entry| (entry.place.file, entry.place.line));
        assert_eq!(place("a"), Some((1, 3)));
        assert_eq!(place("m.x"), Some((0, 3)));
        assert_eq!(place("m.y"), Some((1, 4)));
        assert_eq!(place("m.z"), None);
    }
}
