//! A node that comes, changes, is deleted and comes again, on a paused clock.

use std::sync::Mutex;

use bulkhead_base::FakeClock;
use bulkhead_reconcile::{LoopStatus, drive, wake};
use k8s_openapi::api::core::v1::NodeCondition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::*;
use crate::cluster::fake::FakeApi;
use crate::events::{Happened, Regarding};
use crate::fake::at;

struct Source(Mutex<Node>);

impl NodeSource for Source {
    async fn node(&self) -> Result<Node, NodeError> {
        Ok(self.0.lock().unwrap().clone())
    }
}

fn own(ready: bool) -> Node {
    let mut node = Node::default();
    node.metadata.name = Some("a".into());
    node.metadata.labels = Some([("os".to_owned(), "linux".to_owned())].into());
    let condition = NodeCondition {
        type_: "Ready".into(),
        status: if ready { "True" } else { "False" }.into(),
        last_transition_time: Some(Time(at(0))),
        ..NodeCondition::default()
    };
    node.status = Some(NodeStatus { conditions: Some(vec![condition]), ..NodeStatus::default() });
    node
}

struct Bench {
    api: Arc<FakeApi>,
    source: Arc<Source>,
    uid: watch::Receiver<Option<String>>,
    happened: tokio::sync::mpsc::Receiver<Happened>,
}

impl Bench {
    /// What was told since the last time.
    fn told(&mut self) -> Vec<String> {
        let mut told = Vec::new();
        while let Ok(Happened { regarding, event, .. }) = self.happened.try_recv() {
            assert_eq!(regarding, Regarding::Node);
            told.push(event.reason.into_owned());
        }
        told
    }
}

fn bench(registration: Registration, existing: Option<Node>) -> Bench {
    bench_of(registration, existing, own(true))
}

fn bench_of(registration: Registration, existing: Option<Node>, now: Node) -> Bench {
    let api = Arc::new(FakeApi::default());
    api.put_node(existing);
    let source = Arc::new(Source(Mutex::new(now)));
    let (known, uid) = watch::channel(None);
    let (look, report) = (Duration::from_secs(10), Duration::from_secs(300));
    let (events, happened) = Events::queue();
    let presence = Presence::new(Parts {
        api: api.clone(),
        node: source.clone(),
        name: "a".into(),
        registration,
        timing: Timing { look, report },
        check: Box::new(|_| ()),
        known,
        events,
        clock: Arc::new(FakeClock::new(at(0))),
    });
    let (waker, wake) = wake();
    tokio::spawn(async move {
        let _waker = waker;
        drive(presence, wake, watch::Sender::new(LoopStatus::default()), std::future::pending()).await;
    });
    Bench { api, source, uid, happened }
}

fn wanted() -> Registration {
    Registration { wanted: true, provider_id: "p".into(), ..Registration::default() }
}

async fn after(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds) + Duration::from_millis(1)).await;
}

#[tokio::test(start_paused = true)]
async fn a_node_registers_reports_changes_soon_and_itself_every_five_minutes() {
    let bench = bench(wanted(), None);
    after(0).await;
    assert_eq!(bench.api.seen(), (1, 0, 0));
    assert_eq!(bench.uid.borrow().as_deref(), Some("uid-1"));
    assert_eq!(bench.api.stored_node().unwrap().spec.unwrap().provider_id.as_deref(), Some("p"));
    after(290).await;
    assert_eq!(bench.api.seen(), (1, 0, 0), "nothing to tell");
    after(10).await;
    assert_eq!(bench.api.seen(), (1, 0, 1), "alive");
    *bench.source.0.lock().unwrap() = own(false);
    after(11).await;
    assert_eq!(bench.api.seen(), (1, 0, 2));
    assert_eq!(bench.api.last_status()["status"]["conditions"][0]["status"], "False");
}

#[tokio::test(start_paused = true)]
async fn a_deleted_node_comes_back_whole() {
    let bench = bench(wanted(), None);
    after(0).await;
    bench.api.put_node(None);
    after(10).await;
    assert_eq!(bench.api.seen().0, 2);
    assert_eq!(bench.uid.borrow().as_deref(), Some("uid-2"));
}

#[tokio::test(start_paused = true)]
async fn without_registration_it_waits_for_a_node_and_holds_no_lease_for_none() {
    let bench = bench(Registration::default(), None);
    after(60).await;
    assert_eq!(bench.api.seen(), (0, 0, 0));
    assert_eq!(*bench.uid.borrow(), None);
    let mut made = Node::default();
    made.metadata.uid = Some("theirs".into());
    made.metadata.labels = Some([("zone".to_owned(), "z".to_owned())].into());
    bench.api.put_node(Some(made));
    after(10).await;
    assert_eq!(bench.uid.borrow().as_deref(), Some("theirs"));
    assert_eq!(bench.api.seen(), (0, 1, 1));
    let labels = bench.api.stored_node().unwrap().metadata.labels.unwrap();
    assert_eq!(labels.keys().collect::<Vec<_>>(), ["os", "zone"]);
    bench.api.put_node(None);
    after(10).await;
    assert_eq!(*bench.uid.borrow(), None, "gone: no lease");
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_is_away_is_asked_again_and_nothing_is_lost() {
    let bench = bench(wanted(), None);
    bench.api.fail(true);
    after(60).await;
    bench.api.fail(false);
    after(10).await;
    assert_eq!(bench.uid.borrow().as_deref(), Some("uid-1"));
    bench.api.fail(true);
    *bench.source.0.lock().unwrap() = own(false);
    after(600).await;
    assert_eq!(bench.uid.borrow().as_deref(), Some("uid-1"), "away is not gone");
    bench.api.fail(false);
    after(10).await;
    assert_eq!(bench.api.last_status()["status"]["conditions"][0]["status"], "False");
}

#[tokio::test(start_paused = true)]
async fn a_process_that_starts_makes_no_ready_node_unready() {
    let mut ready = own(true);
    ready.metadata.uid = Some("u".into());
    let bench = bench_of(wanted(), Some(ready), own(false));
    after(29).await;
    assert_eq!(bench.api.seen(), (0, 0, 0), "its peers are not known yet");
    *bench.source.0.lock().unwrap() = own(true);
    after(10).await;
    assert_eq!(bench.api.last_status()["status"]["conditions"][0]["status"], "True");
    *bench.source.0.lock().unwrap() = own(false);
    after(10).await;
    assert_eq!(bench.api.last_status()["status"]["conditions"][0]["status"], "False");

    let unready = bench_of(wanted(), Some(own(true)), own(false));
    after(32).await;
    assert_eq!(unready.api.last_status()["status"]["conditions"][0]["status"], "False", "it is not a start");
}

#[tokio::test(start_paused = true)]
async fn what_becomes_of_the_node_is_told_once() {
    let mut bench = bench(wanted(), None);
    after(0).await;
    assert_eq!(bench.told(), ["NodeReady"]);
    after(600).await;
    assert_eq!(bench.told(), [""; 0]);
    *bench.source.0.lock().unwrap() = own(false);
    after(11).await;
    assert_eq!(bench.told(), ["NodeNotReady"]);

    let booted = |boot: &str| {
        let mut node = own(true);
        let info = node.status.get_or_insert_default().node_info.get_or_insert_default();
        info.boot_id = boot.into();
        node
    };
    for (before, now, told) in [("1", "2", vec!["Rebooted"]), ("1", "1", vec![]), ("", "1", vec![])] {
        let mut bench = bench_of(wanted(), Some(booted(before)), booted(now));
        after(60).await;
        assert_eq!(bench.told(), told, "{before} -> {now}");
    }
}
