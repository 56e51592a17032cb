//! What costs more than a few small files, and so is had only when somebody asks for all: writable layers and the image store
//! from the runtime, volumes from volumed, logs counted on disk, traffic of pods' networks.
//!
//! Owns how long such figures live. Must never ask the runtime while nobody asks here. What cannot be had is absent.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bulkhead_api::common::v1::{Part, WatchRequest};
use bulkhead_api::cri::v1::FilesystemUsage;
use bulkhead_api::evictd::v1::{FsCapacity, FsStats, NetworkStats, VolumeStats};
use bulkhead_api::volumed::v1::volumed_client::VolumedClient;
use bulkhead_api::volumed::v1::{MountedVolume, VolumeUsage};
use bulkhead_base::chain;
use bulkhead_cri::{Stats, StatsClient};
use bulkhead_disk::{self as fs, FsFigures};
use bulkhead_ipc::PeerChannel;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};
use tonic::Status;

use crate::logs;
use crate::machine::Machine;
use crate::plan::Plan;
use crate::summary;

/// How long they live: the runtime itself measures its layers every 10 s.
const FRESH: Duration = Duration::from_secs(10);
/// How long each of those who are asked may take.
const PATIENCE: Duration = Duration::from_secs(4);
/// Largest list of mounts that is read, in bytes.
const MOUNTS_BYTES: usize = 16 * 1024 * 1024;

/// The figures.
#[derive(Debug, Default)]
pub(crate) struct Extra {
    /// What containers wrote, by the runtime's id; `None` when the runtime did not say.
    pub(crate) layers: Option<BTreeMap<String, FsStats>>,
    /// What writable layers are on, such as `/dev/vda1`; empty when it is not known.
    pub(crate) layer_device: String,
    /// What the node agent's root folder is on.
    pub(crate) root_device: String,
    /// The file system of images, with what they take.
    pub(crate) image_fs: Option<FsStats>,
    /// That of writable layers.
    pub(crate) container_fs: Option<FsStats>,
    /// Logs, by pod UID and container.
    pub(crate) logs: BTreeMap<(String, String), FsStats>,
    /// Traffic of pods with a network of their own, by UID.
    pub(crate) networks: BTreeMap<String, NetworkStats>,
    /// Volumes that were measured, by pod UID; `None` when volumed did not say.
    pub(crate) volumes: Option<BTreeMap<String, Vec<Volume>>>,
}

/// One volume.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Volume {
    /// Its figures.
    pub(crate) stats: VolumeStats,
    /// Whether it takes from the node's disk.
    pub(crate) on_disk: bool,
}

/// Has them.
pub(crate) struct Extras {
    machine: Arc<Machine>,
    runtime: StatsClient,
    volumed: VolumedClient<PeerChannel>,
    logs_dir: PathBuf,
    latest: Mutex<Option<(Instant, Arc<Extra>)>>,
}

/// What the disk and /proc say.
#[derive(Default)]
struct Local {
    logs: BTreeMap<(String, String), FsStats>,
    networks: BTreeMap<String, NetworkStats>,
}

/// The file systems of some folders.
#[derive(Default)]
struct Disks {
    capacities: BTreeMap<PathBuf, FsCapacity>,
    layer_device: String,
    root_device: String,
}

impl Extras {
    /// Nothing is asked yet.
    pub(crate) fn new(
        machine: Arc<Machine>,
        runtime: StatsClient,
        volumed: VolumedClient<PeerChannel>,
        logs_dir: PathBuf,
    ) -> Self {
        Self { machine, runtime, volumed, logs_dir, latest: Mutex::new(None) }
    }

    /// The figures, at most 10 s old. However many ask, they are had once.
    pub(crate) async fn get(&self, plan: &Arc<Plan>) -> Arc<Extra> {
        self.within(plan, FRESH).await
    }

    /// The figures, at most so old.
    pub(crate) async fn within(&self, plan: &Arc<Plan>, age: Duration) -> Arc<Extra> {
        let mut latest = self.latest.lock().await;
        if let Some((_, known)) = latest.as_ref().filter(|(at, _)| at.elapsed() <= age) {
            return known.clone();
        }
        let extra = Arc::new(self.load(plan).await);
        *latest = Some((Instant::now(), extra.clone()));
        extra
    }

    async fn load(&self, plan: &Arc<Plan>) -> Extra {
        let (machine, plan, logs_dir) = (self.machine.clone(), plan.clone(), self.logs_dir.clone());
        let local = tokio::task::spawn_blocking(move || local(&machine, &plan, &logs_dir));
        let (layers, stores, volumes, local) = tokio::join!(
            asked("the runtime's containers", async {
                self.runtime.container_stats().await.map_err(|error| chain(&error).to_string())
            }),
            asked("the runtime's image store", async {
                self.runtime.image_fs_info().await.map_err(|error| chain(&error).to_string())
            }),
            asked("volumes", async { self.volumes().await.map_err(|status| status.message().to_owned()) }),
            asked("logs and networks", async { local.await.map_err(|error| error.to_string()) }),
        );
        let layers = layers.map(|all| {
            let layer =
                |one: bulkhead_api::cri::v1::ContainerStats| Some((one.attributes?.id, one.writable_layer?));
            all.into_iter().filter_map(layer).collect::<Vec<_>>()
        });
        let stores = stores.unwrap_or_default();
        let (image, container) =
            (stores.image_filesystems.into_iter().next(), stores.container_filesystems.into_iter().next());
        let used = layers.iter().flatten().map(|(_, layer)| layer).chain(&image).chain(&container);
        let layer_place = container.as_ref().or(image.as_ref()).and_then(place);
        let Disks { capacities, layer_device, root_device } =
            self.disks(used.filter_map(place).collect(), layer_place).await;
        let figures = |used: &FilesystemUsage| usage(used, &capacities);
        let Local { logs, networks } = local.unwrap_or_default();
        Extra {
            layers: layers
                .as_ref()
                .map(|all| all.iter().map(|(id, used)| (id.clone(), figures(used))).collect()),
            layer_device,
            root_device,
            image_fs: image.as_ref().map(figures),
            container_fs: container.as_ref().or(image.as_ref()).map(figures),
            logs,
            networks,
            volumes: volumes.map(|all| {
                let of = |(uid, volumes): (String, Vec<MountedVolume>)| {
                    (uid, volumes.into_iter().filter_map(volume).collect())
                };
                all.into_iter().map(of).collect()
            }),
        }
    }

