//! Pods that somebody at this node submitted by hand. Kept until they are deleted: over restarts of this process and of the
//! node.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use bulkhead_base::{Clock, chain};
use bulkhead_cgroup::PodUid;
use bulkhead_ipc::status::Coded;
use bulkhead_model::manifest::{self, Item as Read};
use bulkhead_model::static_pod::{Origin, StaticSource};
use bulkhead_service::{StateFile, StateFileError};
use k8s_openapi::api::core::v1::Pod;
use tokio::sync::Mutex;
use tonic::Code;

use super::Board;
use super::plan::{Found, Item, Kind, Place, Reading, keep, take};
use crate::plan::full_name;

/// Most pods that are kept. A node runs 110 by default.
const MOST: usize = 256;
/// Most bytes that are kept, as JSON.
const BYTES: usize = 16 << 20;
const FILE: &str = "submitted.json";
const VERSION: u32 = 1;

/// By namespace and name as written: the manifest's pod.
type Manifests = BTreeMap<(String, String), Pod>;

/// The submitted pods.
pub struct Submissions {
    board: Board,
    node_name: String,
    clock: Arc<dyn Clock>,
    file: StateFile<Vec<Pod>>,
    /// Held over a change until it is on disk.
    kept: Mutex<Manifests>,
}

/// What became of a submitted pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Submitted {
    /// Its namespace.
    pub namespace: String,
    /// Its name on this node.
    pub name: String,
    /// What its submission changed.
    pub change: Change,
}

/// What a submission changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// There was none of this name.
    Created,
    /// The one of this name ends, and this one starts after it.
    Replaced,
    /// It is there already, just as submitted.
    Nothing,
}

/// Why a submission or deletion was refused. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum SubmitError {
    /// Not to be read.
    #[error("{0}")]
    Unreadable(String),
    /// A pod that cannot be run.
    #[error("pod {name}: {reason}")]
    Refused {
        /// Which one.
        name: String,
        /// Why.
        reason: String,
    },
    /// No pod in it.
    #[error("there is no pod in it")]
    Empty,
    /// Another source has it.
    #[error("pod {name} comes from {place}: {advice}")]
    Elsewhere {
        /// Which one.
        name: String,
        /// Where it comes from.
        place: String,
        /// What to do.
        advice: &'static str,
    },
    /// Too many.
    #[error("at most {MOST} pods, and {BYTES} bytes of them, can be submitted: delete some")]
    TooMany,
    /// The sources were not read yet.
    #[error("the pod sources were not read yet")]
    NotYet,
    /// The disk did not take it.
    #[error("the pods cannot be kept")]
    Disk(#[from] StateFileError),
}

impl Coded for SubmitError {
    fn code(&self) -> Code {
        match self {
            Self::Unreadable(_) | Self::Refused { .. } | Self::Empty => Code::InvalidArgument,
            Self::Elsewhere { .. } | Self::TooMany => Code::FailedPrecondition,
            Self::NotYet | Self::Disk(_) => Code::Unavailable,
        }
    }
}

impl Submissions {
    /// What was kept in `dir`, told to the board at once.
    pub fn open(dir: &Path, board: Board, node_name: String, clock: Arc<dyn Clock>) -> Self {
        let file: StateFile<Vec<Pod>> = StateFile::new(dir, FILE, VERSION);
        let pods = file.load_or_log("pods that were submitted by hand are ended; submit them again");
        let key = |pod: Pod| (key(&pod), pod);
        let kept: Manifests = pods.unwrap_or_default().into_iter().map(key).collect();
        let this = Self { board, node_name, clock, file, kept: Mutex::default() };
        this.tell(&kept);
        Self { kept: Mutex::new(kept), ..this }
    }

