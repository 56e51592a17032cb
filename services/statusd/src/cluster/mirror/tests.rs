//! Copies that come, are told, are deleted by others and go, on a paused clock.

use std::sync::{Mutex, MutexGuard};

use bulkhead_api::common::v1::Part;
use bulkhead_ipc::Update;
use bulkhead_reconcile::{LoopStatus, drive, wake};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::fake::item;

#[derive(Clone, Default)]
struct Fake(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    pods: BTreeMap<String, Pod>,
    made: usize,
    deleted: usize,
    patches: Vec<Value>,
    fails: bool,
}

impl Fake {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    fn works(&self) -> Result<MutexGuard<'_, State>, ApiError> {
        let state = self.state();
        if state.fails {
            return Err(ApiError::Late { verb: "do", object: "anything".into() });
        }
        Ok(state)
    }

    fn seen(&self) -> (usize, usize, usize) {
        let state = self.state();
        (state.made, state.deleted, state.patches.len())
    }
}

impl PodApi for Fake {
    async fn get(&self, _: &str, name: &str) -> Result<Option<Pod>, ApiError> {
        let state = self.works()?;
        let (verb, object) = ("get", name.to_owned());
        // As Node authorization has it: of pods that are not there or not the node's it says only that.
        let foreign = ApiError::Refused { verb, object, code: 403, message: "no relationship found".into() };
        state.pods.get(name).cloned().map(Some).ok_or(foreign)
    }

    async fn create(&self, pod: &Pod) -> Result<Pod, ApiError> {
        let mut state = self.works()?;
        if state.pods.contains_key(pod.metadata.name.as_ref().unwrap()) {
            return Err(ApiError::Conflict("pod".into()));
        }
        state.made += 1;
        let mut pod = pod.clone();
        pod.metadata.uid = Some(format!("copy-{}", state.made));
        state.pods.insert(pod.metadata.name.clone().unwrap(), pod.clone());
        Ok(pod)
    }

    async fn delete(&self, _: &str, name: &str, uid: &str) -> Result<(), ApiError> {
        let mut state = self.works()?;
        state.deleted += 1;
        if state.pods.get(name).is_some_and(|pod| pod.metadata.uid.as_deref() == Some(uid)) {
            state.pods.remove(name);
        }
        Ok(())
    }

    async fn patch_status(&self, _: &str, name: &str, patch: &Value) -> Result<(), ApiError> {
        let mut state = self.works()?;
        if !state.pods.contains_key(name) {
            return Err(ApiError::NotFound("pod".into()));
        }
        state.patches.push(patch.clone());
        Ok(())
    }
}

struct Whole;

impl PodSource for Whole {
    async fn pods(&self) -> Result<BTreeMap<String, Pod>, tonic::Status> {
        let pod = |uid: &str| {
            let json = json!({
                "metadata": {
                    "name": format!("pod-{uid}"), "namespace": "default", "uid": uid,
                    "annotations": {"kubernetes.io/config.hash": uid},
                },
                "spec": {"containers": [{"name": "app"}]},
            });
            (uid.to_owned(), serde_json::from_value(json).unwrap())
        };
        Ok([pod("a"), pod("b")].into())
    }
}

struct Bench {
    api: Fake,
    views: Mirror<String, StatusItem>,
    existing: Mirror<String, MirrorPod>,
    statuses: Publisher<String, PodStatus>,
}

fn bench(existing: Option<Pod>) -> Bench {
    let api = Fake::default();
    if let Some(pod) = existing {
        api.state().pods.insert(pod.metadata.name.clone().unwrap(), pod);
    }
    let (views, existing) = (Mirror::detached(), Mirror::detached());
    let statuses = Publisher::new(CancellationToken::new());
    let (registered, known) = watch::channel(Some("node-uid".to_owned()));
    let mirrors = Mirrors::new(Parts {
        api: Arc::new(api.clone()),
        source: Whole,
        views: views.clone(),
        existing: existing.clone(),
        statuses: statuses.clone(),
        node: "node-a".into(),
        registered: known,
    });
    let (waker, wake) = wake();
    tokio::spawn(async move {
        let _kept = (waker, registered);
        drive(mirrors, wake, watch::Sender::new(LoopStatus::default()), std::future::pending()).await;
    });
    Bench { api, views, existing, statuses }
}

impl Bench {
    fn pods(&self, uids: &[&str], are_static: &[bool]) {
        let view = |(uid, is_static): (&&str, &bool)| {
            let mut item = item(uid);
            item.view.static_pod = *is_static;
            ((*uid).to_owned(), item)
        };
        let upserts = uids.iter().zip(are_static).map(view).collect();
        let epoch = "e".to_owned();
        self.views.apply(Update { epoch, generation: 1, part: Part::SnapshotEnd, upserts, removed: vec![] });
    }

    fn status(&self, uid: &str, version: u64) {
        let status_json = json!({"phase": "Running", "v": version}).to_string().into_bytes();
        let status = PodStatus { pod_uid: uid.into(), version, status_json, ..PodStatus::default() };
        self.statuses.upsert(uid.to_owned(), status);
    }
}

