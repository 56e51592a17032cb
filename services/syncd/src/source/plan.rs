//! From what the sources hold to desired pods. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use bulkhead_model::manifest::{Manifest, Refusal};
use bulkhead_model::names;
use bulkhead_model::static_pod::{StaticSource, make_static_pod};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;

use crate::plan::full_name;
use crate::unsupported::{Origin, unsupported};

/// A source of pods. In their order: of two sources that want one pod name, the first one wins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// The static pod directory.
    File,
    /// `staticPodURL`.
    Url,
    /// Pods submitted by hand.
    Submission,
    /// The API server.
    Api,
}

/// Where one manifest is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The source.
    pub kind: Kind,
    /// For people, and the same as long as it is the same manifest. Never holds a secret.
    pub name: String,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// One desired pod.
#[derive(Clone, Debug, PartialEq)]
pub struct SourcedPod {
    /// With name suffix, UID and annotations.
    pub pod: Arc<Pod>,
    /// Where it comes from.
    pub place: Place,
}

/// One manifest as a source gave it.
pub struct Item {
    /// Where it is.
    pub place: Place,
    /// Its pod, or why there is none.
    pub pod: Result<Pod, String>,
}

/// All that a source gave at one time.
pub struct Reading {
    /// In the order in which they win a name.
    pub items: Vec<Item>,
    /// Whether each item's place could be told. If not, nothing can be said about pods that seem to be missing.
    pub complete: bool,
}

/// What a source asks for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Found {
    /// In the order in which they win a name.
    pub pods: Vec<SourcedPod>,
    /// Why manifests are not among the pods, with line and column where there are any.
    pub refused: BTreeMap<Place, String>,
    /// The last word on pods that are gone, by UID: how long they may take to stop.
    pub gone: BTreeMap<String, Arc<Pod>>,
}

/// All that the sources ask for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Desired {
    /// By pod UID.
    pub pods: BTreeMap<String, SourcedPod>,
    /// Why manifests are not among the pods.
    pub refused: BTreeMap<Place, String>,
    /// Sources that were not read in this life: what they hold is not known.
    pub unread: BTreeSet<Kind>,
    /// The last word on pods that are gone, by UID.
    pub gone: BTreeMap<String, Arc<Pod>>,
}

/// The pod of a manifest, if this release can run it.
pub fn take(
    manifest: Result<Manifest, Refusal>,
    source: &StaticSource<'_>,
    now: Timestamp,
) -> Result<Pod, String> {
    let manifest = manifest.map_err(|refusal| refusal.to_string())?;
    let missing = unsupported(&manifest.pod, Origin::Static);
    if !missing.is_empty() {
        return Err(format!("this release of bulkhead cannot do: {}", missing.join(", ")));
    }
    Ok(make_static_pod(manifest.pod, source, now))
}

/// What a source asks for by now.
///
/// A manifest that cannot be understood (half-written, or edited wrongly) leaves the pod that it last gave as it was: a typing
/// mistake must not stop a control plane. It is listed as refused all the same.
pub fn keep(reading: Reading, previous: &Found) -> Found {
    let mut found = Found::default();
    for Item { place, pod } in reading.items {
        let reason = match pod {
            Ok(pod) => {
                found.pods.push(SourcedPod { pod: Arc::new(pod), place });
                continue;
            }
            Err(reason) => reason,
        };
        let last = previous.pods.iter().find(|pod| pod.place == place).cloned();
        let kept = if last.is_some() { " (its pod goes on as the manifest was before)" } else { "" };
        found.refused.insert(place, format!("{reason}{kept}"));
        found.pods.extend(last);
    }
    if !reading.complete {
        let missing =
            previous.pods.iter().filter(|pod| found.pods.iter().all(|there| there.place != pod.place));
        let missing: Vec<_> = missing.cloned().collect();
        found.pods.extend(missing);
    }
    found
}

/// What all sources together ask for.
///
/// - Of two manifests with one pod, the one of the earlier source wins, within a source the earlier one; the other is
///   refused.
/// - A manifest that is the same as before gives the very same pod, `config.seen` included. `seen` has the first dates of
///   pods from an earlier life.
pub fn combine<'a>(
    sources: impl IntoIterator<Item = &'a Found>,
    previous: &Desired,
    seen: &BTreeMap<String, Timestamp>,
) -> Desired {
    let mut desired = Desired::default();
    let mut by_name: BTreeMap<(String, String), Place> = BTreeMap::new();
    for found in sources {
        desired.refused.extend(found.refused.clone());
        desired.gone.extend(found.gone.clone());
        for pod in &found.pods {
            let name = full_name(&pod.pod);
            let uid = pod.pod.metadata.uid.clone().unwrap_or_default();
            let same_uid = desired.pods.get(&uid).map(|pod| &pod.place);
            if let Some(first) = by_name.get(&name).or(same_uid) {
                let reason = format!(
                    "{}: pod {}/{} comes from {first} already; remove one of the two",
                    pod.place, name.0, name.1
                );
                desired.refused.insert(pod.place.clone(), reason);
                continue;
            }
            by_name.insert(name, pod.place.clone());
            desired.pods.insert(uid.clone(), first_seen(pod.clone(), &uid, previous, seen));
        }
    }
    desired
}

impl Desired {
    /// Whether a pod that runs, and that is not among the pods, belongs to no source: all were read, or its name is another
    /// pod's whatever the others hold.
    pub fn disowns(&self, full_name: (&str, &str)) -> bool {
        let is_taken = |by: &SourcedPod| {
            let (namespace, name) = crate::plan::full_name(&by.pod);
            (namespace.as_str(), name.as_str()) == full_name
                && self.unread.iter().all(|unread| by.place.kind < *unread)
        };
        self.unread.is_empty() || self.pods.values().any(is_taken)
    }
}

/// Keeps the date at which a pod was first seen, and with it the very object if nothing else changed.
fn first_seen(
    mut pod: SourcedPod,
    uid: &str,
    previous: &Desired,
    seen: &BTreeMap<String, Timestamp>,
) -> SourcedPod {
    let earlier = previous.pods.get(uid);
    let date = earlier
        .and_then(|p| p.pod.metadata.annotations.as_ref()?.get(names::CONFIG_SEEN).cloned())
        .or_else(|| seen.get(uid).map(|at| format!("{at:.9}")));
    if let Some(date) = date {
        let object = Arc::make_mut(&mut pod.pod);
        object.metadata.annotations.get_or_insert_default().insert(names::CONFIG_SEEN.to_owned(), date);
    }
    match earlier {
        Some(earlier) if *earlier.pod == *pod.pod => {
            SourcedPod { pod: earlier.pod.clone(), place: pod.place }
        }
        _ => pod,
    }
}

#[cfg(test)]
mod tests;
