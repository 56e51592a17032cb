//! All volumes of the node: who may work when, and what stands.
//!
//! Owns the published state. Its work blocks on disks, so it runs in threads: at most four at a time, in three lanes,
//! so that neither a huge tree nor a network disk that hangs keeps other pods from starting.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bulkhead_api::volumed::v1::{
    MountedVolume, PodVolumes, PodVolumesUpdate, SetUpPodResponse, TearDownPodResponse,
};
use bulkhead_ipc::Publisher;
use bulkhead_ipc::publisher::BoxStream;
use bulkhead_ipc::{trace, traced};
use tokio::sync::Semaphore;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, Span};

use crate::error::Error;
use crate::locks::{PodLock, PodLocks};
use crate::names::{PodUid, VolumeName, empty_dir_path};
use crate::scan::{self, Found};
use crate::spec::{HostPath, Medium, PodSpec, Source, VolumeSpec};
use crate::{empty_dir, host_path, teardown};

/// A call ends at the latest then, with or without a deadline of the caller's (proto: 30 s).
const CALL: Duration = Duration::from_secs(30);

/// Clones share everything.
#[derive(Clone)]
pub(crate) struct Volumes(Arc<Inner>);

struct Inner {
    /// `{root}/pods`.
    pods: String,
    standing: Publisher<String, PodVolumes>,
    known: watch::Sender<bool>,
    locks: PodLocks,
    lanes: Lanes,
    shutdown: CancellationToken,
}

/// How much runs at the same time.
struct Lanes {
    /// Removal may take long: two trees at once.
    removal: Arc<Semaphore>,
    /// Directories and mounts of our own: short.
    own: Arc<Semaphore>,
    /// Paths of the node: each may hang for ever on a dead network disk, and then only hostPath waits behind it.
    host: Arc<Semaphore>,
}

/// What a job holds until it has really ended, also when nobody waits for it any more.
type Held = Option<Arc<PodLock>>;

impl Volumes {
    /// Nothing is known yet. `pods` is `{root}/pods`.
    pub(crate) fn new(pods: String, shutdown: CancellationToken) -> Self {
        let lane = |permits| Arc::new(Semaphore::new(permits));
        Self(Arc::new(Inner {
            pods,
            standing: Publisher::new(shutdown.clone()),
            known: watch::Sender::new(false),
            locks: PodLocks::default(),
            lanes: Lanes { removal: lane(2), own: lane(1), host: lane(1) },
            shutdown,
        }))
    }

    /// Makes all volumes of a pod ready, one after another; stops at the first that cannot be had.
    pub(crate) async fn set_up(&self, pod: PodSpec) -> Result<SetUpPodResponse, Error> {
        let work = async {
            let lock = Arc::new(self.0.locks.lock(&pod.uid).await?);
            let mut response = SetUpPodResponse::default();
            for volume in pod.volumes {
                let name = volume.name.clone();
                let span = traced!("volumed SetUp", otel.name = %format!("volumed SetUp {name}"), pod.uid = %pod.uid);
                let result = self.volume(&pod.uid, volume, &lock).instrument(span.clone()).await;
                let (mounted, changed) = result.map_err(|source| {
                    trace::fail(&span, &bulkhead_base::chain(&source));
                    Error::Volume { volume: name.to_string(), source: Box::new(source) }
                })?;
                response.volumes.push(mounted);
                response.changed |= changed;
            }
            Ok(response)
        };
        tokio::time::timeout(CALL, work).await.unwrap_or(Err(Error::Interrupted))
    }

    /// Takes all volumes of a pod down. A caller that leaves stops the work soon.
    pub(crate) async fn tear_down(&self, uid: PodUid) -> Result<TearDownPodResponse, Error> {
        let stop = self.0.shutdown.child_token();
        let _stops_when_left = stop.clone().drop_guard();
        let work = async {
            let lock = Arc::new(self.0.locks.lock(&uid).await?);
            let span = traced!("volumed TearDown", pod.uid = %uid);
            let job = move |inner: &Inner| {
                let removed = teardown::tear_down(inner.pods(), &uid, &|| stop.is_cancelled())?;
                let was_known = inner.standing.remove(&uid.to_string());
                Ok(removed || was_known)
            };
            let result = self.job(&self.0.lanes.removal, Some(lock), job).instrument(span.clone()).await;
            result.inspect_err(|error| trace::fail(&span, &bulkhead_base::chain(error)))
        };
        let result = tokio::time::timeout(CALL, work).await.unwrap_or(Err(Error::Interrupted));
        result.map(|changed| TearDownPodResponse { changed })
    }

    /// The pods that have volumes, from now on.
    pub(crate) fn subscribe(&self) -> BoxStream<PodVolumesUpdate> {
        self.0.standing.subscribe()
    }

