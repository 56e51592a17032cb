//! Pods that come, change and go. Owns which manifests there are; decided by a seed alone.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::plan::Random;
use crate::pods;
use crate::real_node::RealNode;

/// As many pods at most, each of another kind.
const SLOTS: u64 = 4;
/// Annotation that tells one content of a manifest from the next.
pub const REVISION: &str = "storm/revision";

/// Manifests that there are.
#[derive(Clone, Debug)]
pub struct Churn {
    random: Random,
    /// Counts contents.
    revision: u64,
    present: BTreeMap<u64, Held>,
}

#[derive(Clone, Debug)]
struct Held {
    file: String,
    revision: u64,
}

/// What to do to the manifests.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// Put this manifest into this file.
    Put(String, Value),
    /// Remove this file.
    Take(String),
    /// Move the first file to the second.
    Move(String, String),
}

impl Change {
    /// Does it.
    ///
    /// # Panics
    /// When the files are not there.
    pub fn apply(&self, node: &RealNode) {
        match self {
            Self::Put(file, manifest) => node.put(file, manifest),
            Self::Take(file) => node.take(file),
            Self::Move(from, to) => {
                std::fs::rename(node.manifest(from), node.manifest(to)).expect("a manifest to move");
            }
        }
    }
}

impl Churn {
    /// No manifest yet.
    pub fn new(seed: u64) -> Self {
        Self { random: Random::new(seed ^ 0x5707), revision: 0, present: BTreeMap::new() }
    }

    /// The next change: a pod that is there is changed, removed or renamed, one that is not comes.
    pub fn change(&mut self) -> Change {
        let slot = self.random.below(SLOTS);
        let what = self.random.below(10);
        self.revision += 1;
        let revision = self.revision;
        let manifest = manifest(slot, revision);
        let Some(held) = self.present.get_mut(&slot) else {
            let file = format!("churn-{slot}.yaml");
            self.present.insert(slot, Held { file: file.clone(), revision });
            return Change::Put(file, manifest);
        };
        match what {
            0..5 => {
                held.revision = revision;
                Change::Put(held.file.clone(), manifest)
            }
            5..9 => {
                let file = held.file.clone();
                self.present.remove(&slot);
                Change::Take(file)
            }
            // Another file is another pod, with the same name and content.
            _ => {
                let file = format!("churn-{slot}-{revision}.yaml");
                Change::Move(std::mem::replace(&mut held.file, file.clone()), file)
            }
        }
    }

    /// Names of the pods that must be there, with their revisions.
    pub fn present(&self) -> BTreeMap<String, String> {
        self.present.iter().map(|(slot, held)| (name(*slot), held.revision.to_string())).collect()
    }
}

fn name(slot: u64) -> String {
    format!("churn-{slot}")
}

fn manifest(slot: u64, revision: u64) -> Value {
    let name = name(slot);
    let run = "sleep 100000 & wait";
    let true_probe = json!({"exec": {"command": ["/bin/true"]}, "periodSeconds": 1});
    let part = |field: &str, value: Value| json!({field: value});
    let with = |container: Value, more: &[Value]| {
        let mut all = container.as_object().cloned().unwrap_or_default();
        more.iter().filter_map(Value::as_object).for_each(|more| all.extend(more.clone()));
        Value::Object(all)
    };
    let volume = |source: Value| with(part("name", json!("v")), &[part("emptyDir", source)]);
    let mounted = |path: &str| part("volumeMounts", json!([{"name": "v", "mountPath": path}]));
    let pod = pods::simple(&name);
    let mut pod = match slot {
        0 => pod,
        1 => {
            let hook = part("lifecycle", json!({"preStop": {"sleep": {"seconds": 1}}}));
            let c = with(pods::container("c", run), &[mounted("/m"), hook]);
            let pod = pods::with_spec(pod, "containers", json!([c]));
            pods::with_spec(pod, "volumes", json!([volume(json!({"medium": "Memory", "sizeLimit": "1Mi"}))]))
        }
        2 => {
            let init = with(pods::container("i", "echo hi >/v/f"), &[mounted("/v")]);
            let c = with(pods::container("c", run), &[mounted("/v"), part("readinessProbe", true_probe)]);
            let pod = pods::with_spec(pod, "initContainers", json!([init]));
            let pod = pods::with_spec(pod, "containers", json!([c]));
            pods::with_spec(pod, "volumes", json!([volume(json!({}))]))
        }
        _ => {
            let side = with(pods::container("side", run), &[part("restartPolicy", json!("Always"))]);
            let sub = json!([{"name": "v", "mountPath": "/sub", "subPathExpr": "a/$(B)"}]);
            let env = part("env", json!([{"name": "B", "value": "b"}]));
            let c = with(pods::container("c", run), &[part("volumeMounts", sub), env]);
            let pod = pods::with_spec(pod, "initContainers", json!([side]));
            let pod = pods::with_spec(pod, "containers", json!([c, pods::container("d", run)]));
            pods::with_spec(pod, "volumes", json!([volume(json!({}))]))
        }
    };
    if let Some(metadata) = pod.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.insert("annotations".to_owned(), json!({REVISION: revision.to_string()}));
    }
    pod
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Files to revisions, as a directory would hold them after `changes`.
    fn directory(changes: &[Change]) -> BTreeMap<String, String> {
        let mut files = BTreeMap::new();
        for change in changes {
            match change {
                Change::Put(file, manifest) => {
                    let revision = manifest["metadata"]["annotations"][REVISION].as_str().unwrap().to_owned();
                    files.insert(file.clone(), revision);
                }
                Change::Take(file) => assert!(files.remove(file).is_some(), "{file} is there"),
                Change::Move(from, to) => {
                    let revision = files.remove(from).unwrap();
                    assert!(files.insert(to.clone(), revision).is_none());
                }
            }
        }
        files
    }

    #[test]
    fn what_is_expected_is_what_the_files_say() {
        let mut churn = Churn::new(1);
        let mut changes = Vec::new();
        for _ in 0..500 {
            changes.push(churn.change());
            let mut files: Vec<_> = directory(&changes).into_values().collect();
            let mut expected: Vec<_> = churn.present().into_values().collect();
            files.sort();
            expected.sort();
            assert_eq!(files, expected);
        }
        let count = |is: fn(&Change) -> bool| changes.iter().filter(|change| is(change)).count();
        assert!(count(|change| matches!(change, Change::Take(_))) > 50);
        assert!(count(|change| matches!(change, Change::Move(..))) > 10);
        assert!(changes.len() > count(|change| matches!(change, Change::Put(..))));
    }

    #[test]
    fn a_seed_is_a_churn() {
        let changes = |seed| {
            let mut churn = Churn::new(seed);
            (0..50).map(|_| churn.change()).collect::<Vec<_>>()
        };
        assert_eq!(changes(4), changes(4));
        assert_ne!(changes(4), changes(5));
    }
}
