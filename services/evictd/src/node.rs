//! This node, for the loop of evictions: what is left of memory, processes and disks, and who is asked for the rest.
//!
//! Owns where the images' disk is. Must never decide.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bulkhead_api::cri::v1::{FilesystemUsage, ImageFsInfoResponse};
use bulkhead_api::evictd::v1::PodStats;
use bulkhead_api::imaged::v1::ReclaimImagesRequest;
use bulkhead_api::imaged::v1::imaged_client::ImagedClient;
use bulkhead_api::syncd::v1::eviction_client::EvictionClient;
use bulkhead_api::syncd::v1::{EvictPodRequest, StatsView};
use bulkhead_api::volumed::v1::volumed_client::VolumedClient;
use bulkhead_api::volumed::v1::{MeasurePodRequest, PodVolumes};
use bulkhead_base::chain;
use bulkhead_cgroup::Layout;
use bulkhead_cri::{Stats, StatsClient};
use bulkhead_disk::FsFigures;
use bulkhead_ipc::PeerChannel;
use bulkhead_ipc::status::with_deadline;
use bulkhead_model::eviction::{Observation, Observations, Signal};
use bulkhead_model::runtime::Container;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};
use tonic::Code;

use crate::collect::Pods;
use crate::evict::{Answer, ContainerDisk, Order, PodDisk, Seen, VolumeDisk, World};
use crate::extra::{Extra, Extras};
use crate::grpc::Newest;
use crate::logs::Taken;
use crate::machine::Machine;
use crate::plan::Plan;

/// How long the place of images is taken as known.
const PLACE: Duration = Duration::from_secs(600);
/// The same while it is not.
const NO_PLACE: Duration = Duration::from_secs(30);
/// How long the runtime may take to say it.
const RUNTIME: Duration = Duration::from_secs(4);
/// Figures of layers and logs this young need no others.
const YOUNG: Duration = Duration::from_secs(5);
/// How long one pod's volumes may take. volumed goes on after it.
const MEASURE: Duration = Duration::from_secs(20);
/// A pod's volumes are measured anew only when this many times as long as it took has passed.
const SHARE: u32 = 50;
/// How long images may take to be removed.
const RECLAIM: Duration = Duration::from_secs(120);
/// How long syncd may take to keep an eviction.
const EVICT: Duration = Duration::from_secs(10);

/// This node.
pub(crate) struct Node {
    /// Signals that thresholds are about: nothing else is looked at.
    pub(crate) signals: BTreeSet<Signal>,
    pub(crate) machine: Arc<Machine>,
    pub(crate) pods: Pods,
    pub(crate) layout: Layout,
    pub(crate) newest: Arc<Newest>,
    pub(crate) extras: Arc<Extras>,
    pub(crate) runtime: StatsClient,
    pub(crate) peers: Peers,
    pub(crate) places: Mutex<Places>,
    pub(crate) measured: Mutex<BTreeMap<String, Measured>>,
}

/// Who is asked.
pub(crate) struct Peers {
    pub(crate) volumed: VolumedClient<PeerChannel>,
    pub(crate) imaged: ImagedClient<PeerChannel>,
    pub(crate) syncd: EvictionClient<PeerChannel>,
}

/// Where the runtime has its images and layers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Places {
    asked: Option<Instant>,
    known: Option<Place>,
}

#[derive(Clone, Debug)]
struct Place {
    /// Folders on their file systems that this process may ask about.
    images: PathBuf,
    layers: PathBuf,
    layers_elsewhere: bool,
}

/// What a pod's volumes held, and from when on they are worth another look.
#[derive(Clone, Debug)]
pub(crate) struct Measured {
    volumes: BTreeMap<String, VolumeDisk>,
    due: Instant,
}

impl Node {
    async fn place(&self) -> Option<Place> {
        let mut places = self.places.lock().await;
        let fresh = if places.known.is_some() { PLACE } else { NO_PLACE };
        if places.asked.is_none_or(|at| at.elapsed() >= fresh) {
            places.asked = Some(Instant::now());
            match timeout(RUNTIME, self.runtime.image_fs_info()).await {
                Ok(Ok(info)) => {
                    if let Some(found) = self.find(info).await {
                        places.known = Some(found);
                    }
                }
                // What was known is still good: disks do not move.
                Ok(Err(error)) => {
                    tracing::debug!(error = %chain(&error), "the place of images is not known")
                }
                Err(_) => tracing::debug!("the place of images is not known: it took too long"),
            }
        }
        places.known.clone()
    }

