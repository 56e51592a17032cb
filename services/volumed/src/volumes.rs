//! All volumes of the node: who may work when, and what stands.
//!
//! Owns the published state. Its work blocks on disks, so it runs in threads: at most five at a time, in four lanes,
//! so that neither a huge tree nor a network disk that hangs keeps other pods from starting.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bulkhead_api::volumed::v1::{
    BoundSubPath, MountedVolume, PodVolumes, PodVolumesUpdate, SetUpPodResponse, SetUpSubPathsResponse,
    TearDownPodResponse, VolumeUsage,
};
use bulkhead_base::Clock;
use bulkhead_ipc::Publisher;
use bulkhead_ipc::publisher::BoxStream;
use bulkhead_ipc::{trace, traced};
use tokio::sync::Semaphore;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, Span};

use crate::empty_dir::Place;
use crate::error::Error;
use crate::locks::{PodLock, PodLocks};
use crate::names::{
    DOWNWARD_API, EMPTY_DIR, HOST_PATH_PLUGIN, PodUid, VolumeName, plugin_name, sub_path_place, volume_path,
};
use crate::objects::{Objects, Tokens};
use crate::refresh::{Followed, Snapshot};
use crate::scan::{self, Found};
use crate::spec::{FilesSpec, HostPath, PodSpec, Source, SubPath, SubPaths, VolumeFile};
use crate::{empty_dir, files, host_path, sub_path, teardown, usage, wanted};

/// A call ends at the latest then, with or without a deadline of the caller's (proto: 30 s).
const CALL: Duration = Duration::from_secs(30);

/// Longest text of a problem that is published.
const PROBLEM_BYTES: usize = 1024;

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
    objects: Objects,
    tokens: Tokens,
    followed: Followed,
    clock: Arc<dyn Clock>,
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
    /// Counting what volumes hold: of all work the least pressing.
    usage: Arc<Semaphore>,
}

/// What a job holds until it has really ended, also when nobody waits for it any more.
type Held = Option<Arc<PodLock>>;

impl Volumes {
    /// Nothing is known yet. `pods` is `{root}/pods`.
    pub(crate) fn new(
        pods: String,
        objects: Objects,
        clock: Arc<dyn Clock>,
        shutdown: CancellationToken,
    ) -> Self {
        let lane = |permits| Arc::new(Semaphore::new(permits));
        Self(Arc::new(Inner {
            pods,
            standing: Publisher::new(shutdown.clone()),
            known: watch::Sender::new(false),
            locks: PodLocks::default(),
            lanes: Lanes { removal: lane(2), own: lane(1), host: lane(1), usage: lane(1) },
            objects,
            tokens: Tokens::new(clock.clone()),
            followed: Followed::default(),
            clock,
            shutdown,
        }))
    }

    /// Makes all volumes of a pod ready, one after another; stops at the first that cannot be had.
    pub(crate) async fn set_up(&self, pod: PodSpec) -> Result<SetUpPodResponse, Error> {
        let work = async {
            let lock = Arc::new(self.0.locks.lock(&pod.uid).await?);
            let known = self.known(&pod).await?;
            let (uid, keep) = (pod.uid.clone(), pod.wanted);
            let mut response = SetUpPodResponse::default();
            for volume in pod.volumes {
                let name = volume.name.clone();
                let span = traced!("volumed SetUp", otel.name = %format!("volumed SetUp {name}"), pod.uid = %pod.uid);
                let of = Of { uid: pod.uid.clone(), name: volume.name, fs_group: pod.fs_group };
                let result = self.volume(of, volume.source, &known, &lock).instrument(span.clone()).await;
                let (mounted, changed) = result.map_err(|source| {
                    trace::fail(&span, &bulkhead_base::chain(&source));
                    Error::Volume { volume: name.to_string(), source: Box::new(source) }
                })?;
                response.volumes.push(mounted);
                response.changed |= changed;
            }
            if !keep.is_empty() {
                let keep = move |inner: &Inner| wanted::keep(inner.pods(), &uid, &keep);
                self.job(&self.0.lanes.own, Some(lock), keep).await?;
            }
            Ok(response)
        };
        tokio::time::timeout(CALL, work).await.unwrap_or(Err(Error::Interrupted))
    }

    /// What the files of the pod's volumes are to be made of.
    async fn known(&self, pod: &PodSpec) -> Result<Snapshot, Error> {
        let first = pod.volumes.iter().find(|volume| matches!(volume.source, Source::Files(_)));
        if first.is_some() {
            // It counts as a pod with volumes from now on: something is held for it.
            self.0.stands(&pod.uid, None);
        }
        self.known_for(pod).await.map_err(|source| match first {
            Some(volume) => Error::Volume { volume: volume.name.to_string(), source: Box::new(source) },
            None => source,
        })
    }

