//! `ContainerConfig`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use bulkhead_cri::wire;
use bulkhead_model::env::{EnvError, PodFacts, container_command, container_env};
use bulkhead_model::hash::container_hash;
use bulkhead_model::resources::{CgroupSettings, container_cgroup};
use bulkhead_model::{grace, names};
use k8s_openapi::api::core::v1::Container;

use super::sandbox::identity_labels;
pub use super::security::ImageUser;
use super::security::container_security;

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
    /// A mount of a volume that the pod has not.
    #[error("container {container} mounts volume {volume}, which is not set up")]
    NoVolume {
        /// The container.
        container: String,
        /// The volume.
        volume: String,
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
    /// A seccomp profile that this node cannot give.
    #[error("container {container} asks for seccomp profile {profile}, which this node cannot give")]
    Seccomp {
        /// The container.
        container: String,
        /// The profile's type.
        profile: String,
    },
}

/// What a container is made from, beside its spec.
pub struct ContainerPlan<'a> {
    /// The container.
    pub container: &'a Container,
    /// Its restart count.
    pub attempt: u32,
    /// The image as the runtime knows it.
    pub image_ref: &'a str,
    /// The user that the image names.
    pub image_user: ImageUser,
    /// The pod, its node and its addresses.
    pub facts: PodFacts<'a>,
    /// Where each volume is on the node.
    pub volumes: &'a BTreeMap<String, PathBuf>,
    /// What the configuration says about cgroups.
    pub cgroups: &'a CgroupSettings,
}

/// The container's CRI configuration.
///
/// # Errors
/// When the pod's spec cannot be had on this node; the texts never hold a variable's value.
pub fn container_config(plan: &ContainerPlan<'_>) -> Result<wire::ContainerConfig, ConfigError> {
    let (container, pod) = (plan.container, plan.facts.pod);
    let in_env = |source| ConfigError::Env { container: container.name.clone(), source };
    let envs = container_env(container, &plan.facts).map_err(in_env)?;
    let (command, args) = container_command(container, &envs).map_err(in_env)?;
    let meta = &pod.metadata;
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    let (pod_name, namespace, uid) = (text(&meta.name), text(&meta.namespace), text(&meta.uid));
    let mut labels: std::collections::HashMap<_, _> = identity_labels(&pod_name, &namespace, &uid).into();
    labels.insert(names::CONTAINER_NAME.to_owned(), container.name.clone());
    let cgroup = container_cgroup(pod, container, plan.cgroups);
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
        envs: envs.into_iter().map(|env| wire::KeyValue { key: env.name, value: env.value.into() }).collect(),
        mounts: mounts(plan)?,
        labels,
        annotations: annotations(plan),
        log_path: format!("{}/{}.log", container.name, plan.attempt),
        stdin: container.stdin.unwrap_or(false),
        stdin_once: container.stdin_once.unwrap_or(false),
        tty: container.tty.unwrap_or(false),
        linux: Some(wire::LinuxContainerConfig {
            resources: Some(wire::LinuxContainerResources {
                cpu_shares: i64::try_from(cgroup.cpu_shares).unwrap_or(i64::MAX),
                cpu_quota: cgroup.cpu_quota_us.unwrap_or(0),
                cpu_period: i64::try_from(cgroup.cpu_period_us).unwrap_or(0),
                memory_limit_in_bytes: cgroup.memory_limit_bytes.unwrap_or(0),
                oom_score_adj: cgroup.oom_score_adj,
                ..Default::default()
            }),
            security_context: Some(container_security(pod, container, &plan.image_user)?),
        }),
        ..Default::default()
    })
}

fn mounts(plan: &ContainerPlan<'_>) -> Result<Vec<wire::Mount>, ConfigError> {
    let container = plan.container;
    let mount = |mount: &k8s_openapi::api::core::v1::VolumeMount| {
        let path = plan.volumes.get(&mount.name).ok_or_else(|| ConfigError::NoVolume {
            container: container.name.clone(),
            volume: mount.name.clone(),
        })?;
        Ok(wire::Mount {
            container_path: mount.mount_path.clone(),
            host_path: path.to_string_lossy().into_owned(),
            readonly: mount.read_only.unwrap_or(false),
            ..Default::default()
        })
    };
    container.volume_mounts.iter().flatten().map(mount).collect()
}

/// The annotations by which a later life, or a kubelet, knows the container again.
fn annotations(plan: &ContainerPlan<'_>) -> std::collections::HashMap<String, String> {
    let container = plan.container;
    let mut annotations = std::collections::HashMap::new();
    let mut set = |key: &str, value: String| annotations.insert(key.to_owned(), value);
    set(names::CONTAINER_HASH, format!("{:x}", container_hash(container)));
    set(names::RESTART_COUNT, plan.attempt.to_string());
    set(names::TERMINATION_MESSAGE_PATH, container.termination_message_path.clone().unwrap_or_default());
    set(names::TERMINATION_MESSAGE_POLICY, container.termination_message_policy.clone().unwrap_or_default());
    set(names::POD_GRACE, grace::pod_grace(plan.facts.pod, None).as_secs().to_string());
    annotations
}
