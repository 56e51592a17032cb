//! One probe of one container, run again and again. Lives from when the plan wants it until it does not.

use std::sync::Arc;
use std::time::Duration;

use bulkhead_model::probe::{ProbeKind, ProbeOutcome};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};
use tokio_util::task::AbortOnDropHandle;

use crate::handlers::Handlers;
use crate::lanes::{Lanes, PodLane};
use crate::plan::Job;
use crate::report::Report;

/// How long after its time-out a failure may come and be believed at once.
const LATE: Duration = Duration::from_millis(500);

/// What a run found.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The pod.
    pub pod_uid: String,
    /// The container that was probed.
    pub container_id: String,
    /// Which of its probes.
    pub kind: ProbeKind,
    /// The finding.
    pub report: Report,
    /// How long the run took.
    pub took: Duration,
}

/// What every worker uses.
#[derive(Clone)]
pub struct Surroundings<H> {
    /// Runs probes.
    pub handlers: H,
    /// Bounds how many run at once.
    pub lanes: Lanes,
    /// Takes the answers.
    pub answers: mpsc::Sender<Answer>,
}

/// A running worker. Dropping it ends it, with a run that is under way.
#[derive(Debug)]
pub struct Worker {
    job: watch::Sender<Arc<Job>>,
    _task: AbortOnDropHandle<()>,
}

impl Worker {
    /// Starts one whose first run is `first` from now.
    pub fn start<H: Handlers>(
        surroundings: Surroundings<H>,
        pod_uid: String,
        lane: PodLane,
        job: Job,
        first: Duration,
    ) -> Self {
        let (job, jobs) = watch::channel(Arc::new(job));
        let task = tokio::spawn(run(surroundings, pod_uid, lane, jobs, Instant::now() + first));
        Self { job, _task: AbortOnDropHandle::new(task) }
    }

    /// What to do from the next run on.
    pub fn give(&self, job: Job) {
        self.job.send_if_modified(|now| {
            let changed = **now != job;
            if changed {
                *now = Arc::new(job);
            }
            changed
        });
    }
}

async fn run<H: Handlers>(
    surroundings: Surroundings<H>,
    pod_uid: String,
    lane: PodLane,
    jobs: watch::Receiver<Arc<Job>>,
    first: Instant,
) {
    let Surroundings { handlers, lanes, answers } = surroundings;
    let mut next = first;
    loop {
        sleep_until(next).await;
        let due = jobs.borrow().clone();
        let Some(place) = lanes.enter(&lane, &due.spec.handler).await else { return };
        // Read after the wait, which may have been long.
        let job = jobs.borrow().clone();
        let started = Instant::now();
        let mut report = handlers.run(&job).await;
        if report.outcome == ProbeOutcome::Failure && started.elapsed() > job.spec.timeout + LATE {
            // Whoever should have kept the time slept: this process, or the runtime. What is said next counts.
            report = handlers.run(&job).await;
        }
        drop(place);
        let answer = Answer {
            pod_uid: pod_uid.clone(),
            container_id: job.container_id.clone(),
            kind: job.spec.kind,
            report,
            took: started.elapsed(),
        };
        if answers.send(answer).await.is_err() {
            return;
        }
        // From start to start, as the API says; a run that took longer is followed at once, never overlapped.
        next = started + job.spec.period;
    }
}