    async fn find(&self, info: ImageFsInfoResponse) -> Option<Place> {
        let mounts = self.machine.proc_dir().join("self/mountinfo");
        let root = self.machine.root_dir().to_owned();
        let find = move || {
            let mounts = String::from_utf8_lossy(&std::fs::read(mounts).ok()?).into_owned();
            let open = |used: &FilesystemUsage| {
                let folder = PathBuf::from(&used.fs_id.as_ref()?.mountpoint);
                bulkhead_disk::open_place(&mounts, &folder)
            };
            let images = open(info.image_filesystems.first()?)?;
            let layers = info.container_filesystems.first().and_then(open).unwrap_or_else(|| images.clone());
            let device = |place: &PathBuf| std::fs::metadata(place).ok().map(|found| found.dev());
            let layers_elsewhere = device(&layers)? != device(&root)?;
            Some(Place { images, layers, layers_elsewhere })
        };
        tokio::task::spawn_blocking(find).await.ok()?
    }

    /// What a pod's volumes hold, as little as it costs. `None` when volumed does not say.
    async fn measure(&self, uid: &String) -> Option<BTreeMap<String, VolumeDisk>> {
        let known = self.measured.lock().await.get(uid).cloned();
        let begin = Instant::now();
        if let Some(known) = known.filter(|known| known.due > begin) {
            return Some(known.volumes);
        }
        let request = with_deadline(MeasurePodRequest { pod_uid: uid.clone() }, MEASURE);
        match self.peers.volumed.clone().measure_pod(request).await {
            Ok(answer) => {
                let volumes = volumes(&answer.into_inner());
                let due = Instant::now() + begin.elapsed().saturating_mul(SHARE);
                let measured = Measured { volumes: volumes.clone(), due };
                self.measured.lock().await.insert(uid.clone(), measured);
                Some(volumes)
            }
            // It is not set up yet, or is gone.
            Err(status) if status.code() == Code::NotFound => Some(BTreeMap::new()),
            Err(status) => {
                tracing::debug!(pod.uid = uid, error = status.message(), "volumes are not measured");
                None
            }
        }
    }

    fn plan(&self) -> Arc<Plan> {
        let running = self.pods.running.snapshot();
        Arc::new(Plan::new(&self.layout, self.pods.views.snapshot(), &running))
    }
}

impl World for Node {
    async fn observe(&self) -> Seen {
        use Signal::{
            ContainerfsAvailable, ContainerfsInodesFree, ImagefsAvailable, ImagefsInodesFree,
            MemoryAvailable, NodefsAvailable, NodefsInodesFree, PidAvailable,
        };
        let wanted = |signals: &[Signal]| signals.iter().any(|signal| self.signals.contains(signal));
        let of_runtime = [ImagefsAvailable, ImagefsInodesFree, ContainerfsAvailable, ContainerfsInodesFree];
        // Where layers are decides what pods' limits are about, too.
        let place = self.place().await;
        let layers_elsewhere = place.as_ref().is_some_and(|place| place.layers_elsewhere);
        let place = place.filter(|_| wanted(&of_runtime));
        let small = wanted(&[MemoryAvailable, PidAvailable]);
        let root = wanted(&[NodefsAvailable, NodefsInodesFree]);
        let machine = self.machine.clone();
        let read = move || {
            let mut seen = Observations::new();
            if let Some(left) = small.then(|| machine.left()).flatten() {
                seen.insert(MemoryAvailable, left.memory);
                seen.insert(PidAvailable, left.processes);
            }
            let mut disk = |figures: Option<FsFigures>, bytes: Signal, inodes: Signal| {
                let Some(found) = figures else { return };
                let space = Observation { available: found.available_bytes, capacity: found.capacity_bytes };
                seen.insert(bytes, space);
                // A file system without a bound of inodes has none to run out of.
                if found.inodes > 0 {
                    seen.insert(inodes, Observation { available: found.inodes_free, capacity: found.inodes });
                }
            };
            let folder = root.then(|| machine.root_dir().to_owned());
            disk(folder.and_then(|root| bulkhead_disk::read(&root)), NodefsAvailable, NodefsInodesFree);
            if let Some(place) = place {
                disk(bulkhead_disk::read(&place.images), ImagefsAvailable, ImagefsInodesFree);
                disk(bulkhead_disk::read(&place.layers), ContainerfsAvailable, ContainerfsInodesFree);
            }
            seen
        };
        let mut observations = tokio::task::spawn_blocking(read).await.unwrap_or_default();
        observations.retain(|signal, _| self.signals.contains(signal));
        Seen { observations, layers_elsewhere }
    }

