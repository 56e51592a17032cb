//! `ContainerConfig`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use bulkhead_api::convert::signal_to_cri;
use bulkhead_cri::wire;
use bulkhead_model::env::{EnvError, EnvObjects, PodFacts, container_command, container_env};
use bulkhead_model::hash::container_hash;
use bulkhead_model::hook::{self, HookKind};
use bulkhead_model::resources::{self, CgroupSettings, container_cgroup};
use bulkhead_model::{capacity, grace, names, signal};
use k8s_openapi::api::core::v1::{Container, LifecycleHandler, Pod};

use super::NodeTraits;
use super::sandbox::identity_labels;
pub use super::security::ImageUser;
use super::security::container_security;
use super::volume_mounts::volume_mounts;
use crate::volumes::LEAST_MEMORY;

/// Where every container looks for names first.
const HOSTS: &str = "/etc/hosts";
/// A limit that is taken away: zero leaves it as it is.
const UNLIMITED: i64 = -1;

/// Why a container cannot be made from its spec: the kubelet's `CreateContainerConfigError`.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// Environment, command or arguments.
    #[error("environment of container {container}")]
    Env {
        /// The container.
        container: String,
        /// Why.
        #[source]
        source: EnvError,
    },
    /// An object of the API, or a key of it, that is not there: the kubelet's words, and nothing before them.
    #[error("{0}")]
    Missing(EnvError),
    /// A mount of a volume that the pod has not.
    #[error("container {container} mounts volume {volume}, which is not set up")]
    NoVolume {
        /// The container.
        container: String,
        /// The volume.
        volume: String,
    },
    /// A part of a volume that cannot be mounted.
    #[error("container {container} mounts a part of volume {volume}: {problem}")]
    SubPath {
        /// The container.
        container: String,
        /// The volume.
        volume: String,
        /// What is wrong.
        problem: String,
    },
    /// A mount that must be read-only in all its depth, on a runtime that cannot do it.
    #[error(
        "container {container} mounts volume {volume} with recursiveReadOnly: Enabled, which this node's container runtime \
         does not support; IfPossible goes without where it must"
    )]
    RecursiveReadOnly {
        /// The container.
        container: String,
        /// The volume.
        volume: String,
    },
    /// A memory limit in which nothing can run: most often `m` was written for `M`.
    #[error(
        "memory limit {limit} of container {container} is less than a page of memory, so nothing can run in it: \
         `m` means thousandths; for megabytes write `M` or `Mi`"
    )]
    MemoryLimit {
        /// The container.
        container: String,
        /// As it was written.
        limit: String,
    },
    /// `runAsNonRoot` with a root user.
    #[error("container has runAsNonRoot and image will run as root (container: {container})")]
    RunsAsRoot {
        /// The container.
        container: String,
    },
    /// `runAsNonRoot` with a user name.
    #[error(
        "container has runAsNonRoot and image has non-numeric user ({user}), cannot verify user is non-root \
         (container: {container}); set runAsUser"
    )]
    UserNotNumeric {
        /// The container.
        container: String,
        /// The image's user.
        user: String,
    },
    /// A seccomp profile outside the node's folder of profiles.
    #[error("container {container} asks for seccomp profile {profile:?}: give its path beneath {}, without `..`", .folder.display())]
    Seccomp {
        /// The container.
        container: String,
        /// The profile's name.
        profile: String,
        /// Where profiles are.
        folder: PathBuf,
    },
}

/// What a container is made from, beside its spec.
pub struct ContainerPlan<'a> {
    /// The container.
    pub container: &'a Container,
    /// Its restart count.
    pub attempt: u32,
    /// How long it waits when it ends, before it is started again.
    pub backoff: Duration,
    /// The image as the runtime knows it.
    pub image_ref: &'a str,
    /// The user that the image names.
    pub image_user: ImageUser,
    /// The pod, its node and its addresses.
    pub facts: PodFacts<'a>,
    /// What the API says that its variables are made of.
    pub objects: &'a EnvObjects,
    /// Where each volume is on the node.
    pub volumes: &'a BTreeMap<String, PathBuf>,
    /// The file that its termination message path leads to; `None` if it has none.
    pub termination_log: Option<&'a std::path::Path>,
    /// The pod's `/etc/hosts`; `None` while the pod has no address.
    pub hosts: Option<&'a std::path::Path>,
    /// Id of the container whose processes it sees; `None`: as its pod's containers.
    pub target: Option<&'a str>,
    /// Whether the runtime makes mounts read-only in all their depth.
    pub recursive_read_only: bool,
    /// What the configuration says about cgroups.
    pub cgroups: &'a CgroupSettings,
    /// What of the node shapes every container.
    pub node: &'a NodeTraits,
}

