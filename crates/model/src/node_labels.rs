//! Labels that a node gives itself (`--node-labels`): which ones it may.
//!
//! Labels of kubernetes.io and k8s.io mean something to the cluster, and a node that could set any of them could draw pods to
//! itself. The kubelet's list of those that it may set, which is also what the admission plug-in NodeRestriction lets through.

use std::collections::BTreeMap;

/// Labels of the cluster's own that a node may set.
const ALLOWED: [&str; 11] = [
    "beta.kubernetes.io/arch",
    "beta.kubernetes.io/instance-type",
    "beta.kubernetes.io/os",
    "failure-domain.beta.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "kubernetes.io/arch",
    "kubernetes.io/hostname",
    "kubernetes.io/os",
    "node.kubernetes.io/instance-type",
    "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone",
];
/// Whatever is below these too.
const PREFIXES: [&str; 2] = ["kubelet.kubernetes.io", "node.kubernetes.io"];
/// Longest name and value.
const NAME: usize = 63;
/// Longest prefix of a name.
const PREFIX: usize = 253;

/// Why labels are not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LabelError {
    /// No `KEY=VALUE`.
    #[error("{0:?} is no label: write KEY=VALUE, with commas between several")]
    NoPair(String),
    /// The key is not one of the API's.
    #[error(
        "{0:?} is no key of a label: it has letters, digits, '-', '_' and '.' (at most {NAME}), perhaps after a DNS name and '/'"
    )]
    Key(String),
    /// The value is not one of the API's.
    #[error(
        "{value:?} is no value for label {key}: it has letters, digits, '-', '_' and '.' (at most {NAME}) and begins and ends with a letter or digit"
    )]
    Value {
        /// The label.
        key: String,
        /// What it was to be.
        value: String,
    },
    /// Only others may set it.
    #[error(
        "a node may not give itself the label {0}: of kubernetes.io and k8s.io it may set only those below \
         kubelet.kubernetes.io and node.kubernetes.io, and {list}",
        list = ALLOWED.join(", ")
    )]
    Forbidden(String),
}

/// Reads `KEY=VALUE,...`; of two with one key the last counts.
///
/// # Errors
/// For the first that cannot be taken.
pub fn parse(text: &str) -> Result<BTreeMap<String, String>, LabelError> {
    let mut labels = BTreeMap::new();
    for pair in text.split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=').ok_or_else(|| LabelError::NoPair(pair.to_owned()))?;
        let (key, value) = (key.trim(), value.trim());
        if !is_key(key) {
            return Err(LabelError::Key(key.to_owned()));
        }
        if !value.is_empty() && !is_name(value) {
            return Err(LabelError::Value { key: key.to_owned(), value: value.to_owned() });
        }
        if !may_set(key) {
            return Err(LabelError::Forbidden(key.to_owned()));
        }
        labels.insert(key.to_owned(), value.to_owned());
    }
    Ok(labels)
}

fn may_set(key: &str) -> bool {
    let Some((domain, _)) = key.split_once('/') else { return true };
    let below =
        |root: &str| domain == root || domain.strip_suffix(root).is_some_and(|rest| rest.ends_with('.'));
    if !below("kubernetes.io") && !below("k8s.io") {
        return true;
    }
    ALLOWED.contains(&key) || PREFIXES.into_iter().any(below)
}

/// Whether a label may be called this: a name, perhaps after a DNS name and `/`.
pub fn is_key(key: &str) -> bool {
    match key.split_once('/') {
        None => is_name(key),
        Some((domain, name)) => is_domain(domain) && is_name(name),
    }
}

/// Whether this is a name or a value of a label that is not empty.
pub fn is_name(name: &str) -> bool {
    let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    name.len() <= NAME
        && edge(name.chars().next())
        && edge(name.chars().next_back())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
}

fn is_domain(domain: &str) -> bool {
    let part = |part: &str| {
        let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
        edge(part.chars().next())
            && edge(part.chars().next_back())
            && part.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
    };
    domain.len() <= PREFIX && domain.split('.').all(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_read_as_the_kubelet_does() {
        let read =
            |text| parse(text).unwrap().into_iter().map(|(k, v)| format!("{k}={v}")).collect::<Vec<_>>();
        for (text, expected) in [
            ("", vec![]),
            ("a=b", vec!["a=b"]),
            (" a = b , c=", vec!["a=b", "c="]),
            ("a=1,a=2", vec!["a=2"]),
            ("example.com/role=x", vec!["example.com/role=x"]),
            ("notkubernetes.io/x=1", vec!["notkubernetes.io/x=1"]),
            ("topology.kubernetes.io/zone=z", vec!["topology.kubernetes.io/zone=z"]),
            (
                "node.kubernetes.io/any=1,x.kubelet.kubernetes.io/y=2",
                vec!["node.kubernetes.io/any=1", "x.kubelet.kubernetes.io/y=2"],
            ),
        ] {
            assert_eq!(read(text), expected, "{text}");
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, expected) in [
            ("a", LabelError::NoPair("a".into())),
            ("=b", LabelError::Key(String::new())),
            ("-a=b", LabelError::Key("-a".into())),
            ("A.B/c=d", LabelError::Key("A.B/c".into())),
            ("a/b/c=d", LabelError::Key("a/b/c".into())),
            ("a=b c", LabelError::Value { key: "a".into(), value: "b c".into() }),
            ("a=b=c", LabelError::Value { key: "a".into(), value: "b=c".into() }),
        ] {
            assert_eq!(parse(text), Err(expected), "{text}");
        }
        let long = "x".repeat(64);
        assert!(parse(&format!("a={long}")).is_err() && parse(&format!("{long}=a")).is_err());
        for key in [
            "node-role.kubernetes.io/control-plane",
            "node-restriction.kubernetes.io/x",
            "kubernetes.io/x",
            "x.k8s.io/y",
            "kubernetes.io/role",
            "kubernetes.io/instance-type",
        ] {
            let error = parse(&format!("ok=1,{key}=")).unwrap_err();
            assert_eq!(error, LabelError::Forbidden(key.into()));
            assert!(error.to_string().contains(key));
        }
    }
}
