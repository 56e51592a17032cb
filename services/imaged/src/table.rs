//! Pulls by image: who started them, who waits, whose turn it is, and what became of them. Does no I/O and never
//! waits; `now` is a duration since a fixed start.
//!
//! An image is pulled once at a time, for however many containers. A caller whose deadline ends is still owed the
//! outcome: its next call gets it, so that neither a failure goes unseen nor policy Always pulls twice.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bulkhead_cri::CriError;
use tokio::sync::watch;

use crate::answer::{Image, PullFailure};
use crate::bucket::TokenBucket;
use crate::config::Settings;
use crate::credentials::Access;
use crate::failures::Failures;
use crate::queue::FairQueue;

/// Most pulls that run, wait, or ended with somebody still to be told.
const MOST: usize = 512;
/// Most of them that one pod started.
const MOST_OF_A_POD: usize = 64;
/// Most containers that one pull remembers to be told.
const MOST_OWED: usize = 1024;
/// How long a good outcome is kept for callers that were gone when it came.
const KEEP: Duration = Duration::from_secs(120);
/// The same for one that says that the runtime cannot tell.
const KEEP_DOUBT: Duration = Duration::from_secs(10);

/// A container that wants an image.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Asker {
    /// Its pod.
    pub(crate) pod_uid: String,
    /// Its name there.
    pub(crate) container: String,
}

/// What somebody wants.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wish<'a> {
    /// Who.
    pub(crate) asker: &'a Asker,
    /// What, as the runtime is asked for it.
    pub(crate) image: &'a str,
    /// With which credentials.
    pub(crate) access: &'a Access,
    /// The trace that a pull started for it belongs to.
    pub(crate) traceparent: Option<&'a str>,
}

/// What to do about a wish.
#[derive(Debug)]
pub(crate) enum Ticket {
    /// Wait for the outcome, which may be there already.
    Wait(watch::Receiver<Option<Outcome>>),
    /// Its last pull failed; the next one may start when the time is over.
    BackOff(PullFailure, Duration),
    /// Too many pulls wait.
    Crowded,
}

/// A pull to be done.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    /// What the runtime is asked for.
    pub(crate) image: String,
    /// With which credentials.
    pub(crate) access: Access,
    /// Under which it is in the table.
    pub(crate) key: String,
    /// Who started it.
    pub(crate) asker: Asker,
    /// The trace that it belongs to.
    pub(crate) traceparent: Option<String>,
}

/// How a job ended.
#[derive(Clone, Debug)]
pub(crate) enum Done {
    /// The image is there.
    Pulled(Image),
    /// The runtime could not pull it.
    Failed(PullFailure),
    /// It was pulled, but the runtime cannot tell about it.
    NotInspected(String),
    /// The runtime is away: that says nothing about the image.
    NoAnswer(CriError),
}

/// What a pull's callers get.
#[derive(Clone, Debug)]
pub(crate) enum Outcome {
    /// The image is there.
    Present(Image),
    /// The runtime could not pull it; it is left alone for a time.
    Failed(PullFailure, Duration),
    /// It was pulled, but the runtime cannot tell about it.
    NotInspected(String),
    /// The runtime is away.
    NoAnswer(CriError),
}

/// All pulls.
#[derive(Debug)]
pub(crate) struct Table {
    parallel: usize,
    running: usize,
    bucket: Option<TokenBucket>,
    failures: Failures,
    queue: FairQueue,
    /// By image and credentials: with other credentials an image may be another's, or none.
    pulls: BTreeMap<String, Pull>,
}

#[derive(Debug)]
struct Pull {
    image: String,
    access: Access,
    started_by: Asker,
    traceparent: Option<String>,
    owed: BTreeSet<Asker>,
    outcome: watch::Sender<Option<Outcome>>,
    /// Set once it ended.
    keep_until: Option<Duration>,
}

impl Table {
    /// Without pulls.
    pub(crate) fn new(settings: &Settings) -> Self {
        Self {
            parallel: settings.parallel_pulls.get(),
            running: 0,
            bucket: settings.rate.map(TokenBucket::new),
            failures: Failures::new(settings.back_off),
            queue: FairQueue::default(),
            pulls: BTreeMap::new(),
        }
    }

