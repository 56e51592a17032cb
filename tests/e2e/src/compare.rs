//! An object of ours field by field beside a real kubelet's.
//!
//! Owns how two objects are compared. What may differ, and why, stands with the test.

use std::collections::BTreeMap;

use serde_json::Value;

/// What is known to differ. What is beneath a field differs with it.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    /// Fields that only one of them has, or that say something else, and why.
    pub differs: &'static [(&'static str, &'static str)],
    /// Fields that hold what is this pod's, this node's or this machine's own: nothing is compared there.
    pub own: &'static [&'static str],
}

/// How a field differs.
#[derive(Debug, PartialEq)]
pub enum Difference {
    /// The kubelet has it.
    Missing,
    /// Only we have it.
    Extra,
    /// The kubelet's and ours.
    Other(Value, Value),
}

/// Every difference, by the path of the field.
pub fn differences(kubelets: &Value, ours: &Value) -> BTreeMap<String, Difference> {
    let mut found = BTreeMap::new();
    compare(String::new(), kubelets, ours, &mut found);
    found
}

fn compare(path: String, kubelets: &Value, ours: &Value, found: &mut BTreeMap<String, Difference>) {
    // To whoever reads the API a field that is null is one that is not there.
    let fields = |value: &Value| -> Option<BTreeMap<String, Value>> {
        match value {
            Value::Object(fields) => {
                Some(fields.clone().into_iter().filter(|(_, value)| !value.is_null()).collect())
            }
            Value::Array(items) => {
                Some(items.iter().enumerate().map(|(n, item)| (key(n, item), item.clone())).collect())
            }
            _ => None,
        }
    };
    match (fields(kubelets), fields(ours)) {
        (Some(theirs), Some(ours)) => {
            for name in theirs.keys().chain(ours.keys()) {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                match (theirs.get(name), ours.get(name)) {
                    (Some(one), Some(other)) => compare(path, one, other, found),
                    (Some(_), None) => drop(found.insert(path, Difference::Missing)),
                    _ => drop(found.insert(path, Difference::Extra)),
                }
            }
        }
        // Two dates are of two moments.
        _ if kubelets == ours || is_date(kubelets) && is_date(ours) => {}
        _ => drop(found.insert(path, Difference::Other(kubelets.clone(), ours.clone()))),
    }
}

/// Items of lists that the API merges by a key go by it.
fn key(place: usize, item: &Value) -> String {
    let key = ["type", "name"].iter().find_map(|key| item[key].as_str());
    format!("[{}]", key.map_or_else(|| place.to_string(), str::to_owned))
}

fn is_date(value: &Value) -> bool {
    value.as_str().is_some_and(|text| text.parse::<jiff::Timestamp>().is_ok())
}

/// Every difference is known, and all that is known is a difference.
///
/// # Panics
/// When not.
pub fn check(found: &BTreeMap<String, Difference>, known: &Known) {
    let within = |path: &str, row: &str| {
        path.strip_prefix(row).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    let is_known = |path: &str| {
        known.differs.iter().any(|(row, _)| within(path, row))
            || known.own.iter().any(|row| within(path, row))
    };
    let new: BTreeMap<_, _> = found.iter().filter(|(path, _)| !is_known(path)).collect();
    assert!(new.is_empty(), "neither the same nor known to differ: {new:#?}");
    let stale: Vec<_> =
        known.differs.iter().filter(|(row, _)| !found.keys().any(|path| within(path, row))).collect();
    assert!(stale.is_empty(), "no difference any more: {stale:?}");
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_way_to_differ_is_seen() {
        let kubelets = json!({
            "same": 1, "gone": {"x": 1}, "at": "2026-11-30T14:26:04Z", "list": [{"name": "a", "v": 1}, {"name": "b"}], "n": null,
        });
        let ours = json!({
            "same": 1, "new": 2, "at": "2025-01-01T00:00:00.5Z", "list": [{"name": "b"}, {"name": "a", "v": 2}], "n": 0,
        });
        let found = differences(&kubelets, &ours);
        let wanted = [
            ("gone", Difference::Missing),
            ("list.[a].v", Difference::Other(json!(1), json!(2))),
            ("n", Difference::Extra),
            ("new", Difference::Extra),
        ];
        assert_eq!(found, wanted.map(|(path, how)| (path.to_owned(), how)).into());
        check(
            &found,
            &Known { differs: &[("gone", "a"), ("n", "c"), ("new", "d")], own: &["list.[a]", "same"] },
        );
    }
}
