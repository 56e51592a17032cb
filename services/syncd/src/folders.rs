//! Folders and cgroup of one pod. Blocking work: runs in a blocking thread. Must never touch what volumed owns
//! (`volumes/`): that is gone before a pod's folder is removed.

use std::io::{ErrorKind, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bulkhead_cgroup::{Ceiling, CgroupManager, CgroupName, Limits, PodCgroup, QosTier, Removal};
use bulkhead_model::capacity::huge_page_name;
use bulkhead_model::resources::{self, Protection};
use bulkhead_model::spec;
use k8s_openapi::api::core::v1::Pod;

use crate::config::Settings;
use crate::cri_config::pod_log_dir;
use crate::error::PodError;

/// What the runtime and volumed must be able to pass, and nobody else needs to. What is in `volumes` is volumed's alone.
const POD_DIR_MODE: u32 = 0o750;

/// Folder of the containers' own folders in the pod's, as the kubelet names it.
const CONTAINERS: &str = "containers";

/// The pod's `/etc/hosts`, as the kubelet names it.
const HOSTS: &str = "etc-hosts";

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
        let lasting = spec::containers(pod).into_iter().map(|found| found.name().to_owned());
        let passing = spec::ephemeral(pod).into_iter().map(|found| found.container.name);
        self.make_dir(&self.pod, POD_DIR_MODE)?;
        // Log folders inherit their group from podLogsDir (setgid), so that the processes that read logs can. They are made
        // here, since what the runtime makes could not be removed from here.
        self.make_dir(&self.logs, 0o755)?;
        for container in lasting.chain(passing) {
            self.make_dir(&self.logs.join(container), 0o755)?;
        }
        let in_cgroup = |source| PodError::Cgroup { uid: self.uid.clone(), source };
        let name = CgroupName::Pod(self.cgroup.clone());
        self.cgroups.create(&name).map_err(in_cgroup)?;
        self.cgroups.apply(&name, &limits(pod, settings)).map_err(in_cgroup)?;
        Ok(())
    }

    /// Makes the file that a container writes its termination message to, empty, whatever an earlier run left.
    pub fn make_termination_log(&self, container: &str, attempt: u32) -> Result<(), PodError> {
        let Some(path) = self.termination_log(container, attempt) else { return Ok(()) };
        self.make_dir(&self.pod.join(CONTAINERS), POD_DIR_MODE)?;
        self.make_dir(&self.pod.join(CONTAINERS).join(container), POD_DIR_MODE)?;
        self.remove_termination_log(container, attempt);
        // Never through a link: it must not be there.
        let made = std::fs::OpenOptions::new().write(true).create_new(true).open(&path);
        // Whatever user the container has; past this process' umask.
        let made = made.and_then(|file| file.set_permissions(std::fs::Permissions::from_mode(0o666)));
        made.map_err(|source| PodError::Folder { action: "make", path, uid: self.uid.clone(), source })
    }

    /// Where a container's termination message is. `None` for a name that can be no folder, which only a runtime could bring.
    pub fn termination_log(&self, container: &str, attempt: u32) -> Option<PathBuf> {
        let is_name = !container.is_empty() && !container.starts_with('.') && !container.contains('/');
        is_name.then(|| self.pod.join(CONTAINERS).join(container).join(format!("{attempt:08x}")))
    }

    /// Removes a container's termination message; what stays goes with the pod.
    pub fn remove_termination_log(&self, container: &str, attempt: u32) {
        if let Some(path) = self.termination_log(container, attempt) {
            let _ = std::fs::remove_file(path);
        }
    }

    /// The pod's `/etc/hosts`.
    pub fn hosts(&self) -> PathBuf {
        self.pod.join(HOSTS)
    }

    /// Writes the pod's `/etc/hosts`, in place: containers that run have this very file mounted. What a container wrote into
    /// it itself is gone when the next one starts, as with the kubelet.
    pub fn write_hosts(&self, text: &str) -> Result<(), PodError> {
        let path = self.hosts();
        let written = self.try_write_hosts(&path, text);
        written.map_err(|source| PodError::Folder { action: "write", path, uid: self.uid.clone(), source })
    }

    fn try_write_hosts(&self, path: &Path, text: &str) -> std::io::Result<()> {
        use rustix::fs::{Mode, OFlags, open};
        // Never through a link: it must not be there.
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut file = std::fs::File::from(open(path, flags, Mode::from_raw_mode(0o644))?);
        let mut present = Vec::new();
        let bound = u64::try_from(text.len()).unwrap_or(u64::MAX).saturating_add(1);
        (&mut file).take(bound).read_to_end(&mut present)?;
        if present != text.as_bytes() {
            file.set_len(0)?;
            file.rewind()?;
            file.write_all(text.as_bytes())?;
        }
        // Every user of the pod reads it; past this process' umask.
        file.set_permissions(std::fs::Permissions::from_mode(0o644))
    }

    /// Whether a log lies beneath the pod's own log folder.
    pub fn holds_log(&self, log: &Path) -> bool {
        log.starts_with(&self.logs)
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

fn limits(pod: &Pod, settings: &Settings) -> Limits {
    let traits = &settings.traits;
    let Protection { min, low } = traits.memory_qos.of_pod(pod);
    let huge_pages = resources::pod_huge_pages(pod, &traits.huge_pages);
    let pod = resources::pod_cgroup(pod, &settings.cgroups);
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
        memory_min: traits.memory_qos.tiered_reservation.then_some(min),
        memory_low: traits.memory_qos.tiered_reservation.then_some(low),
        huge_pages: huge_pages.into_iter().map(|(size, bytes)| (huge_page_name(size), bytes)).collect(),
    }
}
