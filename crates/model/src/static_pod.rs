//! From a manifest's pod to the pod that the node runs: name, UID, defaults and annotations as the kubelet makes them.
//!
//! Owns everything that the API server would have filled in. Must never look at the clock: `now` is an argument.

mod defaults;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, Toleration};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::hash;
use crate::names;

/// Where a manifest came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin<'a> {
    /// A file, by its absolute path.
    File(&'a str),
    /// `staticPodURL`.
    Url(&'a str),
    /// Somebody at this node, by hand.
    Submission,
}

/// Where a static pod comes from and where it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StaticSource<'a> {
    /// The manifest.
    pub origin: Origin<'a>,
    /// The node's name.
    pub node_name: &'a str,
}

/// Makes a static pod of a manifest's pod, which [`crate::manifest::parse`] took.
///
/// - Only name, namespace, UID, labels and annotations of the metadata are kept, and no status.
/// - The UID is the manifest's own, else a fingerprint of the manifest, the node and the file or URL: one manifest is the
///   same pod over restarts, and a changed one is another. It is made before defaults are filled in, so that a new release
///   with a new default restarts nothing.
/// - `kubernetes.io/config.hash` is the UID (so with a UID in the manifest, an edit is an update of the same pod).
/// - `kubernetes.io/config.seen` is `now`: whoever reads a manifest again must keep the first one.
pub fn make_static_pod(pod: Pod, source: &StaticSource<'_>, now: Timestamp) -> Pod {
    let ObjectMeta { name, namespace, uid, labels, mut annotations, .. } = pod.metadata;
    if let Some(annotations) = &mut annotations {
        let ours = [
            names::CONFIG_HASH,
            names::CONFIG_SOURCE,
            names::CONFIG_SEEN,
            names::CONFIG_MIRROR,
            names::SUBMITTED,
        ];
        annotations.retain(|key, _| !ours.contains(&key.as_str()));
    }
    let annotations = annotations.filter(|annotations| !annotations.is_empty());
    let metadata = ObjectMeta { name, namespace, uid, labels, annotations, ..Default::default() };
    let mut pod = Pod { metadata, spec: pod.spec, status: None };
    let own_uid = pod.metadata.uid.take().filter(|uid| !uid.is_empty());
    let uid = own_uid.unwrap_or_else(|| hash::pod_hash(&pod, &suffixes(source)));

    let spec = pod.spec.get_or_insert_default();
    spec.node_name = Some(source.node_name.to_owned());
    if !matches!(source.origin, Origin::Url(_)) {
        tolerate_everything(spec.tolerations.get_or_insert_default());
    }
    defaults::fill(spec);

    let metadata = &mut pod.metadata;
    let name = metadata.name.take().unwrap_or_default();
    metadata.name = Some(format!("{name}-{}", source.node_name.to_lowercase()));
    if metadata.namespace.as_ref().is_none_or(String::is_empty) {
        metadata.namespace = Some("default".to_owned());
    }
    let origin = match source.origin {
        Origin::File(_) => "file",
        // A submission has taken the place of the one that old kubelets had over HTTP, and tools know no fourth value.
        Origin::Url(_) | Origin::Submission => "http",
    };
    let annotations = metadata.annotations.get_or_insert_default();
    annotations.insert(names::CONFIG_HASH.to_owned(), uid.clone());
    annotations.insert(names::CONFIG_SOURCE.to_owned(), origin.to_owned());
    annotations.insert(names::CONFIG_SEEN.to_owned(), format!("{now:.9}"));
    if source.origin == Origin::Submission {
        annotations.insert(names::SUBMITTED.to_owned(), "true".to_owned());
    }
    metadata.uid = Some(uid);
    pod
}

fn suffixes(source: &StaticSource<'_>) -> Vec<String> {
    let origin = match source.origin {
        Origin::File(path) => format!("file:{path}"),
        Origin::Url(url) => format!("url:{url}"),
        Origin::Submission => "submission".to_owned(),
    };
    vec![format!("host:{}", source.node_name), origin]
}

/// A static pod is the node's own: no taint of the node may end it.
fn tolerate_everything(tolerations: &mut Vec<Toleration>) {
    let all = Toleration {
        effect: Some("NoExecute".to_owned()),
        operator: Some("Exists".to_owned()),
        ..Default::default()
    };
    if !tolerations.contains(&all) {
        tolerations.push(all);
    }
}

#[cfg(test)]
mod tests;