    /// The whole state and no more: nothing is sent here while nobody asks.
    async fn volumes(&self) -> Result<BTreeMap<String, Vec<MountedVolume>>, Status> {
        let mut stream = self.volumed.clone().watch_volumes(WatchRequest {}).await?.into_inner();
        let mut all = BTreeMap::new();
        while let Some(message) = stream.message().await? {
            let part = message.part();
            all.extend(message.upserts.into_iter().map(|pod| (pod.pod_uid, pod.volumes)));
            if part == Part::SnapshotEnd {
                return Ok(all);
            }
        }
        Err(Status::unavailable("the stream ended before everything was told"))
    }

    async fn disks(&self, folders: BTreeSet<PathBuf>, layers: Option<PathBuf>) -> Disks {
        let mounts = self.machine.proc_dir().join("self/mountinfo");
        let root = self.machine.root_dir().to_owned();
        let read = tokio::task::spawn_blocking(move || {
            let mounts = std::fs::read(mounts).unwrap_or_default();
            let mounts =
                String::from_utf8_lossy(mounts.get(..MOUNTS_BYTES.min(mounts.len())).unwrap_or_default());
            let of = |folder: PathBuf| {
                let figures = fs::read_closed(&mounts, &folder)?;
                Some((folder, summary::capacity(figures)))
            };
            Disks {
                layer_device: layers.map(|folder| fs::device(&mounts, &folder)).unwrap_or_default(),
                root_device: fs::device(&mounts, &root),
                capacities: folders.into_iter().filter_map(of).collect(),
            }
        });
        asked("file systems", async { read.await.map_err(|error| error.to_string()) })
            .await
            .unwrap_or_default()
    }
}

/// What was answered in time.
async fn asked<T, E: Display>(what: &str, answer: impl Future<Output = Result<T, E>>) -> Option<T> {
    match timeout(PATIENCE, answer).await {
        Ok(Ok(answer)) => Some(answer),
        Ok(Err(error)) => {
            tracing::warn!(what, %error, "statistics are not whole");
            None
        }
        Err(_) => {
            tracing::warn!(what, "statistics are not whole: it took longer than {PATIENCE:?}");
            None
        }
    }
}

/// Blocks for some small reads a pod.
fn local(machine: &Machine, plan: &Plan, logs_dir: &Path) -> Local {
    let capacity = fs::read(logs_dir).map(summary::capacity);
    let mut local = Local { logs: BTreeMap::new(), networks: machine.networks(plan) };
    for pod in &plan.pods {
        let view = &pod.view;
        let Some(folder) = logs::folder(logs_dir, &view.namespace, &view.name, &view.uid) else { continue };
        for container in &pod.containers {
            let Some(taken) = logs::taken(&folder, &container.name) else { continue };
            let figures = FsStats {
                time_unix_nano: machine.now().unix_nano,
                capacity,
                used_bytes: taken.bytes,
                inodes_used: Some(taken.inodes),
            };
            local.logs.insert((view.uid.clone(), container.name.clone()), figures);
        }
    }
    local
}

fn place(used: &FilesystemUsage) -> Option<PathBuf> {
    used.fs_id.as_ref().map(|id| PathBuf::from(&id.mountpoint))
}

fn usage(used: &FilesystemUsage, capacities: &BTreeMap<PathBuf, FsCapacity>) -> FsStats {
    FsStats {
        time_unix_nano: u64::try_from(used.timestamp).unwrap_or(0),
        capacity: place(used).and_then(|place| capacities.get(&place).copied()),
        used_bytes: used.used_bytes.map_or(0, |bytes| bytes.value),
        inodes_used: used.inodes_used.map(|inodes| inodes.value),
    }
}

/// `None` for one that is not measured, as a hostPath.
fn volume(volume: MountedVolume) -> Option<Volume> {
    let usage: VolumeUsage = volume.usage?;
    let at = usage.measured_at.and_then(|at| bulkhead_api::convert::timestamp_from_wire(&at));
    let fs = FsStats {
        time_unix_nano: at.map_or(0, summary::unix_nano),
        capacity: Some(summary::capacity(FsFigures {
            available_bytes: usage.available_bytes,
            capacity_bytes: usage.capacity_bytes,
            used_bytes: 0,
            inodes_free: usage.inodes_free,
            inodes: usage.inodes,
        })),
        used_bytes: usage.used_bytes,
        inodes_used: Some(usage.inodes_used),
    };
    let stats = VolumeStats { name: volume.name, fs: Some(fs) };
    Some(Volume { stats, on_disk: !usage.own_file_system })
}