    /// Takes a Pod, or a list of them, as YAML or JSON: all or none. Returns once they are kept. One that is submitted again is
    /// replaced where it differs.
    ///
    /// # Errors
    /// When one of them cannot be run, when another source has it, or when they cannot be kept.
    pub async fn submit(&self, bytes: &[u8]) -> Result<Vec<Submitted>, SubmitError> {
        let items =
            manifest::parse_all(bytes).map_err(|refusal| SubmitError::Unreadable(refusal.to_string()))?;
        if items.is_empty() {
            return Err(SubmitError::Empty);
        }
        let mut new = Manifests::new();
        for item in items {
            let pod = self.check(item)?;
            let (namespace, name) = key(&pod);
            if new.insert((namespace.clone(), name.clone()), pod).is_some() {
                let name = format!("{namespace}/{name}");
                return Err(SubmitError::Refused { name, reason: "it comes twice".to_owned() });
            }
        }
        let mut kept = self.kept.lock().await;
        let mut next = kept.clone();
        let mut done = Vec::new();
        for (key, pod) in new {
            let change = match next.get(&key) {
                None => Change::Created,
                Some(old) if *old == pod => Change::Nothing,
                Some(_) => Change::Replaced,
            };
            done.push(Submitted { name: self.on_node(&key.1), namespace: key.0.clone(), change });
            next.insert(key, pod);
        }
        if done.iter().any(|pod| pod.change != Change::Nothing) {
            self.replace(&mut kept, next).await?;
        }
        Ok(done)
    }

    /// Forgets a pod, by its name with or without the node's; it is ended within its grace period. Whether there was one.
    ///
    /// # Errors
    /// When another source has it, or the change cannot be kept.
    pub async fn delete(&self, namespace: &str, name: &str) -> Result<bool, SubmitError> {
        let mut kept = self.kept.lock().await;
        let found = kept.keys().find(|(ns, own)| ns == namespace && self.on_node(own) == name);
        let short = || kept.keys().find(|(ns, own)| ns == namespace && own == name);
        let Some(found) = found.or_else(short).cloned() else {
            let names = [name.to_owned(), self.on_node(name)];
            let place = names.iter().find_map(|name| self.elsewhere(namespace, name));
            return match place {
                Some(place) => Err(SubmitError::Elsewhere {
                    name: format!("{namespace}/{name}"),
                    place,
                    advice: "it ends when it is taken away there",
                }),
                None => Ok(false),
            };
        };
        let mut next = kept.clone();
        next.remove(&found);
        self.replace(&mut kept, next).await?;
        Ok(true)
    }

    /// The manifest's pod, as it was written, if it can be run here.
    fn check(&self, item: Read) -> Result<Pod, SubmitError> {
        let name = item
            .name
            .as_ref()
            .map_or_else(|| "without a name".to_owned(), |(ns, name)| format!("{ns}/{name}"));
        let refused = |reason: String| SubmitError::Refused { name: name.clone(), reason };
        let manifest = item.manifest.map_err(|refusal| refused(refusal.to_string()))?;
        let written = manifest.pod.clone();
        let pod = take(Ok(manifest), &self.source(), self.clock.now()).map_err(refused)?;
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        if PodUid::parse(&uid).is_err() {
            return Err(refused("its UID can be no folder's name".to_owned()));
        }
        let desired = self.board.desired().ok_or(SubmitError::NotYet)?;
        let (namespace, own) = full_name(&pod);
        let same_uid =
            desired.pods.get(&uid).filter(|other| full_name(&other.pod) != (namespace.clone(), own.clone()));
        let place =
            same_uid.map(|other| other.place.to_string()).or_else(|| self.elsewhere(&namespace, &own));
        match place {
            Some(place) => Err(SubmitError::Elsewhere {
                name,
                place,
                advice: "change it there, or give this one another name",
            }),
            None => Ok(written),
        }
    }

    /// The other source that a pod comes from.
    fn elsewhere(&self, namespace: &str, name: &str) -> Option<String> {
        let desired = self.board.desired()?;
        let found = desired.pods.values().find(|pod| {
            let (ns, own) = full_name(&pod.pod);
            (ns.as_str(), own.as_str()) == (namespace, name) && pod.place.kind != Kind::Submission
        });
        found.map(|pod| pod.place.to_string())
    }

