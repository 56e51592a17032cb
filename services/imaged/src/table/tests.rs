//! Bounds and forgetting; what callers see of the table is tested with the flow in `ensure`.

use std::num::NonZeroUsize;

use super::*;
use crate::failures::BackOff;

const S: fn(u64) -> Duration = Duration::from_secs;

fn table(parallel: usize) -> Table {
    let parallel_pulls = NonZeroUsize::new(parallel).unwrap();
    let (back_off, garbage) = (BackOff::default(), crate::gc::Limits::default());
    Table::new(&Settings { parallel_pulls, rate: None, back_off, garbage })
}

fn asker(pod: impl Into<String>) -> Asker {
    Asker { pod_uid: pod.into(), container: "app".to_owned() }
}

impl Table {
    fn ask_for(&mut self, pod: &str, image: &str, now: Duration) -> Ticket {
        self.ask(Wish { asker: &asker(pod), image, access: &Access::default(), traceparent: None }, now)
    }
}

fn image() -> Image {
    Image { id: "i".to_owned(), uid: None, username: String::new(), size: 1 }
}

fn is_crowded(ticket: &Ticket) -> bool {
    matches!(ticket, Ticket::Crowded)
}

#[test]
fn a_pod_and_all_pods_together_have_only_so_many_pulls() {
    let mut table = table(1);
    for number in 0..MOST_OF_A_POD {
        assert!(!is_crowded(&table.ask_for("greedy", &format!("g{number}"), S(0))));
    }
    assert!(is_crowded(&table.ask_for("greedy", "more", S(0))));
    assert!(!is_crowded(&table.ask_for("greedy", "g1", S(0))), "joining is free");
    for number in MOST_OF_A_POD..MOST {
        assert!(!is_crowded(&table.ask_for(&format!("p{number}"), &format!("i{number}"), S(0))));
    }
    assert!(is_crowded(&table.ask_for("late", "more", S(0))));
    let job = table.next_job(S(1)).unwrap();
    table.finish(&job.image, Done::Pulled(image()), S(2));
    assert!(table.settle(&job.asker, &job.image));
    assert!(!is_crowded(&table.ask_for("late", "more", S(3))));
}

#[test]
fn outcomes_that_nobody_asks_for_are_forgotten() {
    let done = [
        (Done::Pulled(image()), KEEP),
        (Done::Failed(PullFailure::from_runtime("x")), S(10)),
        (Done::NotInspected("x".to_owned()), KEEP_DOUBT),
    ];
    for (done, keep) in done {
        let mut table = table(1);
        table.ask_for("p", "x", S(0));
        table.next_job(S(0)).unwrap();
        table.finish("x", done, S(5));
        assert_eq!(table.pulls.len(), 1);
        table.collect(S(5) + keep - Duration::from_nanos(1));
        assert_eq!(table.pulls.len(), 1);
        table.collect(S(5) + keep);
        assert_eq!(table.pulls.len(), 0);
    }
}

#[test]
fn an_absent_runtime_leaves_nothing_behind() {
    let mut table = table(1);
    let Ticket::Wait(waits) = table.ask_for("p", "x", S(0)) else { panic!("a pull") };
    table.next_job(S(0)).unwrap();
    let status = tonic::Status::unavailable("away");
    let error = CriError { method: "ImageStatus", subject: "x".to_owned(), status };
    table.finish("x", Done::NoAnswer(error), S(5));
    assert!(matches!(*waits.borrow(), Some(Outcome::NoAnswer(_))), "who waits is told");
    assert!(table.pulls.is_empty());
    table.ask_for("p", "x", S(5));
    assert!(table.next_job(S(5)).is_some(), "and pulls again at once");
}

#[test]
fn who_is_still_owed_an_older_outcome_gets_the_newer() {
    let mut table = table(1);
    table.ask_for("gone", "x", S(0));
    table.next_job(S(0)).unwrap();
    table.finish("x", Done::Pulled(image()), S(1));
    table.ask_for("always", "x", S(2));
    let job = table.next_job(S(2)).unwrap();
    assert_eq!(job.asker, asker("always"));
    let Ticket::Wait(waits) = table.ask_for("gone", "x", S(3)) else { panic!("joined") };
    assert!(waits.borrow().is_none());
    assert!(table.next_job(S(3)).is_none());
    table.finish("x", Done::Pulled(image()), S(4));
    assert!(waits.borrow().is_some());
    assert!(!table.settle(&asker("gone"), "x"), "not started for it");
    assert!(table.settle(&asker("always"), "x"));
    assert!(table.pulls.is_empty());
}

#[test]
fn a_pod_that_joins_a_waiting_pull_brings_its_own_turn() {
    let mut table = table(1);
    for image in ["a1", "a2", "a3", "shared"] {
        table.ask_for("a", image, S(0));
    }
    table.ask_for("b", "shared", S(0));
    let mut order = Vec::new();
    while let Some(job) = table.next_job(S(1)) {
        table.finish(&job.image, Done::Pulled(image()), S(1));
        order.push(job.image);
    }
    assert_eq!(order, ["a1", "shared", "a2", "a3"]);
}
