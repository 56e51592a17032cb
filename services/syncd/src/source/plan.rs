//! From files to desired pods. Pure.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use bulkhead_model::static_pod::{Origin, StaticSource, make_static_pod};
use bulkhead_model::{manifest, names};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;

use super::files::FileRead;
use crate::unsupported::unsupported;

/// One desired pod.
#[derive(Clone, Debug, PartialEq)]
pub struct StaticPod {
    /// With name suffix, UID and annotations.
    pub pod: Arc<Pod>,
    /// The file that it comes from.
    pub file: PathBuf,
}

/// All that the directory asks for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Desired {
    /// By pod UID.
    pub pods: BTreeMap<String, StaticPod>,
    /// By file: why it is not among the pods, with line and column where there are any.
    pub refused: BTreeMap<PathBuf, String>,
}

/// What the files ask for.
///
/// - Of two files with one pod, the first in byte order of names wins and the other is refused.
/// - A file that cannot be understood (half-written, or edited wrongly) leaves the pod that it last gave as it was: a typing
///   mistake must not stop a control plane. It is listed as refused all the same.
/// - A file that is the same as before gives the very same pod, `config.seen` included. `seen` has the first dates of pods
///   from an earlier life.
pub fn plan(
    files: Vec<FileRead>,
    previous: &Desired,
    seen: &BTreeMap<String, Timestamp>,
    node_name: &str,
    now: Timestamp,
) -> Desired {
    let mut desired = Desired::default();
    let mut by_name: BTreeMap<(String, String), PathBuf> = BTreeMap::new();
    for FileRead { path, content } in files {
        let pod = content.and_then(|bytes| read(&bytes, &path, node_name, now));
        let pod = match pod {
            Ok(pod) => pod,
            Err(reason) => {
                let last = previous.pods.values().find(|pod| pod.file == path);
                let kept = if last.is_some() { " (its pod goes on as the file was before)" } else { "" };
                desired.refused.insert(path, format!("{reason}{kept}"));
                let Some(last) = last else { continue };
                last.clone()
            }
        };
        let name = (
            pod.pod.metadata.namespace.clone().unwrap_or_default(),
            pod.pod.metadata.name.clone().unwrap_or_default(),
        );
        let uid = pod.pod.metadata.uid.clone().unwrap_or_default();
        let same_name = by_name.get(&name).cloned();
        let same_uid = desired.pods.get(&uid).map(|pod| pod.file.clone());
        if let Some(first) = same_name.or(same_uid) {
            let reason = format!(
                "{}: pod {}/{} comes from {} already; remove one of the two files",
                pod.file.display(),
                name.0,
                name.1,
                first.display()
            );
            desired.refused.insert(pod.file, reason);
            continue;
        }
        by_name.insert(name, pod.file.clone());
        desired.pods.insert(uid.clone(), first_seen(pod, &uid, previous, seen));
    }
    desired
}

/// Reads one file.
fn read(bytes: &[u8], path: &std::path::Path, node_name: &str, now: Timestamp) -> Result<StaticPod, String> {
    let parsed = manifest::parse(bytes).map_err(|refusal| refusal.to_string())?;
    let missing = unsupported(&parsed.pod);
    if !missing.is_empty() {
        return Err(format!("this release of bulkhead cannot do: {}", missing.join(", ")));
    }
    let text = path.to_string_lossy();
    let source = StaticSource { origin: Origin::File(&text), node_name };
    let pod = make_static_pod(parsed.pod, &source, now);
    Ok(StaticPod { pod: Arc::new(pod), file: path.to_owned() })
}