async fn after(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds) + Duration::from_millis(1)).await;
}

fn foreign(annotations: Value) -> Pod {
    let json = json!({"metadata": {"name": "pod-a", "uid": "theirs", "annotations": annotations}});
    serde_json::from_value(json).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_static_pod_has_a_copy_with_its_status_and_others_have_none() {
    let bench = bench(None);
    bench.pods(&["a", "b"], &[true, false]);
    bench.status("a", 1);
    bench.status("b", 1);
    after(10).await;
    assert_eq!(bench.api.seen(), (1, 0, 1));
    let copy = bench.api.state().pods["pod-a"].clone();
    let annotations = copy.metadata.annotations.unwrap();
    assert_eq!(annotations["kubernetes.io/config.mirror"], "a");
    let owner = &copy.metadata.owner_references.unwrap()[0];
    assert_eq!((owner.uid.as_str(), owner.controller), ("node-uid", Some(true)));
    let patch = bench.api.state().patches[0].clone();
    assert_eq!(patch["metadata"]["uid"], "copy-1");
    assert_eq!(patch["status"]["v"], 1);
    after(100).await;
    assert_eq!(bench.api.seen(), (1, 0, 1), "nothing changed");
    bench.status("a", 2);
    after(10).await;
    assert_eq!(bench.api.seen(), (1, 0, 2));
    bench.pods(&[], &[]);
    after(10).await;
    assert_eq!(bench.api.seen(), (1, 1, 2));
    assert!(bench.api.state().pods.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_copy_that_somebody_deletes_comes_back_and_is_told_everything() {
    let bench = bench(None);
    bench.pods(&["a"], &[true]);
    bench.status("a", 1);
    after(10).await;
    bench.api.state().pods.clear();
    bench.status("a", 2);
    after(20).await;
    assert_eq!(bench.api.seen(), (2, 0, 2), "found out by the status");
    bench.api.state().pods.clear();
    after(70).await;
    assert_eq!(bench.api.seen(), (3, 0, 3), "found out by a look");
}

#[tokio::test(start_paused = true)]
async fn copies_of_older_manifests_are_replaced_and_strangers_left_alone() {
    let older = bench(Some(foreign(json!({"kubernetes.io/config.mirror": "before"}))));
    older.pods(&["a"], &[true]);
    older.status("a", 1);
    after(20).await;
    assert_eq!(older.api.seen(), (1, 1, 1));
    let stranger = bench(Some(foreign(json!({}))));
    stranger.pods(&["a", "b"], &[true, true]);
    stranger.status("b", 1);
    after(60).await;
    assert_eq!(stranger.api.seen(), (1, 0, 1), "the other one is shown");
    // After a restart of this process the copy is known again.
    let again = bench(Some(foreign(json!({"kubernetes.io/config.mirror": "a"}))));
    again.pods(&["a"], &[true]);
    again.status("a", 7);
    after(10).await;
    assert_eq!(again.api.seen(), (0, 0, 1));
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_is_away_loses_nothing() {
    let bench = bench(None);
    bench.api.state().fails = true;
    bench.pods(&["a"], &[true]);
    bench.status("a", 1);
    after(60).await;
    bench.api.state().fails = false;
    after(10).await;
    assert_eq!(bench.api.seen(), (1, 0, 1));
    bench.api.state().fails = true;
    bench.pods(&[], &[]);
    after(60).await;
    bench.api.state().fails = false;
    after(10).await;
    assert!(bench.api.state().pods.is_empty());
}

#[tokio::test(start_paused = true)]
async fn copies_that_nobody_here_knows_go_and_so_do_those_that_somebody_deleted() {
    let bench = bench(None);
    bench.pods(&["a"], &[true]);
    bench.status("a", 1);
    after(11).await;
    let of = |uid: &str, static_uid: &str, deleting| {
        let (name, namespace) = (format!("pod-{static_uid}"), "default".to_owned());
        let mirror = MirrorPod { uid: uid.into(), namespace, name, static_uid: static_uid.into(), deleting };
        (uid.to_owned(), mirror)
    };
    let tell = |generation, upserts: Vec<(String, MirrorPod)>| {
        let removed = vec![];
        let epoch = "e".to_owned();
        bench.existing.apply(Update { epoch, generation, part: Part::SnapshotEnd, upserts, removed });
    };
    // One of a life before: its pod is not here any more.
    tell(1, vec![of("copy-1", "a", false), of("stray", "b", false)]);
    after(11).await;
    assert_eq!(bench.api.seen().1, 1, "the stray alone");
    // Somebody deletes the other one, which then waits for this node: it goes, and another one comes.
    tell(2, vec![of("copy-1", "a", true)]);
    after(11).await;
    tell(3, vec![of("copy-2", "a", false)]);
    after(11).await;
    let (made, deleted, _) = bench.api.seen();
    assert!(made == 2 && deleted >= 2, "{made} {deleted}");
}
