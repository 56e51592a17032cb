//! Folders and cgroup of one pod. Blocking work: runs in a blocking thread. Must never touch what volumed owns
//! (`volumes/`): that is gone before a pod's folder is removed.

use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bulkhead_cgroup::{Ceiling, CgroupManager, CgroupName, Limits, PodCgroup, QosTier, Removal};
use bulkhead_model::resources;
use k8s_openapi::api::core::v1::Pod;

use crate::config::Settings;
use crate::cri_config::pod_log_dir;
use crate::error::PodError;

/// What the runtime and volumed must be able to pass, and nobody else needs to. What is in `volumes` is volumed's alone.
const POD_DIR_MODE: u32 = 0o750;

/// The places of one pod on the node.
#[derive(Clone, Debug)]
pub struct Folders {
    uid: String,
    pod: PathBuf,
    logs: PathBuf,
    cgroup: PodCgroup,
    cgroups: Arc<CgroupManager>,
}

impl Folders {
    /// Places of `pod`; nothing is made yet.
    pub fn new(settings: &Settings, cgroups: Arc<CgroupManager>, pod: &Pod, cgroup: PodCgroup) -> Self {
        let text = |value: &Option<String>| value.clone().unwrap_or_default();
        let meta = &pod.metadata;
        let (uid, name, namespace) = (text(&meta.uid), text(&meta.name), text(&meta.namespace));
        let logs = pod_log_dir(&settings.pod_logs_dir, &namespace, &name, &uid);
        Self { pod: settings.pods_dir.join(&uid), uid, logs, cgroup, cgroups }
    }

    /// Makes folders and cgroup, and sets the cgroup's limits; what stands is left as it is.
    pub fn make(&self, pod: &Pod, settings: &Settings) -> Result<(), PodError> {
        let containers =
            pod.spec.iter().flat_map(|s| s.init_containers.iter().flatten().chain(&s.containers));
        self.make_dir(&self.pod, POD_DIR_MODE)?;
        // Log folders inherit their group from podLogsDir (setgid), so that the processes that read logs can. They are made
        // here, since what the runtime makes could not be removed from here.
        self.make_dir(&self.logs, 0o755)?;
        for container in containers {
            self.make_dir(&self.logs.join(&container.name), 0o755)?;
        }
        let in_cgroup = |source| PodError::Cgroup { uid: self.uid.clone(), source };
        let name = CgroupName::Pod(self.cgroup.clone());
        self.cgroups.create(&name).map_err(in_cgroup)?;
        self.cgroups
            .apply(&name, &limits(&resources::pod_cgroup(pod, &settings.cgroups)))
            .map_err(in_cgroup)?;
        Ok(())
    }

    /// Removes the cgroup; it must be empty.
    pub fn remove_cgroup(&self) -> Result<(), PodError> {
        match self.cgroups.remove(&CgroupName::Pod(self.cgroup.clone())) {
            Ok(Removal::Removed | Removal::AlreadyGone) => Ok(()),
            Ok(Removal::Busy { path }) => Err(PodError::CgroupBusy { uid: self.uid.clone(), path }),
            Err(source) => Err(PodError::Cgroup { uid: self.uid.clone(), source }),
        }
    }

    /// Removes the pod's folder and its logs.
    pub fn remove(&self) -> Result<(), PodError> {
        for path in [&self.pod, &self.logs] {
            match std::fs::remove_dir_all(path) {
                Err(source) if source.kind() != ErrorKind::NotFound => {
                    let (path, uid) = (path.clone(), self.uid.clone());
                    return Err(PodError::Folder { action: "remove", path, uid, source });
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn make_dir(&self, path: &Path, mode: u32) -> Result<(), PodError> {
        match std::fs::DirBuilder::new().mode(mode).create(path) {
            Err(source) if source.kind() != ErrorKind::AlreadyExists => {
                Err(PodError::Folder { action: "make", path: path.to_owned(), uid: self.uid.clone(), source })
            }
            _ => Ok(()),
        }
    }
}

/// The cgroup of a pod by its class.
pub fn qos_tier(pod: &Pod) -> QosTier {
    use bulkhead_model::qos::QosClass;
    match QosClass::of(pod) {
        QosClass::Guaranteed => QosTier::Guaranteed,
        QosClass::Burstable => QosTier::Burstable,
        QosClass::BestEffort => QosTier::BestEffort,
    }
}

fn limits(pod: &resources::PodCgroup) -> Limits {
    let ceiling = |value: Option<i64>| match value.and_then(|v| u64::try_from(v).ok()) {
        Some(value) if value > 0 => Some(Ceiling::At(value)),
        _ => Some(Ceiling::Unlimited),
    };
    Limits {
        cpu_shares: Some(pod.cpu_shares),
        cpu_quota_us: ceiling(pod.cpu_quota_us),
        cpu_period_us: Some(pod.cpu_period_us),
        memory_limit_bytes: ceiling(pod.memory_limit_bytes),
        pids_max: ceiling(pod.pids_limit),
    }
}
