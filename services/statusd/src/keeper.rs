//! Saves the memory soon after it changed: at most once a second, but at once where somebody waits for it.

use std::time::Duration;

use bulkhead_reconcile::Wake;
use tokio_util::sync::CancellationToken;

use crate::records::{Memory, Records};

/// Shortest time between two writes that nobody waits for.
const PAUSE: Duration = Duration::from_secs(1);
/// Time until a write that failed is tried again.
const AGAIN: Duration = Duration::from_secs(10);

/// Calls `save` after changes, and a last time at `shutdown` if something changed since. `save` says whether it succeeded.
pub(crate) async fn keep<S, F>(records: Records, mut changed: Wake, shutdown: CancellationToken, save: S)
where
    S: Fn(Memory) -> F,
    F: Future<Output = bool>,
{
    let mut failed = false;
    loop {
        let retry = async {
            match failed {
                true => tokio::time::sleep(AGAIN).await,
                false => std::future::pending().await,
            }
        };
        // Both are cancel-safe: a signal that loses the race is kept.
        let stopping = tokio::select! {
            biased;
            () = changed.woken() => false,
            () = retry => false,
            () = shutdown.cancelled() => true,
        };
        if stopping {
            return;
        }
        let (memory, changes) = records.memory();
        failed = !save(memory).await;
        records.tried(changes);
        tokio::select! {
            () = tokio::time::sleep(PAUSE) => {}
            () = records.hurried() => {}
            () = shutdown.cancelled() => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use bulkhead_reconcile::wake;
    use tokio::time::Instant;

    use super::*;
    use crate::record::Record;

    struct Bench {
        records: Records,
        shutdown: CancellationToken,
        /// Milliseconds and number of pods of each write.
        writes: Arc<Mutex<Vec<(u128, usize)>>>,
        /// Answers of the next writes, last one first; then all succeed.
        answers: Arc<Mutex<Vec<bool>>>,
        task: tokio::task::JoinHandle<()>,
    }

    fn bench(answers: &[bool]) -> Bench {
        let (waker, changed) = wake();
        let records = Records::new(Memory::default(), waker);
        let shutdown = CancellationToken::new();
        let writes = Arc::new(Mutex::new(Vec::new()));
        let answers = Arc::new(Mutex::new(answers.to_vec()));
        let (start, seen, next) = (Instant::now(), writes.clone(), answers.clone());
        let save = move |memory: Memory| {
            seen.lock().unwrap().push((start.elapsed().as_millis(), memory.pods.len()));
            let answer = next.lock().unwrap().pop().unwrap_or(true);
            async move { answer }
        };
        let task = tokio::spawn(keep(records.clone(), changed, shutdown.clone(), save));
        Bench { records, shutdown, writes, answers, task }
    }

    async fn after(millis: u64) {
        tokio::time::sleep(Duration::from_millis(millis)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn many_changes_are_one_write_a_second() {
        let bench = bench(&[]);
        for pod in 0..25 {
            after(110).await;
            bench.records.set(&pod.to_string(), Record::default());
            bench.records.set(&pod.to_string(), Record::default());
        }
        after(60_000).await;
        assert_eq!(*bench.writes.lock().unwrap(), [(110, 1), (1110, 10), (2110, 19), (3110, 25)]);
        bench.shutdown.cancel();
        bench.task.await.unwrap();
        assert_eq!(bench.writes.lock().unwrap().len(), 4, "nothing was left to write");
    }

    #[tokio::test(start_paused = true)]
    async fn what_changed_before_the_stop_is_written() {
        let bench = bench(&[]);
        bench.records.set("a", Record::default());
        after(10).await;
        bench.records.set("b", Record::default());
        bench.shutdown.cancel();
        bench.task.await.unwrap();
        let sizes: Vec<usize> = bench.writes.lock().unwrap().iter().map(|(_, pods)| *pods).collect();
        assert_eq!(sizes, [1, 2]);
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_for_a_write_gets_it_at_once() {
        let bench = bench(&[]);
        bench.records.kept().await;
        for (pod, wait) in [("a", 10), ("b", 10), ("c", 2000)] {
            bench.records.set(pod, Record::default());
            bench.records.kept().await;
            after(wait).await;
        }
        bench.records.set("d", Record::default());
        after(5000).await;
        assert_eq!(*bench.writes.lock().unwrap(), [(0, 1), (10, 2), (20, 3), (2020, 4)]);
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_does_not_wait_for_a_disk_that_refuses() {
        let bench = bench(&[true, false, false]);
        for pod in ["a", "b"] {
            bench.records.set(pod, Record::default());
            bench.records.kept().await;
        }
        assert_eq!(*bench.writes.lock().unwrap(), [(0, 1), (0, 2)]);
        after(11_000).await;
        assert_eq!(bench.writes.lock().unwrap().len(), 3, "tried again for the next life");
    }

    #[tokio::test(start_paused = true)]
    async fn a_failed_write_is_tried_again() {
        let bench = bench(&[false, false]);
        bench.records.set("a", Record::default());
        after(60_000).await;
        assert_eq!(*bench.writes.lock().unwrap(), [(0, 1), (11_000, 1), (22_000, 1)]);
        assert!(bench.answers.lock().unwrap().is_empty());
        bench.shutdown.cancel();
        bench.task.await.unwrap();
    }
}