    /// Finds what earlier lives left and begins to publish. Before that nobody is told anything.
    pub(crate) async fn learn(&self) -> Result<(), Error> {
        let found = self.job(&self.0.lanes.own, None, |inner| scan::pods(inner.pods())).await?;
        for found in found {
            // One pod after another, each alone: a call for it may have come first.
            let lock = Arc::new(self.0.locks.lock(&found.uid).await?);
            self.job(&self.0.lanes.own, Some(lock), move |inner| inner.learn(&found)).await?;
        }
        self.0.standing.open();
        self.0.known.send_replace(true);
        Ok(())
    }

    /// Whether the folder of all pods can be worked in.
    pub(crate) async fn probe(&self) -> Result<(), Error> {
        self.job(&self.0.lanes.own, None, |inner| scan::probe(inner.pods())).await
    }

    /// Waits until the state is known and published.
    pub(crate) async fn known(&self) {
        // The sender lives as long as `self`.
        let _ = self.0.known.subscribe().wait_for(|known| *known).await;
    }

    async fn volume(
        &self,
        uid: &PodUid,
        volume: VolumeSpec,
        lock: &Arc<PodLock>,
    ) -> Result<(MountedVolume, bool), Error> {
        match volume.source {
            Source::EmptyDir(medium) => self.empty_dir(uid.clone(), volume.name, medium, lock).await,
            Source::HostPath(host) => self.host_path(uid, &volume.name, host).await,
        }
    }

    async fn empty_dir(
        &self,
        uid: PodUid,
        name: VolumeName,
        medium: Medium,
        lock: &Arc<PodLock>,
    ) -> Result<(MountedVolume, bool), Error> {
        let work = move |inner: &Inner| {
            // Published before the first thing is made: nothing of it may be on the node unknown.
            inner.stands(&uid, None);
            let changed = empty_dir::set_up(inner.pods(), &uid, &name, medium)?;
            let host_path = empty_dir_path(&inner.pods, &uid, name.as_str());
            let mounted = MountedVolume { name: name.to_string(), host_path };
            inner.stands(&uid, Some(&mounted));
            Ok((mounted, changed))
        };
        self.job(&self.0.lanes.own, Some(lock.clone()), work).await
    }

    /// The job does not hold the pod: a path that hangs must not keep the pod from being taken down.
    async fn host_path(
        &self,
        uid: &PodUid,
        name: &VolumeName,
        host: HostPath,
    ) -> Result<(MountedVolume, bool), Error> {
        let work = move |_: &Inner| Ok((host_path::set_up(&host)?, host.path));
        let (changed, host_path) = self.job(&self.0.lanes.host, None, work).await?;
        let mounted = MountedVolume { name: name.to_string(), host_path };
        self.0.stands(uid, Some(&mounted));
        Ok((mounted, changed))
    }

    /// Runs `work` in a thread, in its lane. Its place and what it holds are given up when it ends, not when the caller
    /// leaves.
    async fn job<T: Send + 'static>(
        &self,
        lane: &Arc<Semaphore>,
        held: Held,
        work: impl FnOnce(&Inner) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let place = lane.clone().acquire_owned().await.map_err(|_| Error::Interrupted)?;
        let inner = self.0.clone();
        let span = Span::current();
        let job = move || {
            let _until_the_end = (place, held);
            span.in_scope(|| work(&inner))
        };
        tokio::task::spawn_blocking(job).await.map_err(Error::Broken)?
    }
}

impl Inner {
    fn pods(&self) -> &Path {
        Path::new(&self.pods)
    }

    /// Notes a pod, and that a volume of it stands. The caller has the pod's lock.
    fn stands(&self, uid: &PodUid, mounted: Option<&MountedVolume>) {
        let uid = uid.to_string();
        let before = self.standing.get(&uid);
        let volumes = with(before.as_deref().map_or(&[], |pod| pod.volumes.as_slice()), mounted);
        self.standing.upsert(uid.clone(), PodVolumes { pod_uid: uid, volumes });
    }

    /// Takes over what stands of a pod, unless a call of this life was first.
    fn learn(&self, found: &Found) -> Result<(), Error> {
        let uid = found.uid.to_string();
        if self.standing.get(&uid).is_some() {
            return Ok(());
        }
        let pod = scan::pod(&self.pods, found).unwrap_or_else(|error| {
            // One odd pod must not hide all others. It counts as not taken down.
            tracing::warn!(pod.uid = %uid, error = %bulkhead_base::chain(&error), "a pod's volumes cannot be listed");
            Some(PodVolumes { pod_uid: uid.clone(), volumes: Vec::new() })
        });
        if let Some(pod) = pod {
            self.standing.upsert(uid, pod);
        }
        Ok(())
    }
}

/// `volumes` and one more, by name.
fn with(volumes: &[MountedVolume], mounted: Option<&MountedVolume>) -> Vec<MountedVolume> {
    let others = volumes.iter().filter(|volume| mounted.is_none_or(|mounted| mounted.name != volume.name));
    let mut all: Vec<MountedVolume> = others.chain(mounted).cloned().collect();
    all.sort_by(|a, b| a.name.cmp(&b.name));
    all
}

#[cfg(test)]
mod tests;