    async fn replace(&self, kept: &mut Manifests, next: Manifests) -> Result<(), SubmitError> {
        let pods: Vec<Pod> = next.values().cloned().collect();
        let bytes: usize = pods.iter().map(|pod| serde_json::to_vec(pod).map_or(0, |json| json.len())).sum();
        // What was taken before can always be taken away.
        if next.len() > kept.len().max(MOST) || (bytes > BYTES && next.len() >= kept.len()) {
            return Err(SubmitError::TooMany);
        }
        let file = self.file.clone();
        // First on disk: what was taken is never forgotten.
        if let Ok(saved) = tokio::task::spawn_blocking(move || file.save(&pods)).await {
            saved?;
        }
        self.tell(&next);
        *kept = next;
        Ok(())
    }

    /// Checked again each time: a later release may know more.
    fn tell(&self, kept: &Manifests) {
        let item = |((namespace, name), pod): (&(String, String), &Pod)| {
            let json = serde_json::to_vec(pod).map_err(|error| chain(&error).to_string());
            let taken = json.and_then(|json| take(manifest::parse(&json), &self.source(), self.clock.now()));
            Item {
                place: Place { kind: Kind::Submission, name: format!("submitted pod {namespace}/{name}") },
                pod: taken,
            }
        };
        let reading = Reading { items: kept.iter().map(item).collect(), complete: true };
        self.board.read(Kind::Submission, keep(reading, &Found::default()));
    }

    fn source(&self) -> StaticSource<'_> {
        StaticSource { origin: Origin::Submission, node_name: &self.node_name }
    }

    /// As [`bulkhead_model::static_pod::make_static_pod`] names it.
    fn on_node(&self, name: &str) -> String {
        format!("{name}-{}", self.node_name.to_lowercase())
    }
}

fn key(pod: &Pod) -> (String, String) {
    let (namespace, name) = full_name(pod);
    (if namespace.is_empty() { "default".to_owned() } else { namespace }, name)
}

#[cfg(test)]
mod tests {
    use bulkhead_base::SystemClock;

    use super::*;

    fn board() -> Board {
        Board::new([Kind::File, Kind::Submission], BTreeMap::new())
    }

    fn open(dir: &Path, board: &Board) -> Submissions {
        Submissions::open(dir, board.clone(), "node-a".to_owned(), Arc::new(SystemClock))
    }