/// Keeps the date at which a pod was first seen, and with it the very object if nothing else changed.
fn first_seen(
    mut pod: StaticPod,
    uid: &str,
    previous: &Desired,
    seen: &BTreeMap<String, Timestamp>,
) -> StaticPod {
    let earlier = previous.pods.get(uid);
    let date = earlier
        .and_then(|p| p.pod.metadata.annotations.as_ref()?.get(names::CONFIG_SEEN).cloned())
        .or_else(|| seen.get(uid).map(|at| format!("{at:.9}")));
    if let Some(date) = date {
        let object = Arc::make_mut(&mut pod.pod);
        object.metadata.annotations.get_or_insert_default().insert(names::CONFIG_SEEN.to_owned(), date);
    }
    match earlier {
        Some(earlier) if *earlier.pod == *pod.pod => StaticPod { pod: earlier.pod.clone(), file: pod.file },
        _ => pod,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str, text: &str) -> FileRead {
        FileRead { path: PathBuf::from("/m").join(name), content: Ok(text.as_bytes().to_vec()) }
    }

    fn pod(name: &str, image: &str) -> String {
        format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec: {{containers: [{{name: c, image: \"{image}\"}}]}}\n"
        )
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn images(desired: &Desired) -> Vec<String> {
        let image = |p: &StaticPod| p.pod.spec.as_ref().unwrap().containers[0].image.clone().unwrap();
        let mut images: Vec<_> = desired.pods.values().map(image).collect();
        images.sort();
        images
    }

    fn run(files: Vec<FileRead>, previous: &Desired) -> Desired {
        plan(files, previous, &BTreeMap::new(), "node-a", at(100))
    }

    #[test]
    fn the_first_of_two_files_with_one_pod_wins_until_it_is_gone() {
        let bak = || file("x.yaml.bak", &pod("x", "bb:1"));
        let both = run(vec![file("x.yaml", &pod("x", "bb:2")), bak()], &Desired::default());
        assert_eq!(images(&both), ["bb:2"]);
        let reason = &both.refused[&PathBuf::from("/m/x.yaml.bak")];
        assert!(reason.contains("/m/x.yaml.bak") && reason.contains("/m/x.yaml "), "{reason}");
        let one = run(vec![bak()], &both);
        assert_eq!(images(&one), ["bb:1"]);
        assert!(one.refused.is_empty());
    }

    #[test]
    fn a_file_that_broke_keeps_its_pod_and_disturbs_no_other() {
        let good = run(vec![file("a", &pod("a", "bb:1")), file("b", &pod("b", "bb:2"))], &Desired::default());
        let broken = run(vec![file("a", "apiVersion: v1\nki"), file("b", &pod("b", "bb:2"))], &good);
        assert_eq!(broken.pods, good.pods);
        assert!(broken.refused[&PathBuf::from("/m/a")].contains("goes on"));
        let never_good = run(vec![file("c", "{")], &Desired::default());
        assert!(never_good.pods.is_empty());
        assert_eq!(never_good.refused.len(), 1);
        let unreadable = FileRead { path: "/m/a".into(), content: Err("denied".into()) };
        assert_eq!(run(vec![unreadable], &good).pods.len(), 1, "only a file that is gone ends its pod");
    }

    #[test]
    fn an_unchanged_file_gives_the_very_same_pod_later_and_after_a_restart() {
        let first =
            plan(vec![file("a", &pod("a", "bb:1"))], &Desired::default(), &BTreeMap::new(), "n", at(1));
        let again = plan(vec![file("a", &pod("a", "bb:1"))], &first, &BTreeMap::new(), "n", at(2));
        assert!(Arc::ptr_eq(
            &first.pods.values().next().unwrap().pod,
            &again.pods.values().next().unwrap().pod
        ));
        let seen = first.pods.keys().map(|uid| (uid.clone(), at(1))).collect();
        let restarted = plan(vec![file("a", &pod("a", "bb:1"))], &Desired::default(), &seen, "n", at(9));
        assert_eq!(first.pods, restarted.pods);
        let changed = plan(vec![file("a", &pod("a", "bb:2"))], &first, &BTreeMap::new(), "n", at(3));
        assert_ne!(first.pods.keys().next(), changed.pods.keys().next(), "another manifest is another pod");
    }

    #[test]
    fn what_this_release_cannot_do_is_refused_by_name() {
        let text = pod("a", "bb:1").replace("spec: {", "spec: {runtimeClassName: kata, ");
        let desired = run(vec![file("a", &text)], &Desired::default());
        assert!(
            desired.refused[&PathBuf::from("/m/a")].contains("runtimeClassName"),
            "{:?}",
            desired.refused
        );
    }
}
