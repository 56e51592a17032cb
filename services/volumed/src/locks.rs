//! One call after another for each pod, with a bound on how many may wait.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::OwnedMutexGuard;

use crate::error::Error;
use crate::names::PodUid;

/// Calls for one pod, running and waiting.
const CALLS_PER_POD: usize = 4;
/// Pods with calls.
const PODS: usize = 1024;

/// The locks of pods with calls, and of no others. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct PodLocks(Arc<Mutex<HashMap<PodUid, Entry>>>);

#[derive(Debug, Default)]
struct Entry {
    lock: Arc<tokio::sync::Mutex<()>>,
    calls: usize,
}

/// A pod that nobody else works on, as long as this lives.
#[derive(Debug)]
pub(crate) struct PodLock {
    uid: PodUid,
    locks: PodLocks,
    guard: Option<OwnedMutexGuard<()>>,
}

impl PodLocks {
    /// Waits for the calls before this one. Dropping the future gives the place in the queue up.
    pub(crate) async fn lock(&self, uid: &PodUid) -> Result<PodLock, Error> {
        let (lock, mut place) = self.queue(uid)?;
        place.guard = Some(lock.lock_owned().await);
        Ok(place)
    }

    fn queue(&self, uid: &PodUid) -> Result<(Arc<tokio::sync::Mutex<()>>, PodLock), Error> {
        let mut entries = self.entries();
        let full = match entries.get(uid) {
            Some(entry) => entry.calls >= CALLS_PER_POD,
            None => entries.len() >= PODS,
        };
        if full {
            return Err(Error::TooManyCalls { uid: uid.to_string() });
        }
        let entry = entries.entry(uid.clone()).or_default();
        entry.calls += 1;
        Ok((entry.lock.clone(), PodLock { uid: uid.clone(), locks: self.clone(), guard: None }))
    }

    fn entries(&self) -> MutexGuard<'_, HashMap<PodUid, Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PodLock {
    /// The pod.
    pub(crate) fn uid(&self) -> &PodUid {
        &self.uid
    }
}

impl Drop for PodLock {
    fn drop(&mut self) {
        self.guard = None;
        let mut entries = self.locks.entries();
        if let Some(entry) = entries.get_mut(&self.uid) {
            entry.calls = entry.calls.saturating_sub(1);
            if entry.calls == 0 {
                entries.remove(&self.uid);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn uid(text: &str) -> PodUid {
        PodUid::parse(text).unwrap()
    }

    fn poll<F: Future>(future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
        future.poll(&mut Context::from_waker(Waker::noop()))
    }

    #[tokio::test]
    async fn calls_for_one_pod_wait_and_others_do_not() {
        let locks = PodLocks::default();
        let first = locks.lock(&uid("a")).await.unwrap();
        let a = uid("a");
        let mut second = pin!(locks.lock(&a));
        assert!(poll(second.as_mut()).is_pending());
        drop(locks.lock(&uid("b")).await.unwrap());
        drop(first);
        assert!(matches!(poll(second.as_mut()), Poll::Ready(Ok(_))));
    }

    #[tokio::test]
    async fn the_queue_is_bounded_and_nothing_is_kept_of_those_who_left() {
        let locks = PodLocks::default();
        let a = uid("a");
        let held = locks.lock(&a).await.unwrap();
        {
            let mut waiting: Vec<_> = (1..CALLS_PER_POD).map(|_| Box::pin(locks.lock(&a))).collect();
            for future in &mut waiting {
                assert!(poll(future.as_mut()).is_pending());
            }
            assert!(matches!(locks.lock(&a).await, Err(Error::TooManyCalls { .. })));
        }
        let mut next = pin!(locks.lock(&a));
        assert!(poll(next.as_mut()).is_pending());
        drop(held);
        let Poll::Ready(Ok(next)) = poll(next.as_mut()) else { panic!("the lock is free") };
        drop(next);
        assert!(locks.entries().is_empty());
    }
}
