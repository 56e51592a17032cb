//! Unused images: removed when the disk fills up, when they grew too old, or when the node asks for its disk back.
//!
//! Owns when an image is removed. Must never remove one that the runtime calls pinned, that a container has (running or
//! not), or that a container was just told it could have; and none at all while it is not known what is used.

mod plan;
mod ports;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bulkhead_base::chain;
use bulkhead_cri::{Images, wire};
use bulkhead_reconcile::{Next, Reconciler, Trigger};
use bulkhead_service::{Counter, Desc, Metrics};
use tokio::sync::Mutex;
use tokio::time::Instant;

pub use plan::Limits;
pub(crate) use ports::{Disk, Statvfs, Users, UsersOfPods};

use crate::error::GcError;
use crate::promised::Promised;
use plan::{Ages, Candidate, Cause};

/// How often images are looked at: the kubelet's period.
const PERIOD: Duration = Duration::from_secs(300);

const COLLECTED: Desc = Desc {
    name: "kubelet_image_garbage_collected_total",
    help: "Images removed, by reason: space or age.",
    labels: &["reason"],
};

/// Removes images. Clones are the same one: a pass and a request for disk wait for each other.
pub(crate) struct Collector<R, U, D>(Arc<Shared<R, U, D>>);

impl<R, U, D> Clone for Collector<R, U, D> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

struct Shared<R, U, D> {
    runtime: R,
    users: U,
    disk: D,
    limits: Limits,
    promised: Promised,
    collected: Counter,
    ages: Mutex<Ages>,
}

/// What the collector works with.
pub(crate) struct Parts<R, U, D> {
    /// The image service.
    pub(crate) runtime: R,
    /// Who uses images.
    pub(crate) users: U,
    /// How full it is.
    pub(crate) disk: D,
    /// When images go.
    pub(crate) limits: Limits,
    /// Images that containers were told they could have.
    pub(crate) promised: Promised,
}

impl<R: Images, U: Users, D: Disk> Collector<R, U, D> {
    /// With nothing looked at yet.
    pub(crate) fn new(parts: Parts<R, U, D>, metrics: &Metrics) -> Self {
        let Parts { runtime, users, disk, limits, promised } = parts;
        let collected = metrics.counter(COLLECTED);
        let ages = Mutex::new(Ages::new(Instant::now()));
        Self(Arc::new(Shared { runtime, users, disk, limits, promised, collected, ages }))
    }

    /// Removes every image that may go; returns the bytes that they had.
    ///
    /// # Errors
    /// When what is used is not known. Images that the runtime would not remove are no error.
    pub(crate) async fn reclaim(&self) -> Result<u64, GcError> {
        let mut ages = self.0.ages.lock().await;
        let (images, now) = self.look(&mut ages).await?;
        let going = ages.candidates(&images, Cause::Everything, &self.0.limits, now);
        Ok(self.remove(going, "space").await.freed)
    }

    async fn pass(&self) -> Result<(), GcError> {
        let shared = &*self.0;
        let mut ages = shared.ages.lock().await;
        let (mut images, now) = self.look(&mut ages).await?;
        let old = ages.outlived(&images, &shared.limits, now);
        let gone: BTreeSet<_> = old.iter().map(|image| image.id.clone()).collect();
        self.remove(old, "age").await;
        images.retain(|image| !gone.contains(&image.id));
        if shared.limits.high >= 100 {
            return Ok(());
        }
        let store = shared.runtime.image_fs_info().await.map_err(GcError::Runtime)?;
        let place = store.image_filesystems.into_iter().next().and_then(|place| place.fs_id);
        let folder = place.ok_or(GcError::NoStore)?.mountpoint;
        let space = shared.disk.space(&folder).await.ok_or_else(|| GcError::Unmeasured { folder })?;
        let Some(missing) = Ages::missing(space, &shared.limits) else { return Ok(()) };
        let going = ages.candidates(&images, Cause::Space(missing), &shared.limits, now);
        let removed = self.remove(going, "space").await;
        if removed.freed < missing {
            return Err(GcError::NotEnough { wanted: missing, freed: removed.freed, failed: removed.failed });
        }
        Ok(())
    }

    /// What there is, and what of it is used; the ages know it then.
    async fn look(&self, ages: &mut Ages) -> Result<(Vec<wire::Image>, Instant), GcError> {
        let shared = &*self.0;
        let images = shared.runtime.list_images().await.map_err(GcError::Runtime)?;
        // Asked after the list: a container made meanwhile has an image that was on it.
        let mut used = shared.users.used().await?;
        let now = Instant::now();
        used.extend(shared.promised.since(now, shared.limits.least_age));
        ages.look(&images, &used, now);
        Ok((images, now))
    }

    async fn remove(&self, images: Vec<Candidate>, reason: &str) -> Removed {
        let mut removed = Removed::default();
        for Candidate { id, size } in images {
            // Promised a moment ago: whoever was told that it is there must find it.
            if self.0.promised.has(&id, Instant::now(), self.0.limits.least_age) {
                continue;
            }
            match self.0.runtime.remove_image(&id).await {
                Ok(()) => {
                    removed.freed = removed.freed.saturating_add(size);
                    self.0.collected.add_one(&[reason]);
                    tracing::info!(image = id, bytes = size, reason, "unused image removed");
                }
                Err(error) => {
                    removed.failed += 1;
                    tracing::debug!(image = id, error = %chain(&error), "image not removed");
                }
            }
        }
        removed
    }
}

#[derive(Default)]
struct Removed {
    freed: u64,
    failed: usize,
}

/// The loop.
pub(crate) struct Loop<R, U, D> {
    collector: Collector<R, U, D>,
    /// What was complained of last: each thing is said once.
    said: String,
}

impl<R: Images, U: Users, D: Disk> Loop<R, U, D> {
    /// Passes of this collector.
    pub(crate) fn new(collector: Collector<R, U, D>) -> Self {
        Self { collector, said: String::new() }
    }

    fn needless(&self) -> bool {
        let limits = &self.collector.0.limits;
        limits.high >= 100 && limits.longest_unused.is_none()
    }
}

impl<R: Images, U: Users, D: Disk> Reconciler for Loop<R, U, D> {
    const NAME: &'static str = "image garbage collection";

    fn interval(&self) -> Duration {
        PERIOD
    }

    async fn reconcile(&mut self, _: Trigger) -> Next {
        if self.needless() {
            return Next::Wait;
        }
        let error = match self.collector.pass().await {
            Ok(()) => {
                self.said.clear();
                return Next::Wait;
            }
            Err(error) => error,
        };
        let kind = error.kind();
        if self.said != kind {
            tracing::warn!(error = %chain(&error), "image garbage collection");
            kind.clone_into(&mut self.said);
        }
        match error {
            // More often would free no more.
            GcError::NotEnough { .. } | GcError::NoStore | GcError::Unmeasured { .. } => Next::Wait,
            GcError::Runtime(_) | GcError::Pods(_) => Next::Failed(chain(&error).to_string()),
        }
    }
}

#[cfg(test)]
mod tests;
