//! A query string, decoded and written again: what is judged is what the API server gets. Pure and total.

use std::collections::BTreeMap;

use crate::limits;

/// Parameters that a request may have. Whatever else there is in the API is of no use to a process of the node, and what is
/// not listed cannot be read in two ways.
const KNOWN: [&str; 18] = [
    "allowWatchBookmarks",
    "continue",
    "dryRun",
    "fieldManager",
    "fieldSelector",
    "fieldValidation",
    "follow",
    "force",
    "gracePeriodSeconds",
    "labelSelector",
    "limit",
    "propagationPolicy",
    "resourceVersion",
    "resourceVersionMatch",
    "sendInitialEvents",
    "timeout",
    "timeoutSeconds",
    "watch",
];

/// The parameters, each at most once, in the order in which they came.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query(Vec<(String, String)>);

impl Query {
    /// Decodes `text`, what stands behind the question mark.
    ///
    /// # Errors
    /// With what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.len() > limits::QUERY {
            return Err(format!("its query is longer than {} bytes", limits::QUERY));
        }
        let mut pairs: Vec<(String, String)> = Vec::new();
        for piece in text.split('&').filter(|piece| !piece.is_empty()) {
            let (key, value) = piece.split_once('=').unwrap_or((piece, ""));
            let key = decode(key).filter(|key| KNOWN.contains(&key.as_str()));
            let key = key.ok_or("its query has a parameter that is none of the API's")?;
            let value = decode(value).ok_or_else(|| format!("its parameter {key} is not encoded text"))?;
            if pairs.iter().any(|(known, _)| *known == key) {
                return Err(format!("its parameter {key} comes twice"));
            }
            if pairs.len() >= limits::PARAMETERS {
                return Err("its query has too many parameters".to_owned());
            }
            pairs.push((key, value));
        }
        Ok(Self(pairs))
    }

    /// The value of a parameter.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == key).map(|(_, value)| value.as_str())
    }

    /// A switch; not there, it is off.
    ///
    /// # Errors
    /// When its value is not one of the four that everybody reads alike.
    pub fn switch(&self, key: &str) -> Result<bool, String> {
        match self.get(key) {
            Some("true" | "1") => Ok(true),
            Some("false" | "0") | None => Ok(false),
            Some(_) => Err(format!("its parameter {key} is neither true nor false")),
        }
    }

    /// What the field selector demands to be equal.
    ///
    /// # Errors
    /// When it cannot be read, or demands two values of one field.
    pub fn fields(&self) -> Result<BTreeMap<String, String>, String> {
        let text = self.get("fieldSelector").unwrap_or_default();
        let broken = || "its fieldSelector is not FIELD=VALUE,FIELD=VALUE".to_owned();
        // Names and node names need no escapes; without them there is one way to read it.
        if text.contains('\\') {
            return Err(broken());
        }
        let mut fields = BTreeMap::new();
        for term in text.split(',').filter(|term| !term.is_empty()) {
            if term.contains("!=") {
                // It only narrows what is asked for.
                continue;
            }
            let (field, value) = term.split_once('=').ok_or_else(broken)?;
            let value = value.strip_prefix('=').unwrap_or(value);
            if value.contains('=') {
                return Err(broken());
            }
            let before = fields.insert(field.to_owned(), value.to_owned());
            if before.is_some_and(|before| before != value) {
                return Err(format!("its fieldSelector wants two values of {field}"));
            }
        }
        Ok(fields)
    }

    /// The query again, in the one way to write it; empty: there is none.
    pub fn render(&self) -> String {
        let pairs: Vec<_> =
            self.0.iter().map(|(key, value)| format!("{}={}", encode(key), encode(value))).collect();
        pairs.join("&")
    }
}

/// `None`: not encoded text, or it holds control characters.
fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => hex(rest.next()?)? << 4 | hex(rest.next()?)?,
            b'+' => b' ',
            b';' | b'#' => return None,
            byte => byte,
        });
    }
    String::from_utf8(bytes).ok().filter(|text| !text.chars().any(char::is_control))
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok())
}

fn encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn parameters_are_decoded_and_written_again() {
        let query = Query::parse("watch=true&&fieldSelector=spec.nodeName%3Dnode-a&limit").unwrap();
        assert_eq!(query.get("fieldSelector"), Some("spec.nodeName=node-a"));
        assert_eq!(query.render(), "watch=true&fieldSelector=spec.nodeName%3Dnode-a&limit=");
        assert_eq!(Query::parse("%77atch=1").unwrap().switch("watch"), Ok(true));
        assert_eq!(Query::parse("labelSelector=a+b").unwrap().get("labelSelector"), Some("a b"));
        assert_eq!(Query::parse("").unwrap().render(), "");
    }

    #[test]
    fn what_could_be_read_in_two_ways_is_refused() {
        for text in [
            "watch=1&watch=0",
            "watch=1&%77atch=0",
            "Watch=1",
            "watch=1;limit=1",
            "labelSelector=a;b",
            "limit=%zz",
            "limit=%1",
            "limit=%ff",
            "limit=%00",
            "limit=%0a",
            "command=sh",
            "=1",
        ] {
            assert!(Query::parse(text).is_err(), "{text}");
        }
        assert!(Query::parse(&format!("continue={}", "x".repeat(limits::QUERY))).is_err());
        for value in ["", "yes", "TRUE", "t", "2"] {
            assert!(Query::parse(&format!("watch={value}")).unwrap().switch("watch").is_err(), "{value}");
        }
    }

    #[test]
    fn field_selectors() {
        let fields = |text: &str| Query::parse(&format!("fieldSelector={text}")).unwrap().fields();
        let found = fields("a%3Db%2Cc==d,e!=f").unwrap();
        assert_eq!(found, BTreeMap::from([("a".into(), "b".into()), ("c".into(), "d".into())]));
        assert_eq!(fields("a=b,a=b").unwrap().len(), 1);
        for text in ["a=b,a=c", "a", "a=b=c", "a%5C=b", "a===b"] {
            assert!(fields(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_survived_and_what_is_written_is_what_was_read(text in "[ -~]{0,80}|([a-zA-Z]{1,14}=[ -~]{0,9}&?){0,4}") {
            if let Ok(query) = Query::parse(&text) {
                let _ = query.fields();
                prop_assert_eq!(Query::parse(&query.render()).unwrap(), query);
            }
        }

        #[test]
        fn known_parameters_come_through(value in "\\PC{0,40}", at in 0..KNOWN.len()) {
            let query = Query(vec![(KNOWN[at].to_owned(), value)]);
            prop_assert_eq!(Query::parse(&query.render()).unwrap(), query);
        }
    }
}
