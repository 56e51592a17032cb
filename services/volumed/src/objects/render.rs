//! From what is known of objects to the files of a volume. Pure.

use std::collections::BTreeMap;

use super::{Key, Seen, Token, trust};
use crate::error::Error;
use crate::spec::{ObjectFiles, Part, TokenKey, TrustFile, VolumeFile, arrange};

/// Bytes of all files of one volume: old and new ones fit into its tmpfs together.
const BYTES: usize = 24 << 20;

/// What a volume's files are made of.
pub(crate) struct Known<'a> {
    /// By object.
    pub(crate) objects: &'a BTreeMap<Key, Seen>,
    /// Tokens of the pod.
    pub(crate) tokens: &'a BTreeMap<TokenKey, Token>,
    /// Why one of them could not be had, if that is so.
    pub(crate) token_problem: Option<&'a str>,
}

/// The files of a volume, in their order.
///
/// # Errors
/// What is missing, by name, in the kubelet's words.
pub(crate) fn render(parts: &[Part], known: &Known<'_>) -> Result<Vec<VolumeFile>, Error> {
    let mut files = Vec::new();
    for part in parts {
        match part {
            Part::Written(written) => files.extend(written.iter().cloned()),
            Part::Object(object) => files.extend(of_object(object, known)?),
            Part::Token(file) => {
                let token = known.tokens.get(&file.token).ok_or_else(|| {
                    let why =
                        known.token_problem.unwrap_or("failed to fetch token: it was not asked for yet");
                    Error::Away(why.to_owned())
                })?;
                files.push(VolumeFile {
                    path: file.path.clone(),
                    content: token.reveal().to_vec(),
                    mode: file.mode,
                    owner: file.owner,
                });
            }
            Part::Trust(file) => files.push(of_trust(file, known)?),
        }
    }
    arrange(files, BYTES)
}

fn of_object(object: &ObjectFiles, known: &Known<'_>) -> Result<Vec<VolumeFile>, Error> {
    let Some(content) = seen(&object.key, object.optional, known)? else { return Ok(Vec::new()) };
    let file = |path: &str, content: &[u8], mode| VolumeFile {
        path: path.to_owned(),
        content: content.to_vec(),
        mode,
        owner: None,
    };
    if object.items.is_empty() {
        return Ok(content.0.iter().map(|(key, value)| file(key, value, object.mode)).collect());
    }
    let mut files = Vec::new();
    for item in &object.items {
        match content.0.get(&item.key) {
            Some(value) => files.push(file(&item.path, value, item.mode)),
            None if object.optional => {}
            None => {
                let name = object.key.to_string();
                let shown: String = item.key.chars().take(253).collect();
                return Err(Error::Missing(format!("{name} references non-existent key: {shown}")));
            }
        }
    }
    Ok(files)
}

fn of_trust(file: &TrustFile, known: &Known<'_>) -> Result<VolumeFile, Error> {
    let content = match seen(&file.key, file.optional, known)? {
        Some(content) => trust::merge(content.0.values()),
        None => String::new(),
    };
    Ok(VolumeFile { path: file.path.clone(), content: content.into_bytes(), mode: file.mode, owner: None })
}

