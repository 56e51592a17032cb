//! Correlation by tables, and the task against an API server in memory on a paused clock.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bulkhead_model::event;
use bulkhead_service::Metrics;
use k8s_openapi::api::core::v1::Event as Object;
use proptest::prelude::*;
use serde_json::Value;

use super::api::EventApi;
use super::correlate::Correlator;
use super::tokens::Rate;
use super::*;
use crate::cluster::ApiError;
use crate::fake::at;

fn of(pod: &str, event: Event, second: i64) -> Happened {
    let regarding = Regarding::Pod {
        uid: format!("uid-{pod}"),
        namespace: "default".into(),
        name: pod.into(),
        field_path: "spec.containers{c}".into(),
    };
    Happened { regarding, event, at: at(second) }
}

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[test]
fn the_same_again_counts() {
    let mut correlator = Correlator::default();
    let first = correlator.take(of("a", event::created(), 1), "a", secs(1)).unwrap();
    let second = correlator.take(of("a", event::created(), 9), "a", secs(9)).unwrap();
    assert_eq!((first.count, second.count), (1, 2));
    assert_eq!((first.name.as_str(), first.first), (second.name.as_str(), second.first));
    assert_eq!(second.happened.at, at(9));
    let other = correlator.take(of("b", event::created(), 9), "b", secs(9)).unwrap();
    let part = Happened { regarding: Regarding::Node, ..of("a", event::created(), 9) };
    let part = correlator.take(part, "node", secs(9)).unwrap();
    let reason = correlator.take(of("a", event::started(), 9), "a", secs(9)).unwrap();
    assert_eq!((other.count, part.count, reason.count), (1, 1, 1), "these are others");
}

#[test]
fn ten_texts_for_one_reason_become_one_event_for_a_while() {
    let mut correlator = Correlator::default();
    let mut take = |text: usize, second: u64| {
        let failed = event::failed(&format!("cause {text}"));
        correlator.take(of("a", failed, i64::try_from(second).unwrap()), "a", secs(second)).unwrap()
    };
    for text in 1..10 {
        let entry = take(text, 1);
        assert_eq!((entry.count, entry.happened.event.message), (1, format!("Error: cause {text}")));
    }
    let tenth = take(10, 1);
    let eleventh = take(11, 2);
    assert_eq!(tenth.happened.event.message, "(combined from similar events): Error: cause 10");
    assert_eq!(eleventh.happened.event.message, "(combined from similar events): Error: cause 11");
    assert_eq!((tenth.count, eleventh.count), (1, 2));
    assert_eq!(tenth.name, eleventh.name);
    let later = take(12, 2 + 601);
    assert_eq!((later.count, later.happened.event.message.as_str()), (1, "Error: cause 12"));
}

#[test]
fn whoever_never_stops_is_heard_every_five_minutes() {
    let mut correlator = Correlator::default();
    let mut take = |pod: &str, second| correlator.take(of(pod, event::created(), 1), pod, secs(second));
    let heard = (0..100).filter(|_| take("a", 0).is_some()).count();
    assert_eq!(heard, 25);
    assert!(take("b", 0).is_some(), "another pod is heard");
    assert!(take("a", 299).is_none());
    let again = take("a", 300).unwrap();
    assert_eq!(again.count, 102, "what was left out counts");
}

proptest! {
    #[test]
    fn names_are_names(object in "[a-z0-9]([a-z0-9.-]{0,250}[a-z0-9])?", nanos in 0_i64..4_000_000_000_000_000_000) {
        let at = Timestamp::from_nanosecond(nanos.into()).unwrap();
        let happened = Happened { at, ..of("a", event::created(), 0) };
        let name = Correlator::default().take(happened, &object, secs(0)).unwrap().name;
        prop_assert!(name.len() <= 253);
        let (head, tail) = name.rsplit_once('.').unwrap();
        prop_assert!(object.starts_with(head) && head.ends_with(|c: char| c.is_ascii_alphanumeric()));
        prop_assert!(i128::from_str_radix(tail, 16).unwrap() == i128::from(nanos));
    }
}

/// Events by name, and how the next calls end.
#[derive(Clone, Default)]
struct FakeEvents(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    events: BTreeMap<String, Object>,
    fails: Vec<ApiError>,
    calls: usize,
}

impl FakeEvents {
    fn call(&self) -> Result<std::sync::MutexGuard<'_, State>, ApiError> {
        let mut state = self.0.lock().unwrap();
        state.calls += 1;
        match state.fails.pop() {
            Some(error) => Err(error),
            None => Ok(state),
        }
    }

    fn fail(&self, errors: impl IntoIterator<Item = ApiError>) {
        self.0.lock().unwrap().fails = errors.into_iter().collect();
    }

    fn all(&self) -> Vec<(String, String, i32)> {
        let state = self.0.lock().unwrap();
        let of = |event: &Object| {
            let text = |text: &Option<String>| text.clone().unwrap();
            (text(&event.reason), text(&event.message), event.count.unwrap())
        };
        state.events.values().map(of).collect()
    }
}

impl EventApi for FakeEvents {
    async fn create(&self, event: &Object) -> Result<(), ApiError> {
        let mut state = self.call()?;
        let name = event.metadata.name.clone().unwrap();
        if state.events.contains_key(&name) {
            return Err(ApiError::Conflict(name));
        }
        state.events.insert(name, event.clone());
        Ok(())
    }

