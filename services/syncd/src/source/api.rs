//! The API server: the pods that are bound to this node.
//!
//! Owns the watch on them. A node that lost it goes on with what it knew. Must never start what is a mere copy of a static
//! pod, nor call a pod gone before the whole list was read.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bulkhead_api::syncd::v1::MirrorPod;
use bulkhead_base::{Clock, chain};
use bulkhead_ipc::Publisher;
use bulkhead_ipc::said::Said;
use bulkhead_kubeapi::{News, quiet};
use bulkhead_model::names;
use bulkhead_model::phase::Phase;
use bulkhead_model::spec;
use bulkhead_reconcile::at;
use bulkhead_service::{Check, StateFile};
use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::Board;
use super::plan::{Found, Kind, Place, SourcedPod};

/// Pods that are gone whose last word is kept: by then their workers have long heard it.
const GONE: usize = 256;
/// How often the same trouble is said again.
const SAY_AGAIN: Duration = Duration::from_secs(60);
/// How long the first list may take, before pods go on as an earlier life knew them.
const SILENCE: Duration = Duration::from_secs(10);
/// How long changes are gathered before they are kept.
const SAVE: Duration = Duration::from_secs(5);
/// What was last known, in the process' own folder.
const FILE: &str = "api-pods.json";
const VERSION: u32 = 1;

/// What to follow.
pub struct FollowApi {
    /// Over apigate.
    pub client: Client,
    /// Name of the node.
    pub node_name: String,
    /// Where it is told.
    pub board: Board,
    /// Where copies of static pods are told.
    pub mirrors: Publisher<String, MirrorPod>,
    /// The wall clock.
    pub clock: Arc<dyn Clock>,
    /// Says whether the watch stands.
    pub check: Check,
}

impl FollowApi {
    /// Follows it until `shutdown`. Until it was read once, nobody waits for it. What it told an earlier life is kept in `dir`;
    /// after a while without an answer, those of it that ran here (`ran` knows by UID) go on.
    pub fn spawn(self, dir: &Path, ran: impl Fn(&str) -> bool, shutdown: CancellationToken) {
        let file: StateFile<Vec<Pod>> = StateFile::new(dir, FILE, VERSION);
        let kept = file.load_or_log("pods of the API server that run are left alone until it answers");
        let kept =
            kept.unwrap_or_default().into_iter().filter_map(|pod| Some((pod.metadata.uid.clone()?, pod)));
        let kept = kept.filter(|(uid, _)| ran(uid)).map(|(uid, pod)| (uid, Arc::new(pod)));
        let pods = Pods { known: kept.collect(), ..Pods::default() };
        self.board.unread(Kind::Api);
        self.check.bad("the API server has not told its pods yet");
        tokio::spawn(async move { shutdown.run_until_cancelled(self.follow(pods, file)).await });
    }

    async fn follow(self, mut pods: Pods, file: StateFile<Vec<Pod>>) {
        let config = watcher::Config::default().fields(&format!("spec.nodeName={}", self.node_name));
        let api: Api<Pod> = Api::all(self.client);
        let events = bulkhead_kubeapi::watch(api, config);
        let mut events = std::pin::pin!(events);
        let said = Said::every(SAY_AGAIN);
        let (mut silent, mut save_at) = (Some(Instant::now() + SILENCE), None);
        loop {
            // All arms are cancel-safe.
            let event = tokio::select! {
                event = events.next() => event,
                () = at(silent) => {
                    silent = None;
                    if !pods.known.is_empty() {
                        tracing::warn!("the API server does not answer: its pods go on as an earlier life knew them");
                    }
                    self.board.kept(Kind::Api, pods.found());
                    continue;
                }
                () = at(save_at) => {
                    save_at = None;
                    save(&file, &pods).await;
                    continue;
                }
            };
            match event {
                Some(News::Event(event)) => {
                    if pods.take(event, self.clock.now()) {
                        silent = None;
                        save_at = save_at.or(Some(Instant::now() + SAVE));
                        self.board.read(Kind::Api, pods.found());
                        self.mirrors.replace(pods.mirrors.clone());
                        self.mirrors.open();
                        self.check.good();
                    }
                }
                // What was not read at all is not well because it is quiet.
                Some(News::Calm) if pods.complete => self.check.good(),
                Some(News::Calm) => {}
                Some(News::Trouble(error)) => {
                    let error = quiet::watch_reason(&error);
                    if said.is_news(&error, Instant::now()) {
                        tracing::warn!(
                            error,
                            "the API server's pods are not followed; they go on as it last told them"
                        );
                    }
                    self.check.bad(format!("pods of the API server are not followed: {error}"));
                }
                // A watch has no end.
                None => return,
            }
        }
    }
}

