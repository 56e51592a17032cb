use bulkhead_model::spec::RestartPolicy;

use super::*;
use crate::fake::{self, at, item};

fn node() -> NodeFacts {
    NodeFacts { host_ips: vec!["192.0.2.10".to_owned()], runtime_name: "containerd".to_owned() }
}

fn step(
    record: Option<&Record>,
    item: &StatusItem,
    runtime: Option<&RuntimePod>,
    second: i64,
) -> Option<Next> {
    let (probes, node) = (BTreeMap::new(), node());
    next(record, &Known { item, runtime, probes: &probes, node: &node, now: at(second) })
}

fn next_of(
    record: Option<&Record>,
    item: &StatusItem,
    runtime: Option<&RuntimePod>,
    second: i64,
) -> Option<Record> {
    step(record, item, runtime, second).map(|next| next.record)
}

fn phase(record: &Record) -> &str {
    record.status.phase.as_deref().unwrap_or_default()
}

#[test]
fn nothing_is_said_before_anything_is_known() {
    let item = item("u");
    assert_eq!(next_of(None, &item, None, 0), None);
    let record = next_of(None, &item, Some(&RuntimePod::default()), 0).unwrap();
    assert_eq!(phase(&record), "Pending");
    let later = next_of(Some(&record), &item, None, 60).unwrap();
    assert_eq!(later, record, "while the runtime is not known the status stands");
}

#[test]
fn only_another_run_begins_anew() {
    use Stage::{Syncing, Terminated, Terminating};
    let (a, b) = (Some(at(0)), Some(at(100)));
    // started and terminated as recorded, started and stage as decided -> same run
    let table = [
        ((a, false), (a, Syncing), true),
        ((a, false), (a, Terminating), true),
        ((a, false), (a, Terminated), true),
        ((a, true), (a, Terminated), true),
        ((a, true), (a, Terminating), true),
        ((a, true), (a, Syncing), false),
        ((None, true), (None, Syncing), false),
        ((a, false), (b, Syncing), false),
        ((a, true), (b, Terminated), false),
        ((b, false), (a, Syncing), false),
        ((None, false), (a, Syncing), true),
        ((a, false), (None, Syncing), true),
    ];
    for ((started, terminated), (decided, stage), same) in table {
        let record = Record { started_at: started, terminated, ..Record::default() };
        let decision = Decision { started_at: decided, stage, ..Decision::default() };
        assert_eq!(record.is_of_same_run(&decision), same, "{started:?} {terminated} {decided:?} {stage:?}");
    }
}

#[test]
fn a_pod_that_was_put_back_has_a_fresh_status() {
    let mut item = item("u");
    item.view.restart_policy = RestartPolicy::Never;
    item.view.containers[0].restart_policy = RestartPolicy::Never;
    let ended = fake::exited("u", 0);
    item.decision.stage = Stage::Terminated;
    let over = next_of(None, &item, Some(&ended), 0).unwrap();
    assert_eq!((phase(&over), over.terminated), ("Succeeded", true));

    item.decision.stage = Stage::Syncing;
    item.decision.started_at = Some(at(500));
    assert_eq!(next_of(Some(&over), &item, None, 500), None, "the other run's status is not this one's");
    let fresh = next_of(Some(&over), &item, Some(&RuntimePod::default()), 500).unwrap();
    assert_eq!(phase(&fresh), "Pending");
    assert_eq!(fresh.status.start_time.as_ref().map(|time| time.0), Some(at(500)));
    assert_eq!(
        (fresh.started_at, fresh.terminated, fresh.reached),
        (Some(at(500)), false, Reached::default())
    );
}

#[test]
fn each_step_is_reached_once_in_a_run() {
    let item = item("u");
    let nothing = RuntimePod::default();
    let mut back = item.clone();
    back.decision.started_at = Some(at(100));
    let table = [
        (&item, nothing, (false, false)),
        (&item, fake::running("u"), (true, true)),
        // Down and up again is no start.
        (&item, fake::exited("u", 1), (false, false)),
        (&item, fake::running("u"), (false, false)),
        // Put back: another start.
        (&back, fake::running("u"), (true, true)),
    ];
    let mut record = None;
    for (second, (item, runtime, (running, ready))) in (0..).zip(table) {
        let next = step(record.as_ref(), item, Some(&runtime), second).unwrap();
        assert_eq!(next.newly, Reached { running, ready }, "{second}");
        record = Some(next.record);
    }
}

#[test]
fn a_record_is_the_same_after_it_was_saved() {
    let item = item("u");
    let mut record = None;
    for runtime in [RuntimePod::default(), fake::running("u"), fake::exited("u", 3), fake::running("u")] {
        let next = next_of(record.as_ref(), &item, Some(&runtime), 7).unwrap();
        let saved = serde_json::to_vec(&next).unwrap();
        assert_eq!(serde_json::from_slice::<Record>(&saved).unwrap(), next);
        record = Some(next);
    }
}

#[test]
fn what_an_earlier_run_left_is_not_counted() {
    use Stage::{Syncing, Terminated};
    // Fake containers are created at second 2.
    for (runtime, started, stage, kept) in [
        (fake::exited("u", 0), 3, Syncing, false),
        (fake::exited("u", 0), 2, Syncing, true),
        (fake::exited("u", 0), 3, Terminated, true),
        (fake::running("u"), 3, Syncing, true),
    ] {
        let decision = Decision { started_at: Some(at(started)), stage, ..Decision::default() };
        let found = without_earlier_runs(runtime, &decision);
        assert_eq!(found.containers.len() == 1, kept, "{started} {stage:?} {found:?}");
    }
    assert_eq!(without_earlier_runs(fake::exited("u", 0), &Decision::default()).containers.len(), 1);
}
