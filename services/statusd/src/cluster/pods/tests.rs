//! Statuses that are told, told anew, and the end of a pod, on a paused clock.

use std::sync::Mutex;

use bulkhead_api::common::v1::Part;
use bulkhead_ipc::Update;
use bulkhead_model::decision::Stage;
use bulkhead_reconcile::{LoopStatus, drive, wake};
use k8s_openapi::api::core::v1::Pod;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::fake::item;

#[derive(Clone, Default)]
struct Fake(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    /// The verb and what came with it.
    arrived: Vec<(&'static str, Value)>,
    /// What every call is answered; `None`: well.
    answer: Option<u16>,
}

impl Fake {
    fn take(&self) -> Vec<(&'static str, Value)> {
        std::mem::take(&mut self.0.lock().unwrap().arrived)
    }

    /// What every call is answered from now on; `None`: well.
    fn answer(&self, code: Option<u16>) {
        self.0.lock().unwrap().answer = code;
    }

    fn call(&self, verb: &'static str, body: Value) -> Result<(), ApiError> {
        let mut state = self.0.lock().unwrap();
        state.arrived.push((verb, body));
        match state.answer {
            None => Ok(()),
            Some(404) => Err(ApiError::NotFound("pod".into())),
            Some(code) => Err(ApiError::Refused { verb, object: "pod".into(), code, message: String::new() }),
        }
    }
}

impl PodApi for Fake {
    async fn get(&self, _: &str, _: &str) -> Result<Option<Pod>, ApiError> {
        unreachable!("nothing is read")
    }

    async fn create(&self, _: &Pod) -> Result<Pod, ApiError> {
        unreachable!("nothing is made")
    }

    async fn delete(&self, _: &str, _: &str, uid: &str) -> Result<(), ApiError> {
        self.call("delete", json!(uid))
    }

    async fn patch_status(&self, _: &str, _: &str, patch: &Value) -> Result<(), ApiError> {
        self.call("patch", patch.clone())
    }
}

struct Bench {
    api: Fake,
    views: Mirror<String, StatusItem>,
    statuses: Publisher<String, PodStatus>,
    versions: Mutex<u64>,
}

fn bench() -> Bench {
    let (api, views) = (Fake::default(), Mirror::detached());
    let statuses = Publisher::new(CancellationToken::new());
    let parts = Parts { api: Arc::new(api.clone()), views: views.clone(), statuses: statuses.clone() };
    let (waker, waiting) = wake();
    tokio::spawn(async move {
        let _kept = waker;
        drive(Pods::new(parts), waiting, watch::Sender::new(LoopStatus::default()), std::future::pending())
            .await;
    });
    Bench { api, views, statuses, versions: Mutex::new(0) }
}

impl Bench {
    fn view(&self, change: impl FnOnce(&mut StatusItem)) {
        let mut item = item("u");
        item.view.static_pod = false;
        change(&mut item);
        let update = Update {
            epoch: "e".to_owned(),
            generation: *self.versions.lock().unwrap() + 1,
            part: Part::SnapshotEnd,
            upserts: vec![("u".to_owned(), item)],
            removed: Vec::new(),
        };
        self.views.apply(update);
    }

    fn status(&self, status: &Value) {
        let mut version = self.versions.lock().unwrap();
        *version += 1;
        let status = PodStatus {
            pod_uid: "u".into(),
            name: "n".into(),
            namespace: "d".into(),
            version: *version,
            status_json: serde_json::to_vec(status).unwrap(),
        };
        self.statuses.upsert("u".into(), status);
    }

    async fn after(&self, seconds: u64) -> Vec<&'static str> {
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        self.api.take().into_iter().map(|(verb, _)| verb).collect()
    }
}

fn status(phase: &str, ready: &str) -> Value {
    json!({"phase": phase, "conditions": [{"type": "Ready", "status": ready}]})
}

#[tokio::test(start_paused = true)]
async fn a_status_is_told_once_and_again_when_others_wrote_over_it() {
    let bench = bench();
    bench.view(|item| item.view.conditions = [("Ready".to_owned(), "True".to_owned())].into());
    bench.status(&status("Running", "True"));
    assert_eq!(bench.after(11).await, ["patch"]);
    assert_eq!(bench.after(60).await, [""; 0], "nothing changed");
    bench.view(|item| item.view.conditions = [("Ready".to_owned(), "False".to_owned())].into());
    assert_eq!(bench.after(11).await, ["patch"], "the node was away for a while, and others said so");
}