/// Keeps what is known for the next life. A disk that does not take it costs nothing but that.
async fn save(file: &StateFile<Vec<Pod>>, pods: &Pods) {
    let (file, pods): (_, Vec<_>) = (file.clone(), pods.known.values().cloned().collect());
    let saved = tokio::task::spawn_blocking(move || {
        let pods: Vec<Pod> = pods.iter().map(|pod| Pod::clone(pod)).collect();
        file.save(&pods)
    });
    if let Ok(Err(error)) = saved.await {
        tracing::warn!(error = %chain(&error), "pods of the API server are not kept for a restart without it");
    }
}

/// What the watch has told. Pure.
#[derive(Debug, Default)]
struct Pods {
    /// By UID.
    known: BTreeMap<String, Arc<Pod>>,
    /// While a list is being read: what it has told so far.
    listed: Option<Listed>,
    /// Pods that are gone, the oldest first.
    gone: VecDeque<Arc<Pod>>,
    /// Copies of static pods, by their own UID.
    mirrors: BTreeMap<String, MirrorPod>,
    /// A whole list was read.
    complete: bool,
}

/// A list as far as it was read: pods and copies of static ones, by UID.
type Listed = (BTreeMap<String, Arc<Pod>>, BTreeMap<String, MirrorPod>);

impl Pods {
    /// Whether there is anything new to tell.
    fn take(&mut self, event: Event<Pod>, now: Timestamp) -> bool {
        match event {
            Event::Init => {
                self.listed = Some(Default::default());
                false
            }
            Event::InitApply(pod) => {
                if let Some((known, mirrors)) = &mut self.listed {
                    match taken(pod, now) {
                        Some(Taken::Pod(uid, pod)) => drop(known.insert(uid, pod)),
                        Some(Taken::Mirror(mirror)) => drop(mirrors.insert(mirror.uid.clone(), mirror)),
                        None => {}
                    }
                }
                false
            }
            Event::InitDone => {
                (self.known, self.mirrors) = self.listed.take().unwrap_or_default();
                self.complete = true;
                true
            }
            Event::Apply(pod) => {
                match taken(pod, now) {
                    Some(Taken::Pod(uid, pod)) => drop(self.known.insert(uid, pod)),
                    Some(Taken::Mirror(mirror)) => drop(self.mirrors.insert(mirror.uid.clone(), mirror)),
                    None => return false,
                }
                self.complete
            }
            Event::Delete(pod) => {
                match taken(pod, now) {
                    Some(Taken::Pod(uid, pod)) => {
                        if self.known.remove(&uid).is_none() {
                            return false;
                        }
                        self.gone.push_back(pod);
                        if self.gone.len() > GONE {
                            self.gone.pop_front();
                        }
                    }
                    Some(Taken::Mirror(mirror)) => drop(self.mirrors.remove(&mirror.uid)),
                    None => return false,
                }
                self.complete
            }
        }
    }

    fn found(&self) -> Found {
        let place = |pod: &Pod| {
            let text = |value: &Option<String>| value.clone().unwrap_or_default();
            let (namespace, name) = (text(&pod.metadata.namespace), text(&pod.metadata.name));
            Place { kind: Kind::Api, name: format!("the API server, pod {namespace}/{name}") }
        };
        let pods = self.known.values().map(|pod| SourcedPod { pod: pod.clone(), place: place(pod) });
        let gone = self.gone.iter().filter_map(|pod| Some((pod.metadata.uid.clone()?, pod.clone())));
        Found { pods: pods.collect(), refused: BTreeMap::new(), gone: gone.collect() }
    }
}

/// A pod as it is kept.
enum Taken {
    /// One to run, by UID.
    Pod(String, Arc<Pod>),
    /// A mere copy of a static pod.
    Mirror(MirrorPod),
}

/// What a pod is to this source; `None` for one that cannot be told from others.
fn taken(mut pod: Pod, now: Timestamp) -> Option<Taken> {
    let uid = pod.metadata.uid.clone().filter(|uid| !uid.is_empty())?;
    let deleting = spec::is_deleting(&pod);
    let annotations = pod.metadata.annotations.get_or_insert_default();
    if let Some(static_uid) = annotations.get(names::CONFIG_MIRROR) {
        return Some(Taken::Mirror(MirrorPod {
            uid,
            namespace: pod.metadata.namespace.clone().unwrap_or_default(),
            name: pod.metadata.name.clone().unwrap_or_default(),
            static_uid: static_uid.clone(),
            deleting,
        }));
    }
    annotations.insert(names::CONFIG_SOURCE.to_owned(), "api".to_owned());
    annotations.insert(names::CONFIG_SEEN.to_owned(), format!("{now:.9}"));
    // What changes with every write, and nobody here reads.
    pod.metadata.managed_fields = None;
    pod.metadata.resource_version = None;
    pod.status = pod.status.map(kept);
    Some(Taken::Pod(uid, Arc::new(pod)))
}