    /// Joins the image's pull, or puts one in line. Ask [`Table::next_job`] afterwards.
    pub(crate) fn ask(&mut self, wish: Wish<'_>, now: Duration) -> Ticket {
        self.collect(now);
        let key = wish.access.key(wish.image);
        if let Some(pull) = self.pulls.get_mut(&key)
            && (pull.keep_until.is_none() || pull.owed.contains(wish.asker))
        {
            if pull.owed.len() < MOST_OWED {
                pull.owed.insert(wish.asker.clone());
            }
            if self.queue.contains(&key) {
                self.queue.push(&wish.asker.pod_uid, &key);
            }
            return Ticket::Wait(pull.outcome.subscribe());
        }
        if let Some((failure, remaining)) = self.failures.waiting(&key, now) {
            return Ticket::BackOff(failure.clone(), remaining);
        }
        let of_pod = self.pulls.values().filter(|pull| pull.started_by.pod_uid == wish.asker.pod_uid).count();
        if self.pulls.len() >= MOST || of_pod >= MOST_OF_A_POD {
            return Ticket::Crowded;
        }
        // Callers who are still owed an older outcome get the newer one.
        let mut owed = self.pulls.remove(&key).map(|pull| pull.owed).unwrap_or_default();
        owed.insert(wish.asker.clone());
        let outcome = watch::Sender::new(None);
        let ticket = Ticket::Wait(outcome.subscribe());
        let pull = Pull {
            image: wish.image.to_owned(),
            access: wish.access.clone(),
            started_by: wish.asker.clone(),
            traceparent: wish.traceparent.map(str::to_owned),
            owed,
            outcome,
            keep_until: None,
        };
        self.queue.push(&wish.asker.pod_uid, &key);
        self.pulls.insert(key, pull);
        ticket
    }

    /// Takes the next pull to run, if one may run now. Whoever takes it must call [`Table::finish`].
    pub(crate) fn next_job(&mut self, now: Duration) -> Option<Job> {
        while self.running < self.parallel {
            let key = self.queue.pop()?;
            let Some(pull) = self.pulls.get_mut(&key) else { continue };
            let job = Job {
                asker: pull.started_by.clone(),
                traceparent: pull.traceparent.take(),
                image: pull.image.clone(),
                access: std::mem::take(&mut pull.access),
                key,
            };
            if self.bucket.as_mut().is_none_or(|bucket| bucket.take(now)) {
                self.running = self.running.saturating_add(1);
                return Some(job);
            }
            self.end(&job.key, Done::Failed(PullFailure::too_fast()), now);
        }
        None
    }

    /// A job ended: tells who waits for it. Ask [`Table::next_job`] afterwards.
    pub(crate) fn finish(&mut self, key: &str, done: Done, now: Duration) {
        self.running = self.running.saturating_sub(1);
        self.end(key, done, now);
    }

    /// `asker` was told, or does not need it any more. Says whether the pull was started for it.
    pub(crate) fn settle(&mut self, asker: &Asker, image: &str) -> bool {
        let mut started = false;
        for pull in self.pulls.values_mut().filter(|pull| pull.image == image) {
            started |= pull.owed.remove(asker) && pull.started_by == *asker;
        }
        self.pulls.retain(|_, pull| pull.keep_until.is_none() || !pull.owed.is_empty());
        started
    }

    fn end(&mut self, key: &str, done: Done, now: Duration) {
        let (outcome, keep) = match done {
            Done::Pulled(image_now) => {
                self.failures.forget(key);
                (Outcome::Present(image_now), KEEP)
            }
            Done::Failed(failure) => {
                let delay = self.failures.note(key, failure.clone(), now);
                // Once the back-off is over the next call is there to pull, not to hear of the past.
                (Outcome::Failed(failure, delay), delay.min(KEEP))
            }
            Done::NotInspected(text) => (Outcome::NotInspected(text), KEEP_DOUBT),
            // A later call must ask the runtime, not hear that it was away.
            Done::NoAnswer(error) => (Outcome::NoAnswer(error), Duration::ZERO),
        };
        let Some(pull) = self.pulls.get_mut(key) else { return };
        pull.outcome.send_replace(Some(outcome));
        pull.keep_until = Some(now.saturating_add(keep));
        self.collect(now);
    }

    /// Drops what nobody will ask for.
    fn collect(&mut self, now: Duration) {
        self.pulls.retain(|_, pull| match pull.keep_until {
            Some(until) => now < until && !pull.owed.is_empty(),
            None => true,
        });
    }
}

#[cfg(test)]
mod tests;