/// The container's CRI configuration.
///
/// # Errors
/// When the pod's spec cannot be had on this node; the texts never hold a variable's value.
pub fn container_config(plan: &ContainerPlan<'_>) -> Result<wire::ContainerConfig, ConfigError> {
    let (container, pod) = (plan.container, plan.facts.pod);
    let in_env = |source| match source {
        EnvError::NoObject { .. } | EnvError::NoKey { .. } => ConfigError::Missing(source),
        source => ConfigError::Env { container: container.name.clone(), source },
    };
    let envs = container_env(container, &plan.facts, plan.objects).map_err(in_env)?;
    let (command, args) = container_command(container, &envs).map_err(in_env)?;
    let meta = &pod.metadata;
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    let (pod_name, namespace, uid) = (text(&meta.name), text(&meta.namespace), text(&meta.uid));
    let mut labels: std::collections::HashMap<_, _> = identity_labels(&pod_name, &namespace, &uid).into();
    labels.insert(names::CONTAINER_NAME.to_owned(), container.name.clone());
    let cgroup = container_cgroup(pod, container, plan.cgroups);
    let mut security = container_security(pod, container, &plan.image_user, plan.node)?;
    if let (Some(target), Some(options)) = (plan.target, &mut security.namespace_options) {
        aim(options, target);
    }
    Ok(wire::ContainerConfig {
        metadata: Some(wire::ContainerMetadata { name: container.name.clone(), attempt: plan.attempt }),
        image: Some(wire::ImageSpec {
            image: plan.image_ref.to_owned(),
            user_specified_image: text(&container.image),
            ..Default::default()
        }),
        command,
        args,
        working_dir: text(&container.working_dir),
        envs: envs.into_iter().map(|env| wire::KeyValue { key: env.name, value: env.value }).collect(),
        mounts: mounts(plan)?,
        labels,
        annotations: annotations(plan),
        log_path: format!("{}/{}.log", container.name, plan.attempt),
        stdin: container.stdin.unwrap_or(false),
        stdin_once: container.stdin_once.unwrap_or(false),
        tty: container.tty.unwrap_or(false),
        stop_signal: signal_to_cri(signal::of(container).unwrap_or_default()).into(),
        linux: Some(wire::LinuxContainerConfig {
            resources: Some(wire::LinuxContainerResources {
                cpu_shares: i64::try_from(cgroup.cpu_shares).unwrap_or(i64::MAX),
                cpu_quota: cgroup.cpu_quota_us.unwrap_or(0),
                cpu_period: i64::try_from(cgroup.cpu_period_us).unwrap_or(0),
                memory_limit_in_bytes: cgroup.memory_limit_bytes.unwrap_or(0),
                oom_score_adj: cgroup.oom_score_adj,
                hugepage_limits: huge_page_limits(container, &plan.node.huge_pages),
                unified: unified(plan),
                ..Default::default()
            }),
            security_context: Some(security),
        }),
        ..Default::default()
    })
}

/// Lets a container see another one's processes. Where all see each other's, it does anyhow.
pub(super) fn aim(options: &mut wire::NamespaceOption, target: &str) {
    if options.pid() == wire::NamespaceMode::Container {
        options.set_pid(wire::NamespaceMode::Target);
        target.clone_into(&mut options.target_id);
    }
}

fn mounts(plan: &ContainerPlan<'_>) -> Result<Vec<wire::Mount>, ConfigError> {
    // First: parts of volumes are known by their place.
    let mut mounts = volume_mounts(plan)?;
    mounts.extend(termination_mount(plan));
    mounts.extend(hosts_mount(plan));
    Ok(mounts)
}

/// What a container that runs is to have from now on. Limits that are gone are taken away.
pub fn resources_update(
    pod: &Pod,
    container: &Container,
    cgroups: &CgroupSettings,
    node: &NodeTraits,
) -> wire::LinuxContainerResources {
    let cgroup = container_cgroup(pod, container, cgroups);
    let mut unified: std::collections::HashMap<_, _> =
        node.memory_qos.of_container(pod, container).into_iter().collect();
    if node.bounds_swap {
        unified.insert("memory.swap.max".to_owned(), "0".to_owned());
    }
    wire::LinuxContainerResources {
        cpu_shares: i64::try_from(cgroup.cpu_shares).unwrap_or(i64::MAX),
        cpu_quota: cgroup.cpu_quota_us.unwrap_or(UNLIMITED),
        cpu_period: i64::try_from(cgroup.cpu_period_us).unwrap_or(0),
        memory_limit_in_bytes: cgroup.memory_limit_bytes.unwrap_or(UNLIMITED),
        unified,
        ..Default::default()
    }
}