#[tokio::test(start_paused = true)]
async fn a_deleted_pod_goes_when_its_final_status_was_taken_and_nothing_is_left() {
    let bench = bench();
    let deleting = |cleared| {
        bench.view(|item| {
            item.view.deleting = true;
            item.decision.cleared = cleared;
            item.decision.stage = Stage::Terminated;
        });
    };
    deleting(false);
    bench.status(&status("Failed", "False"));
    assert_eq!(bench.after(6).await, ["patch"], "its volumes may still be mounted");
    deleting(true);
    bench.status(&status("Running", "False"));
    bench.api.take();
    assert_eq!(bench.after(11).await, ["patch"], "not before the status is final");
    bench.api.answer(Some(503));
    bench.status(&status("Succeeded", "False"));
    let tries = bench.after(30).await;
    assert!(
        !tries.is_empty() && tries.iter().all(|verb| *verb == "patch"),
        "{tries:?}: not before it was taken"
    );
    bench.api.answer(None);
    assert_eq!(bench.after(11).await, ["patch", "delete"]);
    assert_eq!(bench.after(60).await, [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_not_there_is_left_alone() {
    let bench = bench();
    bench.view(|item| item.view.deleting = true);
    bench.api.answer(Some(404));
    bench.status(&status("Running", "True"));
    assert_eq!(bench.after(30).await, ["patch"]);
}

#[tokio::test(start_paused = true)]
async fn static_pods_are_not_told_here() {
    let bench = bench();
    bench.view(|item| item.view.static_pod = true);
    bench.status(&status("Running", "True"));
    assert_eq!(bench.after(30).await, [""; 0]);
}

#[test]
fn a_patch_takes_the_place_of_what_it_does_not_name() {
    let of = |status: Value| patch("u", status, &BTreeMap::new())["status"].clone();
    let gone = of(json!({"phase": "Pending"}));
    for field in CLEARED {
        assert_eq!(gone.get(field), Some(&Value::Null), "{field}");
    }
    let there = of(json!({"reason": "Evicted", "podIP": "10.0.0.2", "podIPs": [{"ip": "10.0.0.2"}]}));
    assert_eq!(there["reason"], "Evicted");
    assert_eq!(there["podIPs"], json!([{"$patch": "replace"}, {"ip": "10.0.0.2"}]));
    let conditions = of(json!({"conditions": [{"type": "Ready", "status": "True", "reason": "x"}]}));
    let expected = json!({"type": "Ready", "status": "True", "reason": "x", "message": null});
    assert_eq!(conditions["conditions"][0], expected);
    assert_eq!(patch("u", json!({}), &BTreeMap::new())["metadata"]["uid"], "u");
}

#[test]
fn conditions_that_pass_are_taken_away_again() {
    let there = |types: &[&str]| types.iter().map(|type_| ((*type_).to_owned(), "True".to_owned())).collect();
    let status = |types: &[&str]| json!({"conditions": types.iter().map(|type_| json!({"type": type_, "status": "True"})).collect::<Vec<_>>()});
    let table: [(&[&str], &[&str], &[&str]); 4] = [
        (&[], &["Ready"], &[]),
        (&["Ready"], &["Ready"], &["PodResizePending", "PodResizeInProgress"]),
        (&["Ready", "PodResizePending"], &["Ready", "PodResizePending"], &["PodResizeInProgress"]),
        (&["Ready", "PodResizePending"], &["Ready", "PodResizeInProgress"], &["PodResizePending"]),
    ];
    for (known, told, deleted) in table {
        let patched = patch("u", status(told), &there(known));
        let all = patched["status"]["conditions"].as_array().unwrap();
        let gone: Vec<_> =
            all.iter().filter(|c| c["$patch"] == "delete").map(|c| c["type"].as_str().unwrap()).collect();
        assert_eq!(gone, deleted, "{known:?} {told:?}");
        let stays = known.contains(&"PodResizePending") && !told.contains(&"PodResizePending");
        assert_eq!(
            differs(&there(known), &status(&["Ready"])),
            known.contains(&"PodResizePending") || known.is_empty()
        );
        assert!(!stays || differs(&there(known), &status(told)));
    }
}
