//! What volumed is asked for: a pod's volumes with everything that depends on the pod worked out. Pure.

mod objects;

use std::num::NonZeroU64;

use bulkhead_api::volumed::v1 as wire;
use bulkhead_model::env::{FileError, PodFacts, downward_files};
use bulkhead_model::quantity::{Quantity, QuantityError};
use bulkhead_model::resources::{CgroupSettings, pod_cgroup};
use k8s_openapi::api::core::v1::{EmptyDirVolumeSource, Pod, Volume};

/// A limit below this is a slip of the pen (`128m` is an eighth of a byte): no volume can be of that size.
pub const LEAST_MEMORY: u64 = 4096;

/// Why a pod's volumes cannot be asked for.
#[derive(Debug, thiserror::Error)]
pub enum VolumeError {
    /// A file of a downwardAPI volume.
    #[error("volume `{volume}`")]
    File {
        /// The volume.
        volume: String,
        /// The file, and why.
        #[source]
        source: FileError,
    },
    /// Huge pages of no size, or of one that the pod has no limit for.
    #[error("volume `{volume}`: {problem}")]
    HugePages {
        /// The volume.
        volume: String,
        /// What is wrong.
        problem: String,
    },
    /// An amount that cannot be read.
    #[error("volume `{volume}`: emptyDir.sizeLimit")]
    Quantity {
        /// The volume.
        volume: String,
        /// Why.
        #[source]
        source: QuantityError,
    },
}

/// The request for all volumes of a pod; `None` when it has none.
///
/// # Errors
/// The first volume that cannot be had, by name.
pub fn request(
    facts: &PodFacts<'_>,
    cgroups: &CgroupSettings,
) -> Result<Option<wire::SetUpPodRequest>, VolumeError> {
    let Some(spec) = &facts.pod.spec else { return Ok(None) };
    let volumes = spec.volumes.iter().flatten().map(|volume| to_wire(volume, facts, cgroups));
    let volumes = volumes.collect::<Result<Vec<_>, _>>()?;
    if volumes.is_empty() {
        return Ok(None);
    }
    let fs_group = spec.security_context.as_ref().and_then(|security| security.fs_group);
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    let meta = &facts.pod.metadata;
    Ok(Some(wire::SetUpPodRequest {
        pod_uid: text(&meta.uid),
        volumes,
        fs_group: fs_group.and_then(|group| u32::try_from(group).ok()),
        pod_namespace: text(&meta.namespace),
        pod_name: text(&meta.name),
        service_account: objects::service_account(facts.pod),
        token_owner: objects::one_user(facts.pod),
    }))
}

/// Whether what is in the pod's volumes follows the pod's labels and annotations.
pub fn follow_the_pod(pod: &Pod) -> bool {
    let in_projected = |volume: &Volume| {
        let sources = volume.projected.iter().flat_map(|projected| projected.sources.iter().flatten());
        sources.into_iter().any(|source| source.downward_api.is_some())
    };
    let mut volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    volumes.any(|volume| volume.downward_api.is_some() || in_projected(volume))
}

