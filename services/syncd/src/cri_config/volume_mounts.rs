//! A container's mounts of its pod's volumes, and the parts of volumes (`subPath`) among them.

use std::collections::HashMap;

use bulkhead_cri::wire;
use bulkhead_model::env::expand;
use bulkhead_model::runtime_features::is_recursive_read_only;
use k8s_openapi::api::core::v1::{Container, Pod, Volume, VolumeMount};

use super::{ConfigError, ContainerPlan};

/// A part of a volume that a container mounts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubPath {
    /// Its place in `volumeMounts`, and in the configuration's mounts.
    pub index: usize,
    /// The volume.
    pub volume: String,
    /// Relative to the volume, without `..`.
    pub path: String,
}

/// The mounts, in the order of the spec. Of a part of a volume the whole is named: see [`sub_paths`].
pub(super) fn volume_mounts(plan: &ContainerPlan<'_>) -> Result<Vec<wire::Mount>, ConfigError> {
    let container = plan.container;
    let mount = |mount: &VolumeMount| {
        let path = plan.volumes.get(&mount.name).ok_or_else(|| ConfigError::NoVolume {
            container: container.name.clone(),
            volume: mount.name.clone(),
        })?;
        let recursive = is_recursive_read_only(mount, plan.recursive_read_only);
        let recursive_read_only = recursive.ok_or_else(|| ConfigError::RecursiveReadOnly {
            container: container.name.clone(),
            volume: mount.name.clone(),
        })?;
        Ok(wire::Mount {
            container_path: mount.mount_path.clone(),
            host_path: path.to_string_lossy().into_owned(),
            readonly: mount.read_only.unwrap_or(false) || is_written_by_the_node(plan.facts.pod, &mount.name),
            recursive_read_only,
            propagation: propagation(mount).into(),
            ..Default::default()
        })
    };
    container.volume_mounts.iter().flatten().map(mount).collect()
}

/// The parts of volumes that `container` mounts. `$(VAR)` in `subPathExpr` is replaced from the container's environment.
///
/// # Errors
/// A variable that is not there, or a path that could leave the volume.
pub fn sub_paths(container: &Container, env: &[wire::KeyValue]) -> Result<Vec<SubPath>, ConfigError> {
    let values: HashMap<&str, &str> = env
        .iter()
        .filter_map(|var| Some((var.key.as_str(), std::str::from_utf8(&var.value).ok()?)))
        .collect();
    let mounts = container.volume_mounts.iter().flatten().enumerate();
    let part = |(index, mount): (usize, &VolumeMount)| {
        let text = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
        let path = match (text(&mount.sub_path), text(&mount.sub_path_expr)) {
            (Some(path), _) => Ok(path),
            (None, Some(expression)) => expanded(&expression, &values),
            (None, None) => return None,
        };
        let found = path.and_then(|path| match wrong(&path) {
            Some(why) => Err(format!("{why}: {path:?}")),
            None => Ok(SubPath { index, volume: mount.name.clone(), path }),
        });
        let of = |problem| ConfigError::SubPath {
            container: container.name.clone(),
            volume: mount.name.clone(),
            problem,
        };
        Some(found.map_err(of))
    };
    mounts.filter_map(part).collect()
}

fn expanded(expression: &str, values: &HashMap<&str, &str>) -> Result<String, String> {
    let missing = std::cell::RefCell::new(None);
    let lookup = |name: &str| {
        let value = values.get(name).copied();
        if value.is_none() {
            missing.borrow_mut().get_or_insert_with(|| name.to_owned());
        }
        value
    };
    let path = expand(expression, &lookup).ok_or("subPathExpr is too long")?;
    match missing.into_inner() {
        Some(name) => Err(format!("subPathExpr names variable `{name}`, which the container has not")),
        None => Ok(path),
    }
}

fn wrong(path: &str) -> Option<&'static str> {
    if path.starts_with('/') {
        Some("subPath must be relative")
    } else if path.split('/').any(|part| part == "..") {
        Some("subPath must not hold `..`")
    } else {
        None
    }
}

/// Volumes of files that a container must not change: it would not last.
fn is_written_by_the_node(pod: &Pod, volume: &str) -> bool {
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    let written = |found: &Volume| {
        found.downward_api.is_some()
            || found.config_map.is_some()
            || found.secret.is_some()
            || found.projected.is_some()
    };
    volumes.into_iter().any(|found| found.name == volume && written(found))
}

fn propagation(mount: &VolumeMount) -> wire::MountPropagation {
    match mount.mount_propagation.as_deref() {
        Some("HostToContainer") => wire::MountPropagation::PropagationHostToContainer,
        Some("Bidirectional") => wire::MountPropagation::PropagationBidirectional,
        _ => wire::MountPropagation::PropagationPrivate,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn parts(mounts: Value) -> Result<Vec<SubPath>, ConfigError> {
        let container: Container =
            serde_json::from_value(json!({"name": "c", "volumeMounts": mounts})).unwrap();
        let env = [("POD", "web-0"), ("UP", ".."), ("ROOT", "/etc"), ("EMPTY", "")]
            .map(|(key, value)| wire::KeyValue { key: key.into(), value: value.into() });
        sub_paths(&container, &env)
    }

    fn one(field: &str, path: &str) -> Result<Vec<SubPath>, ConfigError> {
        parts(json!([{"name": "v", "mountPath": "/a"}, {"name": "w", "mountPath": "/b", field: path}]))
    }

    #[test]
    fn parts_are_found_and_variables_put_in() {
        let part = |path: &str| vec![SubPath { index: 1, volume: "w".into(), path: path.into() }];
        assert_eq!(one("subPath", "a/$(POD)").unwrap(), part("a/$(POD)"), "not expanded");
        assert_eq!(one("subPathExpr", "a/$(POD)$(EMPTY)").unwrap(), part("a/web-0"));
        assert_eq!(one("subPathExpr", "$$(POD)").unwrap(), part("$(POD)"));
        assert!(one("subPath", "").unwrap().is_empty());
    }

    #[test]
    fn what_leaves_the_volume_or_is_not_known_is_refused_by_name() {
        for (field, path, text) in [
            ("subPathExpr", "$(NOPE)/x", "`NOPE`"),
            ("subPathExpr", "$(UP)/x", "`..`"),
            ("subPathExpr", "$(ROOT)", "relative"),
            ("subPath", "a/../..", "`..`"),
            ("subPath", "/a", "relative"),
        ] {
            let error = one(field, path).unwrap_err();
            let error = bulkhead_base::chain(&error).to_string();
            assert!(error.contains(text) && error.contains('w'), "{error}");
        }
    }
}