    fn pods(&self) -> Option<Vec<Arc<StatsView>>> {
        self.pods.views.status().synced.then(|| self.pods.views.snapshot().into_values().collect())
    }

    fn runs(&self, uid: &str) -> bool {
        let pod = self.pods.running.get(&uid.to_owned());
        pod.is_some_and(|pod| pod.containers.iter().any(Container::may_run))
    }

    async fn figures(&self) -> Vec<PodStats> {
        match self.newest.get().await {
            Ok(collection) => collection.summary.pods.clone(),
            Err(error) => {
                tracing::debug!(%error, "what pods take of memory is not known");
                Vec::new()
            }
        }
    }

    async fn disks(&self, anew: &[String], layers: bool) -> BTreeMap<String, PodDisk> {
        let mut disks = BTreeMap::new();
        if layers {
            let plan = self.plan();
            let extra = self.extras.within(&plan, YOUNG).await;
            disks = plan.pods.iter().map(|pod| (pod.view.uid.clone(), known(pod, &extra))).collect();
        }
        self.measured.lock().await.retain(|uid, _| anew.contains(uid));
        for uid in anew {
            let volumes = self.measure(uid).await;
            let disk = disks.entry(uid.clone()).or_insert_with(PodDisk::default);
            if volumes.is_some() {
                disk.volumes = volumes;
            }
        }
        disks
    }

    async fn reclaim(&self) -> Result<u64, String> {
        let request = with_deadline(ReclaimImagesRequest {}, RECLAIM);
        let answer = self.peers.imaged.clone().reclaim_images(request).await;
        answer.map(|answer| answer.into_inner().freed_bytes).map_err(|status| status.message().to_owned())
    }

    async fn evict(&self, order: Order) -> Answer {
        let Order { uid, message, grace_seconds, disruption } = order;
        let request = EvictPodRequest { pod_uid: uid, message, grace_seconds, disruption };
        match self.peers.syncd.clone().evict_pod(with_deadline(request, EVICT)).await {
            Ok(answer) if answer.get_ref().changed => Answer::Evicted,
            Ok(_) => Answer::Stays,
            Err(status) if matches!(status.code(), Code::NotFound | Code::FailedPrecondition) => {
                Answer::Stays
            }
            Err(status) => Answer::Failed(status.message().to_owned()),
        }
    }
}

/// What is known of a pod without measuring its volumes.
fn known(pod: &crate::plan::PodPlan, extra: &Extra) -> PodDisk {
    let uid = &pod.view.uid;
    let taken = |fs: &bulkhead_api::evictd::v1::FsStats| Taken {
        bytes: fs.used_bytes,
        inodes: fs.inodes_used.unwrap_or(0),
    };
    let containers = pod.containers.iter().map(|container| {
        let layer = extra.layers.as_ref().and_then(|layers| layers.get(&container.id)).map(taken);
        let logs = extra.logs.get(&(uid.clone(), container.name.clone())).map(taken);
        (container.name.clone(), ContainerDisk { layer, logs })
    });
    let volumes = extra.volumes.as_ref().map(|all| {
        let of_pod = all.get(uid).into_iter().flatten();
        let volume = |volume: &crate::extra::Volume| {
            let taken = volume.stats.fs.as_ref().map(taken)?;
            Some((volume.stats.name.clone(), VolumeDisk { taken, on_disk: volume.on_disk }))
        };
        of_pod.filter_map(volume).collect()
    });
    PodDisk { containers: containers.collect(), volumes }
}

fn volumes(pod: &PodVolumes) -> BTreeMap<String, VolumeDisk> {
    let volume = |volume: &bulkhead_api::volumed::v1::MountedVolume| {
        let usage = volume.usage.as_ref()?;
        let taken = Taken { bytes: usage.used_bytes, inodes: usage.inodes_used };
        Some((volume.name.clone(), VolumeDisk { taken, on_disk: !usage.own_file_system }))
    };
    pod.volumes.iter().filter_map(volume).collect()
}