/// Said here, by name, rather than by the runtime or by a volume that nothing fits in (kubernetes/kubernetes#79950).
///
/// # Errors
/// When nothing can run within the container's memory limit.
pub fn check_memory_limit(container: &Container) -> Result<(), ConfigError> {
    let limits = container.resources.as_ref().and_then(|resources| resources.limits.as_ref());
    let text = limits.and_then(|limits| limits.get("memory"));
    let bytes = resources::amount(limits, "memory").and_then(|limit| u64::try_from(limit.value()).ok());
    match (text, bytes) {
        (Some(text), Some(bytes)) if (1..LEAST_MEMORY).contains(&bytes) => {
            Err(ConfigError::MemoryLimit { container: container.name.clone(), limit: text.0.clone() })
        }
        _ => Ok(()),
    }
}

/// The termination message's file, unless the pod mounts something of its own in its place.
fn termination_mount(plan: &ContainerPlan<'_>) -> Option<wire::Mount> {
    let path = plan.container.termination_message_path.as_deref().filter(|path| path.starts_with('/'))?;
    let own = plan.container.volume_mounts.iter().flatten().any(|mount| mount.mount_path == path);
    let host_path = plan.termination_log.filter(|_| !own)?.to_string_lossy().into_owned();
    Some(wire::Mount { container_path: path.to_owned(), host_path, ..Default::default() })
}

/// The pod's `/etc/hosts`, unless the container mounts one of its own. Not to be written where nothing else is.
fn hosts_mount(plan: &ContainerPlan<'_>) -> Option<wire::Mount> {
    let of_container = plan.container.volume_mounts.iter().flatten();
    let own = of_container.into_iter().any(|mount| mount.mount_path.trim_end_matches('/') == HOSTS);
    let security = plan.container.security_context.as_ref();
    let host_path = plan.hosts.filter(|_| !own)?.to_string_lossy().into_owned();
    Some(wire::Mount {
        container_path: HOSTS.to_owned(),
        host_path,
        readonly: security.and_then(|security| security.read_only_root_filesystem).unwrap_or(false),
        selinux_relabel: true,
        ..Default::default()
    })
}

/// A limit for every size of huge pages: who asks for none gets none.
fn huge_page_limits(container: &Container, sizes: &[u64]) -> Vec<wire::HugepageLimit> {
    let limits = container.resources.as_ref().and_then(|resources| resources.limits.as_ref());
    let limit = |size: &u64| {
        let limit = resources::amount(limits, &capacity::huge_page_resource(*size));
        wire::HugepageLimit {
            page_size: capacity::huge_page_name(*size),
            limit: limit.and_then(|limit| u64::try_from(limit.value()).ok()).unwrap_or(0),
        }
    };
    sizes.iter().map(limit).collect()
}

/// Files of the container's cgroup v2 that CRI has no field for.
fn unified(plan: &ContainerPlan<'_>) -> std::collections::HashMap<String, String> {
    let mut files = plan.node.memory_qos.of_container(plan.facts.pod, plan.container);
    if plan.node.bounds_swap {
        // No container swaps. One with a memory limit the runtime keeps from it anyhow; this is for those without.
        files.insert("memory.swap.max".to_owned(), "0".to_owned());
    }
    files.into_iter().collect()
}

/// The annotations by which a later life, or a kubelet, knows the container again.
fn annotations(plan: &ContainerPlan<'_>) -> std::collections::HashMap<String, String> {
    let container = plan.container;
    let mut annotations = std::collections::HashMap::new();
    let mut set = |key: &str, value: String| annotations.insert(key.to_owned(), value);
    set(names::CONTAINER_HASH, format!("{:x}", container_hash(container)));
    set(names::RESTART_COUNT, plan.attempt.to_string());
    set(names::RESTART_BACKOFF, plan.backoff.as_millis().to_string());
    set(names::TERMINATION_MESSAGE_PATH, container.termination_message_path.clone().unwrap_or_default());
    set(names::TERMINATION_MESSAGE_POLICY, container.termination_message_policy.clone().unwrap_or_default());
    let pre_stop = container.lifecycle.as_ref().and_then(|lifecycle| lifecycle.pre_stop.as_ref());
    // Headers may be credentials, and annotations are read by everybody: such a hook is known from its manifest only.
    let secret = |hook: &LifecycleHandler| {
        hook.http_get
            .as_ref()
            .is_some_and(|http| http.http_headers.as_ref().is_some_and(|list| !list.is_empty()))
    };
    if let Some(hook) =
        pre_stop.filter(|hook| !secret(hook)).and_then(|hook| serde_json::to_string(hook).ok())
    {
        set(names::PRE_STOP, hook);
    }
    if hook::has(container, HookKind::PostStart) {
        set(names::POST_START, "true".to_owned());
    }
    set(names::POD_GRACE, grace::pod_grace(plan.facts.pod, None).as_secs().to_string());
    annotations
}
