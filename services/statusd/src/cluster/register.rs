//! How a node enters the cluster, and what is set right on one that is there already. Pure.

use std::collections::BTreeMap;

use bulkhead_config::KubeletConfiguration;
use k8s_openapi::api::core::v1::{Node, Taint};
use serde_json::{Value, json};

/// What a node has only when it is made anew: whoever changed it since meant to.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Registration {
    /// `registerNode`: without it somebody else makes the node object.
    pub(crate) wanted: bool,
    /// `registerWithTaints`.
    pub(crate) taints: Vec<Taint>,
    /// `providerID`; empty: none.
    pub(crate) provider_id: String,
    /// `--node-labels`: what the node always has wins over them.
    pub(crate) labels: BTreeMap<String, String>,
}

impl Registration {
    /// By the configuration.
    pub(crate) fn new(config: &KubeletConfiguration, labels: &BTreeMap<String, String>) -> Self {
        let taints = config.register_with_taints.iter().map(|taint| Taint {
            key: taint.key.clone(),
            value: (!taint.value.is_empty()).then(|| taint.value.clone()),
            effect: taint.effect.clone(),
            time_added: None,
        });
        Self {
            wanted: config.register_node,
            taints: taints.collect(),
            provider_id: config.provider_id.clone(),
            labels: labels.clone(),
        }
    }

    /// The object to create.
    pub(crate) fn object(&self, mut node: Node) -> Node {
        let own = node.metadata.labels.take().unwrap_or_default();
        let labels: BTreeMap<_, _> = self.labels.clone().into_iter().chain(own).collect();
        node.metadata.labels = (!labels.is_empty()).then_some(labels);
        let spec = node.spec.get_or_insert_default();
        spec.taints = (!self.taints.is_empty()).then(|| self.taints.clone());
        spec.provider_id = (!self.provider_id.is_empty()).then(|| self.provider_id.clone());
        node
    }
}

/// The merge patch that sets the labels and annotations of `node`, which are this process' own, right on the `existing`
/// object; `None`: they are. Everything else there is somebody else's.
pub(crate) fn amend(existing: &Node, node: &Node) -> Option<Value> {
    let labels = differing(existing.metadata.labels.as_ref(), node.metadata.labels.as_ref());
    let annotations = differing(existing.metadata.annotations.as_ref(), node.metadata.annotations.as_ref());
    if labels.is_empty() && annotations.is_empty() {
        return None;
    }
    let mut metadata = json!({});
    for (field, entries) in [("labels", labels), ("annotations", annotations)] {
        if let (Some(metadata), false) = (metadata.as_object_mut(), entries.is_empty()) {
            metadata.insert(field.to_owned(), json!(entries));
        }
    }
    Some(json!({ "metadata": metadata }))
}

type Entries = BTreeMap<String, String>;

fn differing(existing: Option<&Entries>, own: Option<&Entries>) -> Entries {
    let there = |key: &String| existing.and_then(|existing| existing.get(key));
    let own = own.into_iter().flatten();
    own.filter(|(key, value)| there(key) != Some(value))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

    use super::*;

    fn node(labels: &[(&str, &str)], annotations: &[(&str, &str)]) -> Node {
        let map = |entries: &[(&str, &str)]| {
            let entries = entries.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
            Some(entries.collect::<Entries>())
        };
        let metadata =
            ObjectMeta { labels: map(labels), annotations: map(annotations), ..ObjectMeta::default() };
        Node { metadata, ..Node::default() }
    }

    #[test]
    fn only_what_is_the_nodes_own_and_wrong_is_changed() {
        let own = node(&[("os", "linux"), ("host", "a")], &[("attach", "true")]);
        for (existing, expected) in [
            (node(&[("os", "linux"), ("host", "a"), ("zone", "z")], &[("attach", "true")]), None),
            (
                node(&[("os", "linux"), ("host", "b"), ("zone", "z")], &[("attach", "true"), ("ttl", "0")]),
                Some(json!({"metadata": {"labels": {"host": "a"}}})),
            ),
            (
                Node::default(),
                Some(json!({"metadata": {
                    "labels": {"os": "linux", "host": "a"}, "annotations": {"attach": "true"},
                }})),
            ),
        ] {
            assert_eq!(amend(&existing, &own), expected);
        }
    }

    #[test]
    fn a_new_node_has_the_configured_taints_and_provider() {
        let config =
            KubeletConfiguration { provider_id: "kind://x".into(), ..KubeletConfiguration::default() };
        let given = Entries::from([("a".to_owned(), "1".to_owned()), ("os".to_owned(), "x".to_owned())]);
        let plain = Registration::new(&KubeletConfiguration::default(), &given);
        assert!(plain.wanted);
        assert_eq!(plain.object(Node::default()).spec, Some(Default::default()));
        let labels = plain.object(node(&[("os", "linux")], &[])).metadata.labels.unwrap();
        assert_eq!(labels, Entries::from([("a", "1"), ("os", "linux")].map(|(k, v)| (k.into(), v.into()))));
        let taints = vec![Taint { key: "k".into(), effect: "NoSchedule".into(), ..Taint::default() }];
        let registration =
            Registration { taints: taints.clone(), ..Registration::new(&config, &Entries::new()) };
        let spec = registration.object(Node::default()).spec.unwrap();
        assert_eq!((spec.taints, spec.provider_id.as_deref()), (Some(taints), Some("kind://x")));
    }
}