    async fn patch(&self, _: &str, name: &str, patch: &Value) -> Result<(), ApiError> {
        let mut state = self.call()?;
        let event = state.events.get_mut(name).ok_or_else(|| ApiError::NotFound(name.into()))?;
        event.count = Some(i32::try_from(patch["count"].as_i64().unwrap()).unwrap());
        event.last_timestamp = serde_json::from_value(patch["lastTimestamp"].clone()).unwrap();
        event.message = serde_json::from_value(patch["message"].clone()).unwrap();
        Ok(())
    }
}

struct Bench {
    api: FakeEvents,
    events: Events,
    uid: watch::Sender<Option<String>>,
}

fn bench(rate: Option<Rate>) -> Bench {
    let api = FakeEvents::default();
    let (events, waiting) = Events::queue();
    let (uid, known) = watch::channel(None);
    let author = Author { node: "node-a".into(), uid: known };
    let parts = Parts { api: api.clone(), waiting, author, rate, metrics: &Metrics::default() };
    tokio::spawn(Sender::new(parts).run());
    Bench { api, events, uid }
}

fn refused(code: u16) -> ApiError {
    ApiError::Refused { verb: "create", object: "event".into(), code, message: "no".into() }
}

async fn after(time: Duration) {
    tokio::time::sleep(time).await;
}

#[tokio::test(start_paused = true)]
async fn an_event_is_the_kubelets() {
    let bench = bench(None);
    bench.events.take(vec![of("a", event::created(), 0), of("a", event::created(), 3)]).unwrap();
    bench.uid.send_replace(Some("uid-of-node".into()));
    bench.events.node(event::node_status("node-a", "NodeReady"), at(5));
    after(secs(1)).await;
    let state = bench.api.0.lock().unwrap();
    let mut events = state.events.values().map(|event| serde_json::to_value(event).unwrap());
    let (pod, node) = (events.next().unwrap(), events.next().unwrap());
    assert_eq!(
        pod,
        serde_json::json!({
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": { "name": format!("a.{:x}", at(0).as_nanosecond()), "namespace": "default" },
            "involvedObject": {
                "apiVersion": "v1", "kind": "Pod", "namespace": "default", "name": "a", "uid": "uid-a",
                "fieldPath": "spec.containers{c}",
            },
            "type": "Normal", "reason": "Created", "message": "Container created", "count": 2,
            "firstTimestamp": "2023-11-14T22:13:20Z", "lastTimestamp": "2023-11-14T22:13:23Z",
            "source": { "component": "kubelet", "host": "node-a" },
            "reportingComponent": "kubelet", "reportingInstance": "node-a",
        })
    );
    assert_eq!(node["metadata"]["namespace"], "default");
    assert_eq!(
        node["involvedObject"],
        serde_json::json!({ "apiVersion": "v1", "kind": "Node", "name": "node-a", "uid": "uid-of-node" })
    );
}

#[tokio::test(start_paused = true)]
async fn an_event_that_expired_is_made_again_with_its_count() {
    let bench = bench(None);
    bench.events.take(vec![of("a", event::created(), 0)]).unwrap();
    after(secs(1)).await;
    bench.api.0.lock().unwrap().events.clear();
    bench.events.take(vec![of("a", event::created(), 1)]).unwrap();
    after(secs(1)).await;
    assert_eq!(bench.api.all(), [("Created".into(), "Container created".into(), 2)]);
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_is_away_is_waited_for_and_one_that_refuses_is_not() {
    let bench = bench(None);
    let late = || ApiError::Late { verb: "create", object: "event".into() };
    let away = (0..100).map(|index| if index % 2 == 0 { late() } else { refused(503) });
    bench.api.fail(away);
    bench.events.take(vec![of("a", event::created(), 0)]).unwrap();
    after(secs(1100)).await;
    assert_eq!(bench.api.all().len(), 1);

    // Its namespace goes: the next one gets through.
    bench.api.fail([refused(403)]);
    bench.events.take(vec![of("b", event::created(), 0), of("c", event::created(), 1)]).unwrap();
    after(secs(1)).await;
    assert_eq!(bench.api.all().len(), 2);

    // One that it always fails on must not hold up the others.
    bench.api.fail((0..12).map(|_| refused(500)));
    bench.events.take(vec![of("d", event::created(), 0), of("e", event::created(), 2)]).unwrap();
    after(secs(200)).await;
    assert_eq!(bench.api.all().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn no_more_than_the_rate_goes_out_and_the_queue_is_bounded() {
    let bench = bench(Some(Rate { per_second: 1.0, burst: 2 }));
    let many = |count: usize| (0..count).map(|pod| of(&format!("p{pod}"), event::created(), 0)).collect();
    bench.events.take(many(10)).unwrap();
    after(Duration::from_millis(100)).await;
    assert_eq!(bench.api.all().len(), 2);
    after(secs(3)).await;
    assert_eq!(bench.api.all().len(), 5);
    assert_eq!(bench.events.take(many(QUEUE)), Err(Full), "all or none");
    after(secs(100)).await;
    assert_eq!(bench.api.all().len(), 10);
    bench.events.take(many(QUEUE)).unwrap();
}
