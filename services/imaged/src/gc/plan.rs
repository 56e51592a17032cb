//! Which images may go, and in which order. Pure: no clock, no disk, no runtime.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bulkhead_cri::wire;
use tokio::time::Instant;

/// Most images that are remembered; what a runtime lists beyond that is left alone.
const MOST: usize = 10_000;

/// How full the disk may become, and how old an image must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Percent of the image file system in use from which on images are removed: `imageGCHighThresholdPercent`. 100: never.
    pub high: u8,
    /// Percent to come down to: `imageGCLowThresholdPercent`.
    pub low: u8,
    /// An image that came later than this is left alone: `imageMinimumGCAge`.
    pub least_age: Duration,
    /// An image that nobody used for longer than this is removed however empty the disk is: `imageMaximumGCAge`.
    /// `None`: no limit.
    pub longest_unused: Option<Duration>,
}

impl Default for Limits {
    /// The kubelet's.
    fn default() -> Self {
        Self { high: 85, low: 80, least_age: Duration::from_secs(120), longest_unused: None }
    }
}

/// How full the image file system is, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// The whole.
    pub capacity: u64,
    /// What is left for who is not root.
    pub available: u64,
}

impl Space {
    /// Bytes to free, or `None` while it is not full enough. As the kubelet reckons: what is not available counts as used.
    fn missing(self, limits: &Limits) -> Option<u64> {
        let percent = |share: u8| u128::from(self.capacity) * u128::from(share) / 100;
        let used = self.capacity.saturating_sub(self.available);
        if limits.high >= 100 || self.capacity == 0 || u128::from(used) < percent(limits.high) {
            return None;
        }
        let wanted = percent(100_u8.saturating_sub(limits.low));
        u64::try_from(wanted).ok()?.checked_sub(self.available).filter(|missing| *missing > 0)
    }
}

/// Why images are removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// So many bytes are wanted.
    Space(u64),
    /// As many as can be had: the node is short of disk.
    Everything,
}

/// An image that may go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Candidate {
    /// Its id.
    pub(crate) id: String,
    /// Bytes that it has.
    pub(crate) size: u64,
}

#[derive(Clone, Copy, Debug)]
struct Record {
    /// `None`: it was here before this process.
    came: Option<Instant>,
    /// `None`: not seen in use by this process.
    used: Option<Instant>,
}

/// What is known of the images: when they came, and when they were last used.
#[derive(Debug)]
pub(crate) struct Ages {
    /// When this process began to look.
    began: Instant,
    first: bool,
    records: BTreeMap<String, Record>,
}

impl Ages {
    /// Nothing was looked at before `now`.
    pub(crate) fn new(now: Instant) -> Self {
        Self { began: now, first: true, records: BTreeMap::new() }
    }

    /// The runtime's images, and by which names and ids images are used, as of `now`.
    pub(crate) fn look(&mut self, images: &[wire::Image], used: &BTreeSet<String>, now: Instant) {
        let came = if std::mem::take(&mut self.first) { None } else { Some(now) };
        let there: BTreeSet<&str> = images.iter().map(|image| image.id.as_str()).collect();
        self.records.retain(|id, _| there.contains(id.as_str()));
        for image in images {
            if self.records.len() >= MOST && !self.records.contains_key(&image.id) {
                continue;
            }
            let record = self.records.entry(image.id.clone()).or_insert(Record { came, used: None });
            if names(image).any(|name| used.contains(name)) {
                record.used = Some(now);
            }
        }
    }

    /// Images to remove for `cause`, those unused for longest first: pinned ones, those in use and young ones are not among
    /// them. [`Ages::look`] was just called with the same `now`.
    pub(crate) fn candidates(
        &self,
        images: &[wire::Image],
        cause: Cause,
        limits: &Limits,
        now: Instant,
    ) -> Vec<Candidate> {
        let mut unused: Vec<_> = self
            .unused(images, now)
            .filter(|(_, record)| record.came.is_none_or(|came| now - came >= limits.least_age))
            .collect();
        unused.sort_by_key(|(image, record)| (record.used, record.came, image.id.clone()));
        let mut missing = match cause {
            Cause::Space(bytes) => bytes,
            Cause::Everything => u64::MAX,
        };
        let enough = |(image, _): (&wire::Image, &Record)| {
            let wanted = missing > 0;
            missing = missing.saturating_sub(image.size);
            wanted.then(|| Candidate { id: image.id.clone(), size: image.size })
        };
        unused.into_iter().map_while(enough).collect()
    }

    /// Images that nobody used for too long, as far as this process knows: a restart begins anew, as the kubelet's does.
    pub(crate) fn outlived(&self, images: &[wire::Image], limits: &Limits, now: Instant) -> Vec<Candidate> {
        let Some(longest) = limits.longest_unused else { return Vec::new() };
        let since = |record: &Record| record.used.or(record.came).unwrap_or(self.began);
        let old = self.unused(images, now).filter(|(_, record)| now - since(record) > longest);
        old.map(|(image, _)| Candidate { id: image.id.clone(), size: image.size }).collect()
    }

    /// How many bytes [`Cause::Space`] needs; `None`: enough is free.
    pub(crate) fn missing(space: Space, limits: &Limits) -> Option<u64> {
        space.missing(limits)
    }

    fn unused<'a>(
        &'a self,
        images: &'a [wire::Image],
        now: Instant,
    ) -> impl Iterator<Item = (&'a wire::Image, &'a Record)> {
        images.iter().filter(|image| !image.pinned).filter_map(move |image| {
            let record = self.records.get(&image.id)?;
            (record.used != Some(now)).then_some((image, record))
        })
    }
}

/// All that an image is known by.
fn names(image: &wire::Image) -> impl Iterator<Item = &str> {
    let names = image.repo_tags.iter().chain(&image.repo_digests).map(String::as_str);
    std::iter::once(image.id.as_str()).chain(names)
}

#[cfg(test)]
mod tests;
