//! Whether the runtime's image service answers: learned from the calls that are made anyway, and asked for only when
//! there were none for a while.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bulkhead_cri::{CriError, Images, wire};
use bulkhead_reconcile::{Next, Reconciler, Trigger};
use bulkhead_service::Check;
use tokio::time::Instant;

use crate::error::is_away;

/// An answer this young needs no other.
const FRESH: Duration = Duration::from_secs(30);

/// Where the verdict goes.
pub(crate) trait Report: Send + Sync + 'static {
    /// The image service answers, or why it does not.
    fn report(&self, verdict: Result<(), String>);
}

/// What is known. Clones share it.
#[derive(Clone)]
pub(crate) struct Health(Arc<Inner>);

struct Inner {
    report: Box<dyn Report>,
    answered: Mutex<Option<Instant>>,
}

/// A runtime whose answers are noted.
#[derive(Clone)]
pub(crate) struct Watched<R> {
    runtime: R,
    health: Health,
}

/// The loop that asks when nobody else did.
pub(crate) struct Probe<R> {
    runtime: R,
    health: Health,
}

impl Report for Check {
    fn report(&self, verdict: Result<(), String>) {
        match verdict {
            Ok(()) => self.good(),
            Err(reason) => self.bad(reason),
        }
    }
}

impl Health {
    /// Nothing is known yet.
    pub(crate) fn new(report: impl Report) -> Self {
        Self(Arc::new(Inner { report: Box::new(report), answered: Mutex::new(None) }))
    }

    fn note<T>(&self, result: &Result<T, CriError>) {
        let away = result.as_ref().err().filter(|error| is_away(error));
        *self.answered() = away.is_none().then(Instant::now);
        self.0.report.report(match away {
            Some(error) => Err(format!("the runtime's image service does not answer: {error}")),
            None => Ok(()),
        });
    }

    fn is_fresh(&self) -> bool {
        self.answered().is_some_and(|at| at.elapsed() < FRESH)
    }

    fn answered(&self) -> std::sync::MutexGuard<'_, Option<Instant>> {
        self.0.answered.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<R> Watched<R> {
    /// Notes what `runtime` answers.
    pub(crate) fn new(runtime: R, health: Health) -> Self {
        Self { runtime, health }
    }
}

impl<R: Images> Images for Watched<R> {
    async fn image_status(&self, image: &str) -> Result<Option<wire::Image>, CriError> {
        let result = self.runtime.image_status(image).await;
        self.health.note(&result);
        result
    }

    async fn list_images(&self) -> Result<Vec<wire::Image>, CriError> {
        let result = self.runtime.list_images().await;
        self.health.note(&result);
        result
    }

    async fn pull_image(&self, image: &str, auth: Option<wire::AuthConfig>) -> Result<String, CriError> {
        // A failed pull says more about registries than about the runtime; the look after it tells.
        self.runtime.pull_image(image, auth).await
    }

    async fn remove_image(&self, image: &str) -> Result<(), CriError> {
        let result = self.runtime.remove_image(image).await;
        self.health.note(&result);
        result
    }

    async fn image_fs_info(&self) -> Result<wire::ImageFsInfoResponse, CriError> {
        let result = self.runtime.image_fs_info().await;
        self.health.note(&result);
        result
    }
}

impl<R> Probe<R> {
    /// Asks `runtime`, which must be [`Watched`] with the same health.
    pub(crate) fn new(runtime: R, health: Health) -> Self {
        Self { runtime, health }
    }
}

impl<R: Images> Reconciler for Probe<R> {
    const NAME: &'static str = "image service probe";

    fn interval(&self) -> Duration {
        FRESH
    }

    async fn reconcile(&mut self, _: Trigger) -> Next {
        if self.health.is_fresh() {
            return Next::Wait;
        }
        match self.runtime.image_fs_info().await {
            // While it is away it is asked more often, with back-off: a call to nobody costs nothing, and the check
            // must not be bad for long after the runtime is back.
            Err(error) if is_away(&error) => Next::Failed(error.to_string()),
            _ => Next::Wait,
        }
    }
}

#[cfg(test)]
mod tests {
    use bulkhead_reconcile::{drive, wake};
    use tokio::sync::watch;
    use tonic::{Code, Status};

    use super::*;
    use crate::fake::FakeImages;

    impl Report for watch::Sender<Option<Result<(), String>>> {
        fn report(&self, verdict: Result<(), String>) {
            self.send_replace(Some(verdict));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn it_is_asked_only_after_a_quiet_time_and_oftener_while_it_is_away() {
        let (sender, verdict) = watch::channel(None);
        let health = Health::new(sender);
        let fake = FakeImages::default();
        let runtime = Watched::new(fake.clone(), health.clone());
        let (_waker, wake) = wake();
        let probe = Probe::new(runtime.clone(), health);
        let task = tokio::spawn(drive(probe, wake, watch::Sender::default(), std::future::pending()));
        let sleep = |millis| tokio::time::sleep(Duration::from_millis(millis));

        sleep(1).await;
        assert_eq!((fake.fs_infos(), verdict.borrow().clone()), (1, Some(Ok(()))), "at the start");
        sleep(29_000).await;
        runtime.image_status("a:1").await.unwrap();
        sleep(30_000).await;
        assert_eq!(fake.fs_infos(), 1, "the calls of others are enough");
        sleep(30_000).await;
        assert_eq!(fake.fs_infos(), 2, "after a quiet time");

        fake.go_away(Status::unavailable("no runtime"));
        let before = fake.fs_infos();
        sleep(60_000).await;
        let reason = verdict.borrow().clone().unwrap().unwrap_err();
        assert!(
            reason.contains("image service does not answer") && reason.contains("no runtime"),
            "{reason}"
        );
        let asked = fake.fs_infos() - before;
        assert!((5..=20).contains(&asked), "with back-off: {asked}");
        fake.come_back();
        sleep(10_000).await;
        assert_eq!(verdict.borrow().clone(), Some(Ok(())), "soon after it is back");
        task.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn an_error_that_is_an_answer_and_a_failed_pull_are_no_absence() {
        let (sender, verdict) = watch::channel(None);
        let fake = FakeImages::default();
        let runtime = Watched::new(fake.clone(), Health::new(sender));
        fake.fail_status("a:1", Status::new(Code::Internal, "bad disk"));
        runtime.image_status("a:1").await.unwrap_err();
        assert_eq!(verdict.borrow().clone(), Some(Ok(())));
        fake.fail_pulls("a:1", Status::unavailable("503"), 1);
        runtime.pull_image("a:1", None).await.unwrap_err();
        assert_eq!(verdict.borrow().clone(), Some(Ok(())));
    }
}