    fn pod(name: &str, image: &str) -> String {
        format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}}}, spec: {{containers: [{{name: c, image: \"{image}\", \
             resources: {{limits: {{memory: 0.5Gi}}}}}}]}}}}"
        )
    }

    fn uids(board: &Board) -> Vec<String> {
        let desired = board.desired().unwrap();
        assert!(desired.refused.is_empty(), "{:?}", desired.refused);
        desired.pods.keys().cloned().collect()
    }

    async fn change(submissions: &Submissions, text: &str) -> Change {
        submissions.submit(text.as_bytes()).await.unwrap()[0].change
    }

    #[tokio::test]
    async fn submitted_pods_are_kept_replaced_and_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        let board = board();
        let submissions = open(dir.path(), &board);
        let early = submissions.submit(pod("a", "bb:1").as_bytes()).await.unwrap_err();
        assert!(matches!(early, SubmitError::NotYet), "a file may have it");
        board.read(Kind::File, Found::default());
        assert_eq!(change(&submissions, &pod("a", "bb:1")).await, Change::Created);
        let first = uids(&board);
        assert_eq!(change(&submissions, &pod("a", "bb:1")).await, Change::Nothing);
        assert_eq!(uids(&board), first);
        let later = self::board();
        later.read(Kind::File, Found::default());
        let after_restart = open(dir.path(), &later);
        assert_eq!(uids(&later), first, "the same pod in the next life");
        assert_eq!(change(&after_restart, &pod("a", "bb:2")).await, Change::Replaced);
        assert_ne!(uids(&later), first, "a changed manifest is another pod");
        assert!(!after_restart.delete("default", "b").await.unwrap());
        assert!(after_restart.delete("default", "a-node-a").await.unwrap());
        assert!(uids(&later).is_empty());
        assert!(!after_restart.delete("default", "a").await.unwrap(), "a second time");
        assert!(open(dir.path(), &self::board()).kept.lock().await.is_empty());
    }

    #[tokio::test]
    async fn a_list_is_taken_whole_or_not_at_all() {
        let dir = tempfile::tempdir().unwrap();
        let board = board();
        board.read(Kind::File, Found::default());
        let submissions = open(dir.path(), &board);
        let list = |pods: &[String]| format!("{{apiVersion: v1, kind: List, items: [{}]}}", pods.join(", "));
        let kata = pod("b", "bb:1").replace("spec: {", "spec: {runtimeClassName: kata, ");
        for (text, part) in [
            (
                list(&[
                    pod("a", "bb:1"),
                    "{kind: Pod, apiVersion: v1, metadata: {name: b}, spec: {}}".into(),
                ]),
                "pod default/b: line 1",
            ),
            (list(&[pod("a", "bb:1"), pod("a", "bb:2")]), "twice"),
            (list(&[pod("a", "bb:1"), kata]), "runtimeClassName"),
            (
                list(&[pod("a", "bb:1"), pod("b", "bb:1").replace("{name: b}", "{name: b, uid: a/b}")]),
                "pod default/b",
            ),
            (list(&[]), "no pod"),
            ("kind: Service".into(), "Service"),
        ] {
            let error = submissions.submit(text.as_bytes()).await.unwrap_err();
            assert!(error.to_string().contains(part), "{error}");
            assert_eq!(error.code(), Code::InvalidArgument, "{error}");
            assert!(uids(&board).is_empty());
        }
        assert_eq!(
            submissions.submit(list(&[pod("a", "bb:1"), pod("b", "bb:1")]).as_bytes()).await.unwrap().len(),
            2
        );
        assert_eq!(uids(&board).len(), 2);
    }

    #[tokio::test]
    async fn what_another_source_has_is_left_to_it() {
        let dir = tempfile::tempdir().unwrap();
        let board = board();
        let submissions = open(dir.path(), &board);
        let source = StaticSource { origin: Origin::File("/m/a"), node_name: "node-a" };
        let of_file = take(manifest::parse(pod("a", "bb:1").as_bytes()), &source, SystemClock.now());
        let place = Place { kind: Kind::File, name: "/m/a".to_owned() };
        let reading = Reading { items: vec![Item { place, pod: of_file }], complete: true };
        board.read(Kind::File, keep(reading, &Found::default()));
        let error = submissions.submit(pod("a", "bb:2").as_bytes()).await.unwrap_err();
        assert!(error.to_string().contains("/m/a"), "{error}");
        assert_eq!(error.code(), Code::FailedPrecondition);
        for name in ["a", "a-node-a"] {
            let error = submissions.delete("default", name).await.unwrap_err();
            assert!(error.to_string().contains("comes from /m/a"), "{error}");
        }
        assert!(!submissions.delete("other", "a").await.unwrap());
    }

    #[tokio::test]
    async fn there_is_an_end_to_how_many_and_a_disk_that_fails_changes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let board = board();
        board.read(Kind::File, Found::default());
        let submissions = open(dir.path(), &board);
        let pods: Vec<_> = (0..MOST).map(|n| pod(&format!("p{n}"), "bb:1")).collect();
        let all = format!("{{apiVersion: v1, kind: List, items: [{}]}}", pods.join(", "));
        assert_eq!(submissions.submit(all.as_bytes()).await.unwrap().len(), MOST);
        let error = submissions.submit(pod("more", "bb:1").as_bytes()).await.unwrap_err();
        assert!(matches!(error, SubmitError::TooMany), "{error}");
        assert!(submissions.delete("default", "p7").await.unwrap());
        std::fs::create_dir(dir.path().join("submitted.json.new")).unwrap();
        let error = submissions.submit(pod("more", "bb:1").as_bytes()).await.unwrap_err();
        assert!(matches!(error, SubmitError::Disk(_)), "{error}");
        assert!(submissions.delete("default", "p8").await.is_err());
        assert_eq!(uids(&board).len(), MOST - 1);
    }
}