/// Kinds that are not built yet were refused with the manifest.
fn to_wire(
    volume: &Volume,
    facts: &PodFacts<'_>,
    cgroups: &CgroupSettings,
) -> Result<wire::Volume, VolumeError> {
    use wire::volume::Source;
    let name = || volume.name.clone();
    let source = if let Some(dir) = &volume.empty_dir {
        Some(Source::EmptyDir(empty_dir(&volume.name, dir, facts, cgroups)?))
    } else if let Some(host) = &volume.host_path {
        let r#type = host.type_.clone().unwrap_or_default();
        Some(Source::HostPath(wire::HostPath { path: host.path.clone(), r#type }))
    } else if let Some(downward) = &volume.downward_api {
        let files = downward_files(downward, facts)
            .map_err(|source| VolumeError::File { volume: name(), source })?
            .into_iter()
            .map(|file| wire::VolumeFile { path: file.path, content: file.content.into(), mode: file.mode });
        Some(Source::DownwardApi(wire::DownwardApi { files: files.collect() }))
    } else if let Some(config_map) = &volume.config_map {
        Some(Source::ConfigMap(objects::config_map(config_map)))
    } else if let Some(secret) = &volume.secret {
        Some(Source::Secret(objects::secret(secret)))
    } else if let Some(projected) = &volume.projected {
        let projected = objects::projected(projected, facts);
        Some(Source::Projected(projected.map_err(|source| VolumeError::File { volume: name(), source })?))
    } else {
        None
    };
    Ok(wire::Volume { name: name(), source })
}

fn empty_dir(
    volume: &str,
    dir: &EmptyDirVolumeSource,
    facts: &PodFacts<'_>,
    cgroups: &CgroupSettings,
) -> Result<wire::EmptyDir, VolumeError> {
    let limit = dir.size_limit.as_ref().map(|limit| Quantity::parse(&limit.0)).transpose();
    let limit = limit.map_err(|source| VolumeError::Quantity { volume: volume.to_owned(), source })?;
    let limit = limit.and_then(|limit| u64::try_from(limit.value()).ok()).and_then(NonZeroU64::new);
    let medium = dir.medium.clone().unwrap_or_default();
    if medium.starts_with("HugePages") {
        let huge_page_bytes = huge_page(facts.pod, &medium)
            .map_err(|problem| VolumeError::HugePages { volume: volume.to_owned(), problem })?;
        let size_limit_bytes = limit.map_or(0, NonZeroU64::get);
        return Ok(wire::EmptyDir { medium: "HugePages".to_owned(), size_limit_bytes, huge_page_bytes });
    }
    let size = if medium == "Memory" { memory_size(limit, facts, cgroups) } else { limit };
    Ok(wire::EmptyDir { medium, size_limit_bytes: size.map_or(0, NonZeroU64::get), huge_page_bytes: 0 })
}

/// The size of a volume in memory: the least of its own limit, the pod's memory limit and what the node has for pods
/// (KEP-1967). A pod's limit that nothing fits in is left to the container's own error, which names it.
fn memory_size(
    limit: Option<NonZeroU64>,
    facts: &PodFacts<'_>,
    cgroups: &CgroupSettings,
) -> Option<NonZeroU64> {
    let positive = |bytes: i64| u64::try_from(bytes).ok().and_then(NonZeroU64::new);
    let of_pod = pod_cgroup(facts.pod, cgroups).memory_limit_bytes.and_then(positive);
    let of_pod = of_pod.filter(|bytes| bytes.get() >= LEAST_MEMORY);
    let of_node = positive(facts.allocatable_memory.value());
    [limit, of_pod, of_node].into_iter().flatten().min()
}

/// Bytes of a page. `HugePages` alone means the one size that the pod has limits for.
fn huge_page(pod: &Pod, medium: &str) -> Result<u64, String> {
    let spec = pod.spec.iter().flat_map(|spec| spec.init_containers.iter().flatten().chain(&spec.containers));
    let limits = spec.filter_map(|container| container.resources.as_ref()?.limits.as_ref());
    let sizes: std::collections::BTreeSet<u64> =
        limits.flatten().filter_map(|(name, _)| bytes(name.strip_prefix("hugepages-")?)).collect();
    let wanted =
        medium.strip_prefix("HugePages-").map(|size| bytes(size).ok_or("emptyDir.medium names no size"));
    match (wanted.transpose()?, sizes.first()) {
        (Some(size), _) if sizes.contains(&size) => Ok(size),
        (Some(_), _) => Err(format!("no container of the pod has a limit for emptyDir.medium {medium}")),
        (None, Some(size)) if sizes.len() == 1 => Ok(*size),
        (None, Some(_)) => Err("the pod has limits for several sizes of huge pages: name one, as in \
             HugePages-2Mi"
            .to_owned()),
        (None, None) => Err("no container of the pod has a limit for huge pages".to_owned()),
    }
}

fn bytes(size: &str) -> Option<u64> {
    Quantity::parse(size).ok().and_then(|size| u64::try_from(size.value()).ok())
}

#[cfg(test)]
mod tests {
    use bulkhead_model::quantity::Format;
    use serde_json::{Value, json};

    use super::*;

    fn asked(spec: Value) -> Result<Option<wire::SetUpPodRequest>, VolumeError> {
        let pod: Pod =
            serde_json::from_value(json!({"metadata": {"uid": "u1", "name": "p"}, "spec": spec})).unwrap();
        let facts = PodFacts {
            pod: &pod,
            node_name: "n",
            pod_ips: &[],
            host_ips: &[],
            allocatable_cpu: Quantity::from_value(2, Format::DecimalSi),
            allocatable_memory: Quantity::parse("1Gi").unwrap(),
        };
        let cgroups = CgroupSettings {
            cpu_period_us: 100_000,
            enforce_cpu_limits: true,
            pids_limit: None,
            memory_capacity_bytes: 2 << 30,
        };
        request(&facts, &cgroups)
    }

    fn empty_dir(limit: Option<&str>, dir: Value, resource: &str) -> Result<wire::EmptyDir, VolumeError> {
        let limits = limit.map_or(json!({}), |limit| json!({resource: limit}));
        let asked = asked(json!({
            "containers": [{"name": "c", "resources": {"limits": limits}}],
            "volumes": [{"name": "v", "emptyDir": dir}]
        }))?;
        match asked.and_then(|asked| asked.volumes.into_iter().next()?.source) {
            Some(wire::volume::Source::EmptyDir(dir)) => Ok(dir),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_volume_in_memory_is_as_large_as_the_least_of_three() {
        // Known fault V1.
        for (limit, dir, mib) in [
            (None, json!({"medium": "Memory", "sizeLimit": "8Mi"}), 8),
            (Some("64Mi"), json!({"medium": "Memory"}), 64),
            (Some("64Mi"), json!({"medium": "Memory", "sizeLimit": "100Mi"}), 64),
            (Some("64Mi"), json!({"medium": "Memory", "sizeLimit": "8Mi"}), 8),
            (None, json!({"medium": "Memory"}), 1024),
            (None, json!({"medium": "Memory", "sizeLimit": "0"}), 1024),
            (Some("4Gi"), json!({"medium": "Memory", "sizeLimit": "3Gi"}), 1024),
            (Some("128m"), json!({"medium": "Memory"}), 1024),
            (Some("64Mi"), json!({"sizeLimit": "100Mi"}), 100),
            (Some("64Mi"), json!({}), 0),
        ] {
            let found = empty_dir(limit, dir.clone(), "memory").unwrap();
            assert_eq!(found.size_limit_bytes, mib << 20, "{limit:?} {dir}");
        }
    }

    #[test]
    fn huge_pages_have_a_size_that_the_pod_has_a_limit_for() {
        let dir = |medium: &str| json!({"medium": medium});
        for medium in ["HugePages", "HugePages-2Mi"] {
            let found = empty_dir(Some("4Mi"), dir(medium), "hugepages-2Mi").unwrap();
            assert_eq!((found.medium.as_str(), found.huge_page_bytes), ("HugePages", 2 << 20));
        }
        for (medium, resource) in
            [("HugePages-1Gi", "hugepages-2Mi"), ("HugePages", "memory"), ("HugePages-x", "hugepages-2Mi")]
        {
            let text = empty_dir(Some("4Mi"), dir(medium), resource).unwrap_err().to_string();
            assert!(text.contains("`v`"), "{text}");
        }
    }

    #[test]
    fn the_pods_group_and_files_go_along() {
        let asked = asked(json!({
            "containers": [{"name": "c"}],
            "securityContext": {"fsGroup": 1234},
            "volumes": [{"name": "v", "downwardAPI": {"items": [
                {"path": "name", "fieldRef": {"fieldPath": "metadata.name"}, "mode": 256}]}}]
        }));
        let asked = asked.unwrap().unwrap();
        assert_eq!(asked.fs_group, Some(1234));
        let Some(wire::volume::Source::DownwardApi(files)) = &asked.volumes[0].source else {
            panic!("{asked:?}")
        };
        assert_eq!(
            files.files,
            [wire::VolumeFile { path: "name".into(), content: b"p".to_vec(), mode: 0o400 }]
        );
    }

    #[test]
    fn no_volumes_no_request() {
        assert!(asked(json!({"containers": [{"name": "c"}]})).unwrap().is_none());
    }
}