/// What is kept of a status that this node writes itself: a final phase, and what conditions say. A change of nothing else
/// of it is no change of the pod.
fn kept(status: PodStatus) -> PodStatus {
    let is_final = |phase: &String| Phase::parse(phase).is_some_and(Phase::is_final);
    let mut conditions = status.conditions;
    for condition in conditions.iter_mut().flatten() {
        condition.last_probe_time = None;
        condition.last_transition_time = None;
        condition.message = None;
        condition.reason = None;
        condition.observed_generation = None;
    }
    PodStatus { phase: status.phase.filter(is_final), conditions, ..PodStatus::default() }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(uid: &str, more: Value) -> Pod {
        let mut json =
            json!({"metadata": {"uid": uid, "name": uid, "namespace": "d", "resourceVersion": "7"}});
        let metadata = json["metadata"].as_object_mut().unwrap();
        metadata.extend(more.as_object().unwrap().clone());
        serde_json::from_value(json).unwrap()
    }

    fn whole(pod: Pod) -> Arc<Pod> {
        match taken(pod, Timestamp::UNIX_EPOCH) {
            Some(Taken::Pod(_, pod)) => pod,
            _ => panic!("no pod"),
        }
    }

    fn uids(pods: &Pods) -> Vec<String> {
        pods.found().pods.iter().filter_map(|pod| pod.pod.metadata.uid.clone()).collect()
    }

    #[test]
    fn nothing_is_told_before_a_whole_list_and_a_new_list_takes_the_place_of_the_old_one() {
        let (mut pods, now) = (Pods::default(), Timestamp::UNIX_EPOCH);
        assert!(!pods.take(Event::Init, now));
        assert!(!pods.take(Event::InitApply(pod("a", json!({}))), now));
        assert_eq!(uids(&pods), [""; 0], "half a list");
        assert!(pods.take(Event::InitDone, now));
        assert!(pods.take(Event::Apply(pod("b", json!({}))), now));
        assert_eq!(uids(&pods), ["a", "b"]);
        pods.take(Event::Init, now);
        pods.take(Event::InitApply(pod("c", json!({}))), now);
        assert_eq!(uids(&pods), ["a", "b"], "while it is read anew");
        assert!(pods.take(Event::InitDone, now));
        assert_eq!(uids(&pods), ["c"]);
    }

    #[test]
    fn the_last_word_on_a_pod_is_kept_and_bounded() {
        let (mut pods, now) = (Pods::default(), Timestamp::UNIX_EPOCH);
        pods.take(Event::Init, now);
        pods.take(Event::InitDone, now);
        for number in 0..GONE + 10 {
            let uid = number.to_string();
            pods.take(Event::Apply(pod(&uid, json!({}))), now);
            let last = pod(&uid, json!({"deletionGracePeriodSeconds": 0}));
            assert!(pods.take(Event::Delete(last), now));
        }
        let found = pods.found();
        assert_eq!((found.pods.len(), found.gone.len()), (0, GONE));
        let newest = &found.gone[&(GONE + 9).to_string()];
        assert_eq!(newest.metadata.deletion_grace_period_seconds, Some(0));
        assert!(!pods.take(Event::Delete(pod("nobody", json!({}))), now));
    }

    #[test]
    fn copies_of_static_pods_are_not_pods_of_the_api() {
        let (mut pods, now) = (Pods::default(), Timestamp::UNIX_EPOCH);
        pods.take(Event::Init, now);
        let mirror = pod("m", json!({"annotations": {names::CONFIG_MIRROR: "hash"}}));
        pods.take(Event::InitApply(mirror.clone()), now);
        pods.take(Event::InitDone, now);
        assert_eq!(uids(&pods), [""; 0]);
        assert_eq!((pods.mirrors["m"].static_uid.as_str(), pods.mirrors["m"].deleting), ("hash", false));
        let deleting = pod(
            "m",
            json!({"annotations": {names::CONFIG_MIRROR: "hash"}, "deletionTimestamp": "2026-01-02T03:04:05Z"}),
        );
        pods.take(Event::Apply(deleting), now);
        assert!(pods.mirrors["m"].deleting && uids(&pods).is_empty());
        pods.take(Event::Delete(mirror), now);
        assert!(pods.mirrors.is_empty() && pods.found().gone.is_empty());
    }

    #[test]
    fn what_this_node_writes_itself_is_no_change_of_the_pod() {
        let status = |message: &str, ready: &str| {
            let mut pod =
                pod("a", json!({"resourceVersion": message, "managedFields": [{"manager": message}]}));
            let status = json!({"phase": "Running", "podIP": message, "conditions": [
                {"type": "Ready", "status": ready, "message": message, "lastTransitionTime": "2026-01-02T03:04:05Z"}
            ]});
            pod.status = serde_json::from_value(status).unwrap();
            whole(pod)
        };
        assert_eq!(status("1", "True"), status("2", "True"));
        assert_ne!(status("1", "True"), status("1", "False"));
        let phase = |phase: &str| {
            let mut pod = pod("a", json!({}));
            pod.status = Some(PodStatus { phase: Some(phase.to_owned()), ..PodStatus::default() });
            whole(pod).status.clone().unwrap().phase
        };
        assert_eq!((phase("Running"), phase("Failed")), (None, Some("Failed".to_owned())));
    }
}