    /// Takes all volumes of a pod down. A caller that leaves stops the work soon.
    pub(crate) async fn tear_down(&self, uid: PodUid) -> Result<TearDownPodResponse, Error> {
        let stop = self.0.shutdown.child_token();
        let _stops_when_left = stop.clone().drop_guard();
        let work = async {
            let lock = Arc::new(self.0.locks.lock(&uid).await?);
            self.0.followed.forget(&uid);
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
            let pod = self.job(&self.0.lanes.own, Some(lock), move |inner| inner.learn(&found)).await?;
            if let Some(pod) = pod {
                self.follow_again(pod);
            }
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
    pub(crate) async fn learned(&self) {
        // The sender lives as long as `self`.
        let _ = self.0.known.subscribe().wait_for(|known| *known).await;
    }

    async fn volume(
        &self,
        of: Of,
        source: Source,
        known: &Snapshot,
        lock: &Arc<PodLock>,
    ) -> Result<(MountedVolume, bool), Error> {
        match source {
            Source::EmptyDir(medium) => {
                self.own(of, EMPTY_DIR, lock, move |_, place| empty_dir::set_up(place, medium)).await
            }
            Source::DownwardApi(files) => {
                let spec = FilesSpec { folder: DOWNWARD_API, medium: files::MEMORY, parts: Vec::new() };
                self.files(of, &spec, files, lock).await
            }
            Source::Files(spec) => {
                let files = known.files(&spec)?;
                self.files(of, &spec, files, lock).await
            }
            Source::HostPath(host) => self.host_path(&of.uid, &of.name, host).await,
        }
    }

    async fn files(
        &self,
        of: Of,
        spec: &FilesSpec,
        files: Vec<VolumeFile>,
        lock: &Arc<PodLock>,
    ) -> Result<(MountedVolume, bool), Error> {
        let stop = self.0.shutdown.clone();
        let medium = spec.medium;
        let work = move |inner: &Inner, place: &Place<'_>| {
            files::set_up(place, medium, &files, inner.clock.now(), &|| stop.is_cancelled())
        };
        self.own(of, spec.folder, lock, work).await
    }

    /// Brings the files of a volume that stands to these. One that does not is left alone.
    pub(crate) async fn refresh_files(
        &self,
        of: Of,
        spec: &FilesSpec,
        files: Vec<VolumeFile>,
        lock: &Arc<PodLock>,
    ) -> Result<(), Error> {
        if self.0.standing_volume(&of.uid, &of.name).is_none() {
            return Ok(());
        }
        let stop = self.0.shutdown.clone();
        let (folder, medium) = (spec.folder, spec.medium);
        let work = move |inner: &Inner| {
            let place =
                Place { pods: inner.pods(), uid: &of.uid, folder, name: &of.name, fs_group: of.fs_group };
            files::refresh(&place, medium, &files, inner.clock.now(), &|| stop.is_cancelled())
        };
        self.job(&self.0.lanes.own, Some(lock.clone()), work).await.map(drop)
    }

    /// Publishes why the files of a volume are not what they should be; `None`: they are. The caller has the pod.
    pub(crate) fn has_problem(&self, uid: &PodUid, name: &VolumeName, problem: Option<String>) {
        let mut problem = problem.unwrap_or_default();
        problem.truncate(problem.floor_char_boundary(PROBLEM_BYTES));
        if let Some(volume) = self.0.standing_volume(uid, name).filter(|volume| volume.problem != problem) {
            self.0.stands(uid, Some(&MountedVolume { problem, ..volume }));
        }
    }

    /// The pod, once nobody else works on it.
    pub(crate) async fn lock(&self, uid: &PodUid) -> Result<PodLock, Error> {
        self.0.locks.lock(uid).await
    }

    /// Cancelled when the process stops.
    pub(crate) fn shutdown(&self) -> CancellationToken {
        self.0.shutdown.clone()
    }

    /// Objects of the API.
    pub(crate) fn objects(&self) -> &Objects {
        &self.0.objects
    }

    /// Tokens of service accounts.
    pub(crate) fn tokens(&self) -> &Tokens {
        &self.0.tokens
    }

    /// Pods that need any.
    pub(crate) fn followed(&self) -> &Followed {
        &self.0.followed
    }

    /// A volume in the pod's directory, which `work` makes.
    async fn own(
        &self,
        of: Of,
        folder: &'static str,
        lock: &Arc<PodLock>,
        work: impl FnOnce(&Inner, &Place<'_>) -> Result<bool, Error> + Send + 'static,
    ) -> Result<(MountedVolume, bool), Error> {
        let work = move |inner: &Inner| {
            // Published before the first thing is made: nothing of it may be on the node unknown.
            inner.stands(&of.uid, None);
            let (uid, name) = (&of.uid, &of.name);
            let changed =
                work(inner, &Place { pods: inner.pods(), uid, folder, name, fs_group: of.fs_group })?;
            let host_path = volume_path(&inner.pods, uid, folder, name.as_str());
            let plugin = plugin_name(folder);
            let mounted = MountedVolume {
                name: name.to_string(),
                host_path,
                plugin,
                usage: None,
                problem: String::new(),
            };
            inner.stands(uid, Some(&mounted));
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
        let plugin = HOST_PATH_PLUGIN.to_owned();
        let mounted =
            MountedVolume { name: name.to_string(), host_path, plugin, usage: None, problem: String::new() };
        self.0.stands(uid, Some(&mounted));
        Ok((mounted, changed))
    }

    /// Binds the parts of volumes that a container mounts, one after another; stops at the first that cannot be had.
    pub(crate) async fn set_up_sub_paths(&self, asked: SubPaths) -> Result<SetUpSubPathsResponse, Error> {
        let work = async {
            let lock = Arc::new(self.0.locks.lock(&asked.uid).await?);
            let mut response = SetUpSubPathsResponse::default();
            for path in asked.paths {
                let (volume, index) = (path.volume.clone(), path.index);
                let host_path = sub_path_place(&self.0.pods, &asked.uid, &volume, &asked.container, index);
                let span = traced!("volumed subPath", pod.uid = %asked.uid, volume = %volume);
                let bound =
                    self.sub_path(&asked.uid, &asked.container, path, &lock).instrument(span.clone()).await;
                response.changed |= bound.map_err(|source| {
                    trace::fail(&span, &bulkhead_base::chain(&source));
                    Error::Volume { volume: volume.to_string(), source: Box::new(source) }
                })?;
                response.sub_paths.push(BoundSubPath { index, host_path });
            }
            Ok(response)
        };
        tokio::time::timeout(CALL, work).await.unwrap_or(Err(Error::Interrupted))
    }

    async fn sub_path(
        &self,
        uid: &PodUid,
        container: &VolumeName,
        path: SubPath,
        lock: &Arc<PodLock>,
    ) -> Result<bool, Error> {
        let volume = self.0.standing_volume(uid, &path.volume).ok_or(Error::NotSetUp)?;
        let (uid, container) = (uid.clone(), container.clone());
        let bind = move |inner: &Inner, found: &std::os::fd::OwnedFd| {
            let pod = sub_path::pod_directory(inner.pods(), &uid)?;
            let place = sub_path::Place { volume: &path.volume, container: &container, index: path.index };
            sub_path::set_up(&pod, &place, found)
        };
        let parts = path.parts;
        if volume.plugin == HOST_PATH_PLUGIN {
            // As with the volume itself: only hostPath waits for a path that hangs.
            let find =
                move |_: &Inner| sub_path::find(host_path::open(Path::new(&volume.host_path))?, &parts);
            let found = self.job(&self.0.lanes.host, None, find).await?;
            return self.job(&self.0.lanes.own, Some(lock.clone()), move |inner| bind(inner, &found)).await;
        }
        let uid = lock.uid().clone();
        let work = move |inner: &Inner| {
            let top = scan::open_volume(inner.pods(), &uid, &volume)?.ok_or(Error::NotSetUp)?;
            let found = sub_path::find(&top, &parts)?;
            bind(inner, &found)
        };
        self.job(&self.0.lanes.own, Some(lock.clone()), work).await
    }

    /// Every volume that can be measured, by pod.
    pub(crate) fn measurable(&self) -> Vec<(String, MountedVolume)> {
        let pods = self.0.standing.snapshot();
        let each = pods.into_iter().flat_map(|(uid, pod)| {
            let volumes = pod.volumes.iter().filter(|volume| volume.plugin != HOST_PATH_PLUGIN);
            volumes.map(|volume| (uid.clone(), volume.clone())).collect::<Vec<_>>()
        });
        each.collect()
    }

    /// Measures every volume of a pod, and tells what is known of them then; `None` for a pod without.
    pub(crate) async fn measure_pod(&self, uid: &PodUid) -> Result<Option<PodVolumes>, Error> {
        let uid = uid.to_string();
        let Some(pod) = self.0.standing.get(&uid) else { return Ok(None) };
        for volume in pod.volumes.iter().filter(|volume| volume.plugin != HOST_PATH_PLUGIN) {
            self.measure(&uid, volume.clone()).await?;
        }
        Ok(self.0.standing.get(&uid).map(|pod| (*pod).clone()))
    }

    /// Measures one volume and publishes what it holds.
    pub(crate) async fn measure(&self, uid: &str, volume: MountedVolume) -> Result<(), Error> {
        let uid = PodUid::parse(uid)?;
        let stop = self.0.shutdown.clone();
        // A descriptor in a mount keeps it from being unmounted: such a look is short, and has the pod. A tree on the disk
        // may be long, and can be removed while it is counted.
        let lock = Arc::new(self.0.locks.lock(&uid).await?);
        let (name, of) = (volume.name.clone(), uid.clone());
        let quick = move |inner: &Inner| {
            let Some(top) = scan::open_volume(inner.pods(), &of, &volume)? else { return Ok(None) };
            usage::start(top, inner.clock.now()).map(Some)
        };
        let Some(measure) = self.job(&self.0.lanes.usage, Some(lock.clone()), quick).await? else {
            return Ok(());
        };
        drop(lock);
        let figures =
            self.job(&self.0.lanes.usage, None, move |_| measure.finish(&|| stop.is_cancelled())).await?;
        self.0.used(&uid, &name, figures);
        Ok(())
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

    /// A volume that was set up, or found standing, in this life.
    fn standing_volume(&self, uid: &PodUid, name: &VolumeName) -> Option<MountedVolume> {
        let pod = self.standing.get(&uid.to_string())?;
        pod.volumes.iter().find(|volume| volume.name == name.as_str()).cloned()
    }

    /// Publishes what a volume holds, if it still stands.
    fn used(&self, uid: &PodUid, name: &str, figures: VolumeUsage) {
        let uid = uid.to_string();
        let Some(before) = self.standing.get(&uid) else { return };
        let Some(volume) = before.volumes.iter().find(|volume| volume.name == name) else { return };
        let same = volume.usage.is_some_and(|usage| {
            VolumeUsage { measured_at: None, ..usage } == VolumeUsage { measured_at: None, ..figures }
        });
        if !same {
            let volume = MountedVolume { usage: Some(figures), ..volume.clone() };
            let volumes = with(&before.volumes, Some(&volume));
            self.standing.upsert(uid.clone(), PodVolumes { pod_uid: uid, volumes });
        }
    }

    /// Takes over what stands of a pod, unless a call of this life was first. Returns what its volumes follow.
    fn learn(&self, found: &Found) -> Result<Option<PodSpec>, Error> {
        let uid = found.uid.to_string();
        if self.standing.get(&uid).is_some() {
            return Ok(None);
        }
        let pod = scan::pod(&self.pods, found).unwrap_or_else(|error| {
            // One odd pod must not hide all others. It counts as not taken down.
            tracing::warn!(pod.uid = %uid, error = %bulkhead_base::chain(&error), "a pod's volumes cannot be listed");
            Some(PodVolumes { pod_uid: uid.clone(), volumes: Vec::new() })
        });
        let Some(pod) = pod else { return Ok(None) };
        self.standing.upsert(uid.clone(), pod);
        let wanted = wanted::read(self.pods(), &found.uid).and_then(|request| match request {
            Some(request) => crate::spec::parse_kept(&request).map(Some),
            None => Ok(None),
        });
        Ok(wanted.unwrap_or_else(|error| {
            let error = bulkhead_base::chain(&error);
            tracing::warn!(pod.uid = %uid, %error, "what a pod's volumes follow cannot be read; its next call tells it");
            None
        }))
    }
}

/// Which volume it is.
pub(crate) struct Of {
    pub(crate) uid: PodUid,
    pub(crate) name: VolumeName,
    pub(crate) fs_group: Option<u32>,
}

/// `volumes` and one more, by name. What is known of its use stays known.
fn with(volumes: &[MountedVolume], mounted: Option<&MountedVolume>) -> Vec<MountedVolume> {
    let before = mounted.and_then(|mounted| volumes.iter().find(|volume| volume.name == mounted.name));
    let usage = mounted.and_then(|mounted| mounted.usage).or_else(|| before.and_then(|volume| volume.usage));
    let others = volumes.iter().filter(|volume| mounted.is_none_or(|mounted| mounted.name != volume.name));
    let mut all: Vec<MountedVolume> =
        others.cloned().chain(mounted.map(|mounted| MountedVolume { usage, ..mounted.clone() })).collect();
    all.sort_by(|a, b| a.name.cmp(&b.name));
    all
}

#[cfg(test)]
mod tests;