/// `None` for one that may be missing, and is.
fn seen<'a>(key: &Key, optional: bool, known: &'a Known<'_>) -> Result<Option<&'a super::Content>, Error> {
    match known.objects.get(key) {
        Some(Seen::There(content)) => Ok(Some(content)),
        Some(Seen::Missing) if optional => Ok(None),
        Some(Seen::Missing) => Err(Error::Missing(format!("{key} not found"))),
        Some(Seen::Nothing(Some(reason))) => Err(Error::Away(format!("{key} cannot be read: {reason}"))),
        Some(Seen::Nothing(None)) | None => {
            Err(Error::Away(format!("{key} was not read yet: the API server does not answer")))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bulkhead_ipc::status::Coded;
    use proptest::prelude::*;
    use tonic::Code;

    use super::super::Content;
    use super::*;
    use crate::spec::{Item, TokenFile};

    fn key(name: &str) -> Key {
        Key::ConfigMap { namespace: "ns".to_owned(), name: name.to_owned() }
    }

    fn object(name: &str, optional: bool, items: &[(&str, &str)]) -> Part {
        let item =
            |(key, path): &(&str, &str)| Item { key: (*key).into(), path: (*path).into(), mode: 0o400 };
        Part::Object(ObjectFiles {
            key: key(name),
            optional,
            items: items.iter().map(item).collect(),
            mode: 0o644,
        })
    }

    fn there(values: &[(&str, &str)]) -> Seen {
        let value = |(key, value): &(&str, &str)| ((*key).to_owned(), value.as_bytes().to_vec());
        Seen::There(Arc::new(Content(values.iter().map(value).collect())))
    }

    fn rendered(parts: &[Part], objects: &[(&str, Seen)]) -> Result<Vec<(String, String, u32)>, Error> {
        let objects = objects.iter().map(|(name, seen)| (key(name), seen.clone())).collect();
        let token = TokenKey { audience: String::new(), expiration_seconds: 600 };
        let tokens = BTreeMap::from([(token, Token::new_for_test("jwt"))]);
        let files = render(parts, &Known { objects: &objects, tokens: &tokens, token_problem: None })?;
        let text = |file: VolumeFile| (file.path, String::from_utf8(file.content).unwrap(), file.mode);
        Ok(files.into_iter().map(text).collect())
    }

    fn files(list: &[(&str, &str, u32)]) -> Vec<(String, String, u32)> {
        list.iter().map(|(path, text, mode)| ((*path).into(), (*text).into(), *mode)).collect()
    }

    #[test]
    fn all_keys_or_those_that_are_named() {
        let two = [("c", there(&[("a", "1"), ("b", "2")]))];
        let all = rendered(&[object("c", false, &[])], &two).unwrap();
        assert_eq!(all, files(&[("a", "1", 0o644), ("b", "2", 0o644)]));
        let named = rendered(&[object("c", false, &[("b", "x/y"), ("b", "z")])], &two).unwrap();
        assert_eq!(named, files(&[("x/y", "2", 0o400), ("z", "2", 0o400)]));
    }

    #[test]
    fn what_is_missing_is_named_unless_it_may_be_missing() {
        let one = || there(&[("a", "1")]);
        for (part, seen, expected) in [
            (object("c", false, &[]), Seen::Missing, Err("configmap \"c\" not found")),
            (object("c", true, &[]), Seen::Missing, Ok(0)),
            (object("c", false, &[("b", "b")]), one(), Err("references non-existent key: b")),
            (object("c", true, &[("b", "b"), ("a", "a")]), one(), Ok(1)),
            (object("c", true, &[]), Seen::Nothing(None), Err("not read yet")),
            (object("c", true, &[]), Seen::Nothing(Some("no right".into())), Err("no right")),
        ] {
            match (rendered(&[part], &[("c", seen)]), expected) {
                (Ok(files), Ok(count)) => assert_eq!(files.len(), count),
                (Err(error), Err(text)) => {
                    assert!(error.to_string().contains(text), "{error}");
                    let code = if text.contains("not read") || text.contains("right") {
                        Code::Unavailable
                    } else {
                        Code::FailedPrecondition
                    };
                    assert_eq!(error.code(), code);
                }
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn sources_lie_over_one_another_and_tokens_have_their_owner() {
        let token = TokenKey { audience: String::new(), expiration_seconds: 600 };
        let file = TokenFile { path: "token".into(), token, mode: 0o600, owner: Some(7) };
        let parts = [object("c", false, &[]), Part::Token(file), object("d", false, &[("x", "a")])];
        let known = [("c", there(&[("a", "1")])), ("d", there(&[("x", "2")]))];
        let seen = rendered(&parts, &known).unwrap();
        assert_eq!(seen, files(&[("a", "2", 0o400), ("token", "jwt", 0o600)]));
    }

    #[test]
    fn more_than_a_volume_holds_is_refused() {
        let big = "x".repeat(1 << 20);
        let names: Vec<String> = (0..30).map(|at| format!("k{at}")).collect();
        let values: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), big.as_str())).collect();
        assert!(rendered(&[object("c", false, &[])], &[("c", there(&values))]).is_err());
    }

    proptest! {
        #[test]
        fn whatever_keys_come_no_file_leaves_the_volume(keys in proptest::collection::btree_map("[/.a]{0,6}|\\PC{0,12}", ".{0,3}", 0..4)) {
            let values: Vec<(&str, &str)> = keys.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
            if let Ok(files) = rendered(&[object("c", false, &[])], &[("c", there(&values))]) {
                for (path, ..) in files {
                    prop_assert!(!path.starts_with('/') && !path.split('/').any(|part| matches!(part, ".." | "." | "")));
                }
            }
        }
    }
}
