//! A request's parameters, as forms have them. Pure.

/// Most parameters looked at. A command of exec has one for each word.
const MOST: usize = 4096;

/// Parameters in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Query(Vec<(String, String)>);

/// Too many parameters, or one that is no text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the query cannot be read: it has more than {MOST} parameters, or one that is not UTF-8 or wrongly encoded"
)]
pub(crate) struct BadQuery;

impl Query {
    /// Reads what stands behind the `?`.
    pub(crate) fn read(text: &str) -> Result<Self, BadQuery> {
        let mut pairs = Vec::new();
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            if pairs.len() == MOST {
                return Err(BadQuery);
            }
            pairs.push((decode(key).ok_or(BadQuery)?, decode(value).ok_or(BadQuery)?));
        }
        Ok(Self(pairs))
    }

    /// The first value of this name.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// All values of this name, in their order.
    pub(crate) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// A switch, as the API's clients write them: there and not `false` or `0`.
    pub(crate) fn is_set(&self, name: &str) -> bool {
        self.get(name).is_some_and(|value| !value.eq_ignore_ascii_case("false") && value != "0")
    }
}

fn decode(text: &str) -> Option<String> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        decoded.push(match byte {
            b'+' => b' ',
            b'%' => {
                let mut digit =
                    || char::from(bytes.next()?).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
                digit()? << 4 | digit()?
            }
            byte => byte,
        });
    }
    String::from_utf8(decoded).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn parameters_are_read_as_forms_have_them() {
        let query = Query::read("command=sh&command=-c&command=echo+a%20b%26%25&tty=1&&empty&off=false&no=0")
            .unwrap();
        assert_eq!(query.all("command").collect::<Vec<_>>(), ["sh", "-c", "echo a b&%"]);
        assert!(query.is_set("tty") && query.is_set("empty"));
        assert!(!query.is_set("off") && !query.is_set("no") && !query.is_set("missing"));
        assert_eq!(Query::read("").unwrap(), Query::default());
        for bad in ["a=%", "a=%2", "a=%zz", "%ff=1", &"a&".repeat(MOST + 1)] {
            assert_eq!(Query::read(bad), Err(BadQuery));
        }
    }

    proptest! {
        #[test]
        fn any_text_is_survived(text in ".{0,60}") {
            let _ = Query::read(&text);
        }
    }
}
