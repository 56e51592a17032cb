//! Runs the pulls of the table in tasks of their own, so that they go on when their callers are gone.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bulkhead_cri::{CriError, Images};
use bulkhead_ipc::{trace, traced};
use bulkhead_model::image::ImageRef;
use tokio::time::Instant;
use tracing::{Instrument, Span};

use crate::answer::{Image, PullFailure};
use crate::config::Settings;
use crate::credentials::{Access, Source};
use crate::error::is_away;
use crate::keyring::Auth;
use crate::records::Records;
use crate::table::{Asker, Done, Job, Table, Ticket, Wish};

/// The pulls of the node. Clones share them.
#[derive(Clone)]
pub(crate) struct Pulls<R>(Arc<Shared<R>>);

struct Shared<R> {
    runtime: R,
    records: Records,
    start: Instant,
    table: Mutex<Table>,
}

impl<R: Images> Pulls<R> {
    /// None yet.
    pub(crate) fn new(runtime: R, records: Records, settings: &Settings) -> Self {
        let table = Mutex::new(Table::new(settings));
        Self(Arc::new(Shared { runtime, records, start: Instant::now(), table }))
    }

    /// Joins the image's pull or starts one; in the trace of the current span.
    pub(crate) fn ask(&self, asker: &Asker, image: &str, access: &Access) -> Ticket {
        let traceparent = trace::traceparent(&Span::current());
        let wish = Wish { asker, image, access, traceparent: traceparent.as_deref() };
        let ticket = self.table().ask(wish, self.now());
        self.start_jobs();
        ticket
    }

    /// `asker` was told, or does not need it any more. Says whether the pull was started for it.
    pub(crate) fn settle(&self, asker: &Asker, image: &str) -> bool {
        self.table().settle(asker, image)
    }

    fn start_jobs(&self) {
        loop {
            // The lock must not outlive this line: the tasks take it too.
            let job = self.table().next_job(self.now());
            let Some(job) = job else { return };
            let pulls = self.clone();
            tokio::spawn(async move {
                let done = pull(&pulls.0.runtime, &pulls.0.records, &job).await;
                pulls.table().finish(&job.key, done, pulls.now());
                pulls.start_jobs();
            });
        }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Duration {
        self.0.start.elapsed()
    }
}

/// Tries the credentials one after another: which one a registry takes only it can tell. Without any, one try without.
async fn pull_with<'a, R: Images>(
    runtime: &R,
    image: &str,
    access: &'a Access,
) -> Result<Pulled<'a>, CriError> {
    let mut all = access.all();
    let Some((last, source)) = all.next_back() else {
        return Ok(Pulled { found: runtime.pull_image(image, None).await?, with: None });
    };
    for (auth, source) in all {
        match runtime.pull_image(image, Some(auth.to_wire())).await {
            Ok(found) => return Ok(Pulled { found, with: Some((auth, source)) }),
            Err(error) => tracing::info!(image, %error, "not pulled; the next credentials are tried"),
        }
    }
    let found = runtime.pull_image(image, Some(last.to_wire())).await?;
    Ok(Pulled { found, with: Some((last, source)) })
}

/// What a pull brought, and the credentials that it took.
struct Pulled<'a> {
    found: String,
    with: Option<(&'a Auth, &'a Source)>,
}

/// One pull, traced if whoever started it is.
async fn pull<R: Images>(runtime: &R, records: &Records, job: &Job) -> Done {
    let span = match &job.traceparent {
        Some(parent) => {
            let span = traced!(
                "pull",
                otel.name = format!("imaged pull {}", job.image),
                pod.uid = %job.asker.pod_uid,
                container.name = %job.asker.container,
                image = %job.image,
            );
            trace::set_parent(&span, parent);
            span
        }
        None => Span::none(),
    };
    let done = pull_and_look(runtime, records, job).instrument(span.clone()).await;
    match &done {
        Done::Pulled(image) => tracing::info!(image = job.image, id = image.id, "image pulled"),
        Done::Failed(PullFailure { text, .. }) | Done::NotInspected(text) => {
            trace::fail(&span, text);
            tracing::warn!(image = job.image, error = text, "image not pulled");
        }
        Done::NoAnswer(error) => {
            trace::fail(&span, error);
            tracing::warn!(image = job.image, %error, "image not pulled");
        }
    }
    done
}

async fn pull_and_look<R: Images>(runtime: &R, records: &Records, job: &Job) -> Done {
    let (image, access) = (job.image.as_str(), &job.access);
    tracing::info!(image, credentials = access.all().len(), "pulling image");
    let of = match ImageRef::parse(image) {
        Ok(parsed) => parsed,
        Err(error) => return Done::NotInspected(error.to_string()),
    };
    if access.has_own()
        && let Err(reason) = records.begin(&of).await
    {
        let text = format!("the pull is not begun, since it cannot be kept who may use the image: {reason}");
        return Done::Failed(PullFailure::from_runtime(&text));
    }
    let done = pull_of(runtime, records, &of, job).await;
    // Without an answer it is not known whether the runtime goes on with it.
    if access.has_own() && !matches!(done, Done::Pulled(_) | Done::NoAnswer(_)) {
        records.end(&of, None).await;
    }
    if records.is_crowded()
        && let Ok(images) = runtime.list_images().await
    {
        records.keep(&images.into_iter().map(|image| image.id).collect());
    }
    done
}

async fn pull_of<R: Images>(runtime: &R, records: &Records, of: &ImageRef, job: &Job) -> Done {
    let (image, access) = (job.image.as_str(), &job.access);
    match pull_with(runtime, image, access).await {
        Ok(Pulled { found: pulled, with }) => {
            let found = if pulled.is_empty() { image } else { &pulled };
            match runtime.image_status(found).await {
                Ok(Some(status)) => {
                    let status = Image::from(status);
                    records.end(of, Some((&status.id, with))).await;
                    Done::Pulled(status)
                }
                Ok(None) => {
                    Done::NotInspected(format!("the runtime pulled it as {found} but does not find it"))
                }
                Err(error) if is_away(&error) => Done::NoAnswer(error),
                Err(error) => Done::NotInspected(error.runtime_message()),
            }
        }
        // The code of a failed pull may be the registry's: only another call tells whether the runtime is there.
        Err(error) => match runtime.image_status(image).await {
            Err(probe) if is_away(&probe) => Done::NoAnswer(probe),
            _ => Done::Failed(PullFailure::from_runtime(&error.runtime_message())),
        },
    }
}
