use bulkhead_model::spec::{ContainerKind, RestartPolicy};
use bulkhead_model::status_view::ContainerView;

use super::*;
use crate::fake::{self, at, item};

fn node() -> NodeFacts {
    NodeFacts {
        host_ips: vec!["192.0.2.10".to_owned()],
        runtime_name: "containerd".to_owned(),
        recursive_read_only: None,
    }
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

#[derive(Clone, Copy, Debug, PartialEq)]
enum Verdict {
    Another,
    Same,
    Unclear,
}

fn verdict(record: &Record, decision: &Decision, runtime: Option<&RuntimePod>) -> Verdict {
    match Run::of(Some(record), decision, runtime) {
        Run::Another => Verdict::Another,
        Run::Same(_) => Verdict::Same,
        Run::Unclear(_) => Verdict::Unclear,
    }
}

#[test]
fn only_another_run_begins_anew() {
    use Stage::{Syncing, Terminated, Terminating};
    use Verdict::{Another, Same, Unclear};
    let (a, b) = (Some(at(0)), Some(at(100)));
    // started and terminated as recorded, started and stage as decided -> with nothing in the runtime, with no view of it
    let table = [
        ((a, false), (a, Syncing), Same, Same),
        ((a, false), (a, Terminating), Same, Same),
        ((a, false), (a, Terminated), Same, Same),
        ((a, true), (a, Terminated), Same, Same),
        ((a, true), (a, Terminating), Same, Same),
        ((a, true), (a, Syncing), Another, Another),
        ((a, true), (b, Syncing), Another, Another),
        ((None, true), (None, Syncing), Another, Another),
        ((a, false), (b, Syncing), Another, Unclear),
        ((a, true), (b, Terminated), Another, Unclear),
        ((b, false), (a, Syncing), Another, Unclear),
        ((None, false), (a, Syncing), Same, Same),
        ((a, false), (None, Syncing), Same, Same),
    ];
    for ((started, terminated), (decided, stage), with_nothing, with_no_view) in table {
        let record = Record { started_at: started, terminated, ..Record::default() };
        let decision = Decision { started_at: decided, stage, ..Decision::default() };
        let case = format!("{started:?} {terminated} {decided:?} {stage:?}");
        assert_eq!(verdict(&record, &decision, Some(&RuntimePod::default())), with_nothing, "{case}");
        assert_eq!(verdict(&record, &decision, None), with_no_view, "{case}");
    }
}

#[test]
fn another_start_is_no_other_run_while_a_published_container_runs() {
    use ContainerState::{Created, Exited, Running, Unknown};
    use Stage::{Syncing, Terminated, Terminating};
    use Verdict::{Another, Same};
    let (running, ended) = (fake::running("u"), fake::exited("u", 1));
    // published, terminated, stage now, state and id of what the runtime holds now
    let table = [
        (&running, false, Syncing, Running, "u-c", Same),
        (&running, false, Syncing, Unknown, "u-c", Same),
        (&running, false, Terminating, Running, "u-c", Same),
        (&running, false, Terminated, Running, "u-c", Same),
        (&running, false, Syncing, Exited, "u-c", Another),
        (&running, false, Syncing, Created, "u-c", Another),
        (&running, false, Syncing, Running, "new", Another),
        (&ended, false, Syncing, Exited, "u-c", Another),
        (&ended, false, Syncing, Running, "new", Another),
        // Taken back from the end: what runs is an old view.
        (&running, true, Syncing, Running, "u-c", Another),
    ];
    for (kind, (published, terminated, stage, state, id, wanted)) in
        [ContainerKind::App, ContainerKind::Init].into_iter().flat_map(|k| table.map(|row| (k, row)))
    {
        let mut item = item("u");
        item.view.containers[0].kind = kind;
        let record = next_of(None, &item, Some(published), 5).unwrap();
        let record = Record { terminated, ..record };
        let mut runtime = running.clone();
        runtime.containers[0].id = id.to_owned();
        runtime.containers[0].state = state;
        let decision = Decision { started_at: Some(at(100)), stage, ..Decision::default() };
        assert_eq!(
            verdict(&record, &decision, Some(&runtime)),
            wanted,
            "{kind:?} {stage:?} {state:?} {id} {terminated}"
        );
    }
    // One of several is enough.
    let mut two = running.clone();
    two.containers.push(two.containers[0].clone());
    two.containers[1].id = "other".to_owned();
    two.containers[1].name = "other".to_owned();
    let mut item = item("u");
    item.view.containers.push(ContainerView { name: "other".to_owned(), ..ContainerView::default() });
    let record = next_of(None, &item, Some(&two), 5).unwrap();
    two.containers[0].state = Exited;
    let decision = Decision { started_at: Some(at(100)), ..Decision::default() };
    assert_eq!(verdict(&record, &decision, Some(&two)), Same);
}

#[test]
fn a_syncd_that_lost_its_records_changes_no_status() {
    let mut item = item("u");
    let up = next_of(None, &item, Some(&fake::running("u")), 5).unwrap();
    item.decision.started_at = Some(at(500));
    assert_eq!(next_of(Some(&up), &item, None, 500).as_ref(), Some(&up), "it waits for the runtime's view");
    let next = step(Some(&up), &item, Some(&fake::running("u")), 501).unwrap();
    assert_eq!((&next.record.status, next.newly), (&up.status, Reached::default()));
    assert_eq!(next.record.status.start_time.as_ref().map(|time| time.0), Some(at(0)));
    let accepted = Record { started_at: Some(at(500)), ..up.clone() };
    assert_eq!(next.record, accepted);

    // From now on this is the run's start: a container that ends begins no other one.
    let ended = next_of(Some(&accepted), &item, Some(&fake::exited("u", 1)), 502).unwrap();
    assert_eq!(ended.status.start_time, up.status.start_time);
    assert_eq!((ended.reached, ended.began_at), (up.reached, Some(at(0))));
    // And if the records are lost once more, the first start is still known.
    item.decision.started_at = Some(at(900));
    let again = next_of(Some(&accepted), &item, Some(&fake::running("u")), 901).unwrap();
    assert_eq!((again.started_at, again.began_at), (Some(at(900)), Some(at(0))));
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
    // Also when nobody saw it terminated: its containers have ended.
    let unseen = Record { terminated: false, ..over.clone() };
    let fresh = next_of(Some(&over), &item, Some(&RuntimePod::default()), 500).unwrap();
    assert_eq!(next_of(Some(&unseen), &item, Some(&RuntimePod::default()), 500).as_ref(), Some(&fresh));
    assert_eq!(phase(&fresh), "Pending");
    assert_eq!(fresh.status.start_time.as_ref().map(|time| time.0), Some(at(500)));
    assert_eq!(
        (fresh.started_at, fresh.began_at, fresh.terminated, fresh.reached),
        (Some(at(500)), Some(at(500)), false, Reached::default())
    );
}

#[test]
fn each_step_is_reached_once_in_a_run() {
    let item = item("u");
    let nothing = RuntimePod::default();
    let mut back = item.clone();
    back.decision.started_at = Some(at(100));
    let mut third = item.clone();
    third.decision.started_at = Some(at(200));
    let mut other = fake::running("u");
    other.containers[0].id = "other".to_owned();
    let table = [
        (&item, nothing, (false, false)),
        (&item, fake::running("u"), (true, true)),
        // Down and up again is no start.
        (&item, fake::exited("u", 1), (false, false)),
        (&item, fake::running("u"), (false, false)),
        // Another start while it runs: no start either.
        (&back, fake::running("u"), (false, false)),
        // Put back: the old containers have ended.
        (&third, other, (true, true)),
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
        let found = without_earlier_runs(runtime, Some(at(started)), stage);
        assert_eq!(found.containers.len() == 1, kept, "{started} {stage:?} {found:?}");
    }
    assert_eq!(without_earlier_runs(fake::exited("u", 0), None, Syncing).containers.len(), 1);
}
